"""What a device's samples say about a span of time. Pure functions of the columns that the monitor collects.

`series` maps each field to its values in order of time, None where not measured; `window` is from and to, in
seconds of the same host's monotonic clock as the field `at_s`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from statistics import fmean

from pareto.worker.sensors.raspberry import NOW, SINCE_BOOT, throttled_words

Series = Mapping[str, Sequence[float | None]]
Window = tuple[float, float]

_LEAST_INSIDE = 3
"""With fewer samples inside a window, what is interpolated at its ends would be most of the result."""


def energy_per_image(series: Series, window: Window, images: int) -> float | None:
    """Joules an image: the energy counter's rise between the window's ends, each interpolated linearly.

    None where energy was not measured: no sensor, a reading missed, or samples that do not reach from a time
    at or before the window to one at or after it, or fewer than three inside; and where there are no images.
    """
    times = _times(series)
    first = bisect_right(times, window[0]) - 1
    last = bisect_left(times, window[1])
    inside = bisect_right(times, window[1]) - bisect_left(times, window[0])
    if images < 1 or first < 0 or last >= len(times) or inside < _LEAST_INSIDE:
        return None
    energies = [x for x in series.get("energy_j", ())[first : last + 1] if x is not None]
    times = times[first : last + 1]
    if len(energies) < len(times):
        return None
    return (_at(window[1], times[-2:], energies[-2:]) - _at(window[0], times[:2], energies[:2])) / images


def share(series: Series, field: str, window: Window) -> float | None:
    """The rise of a counter of seconds over a window, as a share of the window: between samples it rises evenly.

    None where it was not counted, or the samples do not reach from one end of the window to the other.
    """
    pairs = zip(series.get("at_s", ()), series.get(field, ()), strict=False)
    known = [(at, value) for at, value in pairs if at is not None and value is not None]
    times, values = [at for at, _ in known], [value for _, value in known]
    ends = []
    for at in window:
        after = max(1, bisect_left(times, at))
        if after >= len(times) or times[after - 1] > at:
            return None
        ends.append(_at(at, times[after - 1 : after + 1], values[after - 1 : after + 1]))
    return max(0.0, ends[1] - ends[0]) / (window[1] - window[0]) if window[1] > window[0] else None


def summary(series: Series, window: Window) -> dict[str, float | int | None]:
    """The device's state in the window, over the samples inside it; None for what they did not measure.

    Maxima of temperature and GPU memory; means of frequency, GPU use and power. `throttled`: of the four bits of
    what is so now, each that any sample had, or that the four of what was so since boot say came up between two.
    """
    times = _times(series)
    inside = slice(bisect_left(times, window[0]), bisect_right(times, window[1]))

    def measured(field: str) -> list[float]:
        return [x for x in series.get(field, ())[inside] if x is not None]

    def mean(field: str) -> float | None:
        values = measured(field)
        return fmean(values) if values else None

    throttled: int | None = None
    told = [int(bits) for bits in measured("throttled")]
    if told:
        throttled = (told[-1] & ~told[0]) >> SINCE_BOOT
        for bits in told:
            throttled |= bits & NOW
    return {
        "temperature_c": max(measured("temperature_c"), default=None),
        "frequency_hz": mean("frequency_hz"),
        "throttled": throttled,
        "gpu_percent": mean("gpu_percent"),
        "gpu_memory_bytes": max(measured("gpu_memory_bytes"), default=None),
        "power_w": mean("power_w"),
    }


def throttled_now(bits: int) -> list[str]:
    """What held the device back at the time, in words; what was so since boot only is not among them."""
    return throttled_words(bits)


def _times(series: Series) -> list[float]:
    return [x for x in series.get("at_s", ()) if x is not None]


def _at(at_s: float, times: Sequence[float], values: Sequence[float]) -> float:
    """Between two times and the values there, linearly."""
    (before_s, after_s), (before, after) = times, values
    return before + (after - before) * (at_s - before_s) / (after_s - before_s)

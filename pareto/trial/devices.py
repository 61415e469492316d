"""The monitors of a run, one beside each worker, and what a device's samples say about a trial.

A series maps each field of `host_messages.SensorSample` to its values in the order of time, None where not measured. A
window is (from, to) on the clock of its `at_s`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from pareto.hosts.session import Programs
from pareto.hosts.testbed import Testbed
from pareto.protocol import host_messages
from pareto.protocol.jsonlines import plain
from pareto.protocol.messages import Facts, R, Request, Window
from pareto.remote.worker.sensors.throttled import NOW, SINCE_BOOT, SPOILING, throttled_words
from pareto.trial.result import HostReport

START_TIMEOUT_S = 60.0
IDLE_S = 3.0
"""How long idle power is measured, once a run."""
_ENERGY = frozenset(("energy_j", "power_w"))
"""Figures that hosts on one machine, or with one GPU, cannot tell apart."""
_LEAST_INSIDE = 3
"""With fewer samples inside a window, what is interpolated at its ends would be most of the result."""
_SPARE, _MOST_S = 1.25, 5.0
"""A phase may be over so much sooner than foreseen and still be long enough for a meter; longer none is for it."""
APART = 0.2
"""A counter of energy that is so far from what the power adds up to is doubted."""

Series = Mapping[str, Sequence[Any]]


class Devices:
    """The monitors. Methods raise SessionError, SessionLost, TimeoutError or Unreachable."""

    def __init__(self, testbed: Testbed, interval_s: float | None) -> None:
        """interval_s: how often they read their sensors; None: there are none, and nothing is reported."""
        self._testbed, self._interval_s = testbed, interval_s
        self._sessions = Programs()
        self._sensors: dict[str, dict[str, str]] = {}
        self._meters: dict[str, host_messages.Sensors] = {}
        """By role, of hosts with a sensor of energy."""
        self._sharing = frozenset[str]()
        """The roles of hosts that have one GPU."""
        self.idle_power_w: dict[str, float | None] = {}
        """By role, as `facts` measured it."""
        self.least_window_s = 0.0
        """How long a throughput phase lasts at the least, so that each host with an energy sensor has its energy."""

    def start(self, workers: Mapping[str, Facts]) -> None:
        """Watch the workers, by role, and the GPUs that they use."""
        if self._interval_s is None:
            return
        for role, remote in self._testbed.remotes.items():
            self._sessions[role] = remote.start("pareto.remote.worker.monitor")
        gpus = {role: worker.cuda.uuid for role, worker in workers.items() if worker.cuda is not None}
        count = Counter(gpus.values())
        self._sharing = frozenset(role for role, gpu in gpus.items() if gpu is not None and count[gpu] > 1)
        for role, worker in workers.items():
            remote = self._testbed.remotes[role]
            meter = remote.host.meter and remote.host.meter.shipped(remote.ship)
            watch = host_messages.BeginSampling(worker.pid, self._interval_s, gpus.get(role), meter)
            sensors = self._sessions[role].ask(watch, START_TIMEOUT_S)
            named = sensors.by_field.items()
            self._sensors[role] = {field: source for field, source in named if self._measures(role, field)}
            if "energy_j" in self._sensors[role]:
                self._meters[role] = sensors
                needed_s = long_enough_s(sensors.least_window_s, self._interval_s)
                if needed_s > _MOST_S:
                    needed_s = long_enough_s(0.0, self._interval_s)
                self.least_window_s = max(self.least_window_s, needed_s)

    def close(self) -> None:
        self._sessions.close()

    def facts(self) -> dict[str, dict[str, Any]]:
        """By role, the sensor that each figure is from, the power in watts while nothing is computed, and what sensors
        of energy leave out and for how long they must be read."""
        quick = [role for role, meter in self._meters.items() if meter.least_window_s <= IDLE_S]
        idle = dict.fromkeys(quick, host_messages.MeasureIdle(IDLE_S))
        self.idle_power_w = self._sessions.ask_all(idle, START_TIMEOUT_S)
        found: dict[str, dict[str, Any]] = {
            role: {"sensors": sensors, "idle_power_w": self.idle_power_w.get(role)}
            for role, sensors in self._sensors.items()
        }
        for role, meter in self._meters.items():
            found[role] |= {"energy_leaves_out": meter.leaves_out, "energy_least_s": meter.least_window_s}
        return found

    def meter(self, role: str) -> tuple[str, float]:
        """The source of a host's energy, and the seconds that it must be read at the least; empty without a sensor."""
        known = self._meters.get(role)
        return (known.by_field["energy_j"], known.least_window_s) if known else ("", 0.0)

    def latest(self) -> dict[str, dict[str, Any]]:
        return {
            role: {field: value for field, value in plain(sample).items() if self._measures(role, field)}
            for role, sample in self._ask_all(host_messages.GetLatestSample()).items()
            if sample is not None
        }

    def collect(self) -> dict[str, Series]:
        """By role, the samples since the last call."""
        return {
            role: {
                field: values if self._measures(role, field) else [None] * len(values)
                for field, values in vars(columns).items()
            }
            for role, columns in self._ask_all(host_messages.CollectSamples()).items()
        }

    def cost(self) -> dict[str, dict[str, Any]]:
        return {role: plain(cost) for role, cost in self._ask_all(host_messages.GetSamplingCost()).items()}

    def _ask_all(self, request: Request[R]) -> dict[str, R]:
        """By role, the monitors' reports, requested at the same time."""
        return self._sessions.ask_all(dict.fromkeys(self._sessions, request))

    def _measures(self, role: str, field: str) -> bool:
        return not ((self._testbed.is_local or role in self._sharing) and field in _ENERGY)


def columns(series: Series | None, host: HostReport, batch_size: int) -> dict[str, Any]:
    """A host's columns of stages.csv, and with its role before them of trials.csv, from its samples and its report."""
    usage, idle_power_w = host.usage, host.idle_power_w
    told = ("cpu_percent", "rss_bytes", "peak_rss_bytes", "gpu_s")
    row: dict[str, Any] = {name: getattr(usage, name) for name in told}
    window = usage.trial_window
    if series is None or window is None:
        return row
    row |= summary(series, window)
    if row["throttled"] is not None:
        row["throttled"] = hex(row["throttled"])
    steal, waited = (share(series, field, window) for field in ("steal_s", "waited_s"))
    shares = {"steal": steal, "others": others(series, window), "wait": waited}
    row |= {f"{name}_percent": part and 100 * part for name, part in shares.items()}
    steady, requests = usage.throughput_window, usage.throughput_window_requests
    if steady is not None and requests:
        row["core_percent"] = _core_percent(series, steady)
        images = requests * batch_size
        is_enough = steady[1] - steady[0] >= host.meter[1]
        row["energy_j"] = whole_j = energy_per_image(series, steady, images) if is_enough else None
        if whole_j is not None and idle_power_w is not None:
            row["active_energy_j"] = whole_j - idle_power_w * (steady[1] - steady[0]) / images
    return row


def others(series: Series | None, window: Window | None) -> float | None:
    """The share of the worker's cores that other programs had in a window; None where it is not known, as where a CPU
    quota, which begins anew in step with the ticks at which the kernel looks, held the host back."""
    if series is None or window is None or _held_back(series, window):
        return None
    return share(series, "others_s", window)


def throttling(role: str, series: Series, window: Window) -> str:
    """Why a host computed more slowly than it can, in its own words; empty where it reports nothing."""
    reasons = throttled_words(int(summary(series, window)["throttled"] or 0) & SPOILING)
    return f"the {role} throttled: {', '.join(reasons)}" if reasons else ""


def within(series: Series, window: Window, margin_s: float = 1.0) -> dict[str, list[Any]]:
    """The samples of a window and a second around it, `at_s` from its beginning."""
    begin, end = window
    kept = [i for i, at in enumerate(series["at_s"]) if begin - margin_s <= at <= end + margin_s]
    cut = {field: [values[i] for i in kept] for field, values in series.items()}
    return {**cut, "at_s": [at - begin for at in cut["at_s"]]}


def _core_percent(series: Series, window: Window) -> float | None:
    """The share of time in which a host's cores were busy, or held back by a CPU quota that was used up."""
    busy = share(series, "busy_s", window)
    if busy is None:
        return None
    if held_back := _held_back(series, window):
        busy -= share(series, "others_s", window) or 0.0
    return min(100.0, 100 * (busy + held_back))


def _held_back(series: Series, window: Window) -> float:
    """The share of a window in which a CPU quota held the host back."""
    return share(series, "throttled_s", window) or 0.0


def long_enough_s(least_window_s: float, interval_s: float) -> float:
    """The seconds for which a meter must be read at the least, whose samples are so far apart: one may be late."""
    return max((_LEAST_INSIDE + 1) * interval_s, _SPARE * least_window_s)


def energy_per_image(series: Series, window: Window, images: int) -> float | None:
    """Joules per image. None where `rise` has none, and where there are no images."""
    energy_j = rise(series, "energy_j", window)
    return None if energy_j is None or images < 1 else energy_j / images


def energy_standing(series: Series | None, host: HostReport) -> dict[str, Any]:
    """`energy_source`; `energy_ratio`, a counter's energy over what the power beside it adds up to; and why a trial has
    no energy, or why to doubt it: `energy_doubt`. Nothing without a sensor, samples and a throughput phase."""
    (source, least_window_s), window = host.meter, host.usage.throughput_window
    if not source or series is None or window is None:
        return {}
    lasted_s, doubt = window[1] - window[0], ""
    counted_j, integrated_j = (rise(series, of, window) for of in ("counted_j", "integrated_j"))
    ratio = counted_j / integrated_j if counted_j is not None and integrated_j else None
    if lasted_s < least_window_s:
        doubt = f"none: it was read for {lasted_s:.2g} s of the {least_window_s:.2g} s that it needs"
    elif rise(series, "energy_j", window) is None:
        doubt = "none: too few readings, or one was missed"
    elif ratio is not None and abs(ratio - 1) > APART:
        doubt = f"doubtful: its counter has {ratio:.0%} of what its power adds up to"
    return {"energy_source": source, "energy_ratio": ratio, "energy_doubt": doubt}


def rise(series: Series, field: str, window: Window) -> float | None:
    """The rise of a sensor's counter between the window's ends, each interpolated linearly. None: no sensor, a reading
    missed, samples that do not reach from one end of the window to the other, or fewer than three inside."""
    times, counts = series.get("at_s", ()), series.get(field, ())
    first, last = bisect_right(times, window[0]) - 1, bisect_left(times, window[1])
    inside = bisect_right(times, window[1]) - bisect_left(times, window[0])
    if first < 0 or last >= len(times) or inside < _LEAST_INSIDE:
        return None
    around = slice(first, last + 1)
    if not counts or None in counts[around]:
        return None
    begin, end = np.interp(window, times[around], counts[around])
    return float(end - begin)


def share(series: Series, field: str, window: Window) -> float | None:
    """The rise of a counter of seconds over a window, as a share of the window: between samples it rises evenly. None
    where it was not counted, or the samples do not reach from one end of the window to the other."""
    pairs = zip(series.get("at_s", ()), series.get(field, ()), strict=False)
    known = [(at, value) for at, value in pairs if value is not None]
    if len(known) < 2 or not known[0][0] <= window[0] < window[1] <= known[-1][0]:
        return None
    times, values = zip(*known, strict=True)
    begin_s, end_s = np.interp(window, times, values)
    return max(0.0, float(end_s - begin_s)) / (window[1] - window[0])


def summary(series: Series, window: Window) -> dict[str, float | int | None]:
    """The device's state over the samples inside the window; None for what they did not measure. throttled: the bits of
    what is so now; each is set if any sample has it, or if its twin, of all the time since boot, came up."""
    times = series.get("at_s", ())
    inside = slice(bisect_left(times, window[0]), bisect_right(times, window[1]))

    def measured(field: str) -> list[float]:
        return [value for value in series.get(field, ())[inside] if value is not None]

    def mean(field: str) -> float | None:
        values = measured(field)
        return fmean(values) if values else None

    throttled: int | None = None
    if readings := [int(bits) for bits in measured("throttled")]:
        throttled = (readings[-1] & ~readings[0]) >> SINCE_BOOT
        for bits in readings:
            throttled |= bits & NOW
    return {
        "temperature_c": max(measured("temperature_c"), default=None),
        "frequency_hz": mean("frequency_hz"),
        "throttled": throttled,
        "gpu_percent": mean("gpu_percent"),
        "gpu_memory_bytes": max(measured("gpu_memory_bytes"), default=None),
        "gpu_temperature_c": max(measured("gpu_temperature_c"), default=None),
    }

"""The times of each unit of a stage on this device, and the rates that the device reaches at best.

A unit by itself would find other caches than in a model, so units are timed within a run of all of them, by marks
between them. Runs with marks and without take turns: their difference is what the marks cost. The units' clock is
processor time where that is what passes: of one thread, and under a CPU quota. So neither another program nor a pause
falls into one unit. All units together are timed by the clock on the wall, less the waits that the kernel counts.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from pareto.partitions.model import ResidentStage
from pareto.partitions.stage import Stage
from pareto.protocol.profile_messages import MAX_UNIT_RUNS, Roofline, Steady, TimeUnits, UnitRuns
from pareto.remote.backends.base import Layout, Tensors
from pareto.remote.worker.device import Device, refused_out_of_memory
from pareto.remote.worker.served import Waits

LEAST_RUNS = 6
"""Runs that a median's interval needs, however slow the stage."""
PAUSED_RUNS, PAUSE_S, PAUSED_MOST_S = 15, 0.02, 4.0
"""Runs after a pause, which is about what a request waits for a network: half as many as others, at most so many, and
fewer of a stage that is slow."""
LEAST_SHARE = 0.01
"""The share of a run that is left at least when its waits are taken off."""
MATRIX, GPU_MATRIX = 768, 8192
COPIED_BYTES, GPU_COPIED_BYTES = 64 << 20, 1 << 30
"""Sizes that fill a device, and no cache: two such buffers are more than any processor's."""
WINDOWS, WINDOW_S = 3, 0.15
"""The best of so many stretches counts; each has many periods of a CPU quota."""


class _Marks:
    """Keeps what `stamp` says between units, whenever `note` is called."""

    def __init__(self, device: Device, tensors: Tensors) -> None:
        self.stamp: Callable[[], Any] = device.stamp
        self._device = device
        self._tensors = tensors
        self._stamps: list[Any] = []

    def note(self) -> None:
        self._stamps.append(self.stamp())

    def of_run(self, stage: Stage, stamp: Callable[[], Any]) -> list[Any]:
        self.stamp, self._stamps = stamp, []
        self._device.run(stage, self._tensors)
        return self._stamps


def timed(device: Device, resident: ResidentStage, tensors: Tensors, request: TimeUnits) -> UnitRuns:
    """The times of the resident stage's units, and of all of them in one run. Raises Refused where memory runs out."""
    units_s, whole_s, outside_s = list[list[float]](), list[float](), list[float]()
    marks = _Marks(device, tensors)
    by_processor = device.name == "cpu" and (request.cpu < 1 or torch.get_num_threads() == 1)
    stamp: Callable[[], Any] = time.process_time if by_processor else device.stamp
    with resident.marked(marks.note, units=False) as bare, resident.marked(marks.note, units=True) as marked:
        for stage in (bare, marked) * device.warm_ups:
            marks.of_run(stage, device.stamp)
        _, *peaks = marks.of_run(marked, device.peak_bytes)
        began = time.perf_counter()
        while _more(request, len(units_s), time.perf_counter() - began):
            for stage in (bare, marked) if len(units_s) % 2 else (marked, bare):
                if stage is marked:
                    pairs = itertools.pairwise(marks.of_run(marked, stamp))
                    if by_processor:
                        units_s.append([(after - before) / request.cpu for before, after in pairs])
                    else:
                        units_s.append([device.between_s(*pair) for pair in pairs])
                else:
                    ends, started = _Ends(device, request.cpu), time.perf_counter()
                    within_s, undisturbed_s = _whole_s(device, marks.of_run(bare, ends.stamp))
                    took_s = time.perf_counter() - started
                    whole_s.append(undisturbed_s)
                    outside_s.append(max(0.0, took_s - within_s - ends.reading_s))
        paused_s, began = list[float](), time.perf_counter()
        while len(paused_s) < min(PAUSED_RUNS, max(LEAST_RUNS, request.runs // 2)) and (
            len(paused_s) < LEAST_RUNS or time.perf_counter() - began < PAUSED_MOST_S
        ):
            time.sleep(PAUSE_S)
            ends = _Ends(device, request.cpu)
            paused_s.append(_whole_s(device, marks.of_run(bare, ends.stamp))[1])
    steady = [_steady(device, resident.stage, tensors, request.steady_s)] if request.steady_s else []
    for unit in resident.units() if request.unit_s else ():
        steady.append(_steady(device, unit, tensors, request.unit_s))
        tensors = device.run(unit, tensors)
    return UnitRuns(units_s, whole_s, outside_s, None if None in peaks else peaks, steady, paused_s)


def example(takes: Layout) -> Tensors:
    """Images of noise, in the layout that a stage takes."""
    return tuple(
        torch.rand(shape) if dtype == "float32" else torch.randint(0, 256, shape).to(getattr(torch, dtype))
        for dtype, shape in takes
    )


def roofline(device: Device, cpu: float = 1.0) -> Roofline:
    """The device's best rates a second: operations of a matrix product, bytes of a copy. cpu: its share of a core."""
    on_gpu = device.name != "cpu"
    size, nbytes = (GPU_MATRIX, GPU_COPIED_BYTES) if on_gpu else (MATRIX, COPIED_BYTES)
    with refused_out_of_memory(), torch.inference_mode():
        left, right, product = (torch.rand(size, size, device=device.name) for _ in range(3))
        source, target = (torch.zeros(nbytes, dtype=torch.uint8, device=device.name) for _ in range(2))
        flops = _rate(device, cpu, lambda: torch.mm(left, right, out=product), 2 * size**3)
        return Roofline(flops, _rate(device, cpu, lambda: target.copy_(source), 2 * nbytes))


class _Ends:
    """The stamps of a run with two marks, within readings of how long this thread had waited for a core: none on a GPU;
    under a quota a wait replaces a pause, so none is taken off. reading_s: what the readings took."""

    def __init__(self, device: Device, cpu: float) -> None:
        self.reading_s = 0.0
        self._device = device
        self._waits = Waits() if device.name == "cpu" and cpu == 1 else None
        self._is_first = True

    def stamp(self) -> tuple[float, Any]:
        if self._is_first:
            self._is_first = False
            waited_s = self._waited_s()
            return waited_s, self._device.stamp()
        now = self._device.stamp()
        return self._waited_s(), now

    def _waited_s(self) -> float:
        if self._waits is None:
            return 0.0
        began = time.perf_counter()
        waited_s = self._waits.seconds()
        self.reading_s += time.perf_counter() - began
        return waited_s


def _whole_s(device: Device, ends: Sequence[tuple[float, Any]]) -> tuple[float, float]:
    """The seconds between the two stamps of a run, and the same without the waits for a core."""
    (before_s, first), (after_s, last) = ends
    within_s = device.between_s(first, last)
    return within_s, _undisturbed(within_s, after_s - before_s)


def _undisturbed(took_s: float, waited_s: float) -> float:
    """A time without its waits, which the kernel may have counted somewhat later."""
    return took_s - min(max(0.0, waited_s), (1 - LEAST_SHARE) * took_s)


def _more(request: TimeUnits, runs: int, elapsed_s: float) -> bool:
    if runs < LEAST_RUNS:
        return True
    enough = runs >= request.runs and elapsed_s >= request.seconds
    return not enough and runs < MAX_UNIT_RUNS and elapsed_s < request.most_s


def _steady(device: Device, stage: Stage, tensors: Tensors, seconds: float) -> Steady:
    """Runs of a stage again and again without a pause."""
    began, runs = time.perf_counter(), 0
    while runs == 0 or time.perf_counter() - began < seconds:
        device.run(stage, tensors)
        runs += 1
    return Steady((began, time.perf_counter()), runs)


def _rate(device: Device, cpu: float, work: Callable[[], object], amount: float) -> float:
    """The most of `amount` a second, over stretches of work without a pause; less waits for a core."""
    waits, once_s, best = Waits(), math.inf, 0.0
    for number in range(WINDOWS + 2):  # the first finds cold memory, the second says how long one takes
        count = 1 if number < 2 else math.ceil(WINDOW_S / max(once_s, 1e-9))
        first, waited_s = device.stamp(), waits.seconds() if cpu == 1 else 0.0
        for _ in range(count):
            work()
        took_s = device.between_s(first, device.stamp())
        once_s = _undisturbed(took_s, waits.seconds() - waited_s if cpu == 1 else 0.0) / count
        best = max(best, amount / max(once_s, 1e-9)) if number > 1 else best
    return best

"""A stage that a host serves to the one before: when it ran, and what it takes.

A stage may wait for a core that another program keeps busy. The kernel counts that for each thread (`schedstat`, its
second figure), and it is taken off, so that a baseline holds also where something disturbs it. Time held back by a CPU
quota is the host's own speed, and stays.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pareto.partitions.model import ResidentStage
from pareto.protocol.messages import MAX_REQUESTS, Window
from pareto.protocol.trial_messages import Coded
from pareto.remote.backends.base import Layout, Tensors, nbytes
from pareto.remote.worker.device import Device
from pareto.remote.worker.pace import BASELINE_MOST_S, BASELINE_RUNS, BASELINE_S
from pareto.remote.worker.phases import Compute
from pareto.remote.worker.sensors.processor import throttled_s, throttling

NO_REQUEST = b""
"""A fingerprint that no request has: they have 8 bytes."""
STEADY_S = 0.25
"""Shorter stretches of steady work say little: a CPU quota is spent in bursts, and one quick run is no pace."""
ATTEMPTS, WAITED_S = 20, 1e-4
"""How often two clocks are read until they are of one time, and how long a wait between them may be."""


class Runs:
    """When a served stage ran, on this host's `time.monotonic`."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._runs: deque[Window] = deque(maxlen=MAX_REQUESTS)
        self._coded: deque[tuple[float, float, int]] = deque(maxlen=MAX_REQUESTS)

    def note(self, began: float, ended: float, coded: tuple[float, float, int] | None = None) -> None:
        """coded: the codec's seconds to decode and to encode, and the bytes that it sends."""
        self._began = began if self._began is None else self._began
        self._runs.append((began, ended))
        if coded is not None:
            self._coded.append(coded)

    def coded(self, requests: int) -> Coded | None:
        """The codec's seconds and bytes for the last requests; None where there were not so many with a codec."""
        if not 0 < requests <= len(self._coded):
            return None
        decode_s, encode_s, wire_bytes = map(list, zip(*list(self._coded)[-requests:], strict=True))
        return Coded(decode_s, encode_s, wire_bytes)

    def trial_window(self) -> Window | None:
        return (self._began, self._runs[-1][1]) if self._began is not None else None

    def last(self, requests: int, steady: int) -> Sequence[Window]:
        """The first `steady` of the last `requests` runs; empty where there are fewer than two, or not so many."""
        return list(self._runs)[-requests:][:steady] if 2 <= steady <= requests <= len(self._runs) else ()

    def steady_s(self, requests: int) -> float | None:
        return steady_s(list(self._runs), requests)


@dataclass(eq=False)
class ServedStage:
    """A stage behind the edge: whatever is resident, under this fingerprint. It has no weights of its own, as backends'
    threads hold on to it until the next request. takes: what comes over the link. decode, encode: the codecs of what
    comes, and of what is sent on, or by the last host of the result; None where it is left as it is."""

    device: Device
    resident: ResidentStage
    runs: Runs
    fingerprint: bytes
    takes: Layout = ()
    decode: Compute | None = None
    encode: Compute | None = None

    def run(self, tensors: Tensors) -> tuple[Tensors, float]:
        """As in the protocol; with a codec the time includes its work."""
        began = time.perf_counter()
        payload = tensors if self.decode is None else self.decode(tensors)
        decoded = time.perf_counter()
        outputs = self.device.run(self.resident.stage, payload)
        computed = time.perf_counter()
        encoded = outputs if self.encode is None else self.encode(outputs)
        wire_bytes = 0 if self.encode is None else nbytes(encoded)
        ended = time.perf_counter()
        coded = None if self.decode is None else (decoded - began, ended - computed, wire_bytes)
        self.runs.note(began, ended, coded)
        return encoded, ended - began


def baseline_s(run: Callable[[], object]) -> float:
    """Mean seconds of a run, without the time that it waited for a core."""
    waits, runs = Waits(), 0
    began, waited = waits.clock()
    while (elapsed := time.perf_counter() - began) < BASELINE_S or runs < BASELINE_RUNS:
        if runs and elapsed > BASELINE_MOST_S:
            break
        run()
        runs += 1
    ended, waited_since = waits.clock()
    return (ended - began - max(0.0, waited_since - waited)) / runs


def steady_s(runs: Sequence[Window], requests: int = 0) -> float | None:
    """The least seconds from one run to the next over any stretch of `STEADY_S`, or of so many runs; None: there is
    none. runs: when each began and ended, in order. No throughput over such runs is above one run in this time."""
    stretches = [(last + 1 - requests, last) for last in range(requests - 1, len(runs))] if requests else []
    first = 0
    for last, (_, ended) in enumerate(runs):
        while first < last and ended - runs[first + 1][0] >= STEADY_S:
            first += 1
        if ended - runs[first][0] >= STEADY_S:
            stretches.append((first, last))
    paces_s = ((runs[last][1] - runs[first][0]) / (last - first + 1) for first, last in stretches)
    return min(paces_s, default=None)


class Waits:
    """How long the calling thread has waited for a core, but for what a CPU quota held it back. Always 0 where the
    kernel does not count it."""

    def __init__(self) -> None:
        self._quota = throttling("self")

    def clock(self) -> tuple[float, float]:
        """`time.perf_counter` and `seconds`, read again until nothing was waited between the two readings."""
        waited = self.seconds()
        for _ in range(ATTEMPTS):
            now = time.perf_counter()
            before, waited = waited, self.seconds()
            if waited - before < WAITED_S:
                break
        return now, waited

    def seconds(self) -> float:
        try:
            waited_s = int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            return 0.0
        return waited_s - (throttled_s(self._quota) or 0.0)

"""A stage as a host serves it to the one before, and when it worked."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from pareto.backends.base import Layout, Tensors
from pareto.worker.baseline import steady_s
from pareto.worker.device import Device
from pareto.worker.phases import MAX_THROUGHPUT_REQUESTS
from partitions.resident import ResidentStage

NO_REQUEST = b""
"""A fingerprint that no request has: they are of 8 bytes."""


class Runs:
    """When a served stage worked, one run after another. Times are on this host's `time.monotonic`."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._runs: deque[tuple[float, float]] = deque(maxlen=2 * MAX_THROUGHPUT_REQUESTS)

    def note(self, began: float, ended: float) -> None:
        if self._began is None:
            self._began = began
        self._runs.append((began, ended))

    def windows(self, requests: int, steady: int) -> dict[str, Any]:
        """From the first run to the last; and of the first `steady` of the last `requests` runs, from the end of
        the first to that of the last, with the number of ends after the first and the seconds of work. None: it did
        not run, or not so often. `steady_s`: as `pareto.worker.baseline` has it.
        """
        last = list(self._runs)[-requests:][:steady] if 2 <= steady <= requests <= len(self._runs) else None
        return {
            "trial_window": (self._began, self._runs[-1][1]) if self._runs else None,
            "throughput_window": (last[0][1], last[-1][1]) if last else None,
            "throughput_window_requests": len(last) - 1 if last else None,
            "steady_s": steady_s(list(self._runs)),
            "throughput_busy_s": sum(ended - began for began, ended in last[1:]) if last else None,
        }


class ServedStage:
    """A stage behind the edge: whatever is resident, under this fingerprint.

    So it keeps no weights when it is no longer served; threads of the backends hold on to it till the next request.
    """

    def __init__(
        self, device: Device, resident: ResidentStage, runs: Runs, name: bytes, takes: Layout = ()
    ) -> None:
        self.fingerprint = name
        self.takes = takes
        self._device = device
        self._resident = resident
        self._runs = runs

    def run(self, tensors: Tensors) -> tuple[Tensors, float]:
        began = time.perf_counter()
        outputs = self._device.run(self._resident.stage, tensors)
        ended = time.perf_counter()
        self._runs.note(began, ended)
        return outputs, ended - began

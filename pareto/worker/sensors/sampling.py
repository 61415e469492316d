"""Samples at a steady pace, in a thread of their own, kept until they are collected."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable

from pareto.worker.sensors.instruments import Sample

KEPT = 50_000
"""Samples that wait to be collected, at most (some 20 MB): the oldest give way."""


class Sampler:
    """Calls `take` now and every `interval_s` after until `stop`. `take` is never called by two threads at once."""

    def __init__(self, take: Callable[[], Sample], interval_s: float, kept: int = KEPT) -> None:
        self._take = take
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._taking = threading.Lock()
        self._stopping = threading.Event()
        self._fault: Exception | None = None
        self._samples: deque[Sample] = deque([take()], maxlen=kept)
        self._taken = 1
        self._late_s: deque[float] = deque(maxlen=kept)
        self._thread = threading.Thread(target=self._run, name="sampling", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Return when no sample is being taken any more."""
        self._stopping.set()
        self._thread.join()

    def latest(self) -> Sample:
        return self.waiting()[-1]

    def waiting(self) -> list[Sample]:
        """The samples that `collect` would give. Raises RuntimeError if sampling has failed."""
        with self._lock:
            if self._fault is not None:
                raise RuntimeError("sampling has ended") from self._fault
            return list(self._samples)

    def collect(self) -> list[Sample]:
        """The samples since the last call and the last one of that call, so that no interval is lost between.

        One is taken now: what has just ended lies between two samples as well.
        """
        self.waiting()  # raises
        self._sample()
        with self._lock:
            collected = list(self._samples)
            self._samples = deque(collected[-1:], maxlen=self._samples.maxlen)
            return collected

    def taken(self) -> int:
        with self._lock:
            return self._taken

    def late_p99_s(self) -> float | None:
        """By how much 99 % of the latest samples were at most behind their time; None before there are any."""
        with self._lock:
            late = sorted(self._late_s)
        return late[math.ceil(0.99 * len(late)) - 1] if late else None

    def _sample(self) -> None:
        with self._taking:
            sample = self._take()
            with self._lock:
                self._samples.append(sample)
                self._taken += 1

    def _run(self) -> None:
        try:
            due_s = time.monotonic() + self._interval_s
            while not self._stopping.wait(max(0.0, due_s - time.monotonic())):
                late_s = time.monotonic() - due_s
                self._sample()
                with self._lock:
                    self._late_s.append(late_s)
                # Times that have passed are left out: samples in a burst would tell nothing new.
                due_s += self._interval_s * (1 + max(0, int(late_s / self._interval_s)))
        except Exception as fault:
            with self._lock:
                self._fault = fault
            raise

"""Waking up on time: timer slack, real-time scheduling, no garbage collection."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import time

_PR_SET_TIMERSLACK = 29
_PRIORITY = 10
_REVIEW_S = 0.1
_BUSY, _CALM = 0.6, 0.3


def prepare() -> None:
    """Before any thread starts: threads inherit the timer slack and the policy.

    All of them, since one of ordinary priority that is preempted while it holds the interpreter lock would
    hold up the one that is in a hurry.
    """
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    sys.setswitchinterval(1e-4)
    gc.collect()
    gc.freeze()
    gc.disable()
    _schedule(os.SCHED_FIFO)


class Policy:
    """SCHED_FIFO for the calling thread as long as it mostly sleeps.

    A relay of hundreds of Mbit/s keeps a core to itself; under FIFO it would starve the receiver it feeds. It
    steps back to SCHED_OTHER then, and returns when traffic is light. permitted: whether it may have SCHED_FIFO at all.
    """

    def __init__(self) -> None:
        self._fifo = os.sched_getscheduler(0) == os.SCHED_FIFO
        self.permitted = self._fifo
        self._wall = time.monotonic()
        self._cpu = time.thread_time()

    @property
    def name(self) -> str:
        return "fifo" if self._fifo else "other"

    def review(self) -> None:
        """Call often; it looks at the CPU time ten times a second."""
        wall = time.monotonic()
        elapsed = wall - self._wall
        if elapsed < _REVIEW_S:
            return
        cpu = time.thread_time()
        share = (cpu - self._cpu) / elapsed
        self._wall, self._cpu = wall, cpu
        if self._fifo and share > _BUSY:
            self._fifo = not _schedule(os.SCHED_OTHER)
        elif self.permitted and not self._fifo and share < _CALM:
            self._fifo = _schedule(os.SCHED_FIFO)


def _schedule(policy: int) -> bool:
    """Give the calling thread the policy, if that is permitted (it is not in a child cpu cgroup)."""
    try:
        os.sched_setscheduler(0, policy, os.sched_param(_PRIORITY if policy == os.SCHED_FIFO else 0))
    except OSError:
        return False
    return True

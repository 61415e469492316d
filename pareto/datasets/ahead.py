"""Work done ahead of its use."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
THREADS = min(4, os.cpu_count() or 1)
"""Decoders let go of the interpreter's lock; more threads than these would wait for the disk, or for the model."""
AHEAD = 2 * THREADS


def ahead(jobs: Iterable[Callable[[], T]]) -> Iterator[T]:
    """What the jobs yield, in their order, while threads do those to come; no more than `AHEAD` lie ready.

    Raises what a job raises, when its turn comes; the jobs after it are dropped.
    """
    waiting: deque[Future[T]] = deque()
    pool = ThreadPoolExecutor(THREADS, thread_name_prefix="decode")
    try:
        for job in jobs:
            waiting.append(pool.submit(job))
            if len(waiting) > AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)

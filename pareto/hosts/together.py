"""Work on several hosts at the same time, since it takes seconds on each and none needs the others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import TypeVar

K = TypeVar("K")
T = TypeVar("T")


def on_each(calls: Mapping[K, Callable[[], T]], within_s: float | None = None) -> dict[K, T]:
    """The result of each call, in their order; all are made at the same time, in threads.

    When all have ended, or that time is up, raises the error of the first of them that failed; what is not done then is
    left out. An interruption does not wait for them: no thread keeps the process from ending.
    """
    futures: dict[K, Future[T]] = {key: Future() for key in calls}

    def make(key: K) -> None:
        try:
            futures[key].set_result(calls[key]())
        except BaseException as error:
            futures[key].set_exception(error)

    for key in calls:
        threading.Thread(target=make, args=(key,), name="on each", daemon=True).start()
    wait(futures.values(), within_s)
    return {key: future.result() for key, future in futures.items() if future.done()}

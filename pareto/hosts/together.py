"""Work on several hosts at the same time, since it takes seconds on each and none needs the others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def on_each(calls: Mapping[str, Callable[[], T]]) -> dict[str, T]:
    """The result of each call, by role, in their order; all are made at the same time, in threads.

    When all have ended, raises the error of the first of them that failed. An interruption does not wait for them: no
    thread keeps the process from ending.
    """
    futures: dict[str, Future[T]] = {role: Future() for role in calls}

    def make(role: str) -> None:
        try:
            futures[role].set_result(calls[role]())
        except BaseException as error:
            futures[role].set_exception(error)

    threads = [threading.Thread(target=make, args=(role,), name=f"on {role}", daemon=True) for role in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {role: future.result() for role, future in futures.items()}

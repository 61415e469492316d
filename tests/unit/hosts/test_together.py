"""What is done on several hosts at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from concurrent.futures import FIRST_COMPLETED, Future, wait

import pytest

from pareto.hosts import together
from pareto.hosts.together import on_each


def test_each_begins_before_any_has_ended_and_results_keep_their_order() -> None:
    met = threading.Barrier(3, timeout=20)

    def call(name: str) -> Callable[[], str]:
        def meet() -> str:
            met.wait()
            return name.upper()

        return meet

    assert list(on_each({name: call(name) for name in "cab"}).items()) == [("c", "C"), ("a", "A"), ("b", "B")]


def test_the_first_ones_error_is_raised_when_all_have_ended() -> None:
    second_failed, ended = threading.Event(), []

    def first() -> None:
        assert second_failed.wait(20)
        raise ValueError("first")

    def second() -> None:
        second_failed.set()
        raise KeyError("second")

    with pytest.raises(ValueError, match="first"):
        on_each({"a": first, "b": second, "c": lambda: ended.append("c")})
    assert ended == ["c"]


def test_those_that_take_too_long_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is up when one of the two has ended."""

    def waits(futures: Collection[Future[object]], within_s: float) -> None:
        assert within_s == 60.0
        wait(futures, return_when=FIRST_COMPLETED)

    monkeypatch.setattr(together, "wait", waits)
    forever = threading.Event()
    assert on_each({"slow": forever.wait, "quick": lambda: True}, 60.0) == {"quick": True}
    forever.set()


def test_nothing_is_done_on_no_host() -> None:
    assert on_each({}) == {}

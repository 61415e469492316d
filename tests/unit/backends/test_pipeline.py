"""One host's steps, without a network: which thread does what, and in which order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pareto.remote.backends.base import Layout, Reply, Tensors
from pareto.remote.backends.pipeline import QUICK_S, SMALL_BYTES, Pipeline, Request
from tests.program import wait_until


class Stage:
    """Says that it took `takes_s`, and is held up while `free` is not set."""

    fingerprint = b"a stage."
    takes: Layout = ()

    def __init__(self, takes_s: float, nbytes: int = 4) -> None:
        self.takes_s = takes_s
        self.free = threading.Event()
        self.free.set()
        self.threads: list[str] = []
        self._outputs = (torch.zeros(nbytes, dtype=torch.uint8),)

    def run(self, tensors: Tensors) -> tuple[Tensors, float]:
        assert self.free.wait(60)
        self.threads.append(threading.current_thread().name)
        return self._outputs, self.takes_s


class Meeting(Stage):
    """Notices when two run it at once."""

    def __init__(self, takes_s: float) -> None:
        super().__init__(takes_s)
        self.met = False
        self.meet: threading.Barrier | None = None

    def run(self, tensors: Tensors) -> tuple[Tensors, float]:
        if self.meet is not None:
            with suppress(threading.BrokenBarrierError):
                self.meet.wait(0.1)
                self.met = True
        return super().run(tensors)


class Asked:
    """A request's answers, as they came."""

    def __init__(self) -> None:
        self.order: list[int] = []

    def request(self, number: int, stage: Stage) -> tuple[Request, Future[str]]:
        done: Future[str] = Future()

        def answer(result: Tensors, stages_s: tuple[float, ...], serialize_s: float) -> None:
            self.order.append(number)
            done.set_result(threading.current_thread().name)

        return Request(number, (), stage, None, answer, done.set_result, lambda: None), done


@pytest.fixture
def pipeline() -> Iterator[Pipeline]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    made = Pipeline("test")
    torch.set_num_threads(threads)
    yield made
    made.close()


def answered_by(pipeline: Pipeline, asked: Asked, number: int, stage: Stage) -> str:
    request, done = asked.request(number, stage)
    pipeline.put(request)
    who = done.result(60)
    assert wait_until(lambda: not pipeline._begun)  # the answer comes a moment before its thread is free
    return who


def test_a_stage_known_to_be_quick_computes_where_it_was_received(pipeline: Pipeline) -> None:
    here, asked = threading.current_thread().name, Asked()
    quick, slow = Stage(QUICK_S / 2), Stage(2 * QUICK_S)
    assert answered_by(pipeline, asked, 0, quick) == "test-compute"  # nobody knows yet
    assert answered_by(pipeline, asked, 1, quick) == here
    assert answered_by(pipeline, asked, 2, slow) == answered_by(pipeline, asked, 3, slow) == "test-compute"
    quick.takes_s = 2 * QUICK_S  # a quick one that is slow for once
    assert answered_by(pipeline, asked, 4, quick) == answered_by(pipeline, asked, 5, quick) == "test-compute"


def test_with_several_compute_threads_one_thread_computes() -> None:
    """Each thread that computes would have a team of its own, and they spin against each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    with closing(Pipeline("test")) as pipeline:
        torch.set_num_threads(threads)
        asked, quick = Asked(), Stage(QUICK_S / 2)
        assert {answered_by(pipeline, asked, number, quick) for number in range(3)} == {"test-compute"}


def test_a_large_answer_leaves_in_a_thread_of_its_own(pipeline: Pipeline) -> None:
    asked, large = Asked(), Stage(QUICK_S / 2, SMALL_BYTES + 1)
    assert {answered_by(pipeline, asked, number, large) for number in range(3)} == {"test-leave"}


def test_seconds_are_told_in_the_order_of_the_chain(pipeline: Pipeline) -> None:
    said: Future[Any] = Future()
    onward: Any = SimpleNamespace(send=lambda *_: 0.5, receive=lambda: Reply(7, (), (0.2, 0.3), 0.25))
    pipeline.put(
        Request(7, (), Stage(0.1), onward, lambda *told: said.set_result(told), said.set_result, lambda: None)
    )
    assert said.result(60)[1:] == ((0.1, 0.2, 0.3), 0.75)


def test_what_is_received_while_another_computes_waits_for_its_turn(pipeline: Pipeline) -> None:
    asked, stage = Asked(), Stage(QUICK_S / 2)
    answered_by(pipeline, asked, 0, stage)
    stage.takes_s = 2 * QUICK_S
    answered_by(pipeline, asked, 1, stage)  # here, and slow: from now on in its thread
    stage.free.clear()
    requests = [asked.request(number, stage) for number in (2, 3, 4)]
    for request, _ in requests:
        pipeline.put(request)
    stage.takes_s = QUICK_S / 2
    stage.free.set()
    assert [done.result(60) for _, done in requests] == ["test-compute"] * 3
    assert asked.order == [0, 1, 2, 3, 4]


def test_a_stage_never_runs_twice_at_once_whoever_brings_requests(pipeline: Pipeline) -> None:
    """rpc's agent receives in several threads."""
    asked, stage = Asked(), Meeting(QUICK_S / 2)
    answered_by(pipeline, asked, 0, stage)
    stage.meet = threading.Barrier(2)
    requests = [asked.request(number, stage) for number in range(1, 4)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(pipeline.put, (request for request, _ in requests)))
    for _, done in requests:
        done.result(60)
    assert sorted(asked.order) == list(range(4))
    assert not stage.met

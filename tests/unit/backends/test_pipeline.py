"""One host's steps, without a network: which thread does what, and in which order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pareto.remote.backends.base import Layout, Reply, Tensors
from pareto.remote.backends.pipeline import QUICK_S, SMALL_BYTES, Pipeline, Request
from tests.program import wait_until


class Stage:
    """Says that it took `takes_s`, is held up while `free` is not set, and notices when two run it at once."""

    fingerprint = b"a stage."
    takes: Layout = ()

    def __init__(self, takes_s: float, nbytes: int = 4) -> None:
        self.takes_s = takes_s
        self.free = threading.Event()
        self.free.set()
        self.met = False
        self.meet: threading.Barrier | None = None
        self._outputs = (torch.zeros(nbytes, dtype=torch.uint8),)

    def run(self, tensors: Tensors) -> tuple[Tensors, float]:
        if self.meet is not None:
            with suppress(threading.BrokenBarrierError):
                self.meet.wait(0.1)
                self.met = True
        assert self.free.wait(60)
        return self._outputs, self.takes_s


@contextmanager
def pipeline_of(threads: int) -> Iterator[Pipeline]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    made = Pipeline("test")
    torch.set_num_threads(before)
    with closing(made):
        yield made


class Asked:
    """What is asked of a pipeline, and the answers as they came."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.order: list[int] = []

    def request(self, number: int, stage: Stage) -> tuple[Request, Future[str]]:
        done: Future[str] = Future()

        def answer(*_: object) -> None:
            self.order.append(number)
            done.set_result(threading.current_thread().name)

        return Request(number, (), stage, None, answer, done.set_result, lambda: None), done

    def answered_by(self, number: int, stage: Stage) -> str:
        request, done = self.request(number, stage)
        self.pipeline.put(request)
        who = done.result(60)
        # The answer comes a moment before its thread is free.
        assert wait_until(lambda: not self.pipeline._begun)
        return who


@pytest.fixture
def asked() -> Iterator[Asked]:
    with pipeline_of(threads=1) as pipeline:
        yield Asked(pipeline)


def test_a_stage_known_to_be_quick_computes_where_it_was_received(asked: Asked) -> None:
    here, there, quick, slow = threading.current_thread().name, "test-compute", Stage(QUICK_S / 2), Stage(1.0)
    assert [asked.answered_by(0, each) for each in (quick, quick)] == [there, here], "at first nobody knows"
    assert [asked.answered_by(0, slow) for _ in range(2)] == [there, there]
    quick.takes_s = 2 * QUICK_S  # a quick one that is slow for once
    assert [asked.answered_by(0, quick) for _ in range(2)] == [there, there]
    large = Stage(QUICK_S / 2, SMALL_BYTES + 1)
    assert {asked.answered_by(0, large) for _ in range(3)} == {"test-leave"}, "a thread of its own"


def test_with_several_compute_threads_one_thread_computes() -> None:
    """Each thread that computes would have a team of its own, and they spin against each other."""
    with pipeline_of(threads=2) as pipeline:
        asked, quick = Asked(pipeline), Stage(QUICK_S / 2)
        assert {asked.answered_by(number, quick) for number in range(3)} == {"test-compute"}


def test_seconds_are_told_in_the_order_of_the_chain(asked: Asked) -> None:
    said: Future[Any] = Future()
    onward: Any = SimpleNamespace(send=lambda *_: 0.5, receive=lambda: Reply(7, (), (0.2, 0.3), 0.25))
    asked.pipeline.put(
        Request(7, (), Stage(0.1), onward, lambda *told: said.set_result(told), said.set_result, lambda: None)
    )
    assert said.result(60)[1:] == ((0.1, 0.2, 0.3), 0.75)


def test_what_is_received_while_another_computes_waits_for_its_turn(asked: Asked) -> None:
    stage = Stage(QUICK_S / 2)
    asked.answered_by(0, stage)
    stage.takes_s = 2 * QUICK_S
    asked.answered_by(1, stage)  # here, and slow: from now on in its thread
    stage.free.clear()
    requests = [asked.request(number, stage) for number in (2, 3, 4)]
    for request, _ in requests:
        asked.pipeline.put(request)
    stage.takes_s = QUICK_S / 2
    stage.free.set()
    assert [done.result(60) for _, done in requests] == ["test-compute"] * 3
    assert asked.order == [0, 1, 2, 3, 4]


def test_a_stage_never_runs_twice_at_once_whoever_brings_requests(asked: Asked) -> None:
    """rpc's agent receives in several threads."""
    stage = Stage(QUICK_S / 2)
    asked.answered_by(0, stage)
    stage.meet = threading.Barrier(2)
    requests = [asked.request(number, stage) for number in range(1, 4)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(asked.pipeline.put, (request for request, _ in requests)))
    for _, done in requests:
        done.result(60)
    assert sorted(asked.order) == list(range(4))
    assert not stage.met

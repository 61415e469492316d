"""What goes over a connection, byte by byte; and one host's steps, without a network: which thread does what."""

from __future__ import annotations

import gc
import math
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

from pareto.analysis import naming
from pareto.protocol.errors import BackendError
from pareto.remote.backends import registry, rpc, wire
from pareto.remote.backends.base import BYTES, MAX_S, Layout, Reply, Tensors
from pareto.remote.backends.conversation import Client
from pareto.remote.backends.pipeline import QUICK_S, SMALL_BYTES, Pipeline, Work
from pareto.remote.backends.registry import MOST_CONNECTIONS, RPC_CHANNELS, BackendName
from pareto.remote.backends.rpc import RpcClient
from pareto.remote.backends.wire import AHEAD, Line
from tests.program import wait_until
from tests.unit.backends.builders import refusal, reply, requests_for

FOUR = wire.form_of((torch.ones(4),))


def header(version: int = wire.VERSION, kind: int = 1, stages: int = 0, body: int = 16) -> memoryview:
    times = [0.0] * (wire.MAX_STAGES + 1)
    packed = wire.HEADER.pack(wire.MAGIC, version, kind, 1, 1, bytes(8), stages, *times, body)
    return memoryview(packed)


def test_headers_are_checked(snapshot: SnapshotAssertion) -> None:
    heads = {
        "another protocol": memoryview((b"GET / HTTP/1.1\r\n" + bytes(100))[: wire.HEADER.size]),
        "another version": header(version=9),
        "unknown kind": header(kind=77),
        "too many stages": header(stages=8),
    }
    assert {name: refusal(wire.header, head) for name, head in heads.items()} == snapshot
    assert refusal(reply, FOUR, 1, (0.0,) * 8, 0.0) == snapshot(name="nor is one made")


def test_a_reply_tells_of_every_later_stage() -> None:
    for stages_s in ((), (0.5,), (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)):
        head = memoryview(reply(FOUR, 1 << 40, stages_s, 0.25))[: wire.HEADER.size]
        assert wire.header(head) == wire.Header(wire.Kind.REPLY, bytes(8), 1, body_bytes=16)
        assert wire.told(head) == (1 << 40, stages_s, 0.25)


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -math.inf, -1e-9, MAX_S + 1])
def test_seconds_that_cannot_be_are_refused(seconds: float) -> None:
    said = f"the peer says that something took {seconds:g} s"
    for stages_s, serialize_s in (((0.1, seconds), 0.0), ((), seconds)):
        head = reply(FOUR, 1, stages_s, serialize_s)[: wire.HEADER.size]
        assert refusal(wire.header, memoryview(head)) == said
    client = RpcClient("server")
    answered: Any = SimpleNamespace(wait=lambda: ((), (0.1, seconds), 0.0))
    client._in_flight.append((1, answered))
    assert said in refusal(client.receive)


def test_bytes_whose_number_varies_are_as_many_as_were_expected_at_most() -> None:
    varying = wire.Likeness(wire.Kind.REQUEST, wire.form(((BYTES, (10,)),)))
    assert varying.body(header(body=10)).nbytes == 10
    assert "at most 10" in refusal(varying.body, header(body=11))


def test_a_message_cut_short_is_not_a_quiet_end(snapshot: SnapshotAssertion) -> None:
    words = []
    for said, fault in ((header()[:20], BackendError), (b"", EOFError)):
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                theirs.sendall(said)
            words.append(refusal(Line(ours).head, by=fault))
    assert words[0] == snapshot


def test_messages_that_came_at_once_are_told_apart_and_none_is_lost() -> None:
    """Small ones and one greater than what is read ahead, each of two tensors, in one piece and byte by byte."""
    sizes = (3, 5, AHEAD // 8, 1, AHEAD // 64, 2)
    payloads = [(torch.rand(n), torch.arange(n, dtype=torch.int64)) for n in sizes]
    stream = b"".join(
        reply(wire.form_of(payload), number, (), 0.0) + b"".join(map(bytes, wire.views(payload)))
        for number, payload in enumerate(payloads)
    )
    for step in (len(stream), 7919, 1):
        ours, theirs = socket.socketpair()
        with ours, theirs, ThreadPoolExecutor() as pool:
            pool.submit(lambda: [theirs.sendall(stream[i : i + step]) for i in range(0, len(stream), step)])  # noqa: B023
            line = Line(ours)
            for number, payload in enumerate(payloads):
                assert wire.number(line.head()) == number
                form = wire.form_of(payload)
                got = wire.empty(form)
                line.body(form, wire.views(got))
                assert all(map(torch.equal, got, payload))


def test_what_comes_in_place_of_a_large_message_is_kept_and_its_memory_is_given_back() -> None:
    payload = (torch.rand(1 << 18),)
    like, got = requests_for(b"a stage.", wire.form_of(payload)), (torch.empty(1 << 18),)
    ours, theirs = socket.socketpair()
    with ours, theirs, ThreadPoolExecutor() as pool:
        line, other, ended = Line(ours), Line(theirs), []
        pool.submit(other.send, wire.message(wire.Kind.WARM, 100_000), [memoryview(bytes(100_000))])
        assert line.message(like, wire.views(got)) is None
        assert wire.header(line.head()).kind is wire.Kind.WARM
        line.skip(100_000)
        for number in range(2):
            ended.append(pool.submit(other.send, like.numbered(number), wire.views(payload)))
            head = line.message(like, wire.views(got))
            assert head is not None and wire.number(head) == number
            assert torch.equal(*got, *payload)
        assert len(line._ahead) == AHEAD


def test_only_the_number_of_a_request_is_open() -> None:
    form = wire.form_of((torch.ones(3),))
    like = requests_for(b"thisone.", form)
    head = memoryview(like.numbered(1 << 50))[: wire.HEADER.size]
    assert like.has(head)
    assert wire.number(head) == 1 << 50
    for another in (requests_for(b"another.", form), requests_for(b"thisone.", FOUR)):
        assert not another.has(head)
    unnamed = memoryview(requests_for(bytes(8), form).numbered(1))[: wire.HEADER.size]
    assert not requests_for(b"", form).has(unnamed)


def test_views_of_any_length_leave_no_garbage() -> None:
    """With a codec that compresses each request has its own length, and garbage is not collected while it is timed."""
    gc.collect()
    gc.freeze()  # what other tests' threads still hold, and let go of meanwhile
    try:
        for length in range(1, 200):
            wire.views((torch.empty(length),))
        assert gc.collect() < 10
    finally:
        gc.unfreeze()


def test_an_rpc_connection_that_its_peer_has_closed_is_named_so() -> None:
    for words in ("EOF: end of file", "ENOTCONN: socket is not connected", "EPIPE: broken pipe"):
        error = RuntimeError(f"{words} (this error originated at tensorpipe/x.cc:1)")
        assert str(RpcClient("server")._fault(error)) == "rpc to server: it closed the connection"


def test_a_part_of_a_tensor_is_sent_without_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorPipe sends all memory that a tensor is a part of, unless it is twice as much or more."""
    sent: list[torch.Tensor] = []
    monkeypatch.setattr(rpc.rpc, "rpc_async", lambda peer, run, args: sent.extend(args[2]))
    whole, part = torch.arange(40, dtype=torch.uint8), torch.arange(40, dtype=torch.uint8)[:30]
    RpcClient("server").send(0, (whole, part))
    assert [tensor.untyped_storage().nbytes() for tensor in sent] == [40, 30]
    assert sent[0] is whole and torch.equal(sent[1], part)


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


class Done(Work):
    """The end of a payload: what `answer` is told, or the text of a fault, as the value of a future."""

    def __init__(self, stage: Any, onward: Any = None, *, reused: bool = False) -> None:
        super().__init__(stage, onward)
        self.reused = reused
        self.said: Future[Any] = Future()

    def answer(self, *told: Any) -> None:
        self.said.set_result(told)

    def fail(self, text: str) -> None:
        self.said.set_result(text)


class Asked:
    """What is asked of a pipeline, and the answers as they came."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.order: list[int] = []

    def put(self, number: int, stage: Stage) -> Future[str]:
        """The name of the thread that answers, in time."""
        done, by = Done(stage), Future[str]()

        def answer(*_: object) -> None:
            self.order.append(number)
            by.set_result(threading.current_thread().name)

        done.answer, done.fail = answer, by.set_result  # type: ignore[method-assign]
        self.pipeline.put(done, number, ())
        return by

    def answered_by(self, number: int, stage: Stage) -> str:
        who = self.put(number, stage).result(60)
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
    onward: Any = SimpleNamespace(
        copies=True, send=lambda *_: 0.5, receive=lambda: Reply(7, (), (0.2, 0.3), 0.25)
    )
    asked.pipeline.put(done := Done(Stage(0.1), onward), 7, ())
    assert done.said.result(60) == (7, (), (0.1, 0.2, 0.3), 0.75)


@pytest.mark.parametrize(
    ("reused", "copies", "apart"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_what_is_passed_on_lies_apart_from_a_buffer_that_is_used_again(
    asked: Asked, reused: bool, copies: bool, apart: bool
) -> None:
    """A stage without units passes on what came; a next host's client may send it later, from where it lies."""
    sent: Future[Tensors] = Future()
    onward: Any = SimpleNamespace(
        copies=copies,
        send=lambda number, tensors: sent.set_result(tensors) or 0.0,
        receive=lambda: Reply(7, (), (), 0.0),
    )
    came, idle = (torch.ones(3),), Stage(0.1)
    idle.run = lambda tensors: (tensors, 0.1)  # type: ignore[method-assign]
    asked.pipeline.put(Done(idle, onward, reused=reused), 7, came)
    (went,) = sent.result(60)
    assert torch.equal(went, came[0])
    assert (went.data_ptr() != came[0].data_ptr()) is apart


def test_a_line_that_polls_does_so_where_one_request_is_out_and_nothing_computes() -> None:
    """Else it would take the core from a stage."""
    polled: list[str] = []
    form = wire.form_of((torch.ones(1),))
    top = memoryview(reply(form, 0, (0.5,), 0.0))
    line: Any = SimpleNamespace(
        expect=lambda like: None,
        send=lambda *_: None,
        message=lambda *_: top,
        idle=lambda: polled.append("near"),
        close=lambda: None,
    )
    near = Client(line, "far")
    near.open(b"a stage.", (("float32", (1,)),))
    for in_flight in (1, 2, 1):
        for number in range(in_flight):
            near.send(number, (torch.ones(1),))
        near.receive()
    assert polled == ["near"], "two were out then, and in the end again"


def test_polling_looks_for_a_moment_and_takes_nothing() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        line = Line(ours, polls=True)
        line.idle()
        theirs.sendall(wire.message(wire.Kind.WARM, 0))
        line.idle()
        assert wire.header(line.head()).kind is wire.Kind.WARM


def test_what_is_received_while_another_computes_waits_for_its_turn(asked: Asked) -> None:
    stage = Stage(QUICK_S / 2)
    asked.answered_by(0, stage)
    stage.takes_s = 2 * QUICK_S
    asked.answered_by(1, stage)  # here, and slow: from now on in its thread
    stage.free.clear()
    answered = [asked.put(number, stage) for number in (2, 3, 4)]
    stage.takes_s = QUICK_S / 2
    stage.free.set()
    assert [by.result(60) for by in answered] == ["test-compute"] * 3
    assert asked.order == [0, 1, 2, 3, 4]


def test_a_stage_never_runs_twice_at_once_whoever_brings_requests(asked: Asked) -> None:
    """rpc's agent receives in several threads."""
    stage = Stage(QUICK_S / 2)
    asked.answered_by(0, stage)
    stage.meet = threading.Barrier(2)
    with ThreadPoolExecutor(3) as pool:
        for by in list(pool.map(lambda number: asked.put(number, stage), range(1, 4))):
            by.result(60)
    assert sorted(asked.order) == list(range(4))
    assert not stage.met


GOOD = {
    "tcp": BackendName("tcp"),
    "rpc:b2": BackendName("rpc", label="b2"),
    "tcp:2": BackendName("tcp", "2"),
    "tcp:64": BackendName("tcp", "64"),
    "tcp:4:a": BackendName("tcp", "4", label="a"),
    "rpc:basic": BackendName("rpc", "basic"),
    "rpc:basic:a": BackendName("rpc", "basic", label="a"),
    "tcp:basics": BackendName("tcp", label="basics"),
    "tcp:tls": BackendName("tcp", seal="tls"),
    "tcp:4:tls:a": BackendName("tcp", "4", "tls", "a"),
    "tcp:tls_a": BackendName("tcp", label="tls_a"),
}


@pytest.mark.parametrize("text", GOOD)
def test_a_variant_is_told_from_a_label(text: str) -> None:
    name = registry.parse(text)
    assert name == GOOD[text]
    assert naming.transport(text) == name.transport, "analysis reads names by a rule of its own"
    assert (naming.family(text), naming.secure(text)) == (name.name, name.secure)
    assert ":".join(filter(None, name)) == text


@pytest.mark.parametrize(
    "text",
    [
        *("udp", "TCP", ":4", "tcp:", "tcp:a/b", "tcp:4b", "tcp:a2345678901234567"),
        *("tcp:0", "tcp:1", "tcp:65", "tcp:04", "tcp:\u0664"),
        *("tcp:4:", "tcp:a:b", "tcp:a:4", "tcp:4:5", "tcp:4:a:b"),
        *("rpc:4", "tcp:basic", "rpc:basic:4", "rpc:threads=0", "rpc:threads=65", "tcp:threads=4"),
        *("rpc:tls", "tcp:tls:4", "tcp:a:tls", "tcp:tls:tls", "tcp:aes-gcm"),
    ],
)
def test_what_no_backend_is_called_is_refused(text: str) -> None:
    """A variant of another backend is no label: who writes rpc:4 means four connections."""
    words = refusal(registry.parse, text, by=ValueError)
    assert repr(text) in words and "there are tcp, tcp:N" in words and "\n" not in words


def test_connections_agents_and_channels_follow_from_the_name() -> None:
    names = ("tcp", "tcp:a", "tcp:16:a", f"tcp:{MOST_CONNECTIONS}")
    assert [registry.parse(text).variant for text in names] == ["", "", "16", str(MOST_CONNECTIONS)]
    named = ("tcp:4", "rpc:a", "rpc:basic:a", "rpc:threads=4:a")
    assert [registry.parse(text).agent for text in named] == ["", "rpc", "rpc:basic", "rpc:threads=4"]
    assert [registry.parse(text).threads for text in named[1:]] == [16, 16, 4]
    assert {*RPC_CHANNELS} <= {"mpt_uv", "basic"}, "no network"

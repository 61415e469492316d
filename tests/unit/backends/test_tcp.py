"""The tcp backend over loopback: what crosses, what is refused, and that nothing is overwritten."""

from __future__ import annotations

import gc
import queue
import socket
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import Tensor

from pareto.protocol.errors import BackendError
from pareto.remote.backends import conversation, handshake, wire
from pareto.remote.backends.base import Layout, Tensors, fingerprint, layout
from pareto.remote.backends.conversation import BUFFERS
from pareto.remote.backends.tcp import TcpClient, TcpServer
from pareto.remote.backends.tls import Tls
from pareto.remote.backends.wire import Line
from tests.program import wait_until
from tests.unit.backends.builders import (
    HERE,
    NAME,
    TOKEN,
    TOOK_S,
    Works,
    cloned,
    doubled,
    refusal,
    reply,
    seal,
)

FOUR = (torch.ones(4),)


class Listening(TcpServer):
    """connections: that its clients have each. by: how they encrypt."""

    def __init__(self, connections: int, by: Tls | None) -> None:
        super().__init__(HERE, TOKEN, by)
        self.connections, self.by = connections, by


@pytest.fixture(params=["1", "5", "1-tls", "5-tls"])
def server(request: pytest.FixtureRequest) -> Iterator[Listening]:
    connections, _, encrypts = request.param.partition("-")
    with closing(Listening(int(connections), seal() if encrypts else None)) as server:
        yield server


def client(server: Listening, takes: Layout, name: bytes = NAME) -> TcpClient:
    made = TcpClient(HERE, server.port, TOKEN, str(server.connections), server.by)
    made.open(name, takes)
    return made


def served(
    server: Listening, payload: Tensors, work: Callable[[Tensors], Tensors] = doubled, name: bytes = NAME
) -> TcpClient:
    """The client of a server that takes what is like this payload, and answers with the like."""
    server.serve(Works(layout(payload), work))
    return client(server, layout(payload), name)


PAYLOADS = [
    (torch.randn(1, 3, 5, 7),),
    (torch.randn(2, 4), torch.arange(6, dtype=torch.int64)),
    (torch.randint(0, 255, (3, 3), dtype=torch.uint8), torch.rand(7) > 0.5),
    (torch.randn(8).to(torch.bfloat16), torch.randn(()), torch.empty(0, 4)),
    (torch.randn(1, 64, 160, 160),),
    (torch.arange(8).reshape(1, 8)[:, 0], torch.randn(3, 4)[1:]),
]


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda p: "+".join(str(t.dtype)[6:] for t in p))
def test_tensors_arrive_bit_for_bit(server: Listening, payload: Tensors) -> None:
    ours = served(server, payload, cloned)
    ours.send(7, payload)
    reply = ours.receive()
    assert (reply.request_id, reply.stages_s, layout(reply.tensors)) == (7, (TOOK_S,), layout(payload))
    assert all(torch.equal(a, b) for a, b in zip(reply.tensors, payload, strict=True))


def test_the_stage_can_change_on_a_living_connection(server: Listening) -> None:
    ours = served(server, FOUR)
    ours.warm(1_000_000)  # which does not disturb requests
    for name, shape in ((b"a stage.", (2, 2)), (b"another.", (3, 5)), (b"a stage.", (2, 2))):
        payload = (torch.ones(shape),)
        server.serve(Works(layout(payload), doubled, fingerprint=name))
        ours.open(name, layout(payload))
        ours.send(1, payload)
        assert torch.equal(ours.receive().tensors[0], 2 * payload[0])
    server.serve(Works(layout(FOUR), tuple))  # what comes in goes out
    ours.open(NAME, layout(FOUR))
    for value in (1.0, 2.0, 3.0, 4.0):
        ours.send(0, (torch.full((4,), value),))
    assert [float(ours.receive().tensors[0][0]) for _ in range(4)] == [1.0, 2.0, 3.0, 4.0]


def test_buffers_go_with_their_stage_and_with_the_connection(
    server: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, and not when garbage is collected: they are as large as what crosses."""
    made, empty, three = list[weakref.ref[Tensor]](), wire.empty, (torch.ones(3),)

    def noted(form: wire.Form) -> Tensors:
        tensors = empty(form)
        made.extend(map(weakref.ref, tensors if form.nbytes == 12 else ()))
        return tensors

    monkeypatch.setattr(wire, "empty", noted)

    def asked(name: bytes) -> TcpClient:
        server.serve(Works(layout(three), lambda _: FOUR, fingerprint=name))
        ours = client(server, layout(FOUR), name)
        ours.send(1, three)
        ours.receive()
        return ours

    def left() -> int:
        return sum(each() is not None for each in made)

    gc.disable()
    try:
        ours = asked(b"a stage.")
        assert left() == BUFFERS
        server.serve(Works(layout(FOUR), doubled, fingerprint=b"another."))
        ours.open(b"another.", layout(FOUR))
        ours.send(2, FOUR)
        ours.receive()
        assert wait_until(lambda: left() == 0)
        ours.close()
        ours = asked(b"a third.")
        assert left() == BUFFERS
        ours.close()
        assert wait_until(lambda: left() == 0)
    finally:
        gc.enable()


def fail(_: Tensors) -> Tensors:
    raise ValueError("no such layer")


REFUSED: dict[str, tuple[Tensors, dict[str, Any]]] = {
    "another point": (FOUR, {"name": fingerprint("weights", "graph", (4,), 1, 1)}),
    "a fault in the stage": (FOUR, {"work": fail}),
    "another size": ((torch.ones(5),), {}),
    "another dtype": ((torch.ones(4, dtype=torch.float64),), {}),
    "another count": ((torch.ones(4), torch.ones(4)), {}),
    "another shape": ((torch.ones(2, 2),), {}),
}


def test_what_a_server_cannot_answer_is_refused(server: Listening, snapshot: SnapshotAssertion) -> None:
    said = {}
    for case, (payload, changed) in REFUSED.items():
        ours = served(server, FOUR, **changed)
        ours.send(1, payload)
        said[case] = refusal(ours.receive)
    # Who is still sending hears of it, too: a broken pipe would tell nobody what is wrong.
    ours = client(server, (), fingerprint("weights", "graph", (3,), 1, 8))
    for number in range(3):
        ours.send(number, (torch.ones(8 << 20),))
    said["in the middle of more than the connection holds"] = refusal(ours.receive)
    said["no contiguous tensor"] = refusal(client(server, ()).send, 1, (torch.randn(4, 5).t(),))
    said["no token"] = refusal(TcpClient, HERE, server.port, "another")
    assert said == snapshot
    assert server.address == HERE, "it listens there only"


def test_a_large_result_is_sent_while_the_next_request_is_computed(server: Listening) -> None:
    """A segmentation's is larger than what the connection holds."""
    second = threading.Event()

    def enlarge(tensors: Tensors) -> Tensors:
        if tensors[0][0] == 2:
            second.set()
        return (tensors[0][0].expand(8 << 20).contiguous(),)

    server.serve(Works(layout(FOUR), enlarge))
    ours = client(server, (("float32", (8 << 20,)),))
    for value in (1.0, 2.0):
        ours.send(int(value), (torch.full((4,), value),))
    assert second.wait(60)  # nobody has received the first result
    assert [float(ours.receive().tensors[0][-1]) for _ in range(2)] == [1.0, 2.0]


@pytest.mark.timeout(60)
def test_closing_wakes_who_waits_for_a_reply(server: Listening) -> None:
    ours = client(server, ())
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(ours.receive)
        with pytest.raises(TimeoutError):
            waiting.result(0.2)
        ours.close()
        with pytest.raises(BackendError):
            waiting.result(30)


class Frozen:
    """A next host that lets us in and then does not read until told."""

    def __init__(self) -> None:
        came: queue.SimpleQueue[socket.socket] = queue.SimpleQueue()
        self._door = handshake.Door(HERE, TOKEN, lambda sock, _: came.put(sock), "frozen")
        self._door._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        self.client = TcpClient(HERE, self._door.port, TOKEN)
        self._sock = came.get(timeout=60)
        self._sock.settimeout(20)
        self._line = Line(self._sock)

    def read(self, takes: Layout) -> tuple[int, Tensor]:
        """A request's number, and its first element."""
        number, form = wire.number(self._line.head()), wire.form(takes)
        (tensor,) = tensors = wire.empty(form)
        self._line.body(form, wire.views(tensors))
        return number, tensor[:1]

    def answer(self, number: int, result: Tensor) -> None:
        head = reply(wire.form_of((result,)), number, (0.5, 0.25), 9)
        self._line.send(head, wire.views((result,)))

    def say(self, data: bytes) -> None:
        self._sock.sendall(data)

    def close(self) -> None:
        self._sock.close()
        self._door.close()


@pytest.fixture
def frozen() -> Iterator[Frozen]:
    with closing(Frozen()) as frozen:
        yield frozen


@pytest.mark.timeout(60)
@pytest.mark.parametrize("factor", [1, pytest.param(2, marks=pytest.mark.deep)], ids=["passes on", "doubles"])
def test_a_slow_next_host_holds_back_whoever_sends(server: Listening, frozen: Frozen, factor: int) -> None:
    """In the middle of a chain; the output of a stage without units is the buffer that its payload came into."""
    takes, gives = (("float32", (2 << 20,)),), layout((torch.ones(1),))
    stage = Works(takes, tuple if factor == 1 else doubled)
    frozen.client.open(NAME, gives)
    server.serve(stage, frozen.client)
    ours = client(server, gives)
    payloads = [torch.full((2 << 20,), float(i)) for i in range(12)]
    with ThreadPoolExecutor() as pool:
        sending = pool.submit(lambda: [ours.send(i, (payload,)) for i, payload in enumerate(payloads)])
        assert wait_until(lambda: stage.ran >= BUFFERS)  # it computes beside sending
        with pytest.raises(TimeoutError):
            sending.result(0.3)
        assert stage.ran == BUFFERS
        read = [frozen.read(takes)]
        for _ in payloads[1:]:
            read.append(frozen.read(takes))  # the next one comes before any is answered
            frozen.answer(*read.pop(0))
        frozen.answer(*read.pop())
        sending.result(30)
        replies = [ours.receive() for _ in payloads]
    assert [float(reply.tensors[0]) for reply in replies] == [factor * i for i in range(12)]
    assert {reply.stages_s[1:] for reply in replies} == {(0.5, 0.25)}
    assert all(reply.serialize_s > 9 for reply in replies)


def test_a_reply_to_another_request_is_a_fault(server: Listening, frozen: Frozen) -> None:
    takes, gives = layout(FOUR), layout((torch.ones(1),))
    frozen.client.open(NAME, gives)
    frozen.client.send(5, FOUR)  # somebody else's
    server.serve(Works(takes, doubled), frozen.client)
    ours = client(server, gives)
    ours.send(6, FOUR)
    frozen.answer(*frozen.read(takes))
    assert refusal(ours.receive) == f"{HERE} says: the reply to request 5 came in place of 6"


def test_a_size_from_afar_allocates_nothing(frozen: Frozen, monkeypatch: pytest.MonkeyPatch) -> None:
    allocated, empty = [], wire.empty
    monkeypatch.setattr(wire, "empty", lambda form: (allocated.append(form.nbytes), empty(form))[1])
    frozen.client.open(NAME, layout(FOUR))
    frozen.say(reply(wire.Form(wire.form_of(FOUR).specs, b"", 1 << 60), 1, (), 0.0))
    assert refusal(frozen.client.receive) == f"1 tensors in {1 << 60} bytes came, 1 in 16 were expected"
    assert allocated == [16]  # what was to come, whatever the header says


def test_serialization_is_timed_for_the_first_messages_and_then_what_these_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thread's clock is two calls into the kernel a message; the work is the same for all of one form."""
    readings = iter([0.0, 3.0, 10.0, 11.0, 20.0, 29.0])
    monkeypatch.setattr(conversation, "TIMED", 3)
    monkeypatch.setattr(conversation.time, "thread_time", lambda: next(readings))
    timed = conversation.Serialization()
    assert [timed.of(FOUR)[2] for _ in range(6)] == [3.0, 1.0, 9.0, 3.0, 3.0, 3.0]

"""Wrong bytes by the thousand, at both ends of tcp: a clean fault, or exactly the tensors that were sent.

Seeded: a case that fails is named by its number. `--cases N` tries more.
"""

from __future__ import annotations

import itertools
import random
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from typing import cast

import pytest
import torch

from pareto.protocol.errors import BackendError
from pareto.remote.backends import handshake, tcp, wire
from pareto.remote.backends.base import Tensors
from pareto.remote.backends.stripes import STRIPE, Stripes
from pareto.remote.backends.tcp import TcpClient, TcpServer, _Conversation
from pareto.remote.backends.wire import Kind
from tests.unit.backends.builders import HERE, TOKEN, Works, opened, refusal
from tests.unit.backends.hostile import (
    HEAD,
    LAYOUTS,
    LIES,
    NAME,
    UNENDED,
    Peer,
    as_bytes,
    said,
    spoiled,
    tensors_of,
)
from tests.unit.backends.test_stripes import Ends

pytestmark = pytest.mark.usefixtures("one_thread")

SEED = 15
OVER_LOOPBACK = 50
"""So many cases in memory for one over real connections."""


def reversing(takes: wire.Layout) -> Works:
    """A stage whose answer depends on every byte: all of them, from the last to the first."""

    def work(tensors: Tensors) -> Tensors:
        return (torch.frombuffer(bytearray(answer_to(as_bytes(tensors))), dtype=torch.uint8),)

    return Works(takes, work, 1e-4, NAME)


def answer_to(body: bytes) -> bytes:
    return b"\0" + body[::-1]


def answers_of(takes: wire.Layout) -> wire.Layout:
    return (("uint8", (wire.form(takes).nbytes + 1,)),)


def client_of(line: object, takes: wire.Layout) -> TcpClient:
    client = TcpClient.__new__(TcpClient)
    client._peer, client._line, client._like = "peer", line, wire.Likeness(b"", wire.NOTHING)  # type: ignore[assignment]
    client.open(NAME, takes)
    return client


def seeded(name: str, cases: int) -> Iterator[tuple[int, random.Random]]:
    """Each case, and its chance."""
    for case in range(cases):
        yield case, random.Random(f"{name} {SEED} {case}")  # noqa: S311


def replies(takes: wire.Layout, chance: random.Random) -> list[bytes]:
    made = []
    for number in range(chance.randrange(1, 4)):
        tensors = tensors_of(takes, chance)
        stages_s = tuple(chance.random() for _ in range(chance.randrange(wire.MAX_STAGES + 1)))
        head = wire.reply(wire.form(takes), number, stages_s, chance.random())
        made.append(head + as_bytes(tensors))
    return made


def test_a_client(cases: int) -> None:
    """What it makes of what came is what is there to be read, and ends in a BackendError."""
    for _, chance in seeded("client", cases):
        takes = chance.choice(LAYOUTS)
        data = spoiled(replies(takes, chance), chance)
        peer = Peer(data, chance, breaks=chance.random() < 0.3)
        client = client_of(tcp.Line(cast(socket.socket, peer)), takes)
        right, _ = said(data, {Kind.REPLY: wire.form(takes)})
        for expected in right:
            reply = client.receive()
            assert (reply.request_id, as_bytes(reply.tensors)) == (expected.number, expected.body)
            assert (*reply.stages_s, reply.serialize_s) == expected.seconds
        assert len(refusal(client.receive)) < wire.MAX_TEXT + 100


def requests(takes: wire.Layout, chance: random.Random) -> list[bytes]:
    like, made = wire.Likeness(NAME, wire.form(takes)), []
    for number in range(chance.randrange(1, 4)):
        made.append(like.numbered(number) + as_bytes(tensors_of(takes, chance)))
        if chance.random() < 0.2:
            nbytes = chance.randrange(3000)
            made.append(wire.message(Kind.WARM, nbytes) + bytes(nbytes))
    return made


def check_server(came: bytes, sent: bytes, takes: wire.Layout, *, breaks: bool) -> None:
    """What a server sent of what came: a right answer to each request, in order, up to the first fault; then that."""
    form = wire.form(takes)
    like = wire.Likeness(NAME, form)
    right, fault = said(came, {Kind.REQUEST: form, Kind.WARM: None})
    for place, each in enumerate(right):
        if each.kind is Kind.REQUEST and each.head != like.numbered(each.number)[:HEAD]:
            right, fault = right[:place], "a request for something else"
            break
    kinds = {Kind.REPLY: wire.form(answers_of(takes)), Kind.WARM: None, Kind.ERROR: None}
    answers, unclean = said(sent, kinds)
    assert not unclean
    if answers and answers[-1].kind is Kind.ERROR:
        assert fault or breaks, answers.pop().body
        answers.pop()
    elif not breaks:
        assert fault in ("", UNENDED)  # of bytes to throw away, whose sender is gone
        assert len(answers) == len(right)
    # A warm-up is answered by who receives, and may overtake the requests before it.
    replies = [it for it in answers if it.kind is Kind.REPLY]
    asked = [it for it in right if it.kind is Kind.REQUEST]
    assert len(answers) - len(replies) <= len(right) - len(asked)
    assert len(replies) <= len(asked)
    for reply, request in zip(replies, asked, strict=False):
        assert (reply.number, reply.body) == (request.number, answer_to(request.body))


def test_a_server(cases: int) -> None:
    server = TcpServer.__new__(TcpServer)
    for _, chance in seeded("server", cases // 2):  # each takes three threads
        takes = chance.choice(LAYOUTS)
        server.serve(reversing(takes))
        data = spoiled(requests(takes, chance), chance)
        peer = Peer(data, chance, breaks=chance.random() < 0.3)
        _Conversation(tcp.Line(cast(socket.socket, peer)), server).run()
        check_server(data, bytes(peer.sent), takes, breaks=peer.breaks)


def put(socks: list[socket.socket], messages: list[bytes], chance: random.Random) -> None:
    """Send these in stripes, of which one has a wrong head, is missing or comes twice, or in any order; then end."""
    numbered = enumerate(messages)
    parts = [(n, at, whole[at : at + STRIPE]) for n, whole in numbered for at in range(0, len(whole), STRIPE)]
    sent = [_STRIPE.pack(number, begin, len(data)) + data for number, begin, data in parts]
    which = chance.randrange(len(sent))
    match chance.choice(("right", "twice", "lost", "swapped", "lie", "lie", "lie")):
        case "twice":
            sent.insert(chance.randrange(len(sent) + 1), sent[which])
        case "lost":
            del sent[which]
        case "swapped":
            chance.shuffle(sent)
        case "lie":
            number, begin, data = parts[which]
            lying, place = [number, begin, len(data)], chance.randrange(3)
            lie = chance.choice((*LIES, lying[place] + 1, lying[place] ^ 1 << chance.randrange(32)))
            lying[place] = lie % (1 << (32 if place == 2 else 64))
            sent[which] = _STRIPE.pack(*lying) + data
    for stripe in sent:
        chance.choice(socks).sendall(stripe)
    for sock in socks:
        sock.shutdown(socket.SHUT_WR)


_STRIPE = struct.Struct("!QQI")
LARGE: wire.Layout = (("float32", (12_000,)), ("uint8", (9,)))
each_size = pytest.mark.parametrize("takes", [LARGE, LAYOUTS[1]], ids=["large", "small"])


@each_size
def test_a_client_over_several_connections(cases: int, takes: wire.Layout) -> None:
    for _, chance in seeded("stripes", cases // OVER_LOOPBACK):
        with closing(Ends()) as lanes:
            messages = replies(takes, chance)
            put(lanes.far_socks, messages, chance)
            client = client_of(Stripes(lanes.near_socks), takes)
            with pytest.raises(BackendError):
                for _ in messages:
                    reply = client.receive()  # whose number the phases compare with the request's
                    assert messages[reply.request_id].endswith(as_bytes(reply.tensors))
                client.receive()


@each_size
def test_a_server_over_several_connections(cases: int, takes: wire.Layout) -> None:
    server = TcpServer.__new__(TcpServer)
    server.serve(reversing(takes))
    for _, chance in seeded("served stripes", cases // OVER_LOOPBACK):
        with closing(Ends()) as lanes:
            messages = [it for it in requests(takes, chance) if it[6] == Kind.REQUEST]
            put(lanes.near_socks, messages, chance)
            _Conversation(Stripes(lanes.far_socks), server).run()
            client = client_of(Stripes(lanes.near_socks), answers_of(takes))
            with pytest.raises(BackendError):
                for _ in messages:
                    reply = client.receive()
                    asked = messages[reply.request_id][-wire.form(takes).nbytes :]
                    assert as_bytes(reply.tensors) == answer_to(asked)
                client.receive()


class Attacker:
    """Comes to a server's door in one of the ways in which nobody should."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._answer = bytes(handshake.ANSWER_BYTES)

    def come(self, takes: wire.Layout, chance: random.Random) -> None:
        way = chance.choice(("half an answer", "an old answer", "noise", "spoiled", "spoiled"))
        with socket.create_connection((HERE, self._port), 30) as sock:
            if chance.random() < 0.3:  # a reset instead of an end
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            with suppress(OSError):  # reset, or no longer connected
                self._say(way, sock, takes, chance)

    def _say(self, way: str, sock: socket.socket, takes: wire.Layout, chance: random.Random) -> None:
        if way == "noise":
            sock.sendall(chance.randbytes(chance.randrange(1, 500)))
            sock.shutdown(socket.SHUT_WR)
            assert handshake.WELCOME not in sock.recv(1000)[handshake.NONCE_BYTES :]
            return
        nonce = handshake.exactly(sock, handshake.NONCE_BYTES)
        if way == "an old answer":
            sock.sendall(self._answer)
            assert handshake.exactly(sock, 2) == handshake.REFUSAL
            return
        answer = handshake.answer(TOKEN, nonce, handshake.ALONE)
        if way == "half an answer":
            sock.sendall(answer[: chance.randrange(handshake.ANSWER_BYTES)])
            return
        self._answer = answer
        sock.sendall(answer)
        assert handshake.exactly(sock, 2) == handshake.WELCOME
        left = data = spoiled(requests(takes, chance), chance)
        while left:
            size = chance.choice((1, HEAD - 1, HEAD, 5000, len(data)))
            sock.sendall(left[:size])
            left = left[size:]
        sock.shutdown(socket.SHUT_WR)
        sent = b"".join(iter(lambda: sock.recv(1 << 16), b""))
        check_server(data, sent, takes, breaks=False)


@pytest.mark.parametrize("connections", [1, 3])
def test_a_server_among_attackers(cases: int, connections: int) -> None:
    """Whoever is in meanwhile, or comes after them, gets right answers; and nothing of them stays."""
    takes: wire.Layout = (("float32", (7,)),)
    before, numbers = set(threading.enumerate()), itertools.count()
    with ExitStack() as undo:
        server = undo.enter_context(closing(TcpServer(HERE, TOKEN)))
        attacker = Attacker(server.port)

        def good() -> TcpClient:
            client = opened(server, reversing(takes), answers_of(takes), connections)
            return undo.enter_context(closing(client))

        def check(client: TcpClient) -> None:
            tensors = tensors_of(takes, random.Random(number := next(numbers)))  # noqa: S311
            client.send(number, tensors)
            assert as_bytes(client.receive().tensors) == answer_to(as_bytes(tensors))

        first = good()
        for _, chance in seeded("attackers", cases // OVER_LOOPBACK):
            attacker.come(takes, chance)
            check(first)
        check(good())
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
        assert not thread.is_alive(), thread.name

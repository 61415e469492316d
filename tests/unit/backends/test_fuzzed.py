"""Wrong bytes by the thousand, at both ends of tcp: a clean fault, or exactly the tensors that were sent.

Seeded: a case that fails is named by its number. `--cases N` tries more.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
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
from tests.unit.backends.builders import HERE, TOKEN
from tests.unit.backends.hostile import (
    HEAD,
    LAYOUTS,
    LIES,
    NAME,
    UNENDED,
    Peer,
    as_bytes,
    one_byte,
    said,
    spoiled,
    tensors_of,
)
from tests.unit.backends.test_stripes import Ends

pytestmark = pytest.mark.usefixtures("one_thread")

SEED = 15
OVER_LOOPBACK = 50
"""So many cases in memory for one over real connections."""


class Reversing:
    """A stage whose answer depends on every byte: all of them, from the last to the first."""

    fingerprint = NAME

    def __init__(self, takes: wire.Layout) -> None:
        self.takes = takes

    def run(self, tensors: Tensors) -> tuple[Tensors, float]:
        return (torch.frombuffer(bytearray(b"\0" + as_bytes(tensors)[::-1]), dtype=torch.uint8),), 1e-4


def answer_to(body: bytes) -> bytes:
    return b"\0" + body[::-1]


def client_of(line: object, takes: wire.Layout) -> TcpClient:
    client = TcpClient.__new__(TcpClient)
    client._peer, client._line, client._like = "peer", line, wire.Likeness(b"", wire.NOTHING)  # type: ignore[assignment]
    client.open(NAME, takes)
    return client


def replies(takes: wire.Layout, chance: random.Random) -> list[bytes]:
    made = []
    for number in range(chance.randrange(1, 4)):
        tensors = tensors_of(takes, chance)
        stages_s = tuple(chance.random() for _ in range(chance.randrange(wire.MAX_STAGES + 1)))
        head = wire.reply(wire.form(takes), number, stages_s, chance.random())
        made.append(head + as_bytes(tensors))
    return made


def check_client(client: TcpClient, data: bytes, takes: wire.Layout) -> None:
    """What a client makes of what came is what is there to be read, and ends in a BackendError."""
    form = wire.form(takes)
    right, _ = said(data, {Kind.REPLY: form})
    for expected in right:
        reply = client.receive()
        assert reply.request_id == expected.number
        assert as_bytes(reply.tensors) == expected.body
        assert (*reply.stages_s, reply.serialize_s) == expected.seconds
    with pytest.raises(BackendError) as fault:
        client.receive()
    assert len(str(fault.value)) < wire.MAX_TEXT + 100


def test_a_client(cases: int) -> None:
    for case in range(cases):
        chance = random.Random(f"client {SEED} {case}")  # noqa: S311
        takes = chance.choice(LAYOUTS)
        data = spoiled(replies(takes, chance), chance)
        peer = Peer(data, chance, breaks=chance.random() < 0.3)
        check_client(client_of(tcp.Line(cast(socket.socket, peer)), takes), data, takes)


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
    answers, unclean = said(
        sent, {Kind.REPLY: wire.form((("uint8", (form.nbytes + 1,)),)), Kind.WARM: None, Kind.ERROR: None}
    )
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
    for case in range(cases // 2):  # each takes three threads
        chance = random.Random(f"server {SEED} {case}")  # noqa: S311
        takes = chance.choice(LAYOUTS)
        server.serve(Reversing(takes))
        data = spoiled(requests(takes, chance), chance)
        peer = Peer(data, chance, breaks=chance.random() < 0.3)
        _Conversation(tcp.Line(cast(socket.socket, peer)), server).run()
        check_server(data, bytes(peer.sent), takes, breaks=peer.breaks)


def put(socks: list[socket.socket], messages: list[bytes], chance: random.Random) -> None:
    """Send these in stripes, of which one is wrong, missing, or comes twice; then end."""
    stripes = [
        (number, begin, message[begin : begin + STRIPE])
        for number, message in enumerate(messages)
        for begin in range(0, len(message), STRIPE)
    ]
    sent = [_STRIPE.pack(number, begin, len(data)) + data for number, begin, data in stripes]
    which = chance.randrange(len(sent))
    way = chance.choice(("right", "twice", "lost", "head", "lie", "cut", "swapped"))
    if way == "twice":
        sent.insert(chance.randrange(len(sent) + 1), sent[which])
    elif way == "lost":
        del sent[which]
    elif way == "head":
        sent[which] = one_byte(sent[which], chance, slice(_STRIPE.size))
    elif way == "lie":
        number, begin, data = stripes[which]
        lying = [number, begin, len(data)]
        place = chance.randrange(3)
        lying[place] = chance.choice(LIES) % (1 << (32 if place == 2 else 64))
        sent[which] = _STRIPE.pack(*lying) + data
    elif way == "cut":
        sent[which] = sent[which][: chance.randrange(len(sent[which]))]
    elif way == "swapped":
        chance.shuffle(sent)
    left = list(socks)
    for place, stripe in enumerate(sent):
        sock = chance.choice(left)
        sock.sendall(stripe)
        if way == "cut" and place == which:  # there this connection ends
            left.remove(sock)
            sock.shutdown(socket.SHUT_WR)
    for sock in left:
        sock.shutdown(socket.SHUT_WR)


_STRIPE = struct.Struct("!QQI")
LARGE: wire.Layout = (("float32", (12_000,)), ("uint8", (9,)))
each_size = pytest.mark.parametrize("takes", [LARGE, LAYOUTS[1]], ids=["large", "small"])


@each_size
def test_a_client_over_several_connections(cases: int, takes: wire.Layout) -> None:
    for case in range(cases // OVER_LOOPBACK):
        chance = random.Random(f"stripes {SEED} {case}")  # noqa: S311
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
    server.serve(Reversing(takes))
    form = wire.form(takes)
    for case in range(cases // OVER_LOOPBACK):
        chance = random.Random(f"served stripes {SEED} {case}")  # noqa: S311
        with closing(Ends()) as lanes:
            messages = [it for it in requests(takes, chance) if it[6] == Kind.REQUEST]
            put(lanes.near_socks, messages, chance)
            _Conversation(Stripes(lanes.far_socks), server).run()
            client = client_of(Stripes(lanes.near_socks), (("uint8", (form.nbytes + 1,)),))
            with pytest.raises(BackendError):
                for _ in messages:
                    reply = client.receive()
                    assert as_bytes(reply.tensors) == answer_to(messages[reply.request_id][-form.nbytes :])
                client.receive()


class Attacker:
    """Comes to a server's door in one of the ways in which nobody should."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._answer = bytes(handshake.ANSWER_BYTES)

    def come(self, takes: wire.Layout, chance: random.Random) -> None:
        ways = self._half_an_answer, self._an_old_answer, self._noise, self._spoiled, self._spoiled
        way = chance.choice(ways)
        with socket.create_connection((HERE, self._port), 30) as sock:
            if chance.random() < 0.3:  # a reset instead of an end
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            with suppress(OSError):  # reset, or no longer connected
                way(sock, takes, chance)

    def _half_an_answer(self, sock: socket.socket, _: wire.Layout, chance: random.Random) -> None:
        nonce = handshake.exactly(sock, handshake.NONCE_BYTES)
        sock.sendall(
            handshake.answer(TOKEN, nonce, handshake.ALONE)[: chance.randrange(handshake.ANSWER_BYTES)]
        )

    def _an_old_answer(self, sock: socket.socket, _: wire.Layout, chance: random.Random) -> None:
        handshake.exactly(sock, handshake.NONCE_BYTES)
        sock.sendall(self._answer)
        assert handshake.exactly(sock, 2) == handshake.REFUSAL

    def _noise(self, sock: socket.socket, _: wire.Layout, chance: random.Random) -> None:
        sock.sendall(chance.randbytes(chance.randrange(1, 500)))
        sock.shutdown(socket.SHUT_WR)
        assert handshake.WELCOME not in sock.recv(1000)[handshake.NONCE_BYTES :]

    def _spoiled(self, sock: socket.socket, takes: wire.Layout, chance: random.Random) -> None:
        nonce = handshake.exactly(sock, handshake.NONCE_BYTES)
        self._answer = handshake.answer(TOKEN, nonce, handshake.ALONE)
        sock.sendall(self._answer)
        assert handshake.exactly(sock, 2) == handshake.WELCOME
        data = spoiled(requests(takes, chance), chance)
        left = data
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
    form = wire.form(takes)
    before = set(threading.enumerate())
    with ExitStack() as undo:
        server = undo.enter_context(closing(TcpServer(HERE, TOKEN)))
        server.serve(Reversing(takes))
        attacker = Attacker(server.port)

        def good() -> TcpClient:
            client = undo.enter_context(closing(TcpClient(HERE, server.port, TOKEN, str(connections))))
            client.open(NAME, (("uint8", (form.nbytes + 1,)),))
            return client

        def check(client: TcpClient) -> None:
            tensors = tensors_of(takes, chance)
            client.send(case, tensors)
            assert as_bytes(client.receive().tensors) == answer_to(as_bytes(tensors))

        chance = random.Random(f"attackers {SEED}")  # noqa: S311
        case = 0
        first = good()
        for case in range(cases // OVER_LOOPBACK):
            chance = random.Random(f"attackers {SEED} {case}")  # noqa: S311
            attacker.come(takes, chance)
            check(first)
        check(good())
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
        assert not thread.is_alive(), thread.name

"""Wrong bytes by the thousand, at both ends of tcp: a clean fault, or exactly the tensors that were sent."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import pytest
import torch

from pareto.remote.backends import wire
from pareto.remote.backends.base import MAX_S, Layout, Tensors
from pareto.remote.backends.conversation import Client, Conversation
from pareto.remote.backends.tcp import TcpServer
from pareto.remote.backends.wire import Kind
from tests.unit.backends.builders import HERE, TOKEN, Works, refusal, reply, requests_for
from tests.unit.fuzzing import edited

pytestmark = pytest.mark.usefixtures("one_thread")

SEED = 15
NAME = b"thisone."
LAYOUTS: tuple[Layout, ...] = (
    (("float32", (3,)),),
    (("uint8", (2, 5)), ("int64", ())),
    (("float64", (1, 0, 4)),),
    (("bfloat16", (2100,)), ("bool", (7,)), ("float16", (1, 2, 3))),
    (("float32", (5000,)),),
)
HEAD = wire.HEADER.size
LIES = (0, 1, 2, 255, 1 << 16, 1 << 31, 1 << 32, 1 << 62, (1 << 63) - 1, (1 << 64) - 1)
SECONDS = (float("nan"), float("inf"), float("-inf"), -1e-300, -1.0, MAX_S * 1.01, 1e300)


def tensors_of(layout: Layout, chance: random.Random) -> Tensors:
    """Any bytes, also those that are no number; of truths, only two are."""
    made = wire.empty(wire.form(layout))
    for tensor, view in zip(made, wire.views(made), strict=True):
        data = chance.randbytes(len(view))
        view[:] = bytes(byte & 1 for byte in data) if tensor.dtype == torch.bool else data
    return made


def as_bytes(tensors: Tensors) -> bytes:
    return b"".join(map(bytes, wire.views(tensors)))


class Said(NamedTuple):
    """A message, as `said` reads it. seconds: of each stage, and of serialising."""

    kind: Kind
    number: int
    head: bytes
    seconds: tuple[float, ...]
    body: bytes


UNENDED = "ends in the middle of bytes"


def said(data: bytes, forms: Mapping[Kind, wire.Form | None]) -> tuple[list[Said], str]:
    """The messages of a stream up to the first that is wrong, and what is; empty where none is.

    Written apart from `pareto.remote.backends.wire`, against its description. forms: of the kinds that may come; None:
    bytes.
    """
    found: list[Said] = []
    while data:
        head, rest = data[:HEAD], data[HEAD:]
        if len(head) < HEAD:
            return found, "ends in the middle of a header"
        magic, version, number = head[:4], head[4:6], head[8:16]
        kinds = {int(kind): kind for kind in forms}
        kind, count, stages = kinds.get(head[6]), head[7], head[24]
        seconds, size = struct.unpack("!8d", head[32:96]), int.from_bytes(head[96:], "big")
        if magic != b"PRT1" or version != b"\0\2" or kind is None or stages > 7:
            return found, "no header"
        if not all(0 <= each <= MAX_S for each in seconds):
            return found, "impossible times"
        if (form := forms[kind]) is not None:
            if (count, size) != (len(form.specs), form.nbytes) or not rest.startswith(form.descriptors):
                return found, "another form"
            rest = rest[len(form.descriptors) :]
        if len(rest) < size:
            return found, UNENDED if form is None else "ends in the middle of tensors"
        times = (*seconds[:stages], seconds[7])
        found.append(Said(kind, int.from_bytes(number, "big"), head, times, rest[:size]))
        data = rest[size:]
    return found, ""


FIELDS = (0, 4, 6, 7, 8, 16, 24, *range(32, 96, 8), 96, *[HEAD - 8] * 4, *[HEAD] * 4)
"""Where the fields of a header begin, and what describes the first tensor; sizes most often."""
VALUES = (
    *(lie.to_bytes(8, "big") for lie in LIES),
    *(struct.pack("!d", each) for each in SECONDS),
    *(wire.message(kind, size) + b"\x1b[2J" + bytes(max(0, size - 4)) for kind in Kind for size in (0, 300)),
)


def spoiled(messages: Sequence[bytes], chance: random.Random) -> bytes:
    """A stream of these messages in which one thing is wrong, or nothing."""
    made, which = list(messages), chance.randrange(len(messages))
    match chance.choice(("right", "again", "shuffled", "of all", *["of one"] * 4)):
        case "again":
            made.insert(chance.randrange(len(made) + 1), made[which])
        case "shuffled":
            chance.shuffle(made)
        case "of one":
            made[which] = edited(made[which], chance, FIELDS, VALUES)
        case "of all":
            return edited(b"".join(made), chance)
    return b"".join(made)


@dataclass
class Peer:
    """In place of a socket: `data` comes in pieces, then the connection ends, or breaks.

    sent: what this end has sent.
    """

    data: bytes
    chance: random.Random
    breaks: bool = False
    sent: bytearray = field(default_factory=bytearray)

    def recv_into(self, view: memoryview, nbytes: int = 0, flags: int = 0) -> int:
        if not self.data and self.breaks:
            raise ConnectionResetError("reset by peer")
        most = min(len(view), len(self.data))
        # Dribbled, around the size of a header, or all at once.
        count = min(most, self.chance.choice((1, HEAD - 1, HEAD, HEAD + 1, 4096, most, most)))
        view[:count] = self.data[:count]
        self.data = self.data[count:]
        return count

    def recvmsg_into(self, parts: Sequence[memoryview]) -> tuple[int]:
        count = 0
        for part in parts:
            came = self.recv_into(part)
            count += came
            if came < len(part):
                break
        return (count,)

    def sendall(self, data: bytes) -> None:
        self.sent += data

    def sendmsg(self, parts: Sequence[Any]) -> int:
        before = len(self.sent)
        for part in parts:
            self.sent += part
        return len(self.sent) - before

    def shutdown(self, how: int) -> None: ...

    def close(self) -> None: ...


def reversing(takes: wire.Layout) -> Works:
    """A stage whose answer depends on every byte: all of them, from the last to the first."""

    def work(tensors: Tensors) -> Tensors:
        return (torch.frombuffer(bytearray(answer_to(as_bytes(tensors))), dtype=torch.uint8),)

    return Works(takes, work, 1e-4, NAME)


def answer_to(body: bytes) -> bytes:
    return b"\0" + body[::-1]


def answers_of(takes: wire.Layout) -> wire.Layout:
    return (("uint8", (wire.form(takes).nbytes + 1,)),)


def client_of(line: object, takes: wire.Layout) -> Client:
    client = Client(line, "peer")  # type: ignore[arg-type]
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
        head = reply(wire.form(takes), number, stages_s, chance.random())
        made.append(head + as_bytes(tensors))
    return made


def test_a_client(cases: int) -> None:
    """What it makes of what came is what is there to be read, and ends in a BackendError."""
    for _, chance in seeded("client", cases):
        takes = chance.choice(LAYOUTS)
        data = spoiled(replies(takes, chance), chance)
        peer = Peer(data, chance, breaks=chance.random() < 0.3)
        client = client_of(wire.Line(cast(socket.socket, peer)), takes)
        right, _ = said(data, {Kind.REPLY: wire.form(takes)})
        for expected in right:
            reply = client.receive()
            assert (reply.request_id, as_bytes(reply.tensors)) == (expected.number, expected.body)
            assert (*reply.stages_s, reply.serialize_s) == expected.seconds
        assert len(refusal(client.receive)) < wire.MAX_TEXT + 100


def requests(takes: wire.Layout, chance: random.Random) -> list[bytes]:
    like, made = requests_for(NAME, wire.form(takes)), []
    for number in range(chance.randrange(1, 4)):
        made.append(like.numbered(number) + as_bytes(tensors_of(takes, chance)))
        if chance.random() < 0.2:
            nbytes = chance.randrange(3000)
            made.append(wire.message(Kind.WARM, nbytes) + bytes(nbytes))
    return made


def check_server(came: bytes, sent: bytes, takes: wire.Layout, *, breaks: bool) -> None:
    """What a server sent of what came: a right answer to each request, in order, up to the first fault; then that."""
    form = wire.form(takes)
    like = requests_for(NAME, form)
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
    for answered, request in zip(replies, asked, strict=False):
        assert (answered.number, answered.body) == (request.number, answer_to(request.body))


def test_a_server(cases: int) -> None:
    server = TcpServer(HERE, TOKEN)
    server.close()  # nobody connects
    for _, chance in seeded("server", cases // 2):  # each takes three threads
        takes = chance.choice(LAYOUTS)
        server.serve(reversing(takes))
        data = spoiled(requests(takes, chance), chance)
        peer = Peer(data, chance, breaks=chance.random() < 0.3)
        Conversation(wire.Line(cast(socket.socket, peer)), server).run()
        check_server(data, bytes(peer.sent), takes, breaks=peer.breaks)

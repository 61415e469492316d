"""Messages of the wire format made wrong by a seed, how they may come in, and a second reading of what they say."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch

from pareto.remote.backends import wire
from pareto.remote.backends.base import MAX_S, Layout, Tensors
from pareto.remote.backends.wire import Kind

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


def one_byte(data: bytes, chance: random.Random, of: slice = slice(None)) -> bytes:
    places = range(*of.indices(len(data)))
    if not places:
        return data
    at = chance.choice(places)
    return data[:at] + bytes([data[at] ^ chance.randrange(1, 256)]) + data[at + 1 :]


def _put(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def _a_lying_size(data: bytes, chance: random.Random) -> bytes:
    size = int.from_bytes(data[HEAD - 8 : HEAD], "big")
    lie = chance.choice((*LIES, size + 1, size + 8, 2 * size, max(0, size - 1)))
    return _put(data, HEAD - 8, lie.to_bytes(8, "big"))


def _of_another_kind(data: bytes, chance: random.Random) -> bytes:
    size = chance.choice((0, 3, 300, wire.MAX_TEXT + 1))
    return wire.message(chance.choice(list(Kind)), size) + b"\x1b[2J" + chance.randbytes(max(0, size - 4))


def _times(data: bytes, chance: random.Random) -> bytes:
    return _put(data, 32 + 8 * chance.randrange(8), struct.pack("!d", chance.choice(SECONDS)))


def _cut_out(data: bytes, chance: random.Random) -> bytes:
    begin = chance.randrange(len(data))
    return data[:begin] + data[begin + chance.randrange(1, 40) :]


def _added(data: bytes, chance: random.Random) -> bytes:
    begin = chance.randrange(len(data) + 1)
    return data[:begin] + chance.randbytes(chance.randrange(1, 40)) + data[begin:]


Way = Callable[[bytes, random.Random], bytes]
_OF_ONE: tuple[Way, ...] = (
    one_byte,
    partial(one_byte, of=slice(HEAD)),
    partial(one_byte, of=slice(HEAD, HEAD + wire.DESCRIPTOR.size)),
    _a_lying_size,
    lambda data, chance: _put(data, 8, chance.choice(LIES).to_bytes(8, "big")),  # number
    _times,
    lambda data, chance: _put(data, chance.choice((6, 7, 24)), chance.randbytes(1)),  # kind, tensors, stages
    _of_another_kind,
    lambda _, chance: chance.randbytes(chance.randrange(2 * HEAD)),
)
_OF_ALL: tuple[Way, ...] = (
    lambda data, _: data,
    lambda data, chance: data[: chance.randrange(len(data))],
    _cut_out,
    _added,
)


def spoiled(messages: Sequence[bytes], chance: random.Random) -> bytes:
    """A stream of these messages in which one thing is wrong, or nothing."""
    made, way = list(messages), chance.choice(("again", "shuffled", *_OF_ALL, *_OF_ONE))
    which = chance.randrange(len(made))
    if way == "again":
        made.insert(chance.randrange(len(made) + 1), made[which])
    elif way == "shuffled":
        chance.shuffle(made)
    elif way in _OF_ONE:
        made[which] = way(made[which], chance)
    stream = b"".join(made)
    return way(stream, chance) if way in _OF_ALL else stream


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

    def sendmsg(self, parts: Sequence[Any]) -> int:
        before = len(self.sent)
        for part in parts:
            self.sent += part
        return len(self.sent) - before

    def shutdown(self, how: int) -> None: ...

    def close(self) -> None: ...

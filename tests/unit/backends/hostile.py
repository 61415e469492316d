"""Messages of the wire format made wrong by a seed, how they may come in, and a second reading of what they say."""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from pareto.remote.backends import wire
from pareto.remote.backends.base import MAX_S, Layout, Tensors
from pareto.remote.backends.wire import Kind
from tests.unit.fuzzing import edited

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

    def sendmsg(self, parts: Sequence[Any]) -> int:
        before = len(self.sent)
        for part in parts:
            self.sent += part
        return len(self.sent) - before

    def shutdown(self, how: int) -> None: ...

    def close(self) -> None: ...

"""The tcp backend's wire format, and a connection that carries it: tensors go straight out of memory and into it.

    header      magic "PRT1", version u16, kind u8, tensors u8, request id u64, fingerprint 8 bytes, stages u8,
                7 bytes of zero, seconds of each stage 7 x f64 (0.0 where there is none), serialize seconds f64,
                body bytes u64                                                     (104 bytes, big endian)
    descriptor  dtype code u8, rank u8, 2 bytes of zero, dims 8 x u32              (36 bytes a tensor)
    body        the tensors' bytes one after another, in the sender's byte order (little endian everywhere
                this runs), or UTF-8 text in an error

Nothing is pickled and nothing from the network decides how much is allocated: a receiver says beforehand which
layout it takes, and everything else is refused.
"""

from __future__ import annotations

import contextlib
import functools
import math
import select
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

import torch

from pareto.protocol.constants import DTYPES, MAX_RANK, MAX_TENSORS
from pareto.protocol.errors import BackendError
from pareto.protocol.messages import MAX_STAGES
from pareto.remote.backends.base import BYTES, Layout, Tensors, bytes_of, check_seconds
from pareto.remote.backends.tls import AnySocket, beneath, within

MAGIC = b"PRT1"
VERSION = 2
HEADER = struct.Struct(f"!4sHBBQ8sB7x{MAX_STAGES}ddQ")
DESCRIPTOR = struct.Struct("!BBxx8I")
MAX_TEXT = 4096
CUT = "the peer closed the connection in the middle of a message"
OTHER_FORM = "tensors of another dtype or shape came than were expected"
AHEAD = 16 << 10
"""Bytes read at once where a message begins. A smaller one costs one call into the kernel, header, tensors and all;
copying so much takes less time than a second call."""

WARM_BYTES = 1 << 18
"""Bytes of a part of a warm-up."""
POLL_S = 0.2e-3
_NUMBER, _SECONDS = slice(8, 16), slice(32, 96)
_NUMBERED, _TOLD = struct.Struct("!8sQ"), struct.Struct(f"!8sQ8xB7x{MAX_STAGES}dd")
_NOBODY = bytes(8)
_NO_STAGE = (0.0,) * MAX_STAGES
_CODES = {dtype: code for code, dtype in enumerate(DTYPES, start=1)}


class Kind(IntEnum):
    REQUEST = 1
    REPLY = 2
    ERROR = 3
    WARM = 4
    """A body to throw away, answered by an empty WARM."""


class Header(NamedTuple):
    """The header of a message, without its number and times: see `number` and `told`."""

    kind: Kind
    fingerprint: bytes
    tensors: int
    body_bytes: int


@dataclass(frozen=True)
class Form:
    """A message's tensors without their values. `nbytes`: of the body; where it `varies`, the most."""

    specs: tuple[tuple[torch.dtype, tuple[int, ...]], ...]
    descriptors: bytes
    nbytes: int
    varies: bool = False

    def views(self, tensors: Tensors) -> list[memoryview] | None:
        """The bytes of each tensor, as `bytes_of` has them; None for tensors of another form."""
        if len(tensors) != len(self.specs):
            return None
        made = []
        for tensor, (dtype, shape) in zip(tensors, self.specs):  # noqa: B905  (looked at above, in less time)
            if tensor.dtype is not dtype or tensor.shape != shape:
                return None
            made.append(bytes_of(tensor))
        return made


def form(layout: Layout) -> Form:
    """The form of a layout. Raises BackendError for a dtype or rank that the format lacks."""
    if len(layout) > MAX_TENSORS:
        raise BackendError(f"{len(layout)} tensors in one message, at most {MAX_TENSORS}")
    if len(layout) == 1 and layout[0][0] == BYTES:
        return replace(form((("uint8", layout[0][1]),)), varies=True)
    parts, specs, nbytes = [], [], 0
    for dtype, shape in layout:
        if dtype not in _CODES:
            raise BackendError(f"dtype {dtype} cannot be sent")
        if len(shape) > MAX_RANK:
            raise BackendError(f"rank {len(shape)} cannot be sent, at most {MAX_RANK}")
        parts.append(DESCRIPTOR.pack(_CODES[dtype], len(shape), *shape, *[0] * (MAX_RANK - len(shape))))
        specs.append((getattr(torch, dtype), shape))
        nbytes += math.prod(shape) * int(specs[-1][0].itemsize)
    return Form(tuple(specs), b"".join(parts), nbytes)


NOTHING = Form((), b"", 0)


def form_of(tensors: Tensors) -> Form:
    """The form of these tensors; worked out once for all that are alike. Raises BackendError."""
    return _form_of(*[(tensor.dtype, tensor.shape) for tensor in tensors])


@functools.lru_cache(maxsize=64)
def _form_of(*tensors: tuple[torch.dtype, torch.Size]) -> Form:
    return form(tuple((str(dtype).removeprefix("torch."), tuple(shape)) for dtype, shape in tensors))


def views(tensors: Tensors) -> list[memoryview]:
    """The bytes of each tensor, as `bytes_of` has them."""
    return [bytes_of(tensor) for tensor in tensors]


def empty(form: Form) -> Tensors:
    """Uninitialised tensors of a form, to receive into."""
    return tuple([torch.empty(shape, dtype=dtype) for dtype, shape in form.specs])


def check_size(header: Header, form: Form) -> None:
    """Raises BackendError unless a message may have this form."""
    if header.tensors != len(form.specs) or header.body_bytes != form.nbytes:
        raise BackendError(
            f"{header.tensors} tensors in {header.body_bytes} bytes came, "
            f"{len(form.specs)} in {form.nbytes} were expected"
        )


def message(kind: Kind, body_bytes: int, tensors: int = 0, fingerprint: bytes = _NOBODY) -> bytes:
    """The header of a message without number and times."""
    return HEADER.pack(MAGIC, VERSION, kind, tensors, 0, fingerprint, 0, *_NO_STAGE, 0.0, body_bytes)


class Likeness:
    """The bytes that all messages of one kind and form share: everything before the body but a request's number, or a
    reply's number and seconds. Where the form varies, also without its length."""

    def __init__(self, kind: Kind, form: Form, fingerprint: bytes = _NOBODY) -> None:
        """fingerprint: 8 bytes, of the stage that requests are for; where it is none, no message is alike."""
        head = message(kind, form.nbytes, len(form.specs), fingerprint=fingerprint)
        self.fingerprint, self.form, self.key = fingerprint, form, key(memoryview(head))
        self._at = _SECONDS.stop if kind is Kind.REPLY else _NUMBER.stop
        self._before = head[: _NUMBER.start] if fingerprint else b"none"
        self._until = HEADER.size - (8 if form.varies else 0)
        self._compared = head[self._at : self._until]
        self._whole = head[self._at :] + form.descriptors
        self.size = HEADER.size + len(form.descriptors)
        self.most = self.size + form.nbytes
        """Bytes of the whole message; where the form varies, the most."""

    def numbered(self, number: int) -> bytes:
        """A request's bytes up to its body."""
        return _NUMBERED.pack(self._before, number) + self._whole

    def told(self, number: int, stages_s: tuple[float, ...], serialize_s: float) -> bytes:
        """A reply's bytes up to its body. Raises BackendError for too many stages."""
        count = len(stages_s)
        if count > MAX_STAGES:
            raise BackendError(f"{count} later stages, at most {MAX_STAGES}")
        seconds = *stages_s, *_NO_STAGE[count:], serialize_s
        return _TOLD.pack(self._before, number, count, *seconds) + self._whole

    def is_whole(self, data: bytearray, at: int) -> bool:
        """Whether the bytes from there on are those of such a message up to its body, of the greatest length."""
        return data.startswith(self._whole, at + self._at) and data.startswith(self._before, at)

    def has(self, head: memoryview) -> bool:
        """Whether this is the header of such a message."""
        return head[self._at : self._until] == self._compared and head[: _NUMBER.start] == self._before

    def body(self, head: memoryview) -> Form:
        """The form of the body of a message with this header. Raises BackendError for one that is too long."""
        if not self.form.varies:
            return self.form
        length = int.from_bytes(head[HEADER.size - 8 : HEADER.size], "big")
        if length > self.form.nbytes:
            raise BackendError(f"{length} bytes came, at most {self.form.nbytes} were expected")
        return form((("uint8", (length,)),))


def number(head: memoryview) -> int:
    """The number that stands in a header."""
    stands: int = _NUMBERED.unpack_from(head)[1]
    return stands


def key(head: memoryview) -> bytes:
    """The bytes of a header by which messages of one kind, stage and size are told from others."""
    return b"".join([head[: _NUMBER.start], head[16:24], head[HEADER.size - 8 : HEADER.size]])


def told(head: memoryview) -> tuple[int, tuple[float, ...], float]:
    """A reply's number, the seconds of later stages, and those of serializing. Raises BackendError."""
    _, number, stages, *seconds = _TOLD.unpack_from(head)
    if stages > MAX_STAGES:
        raise BackendError(f"a message tells of {stages} later stages, at most {MAX_STAGES}")
    check_seconds(seconds)
    return number, tuple(seconds[:stages]), seconds[-1]


def header(data: memoryview) -> Header:
    """A header from its `HEADER.size` bytes, checked for form. Raises BackendError."""
    magic, version, kind, tensors, _, fingerprint, *_, size = HEADER.unpack(data)
    if magic != MAGIC:
        raise BackendError("the peer does not speak this protocol")
    if version != VERSION:
        raise BackendError(f"the peer speaks protocol version {version}, this is {VERSION}")
    if kind not in tuple(Kind):
        raise BackendError(f"unknown kind of message {kind}")
    told(data)  # refuses times that cannot be
    if kind == Kind.ERROR and size > MAX_TEXT:
        raise BackendError(f"an error text of {size} bytes came")
    return Header(Kind(kind), fingerprint, tensors, size)


def send_all(sock: AnySocket, parts: Sequence[memoryview]) -> None:
    """Send what lies in these parts, from where it lies, on a socket that blocks or not. Raises OSError."""
    left = sum(map(len, parts))
    while True:
        try:
            sent = sock.sendmsg(parts)
        except BlockingIOError:
            room = select.poll()
            room.register(sock, select.POLLOUT)
            room.poll()
            continue
        if sent == left:
            return
        parts = within(parts, sent, left)
        left -= sent


class AnyLine:
    """A connection that carries messages. All methods raise BackendError for nonsense, and OSError. One thread may send
    while another receives."""

    def send(self, head: bytes, body: Sequence[memoryview] = ()) -> None:
        """Send one message; the memory of its parts may be used again when this returns."""

    def idle(self) -> None:
        """Before `message`, where nothing computes at this end until one comes."""

    def expect(self, like: Likeness) -> None:
        """Be ready for such messages, which come from now on; any thread may say so."""

    def message(self, like: Likeness, views: Sequence[memoryview]) -> memoryview | None:
        """The next message's header, good until the next call, with the body in `views`, if it is one of these. None
        for another one, which is still to be taken. EOFError at the end."""
        head = self.head()
        if not like.has(head):
            self.put_back(head)
            return None
        form = like.body(head)
        self.body(form, within(views, 0, form.nbytes))
        return head

    def head(self) -> memoryview:
        """The next message's header, good until the next call. EOFError at the end."""
        raise NotImplementedError

    def put_back(self, head: memoryview) -> None:
        """Have `head` return this header once more."""

    def body(self, form: Form, views: Sequence[memoryview]) -> None:
        """Take the rest of a message, which must have this form: each tensor's bytes into its memory."""

    def skip(self, nbytes: int) -> None:
        """Take the body of a warm-up, and forget it."""
        scratch = memoryview(bytearray(min(nbytes, WARM_BYTES)))
        while nbytes:
            self.body(NOTHING, [scratch[:nbytes]])
            nbytes -= min(nbytes, len(scratch))

    def drain(self) -> None:
        """Forget all that still comes, until the other end is gone."""

    def end(self) -> None:
        """Say that nothing more is sent."""

    def close(self) -> None: ...


class Line(AnyLine):
    """One connection, by a socket of its own. polls: whether it looks for what comes before it waits."""

    def __init__(self, sock: AnySocket, *, polls: bool = False) -> None:
        self._sock, self._polls = sock, polls
        self._begin = self._end = 0
        """The bounds in `_data` of the bytes that came and were not taken yet."""
        self._make_room(AHEAD)
        self._top = bytearray(HEADER.size + MAX_TENSORS * DESCRIPTOR.size)

    def _make_room(self, nbytes: int) -> None:
        self._data = bytearray(nbytes)
        self._ahead = memoryview(self._data)

    def send(self, head: bytes, body: Sequence[memoryview] = ()) -> None:
        if len(head) + sum(map(len, body)) <= AHEAD:
            self._sock.sendall(b"".join([head, *body]))
        else:
            send_all(self._sock, [memoryview(head), *body])

    def end(self) -> None:
        self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # it may be broken
            self._sock.shutdown(socket.SHUT_RDWR)  # wakes who still waits for a message: closing does not
        self._sock.close()

    def idle(self) -> None:
        """Look whether something comes, for a moment, where nothing computes at this end: to wake a thread takes
        longer than what most messages take on a fast link."""
        if not self._polls or self._begin < self._end:
            return
        until, below = time.perf_counter() + POLL_S, beneath(self._sock)
        while time.perf_counter() < until:
            with contextlib.suppress(BlockingIOError):
                below.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
                return

    def message(self, like: Likeness, views: Sequence[memoryview]) -> memoryview | None:
        if (begin := self._begin) == self._end:
            if len(self._data) > AHEAD:  # another message than awaited had come into it
                self._make_room(AHEAD)
            if like.most > AHEAD and not like.form.varies:
                return self._scattered(like, views)
            self._begin = begin = 0
            self._end = self._sock.recv_into(self._ahead)
        if self._end - begin < like.most or not like.is_whole(self._data, begin):
            return AnyLine.message(self, like, views)
        at = begin + like.size
        for view in views:
            view[:] = self._ahead[at : at + len(view)]
            at += len(view)
        self._begin = at
        return self._ahead[begin:at]

    def _scattered(self, like: Likeness, views: Sequence[memoryview]) -> memoryview | None:
        """As `message`, where nothing is there yet: its body comes to where it belongs without a copy."""
        parts = [memoryview(self._top)[: like.size], *views]
        came = self._sock.recvmsg_into(parts)[0]
        if came >= like.size and like.is_whole(self._top, 0):
            self._fill(within(parts, came, like.most))
            return parts[0]
        if came:
            self._make_room(max(came, AHEAD))
            self._begin, self._end = 0, came
            self._ahead[:came] = b"".join(within(parts, 0, came))
        return AnyLine.message(self, like, views)

    def head(self) -> memoryview:
        return memoryview(bytes(self._take(HEADER.size, at_start=True)))  # the rest may come to where it lay

    def put_back(self, head: memoryview) -> None:
        self._begin -= len(head)

    def body(self, form: Form, views: Sequence[memoryview]) -> None:
        if self._take(len(form.descriptors)) != form.descriptors:
            raise BackendError(OTHER_FORM)
        for view in views:
            ahead = min(len(view), self._end - self._begin)
            view[:ahead] = self._ahead[self._begin : self._begin + ahead]
            self._begin += ahead
            self._fill([view[ahead:]])

    def drain(self) -> None:
        """Forget all that still comes, which need not be decrypted, and after a fault cannot be."""
        scratch = memoryview(bytearray(WARM_BYTES))
        while beneath(self._sock).recv_into(scratch):
            pass

    def _fill(self, views: Sequence[memoryview]) -> None:
        for view in views:
            left = view
            while left:
                if not (came := self._sock.recv_into(left, 0, socket.MSG_WAITALL)):
                    raise BackendError(CUT)
                left = left[came:]

    def _take(self, count: int, *, at_start: bool = False) -> memoryview:
        """The next `count` bytes, at most `AHEAD`, good until the next call."""
        begin = self._begin
        if begin == self._end or begin + count > len(self._ahead):
            left = self._end - begin
            self._ahead[:left] = self._ahead[begin : self._end]
            begin, self._end = 0, left
        while self._end < begin + count:
            came = self._sock.recv_into(self._ahead[self._end :])
            if not came:
                if at_start and begin == self._end:
                    raise EOFError
                raise BackendError(CUT)
            self._end += came
        self._begin = begin + count
        return self._ahead[begin : self._begin]

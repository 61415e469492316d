"""The tcp backend's wire format: a fixed binary header, tensor descriptors, raw tensor bytes.

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

import ctypes
import math
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from pareto.backends.base import BackendError, Layout, Tensors

MAGIC = b"PRT1"
VERSION = 2
MAX_STAGES = 7
"""Later stages that a reply can tell of: a chain has eight hosts at most."""
HEADER = struct.Struct(f"!4sHBBQ8sB7x{MAX_STAGES}ddQ")
DESCRIPTOR = struct.Struct("!BBxx8I")
MAX_RANK = 8
MAX_TENSORS = 16
MAX_TEXT = 4096

_NO_STAGE = (0.0,) * MAX_STAGES
_CODES = {
    "float32": 1,
    "float16": 2,
    "bfloat16": 3,
    "uint8": 4,
    "int8": 5,
    "int32": 6,
    "int64": 7,
    "float64": 8,
    "bool": 9,
}


class Kind(IntEnum):
    REQUEST = 1
    REPLY = 2
    ERROR = 3
    WARM = 4
    """A body to throw away, answered by an empty WARM."""


@dataclass(frozen=True)
class Header:
    """stages_s, serialize_s: in a reply, as in `base.Reply`."""

    kind: Kind
    request_id: int = 0
    fingerprint: bytes = bytes(8)
    stages_s: tuple[float, ...] = ()
    serialize_s: float = 0.0
    tensors: int = 0
    body_bytes: int = 0


def describe(layout: Layout) -> bytes:
    """The descriptors of a layout. Raises BackendError for a dtype or rank that the format lacks."""
    if len(layout) > MAX_TENSORS:
        raise BackendError(f"{len(layout)} tensors in one message, at most {MAX_TENSORS}")
    parts = []
    for dtype, shape in layout:
        if dtype not in _CODES:
            raise BackendError(f"dtype {dtype} cannot be sent")
        if len(shape) > MAX_RANK:
            raise BackendError(f"rank {len(shape)} cannot be sent, at most {MAX_RANK}")
        parts.append(DESCRIPTOR.pack(_CODES[dtype], len(shape), *shape, *[0] * (MAX_RANK - len(shape))))
    return b"".join(parts)


def views(tensors: Tensors) -> list[memoryview]:
    """Each tensor's bytes, without a copy; only to be used while the tensors live.

    Raises BackendError for one that is not contiguous in host memory.
    """
    return [_bytes_of(tensor) for tensor in tensors]


def _bytes_of(tensor: Tensor) -> memoryview:
    if not tensor.is_contiguous() or tensor.device.type != "cpu":
        raise BackendError("only contiguous tensors in host memory can be sent")
    # By its address: through numpy, which knows no bfloat16, it takes five times as long, four times a round trip.
    return memoryview((ctypes.c_ubyte * tensor.nbytes).from_address(tensor.data_ptr()))


def empty(layout: Layout) -> Tensors:
    """Uninitialised tensors of a layout, to receive into."""
    return tuple(torch.empty(shape, dtype=getattr(torch, dtype)) for dtype, shape in layout)


def body_bytes(layout: Layout) -> int:
    total = 0
    for dtype, shape in layout:
        count = 1
        for dim in shape:
            count *= dim
        total += count * getattr(torch, dtype).itemsize
    return total


def send(sock: socket.socket, header: Header, descriptors: bytes, body: list[memoryview]) -> None:
    """One message, gathered from where its parts lie. Raises OSError, and BackendError for too many stages."""
    if len(header.stages_s) > MAX_STAGES:
        raise BackendError(f"{len(header.stages_s)} later stages, at most {MAX_STAGES}")
    head = HEADER.pack(
        MAGIC,
        VERSION,
        header.kind,
        header.tensors,
        header.request_id,
        header.fingerprint,
        len(header.stages_s),
        *header.stages_s,
        *_NO_STAGE[len(header.stages_s) :],
        header.serialize_s,
        sum(view.nbytes for view in body),
    )
    parts = [memoryview(head + descriptors), *body]
    while parts:
        sent = sock.sendmsg(parts)
        while parts and sent >= parts[0].nbytes:
            sent -= parts.pop(0).nbytes
        if sent:
            parts[0] = parts[0][sent:]


def receive_header(sock: socket.socket, buffer: bytearray) -> Header:
    """The next message's header, checked for form. Raises BackendError, EOFError at the end of the stream."""
    receive_into(sock, [memoryview(buffer)], at_start=True)
    magic, version, kind, tensors, request_id, fingerprint, stages, *seconds, size = HEADER.unpack(buffer)
    if magic != MAGIC:
        raise BackendError("the peer does not speak this protocol")
    if version != VERSION:
        raise BackendError(f"the peer speaks protocol version {version}, this is {VERSION}")
    if kind not in Kind.__members__.values():
        raise BackendError(f"unknown kind of message {kind}")
    if stages > MAX_STAGES:
        raise BackendError(f"a message tells of {stages} later stages, at most {MAX_STAGES}")
    *stages_s, serialize_s = seconds
    return Header(Kind(kind), request_id, fingerprint, tuple(stages_s[:stages]), serialize_s, tensors, size)


def receive_tensors(
    sock: socket.socket, header: Header, layout: Layout, buffers: Callable[[Layout], Tensors]
) -> Tensors:
    """The body of a message that must have `layout`, straight into the tensors that `buffers` gives."""
    expected = describe(layout)
    if header.tensors != len(layout) or header.body_bytes != body_bytes(layout):
        raise BackendError(
            f"{header.tensors} tensors in {header.body_bytes} bytes came, "
            f"{len(layout)} in {body_bytes(layout)} were expected"
        )
    descriptors = bytearray(len(expected))
    receive_into(sock, [memoryview(descriptors)])
    if descriptors != expected:
        raise BackendError("tensors of another dtype or shape came than were expected")
    tensors = buffers(layout)
    receive_into(sock, views(tensors))
    return tensors


def receive_text(sock: socket.socket, header: Header) -> str:
    """The body of an error."""
    if header.body_bytes > MAX_TEXT:
        raise BackendError(f"an error text of {header.body_bytes} bytes came")
    text = bytearray(header.body_bytes)
    receive_into(sock, [memoryview(text)])
    return text.decode(errors="replace")


def discard(sock: socket.socket, nbytes: int | None = None) -> None:
    """Read a body and forget it, or all that still comes. EOFError where the stream ends."""
    left = math.inf if nbytes is None else nbytes
    scratch = memoryview(bytearray(int(min(left, 1 << 18))))
    while left:
        count = sock.recv_into(scratch[: int(min(left, len(scratch)))])
        if not count:
            raise EOFError
        left -= count


def receive_into(sock: socket.socket, parts: list[memoryview], *, at_start: bool = False) -> None:
    """Fill `parts` from the stream, scattering. EOFError if it ends before the first byte, else BackendError."""
    parts = [part for part in parts if part.nbytes]
    while parts:
        count = sock.recvmsg_into(parts, 0, socket.MSG_WAITALL)[0]
        if not count:
            if at_start:
                raise EOFError
            raise BackendError("the peer closed the connection in the middle of a message")
        at_start = False
        while parts and count >= parts[0].nbytes:
            count -= parts.pop(0).nbytes
        if count:
            parts[0] = parts[0][count:]

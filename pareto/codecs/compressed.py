"""Compression without loss: a payload's tensors as one tensor of bytes, of another length with each request.

    frame       length of each compressed tensor but the last, u32 little endian; the compressed tensors

A decompressor is given the size that must come out, and refuses any other.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import torch

from pareto.backends.base import BYTES, BackendError, Layout, Tensors
from pareto.codecs.base import check, nbytes

SLACK, SLACK_BYTES = 128, 512
"""What cannot be compressed may grow by one part in so many, and by these bytes: more than a library adds."""
MOST_BYTES = (1 << 31) - (1 << 26)
"""A tensor that a library takes at once: they count in 32 bits."""
_LENGTH = struct.Struct("<I")
_BLOSC2_HEADER = struct.Struct("<4xI4xI")
"""Of c-blosc2's chunk format: the sizes of the bytes inside, and of the chunk."""
_BLOSC2_HEADER_BYTES = 32
_BLOSC2_FLAGS, _BLOSC2_FIXED_FLAGS = 2, 0xED
"""Which byte they are, and which of them do not depend on the data: the codec's number in the three highest (0 for a
few bytes that are copied), and the format's."""
_BLOSC2_COPIED = 0x05
_BLOSC2_FORM = slice(16, 31)
"""Filters and codec, and what these are given. The decoder loads those that it does not have by starting programs."""
_BLOSC2_KIND, _BLOSC2_KINDS = 31, (0x00, 0x10)
"""Which byte says what kind of chunk it is; plain data, and nothing but zeros."""


class Library(NamedTuple):
    """compress: bytes and the size of their items to compressed bytes. decompress: compressed bytes into this memory.

    `decompress` raises any Exception, or returns how many bytes it made: never more than there is room for.
    """

    compress: Callable[[memoryview, int], bytes]
    decompress: Callable[[memoryview, memoryview], int]


class Compressed:
    """A payload as one tensor of compressed bytes."""

    def __init__(self, name: str, library: Library) -> None:
        self._name = name
        self._library = library

    def encoded(self, layout: Layout) -> Layout:
        if not layout:
            return layout
        sizes = [nbytes(dtype, shape) for dtype, shape in layout]
        if max(sizes) > MOST_BYTES:
            raise BackendError(f"a tensor of {max(sizes)} bytes is too large for {self._name}")
        return ((BYTES, (sum(size + size // SLACK + SLACK_BYTES for size in sizes),)),)

    def encode(self, tensors: Tensors) -> Tensors:
        if not tensors:
            return tensors
        parts = [self._library.compress(_bytes_of(tensor), tensor.itemsize) for tensor in tensors]
        lengths = b"".join(_LENGTH.pack(len(part)) for part in parts[:-1])
        frame = torch.empty(len(lengths) + sum(map(len, parts)), dtype=torch.uint8)
        view, at = _bytes_of(frame), 0
        for part in (lengths, *parts):
            view[at : at + len(part)] = part
            at += len(part)
        return (frame,)

    def decode(self, tensors: Tensors, layout: Layout) -> Tensors:
        check(tensors, self.encoded(layout))
        if not layout:
            return ()
        frame = _bytes_of(tensors[0])
        at = _LENGTH.size * (len(layout) - 1)
        if len(frame) < at:
            raise BackendError(f"{len(frame)} bytes of {self._name} came: they end before they begin")
        lengths = [each[0] for each in _LENGTH.iter_unpack(frame[:at])]
        lengths.append(len(frame) - at - sum(lengths))
        if lengths[-1] < 0:
            raise BackendError(f"{len(frame)} bytes of {self._name} came, its parts are longer")
        decoded = []
        for length, (dtype, shape) in zip(lengths, layout, strict=True):
            tensor = torch.empty(shape, dtype=getattr(torch, dtype))
            self._decompress(frame[at : at + length], _bytes_of(tensor))
            decoded.append(tensor)
            at += length
        return tuple(decoded)

    def _decompress(self, data: memoryview, into: memoryview) -> None:
        try:
            made = self._library.decompress(data, into)
        except Exception as error:
            words = " ".join(str(error).split())[:200]
            raise BackendError(f"{len(data)} bytes that are no whole {self._name} came: {words}") from error
        if made != len(into):
            raise BackendError(f"{made} bytes of {self._name} came out, {len(into)} were expected")


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    return memoryview(tensor.reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]


def _zstd(variant: str) -> Library:
    zstandard = import_module("zstandard")
    compressor = zstandard.ZstdCompressor(level=int(variant))
    decompressor = zstandard.ZstdDecompressor()

    def compress(data: memoryview, itemsize: int) -> bytes:
        made: bytes = compressor.compress(data)
        return made

    def decompress(data: memoryview, into: memoryview) -> int:
        # It would allocate what the frame says.
        said: int = zstandard.get_frame_parameters(data).content_size
        if said != len(into):
            return said
        if said:
            into[:] = decompressor.decompress(data, allow_extra_data=False)
        return said

    return Library(compress, decompress)


def _lz4(variant: str) -> Library:
    block = import_module("lz4.block")
    mode: dict[str, Any] = {"mode": "high_compression", "compression": int(variant)} if variant else {}

    def compress(data: memoryview, itemsize: int) -> bytes:
        made: bytes = block.compress(data, store_size=False, **mode)
        return made

    def decompress(data: memoryview, into: memoryview) -> int:
        made: bytes = block.decompress(data, uncompressed_size=len(into))
        if len(made) == len(into):
            into[:] = made
        return len(made)

    return Library(compress, decompress)


def _blosc2(variant: str) -> Library:
    blosc2 = import_module("blosc2")
    codec, level, shuffle = variant.split(":")
    which = getattr(blosc2.Codec, codec.upper())
    filters = [getattr(blosc2.Filter, "NOFILTER" if shuffle == "noshuffle" else shuffle.upper())]

    def compress(data: memoryview, itemsize: int) -> bytes:
        made: bytes = blosc2.compress2(
            data,
            codec=which,
            clevel=int(level),
            filters=filters,
            filters_meta=[0],
            typesize=itemsize,
            nthreads=1,
        )
        return made

    own = compress(memoryview(bytes(range(256)) * 16), 4)

    def decompress(data: memoryview, into: memoryview) -> int:
        if len(data) < _BLOSC2_HEADER_BYTES:
            raise ValueError("it ends within its header")
        if not _of_form(data, own):
            raise ValueError("it is of another form than this codec's")
        inside, length = _BLOSC2_HEADER.unpack_from(data)
        if length != len(data):
            raise ValueError(f"it says that it has {length} bytes")
        if inside == len(into) and inside:
            blosc2.decompress2(data, dst=into, nthreads=1)
        return int(inside)

    return Library(compress, decompress)


def _of_form(data: memoryview, own: bytes) -> bool:
    """Whether a chunk's header names the codec and the filters of another one, and is of its version."""
    flags, own_flags = (each[_BLOSC2_FLAGS] & _BLOSC2_FIXED_FLAGS for each in (data, own))
    return (
        data[:2] == own[:2]
        and flags in (own_flags, _BLOSC2_COPIED)
        and data[_BLOSC2_FORM] == own[_BLOSC2_FORM]
        and data[_BLOSC2_KIND] in _BLOSC2_KINDS
    )


_LIBRARIES = {"zstd": _zstd, "lz4": _lz4, "blosc2": _blosc2}


def step(name: str, variant: str) -> Compressed:
    return Compressed(name, _LIBRARIES[name](variant))

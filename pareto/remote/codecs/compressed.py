"""Compression without loss: a payload's tensors as one frame, of another length with each request.

A decompressor is given the size that must come out, and refuses any other.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import torch

from pareto.protocol.errors import BackendError
from pareto.remote.backends.base import BYTES, Layout, Tensors, bytes_of, layout
from pareto.remote.codecs.base import lengths, nbytes, parted, unreadable

SLACK, SLACK_BYTES = 128, 512
"""Data may grow by one part in so many and by these bytes where it cannot be compressed: more than a library adds."""
MOST_BYTES = (1 << 31) - (1 << 26)
"""A tensor that a library takes at once: they count in 32 bits."""
_MOST_INT = (1 << 31) - 1
_ZSTD_BLOCK = struct.Struct("<HB")
"""A block's header, 24 bits: whether it is the last, its kind in two bits, its size (RFC 8878, section 3.1.1.2)."""
_ZSTD_REPEATED = 1
"""The kind of a block that has one byte, whatever its size."""
_BLOSC2_HEADER = struct.Struct("<4xI4xI")
"""Sizes in the header of c-blosc2's chunk: of the bytes inside, and of the chunk."""
_BLOSC2_HEADER_BYTES = 32
_BLOSC2_FLAGS, _BLOSC2_FIXED_FLAGS = 2, 0xED
"""The byte of the flags, and those flags that do not depend on the data: the codec's number in the three highest (0
for a few bytes that are copied), and the format's."""
_BLOSC2_COPIED = 0x05
_BLOSC2_FORM = slice(16, 31)
"""Filters and codec, and what these are given. The decoder loads those that it does not have by starting programs."""
_BLOSC2_KIND, _BLOSC2_KINDS = 31, (0x00, 0x10)
"""The byte that says what kind of chunk it is, and the kinds: plain data, and nothing but zeros."""


class Library(NamedTuple):
    """A library that takes bytes at once, into memory that is given. Both raise any Exception, or return how many bytes
    they made. compress: also gets the size of items. decompress: gets memory of just the size that must come out."""

    compress: Callable[[memoryview, memoryview, int], int]
    decompress: Callable[[memoryview, memoryview], int]


class Compressed:
    """A payload as one tensor of compressed bytes."""

    def __init__(self, name: str, library: Library) -> None:
        self._name = name
        self._library = library

    def encoded(self, layout: Layout) -> Layout:
        return _framed(layout, self._name)

    def encode(self, tensors: Tensors) -> Tensors:
        if not tensors:
            return tensors
        ((_, (most,)),) = self.encoded(layout(tensors))
        frame = torch.empty(most, dtype=torch.uint8)
        view, at = bytes_of(frame), 4 * (len(tensors) - 1)
        made = []
        for tensor in tensors:
            whole = tensor.contiguous()
            made.append(self._library.compress(bytes_of(whole), view[at:], tensor.itemsize))
            at += made[-1]
        head = lengths(made)
        view[: len(head)] = head
        return (frame[:at],)

    def decode(self, tensors: Tensors, layout: Layout) -> Tensors:
        if not layout:
            return ()
        whole = tensors[0].contiguous()
        decoded = tuple(torch.empty(shape, dtype=getattr(torch, dtype)) for dtype, shape in layout)
        for tensor, part in zip(decoded, parted(bytes_of(whole), len(layout), self._name), strict=True):
            try:
                made = self._library.decompress(part, bytes_of(tensor))
            except Exception as error:
                raise unreadable(part, self._name, error) from error
            if made != tensor.nbytes:
                raise BackendError(f"{made} bytes of {self._name} came out, {tensor.nbytes} were expected")
        return decoded


@functools.cache
def _framed(layout: Layout, name: str) -> Layout:
    """The layout of a frame with room for what the codec of this name makes of tensors. Raises BackendError."""
    if not layout:
        return layout
    sizes = [nbytes(dtype, shape) for dtype, shape in layout]
    if max(sizes) > MOST_BYTES:
        raise BackendError(f"a tensor of {max(sizes)} bytes is too large for {name}")
    return ((BYTES, (sum(size + size // SLACK + SLACK_BYTES for size in sizes),)),)


def _put(made: bytes, into: memoryview) -> int:
    into[: len(made)] = made
    return len(made)


def _zstd(variant: str) -> Library:
    zstandard = import_module("zstandard")
    compressor = zstandard.ZstdCompressor(level=int(variant))
    decompressor = zstandard.ZstdDecompressor()

    def compress(data: memoryview, into: memoryview, itemsize: int) -> int:
        return _put(compressor.compress(data), into)

    def decompress(data: memoryview, into: memoryview) -> int:
        frame = zstandard.get_frame_parameters(data)
        said: int = frame.content_size
        if said != len(into):
            return said
        if _zstd_length(data, zstandard.frame_header_size(data), frame.has_checksum) != len(data):
            raise ValueError("it ends elsewhere than it says")
        # All of a frame, into all that it becomes: the library does that at once, without memory of its own.
        made: int = decompressor.stream_reader(data).readinto(into) if said else 0
        return made

    return Library(compress, decompress)


def _zstd_length(data: memoryview, at: int, has_checksum: bool) -> int:
    """How long a frame is whose first block is at that place: RFC 8878, section 3.1.1. Raises struct.error."""
    last = False
    while not last:
        size, high = _ZSTD_BLOCK.unpack_from(data, at)
        size |= high << 16
        last = bool(size & 1)
        at += _ZSTD_BLOCK.size + (1 if size >> 1 & 3 == _ZSTD_REPEATED else size >> 3)
    return at + 4 * has_checksum


def _lz4(variant: str) -> Library:
    # The package returns bytes of its own, which would have to be copied; LZ4's own functions write where they may.
    library = ctypes.CDLL(import_module("lz4.block")._block.__file__)
    level = [int(variant)] if variant else []
    compressing = library.LZ4_compress_HC if level else library.LZ4_compress_default

    def compress(data: memoryview, into: memoryview, itemsize: int) -> int:
        places = _address(data), _address(into), len(data), min(len(into), _MOST_INT)
        made: int = compressing(*places, *level)
        return made

    def decompress(data: memoryview, into: memoryview) -> int:
        made: int = library.LZ4_decompress_safe(_address(data), _address(into), len(data), len(into))
        if made < 0:
            raise ValueError(f"it is damaged at byte {-made}, or becomes more")
        return made

    return Library(compress, decompress)


def _address(data: memoryview) -> Any:
    """The pointer to these bytes for a function of C; None if there are none."""
    return ctypes.byref(ctypes.c_char.from_buffer(data)) if data else None


def _blosc2(variant: str) -> Library:
    blosc2 = import_module("blosc2")
    blosc2.set_releasegil(True)  # else no other thread sends or receives meanwhile
    codec, level, shuffle = variant.split(":")
    which = getattr(blosc2.Codec, codec.upper())
    filters = [getattr(blosc2.Filter, "NOFILTER" if shuffle == "noshuffle" else shuffle.upper())]
    form = {"codec": which, "clevel": int(level), "filters": filters, "filters_meta": [0], "nthreads": 1}

    def made_of(data: memoryview, itemsize: int) -> bytes:
        made: bytes = blosc2.compress2(data, typesize=itemsize, **form)
        return made

    own = made_of(memoryview(bytes(range(256)) * 16), 4)

    def compress(data: memoryview, into: memoryview, itemsize: int) -> int:
        return _put(made_of(data, itemsize), into)

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

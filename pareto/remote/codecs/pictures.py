"""The images themselves as files of pictures, as a camera sends them: `jpeg:90`, `webp:80`, `png`.

They are for point 0, where the payload is images of bytes, (n, 1 or 3, height, width): the edge encodes each of them,
and the server decodes them and normalises the bytes, as it does where they come plain. They cross as one frame.

A decoder reads a picture's header before a library does. It refuses other sizes than the expected one, and parts that
the encoder does not write, because some of them make a library allocate what they say.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from pareto.protocol.errors import BackendError
from pareto.remote.backends.base import BYTES, Layout, Tensors, bytes_of
from pareto.remote.codecs.base import lengths, parted, unreadable

MODES = {1: "L", 3: "RGB"}
_HEADER_BYTES = 4096
"""Room for what is no pixel: the tables of a JPEG take 600 bytes."""

_JPEG_BEGINS = b"\xff\xd8"
_JPEG_ENDS = b"\xff\xd9"
_JPEG_FRAME, _JPEG_SCAN = 0xC0, 0xDA
_JPEG_PARTS = (0xE0, 0xDB, _JPEG_FRAME, 0xC4, _JPEG_SCAN)
"""JFIF's header, quantisation, a baseline frame, Huffman tables, a scan (ITU-T T.81, table B.1)."""
_PNG_BEGINS = b"\x89PNG\r\n\x1a\n"
_PNG_PARTS = (b"IHDR", b"IDAT", b"IEND")
_WEBP = struct.Struct("<4sI4s4sI3s3sHH")
"""A lossy WebP of one chunk: RFC 9649, section 2.5; the frame's header in it: RFC 6386, section 9.1."""


class Pictures:
    """Images of bytes as files of one kind."""

    def __init__(self, name: str, quality: int | None) -> None:
        self._name = name
        self._format = name.upper()
        self._options: dict[str, Any] = {} if quality is None else {"quality": quality}

    def encoded(self, layout: Layout) -> Layout:
        images, channels, height, width = self._shape(layout)
        # Coded noise may be larger than its bytes: PNG adds some for each row, JPEG a share of them.
        each = 2 * channels * (height + 16) * (width + 16) + _HEADER_BYTES
        return ((BYTES, (images * each,)),)

    def encode(self, tensors: Tensors) -> Tensors:
        (images,) = tensors
        return (joined([self._written(image) for image in images]),)

    def decode(self, tensors: Tensors, layout: Layout) -> Tensors:
        count, channels, height, width = self._shape(layout)
        images = torch.empty(count, channels, height, width, dtype=torch.uint8)
        frame = tensors[0].contiguous()
        for image, part in zip(images, parted(bytes_of(frame), count, self._name), strict=True):
            image.copy_(self._read(part, (channels, height, width)))
        return (images,)

    def _shape(self, layout: Layout) -> tuple[int, int, int, int]:
        """Images, channels, height and width of the one tensor."""
        dtype, shape = layout[0] if len(layout) == 1 else ("", ())
        if dtype != "uint8" or len(shape) != 4 or shape[1] not in MODES or not min(shape):
            raise BackendError(
                f"{self._name} is for images of bytes (--input uint8), with 1 or 3 channels, at point 0"
            )
        images, channels, height, width = shape
        return images, channels, height, width

    def _written(self, image: Tensor) -> bytes:
        channels, height, width = image.shape
        pixels = image.permute(1, 2, 0).contiguous().numpy()
        file = io.BytesIO()
        picture = Image.frombuffer(MODES[channels], (width, height), pixels, "raw", MODES[channels], 0, 1)
        picture.save(file, self._format, **self._options)
        return file.getvalue()

    def _read(self, part: memoryview, shape: tuple[int, int, int]) -> Tensor:
        (channels, height, width), data = shape, bytes(part)
        try:
            if _SIZES[self._name](data) != (width, height):
                raise ValueError("it is of another size")
            with Image.open(io.BytesIO(data), formats=(self._format,)) as picture:
                pixels = picture.convert(MODES[channels]).tobytes()
        except Exception as error:  # Pillow's decoders raise OSError, ValueError, SyntaxError, TypeError
            raise unreadable(part, self._name, error) from error
        flat = torch.frombuffer(bytearray(pixels), dtype=torch.uint8)
        return flat.reshape(height, width, channels).permute(2, 0, 1)


def joined(parts: Sequence[bytes]) -> Tensor:
    """Pictures as one frame, of uint8."""
    head = lengths([len(part) for part in parts])
    return torch.frombuffer(bytearray(b"".join((head, *parts))), dtype=torch.uint8)


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """Width and height of a baseline JPEG. Raises ValueError, struct.error."""
    if not data.startswith(_JPEG_BEGINS):
        raise ValueError("it does not begin as one")
    at, kind, size = 2, 0, None
    while kind != _JPEG_SCAN:
        prefix, kind, length = struct.unpack_from(">BBH", data, at)
        if prefix != 0xFF or kind not in _JPEG_PARTS or length < 2:
            raise ValueError(f"it has a part that no encoder here writes (marker {kind:#x})")
        if kind == _JPEG_FRAME:
            if size is not None:
                raise ValueError("it has two frames")
            height, width = struct.unpack_from(">HH", data[at + 4 : at + 2 + length], 1)
            size = width, height
        at += 2 + length
    if size is None:
        raise ValueError("it has no frame")
    if not data.endswith(_JPEG_ENDS):
        raise ValueError("it has no end")
    return size


def _png_size(data: bytes) -> tuple[int, int]:
    """Width and height of a PNG that has nothing but pixels. Raises ValueError, struct.error."""
    if not data.startswith(_PNG_BEGINS):
        raise ValueError("it does not begin as one")
    at, size = len(_PNG_BEGINS), (0, 0)
    kinds: list[bytes] = []
    while at < len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        if kind not in _PNG_PARTS:
            raise ValueError(f"it has a part that no encoder here writes ({kind!r})")
        if not kinds:
            size = struct.unpack_from(">II", data, at + 8)
        kinds.append(kind)
        at += length + 12
    if kinds[:1] != [b"IHDR"] or kinds.count(b"IHDR") > 1:
        raise ValueError("its header is not its first part")
    if at != len(data) or kinds[-1] != b"IEND":
        raise ValueError("it does not end where it says")
    return size


def _webp_size(data: bytes) -> tuple[int, int]:
    """Width and height of a lossy WebP without anything beside its picture. Raises ValueError, struct.error."""
    riff, length, webp, chunk, body, _, start, width, height = _WEBP.unpack_from(data)
    if (riff, webp, chunk, start) != (b"RIFF", b"WEBP", b"VP8 ", b"\x9d\x01\x2a"):
        raise ValueError("it has a part that no encoder here writes")
    if length + 8 != len(data) or body + body % 2 + 20 != len(data):
        raise ValueError("it does not end where it says")
    return width, height


_SIZES = {"jpeg": _jpeg_size, "png": _png_size, "webp": _webp_size}


def step(name: str, variant: str) -> Pictures:
    return Pictures(name, int(variant) if variant else None)

"""Shards of a weights file: each has the tensors of a unit, so that a host gets those of its own units.

A shard is a safetensors file that is made while it is read: only the whole file is on disk.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from .model import Outline
from .weights import Place, layout

_BLOCK_BYTES = 1 << 18
_ALIGNMENT = 8


@dataclass(frozen=True)
class Shard:
    """The tensors of a unit in a weights file. unit: its index; unit i follows point i. digest: SHA-256 of the shard's
    bytes, in hex. size: their number. The rest says where they come from."""

    unit: int
    digest: str
    size: int
    file: Path
    header: bytes
    spans: tuple[tuple[int, int], ...]

    def blocks(self) -> Iterator[bytes]:
        """The shard's bytes. Raises OSError."""
        yield self.header
        with self.file.open("rb") as source:
            for begin, end in self.spans:
                source.seek(begin)
                while block := source.read(min(_BLOCK_BYTES, end - begin)):
                    begin += len(block)
                    yield block


def of(outline: Outline, file: Path) -> tuple[Shard, ...]:
    """The shards of a model's weights file, in the order of their units; what no unit reads is in none. No point lies
    between two users of the same weights, so no two units have them. Raises UserError, OSError."""
    places = sorted(layout(file).items(), key=lambda item: item[1].begin)
    shards = []
    for unit in range(outline.last):
        paths = outline.paths(unit, unit + 1)
        if own := {key: place for key, place in places if key in paths}:
            shards.append(_shard(unit, file, own))
    return tuple(shards)


def _shard(unit: int, file: Path, places: Mapping[str, Place]) -> Shard:
    header: dict[str, object] = {}
    spans: list[tuple[int, int]] = []
    offset = 0
    for key, place in places.items():
        end = offset + place.end - place.begin
        header[key] = {"dtype": place.dtype, "shape": place.shape, "data_offsets": [offset, end]}
        offset = end
        if spans and spans[-1][1] == place.begin:  # small reads between large ones would tear the heap
            spans[-1] = spans[-1][0], place.end
        else:
            spans.append((place.begin, place.end))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    head = len(text).to_bytes(8, "little") + text
    digest = hashlib.sha256(head)
    buffer = memoryview(bytearray(_BLOCK_BYTES))  # blocks between a model's tensors would tear the heap
    with file.open("rb", buffering=0) as source:
        for begin, end in spans:
            source.seek(begin)
            while begin < end:
                if not (count := source.readinto(buffer[: end - begin])):
                    raise OSError(f"{file} ends within a tensor")
                digest.update(buffer[:count])
                begin += count
    return Shard(unit, digest.hexdigest(), len(head) + offset, file, head, tuple(spans))

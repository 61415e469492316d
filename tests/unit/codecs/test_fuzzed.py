"""Spoiled frames of each codec, by the thousand: tensors of the expected layout, or a BackendError."""

from __future__ import annotations

import mmap
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from pareto.protocol.errors import BackendError
from pareto.remote.backends.base import Tensors, layout
from pareto.remote.codecs.registry import parse
from tests.unit.fuzzing import edited

pytestmark = pytest.mark.usefixtures("one_thread")

SEED = 18
FLOATS = ("fp16", "int8", "uint4:channel", "zstd", "lz4", "blosc2", "blosc2:zstd:5:bitshuffle")
FLOATS += ("int8+zstd", "uint4+lz4", "int8:channel+blosc2")
PICTURES = ("jpeg:90", "webp", "png")
ROOM = 16 << 20
"""Spoiled frames of a few kB may not take more address space than this, touched or not: their lies are of up to
4 GiB."""


def payload(codec: str) -> Tensors:
    drawn = torch.Generator().manual_seed(SEED)
    if codec in PICTURES:
        return (torch.randint(256, (2, 3, 24, 16), generator=drawn, dtype=torch.uint8),)
    first, second = torch.randn(1, 4, 9, 9, generator=drawn).relu(), torch.randn(1, 30, generator=drawn)
    return first, second


def spoiled(tensors: Tensors, chance: random.Random) -> Tensors:
    """The encoded tensors with a few bytes, lengths, shapes or dtypes that are wrong, or one tensor more or less."""
    if chance.random() < 0.05:
        return chance.choice(
            (tensors[:-1], (*tensors, tensors[0]), tensors[::-1] if len(tensors) > 1 else ())
        )
    which = chance.randrange(len(tensors))
    own = tensors[which]
    data = own.reshape(-1).view(torch.uint8).numpy().tobytes()
    values = [bytes([each]) for each in (0, 0xFF, 0x7F, 0x80, 1 << chance.randrange(8))]
    for _ in range(chance.choice((1, 1, 1, 2, 8, 40))):
        # Headers say what is to come: most often these.
        data = edited(data, chance, range(min(len(data), 48)), values)
    wrong = torch.frombuffer(bytearray(data or b"\0"), dtype=torch.uint8)[: len(data)]
    if own.dtype != torch.uint8 and len(data) == own.nbytes:
        wrong = wrong.view(own.dtype)
    if wrong.numel() == own.numel():
        wrong = wrong.reshape(own.shape)
    return (*tensors[:which], wrong, *tensors[which + 1 :])


def address_space() -> tuple[int, int]:
    """How much this process has now, and the most that it has had."""
    lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    now, peak = (int(lines[name].split()[0]) * 1024 for name in ("VmSize", "VmPeak"))
    return now, peak


@contextmanager
def counted() -> Iterator[Callable[[], int]]:
    """The most address space that was taken from here on."""
    now, before = address_space()
    # What was more before and is free now could be taken unseen.
    with mmap.mmap(-1, before - now + mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS):
        _, before = address_space()
        yield lambda: address_space()[1] - before


def test_no_frame_starts_a_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A chunk of Blosc2 names its codec and filters. The library loads those it lacks by starting a shell."""
    pytest.importorskip("blosc2")
    started = tmp_path / "started"
    for name in ("python", "python3"):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\ntouch {started}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    codec, tensors = parse("blosc2"), payload("blosc2")[:1]
    (encoded,), expected = codec.encode(tensors), layout(tensors)
    for place, value in ((22, 36), (22, 37), (22, 38), (16, 36), (21, 36), (31, 0x40), (31, 0x08)):
        data = encoded.clone()
        data[place] = value
        if place == 22:  # a codec by its number
            data[2] = int(data[2]) & 0x1F | 6 << 5
        with pytest.raises(BackendError, match="another form"):
            codec.decode((data,), expected)
    assert not started.exists()


@pytest.mark.parametrize("name", (*FLOATS, *PICTURES))
def test_a_decoder(name: str, cases: int) -> None:
    codec, tensors = parse(name), payload(name)
    if codec.missing:
        pytest.skip(f"needs {codec.missing}")
    encoded, expected = codec.encode(tensors), layout(tensors)
    codec.decode(encoded, expected)
    with counted() as taken:
        for case in range(cases // (len(FLOATS) + len(PICTURES)) + 1):
            chance = random.Random(f"{name} {SEED} {case}")  # noqa: S311
            wrong = spoiled(encoded, chance)
            try:
                decoded = codec.decode(wrong, expected)
            except BackendError as error:
                assert "\n" not in str(error), case
                assert len(str(error)) < 400, case
            else:
                assert layout(decoded) == expected, case
        assert taken() < ROOM

"""What codecs take on each host of a testbed, of what crosses a link where a model is cut: for a model profile."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterator, Mapping, Sequence

import numpy as np
from safetensors import safe_open
from safetensors.torch import save_file

from analysis.model_profile import CodecTimes
from pareto.backends.base import BYTES, Layout
from pareto.codecs import registry
from pareto.codecs.registry import Codec
from pareto.prepare import Artifact
from pareto.profile_messages import CodecRuns
from partitions import scratch
from partitions.model import Outline

BATCHES = 4
"""Batches whose payloads are encoded: as many as a run without images of its own has."""


def coded(
    outline: Outline, codecs: Sequence[Codec], unfit: Mapping[str, Container[int]] | None = None
) -> list[tuple[int, str]]:
    """Every point where something crosses a link, with each of these codecs that takes it, and what that is there.

    unfit: by a user's own codec, the points that it is not for.
    """
    last, unfit = outline.last, unfit or {}
    made: dict[tuple[int, str], None] = {}
    for point, codec in itertools.product(range(last), codecs):
        dtypes = frozenset(spec.dtype for spec in outline.points[point].payload)
        if codec.fits((point,), last) and point not in unfit.get(codec.text, ()):
            made |= {(point, each.text): None for each in (codec, codec.at(dtypes)) if each.names}
    return list(made)


def examples(data: Artifact) -> tuple[Artifact, bool]:
    """A file with the inputs of a run's first batches alone, and whether it has no others."""
    with safe_open(data.path, framework="pt") as file:
        inputs = {key: file.get_slice(key) for key in file.keys() if key.startswith("input")}  # noqa: SIM118
        first = {key: tensor[:BATCHES].contiguous() for key, tensor in inputs.items()}
        count = inputs["input0"].get_shape()[0]
    with scratch.folder() as folder:
        save_file(first, folder / "examples.part")
        return Artifact.unlinked(folder / "examples.part"), count <= BATCHES


def times(
    outline: Outline,
    role: str,
    batch_size: int,
    coded: Sequence[tuple[int, str]],
    runs: CodecRuns,
    *,
    is_all: bool,
) -> Iterator[CodecTimes]:
    """What each codec takes on a host, from its runs. is_all: they were of all the batches that the run has."""
    columns = zip(runs.payload_bytes, runs.wire_bytes, strict=True)
    sizes = {
        place: (payload_bytes, np.median(wire_bytes), min(wire_bytes))
        for place, (payload_bytes, wire_bytes) in zip(coded, columns, strict=True)
    }
    seconds = zip(runs.encode_s, runs.encode_again_s, runs.decode_s, runs.decode_again_s, strict=True)
    figures = {
        place: (*sizes[place], *_seconds(*encoding), *_seconds(*decoding))
        for place, (*encoding, decode_s, decode_again_s) in zip(coded, seconds, strict=True)
        for decoding in [(decode_s, decode_again_s)]
    }
    for text in dict.fromkeys(text for _, text in coded):
        rows = np.full((len(outline.points), 7), np.nan)
        for point, spec in enumerate(outline.points[:-1]):
            if (point, text) not in figures:
                continue
            rows[point] = figures[point, text]
            layout: Layout = tuple((each.dtype, each.at(batch_size)) for each in spec.payload)
            if not (is_all or _is_fixed(text, layout)):
                rows[point, 2] = np.nan
        yield CodecTimes(role, batch_size, text, *rows.T)


def _seconds(after_work_s: Sequence[float], again_s: Sequence[float]) -> tuple[float, float]:
    """The median of what it takes after other work, and the least of all runs; NaN where there was none."""
    if not after_work_s:
        return np.nan, np.nan
    return float(np.median(after_work_s)), float(min(*after_work_s, *again_s))


def _is_fixed(text: str, layout: Layout) -> bool:
    """Whether a codec makes as many bytes of whatever has this layout."""
    try:
        codec = registry.parse(text)
    except ValueError:  # a user's own
        return False
    return BYTES not in dict(codec.encoded(layout))

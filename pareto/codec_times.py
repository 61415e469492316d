"""What codecs take on each host of a testbed, of what crosses a link where a model is cut: for a model profile."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from safetensors import safe_open
from safetensors.torch import save_file

from analysis.model_profile import CodecTimes
from pareto.backends.base import BYTES, Layout
from pareto.codecs import registry
from pareto.hosts.host import EDGE
from pareto.messages import CodecRuns, TimeCodecs
from pareto.prepare import Artifact
from partitions import scratch
from partitions.model import Outline

BATCHES = 4
"""Batches whose payloads are encoded: as many as a run without images of its own has."""


def coded(outline: Outline, codecs: Sequence[str]) -> list[tuple[int, str]]:
    """Every point where something crosses a link, with each of these codecs that takes it, and what it comes to there."""
    last = len(outline.points) - 1
    made: dict[tuple[int, str], None] = {}
    for point, codec in itertools.product(range(last), map(registry.parse, codecs)):
        dtypes = frozenset(spec.dtype for spec in outline.points[point].payload)
        if codec.fits((point,), last):
            made |= {(point, each.text): None for each in (codec, codec.at(dtypes)) if each.names}
    return list(made)


def examples(data: Artifact) -> tuple[Artifact, bool]:
    """A file with the `inputs` of a run's first batches alone, and whether it has no others."""
    with safe_open(data.path, framework="pt") as file:
        inputs = file.get_slice("inputs")
        first, count = inputs[:BATCHES], inputs.get_shape()[0]
    with scratch.folder() as folder:
        save_file({"inputs": first.contiguous()}, folder / "examples.part")
        return Artifact.unlinked(folder / "examples.part"), count <= BATCHES


def request(outline: Outline, codecs: Sequence[str], role: str, cpu: float) -> TimeCodecs:
    """What a host is to encode and decode; the file of payloads is missing still. cpu: its share of a core."""
    return TimeCodecs(coded(outline, codecs), "", role != EDGE, cpu)


def times(
    outline: Outline, role: str, batch_size: int, request: TimeCodecs, runs: CodecRuns, *, is_all: bool
) -> Iterator[CodecTimes]:
    """What each codec takes on a host, from its runs. is_all: they were of all the batches that the run has."""
    columns = zip(runs.payload_bytes, runs.wire_bytes, runs.encode_s, runs.decode_s, strict=True)
    figures = {
        place: [payload_bytes, *_figures(wire_bytes, encode_s, decode_s)]
        for place, (payload_bytes, wire_bytes, encode_s, decode_s) in zip(request.coded, columns, strict=True)
    }
    for text in dict.fromkeys(text for _, text in request.coded):
        rows = np.full((len(outline.points), 7), np.nan)
        for point, spec in enumerate(outline.points[:-1]):
            if (point, text) not in figures:
                continue
            rows[point] = figures[point, text]
            layout: Layout = tuple((each.dtype, each.at(batch_size)) for each in spec.payload)
            is_known = is_all or BYTES not in dict(registry.parse(text).encoded(layout))
            rows[point, 2] = rows[point, 2] if is_known else np.nan
        yield CodecTimes(role, batch_size, text, *rows.T)


def _figures(
    wire_bytes: Sequence[int], encode_s: Sequence[float], decode_s: Sequence[float]
) -> Iterator[float]:
    yield from (float(np.median(wire_bytes)), float(min(wire_bytes)))
    for seconds in (encode_s, decode_s):
        yield from (float(np.median(seconds)), float(min(seconds))) if seconds else (np.nan, np.nan)

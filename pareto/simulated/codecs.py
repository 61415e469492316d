"""Codecs on a simulated testbed: the bytes that they send, and how long hosts take for it.

Steps that give numbers fewer bits make what their layout says, to the byte. The bytes of compressors and pictures
depend on a payload's content, which nothing computes here: the world states them.
"""

from __future__ import annotations

from collections.abc import Sequence

from pareto.partitions.graph import TensorSpec
from pareto.partitions.model import Outline
from pareto.predict.model_times import coded_at
from pareto.remote.codecs import registry
from pareto.remote.codecs.base import nbytes
from pareto.simulated.world import World

REFERENCE_GFLOPS = 100.0
"""The host whose rates a world states: a host of half as many GFLOP/s takes twice as long."""


def wire_shares(
    world: World, outline: Outline, codecs: Sequence[registry.Codec]
) -> dict[str, tuple[float, ...]]:
    """By codec, also those that others come to somewhere, the share of each point's payload that it sends, or 1."""
    coded = coded_at(outline, codecs)
    shares = {text: [1.0] * len(outline.points) for _, text in coded}
    for at, text in coded:
        shares[text][at] = _share(world, registry.parse(text), outline.points[at].payload)
    return {text: tuple(of_points) for text, of_points in shares.items()}


def seconds(world: World, role: str, codec: str, payload_bytes: float) -> tuple[float, float]:
    """The seconds that a host takes to encode a payload, and to decode it: of each step its input over its rate."""
    faster = 1e6 * world.speed(role).gflops / REFERENCE_GFLOPS
    encode_s = decode_s = 0.0
    for name, _ in registry.parse(codec).names:
        step = world.codec_step(name)
        encode_s += payload_bytes / (faster * step.encode)
        decode_s += payload_bytes / (faster * step.decode)
        payload_bytes *= step.share
    return encode_s, decode_s


def _share(world: World, codec: registry.Codec, payload: Sequence[TensorSpec]) -> float:
    """The share of a payload that a codec sends."""
    layout = tuple((spec.dtype, spec.at(1)) for spec in payload)
    share = 1.0
    for name, variant in codec.names:
        if name not in registry.BITS:
            share *= world.codec_step(name).share
            continue
        coded = registry.Codec(registry.SEPARATOR.join(filter(None, (name, variant)))).encoded(layout)
        share *= sum(nbytes(*each) for each in coded) / sum(nbytes(*each) for each in layout)
    return share

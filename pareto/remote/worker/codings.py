"""The times of codecs on this device, for what crosses a link where a model is cut.

Payloads are the model's own, of a run's images: how long a compressor takes depends on what it is given. The clock is
that of the units (`worker.units`): processor time where one thread computes, for a codec works in one as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch

from pareto.partitions.model import ResidentStage
from pareto.protocol.profile_messages import CodecRuns, TimeCodecs
from pareto.remote.backends.base import Tensors, layout, nbytes
from pareto.remote.codecs.registry import NONE, Codec
from pareto.remote.worker.device import Device

AGAIN = 2
"""Runs right after one that is timed, for the least that a codec takes."""
COOLING_BYTES = 32 << 20
"""So much is copied before a run that is timed: in a trial a codec runs once after a stage, or after a wait, and finds
neither its code nor its payload in the caches. int8 of 75 kB took 24 us again and again, 29 us after 4 MiB were copied,
96 us after 16 MiB, and 169 us after a stage of 17 ms."""


def timed(
    device: Device,
    resident: ResidentStage,
    batches: Sequence[Tensors],
    request: TimeCodecs,
    codecs: Mapping[str, Codec | None],
) -> CodecRuns:
    """Runs of the request's codecs, by their names, on these batches at its points. Raises BackendError, Refused. The
    model is computed piece by piece, each once for a batch."""
    clock = time.process_time if request.cpu < 1 or torch.get_num_threads() == 1 else time.perf_counter
    made: dict[int, tuple[Any, ...]] = {}
    payloads, at = list(batches), 0
    spare = torch.zeros(2, COOLING_BYTES, dtype=torch.uint8)

    def runs(
        first_s: list[float], again_s: list[float], work: Callable[..., Tensors], *given: Any
    ) -> Tensors:
        """The tensors that `work` makes; the seconds after other work, and right after that, go into these lists."""
        spare[1].copy_(spare[0])
        for took_s in (first_s, *[again_s] * AGAIN):
            began = clock()
            tensors = work(*given)
            took_s.append((clock() - began) / request.cpu)
        return tensors

    for number in sorted(range(len(request.coded)), key=lambda number: request.coded[number][0]):
        point, text = request.coded[number]
        if point > at:
            resident.change(at, point)
            payloads = [device.run(resident.stage, payload) for payload in payloads]
            at = point
        codec, takes = (codecs[text] or Codec(NONE)).for_cut(point), layout(payloads[0])
        encode_s: tuple[list[float], list[float]] = ([], [])
        decode_s: tuple[list[float], list[float]] = ([], [])
        wire_bytes: list[int] = []
        codec.encode(payloads[0])  # a codec's first run imports its library
        for payload in payloads:
            encoded = runs(*encode_s, codec.encode, payload)
            wire_bytes.append(nbytes(encoded))
            if request.decodes:
                runs(*decode_s, codec.decode, encoded, takes)
        made[number] = nbytes(payloads[0]), *encode_s, *decode_s, wire_bytes
    columns = zip(*(made[number] for number in range(len(made))), strict=True)
    return CodecRuns(*(map(list, columns) if made else ([] for _ in fields(CodecRuns))))

"""What codecs take on this device, of what crosses a link where a model is cut.

Payloads are the model's own, of a run's images: how long a compressor takes depends on what it is given. The clock is
that of the units (`pareto.worker.units`): processor time where one thread computes, for a codec works in one as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from pareto.backends.base import Tensors, layout
from pareto.codecs.registry import NONE, Codec
from pareto.messages import CodecRuns, TimeCodecs
from pareto.worker.device import Device
from partitions.model import ResidentStage

LEAST_S, MOST_RUNS = 0.004, 5
"""A codec that is quick has more runs of each payload: until so long has been timed, or so many of each."""


def timed(
    device: Device,
    resident: ResidentStage,
    batches: Sequence[Tensor],
    request: TimeCodecs,
    codecs: Mapping[str, Codec | None],
) -> CodecRuns:
    """What the request's codecs, by their names, take for these batches at its points. Raises BackendError, Refused.

    The model is computed piece by piece, each once for a batch.
    """
    clock = time.process_time if request.cpu < 1 or torch.get_num_threads() == 1 else time.perf_counter
    made: dict[int, tuple[int, list[float], list[float], list[int]]] = {}
    payloads: list[Tensors] = [(batch,) for batch in batches]
    at = 0
    for number in sorted(range(len(request.coded)), key=lambda number: request.coded[number][0]):
        point, text = request.coded[number]
        if point > at:
            resident.change(at, point)
            payloads = [device.run(resident.stage, payload) for payload in payloads]
            at = point
        codec = codecs[text] or Codec(NONE)
        runs = _Runs(codec.for_cut(point), clock, request.cpu)
        runs.of(payloads, decodes=request.decodes)
        made[number] = _nbytes(payloads[0]), runs.encode_s, runs.decode_s, runs.wire_bytes
    columns = list(zip(*(made[number] for number in range(len(made))), strict=True)) or [(), (), (), ()]
    return CodecRuns(*map(list, columns))


class _Runs:
    """The seconds of a codec's runs on this clock, over the share of a core, and the bytes that it makes."""

    def __init__(self, codec: Codec, clock: Callable[[], float], cpu: float) -> None:
        self._codec, self._clock, self._cpu = codec, clock, cpu
        self.encode_s: list[float] = []
        self.decode_s: list[float] = []
        self.wire_bytes: list[int] = []

    def of(self, payloads: Sequence[Tensors], *, decodes: bool) -> None:
        takes = layout(payloads[0])
        encoded = self._codec.encode(payloads[0])  # a codec's first run imports its library
        if decodes:
            self._codec.decode(encoded, takes)
        for _ in range(MOST_RUNS):
            for payload in payloads:
                began = self._clock()
                encoded = self._codec.encode(payload)
                ended = self._clock()
                self.encode_s.append((ended - began) / self._cpu)
                self.wire_bytes.append(_nbytes(encoded))
                if decodes:
                    began = self._clock()
                    self._codec.decode(encoded, takes)
                    self.decode_s.append((self._clock() - began) / self._cpu)
            if sum(self.encode_s) + sum(self.decode_s) >= LEAST_S:
                break


def _nbytes(tensors: Tensors) -> int:
    return sum(tensor.nbytes for tensor in tensors)

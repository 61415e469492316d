"""PyTorch as it is, with the stage's numbers in another order in memory, or shorter ones.

Payloads are what they are in eager: numbers become shorter within a stage, and long again before its results.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable

import torch
from torch import Tensor, nn

from pareto.partitions.engines.base import Builder, Ranges, Run, refusing
from pareto.partitions.stage import Payload, Stage

_SHORTENED = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)
"""Their weights are kept short: autocast would shorten them in each run."""


class Shortened(nn.Module):
    """A stage's body under autocast for bfloat16; its results have the dtypes that they have without."""

    def __init__(self, body: nn.Module, example: Payload) -> None:
        super().__init__()
        self._body = body
        self._dtypes = [result.dtype for result in body(*example)]
        self._device = example[0].device.type

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        with torch.autocast(self._device, torch.bfloat16, cache_enabled=False):
            results = self._body(*tensors)
        return tuple(one.to(dtype) for one, dtype in zip(results, self._dtypes, strict=True))


class Reformatter(Builder):
    """Lays images out as convolutions often read them: all channels of a pixel beside each other. With 16 bits it has
    products of matrices and convolutions in bfloat16, and the rest as autocast has it."""

    _body: nn.Module | None = None

    def build(self, stage: Stage, example: Payload, key: Hashable, ranges: Ranges) -> Run:
        assert stage.body is not None  # noqa: S101
        with refusing("PyTorch"):
            with torch.inference_mode(False):  # tensors made in that mode cannot be changed outside it
                self._body = body = copy.deepcopy(stage.body)
            whole = Shortened(body, example) if self._short else body

            def run(tensors: Payload) -> Payload:
                return tuple(whole(*map(_channels_last, tensors)))

            with torch.inference_mode(False):
                body.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
                for module in body.modules():
                    if self._short and isinstance(module, _SHORTENED):
                        module.to(torch.bfloat16)
            run(example)
        return Run(run, sum(one.nbytes for one in (*body.parameters(), *body.buffers())))

    def release(self) -> None:
        if self._body is not None:  # as garbage it would keep its weights for long
            self._body.to("meta")
        self._body = None

    close = release


def _channels_last(tensor: Tensor) -> Tensor:
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor

"""PyTorch as it is, with the stage's numbers in another order in memory, or shorter ones.

Payloads are what they are in eager: numbers become shorter within a stage, and long again before its results.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from partitions.engines.base import EngineError, Ranges, Run, reason
from partitions.stage import Payload, Stage

_SHORTENED = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)
"""Their weights are kept short: autocast would shorten them in each run."""


class ChannelsLast:
    """Images as convolutions often read them: all channels of a pixel beside each other."""

    def __init__(self) -> None:
        self._body: nn.Module | None = None

    def build(self, stage: Stage, example: Payload, key: Hashable, ranges: Ranges) -> Run:
        """As `base.Builder` has it."""
        dtypes = [result.dtype for result in stage(example)]
        device = example[0].device.type
        with torch.inference_mode(False):  # tensors made in that mode cannot be changed outside it
            self._body = body = copy.deepcopy(stage.body)
        assert body is not None  # noqa: S101

        def run(tensors: Payload) -> Payload:
            with self._computing(device):
                results = body(*map(_channels_last, tensors))
            return tuple(one.to(dtype) for one, dtype in zip(results, dtypes, strict=True))

        try:
            with torch.inference_mode(False):
                self._change(body)
            run(example)
        except RuntimeError as error:
            raise EngineError(f"PyTorch does not take the stage so: {reason(error)}") from error
        return Run(run, sum(one.nbytes for one in (*body.parameters(), *body.buffers())))

    def release(self) -> None:
        if self._body is not None:  # as garbage it would keep its weights for long
            self._body.to("meta")
        self._body = None

    def close(self) -> None:
        self.release()

    def _change(self, body: nn.Module) -> None:
        body.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def _computing(self, device: str) -> AbstractContextManager[object]:
        return nullcontext()


class BFloat16(ChannelsLast):
    """Products of matrices and convolutions in bfloat16, by autocast; the rest as autocast has it."""

    def _change(self, body: nn.Module) -> None:
        super()._change(body)
        for module in body.modules():
            if isinstance(module, _SHORTENED):
                module.to(torch.bfloat16)

    def _computing(self, device: str) -> AbstractContextManager[object]:
        return torch.autocast(device, torch.bfloat16, cache_enabled=False)


def channels_last(threads: int) -> ChannelsLast:
    """What builds stages for as many threads as torch has here."""
    return ChannelsLast()


def bfloat16(threads: int) -> BFloat16:
    """As `channels_last`."""
    return BFloat16()


def _channels_last(tensor: Tensor) -> Tensor:
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor

"""What an engine provides."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from partitions.stage import Payload, Stage

MOST_LETTERS = 300
Ranges = Mapping[str, tuple[float, float]]
"""By tensor of a stage, its least and its greatest value, by which an engine quantises it."""


class EngineError(Exception):
    """An engine cannot build a stage; one line."""


@dataclass(frozen=True)
class Run:
    """A stage as an engine built it. weights_bytes: of its own weights; None: it reads those of the stage."""

    call: Callable[[Payload], Payload]
    weights_bytes: int | None = None

    def __call__(self, tensors: Payload) -> Payload:
        return self.call(tensors)


class Builder(Protocol):
    """What builds the stages of one model in a process. One thread uses it."""

    def build(self, stage: Stage, example: Payload, key: Hashable, ranges: Ranges) -> Run:
        """What computes the same as `stage`, which has units, for payloads of the example's shapes and dtypes.

        Its results are contiguous and in memory of their own. It is called under `torch.inference_mode()`. key: the
        same for stages that differ in nothing, not even in what they take. ranges: of a `Calibrator`, on the driver;
        empty for other builders. Raises EngineError.
        """

    def release(self) -> None:
        """Let go of the weights of the stage that was built last; nobody calls it any more."""

    def close(self) -> None:
        """Give back everything, also what is kept for stages that come back."""


@runtime_checkable
class Calibrator(Protocol):
    """A builder that quantises by the ranges of a stage's tensors."""

    def calibrated(self, stage: Stage, examples: Sequence[Payload], key: Hashable) -> Ranges:
        """The ranges of a stage's tensors over these payloads, for `build`. Raises EngineError."""


class Built(Stage):
    """A stage that an engine built: a `Stage` whose results come from `run`."""

    def __init__(self, stage: Stage, run: Run) -> None:
        super().__init__(None if run.weights_bytes is not None else stage.body)
        self._run = run

    @property
    def has_units(self) -> bool:
        return True

    def forward(self, tensors: Payload) -> Payload:
        return self._run(tensors)


def reason(error: Exception) -> str:
    """Why something could not be built: the first line of the error that led to it, without colours."""
    while error.__cause__ is not None and isinstance(error.__cause__, Exception):
        error = error.__cause__
    words = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip().partition("\n")[0]
    return words[:MOST_LETTERS] or type(error).__name__


def one_example(example: Payload) -> tuple[Tensor, ...]:
    """The example in memory of its own: a compiler may look at its strides, and at whose memory it is."""
    return tuple(tensor.clone() for tensor in example)

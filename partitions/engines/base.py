"""The interface of an engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from torch import Tensor

from pareto.partitions.stage import Payload, Stage

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


class Builder:
    """Builds the stages of one model in a process, on one thread. short: whether they compute with 16 bits."""

    def __init__(self, threads: int, *, short: bool = False) -> None:
        """threads: that a stage computes with, as many as torch has here."""
        self._threads, self._short, self._held = threads, short, ExitStack()

    def build(self, stage: Stage, example: Payload, key: Hashable, ranges: Ranges) -> Run:
        """The same as `stage`, which has units, for payloads of the example's shapes and dtypes.

        Its results are contiguous and in memory of their own. It is called under `torch.inference_mode()`. key: the
        same for stages that differ in nothing, not even in what they take. ranges: of a `Calibrator`, on the driver;
        empty for other builders. Raises EngineError.
        """
        raise NotImplementedError

    def release(self) -> None:
        """Let go of the weights of the stage that was built last, if they do not go with what `build` returned."""

    def close(self) -> None:
        """Give back everything, also what is kept for stages that come back."""
        self._held.close()


class Calibrator(Builder):
    """Quantises by the ranges of a stage's tensors."""

    def calibrated(self, stage: Stage, examples: Sequence[Payload], key: Hashable) -> Ranges:
        """The range of each tensor of a stage, over these payloads, for `build`. Raises EngineError."""
        raise NotImplementedError


class Built(Stage):
    """A stage whose results come from what an engine built of it."""

    def __init__(self, stage: Stage, run: Run) -> None:
        super().__init__(None if run.weights_bytes is not None else stage.body)
        self._run = run

    @property
    def has_units(self) -> bool:
        return True

    def forward(self, tensors: Payload) -> Payload:
        return self._run(tensors)


@contextmanager
def refusing(what: str, fails: str = "does not take the stage") -> Iterator[None]:
    """A context in which any error becomes an EngineError: those of compilers and runtimes have no common type."""
    try:
        yield
    except EngineError:
        raise
    except Exception as error:
        cause: BaseException = error
        while isinstance(cause.__cause__, Exception):
            cause = cause.__cause__
        words = re.sub(r"\x1b\[[0-9;]*m", "", str(cause)).strip().partition("\n")[0]  # without colours
        said = words[:MOST_LETTERS] or type(cause).__name__
        raise EngineError(f"{what} {fails}: {said}") from error


def one_example(example: Payload) -> tuple[Tensor, ...]:
    """The example in memory of its own: a compiler may look at its strides, and at whose memory it is."""
    return tuple(tensor.clone() for tensor in example)

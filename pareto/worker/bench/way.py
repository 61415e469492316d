"""What a way of moving tensors is to the benchmark: a near end that measures, a far end that takes and answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol

import torch
from torch import Tensor

ANSWER = b"done"
"""What comes back for a payload: as much as a small result, the same for every way."""


@dataclass(frozen=True)
class Order:
    """What the far end is to take next: `count` payloads of `nbytes`, each answered.

    kept: whether the last payload is kept, for a look at what came.
    """

    nbytes: int
    count: int
    kept: bool = False


class Near(Protocol):
    """The end that has the payload. Its faults are OSError, EOFError and BackendError."""

    def begin(self, payload: Tensor) -> None:
        """From now on, this is what is sent."""

    def trips(self, count: int) -> list[float]:
        """Send it and wait for its answer, so many times; the seconds of each."""

    def stream(self, count: int, in_flight: int) -> None:
        """Send it so many times, with at most `in_flight` under way; returns when all are answered."""

    def close(self) -> None: ...


class Far(Protocol):
    """The end that takes payloads, in threads of its own."""

    def expect(self, order: Order) -> None:
        """Be ready for this. Nothing may be under way."""

    def taken(self) -> tuple[int, Tensor | None]:
        """How many payloads of the order have come, and the last of them if it was to be kept."""

    def close(self) -> None: ...


def payload(nbytes: int) -> Tensor:
    """The payload of that size, the same on both ends: noise, for no layer may make it smaller."""
    return torch.frombuffer(bytearray(Random(nbytes).randbytes(nbytes)), dtype=torch.uint8)  # noqa: S311


def timed(trip: Callable[[], object], count: int) -> list[float]:
    """The seconds of each of so many trips."""
    clock = time.perf_counter
    seconds = []
    for _ in range(count):
        started = clock()
        trip()
        seconds.append(clock() - started)
    return seconds

"""The two ends of a backend between two workers, by which the driver finds what it adds to a request. The near end
sends a payload and measures; the far end answers with four bytes. Processor seconds are of process and kernel."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from itertools import pairwise
from random import Random

import torch
from torch import Tensor

from pareto.protocol.errors import BackendError
from pareto.protocol.jsonlines import Refused
from pareto.protocol.profile_messages import Expect, GetTaken, Taken, Timed, TimePayloads
from pareto.remote.backends.base import Client, Layout, Server, Tensors, layout
from pareto.remote.worker import host

ANSWER = b"done"
"""The answer to a payload: as large as a small result, the same for every backend."""
_RESULT = (torch.frombuffer(bytearray(ANSWER), dtype=torch.float32),)


def payload(nbytes: int) -> Tensor:
    """The payload of a size, the same on both ends: noise, so that no layer can make it smaller."""
    return torch.frombuffer(bytearray(Random(nbytes).randbytes(nbytes)), dtype=torch.uint8)  # noqa: S311


def answered_s(client: Client, payload: Tensor, count: int, in_flight: int) -> list[float]:
    """When each answer came to a payload that is sent `count` times, at most `in_flight` of them unanswered; on the
    clock of `time.perf_counter`. Raises BackendError."""
    came_s = list[float]()
    for number in range(count + in_flight):
        if number >= in_flight:
            (result,) = client.receive().tensors
            if result.nbytes != len(ANSWER):
                raise BackendError(f"an answer of {result.nbytes} bytes came in place of {len(ANSWER)}")
            came_s.append(time.perf_counter())
        if number < count:
            client.send(number, (payload,))
    return came_s


class Answering:
    """A stage that computes nothing: it takes payloads of a size, the last of which it may keep, and returns four
    bytes. taken: how many came, and the last one if it is kept."""

    def __init__(self, nbytes: int, *, kept: bool = False) -> None:
        self.fingerprint = _fingerprint(nbytes)
        self.takes: Layout = (("uint8", (nbytes,)),)
        self.taken: tuple[int, Tensor | None] = 0, None
        self._kept = kept

    def run(self, tensors: Tensors) -> tuple[Tensors, float]:
        last = tensors[0].clone() if self._kept else None  # its memory is used again
        self.taken = self.taken[0] + 1, last
        return _RESULT, 0.0


class Ends:
    """The ends of a worker's backends, each by its name: near by its client, far by its server."""

    def __init__(self, near: Callable[[str], Client], far: Callable[[str], Server]) -> None:
        self._near, self._far = near, far
        self._expected: tuple[Expect, Answering, float] | None = None

    def expect(self, request: Expect) -> None:
        """Be ready for payloads, while none is under way."""
        gc.collect()
        stage = Answering(request.nbytes, kept=request.kept)
        self._far(request.backend).serve(stage)
        self._expected = request, stage, time.process_time()

    def taken(self, _: GetTaken) -> Taken:
        now = time.process_time()
        if self._expected is None:
            raise Refused("nothing was expected")
        order, stage, since = self._expected
        count, last = stage.taken
        return Taken(now - since, count, None if last is None else torch.equal(last, payload(order.nbytes)))

    def time(self, request: TimePayloads) -> Timed:
        near, sent = self._near(request.backend), payload(request.nbytes)
        near.open(_fingerprint(request.nbytes), layout(_RESULT))
        gc.collect()
        sent_before = host.interface_bytes(request.interface)[1]
        cpu, started = time.process_time(), time.perf_counter()
        came_s = answered_s(near, sent, request.count, request.in_flight or 1)
        cpu_s = time.process_time() - cpu
        ends_s = (started, *came_s) if request.in_flight is None else (started, came_s[-1])
        seconds = [after - before for before, after in pairwise(ends_s)]
        return Timed(seconds, cpu_s, host.interface_bytes(request.interface)[1] - sent_before)


def _fingerprint(nbytes: int) -> bytes:
    return nbytes.to_bytes(8, "big")

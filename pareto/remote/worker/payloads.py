"""The two ends of a backend between two workers, by which the driver finds what it adds to a request. The near end
sends a payload and measures; the far end answers with four bytes. Processor seconds are of process and kernel."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
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


class Near:
    """The end that sends, by a backend as a sweep uses it."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def begin(self, payload: Tensor) -> None:
        self._tensors = (payload,)
        self._number = 0
        self._client.open(_fingerprint(payload.nbytes), layout(_RESULT))

    def send(self) -> None:
        self._client.send(self._number, self._tensors)
        self._number += 1

    def receive(self) -> None:
        """Wait for the next answer. Raises BackendError."""
        (result,) = self._client.receive().tensors
        if result.nbytes != len(ANSWER):
            raise BackendError(f"an answer of {result.nbytes} bytes came in place of {len(ANSWER)}")

    def trips(self, count: int) -> list[float]:
        """Send the payload and wait for its answer `count` times; the seconds that each round trip takes."""
        clock, seconds = time.perf_counter, []
        for _ in range(count):
            started = clock()
            self.send()
            self.receive()
            seconds.append(clock() - started)
        return seconds

    def stream(self, count: int, in_flight: int) -> None:
        """Send the payload `count` times, at most `in_flight` of them unanswered; returns after the last answer."""
        for number in range(count):
            if number >= in_flight:
                self.receive()
            self.send()
        for _ in range(min(count, in_flight)):
            self.receive()


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

    def __init__(self, near: Callable[[str], Near], far: Callable[[str], Server]) -> None:
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
        near = self._near(request.backend)
        near.begin(payload(request.nbytes))
        gc.collect()
        before = host.interface_bytes(request.interface)[1]
        cpu, started = time.process_time(), time.perf_counter()
        if request.in_flight is None:
            seconds = near.trips(request.count)
        else:
            near.stream(request.count, request.in_flight)
            seconds = [time.perf_counter() - started]
        cpu_s = time.process_time() - cpu
        return Timed(seconds, cpu_s, host.interface_bytes(request.interface)[1] - before)


def _fingerprint(nbytes: int) -> bytes:
    return nbytes.to_bytes(8, "big")

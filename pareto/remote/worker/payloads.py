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
        """Send this payload from now on."""
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
    """A stage that computes nothing: it takes a payload and returns four bytes."""

    def __init__(self, nbytes: int) -> None:
        self.fingerprint = _fingerprint(nbytes)
        self.takes: Layout = (("uint8", (nbytes,)),)
        self.taken: tuple[int, Tensor | None] = 0, None
        self.kept = False

    def run(self, tensors: Tensors) -> tuple[Tensors, float]:
        last = tensors[0].clone() if self.kept else None  # its memory is used again
        self.taken = self.taken[0] + 1, last
        return _RESULT, 0.0


class Far:
    """The end that answers, by a backend's server as a sweep uses it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._stage = Answering(0)

    def expect(self, nbytes: int, count: int, *, kept: bool = False) -> None:
        """Be ready for `count` payloads, while none is under way. kept: whether the last one is kept."""
        stage = Answering(nbytes)
        if stage.takes != self._stage.takes:
            self._stage = stage
            self._server.serve(stage)
        self._stage.taken, self._stage.kept = (0, None), kept

    @property
    def taken(self) -> tuple[int, Tensor | None]:
        """How many of the expected payloads have come, and the last one if it is kept."""
        return self._stage.taken


class End:
    """One end of a worker's backends, each by its name: near, by its clients, and far, by its servers."""

    def __init__(self, near: Callable[[str], Near], far: Callable[[str], Far]) -> None:
        self._near, self._far = near, far
        self._expected: tuple[Expect, Far, float] | None = None

    def expect(self, request: Expect) -> None:
        gc.collect()
        far = self._far(request.backend)
        far.expect(request.nbytes, request.count, kept=request.kept)
        self._expected = request, far, time.process_time()

    def taken(self, _: GetTaken) -> Taken:
        now = time.process_time()
        if self._expected is None:
            raise Refused("nothing was expected")
        order, far, since = self._expected
        count, last = far.taken
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

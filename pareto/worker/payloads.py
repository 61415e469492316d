"""`python -m pareto.worker.payloads`: one end of some backends, by which the driver finds what they add to a request.

The near end has the payload, sends it and measures. The far end takes each payload and answers it with four bytes.
Processor time is that of the whole process, the kernel's work for it included, in seconds.
"""

from __future__ import annotations

import gc
import socket
import time
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Annotated

import torch
from torch import Tensor

from pareto.backends import registry
from pareto.backends.base import BackendError, Client, Layout, Server, Tensors, layout
from pareto.jsonlines import Refused, serve
from pareto.messages import (
    MAX_REQUESTS,
    NO_KEYS,
    Answers,
    Connect,
    Count,
    Difference,
    Duration,
    JoinAgents,
    Keys,
    OpenRendezvous,
    Port,
    Positive,
    Request,
    Seconds,
    handlers,
)
from pareto.validation import Bounds
from pareto.worker import host

ANSWER = b"done"
"""The answer to a payload: as large as a small result, the same for every backend."""
_RESULT = (torch.frombuffer(bytearray(ANSWER), dtype=torch.float32),)


@dataclass(frozen=True)
class ListenFor(Request[dict[str, Port]], op="listen"):
    """The far end: make the far ends of `backends`, behind `token`; the port of each that has one."""

    address: str
    token: str
    backends: list[str]
    keys: Keys = NO_KEYS


@dataclass(frozen=True)
class Expect(Request[None], op="expect"):
    """The far end: get ready for `count` payloads of `nbytes`, and count processor time from here.

    kept: whether the last payload is kept for a check.
    """

    backend: str
    nbytes: Positive
    count: Positive
    kept: bool = False


@dataclass(frozen=True)
class Taken:
    """What came since `Expect`. cpu_s: processor time. same: whether the last payload is as sent; None: not kept."""

    cpu_s: Seconds
    count: Count
    same: bool | None


@dataclass(frozen=True)
class GetTaken(Request[Taken], op="taken"):
    """The far end: what came."""


@dataclass(frozen=True)
class Timed:
    """The seconds of each round trip, or of the whole stream; and meanwhile the near end's processor time, and the
    bytes that its interface sent.
    """

    seconds: Annotated[list[Duration], Bounds(1, MAX_REQUESTS)]
    cpu_s: Seconds
    sent_bytes: Difference


@dataclass(frozen=True)
class TimePayloads(Request[Timed], op="time"):
    """The near end: time `count` payloads, at most `in_flight` of them unanswered; None: each round trip by itself."""

    backend: str
    nbytes: Positive
    count: Positive
    interface: str
    in_flight: Positive | None = None


@cache
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
    """One end of every backend."""

    def __init__(self) -> None:
        self._near: dict[str, Near] = {}
        self._far: dict[str, Far] = {}
        self._expected: tuple[Expect, float] | None = None
        self._rendezvous: socket.socket | None = None

    def listen(self, request: ListenFor) -> dict[str, int]:
        seals, ports = registry.seals(request.keys), {}
        for backend in request.backends:
            name = registry.parse(backend)
            seal = filter(None, [seals.get(name.seal)])
            server = registry.backend(name.name).serve(request.address, request.token, *seal)
            self._far[backend] = Far(server)
            if server.port is not None:
                ports[backend] = server.port
        return ports

    def connect(self, request: Connect) -> None:
        seals = registry.seals(request.keys)
        for backend, port in request.ports.items():
            name, to = registry.parse(backend), (request.address, port, request.token)
            client = registry.backend(name.name).connect(*to, name.variant, seals.get(name.seal))
            self._near[backend] = Near(client)

    def rendezvous(self, request: OpenRendezvous) -> int:
        self._rendezvous = socket.create_server((request.address, 0))
        return int(self._rendezvous.getsockname()[1])

    def join(self, request: JoinAgents) -> None:
        client = registry.agents(registry.parse(request.backend).name).join(request, self._rendezvous)
        if client is not None:
            self._near[request.backend] = Near(client)

    def expect(self, request: Expect) -> None:
        gc.collect()
        self._far[request.backend].expect(request.nbytes, request.count, kept=request.kept)
        self._expected = request, time.process_time()

    def taken(self, _: GetTaken) -> Taken:
        now = time.process_time()
        if self._expected is None:
            raise Refused("nothing was expected")
        order, since = self._expected
        count, last = self._far[order.backend].taken
        return Taken(now - since, count, None if last is None else torch.equal(last, payload(order.nbytes)))

    def time(self, request: TimePayloads) -> Timed:
        near = self._near[request.backend]
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


def settle() -> None:
    """Let nothing but the measurement run in this process: one thread computes, and no garbage is looked for."""
    torch.set_num_threads(1)
    # What is there now stays: looking through it each time would take longer than many a sample.
    gc.collect()
    gc.freeze()
    gc.disable()


def main() -> None:
    end = End()
    settle()
    answers: Answers = {
        ListenFor: end.listen,
        Connect: end.connect,
        OpenRendezvous: end.rendezvous,
        JoinAgents: end.join,
        Expect: end.expect,
        GetTaken: end.taken,
        TimePayloads: end.time,
    }
    serve(handlers(answers))


def _fingerprint(nbytes: int) -> bytes:
    return nbytes.to_bytes(8, "big")


if __name__ == "__main__":
    main()

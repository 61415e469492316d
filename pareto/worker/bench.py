"""`python -m pareto.worker.bench`: one end of `bench transport`; what it answers is declared here.

A way is `floor`, `naive`, `asyncio` (`pareto.worker.transports`), or a backend with its variant, such as `tcp:4`.
Processor time is that of the whole process, the kernel's work for it included, in seconds.
"""

from __future__ import annotations

import argparse
import gc
import os
import socket
import sys
import time
from dataclasses import dataclass
from typing import Annotated

import torch

from pareto.backends import registry
from pareto.jsonlines import Refused, serve
from pareto.messages import (
    MAX_REQUESTS,
    NO_KEYS,
    Answers,
    Connect,
    Count,
    Difference,
    Duration,
    Facts,
    GetFacts,
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
from pareto.worker.device import Device
from pareto.worker.transports import SOCKETS, ClientNear, FloorFar, FloorNear, ServerFar, payload


@dataclass(frozen=True)
class ListenFor(Request[dict[str, Port]], op="listen"):
    """The far end: make the far ends of `ways`, behind `token`; the port of each way that has one."""

    address: str
    token: str
    ways: list[str]
    keys: Keys = NO_KEYS


@dataclass(frozen=True)
class Expect(Request[None], op="expect"):
    """The far end: get ready for `count` payloads of `nbytes`, and count processor time from here.

    kept: whether the last payload is kept for a check.
    """

    way: str
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

    way: str
    nbytes: Positive
    count: Positive
    interface: str
    in_flight: Positive | None = None


class End:
    """One end of every way."""

    def __init__(self) -> None:
        self._near: dict[str, FloorNear] = {}
        self._far: dict[str, FloorFar | ServerFar] = {}
        self._expected: tuple[Expect, float] | None = None
        self._rendezvous: socket.socket | None = None

    def facts(self, _: GetFacts) -> Facts:
        return host.facts(Device())

    def listen(self, request: ListenFor) -> dict[str, int]:
        to, ports = (request.address, request.token), {}
        seals = registry.seals(request.keys)
        for way in request.ways:
            if way in SOCKETS:
                listener = SOCKETS[way][1](*to)
                self._far[way], ports[way] = listener, listener.port
            else:
                name = registry.parse(way)
                server = registry.backend(name.name).serve(*to, *filter(None, [seals.get(name.seal)]))
                self._far[way] = ServerFar(server)
                if server.port is not None:
                    ports[way] = server.port
        return ports

    def connect(self, request: Connect) -> None:
        seals = registry.seals(request.keys)
        for way, port in request.ports.items():
            to = request.address, port, request.token
            if way in SOCKETS:
                self._near[way] = SOCKETS[way][0](*to)
            else:
                name = registry.parse(way)
                client = registry.backend(name.name).connect(*to, name.variant, seals.get(name.seal))
                self._near[way] = ClientNear(client)

    def rendezvous(self, request: OpenRendezvous) -> int:
        self._rendezvous = socket.create_server((request.address, 0))
        return int(self._rendezvous.getsockname()[1])

    def join(self, request: JoinAgents) -> None:
        client = registry.agents(registry.parse(request.backend).name).join(request, self._rendezvous)
        if client is not None:
            self._near[request.backend] = ClientNear(client)

    def expect(self, request: Expect) -> None:
        gc.collect()
        self._far[request.way].expect(request.nbytes, request.count, kept=request.kept)
        self._expected = request, time.process_time()

    def taken(self, _: GetTaken) -> Taken:
        now = time.process_time()
        if self._expected is None:
            raise Refused("nothing was expected")
        order, since = self._expected
        count, last = self._far[order.way].taken
        return Taken(now - since, count, None if last is None else torch.equal(last, payload(order.nbytes)))

    def time(self, request: TimePayloads) -> Timed:
        near = self._near[request.way]
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


def main() -> None:
    parser = argparse.ArgumentParser(prog="pareto.worker.bench")
    parser.add_argument("--core", type=int, help="run on this core, if that is allowed")
    core = parser.parse_args().core
    if core is not None:
        try:
            os.sched_setaffinity(0, {core})
        except OSError as error:
            print(f"core {core}: {error}", file=sys.stderr)  # `facts` tells where it runs instead
    torch.set_num_threads(1)
    end = End()
    # What is there now stays: looking through it each time would take longer than many a sample.
    gc.collect()
    gc.freeze()
    gc.disable()
    answers: Answers = {
        GetFacts: end.facts,
        ListenFor: end.listen,
        Connect: end.connect,
        OpenRendezvous: end.rendezvous,
        JoinAgents: end.join,
        Expect: end.expect,
        GetTaken: end.taken,
        TimePayloads: end.time,
    }
    serve(handlers(answers))


if __name__ == "__main__":
    main()

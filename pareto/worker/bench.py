"""`python -m pareto.worker.bench`: one end of `bench transport`; what it answers is declared here.

The near end sends payloads and measures; the far end takes each payload and answers it with four bytes. A way to move
a payload is `floor`, `naive`, `asyncio`, or a backend with its variant, such as `tcp:4`.

Processor time is that of the whole process, the kernel's work for it included, in seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import pickle
import queue
import socket
import statistics
import struct
import sys
import threading
import time
from dataclasses import dataclass
from functools import cache
from random import Random

import torch
from torch import Tensor

from pareto.backends import handshake, names, rpc
from pareto.backends.base import BackendError, Client, Layout, Server, Tensors, layout
from pareto.backends.door import Door
from pareto.backends.tcp import TcpClient, TcpServer
from pareto.jsonlines import Refused, serve
from pareto.messages import (
    Answers,
    Connect,
    Count,
    Difference,
    Duration,
    Facts,
    GetFacts,
    JoinAgents,
    OpenRendezvous,
    Port,
    Positive,
    Request,
    Seconds,
    handlers,
)
from pareto.worker import host
from pareto.worker.device import Cpu

ANSWER = b"done"
"""The answer to a payload: as large as a small result, the same for every way."""
CHUNK = 1 << 16
_LENGTH = struct.Struct("!Q")
_RESULT = (torch.frombuffer(bytearray(ANSWER), dtype=torch.float32),)
_CLOSED = "the other end closed the connection"


@dataclass(frozen=True)
class ListenFor(Request[dict[str, Port]], op="listen"):
    """The far end: make the far ends of `ways`, behind `token`; the port of each way that has one."""

    address: str
    token: str
    ways: list[str]


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
class Trips:
    """The median and mean round trip, and the bytes that the near end's interface sent."""

    median_s: Duration
    mean_s: Duration
    sent_bytes: Difference


@dataclass(frozen=True)
class TimeTrips(Request[Trips], op="trips"):
    """The near end: time `count` round trips."""

    way: str
    nbytes: Positive
    count: Positive
    interface: str


@dataclass(frozen=True)
class Stream:
    """The time of a stream, the near end's processor time for it, and the bytes that its interface sent."""

    seconds: Duration
    cpu_s: Seconds
    sent_bytes: Difference


@dataclass(frozen=True)
class TimeStream(Request[Stream], op="stream"):
    """The near end: time `count` payloads in a row, at most `in_flight` of them unanswered."""

    way: str
    nbytes: Positive
    count: Positive
    interface: str
    in_flight: Positive


class FloorNear:
    """The least that can be done: the tensor's memory goes into a connected socket, without frames."""

    def __init__(self, address: str, port: int, token: str) -> None:
        self._sock = handshake.connected(address, port, token)
        self._answer = memoryview(bytearray(len(ANSWER)))

    def begin(self, payload: Tensor) -> None:
        """Send this payload from now on."""
        self._view = payload.numpy().data

    def send(self) -> None:
        self._sock.sendall(self._view)

    def receive(self) -> None:
        """Wait for the next answer. Raises OSError, EOFError, BackendError."""
        _fill(self._sock, self._answer)

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

    def close(self) -> None:
        self._sock.close()


class NaiveNear(FloorNear):
    """What a first version does: a pickle of the tensor behind its length."""

    def begin(self, payload: Tensor) -> None:
        self._payload = payload

    def send(self) -> None:
        data = pickle.dumps(self._payload)
        self._sock.sendall(_LENGTH.pack(len(data)) + data)


class LoopNear(FloorNear):
    """What the floor does, by an event loop."""

    def __init__(self, address: str, port: int, token: str) -> None:
        super().__init__(address, port, token)
        self._sock.setblocking(False)
        self._loop = asyncio.new_event_loop()

    def trips(self, count: int) -> list[float]:
        return self._loop.run_until_complete(self._trips(count))

    def stream(self, count: int, in_flight: int) -> None:
        self._loop.run_until_complete(self._stream(count, in_flight))

    def close(self) -> None:
        super().close()
        self._loop.close()

    async def _trips(self, count: int) -> list[float]:
        loop, sock, clock, seconds = self._loop, self._sock, time.perf_counter, []
        for _ in range(count):
            started = clock()
            await loop.sock_sendall(sock, self._view)
            await _fill_async(loop, sock, self._answer)
            seconds.append(clock() - started)
        return seconds

    async def _stream(self, count: int, in_flight: int) -> None:
        for number in range(count):
            if number >= in_flight:
                await _fill_async(self._loop, self._sock, self._answer)
            await self._loop.sock_sendall(self._sock, self._view)
        for _ in range(min(count, in_flight)):
            await _fill_async(self._loop, self._sock, self._answer)


class ClientNear(FloorNear):
    """A backend as a sweep uses it."""

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
        (result,) = self._client.receive().tensors
        if result.nbytes != len(ANSWER):
            raise BackendError(f"an answer of {result.nbytes} bytes came in place of {len(ANSWER)}")

    def close(self) -> None:
        self._client.close()


class FloorFar:
    """One connection and one thread, which receives each payload of a size into the same buffer and answers it."""

    def __init__(self, address: str, token: str) -> None:
        self._orders: queue.SimpleQueue[Expect] = queue.SimpleQueue()
        self._taken: tuple[int, Tensor | None] = 0, None
        self._buffer = bytearray(1)
        self._door = Door(address, token, self._run, type(self).__name__)
        self.port = self._door.port

    def expect(self, order: Expect) -> None:
        """Get ready for `count` payloads of `nbytes` by `way`, and count processor time from here (far end)."""
        """Be ready for these payloads. No other payload may be under way."""
        self._taken = 0, None
        self._orders.put(order)

    def taken(self) -> tuple[int, Tensor | None]:
        """Processor time since `expect`, payloads that came, and whether the last, if it was `kept`, is right."""
        """How many payloads of the order have come, and the last of them if it was to be kept."""
        return self._taken

    def close(self) -> None:
        self._door.close()

    def _run(self, sock: socket.socket, _: handshake.Place) -> None:
        try:
            with sock:
                while True:
                    self._follow(sock, self._orders.get())
        except (OSError, EOFError) as error:
            print(f"{threading.current_thread().name}: {error}", file=sys.stderr)

    def _follow(self, sock: socket.socket, order: Expect) -> None:
        view, last = self._room(order.nbytes)
        for number in range(order.count):
            _fill(sock, view)
            self._taken = number + 1, last if order.kept else None
            sock.sendall(ANSWER)

    def _room(self, nbytes: int) -> tuple[memoryview, Tensor]:
        """Memory for a payload, the same as long as the size is, and the tensor in it."""
        if len(self._buffer) != nbytes:
            self._buffer = bytearray(nbytes)
        return memoryview(self._buffer), torch.frombuffer(self._buffer, dtype=torch.uint8)


class NaiveFar(FloorFar):
    """Puts the parts of a pickle together as they come, and makes a tensor of it."""

    def _follow(self, sock: socket.socket, order: Expect) -> None:
        for number in range(order.count):
            (length,) = _LENGTH.unpack(_gathered(sock, _LENGTH.size))
            # The other end is a process that this run started, and has proven that it knows the run's token.
            tensor = pickle.loads(_gathered(sock, length))  # noqa: S301
            self._taken = number + 1, tensor if order.kept else None
            sock.sendall(ANSWER)


class LoopFar(FloorFar):
    """What the floor does, by an event loop that runs as long as an order lasts."""

    def __init__(self, address: str, token: str) -> None:
        self._loop = asyncio.new_event_loop()
        super().__init__(address, token)

    def _follow(self, sock: socket.socket, order: Expect) -> None:
        sock.setblocking(False)
        self._loop.run_until_complete(self._take(sock, order))

    async def _take(self, sock: socket.socket, order: Expect) -> None:
        view, last = self._room(order.nbytes)
        for number in range(order.count):
            await _fill_async(self._loop, sock, view)
            self._taken = number + 1, last if order.kept else None
            await self._loop.sock_sendall(sock, ANSWER)


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


class ServerFar:
    """A backend's server as a sweep uses it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._stage = Answering(0)

    def expect(self, order: Expect) -> None:
        stage = Answering(order.nbytes)
        if stage.takes != self._stage.takes:
            self._stage = stage
            self._server.serve(stage)
        self._stage.taken, self._stage.kept = (0, None), order.kept

    def taken(self) -> tuple[int, Tensor | None]:
        return self._stage.taken

    def close(self) -> None:
        self._server.close()


_SOCKETS: dict[str, tuple[type[FloorNear], type[FloorFar]]] = {
    "floor": (FloorNear, FloorFar),
    "naive": (NaiveNear, NaiveFar),
    "asyncio": (LoopNear, LoopFar),
}


class End:
    """One end of every way."""

    def __init__(self) -> None:
        self._near: dict[str, FloorNear] = {}
        self._far: dict[str, FloorFar | ServerFar] = {}
        self._expected: tuple[Expect, float] | None = None
        self._rpc_store: socket.socket | None = None

    def facts(self, _: GetFacts) -> Facts:
        return host.facts(Cpu())

    def listen(self, request: ListenFor) -> dict[str, int]:
        to, ports = (request.address, request.token), {}
        for way in request.ways:
            if way in _SOCKETS:
                listener = _SOCKETS[way][1](*to)
                self._far[way], ports[way] = listener, listener.port
            elif names.parse(way).agent:
                self._far[way] = ServerFar(rpc.RpcServer())
            else:
                server = TcpServer(*to)
                self._far[way], ports[way] = ServerFar(server), server.port
        return ports

    def connect(self, request: Connect) -> None:
        for way, port in request.ports.items():
            to = request.address, port, request.token
            if way in _SOCKETS:
                self._near[way] = _SOCKETS[way][0](*to)
            else:
                self._near[way] = ClientNear(TcpClient(*to, names.parse(way).connections))

    def rendezvous(self, request: OpenRendezvous) -> int:
        self._rpc_store = rpc.listen(request.address)
        return int(self._rpc_store.getsockname()[1])

    def join(self, request: JoinAgents) -> None:
        to = request.address, request.port, request.interface
        variant = names.parse(request.backend).variant
        rpc.join(request.role, request.hosts, *to, self._rpc_store, variant=variant)
        if request.role != request.hosts[-1]:
            self._near[request.backend] = ClientNear(rpc.RpcClient(request.hosts[-1]))

    def expect(self, request: Expect) -> None:
        gc.collect()
        self._far[request.way].expect(request)
        self._expected = request, time.process_time()

    def taken(self, _: GetTaken) -> Taken:
        now = time.process_time()
        if self._expected is None:
            raise Refused("nothing was expected")
        order, since = self._expected
        count, last = self._far[order.way].taken()
        return Taken(now - since, count, None if last is None else torch.equal(last, payload(order.nbytes)))

    def trips(self, request: TimeTrips) -> Trips:
        near, before = self._begun(request)
        seconds = near.trips(request.count)
        return Trips(statistics.median(seconds), statistics.fmean(seconds), _sent(request) - before)

    def stream(self, request: TimeStream) -> Stream:
        near, before = self._begun(request)
        cpu, started = time.process_time(), time.perf_counter()
        near.stream(request.count, request.in_flight)
        seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu
        return Stream(seconds, cpu_s, _sent(request) - before)

    def _begun(self, request: TimeTrips | TimeStream) -> tuple[FloorNear, int]:
        near = self._near[request.way]
        near.begin(payload(request.nbytes))
        gc.collect()
        return near, _sent(request)


@cache
def payload(nbytes: int) -> Tensor:
    """The payload of a size, the same on both ends: noise, so that no layer can make it smaller."""
    return torch.frombuffer(bytearray(Random(nbytes).randbytes(nbytes)), dtype=torch.uint8)  # noqa: S311


def _sent(request: TimeTrips | TimeStream) -> int:
    return host.interface_bytes(request.interface)[1]


def _fingerprint(nbytes: int) -> bytes:
    return nbytes.to_bytes(8, "big")


def _fill(sock: socket.socket, view: memoryview) -> None:
    """Receive as many bytes as `view` has. Raises EOFError, OSError."""
    received = sock.recv_into(view, len(view), socket.MSG_WAITALL)
    while received < len(view):  # a signal or the end of the connection came first
        more = sock.recv_into(view[received:], 0, socket.MSG_WAITALL)
        if not more:
            raise EOFError(_CLOSED)
        received += more


async def _fill_async(loop: asyncio.AbstractEventLoop, sock: socket.socket, view: memoryview) -> None:
    received = 0
    while received < len(view):
        more = await loop.sock_recv_into(sock, view[received:])
        if not more:
            raise EOFError(_CLOSED)
        received += more


def _gathered(sock: socket.socket, nbytes: int) -> bytearray:
    buffer = bytearray()
    while len(buffer) < nbytes:
        part = sock.recv(min(CHUNK, nbytes - len(buffer)))
        if not part:
            raise EOFError(_CLOSED)
        buffer += part
    return buffer


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
        TimeTrips: end.trips,
        TimeStream: end.stream,
    }
    serve(handlers(answers))


if __name__ == "__main__":
    main()

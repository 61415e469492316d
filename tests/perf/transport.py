"""Ways to move tensors beside the least that Python can do: `.venv/bin/python tests/perf/transport.py`, by hand.

Two processes, each on a core of its own if there are two, talk over loopback. `floor`: the payload's memory over a
plain connected socket into a buffer that is there, one thread an end, no frames. `naive`: pickle behind a length,
received by `buf += part`. `asyncio`: what floor does, by an event loop at both ends. All others are backends with their
variants, as a sweep uses them, with a stage that computes nothing. Every payload is answered by four bytes.

A round has every size and way once, in an order drawn anew. `x floor` and `of floor` are medians over the rounds of the
ratio to the floor in the same round: what shifts a whole round cancels. `from`, `to`: the 95 % interval of the median
before them. MB/s: 10^6 bytes a second of a stream with four payloads under way. CPU: of both ends over that stream.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import gc
import math
import multiprocessing
import os
import pickle
import queue
import secrets
import socket
import struct
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import product
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pareto.analysis.statistics.samples import interval
from pareto.protocol.errors import UserError
from pareto.protocol.messages import Connect, JoinAgents, Keys, OpenRendezvous
from pareto.protocol.profile_messages import Expect, GetTaken, Timed, TimePayloads
from pareto.remote.backends import base, handshake, registry, tls
from pareto.remote.link import units
from pareto.remote.worker import payloads
from pareto.remote.worker.payloads import ANSWER, Ends, answered_s
from pareto.trial.run_keys import run_keys

HERE, INTERFACE, FLOOR, IN_FLIGHT = "127.0.0.1", "lo", "floor", 4
SAMPLE_S, QUICK_SAMPLE_S = 0.05, 0.01
"""The least that a sample lasts: many times what a scheduler's turn takes."""
MOST_TRIPS, LEAST_PAYLOADS, MOST_PAYLOADS, CHUNK = 2000, 8, 20_000, 1 << 16
HEADS = ("size", "way", "trip\nµs", "from", "to", "x\nfloor", "from", "to", "MB/s", "of\nfloor", "CPU\ns/GB")
Samples = dict[tuple[int, str], list[tuple[float, float, float]]]
"""Round by round of each size and way: the round trip, bytes a second of a stream, its processor time a GB."""
_LENGTH = struct.Struct("!Q")
_SPAWN = multiprocessing.get_context("spawn")


class FloorNear:
    """The end that sends, by a socket, as a client of payloads."""

    def __init__(self, *to: Any) -> None:
        self._sock, self._answer = handshake.connected(*to), memoryview(bytearray(len(ANSWER)))
        self._reply = base.Reply(0, (torch.frombuffer(self._answer, dtype=torch.uint8),), (), 0.0)
        self._payload: Tensor | None = None

    def open(self, *_: Any) -> None: ...

    def send(self, _: int, tensors: base.Tensors) -> None:
        if tensors[0] is not self._payload:
            self._payload = tensors[0]
            self._view = self._payload.numpy().data
        self._sock.sendall(self._view)

    def receive(self) -> base.Reply:
        _fill(self._sock, self._answer)
        return self._reply


class NaiveNear(FloorNear):
    def send(self, _: int, tensors: base.Tensors) -> None:
        data = pickle.dumps(tensors[0])
        self._sock.sendall(_LENGTH.pack(len(data)) + data)


class LoopNear(FloorNear):
    def __init__(self, *to: Any) -> None:
        super().__init__(*to)
        self._sock.setblocking(False)
        self._loop = asyncio.new_event_loop()

    def answered_s(self, payload: Tensor, count: int, in_flight: int) -> list[float]:
        return self._loop.run_until_complete(self._answered_s(payload.numpy().data, count, in_flight))

    async def _answered_s(self, view: memoryview, count: int, in_flight: int) -> list[float]:
        """The times of each answer."""
        times = list[float]()
        for number in range(count + in_flight):
            if number >= in_flight:
                await _fill_async(self._loop, self._sock, self._answer)
                times.append(time.perf_counter())
            if number < count:
                await self._loop.sock_sendall(self._sock, view)
        return times


def _answered_s(client: Any, *asked: Any) -> list[float]:
    return client.answered_s(*asked) if isinstance(client, LoopNear) else answered_s(client, *asked)


class FloorFar:
    """The end that answers, by a socket and a thread, which receives payloads of a size into the same buffer."""

    def __init__(self, address: str, token: str) -> None:
        self._orders: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
        self.taken: tuple[int, Tensor | None] = 0, None
        self._buffer = bytearray(1)
        self._door = handshake.Door(address, token, self._run, type(self).__name__)
        self.port = self._door.port

    def expect(self, nbytes: int, count: int) -> None:
        self.taken = 0, None
        self._orders.put((nbytes, count))

    def _run(self, sock: socket.socket, _: handshake.Place) -> None:
        with sock:
            while True:
                nbytes, count = self._orders.get()
                if len(self._buffer) != nbytes:
                    self._buffer = bytearray(nbytes)
                self._follow(sock, memoryview(self._buffer), count)

    def _follow(self, sock: socket.socket, view: memoryview, count: int) -> None:
        last = torch.frombuffer(self._buffer, dtype=torch.uint8)
        for number in range(count):
            _fill(sock, view)
            self.taken = number + 1, last
            sock.sendall(ANSWER)


class NaiveFar(FloorFar):
    def _follow(self, sock: socket.socket, view: memoryview, count: int) -> None:
        for number in range(count):
            (length,) = _LENGTH.unpack(handshake.exactly(sock, _LENGTH.size))
            buffer = bytearray()
            while len(buffer) < length:
                part = sock.recv(min(CHUNK, length - len(buffer)))
                buffer += part[: _some(len(part))]
            # The other end is a process of this script, and has proven that it knows the token.
            self.taken = number + 1, pickle.loads(buffer)  # noqa: S301
            sock.sendall(ANSWER)


class LoopFar(FloorFar):
    def __init__(self, *to: Any) -> None:
        self._loop = asyncio.new_event_loop()
        super().__init__(*to)

    def _follow(self, sock: socket.socket, view: memoryview, count: int) -> None:
        sock.setblocking(False)
        self._loop.run_until_complete(self._take(sock, view, count))

    async def _take(self, sock: socket.socket, view: memoryview, count: int) -> None:
        last = torch.frombuffer(self._buffer, dtype=torch.uint8)
        for number in range(count):
            await _fill_async(self._loop, sock, view)
            self.taken = number + 1, last
            await self._loop.sock_sendall(sock, ANSWER)


SOCKETS: dict[str, tuple[type[FloorNear], type[FloorFar]]] = {
    FLOOR: (FloorNear, FloorFar),
    "naive": (NaiveNear, NaiveFar),
    "asyncio": (LoopNear, LoopFar),
}


def _fill(sock: socket.socket, view: memoryview) -> None:
    received = 0
    while received < len(view):
        received += _some(sock.recv_into(view[received:], 0, socket.MSG_WAITALL))


async def _fill_async(loop: asyncio.AbstractEventLoop, sock: socket.socket, view: memoryview) -> None:
    received = 0
    while received < len(view):
        received += _some(await loop.sock_recv_into(sock, view[received:]))


def _some(received: int) -> int:
    if not received:
        raise EOFError("the other end closed the connection")
    return received


class AnyEnd(Ends):
    """One end of every way."""

    def __init__(self) -> None:
        self._nears: dict[str, Any] = {}
        self._fars: dict[str, Any] = {}
        self._rendezvous: socket.socket | None = None
        super().__init__(self._nears.__getitem__, self._fars.__getitem__)

    def listen(self, request: tuple[str, str, Sequence[str], Keys]) -> dict[str, int]:
        address, token, ways, keys = request
        ports, servers = {}, base.servers(address, token, keys, [way for way in ways if way not in SOCKETS])
        for way in ways:
            if way in SOCKETS:
                self._fars[way] = far = SOCKETS[way][1](address, token)
                ports[way] = far.port
            else:
                self._fars[way] = server = servers[registry.parse(way).server]
                ports |= {} if server.port is None else {way: server.port}
        return ports

    def expect(self, request: Expect) -> None:
        far = self._fars[request.backend]
        if not isinstance(far, FloorFar):
            super().expect(request)
            return
        far.expect(request.nbytes, request.count)
        self._expected = request, far, time.process_time()

    def connect(self, request: Connect) -> None:
        seals = {registry.TLS: tls.Tls.of(request.keys)}
        for way, port in request.ports.items():
            to = request.address, port, request.token
            if way in SOCKETS:
                self._nears[way] = SOCKETS[way][0](*to)
            else:
                name = registry.parse(way)
                client = base.backend(name.name).connect(*to, name.variant, seals.get(name.seal))
                self._nears[way] = client

    def rendezvous(self, request: OpenRendezvous) -> int:
        self._rendezvous = socket.create_server((request.address, 0))
        return int(self._rendezvous.getsockname()[1])

    def join(self, request: JoinAgents) -> None:
        client = base.backend(registry.parse(request.backend).name).join(request, self._rendezvous)
        if client is not None:
            self._nears[request.backend] = client


def serve(pipe: Connection, core: int) -> None:
    """Run an end on this core: answer each request by its method."""
    os.sched_setaffinity(0, {core})
    end = AnyEnd()
    torch.set_num_threads(1)
    payloads.payload = functools.cache(payloads.payload)
    payloads.answered_s = _answered_s
    # What is there now stays: looking through it each time would take longer than many a sample.
    gc.collect()
    gc.freeze()
    gc.disable()
    warnings.filterwarnings("ignore", "You are using a Backend")  # torch's, of its own rendezvous
    while True:
        try:
            name, request = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        pipe.send(getattr(end, name)(request))


def started(core: int) -> Connection:
    """The pipe to a new process with one end."""
    pipe, theirs = _SPAWN.Pipe()
    _SPAWN.Process(target=serve, args=(theirs, core), daemon=True).start()
    theirs.close()
    return pipe


def ask(end: Connection, name: str, request: Any) -> Any:
    end.send((name, request))
    return end.recv()


class Pair:
    """Both ends of some ways, connected."""

    def __init__(self, ways: Sequence[str]) -> None:
        cores = sorted(os.sched_getaffinity(0))
        self._near, self._far = started(cores[0]), started(cores[-1])
        to, keys = (HERE, secrets.token_hex(16)), run_keys(way for way in ways if way not in SOCKETS)
        ports = ask(self._far, "listen", (*to, list(ways), keys))
        ask(self._near, "connect", Connect(*to, ports, list(ways), keys))
        for way in filter(needs_agent, ways):
            port = ask(self._far, "rendezvous", OpenRendezvous(HERE))
            for role, end in (("near", self._near), ("far", self._far)):
                end.send(("join", JoinAgents(way, role, ["near", "far"], HERE, port, INTERFACE)))
            self._near.recv(), self._far.recv()

    def timed(self, way: str, nbytes: int, count: int, in_flight: int | None = None) -> tuple[Timed, float]:
        """What the near end reports, and the processor time of both. Raises ValueError where not all of it arrives."""
        ask(self._far, "expect", Expect(way, nbytes, count, kept=count == 1))
        near = ask(self._near, "time", TimePayloads(way, nbytes, count, INTERFACE, in_flight))
        far = ask(self._far, "taken", GetTaken())
        if far.count != count or far.same is False or near.sent_bytes < nbytes * count:
            raise ValueError(f"{way}: not every payload of {nbytes} bytes came as it was sent")
        return near, near.cpu_s + far.cpu_s


def needs_agent(way: str) -> bool:
    return way not in SOCKETS and bool(registry.parse(way).agent)


def measured(ways: Sequence[str], sizes: Sequence[int], rounds: int, seed: int, sample_s: float) -> Samples:
    alone = list(filter(needs_agent, ways))[1:]  # a process has one agent
    together = [way for way in ways if way not in alone]
    pairs = {way: Pair([way]) for way in alone} | dict.fromkeys(together, Pair(together))
    counts, samples, order = {}, defaultdict(list), Random(seed)  # noqa: S311
    # Large first: what they do to a connection, its window above all, is done before anything is timed.
    for nbytes, way in product(sorted(sizes, reverse=True), ways):
        pairs[way].timed(way, nbytes, 1)
        few = math.ceil(sample_s / median(pairs[way].timed(way, nbytes, 5)[0].seconds))
        counts[nbytes, way] = min(few, MOST_TRIPS), min(max(few, LEAST_PAYLOADS), MOST_PAYLOADS)
    for _ in range(rounds):
        for nbytes in order.sample(sizes, len(sizes)):
            for way in order.sample(ways, len(ways)):
                trips, payloads = counts[nbytes, way]
                trip_s = median(pairs[way].timed(way, nbytes, trips)[0].seconds)
                stream, cpu_s = pairs[way].timed(way, nbytes, payloads, IN_FLIGHT)
                streamed = payloads * nbytes
                samples[nbytes, way].append((trip_s, streamed / stream.seconds[0], cpu_s / streamed * 1e9))
    return samples


def table(samples: Samples, ways: Sequence[str], sizes: Mapping[str, int]) -> Table:
    made = Table(*HEADS, box=None, padding=(0, 1, 0, 0))
    for column in made.columns[2:]:
        column.justify = "right"
    for (name, nbytes), way in product(sizes.items(), ways):
        rows = np.array(samples[nbytes, way])
        is_against = FLOOR in ways and way != FLOOR
        ratios = rows / samples[nbytes, FLOOR] if is_against else np.full_like(rows, np.nan)
        figures = [*spread(1e6 * rows[:, 0]), *spread(ratios[:, 0]), np.median(rows[:, 1]) / 1e6]
        figures += [np.median(ratios[:, 1]), np.median(rows[:, 2])]
        texts = (f"{each:.0f}" if each >= 100 else f"{each:.3g}" for each in figures)
        made.add_row(name, way, *(text.replace("nan", "") for text in texts))
    return made


def spread(values: np.ndarray) -> tuple[float, float, float]:
    """The median and the ends of its 95 % interval, which takes six values."""
    return (float(np.median(values)), *(interval(values) or (math.nan, math.nan)))


def main() -> None:
    parser = argparse.ArgumentParser(description="Ways to move tensors over loopback, beside a plain socket.")
    parser.add_argument(
        "--ways", default="floor,tcp,rpc,naive", help="also asyncio, tcp:4, tcp:tls, rpc:basic"
    )
    parser.add_argument("--sizes", default="4kB,64kB,200kB,3MB,32MB")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="short samples, for a first look")
    given = parser.parse_args()
    try:
        ways = [way if way in SOCKETS else registry.parse(way).transport for way in given.ways.split(",")]
        sizes = {text: units.size_bytes(text, "size") for text in given.sizes.split(",")}
    except (UserError, ValueError) as error:
        parser.error(str(error))
    sample_s = QUICK_SAMPLE_S if given.quick else SAMPLE_S
    samples = measured(ways, list(sizes.values()), given.rounds, given.seed, sample_s)
    Console().print(table(samples, ways, sizes))


if __name__ == "__main__":
    main()

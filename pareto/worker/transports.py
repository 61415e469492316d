"""The two ends of each way that `bench transport` compares: `floor`, `naive`, `asyncio`, and the project's backends.

The near end has the payload, sends it and measures. The far end takes each payload and answers it with four bytes.
"""

from __future__ import annotations

import asyncio
import pickle
import queue
import socket
import struct
import sys
import threading
import time
from functools import cache
from random import Random

import torch
from torch import Tensor

from pareto.backends import handshake
from pareto.backends.base import BackendError, Client, Layout, Server, Tensors, layout

ANSWER = b"done"
"""The answer to a payload: as large as a small result, the same for every way."""
CHUNK = 1 << 16
_LENGTH = struct.Struct("!Q")
_RESULT = (torch.frombuffer(bytearray(ANSWER), dtype=torch.float32),)
_CLOSED = "the other end closed the connection"


@cache
def payload(nbytes: int) -> Tensor:
    """The payload of a size, the same on both ends: noise, so that no layer can make it smaller."""
    return torch.frombuffer(bytearray(Random(nbytes).randbytes(nbytes)), dtype=torch.uint8)  # noqa: S311


class FloorNear:
    """The least that can be done: the tensor's memory goes into a connected socket, without frames.

    The other near ends are made of it: they measure alike, and differ in how they send and receive.
    """

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
        self._orders: queue.SimpleQueue[tuple[int, int, bool]] = queue.SimpleQueue()
        self.taken: tuple[int, Tensor | None] = 0, None
        """How many of the expected payloads have come, and the last one if it is kept."""
        self._buffer = bytearray(1)
        self._door = handshake.Door(address, token, self._run, type(self).__name__)
        self.port = self._door.port

    def expect(self, nbytes: int, count: int, *, kept: bool = False) -> None:
        """Be ready for `count` payloads, while none is under way. kept: whether the last one is kept."""
        self.taken = 0, None
        self._orders.put((nbytes, count, kept))

    def close(self) -> None:
        self._door.close()

    def _run(self, sock: socket.socket, _: handshake.Place) -> None:
        try:
            with sock:
                while True:
                    self._follow(sock, *self._orders.get())
        except (OSError, EOFError) as error:
            print(f"{threading.current_thread().name}: {error}", file=sys.stderr)

    def _follow(self, sock: socket.socket, nbytes: int, count: int, kept: bool) -> None:
        view, last = self._room(nbytes)
        for number in range(count):
            _fill(sock, view)
            self.taken = number + 1, last if kept else None
            sock.sendall(ANSWER)

    def _room(self, nbytes: int) -> tuple[memoryview, Tensor]:
        """Memory for a payload, the same as long as the size is, and the tensor in it."""
        if len(self._buffer) != nbytes:
            self._buffer = bytearray(nbytes)
        return memoryview(self._buffer), torch.frombuffer(self._buffer, dtype=torch.uint8)


class NaiveFar(FloorFar):
    """Puts the parts of a pickle together as they come, and makes a tensor of it."""

    def _follow(self, sock: socket.socket, nbytes: int, count: int, kept: bool) -> None:
        for number in range(count):
            (length,) = _LENGTH.unpack(_gathered(sock, _LENGTH.size))
            # The other end is a process that this run started, and has proven that it knows the run's token.
            tensor = pickle.loads(_gathered(sock, length))  # noqa: S301
            self.taken = number + 1, tensor if kept else None
            sock.sendall(ANSWER)


class LoopFar(FloorFar):
    """What the floor does, by an event loop that runs as long as an order lasts."""

    def __init__(self, address: str, token: str) -> None:
        self._loop = asyncio.new_event_loop()
        super().__init__(address, token)

    def _follow(self, sock: socket.socket, nbytes: int, count: int, kept: bool) -> None:
        sock.setblocking(False)
        self._loop.run_until_complete(self._take(sock, nbytes, count, kept))

    async def _take(self, sock: socket.socket, nbytes: int, count: int, kept: bool) -> None:
        view, last = self._room(nbytes)
        for number in range(count):
            await _fill_async(self._loop, sock, view)
            self.taken = number + 1, last if kept else None
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

    def expect(self, nbytes: int, count: int, *, kept: bool = False) -> None:
        stage = Answering(nbytes)
        if stage.takes != self._stage.takes:
            self._stage = stage
            self._server.serve(stage)
        self._stage.taken, self._stage.kept = (0, None), kept

    @property
    def taken(self) -> tuple[int, Tensor | None]:
        return self._stage.taken

    def close(self) -> None:
        self._server.close()


SOCKETS: dict[str, tuple[type[FloorNear], type[FloorFar]]] = {
    "floor": (FloorNear, FloorFar),
    "naive": (NaiveNear, NaiveFar),
    "asyncio": (LoopNear, LoopFar),
}


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

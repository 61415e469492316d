"""The ways that are a plain socket: `floor`, the least that can be done, and `naive`, what a first version does.

Neither has frames: the far end is told beforehand what comes. Both know the token before anything else is said.
"""

from __future__ import annotations

import pickle
import queue
import socket
import struct
import sys
import threading

import torch
from torch import Tensor

from pareto.backends import handshake
from pareto.backends.door import Door
from pareto.worker.bench.way import ANSWER, Order, timed

CHUNK = 1 << 16
_LENGTH = struct.Struct("!Q")


class SocketNear:
    """One thread that sends and waits; what sending is, is the way's."""

    def __init__(self, address: str, port: int, token: str) -> None:
        self._sock = handshake.connected(address, port, token)
        self._answer = memoryview(bytearray(len(ANSWER)))

    def begin(self, payload: Tensor) -> None:
        raise NotImplementedError

    def trips(self, count: int) -> list[float]:
        return timed(self._trip, count)

    def stream(self, count: int, in_flight: int) -> None:
        for number in range(count):
            if number >= in_flight:
                fill(self._sock, self._answer)
            self._send()
        for _ in range(min(count, in_flight)):
            fill(self._sock, self._answer)

    def close(self) -> None:
        self._sock.close()

    def _trip(self) -> None:
        self._send()
        fill(self._sock, self._answer)

    def _send(self) -> None:
        raise NotImplementedError


class FloorNear(SocketNear):
    """The tensor's memory, into the socket."""

    def begin(self, payload: Tensor) -> None:
        self._view = memory(payload)

    def _send(self) -> None:
        self._sock.sendall(self._view)


class NaiveNear(SocketNear):
    """A pickle of the tensor behind its length."""

    def begin(self, payload: Tensor) -> None:
        self._payload = payload

    def _send(self) -> None:
        data = pickle.dumps(self._payload)
        self._sock.sendall(_LENGTH.pack(len(data)) + data)


class Listener:
    """A far end with one connection and one thread: it takes what is expected, as its way does, and answers."""

    def __init__(self, address: str, token: str) -> None:
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self._count = 0
        self._last: Tensor | None = None
        self._buffer = bytearray(1)
        self._door = Door(address, token, self._run, type(self).__name__)
        self.port = self._door.port

    def expect(self, order: Order) -> None:
        self._count, self._last = 0, None
        self._orders.put(order)

    def taken(self) -> tuple[int, Tensor | None]:
        return self._count, self._last

    def close(self) -> None:
        self._door.close()

    def _run(self, sock: socket.socket, _: handshake.Place) -> None:
        try:
            with sock:
                while True:
                    self._follow(sock, self._orders.get())
        except (OSError, EOFError) as error:
            print(f"{threading.current_thread().name}: {error}", file=sys.stderr)

    def _follow(self, sock: socket.socket, order: Order) -> None:
        raise NotImplementedError

    def _room(self, nbytes: int) -> tuple[memoryview, Tensor]:
        """Memory for a payload, and the tensor that it is: the same as long as the size is."""
        if len(self._buffer) != nbytes:
            self._buffer = bytearray(nbytes)
        return memoryview(self._buffer), torch.frombuffer(self._buffer, dtype=torch.uint8)

    def _took(self, last: Tensor | None) -> None:
        self._count += 1
        self._last = last


class FloorFar(Listener):
    """Into one buffer, the same for every payload of a size."""

    def _follow(self, sock: socket.socket, order: Order) -> None:
        view, last = self._room(order.nbytes)
        for _ in range(order.count):
            fill(sock, view)
            self._took(last if order.kept else None)
            sock.sendall(ANSWER)


class NaiveFar(Listener):
    """Parts put together as they come, and a tensor made of them."""

    def _follow(self, sock: socket.socket, order: Order) -> None:
        for _ in range(order.count):
            (length,) = _LENGTH.unpack(_gathered(sock, _LENGTH.size))
            # The other end is a process that this run started, and has proven that it knows the run's token.
            came = pickle.loads(_gathered(sock, length))  # noqa: S301
            self._took(came if order.kept else None)
            sock.sendall(ANSWER)


def memory(tensor: Tensor) -> memoryview:
    """A tensor of bytes in host memory as what sockets take, without a copy."""
    return tensor.numpy().data


def fill(sock: socket.socket, view: memoryview) -> None:
    """Receive as many bytes as `view` has. Raises EOFError, OSError."""
    got = sock.recv_into(view, len(view), socket.MSG_WAITALL)
    while got < len(view):  # a signal came in between, or the end
        more = sock.recv_into(view[got:], 0, socket.MSG_WAITALL)
        if not more:
            raise EOFError("the other end closed the connection")
        got += more


def _gathered(sock: socket.socket, nbytes: int) -> bytearray:
    buf = bytearray()
    while len(buf) < nbytes:
        part = sock.recv(min(CHUNK, nbytes - len(buf)))
        if not part:
            raise EOFError("the other end closed the connection")
        buf += part
    return buf

"""`asyncio`: what `floor` does, by an event loop at either end, to see what that costs beside a thread."""

from __future__ import annotations

import asyncio
import socket
import time

from torch import Tensor

from pareto.backends import handshake
from pareto.worker.bench.sockets import Listener, memory
from pareto.worker.bench.way import ANSWER, Order


class LoopNear:
    """Sends and waits in coroutines of a loop that is its own; connects as a thread does."""

    def __init__(self, address: str, port: int, token: str) -> None:
        self._sock = handshake.connected(address, port, token)
        self._sock.setblocking(False)
        self._loop = asyncio.new_event_loop()
        self._answer = memoryview(bytearray(len(ANSWER)))

    def begin(self, payload: Tensor) -> None:
        self._view = memory(payload)

    def trips(self, count: int) -> list[float]:
        return self._loop.run_until_complete(self._trips(count))

    def stream(self, count: int, in_flight: int) -> None:
        self._loop.run_until_complete(self._stream(count, in_flight))

    def close(self) -> None:
        self._sock.close()
        self._loop.close()

    async def _trips(self, count: int) -> list[float]:
        loop, sock, clock = self._loop, self._sock, time.perf_counter
        seconds = []
        for _ in range(count):
            started = clock()
            await loop.sock_sendall(sock, self._view)
            await _fill(loop, sock, self._answer)
            seconds.append(clock() - started)
        return seconds

    async def _stream(self, count: int, in_flight: int) -> None:
        for number in range(count):
            if number >= in_flight:
                await _fill(self._loop, self._sock, self._answer)
            await self._loop.sock_sendall(self._sock, self._view)
        for _ in range(min(count, in_flight)):
            await _fill(self._loop, self._sock, self._answer)


class LoopFar(Listener):
    """A loop runs for as long as an order lasts: between orders a thread waits, as in the other ways."""

    def __init__(self, address: str, token: str) -> None:
        self._loop = asyncio.new_event_loop()
        super().__init__(address, token)

    def _follow(self, sock: socket.socket, order: Order) -> None:
        sock.setblocking(False)
        self._loop.run_until_complete(self._take(sock, order))

    async def _take(self, sock: socket.socket, order: Order) -> None:
        view, last = self._room(order.nbytes)
        for _ in range(order.count):
            await _fill(self._loop, sock, view)
            self._took(last if order.kept else None)
            await self._loop.sock_sendall(sock, ANSWER)


async def _fill(loop: asyncio.AbstractEventLoop, sock: socket.socket, view: memoryview) -> None:
    got = 0
    while got < len(view):
        more = await loop.sock_recv_into(sock, view[got:])
        if not more:
            raise EOFError("the other end closed the connection")
        got += more

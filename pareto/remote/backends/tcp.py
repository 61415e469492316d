"""Tensors over raw sockets: persistent connections, length-checked frames, no copies beyond the kernel's.

One connection (`Line`), or a tensor in stripes over several (`Stripes`); each may be encrypted (`tls`).
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

from pareto.protocol.errors import BackendError
from pareto.remote.backends import handshake
from pareto.remote.backends.conversation import Client, Server
from pareto.remote.backends.registry import POLL
from pareto.remote.backends.stripes import Stripes
from pareto.remote.backends.tls import AnySocket, Tls
from pareto.remote.backends.wire import AnyLine, Line


class TcpClient(Client):
    """The end towards the next host. Connects at once; raises BackendError if that turns it away. variant: number of
    connections, or `poll`."""

    def __init__(
        self, address: str, port: int, token: str, variant: str = "", seal: Tls | None = None
    ) -> None:
        try:
            socks = _connected(address, port, token, variant, seal)
        except (OSError, EOFError, handshake.Rejected, BackendError) as error:
            raise BackendError(f"tcp to {address}: {error}") from error
        line = Line(socks[0], polls=variant == POLL) if len(socks) == 1 else Stripes(socks)
        super().__init__(line, address)


def _connected(address: str, port: int, token: str, variant: str, seal: Tls | None) -> list[AnySocket]:
    """The sockets that belong together, as many as the variant says, all let in, and encrypted where there is a seal;
    none is left open after a fault. Raises OSError, EOFError, Rejected, BackendError."""
    group, undo, polls = secrets.token_bytes(8), contextlib.ExitStack(), variant == POLL
    connections = 1 if polls else int(variant or 1)

    def connect(number: int) -> AnySocket:
        sock = handshake.connected(address, port, token, handshake.Place(group, number, connections, polls))
        undo.callback(sock.close)
        return sock if seal is None else seal.sealed(sock, server=False)

    with undo, ThreadPoolExecutor(connections) as pool:  # at once: each takes several round trips
        socks = list(pool.map(connect, range(connections)))
        undo.pop_all()
    return socks


class TcpServer(Server):
    """The end towards the previous host, which may have several connections in one line."""

    def __init__(self, address: str, token: str, seal: Tls | None = None) -> None:
        self._seal = seal
        self._gathering: dict[int, AnySocket] = {}
        self._group = b""
        """Those that have come of the connections that belong together, by number; and whose they are."""
        self._together = threading.Lock()
        super().__init__(address, token, "tcp", self._made)

    def _made(self, sock: socket.socket, place: handshake.Place) -> AnyLine | None:
        connection = sock if self._seal is None else self._seal.sealed(sock, server=True)
        if place.of == 1:
            return Line(connection, polls=place.polls)
        connections = self._gathered(connection, place)
        return Stripes(connections) if connections else None

    def _gathered(self, sock: AnySocket, place: handshake.Place) -> list[AnySocket]:
        """All sockets that belong together, in their order, if this is the last of them; else an empty list."""
        with self._together:
            if place.group != self._group:
                for left_over in self._gathering.values():  # whoever began with them did not get through
                    left_over.close()
                self._group, self._gathering = place.group, {}
            if (given_up := self._gathering.get(place.number)) is not None:  # it was let in too late to know
                given_up.close()
            self._gathering[place.number] = sock
            if len(self._gathering) < place.of:
                return []
            together, self._gathering, self._group = self._gathering, {}, b""
        return [together[number] for number in range(place.of)]


serve, connect = TcpServer, TcpClient

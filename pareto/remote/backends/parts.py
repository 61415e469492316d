"""Anybody's own transport: it makes lines of connections that were let in, and a line carries messages in parts.

A message's parts are its header with room for `DESCRIBED` descriptors, the descriptors that have no room there, and the
bytes of each tensor. Everything else is done here: who is let in, what is checked, how stages overlap.
"""

from __future__ import annotations

import atexit
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import ClassVar

from pareto.protocol.errors import BackendError
from pareto.remote.backends import handshake, wire
from pareto.remote.backends.base import Client as AnyClient
from pareto.remote.backends.base import Server as AnyServer
from pareto.remote.backends.conversation import Client, Server
from pareto.remote.backends.pipeline import fault_text
from pareto.remote.backends.tls import Tls

DESCRIBED = 1
TOP = wire.HEADER.size + DESCRIBED * wire.DESCRIPTOR.size
_END = bytes(TOP)
"""In place of a header: nothing more is sent."""


class PartLine(wire.AnyLine):
    """A line by `give`, `take` and, where there is more to close, `close`. sock: a connection between the two ends,
    blocking, on the data address. It may carry the parts, or tell how the ends meet elsewhere; it stays open meanwhile,
    so that each end hears of it when the other one is gone. near: this is the end that has connected."""

    def __init__(self, sock: socket.socket, *, near: bool) -> None:
        self.sock, self.near = sock, near
        OPEN.add(self)
        self._top = memoryview(bytearray(TOP))
        self._held = False
        """Whether the header in `_top` is still to be taken."""

    def give(self, parts: Sequence[memoryview]) -> None:
        """Send one message, these parts in their order. Their memory may be used again when this returns."""
        raise NotImplementedError

    def take(self, view: memoryview) -> None:
        """Receive the next part into `view`, which is as long as it. EOFError where the other end is gone."""
        raise NotImplementedError

    def close(self) -> None:
        """End the connection; whoever waits in `take` hears of it. Called twice, the second time does nothing."""
        OPEN.discard(self)
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()

    def send(self, head: bytes, body: Sequence[memoryview] = ()) -> None:
        parts = [memoryview(head[:TOP].ljust(TOP, b"\0")), memoryview(head[TOP:]), *body]
        try:
            self.give([part for part in parts if len(part)])
        except (OSError, EOFError, BackendError):
            raise
        except Exception as error:
            raise BackendError(f"{type(self).__name__}.give: {fault_text(error)}") from error

    def head(self) -> memoryview:
        if not self._held:
            self._take(self._top)
            if self._top[:TOP] == _END:
                raise EOFError
        self._held = False
        return self._top[: wire.HEADER.size]

    def put_back(self, head: memoryview) -> None:
        self._held = True

    def body(self, form: wire.Form, views: Sequence[memoryview]) -> None:
        more = undescribed(form)
        self._take(more)
        self.check(form, more)
        for view in views:
            self._take(view)

    def check(self, form: wire.Form, more: memoryview) -> None:
        """Raises BackendError unless the header that came, and the descriptors behind it, are of this form."""
        if b"".join([self._top[wire.HEADER.size : TOP], more])[: len(form.descriptors)] != form.descriptors:
            raise BackendError(wire.OTHER_FORM)

    def drain(self) -> None:
        while self.sock.recv(1 << 16):
            pass

    def end(self) -> None:
        with suppress(OSError, EOFError):
            self.send(_END)

    def _take(self, view: memoryview) -> None:
        try:
            if len(view):
                self.take(view)
        except (OSError, EOFError, BackendError):
            raise
        except Exception as error:
            raise BackendError(f"{type(self).__name__}.take: {fault_text(error)}") from error


def undescribed(form: wire.Form) -> memoryview:
    """Room for the descriptors that have none beside the header."""
    return memoryview(bytearray(max(0, len(form.descriptors) - DESCRIBED * wire.DESCRIPTOR.size)))


OPEN: set[PartLine] = set()


@atexit.register
def close_all() -> None:
    """Close the lines that are open: a thread may wait in a library that must not be ended under it."""
    for line in list(OPEN):
        line.close()


class PartTransport:
    """A backend of lines of one class.

    copies: whether `give` is done with the memory of requests when it returns, and not only when the reply is there.
    """

    line: ClassVar[type[PartLine]]
    name: ClassVar[str]
    copies = True

    def __init_subclass__(cls) -> None:
        """name: for messages, the class's by default."""
        cls.name = vars(cls).get("name", cls.__name__)

    def serve(self, address: str, token: str, seal: Tls | None = None) -> AnyServer:
        return Server(address, token, self.name, self._let_in)

    def connect(
        self, address: str, port: int, token: str, variant: str = "", seal: Tls | None = None
    ) -> AnyClient:
        try:
            sock = handshake.connected(address, port, token)
            try:
                return Client(self.line(sock, near=True), address, copies=self.copies)
            except BaseException:
                sock.close()
                raise
        except (OSError, EOFError, handshake.Rejected, BackendError) as error:
            raise BackendError(f"{self.name} to {address}: {error}") from error
        except Exception as error:
            raise BackendError(f"{self.name} to {address}: {fault_text(error)}") from error

    def _let_in(self, sock: socket.socket, _: handshake.Place) -> PartLine:
        try:
            return self.line(sock, near=False)
        except Exception as error:
            raise BackendError(fault_text(error)) from error

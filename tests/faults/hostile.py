"""A peer that does not behave: a proxy on the tcp backend's way that tampers with one message.

It knows the wire format (`pareto.remote.backends.wire`, `handshake`, `stripes`) and lets all else through as it came.
"""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from pareto.remote.backends import handshake, wire

REQUEST, REPLY, WELCOME = "request", "reply", "handshake"
"""What is tampered with: what the edge sends, what it gets, what it gets before."""
_NONCE_BYTES, _WELCOME_BYTES, _PROOF_BYTES = (
    handshake.NONCE_BYTES,
    len(handshake.WELCOME),
    handshake.ANSWER_BYTES,
)
_STRIPE = struct.Struct("!QQI")


class Message(NamedTuple):
    """frame: what goes before it where a message goes in stripes."""

    frame: bytes
    head: bytes
    body: bytes

    @property
    def all(self) -> bytes:
        return self.frame + self.head + self.body


Tamper = Callable[[Message], list[bytes]]
"""What is sent in place of the message, piece by piece."""


class Reset(OSError):
    """The connection is to end by a reset."""


class Silence(OSError):
    """Nothing comes any more, and the connection stays."""


@dataclass
class Armed:
    """The next message of its kind is tampered with. end: how the connection ends after it, if it does. struck: called
    just before."""

    what: str
    tamper: Tamper
    end: type[OSError] | None
    struck: Callable[[], None]


class Proxy:
    """In front of a server's port; striped: whether messages go in stripes. sealed: whether they are encrypted.

    Then each part that comes is a message, of which it knows no more.
    """

    def __init__(self, port: int, *, striped: bool, sealed: bool = False) -> None:
        self.armed: Armed | None = None
        self._to, self._striped, self._sealed = port, striped, sealed
        self._lock = threading.Lock()
        self._socks: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=16)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        for sock in self._socks:
            _end(sock)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
                self._socks += [near, far]
                for sock in (near, far):
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._pump, args=(near, far, REQUEST), daemon=True).start()
                threading.Thread(target=self._pump, args=(far, near, REPLY), daemon=True).start()

    def _pump(self, come: socket.socket, go: socket.socket, what: str) -> None:
        try:
            if what == REQUEST:
                go.sendall(_exactly(come, _PROOF_BYTES))
            else:
                self._pass_on(WELCOME, Message(b"", b"", _exactly(come, _NONCE_BYTES)), go)
                go.sendall(_exactly(come, _WELCOME_BYTES))
            while True:
                self._pass_on(what, self._message(come), go)
        except Silence:
            return
        except Reset:
            for sock in (come, go):
                _reset(sock)
        except OSError:
            _end(come)
            _end(go)

    def _pass_on(self, what: str, message: Message, go: socket.socket) -> None:
        kind = wire.Kind.REQUEST if what == REQUEST else wire.Kind.REPLY
        is_kind = what == WELCOME or self._sealed or message.head[6] == kind
        with self._lock:
            armed = self.armed
            if armed is None or armed.what != what or not is_kind:
                go.sendall(message.all)
                return
            self.armed = None
        armed.struck()
        for piece in armed.tamper(message):
            go.sendall(piece)
        if armed.end is not None:
            raise armed.end

    def _message(self, come: socket.socket) -> Message:
        if self._sealed:
            if not (part := come.recv(1 << 16)):
                raise ConnectionError
            return Message(b"", b"", part)
        if self._striped:
            frame = _exactly(come, _STRIPE.size)
            whole = _exactly(come, _STRIPE.unpack(frame)[2])
            cut = wire.HEADER.size if len(whole) >= wire.HEADER.size else len(whole)
            return Message(frame, whole[:cut], whole[cut:])
        head = _exactly(come, wire.HEADER.size)
        return Message(b"", head, _exactly(come, head[7] * wire.DESCRIPTOR.size + _body_bytes(head)))


def _body_bytes(head: bytes) -> int:
    return int.from_bytes(head[-8:], "big")


def _exactly(sock: socket.socket, count: int) -> bytes:
    """Raises OSError, also at the end of the stream."""
    data = bytearray()
    while len(data) < count:
        part = sock.recv(count - len(data))
        if not part:
            raise ConnectionError
        data += part
    return bytes(data)


def _end(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()


def _reset(sock: socket.socket) -> None:
    """Also where another thread waits for its data, which keeps a closed one open."""
    nobody = bytes(16)  # AF_UNSPEC: connect(2) dissolves the association, by a reset
    ctypes.CDLL(None).connect(sock.fileno(), nobody, len(nobody))
    sock.close()


def put(part: bytes, begin: int, data: bytes) -> bytes:
    """That part with other bytes in it."""
    at = begin % len(part)
    return part[:at] + data + part[at + len(data) :]


def in_head(begin: int, data: bytes) -> Tamper:
    """Other bytes in the header."""
    return lambda message: [message._replace(head=put(message.head, begin, data)).all]


def in_body(begin: int, data: bytes) -> Tamper:
    """Other bytes behind the header: from 0 on descriptors, from -4 on the last number."""
    return lambda message: [message._replace(body=put(message.body, begin, data)).all]


def length(bytes_more: int) -> Tamper:
    """A length that is not the body's."""

    def tamper(message: Message) -> list[bytes]:
        said = (_body_bytes(message.head) + bytes_more) % (1 << 64)
        return in_head(-8, said.to_bytes(8, "big"))(message)

    return tamper


def half_a_frame(message: Message) -> list[bytes]:
    return [message.all[: len(message.all) // 2]]


def half_a_header(message: Message) -> list[bytes]:
    return [message.all[: len(message.frame) + len(message.head) // 2]]

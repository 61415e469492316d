"""A peer that does not behave: a proxy on the tcp backend's way that tampers with one message.

It knows the wire format (`pareto.remote.backends.wire`, `handshake`, `stripes`) and lets all else through as it came.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from pareto.remote.backends import wire

REQUEST, REPLY, WELCOME = "request", "reply", "handshake"
"""What is tampered with: what the edge sends, what it gets, what it gets before."""
_NONCE_BYTES, _WELCOME_BYTES, _PROOF_BYTES = 32, 2, 42
_STRIPE = struct.Struct("!QQI")


class Message(NamedTuple):
    """frame: what goes before it where a message goes in stripes."""

    frame: bytes
    head: bytes
    body: bytes

    @property
    def all(self) -> bytes:
        return self.frame + self.head + self.body


Tamper = Callable[[Message, socket.socket], None]
"""Sends, in place of the message, something else. Raises OSError to end the connection after it."""


class Reset(OSError):
    """The connection is to end by a reset."""


class Silence(OSError):
    """Nothing comes any more, and the connection stays."""


@dataclass
class Armed:
    """The next message of its kind is tampered with. struck: called just before."""

    what: str
    tamper: Tamper
    struck: Callable[[], None]


class Proxy:
    """In front of a server's port; striped: whether messages go in stripes. sealed: whether they are encrypted.

    Then each part that comes is a message, of which it knows no more.
    """

    def __init__(self, port: int, *, striped: bool, sealed: bool = False) -> None:
        self.armed: Armed | None = None
        self._to = port
        self._striped = striped
        self._sealed = sealed
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
        is_kind = (
            what == WELCOME
            or self._sealed
            or message.head[6] == (wire.Kind.REQUEST if what == REQUEST else wire.Kind.REPLY)
        )
        with self._lock:
            armed = self.armed
            strikes = armed is not None and armed.what == what and is_kind
            if strikes:
                self.armed = None
        if strikes and armed is not None:
            armed.struck()
            armed.tamper(message, go)
        else:
            go.sendall(message.all)

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


def cut_off(share: float, how: type[OSError]) -> Tamper:
    """The beginning of a message, and then the end of the connection, or of all that is said on it."""

    def tamper(message: Message, go: socket.socket) -> None:
        go.sendall(message.all[: int(share * len(message.all))])
        raise how

    return tamper


def in_header(how: type[OSError]) -> Tamper:
    def tamper(message: Message, go: socket.socket) -> None:
        go.sendall(message.all[: len(message.frame) + len(message.head) // 2])
        raise how

    return tamper


def byte_by_byte(message: Message, go: socket.socket) -> None:
    for at in range(len(message.all)):
        go.sendall(message.all[at : at + 1])


def twice(message: Message, go: socket.socket) -> None:
    go.sendall(message.all)
    go.sendall(message.all)


def garbage(message: Message, go: socket.socket) -> None:
    go.sendall(message.frame + bytes(range(7, 7 + len(message.head))) + message.body)


def instead(begin: int, data: bytes) -> Tamper:
    """Other bytes in the header."""

    def tamper(message: Message, go: socket.socket) -> None:
        begin_at = begin % len(message.head)
        head = message.head[:begin_at] + data + message.head[begin_at + len(data) :]
        go.sendall(message.frame + head + message.body)

    return tamper


def in_body(begin: int, data: bytes) -> Tamper:
    """Other bytes behind the header: from 0 on descriptors, from -4 on the last number."""

    def tamper(message: Message, go: socket.socket) -> None:
        begin_at = begin % len(message.body)
        body = message.body[:begin_at] + data + message.body[begin_at + len(data) :]
        go.sendall(message.frame + message.head + body)

    return tamper


def one_bit(message: Message, go: socket.socket) -> None:
    """Of what comes last."""
    whole = message.all
    go.sendall(whole[:-1] + bytes([whole[-1] ^ 1]))


def length(bytes_more: int) -> Tamper:
    """A length that is not the body's."""

    def tamper(message: Message, go: socket.socket) -> None:
        said = (_body_bytes(message.head) + bytes_more) % (1 << 64)
        go.sendall(message.frame + message.head[:-8] + said.to_bytes(8, "big") + message.body)

    return tamper


NAN = struct.pack("<f", math.nan)
SECONDS = 32
"""Where in a header the first later stage's seconds are."""

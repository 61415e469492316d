"""Tensors over ZeroMQ: a PUSH and a PULL socket an end, as one socket is for one thread; a tensor is a frame.

As its authors advise, in the guide's and pyzmq's documentation: a large frame is sent from where it lies (`copy=False`,
which by itself copies those below 64 kB), and the queues hold few messages, as these are large. A frame that came is
copied once, by `recv_into`: at the address that ZeroMQ has it, PyTorch computes other last bits. PLAIN keeps strangers
off; the connection that was let in carries its password, and says when the other end is gone.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import struct
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import zmq

from pareto.protocol.errors import BackendError
from pareto.remote.backends import wire
from pareto.remote.backends.handshake import exactly
from pareto.remote.backends.parts import PartLine, PartTransport

QUEUED = 4
"""Messages that a socket holds."""
LINGER_MS = 1000
LARGE = zmq.COPY_THRESHOLD
"""Bytes from which pyzmq sends without a copy."""
_MEET = struct.Struct("!HH32s")
_USER, _ZAP = b"pareto", "inproc://zeromq.zap.01"


class ZmqLine(PartLine):
    """A line by two sockets. near: it sends from where tensors lie, as they stay until the reply is there."""

    def __init__(self, sock: socket.socket, *, near: bool) -> None:
        super().__init__(sock, near=near)
        self._context = zmq.Context()
        self._context.sndhwm = self._context.rcvhwm = QUEUED  # of each socket
        self._push, self._pull = (self._context.socket(kind) for kind in (zmq.PUSH, zmq.PULL))
        self._giving, self._taking = threading.Lock(), threading.Lock()
        ours = sock.getsockname()[0]
        if near:
            *ports, secret = _MEET.unpack(exactly(sock, _MEET.size))
            for each, port in zip((self._pull, self._push), ports, strict=True):
                each.plain_username, each.plain_password = _USER, secret
                each.connect(f"tcp://{sock.getpeername()[0]}:{port}")
        else:
            secret = secrets.token_hex(16).encode()
            door = self._context.socket(zmq.REP)
            door.bind(_ZAP)
            threading.Thread(target=_admit, args=(door, secret), name="zmq-door", daemon=True).start()
            for each in (self._push, self._pull):
                each.plain_server = True
            ports = [each.bind_to_random_port(f"tcp://{ours}") for each in (self._push, self._pull)]
            sock.sendall(_MEET.pack(*ports, secret))
        self._gone = threading.Event()
        self._watching = threading.Thread(target=self._watch, name="zmq-watch", daemon=True)
        self._watching.start()

    def give(self, parts: Sequence[memoryview]) -> None:
        try:
            with self._giving:
                self._push.send_multipart(parts, copy=not self.near or sum(map(len, parts)) < LARGE)
        except zmq.ContextTerminated:
            raise EOFError from None

    def take(self, view: memoryview) -> None:
        try:
            with self._taking:
                came = self._pull.recv_into(view)
        except zmq.ContextTerminated:
            raise EOFError from None
        if came != len(view):
            raise BackendError(wire.OTHER_FORM)

    def drain(self) -> None:
        self._gone.wait()

    def close(self) -> None:
        super().close()
        with self._giving, self._taking:  # a socket must not be closed under a thread
            self._push.close(LINGER_MS)
            self._pull.close(LINGER_MS)
        self._watching.join(LINGER_MS / 1000)

    def _watch(self) -> None:
        """Wait for the end of the connection that was let in, and wake who waits in `give` or `take`."""
        with suppress(OSError):
            super().drain()
        self._gone.set()
        self._context.term()


def _admit(door: Any, secret: bytes) -> None:
    """Let in who knows the secret, by ZeroMQ's authentication protocol (https://rfc.zeromq.org/spec/27), until the
    context ends."""
    try:
        while True:
            version, request, *_, mechanism, user, password = door.recv_multipart()[:8]
            knows = mechanism == b"PLAIN" and user == _USER and hmac.compare_digest(password, secret)
            verdict = (b"200", b"OK") if knows else (b"400", b"no")
            door.send_multipart([version, request, *verdict, user, b""])
    except (zmq.ContextTerminated, ValueError):
        door.close(0)


class Transport(PartTransport):
    line, name, copies = ZmqLine, "zmq", False


_transport = Transport()
serve, connect = _transport.serve, _transport.connect

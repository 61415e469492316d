"""Tensors over a raw socket: one persistent connection, length-checked frames, no copies beyond the kernel's.

Each host receives in one thread and has a `Pipeline` for the rest, receive buffers going round between them, so that
a payload arrives while its predecessor is worked on.
"""

from __future__ import annotations

import contextlib
import functools
import queue
import socket
import sys
import threading
import time

from pareto.backends import handshake, wire
from pareto.backends.base import BackendError, Client, Layout, Reply, Stage, Tensors, layout
from pareto.backends.pipeline import Pipeline, Request

BUFFERS = 4
"""Receive buffers of a connection: one being filled, one waiting, one being computed on, one being sent on."""


class TcpClient:
    """The end towards the next host. Connects at once; raises BackendError if that turns it away."""

    def __init__(self, address: str, port: int, token: str) -> None:
        self._peer = address
        try:
            self._sock = socket.create_connection((address, port), handshake.TIMEOUT_S)
            handshake.prove(self._sock, token)
        except (OSError, handshake.Rejected) as error:
            raise BackendError(f"tcp to {address}: {error}") from error
        self._head = bytearray(wire.HEADER.size)
        self._fingerprint = bytes(8)
        self._takes: Layout = ()

    def open(self, fingerprint: bytes, takes: Layout) -> None:
        self._fingerprint = fingerprint
        self._takes = takes

    def send(self, request_id: int, tensors: Tensors) -> float:
        """As in the protocol; here the tensors may change as soon as it returns."""
        started = time.perf_counter()
        descriptors = wire.describe(layout(tensors))
        body = wire.views(tensors)
        header = wire.Header(wire.Kind.REQUEST, request_id, self._fingerprint, tensors=len(tensors))
        serialized = time.perf_counter() - started
        self._send(header, descriptors, body)
        return serialized

    def receive(self) -> Reply:
        header = self._next_header()
        if header.kind is not wire.Kind.REPLY:
            raise BackendError(f"a {header.kind.name} came in place of a reply")
        try:
            tensors = wire.receive_tensors(self._sock, header, self._takes, wire.empty)
        except OSError as error:
            raise BackendError(f"receiving from {self._peer} failed: {error}") from error
        return Reply(header.request_id, tensors, header.stages_s, header.serialize_s)

    def warm(self, nbytes: int) -> None:
        self._send(wire.Header(wire.Kind.WARM), b"", [memoryview(bytes(nbytes))])
        if self._next_header().kind is not wire.Kind.WARM:
            raise BackendError(f"{self._peer} did not answer the warm-up")

    def close(self) -> None:
        with contextlib.suppress(OSError):  # it may be broken
            self._sock.shutdown(socket.SHUT_RDWR)  # wakes who still waits for a reply: closing does not
        self._sock.close()

    def _send(self, header: wire.Header, descriptors: bytes, body: list[memoryview]) -> None:
        try:
            wire.send(self._sock, header, descriptors, body)
        except OSError as error:
            raise BackendError(f"sending to {self._peer} failed: {error}") from error

    def _next_header(self) -> wire.Header:
        try:
            header = wire.receive_header(self._sock, self._head)
            if header.kind is wire.Kind.ERROR:
                raise BackendError(f"{self._peer} says: {wire.receive_text(self._sock, header)}")
        except EOFError:
            raise BackendError(f"{self._peer} closed the connection") from None
        except OSError as error:
            raise BackendError(f"receiving from {self._peer} failed: {error}") from error
        return header


class TcpServer:
    """The end towards the previous host: listens on the data address only, lets in who knows the token.

    `onward` is a `TcpClient`, and one connection's at a time.
    """

    def __init__(self, address: str, token: str) -> None:
        self._token = token
        self._served: tuple[Stage, Client | None] | None = None
        self._listener = socket.create_server((address, 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="tcp-accept", daemon=True).start()

    def serve(self, stage: Stage, onward: Client | None = None) -> None:
        self._served = (stage, onward)

    def served(self, name: bytes) -> tuple[Stage, Client | None]:
        """What answers requests for the stage `name`. Raises BackendError if that is not served."""
        served = self._served
        if served is None or name != served[0].fingerprint:
            raise BackendError("the request is for another model or point than the one served here")
        return served

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, peer = self._listener.accept()
            except OSError:
                return  # closed
            try:
                handshake.admit(sock, self._token)
            except (OSError, EOFError, handshake.Rejected) as error:
                print(f"tcp: turned {peer[0]} away: {error}", file=sys.stderr)
                sock.close()
                continue
            converse = _Conversation(sock, self).run
            threading.Thread(target=converse, name="tcp-receive", daemon=True).start()


class _Conversation:
    """One connection from the previous host, until that ends it.

    A fault is the last thing said. What still comes is thrown away: whoever is in the middle of sending is to hear
    of the fault, and not of a broken connection.
    """

    def __init__(self, sock: socket.socket, server: TcpServer) -> None:
        self._sock = sock
        self._server = server
        self._buffers = _Buffers(())
        self._pipeline = Pipeline("tcp")
        self._saying = threading.Lock()
        self._failed = False

    def run(self) -> None:
        head = bytearray(wire.HEADER.size)
        try:
            while not self._failed:
                header = wire.receive_header(self._sock, head)
                if header.kind is wire.Kind.WARM:
                    wire.discard(self._sock, header.body_bytes)
                    self._say(wire.Header(wire.Kind.WARM), b"", [])
                else:
                    self._pipeline.put(self._request(header))
        except EOFError:
            pass
        except (BackendError, OSError) as error:
            self._fail(str(error))
        with contextlib.suppress(EOFError, OSError):
            wire.discard(self._sock)
        self._pipeline.close()
        self._sock.close()

    def _request(self, header: wire.Header) -> Request:
        if header.kind is not wire.Kind.REQUEST:
            raise BackendError(f"a {header.kind.name} came in place of a request")
        stage, onward = self._server.served(header.fingerprint)
        tensors = wire.receive_tensors(self._sock, header, stage.takes, self._free)
        return Request(
            header.request_id,
            tensors,
            stage,
            onward,
            answer=functools.partial(self._answer, header.request_id),
            fail=self._fail,
            left=functools.partial(self._buffers.give_back, tensors),
        )

    def _free(self, layout: Layout) -> Tensors:
        if layout != self._buffers.layout:
            self._buffers = _Buffers(layout)
        return self._buffers.take()

    def _answer(self, number: int, result: Tensors, stages_s: tuple[float, ...], serialize_s: float) -> None:
        started = time.perf_counter()
        descriptors = wire.describe(layout(result))
        body = wire.views(result)
        serialize_s += time.perf_counter() - started
        header = wire.Header(
            wire.Kind.REPLY,
            number,
            stages_s=stages_s,
            serialize_s=serialize_s,
            tensors=len(result),
        )
        self._say(header, descriptors, body)

    def _say(self, header: wire.Header, descriptors: bytes, body: list[memoryview]) -> None:
        with self._saying:
            if not self._failed:
                wire.send(self._sock, header, descriptors, body)

    def _fail(self, text: str) -> None:
        with self._saying:
            if self._failed:
                return
            self._failed = True
            try:
                body = memoryview(text.encode()[: wire.MAX_TEXT])
                wire.send(self._sock, wire.Header(wire.Kind.ERROR), b"", [body])
                self._sock.shutdown(socket.SHUT_WR)
            except OSError as error:  # nobody is there to hear it
                print(f"tcp: {text}: {error}", file=sys.stderr)


class _Buffers:
    """Receive buffers of one layout that go round between the receiving thread and the pipeline."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._free: queue.SimpleQueue[Tensors] = queue.SimpleQueue()
        for _ in range(BUFFERS):
            self._free.put(wire.empty(layout))

    def take(self) -> Tensors:
        """A free set of tensors; waits for one, which is what holds a fast sender back."""
        return self._free.get()

    def give_back(self, tensors: Tensors) -> None:
        self._free.put(tensors)

"""Tensors over a raw socket: one persistent connection, length-checked frames, no copies beyond the kernel's.

On the server one thread receives while another computes, each buffer going round between them, so that a
payload arrives while its predecessor is worked on; sending a result only hands it to the socket buffer.
"""

from __future__ import annotations

import queue
import socket
import sys
import threading
import time

from pareto.backends import handshake, wire
from pareto.backends.base import BackendError, Layout, Reply, Stage, Tensors, layout

BUFFERS = 3
"""Receive buffers on the server: one being filled, one waiting, one being computed on."""


class TcpClient:
    """The edge's end. Connects at once; raises BackendError if the server turns it away."""

    def __init__(self, address: str, port: int, token: str) -> None:
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
        started = time.perf_counter()
        descriptors = wire.describe(layout(tensors))
        body = wire.views(tensors)
        header = wire.Header(wire.Kind.REQUEST, request_id, self._fingerprint, tensors=len(tensors))
        serialized = time.perf_counter() - started
        try:
            wire.send(self._sock, header, descriptors, body)
        except OSError as error:
            raise BackendError(f"sending failed: {error}") from error
        return serialized

    def receive(self) -> Reply:
        header = self._next_header()
        if header.kind is not wire.Kind.REPLY:
            raise BackendError(f"a {header.kind.name} came in place of a reply")
        tensors = wire.receive_tensors(self._sock, header, self._takes, wire.empty)
        return Reply(header.request_id, tensors, header.server_s, header.serialize_s)

    def warm(self, nbytes: int) -> None:
        wire.send(self._sock, wire.Header(wire.Kind.WARM), b"", [memoryview(bytes(nbytes))])
        if self._next_header().kind is not wire.Kind.WARM:
            raise BackendError("the server did not answer the warm-up")

    def close(self) -> None:
        self._sock.close()

    def _next_header(self) -> wire.Header:
        try:
            header = wire.receive_header(self._sock, self._head)
            if header.kind is wire.Kind.ERROR:
                raise BackendError(f"the server says: {wire.receive_text(self._sock, header)}")
        except EOFError:
            raise BackendError("the server closed the connection") from None
        except OSError as error:
            raise BackendError(f"receiving failed: {error}") from error
        return header


class TcpServer:
    """The server's end: listens on the data address only, lets in who knows the token."""

    def __init__(self, address: str, token: str) -> None:
        self._token = token
        self._stage: Stage | None = None
        self._listener = socket.create_server((address, 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="tcp-accept", daemon=True).start()

    def serve(self, stage: Stage) -> None:
        self._stage = stage

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
            threading.Thread(target=self._converse, args=(sock,), name="tcp-receive", daemon=True).start()

    def _converse(self, sock: socket.socket) -> None:
        """Receive until the peer goes; computing happens beside it."""
        work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        pool = _Buffers()
        compute = threading.Thread(target=_compute, args=(sock, work, pool), name="tcp-compute", daemon=True)
        compute.start()
        head = bytearray(wire.HEADER.size)
        try:
            while True:
                header = wire.receive_header(sock, head)
                if header.kind is wire.Kind.WARM:
                    wire.discard(sock, header.body_bytes)
                    wire.send(sock, wire.Header(wire.Kind.WARM), b"", [])
                    continue
                stage = self._admit(header)
                tensors = wire.receive_tensors(sock, header, stage.takes, pool.take)
                work.put((header, stage, tensors))
        except EOFError:
            pass
        except BackendError as error:
            _send_error(sock, str(error))
        except OSError as error:
            print(f"tcp: {error}", file=sys.stderr)
        finally:
            work.put(None)
            compute.join()
            sock.close()

    def _admit(self, header: wire.Header) -> Stage:
        if header.kind is not wire.Kind.REQUEST:
            raise BackendError(f"a {header.kind.name} came in place of a request")
        if self._stage is None or header.fingerprint != self._stage.fingerprint:
            raise BackendError("the request is for another model or point than the one served here")
        return self._stage


_Work = tuple[wire.Header, Stage, Tensors]


class _Buffers:
    """Receive buffers that go round between the receiving and the computing thread."""

    def __init__(self) -> None:
        self._layout: Layout | None = None
        self._free: queue.SimpleQueue[Tensors] = queue.SimpleQueue()

    def take(self, layout: Layout) -> Tensors:
        """A free set of tensors of `layout`; waits for one, which is what holds a fast sender back."""
        if layout != self._layout:
            self._layout = layout
            self._free = queue.SimpleQueue()
            for _ in range(BUFFERS):
                self._free.put(wire.empty(layout))
        return self._free.get()

    def give_back(self, tensors: Tensors) -> None:
        self._free.put(tensors)


def _compute(sock: socket.socket, work: queue.SimpleQueue[_Work | None], pool: _Buffers) -> None:
    while (item := work.get()) is not None:
        header, stage, tensors = item
        try:
            outputs, server_s = stage.run(tensors)
            started = time.perf_counter()
            descriptors = wire.describe(stage.gives)
            body = wire.views(outputs)
            serialize_s = time.perf_counter() - started
            reply = wire.Header(
                wire.Kind.REPLY, header.request_id, header.fingerprint, server_s, serialize_s, len(outputs)
            )
            wire.send(sock, reply, descriptors, body)
        except OSError as error:
            print(f"tcp: {error}", file=sys.stderr)
        except Exception as error:  # the stage's own fault: the edge must hear of it, or it waits for ever
            _send_error(sock, f"{type(error).__name__}: {error}")
        pool.give_back(tensors)  # only now: an identity stage's output is its input


def _send_error(sock: socket.socket, text: str) -> None:
    try:
        body = text.encode()[: wire.MAX_TEXT]
        wire.send(sock, wire.Header(wire.Kind.ERROR), b"", [memoryview(body)])
    except OSError as error:
        print(f"tcp: {error}", file=sys.stderr)

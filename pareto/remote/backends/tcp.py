"""Tensors over raw sockets: persistent connections, length-checked frames, no copies beyond the kernel's.

One connection (`Line`), or a tensor in stripes over several (`Stripes`); each may be encrypted (`tls`).

Each host receives in one thread and has a `Pipeline` for the rest, receive buffers going round between them, so that
a payload arrives while its predecessor is worked on.
"""

from __future__ import annotations

import contextlib
import functools
import queue
import secrets
import socket
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from pareto.protocol.errors import BackendError
from pareto.remote.backends import handshake, wire
from pareto.remote.backends.base import Client, Layout, Reply, Stage, Tensors
from pareto.remote.backends.pipeline import Pipeline, Request, fault_text
from pareto.remote.backends.stripes import Stripes
from pareto.remote.backends.tls import AnySocket, Tls
from pareto.remote.backends.wire import Line

TIMED = 16
"""Messages of a form whose serialization is timed: a thread's own clock is a call into the kernel, twice a message."""
BUFFERS = 4
"""Receive buffers of a connection: one being filled, one waiting, one being computed on, one being sent on."""


class _Serialization:
    """The processor seconds of turning tensors of one form into bytes: of the first few messages, and then the median
    of these, as it is the same work each time."""

    def __init__(self) -> None:
        self._seconds: list[float] = []
        self._usual: float | None = None

    def begin(self) -> float:
        return 0.0 if self._usual is not None else time.thread_time()

    def end(self, began: float) -> float:
        if self._usual is not None:
            return self._usual
        self._seconds.append(time.thread_time() - began)
        if len(self._seconds) == TIMED:
            self._usual = statistics.median(self._seconds)
        return self._seconds[-1]


class TcpClient:
    """The end towards the next host. Connects at once; raises BackendError if that turns it away. variant: number of
    connections."""

    def __init__(
        self, address: str, port: int, token: str, variant: str = "", seal: Tls | None = None
    ) -> None:
        self._peer = address
        try:
            socks = _connected(address, port, token, int(variant or 1), seal)
        except (OSError, EOFError, handshake.Rejected, BackendError) as error:
            raise BackendError(f"tcp to {address}: {error}") from error
        self._line = Line(socks[0]) if len(socks) == 1 else Stripes(socks)
        self._like = wire.Likeness(b"", wire.NOTHING)
        self._result = wire.NOTHING
        self._serialization = _Serialization()

    def open(self, fingerprint: bytes, takes: Layout) -> None:
        self._like = wire.Likeness(fingerprint, wire.NOTHING)
        self._result = wire.form(takes)
        self._serialization = _Serialization()

    def send(self, request_id: int, tensors: Tensors) -> float:
        """As in the protocol; here the tensors may change as soon as it returns."""
        began = self._serialization.begin()
        form = wire.form_of(tensors)
        if form is not self._like.form:
            self._like = wire.Likeness(self._like.fingerprint, form)
        head, body = self._like.numbered(request_id), wire.views(tensors)
        serialize_s = self._serialization.end(began)
        self._send(head, body)
        return serialize_s

    def receive(self) -> Reply:
        tensors = wire.empty(self._result)  # of a form that is known: made while nothing is there yet
        header = self._next(wire.Kind.REPLY, self._result, wire.views(tensors))
        return Reply(header.request_id, tensors, header.stages_s, header.serialize_s)

    def warm(self, nbytes: int) -> None:
        self._send(wire.message(wire.Kind.WARM, nbytes), [memoryview(bytes(nbytes))])
        self._next(wire.Kind.WARM)

    def close(self) -> None:
        self._line.close()

    def _send(self, head: bytes, body: list[memoryview]) -> None:
        try:
            self._line.send(head, body)
        except OSError as error:
            raise BackendError(f"sending to {self._peer} failed: {error}") from error

    def _next(
        self, kind: wire.Kind, form: wire.Form = wire.NOTHING, views: Sequence[memoryview] = ()
    ) -> wire.Header:
        """The next message's header, of this kind and form; its body's bytes into these views."""
        try:
            header = wire.header(self._line.head())
            if header.kind is wire.Kind.ERROR:
                text = bytearray(header.body_bytes)
                self._line.body(wire.NOTHING, [memoryview(text)])
                raise BackendError(f"{self._peer} says: {text.decode(errors='replace')}")
            if header.kind is not kind:
                raise BackendError(f"a {header.kind.name} came in place of a {kind.name}")
            wire.check_size(header, form)
            self._line.body(form, views)
        except EOFError:
            raise BackendError(f"{self._peer} closed the connection") from None
        except OSError as error:
            raise BackendError(f"receiving from {self._peer} failed: {error}") from error
        return header


def _connected(address: str, port: int, token: str, connections: int, seal: Tls | None) -> list[AnySocket]:
    """This many sockets that belong together, all let in, and encrypted where there is a seal; none is left open after
    a fault. Raises OSError, EOFError, Rejected, BackendError."""
    group, undo = secrets.token_bytes(8), contextlib.ExitStack()

    def connect(number: int) -> AnySocket:
        sock = handshake.connected(address, port, token, handshake.Place(group, number, connections))
        undo.callback(sock.close)
        return sock if seal is None else seal.sealed(sock, server=False)

    with undo, ThreadPoolExecutor(connections) as pool:  # at once: each takes several round trips
        socks = list(pool.map(connect, range(connections)))
        undo.pop_all()
    return socks


class TcpServer:
    """The end towards the previous host: listens on the data address only, lets in who knows the token. `onward` is a
    `TcpClient`, and one connection's at a time."""

    def __init__(self, address: str, token: str, seal: Tls | None = None) -> None:
        self.served: tuple[Stage, Client | None] | None = None
        self._seal = seal
        self._gathering: dict[int, AnySocket] = {}
        self._group = b""
        """Those that have come of the connections that belong together, by number; and whose they are."""
        self._together = threading.Lock()
        self._door = handshake.Door(address, token, self._converse, "tcp")
        self.address, self.port = self._door.address, self._door.port

    def serve(self, stage: Stage, onward: Client | None = None) -> None:
        self.served = (stage, onward)

    def close(self) -> None:
        self._door.close()

    def _converse(self, sock: socket.socket, place: handshake.Place) -> None:
        """Begin the conversation when the last of the connections that belong together has come."""
        try:
            connection = sock if self._seal is None else self._seal.sealed(sock, server=True)
        except (OSError, BackendError) as error:
            print(f"tcp: {error}", file=sys.stderr)
            return
        if place.of == 1:
            _Conversation(Line(connection), self).run()
        elif connections := self._gathered(connection, place):
            _Conversation(Stripes(connections), self).run()

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


class _Conversation:
    """Receives the previous host's requests and answers them, until that host ends it. A fault is the last thing said.
    All that still comes is thrown away: who is in the middle of sending is to hear of the fault."""

    def __init__(self, line: Line | Stripes, server: TcpServer) -> None:
        self._line = line
        self._server = server
        self._served: _Served | None = None
        self._pipeline = Pipeline("tcp")
        self._saying = threading.Lock()
        self._failed = False

    def run(self) -> None:
        try:
            while not self._failed:
                head = self._line.head()
                served = self._now_served()
                number = served.like.number(head) if served is not None else None
                if served is not None and number is not None:
                    self._pipeline.put(self._request(served, number, head))
                else:
                    self._take_other(wire.header(head))
        except EOFError:
            pass
        except Exception as error:  # also of a quick stage, or of memory: the edge must hear of it
            self._fail(fault_text(error))
        with contextlib.suppress(EOFError, OSError):
            self._line.drain()
        self._pipeline.close()
        self._line.close()

    def _now_served(self) -> _Served | None:
        served = self._server.served
        if served is not None and (self._served is None or served[0] is not self._served.stage):
            self._served = _Served(*served)
        return self._served

    def _request(self, served: _Served, number: int, head: memoryview) -> Request:
        form = served.like.form
        came = wire.cut(form, head) if form.varies else form
        tensors, views = buffer = served.take()  # waits for one, which is what holds a fast sender back
        if form.varies:
            tensors, views = (tensors[0][: came.nbytes],), [views[0][: came.nbytes]]
        self._line.body(came, views)
        return Request(
            number,
            tensors,
            served.stage,
            served.onward,
            functools.partial(self._answer, number, served.serialization),
            self._fail,
            functools.partial(served.give_back, buffer),
        )

    def _take_other(self, header: wire.Header) -> None:
        """Take a message that is no request for the served stage: a warm-up is answered, all else is a BackendError."""
        if header.kind is wire.Kind.WARM:
            self._line.skip(header.body_bytes)
            self._say(wire.message(wire.Kind.WARM, 0))
            return
        if header.kind is not wire.Kind.REQUEST:
            raise BackendError(f"a {header.kind.name} came in place of a request")
        if self._served is not None and header.fingerprint == self._served.stage.fingerprint:
            wire.check_size(header, self._served.like.form)
        raise BackendError("the request is for another model or point than the one served here")

    def _answer(
        self,
        number: int,
        timed: _Serialization,
        result: Tensors,
        stages_s: tuple[float, ...],
        serialize_s: float,
    ) -> None:
        began = timed.begin()
        form, body = wire.form_of(result), wire.views(result)
        serialize_s += timed.end(began)
        self._say(wire.reply(form, number, stages_s, serialize_s), body)

    def _say(self, head: bytes, body: Sequence[memoryview] = ()) -> None:
        with self._saying:
            if not self._failed:
                self._line.send(head, body)

    def _fail(self, text: str) -> None:
        with self._saying:
            if self._failed:
                return
            self._failed = True
            try:
                body = text.encode()[: wire.MAX_TEXT]
                self._line.send(wire.message(wire.Kind.ERROR, len(body)), [memoryview(body)])
                self._line.end()
            except OSError as error:  # nobody is there to hear it
                print(f"tcp: {text}; the other end is gone: {error.strerror or error}", file=sys.stderr)


_Buffer = tuple[Tensors, list[memoryview]]
"""Tensors, and their bytes."""


class _Served:
    """A stage, how requests for it look, and buffers that go round between receiving and the pipeline."""

    def __init__(self, stage: Stage, onward: Client | None) -> None:
        self.stage = stage
        self.onward = onward
        self.like = wire.Likeness(stage.fingerprint, wire.form(stage.takes))
        self.serialization = _Serialization()
        self._free: list[_Buffer] = []
        self._count: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(BUFFERS):
            tensors = wire.empty(self.like.form)
            self.give_back((tensors, wire.views(tensors)))

    def take(self) -> _Buffer:
        """The buffer that was free last, as the processor's cache may still hold it; waits until one is."""
        self._count.get()
        return self._free.pop()

    def give_back(self, buffer: _Buffer) -> None:
        self._free.append(buffer)
        self._count.put(None)


serve, connect = TcpServer, TcpClient

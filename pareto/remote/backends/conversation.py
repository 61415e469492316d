"""Both ends of a backend, over any line: requests go one way, their results, in order, the other.

Each host receives in one thread and has a `Pipeline` for the rest, receive buffers going round between them, so that
a payload arrives while its predecessor is worked on.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch

from pareto.protocol.errors import BackendError
from pareto.remote.backends import handshake, wire
from pareto.remote.backends.base import Client as AnyClient
from pareto.remote.backends.base import Layout, Reply, Stage, Tensors
from pareto.remote.backends.pipeline import Pipeline, Work, fault_text

TIMED = 16
"""Messages of a form whose serialization is timed: a thread's own clock is a call into the kernel, twice a message."""
ANOTHER = "the request is for another model or point than the one served here"
ENDED = EOFError, OSError, BackendError
"""The errors of a line that has ended: whoever sends or receives next hears of it."""
BUFFERS = 4
"""Receive buffers of a connection: one being filled, one waiting, one being computed on, one being sent on."""


class Serialization:
    """The processor seconds of turning tensors of one form into bytes: of the first few messages, and then the median
    of these, as it is the same work each time."""

    def __init__(self) -> None:
        self._seconds: list[float] = []
        self._usual: float | None = None
        self._form = wire.NOTHING
        """The form of the last ones, which most have again."""

    def of(self, tensors: Tensors) -> tuple[wire.Form, list[memoryview], float]:
        """The form of these tensors, their bytes, and the seconds."""
        began = time.thread_time() if self._usual is None else 0.0
        views = self._form.views(tensors)
        if views is None:
            self._form, views = wire.form_of(tensors), wire.views(tensors)
        if self._usual is not None:
            return self._form, views, self._usual
        self._seconds.append(time.thread_time() - began)
        if len(self._seconds) == TIMED:
            self._usual = statistics.median(self._seconds)
        return self._form, views, self._seconds[-1]


class Client:
    """The end towards the next host, over a line to it. peer: its address, for messages. copies: see the protocol."""

    def __init__(self, line: wire.AnyLine, peer: str, *, copies: bool = True) -> None:
        self._line, self._peer, self.copies = line, peer, copies
        self.open(b"", ())  # for no stage yet

    def open(self, fingerprint: bytes, takes: Layout) -> None:
        self._like = wire.Likeness(wire.Kind.REQUEST, wire.NOTHING, fingerprint)
        self._reply = wire.Likeness(wire.Kind.REPLY, wire.form(takes))
        self._result = wire.empty(self._reply.form)
        """Like those of a reply: to make new ones by it takes half as long as by shape and dtype."""
        self._serialization = Serialization()
        self._sent = self._received = 0
        self._kept: deque[Tensors] = deque()
        """Tensors of requests without a reply, where the line sends from where they lie."""
        with contextlib.suppress(*ENDED):
            self._line.expect(self._reply)

    def send(self, request_id: int, tensors: Tensors) -> float:
        form, body, serialize_s = self._serialization.of(tensors)
        if form is not self._like.form:
            self._like = wire.Likeness(wire.Kind.REQUEST, form, self._like.fingerprint)
        self._sent += 1
        if not self.copies:
            self._kept.append(tensors)
        self._send(self._like.numbered(request_id), body)
        return serialize_s

    def receive(self) -> Reply:
        like = self._reply
        tensors = tuple([torch.empty_like(each) for each in self._result])  # made while nothing is there yet
        try:
            if self._sent == self._received + 1:
                self._line.idle()
            head = self._line.message(like, wire.views(tensors))
        except (EOFError, OSError) as error:
            raise self._gone(error) from error
        if head is None:
            self._take(wire.Kind.REPLY, like.form)
            raise BackendError(wire.OTHER_FORM)
        self._received += 1
        if not self.copies:
            self._kept.popleft()
        if like.form.varies:
            tensors = (tensors[0][: like.body(head).nbytes],)
        number, stages_s, serialize_s = wire.told(head)
        return Reply(number, tensors, stages_s, serialize_s)

    def warm(self, nbytes: int) -> None:
        part = memoryview(bytes(min(nbytes, wire.WARM_BYTES)))
        parts = [part[: nbytes - at] for at in range(0, nbytes, wire.WARM_BYTES)]
        self._send(wire.message(wire.Kind.WARM, nbytes), parts)
        self._take(wire.Kind.WARM, wire.NOTHING)

    def close(self) -> None:
        self._line.close()

    def _send(self, head: bytes, body: list[memoryview]) -> None:
        try:
            self._line.send(head, body)
        except EOFError as error:
            raise self._gone(error) from error
        except OSError as error:
            raise BackendError(f"sending to {self._peer} failed: {error}") from error

    def _take(self, kind: wire.Kind, form: wire.Form) -> None:
        """Take the next message's header. Raises BackendError for one that is not of this kind and form."""
        try:
            header = wire.header(self._line.head())
            if header.kind is wire.Kind.ERROR:
                text = bytearray(header.body_bytes)
                self._line.body(wire.NOTHING, [memoryview(text)])
                raise BackendError(f"{self._peer} says: {text.decode(errors='replace')}")
        except (EOFError, OSError) as error:
            raise self._gone(error) from error
        if header.kind is not kind:
            raise BackendError(f"a {header.kind.name} came in place of a {kind.name}")
        wire.check_size(header, form)

    def _gone(self, error: Exception) -> BackendError:
        if isinstance(error, EOFError):
            return BackendError(f"{self._peer} closed the connection")
        return BackendError(f"receiving from {self._peer} failed: {error}")


LineMaker = Callable[[socket.socket, handshake.Place], wire.AnyLine | None]
"""The line by a connection that was let in; None where others that belong to it are still to come. Raises BackendError,
OSError."""


class Server:
    """The end towards the previous host: listens on the data address only, and has a conversation on each line."""

    def __init__(self, address: str, token: str, name: str, line: LineMaker) -> None:
        """name: of the backend, for messages."""
        self.name, self._line = name, line
        self.served: tuple[Stage, AnyClient | None] | None = None
        """The stage, and the client of the next host, which is one line's at a time."""
        self._lines = set[wire.AnyLine]()
        self._door = handshake.Door(address, token, self._let_in, name)
        self.address, self.port = self._door.address, self._door.port

    def serve(self, stage: Stage, onward: AnyClient | None = None) -> None:
        self.served = (stage, onward)
        requests = _requests(stage)
        for line in list(self._lines):
            with contextlib.suppress(*ENDED):
                line.expect(requests)

    def close(self) -> None:
        self._door.close()

    def _let_in(self, sock: socket.socket, place: handshake.Place) -> None:
        try:
            line = self._line(sock, place)
        except (OSError, BackendError) as error:
            print(f"{self.name}: {error}", file=sys.stderr)
            sock.close()
            return
        if line is not None:
            self._lines.add(line)
            Conversation(line, self).run()
            self._lines.discard(line)


class Conversation:
    """Receives the previous host's requests and answers them, until that host ends it. A fault is the last thing said.
    All that still comes is thrown away: who is in the middle of sending is to hear of the fault."""

    def __init__(self, line: wire.AnyLine, server: Server) -> None:
        self._line = line
        self._server = server
        self._served = _Served(None, self)
        self._pipeline = Pipeline(server.name)
        self._saying = threading.Lock()
        self._failed = False

    def run(self) -> None:
        try:
            while not self._failed:
                self._hear()
        except EOFError:
            pass
        except Exception as error:  # also of a quick stage, or of memory: the edge must hear of it
            self.fail(fault_text(error))
        with contextlib.suppress(EOFError, OSError):
            self._line.drain()
        self._pipeline.close()
        self._line.close()
        self._served = _Served(None, self)  # its buffers go at once, and not when garbage is collected

    def _hear(self) -> None:
        """Take the next message. EOFError at the end of the stream."""
        awaited = self._now_served()
        buffer = tensors, views = awaited.take()  # waits for one, which is what holds a fast sender back
        if not self._pipeline.computes:
            self._line.idle()
        head = self._line.message(awaited.like, views)
        # Another stage may be served since this end began to wait.
        served = awaited if self._server.served is awaited.given else self._now_served()
        if head is None:
            awaited.left(buffer)
            if served is awaited:
                self._take_other(wire.header(self._line.head()))
            return
        if served is not awaited and not served.like.has(head):
            raise BackendError(ANOTHER)
        if served.like.form.varies:
            tensors = (tensors[0][: served.like.body(head).nbytes],)
        # One that was made for another stage is not used again.
        self._pipeline.put(served, wire.number(head), tensors, buffer if served is awaited else None)

    def _now_served(self) -> _Served:
        given = self._server.served
        if given is not self._served.given:
            self._served = _Served(given, self)
        return self._served

    def _take_other(self, header: wire.Header) -> None:
        """Take a message that is no request for the served stage: a warm-up is answered, all else is a BackendError."""
        if header.kind is wire.Kind.WARM:
            self._line.skip(header.body_bytes)
            self.say(wire.message(wire.Kind.WARM, 0))
            return
        if header.kind is not wire.Kind.REQUEST:
            raise BackendError(f"a {header.kind.name} came in place of a request")
        if header.fingerprint == self._served.like.fingerprint:
            wire.check_size(header, self._served.like.form)
        raise BackendError(ANOTHER)

    def say(self, head: bytes, body: Sequence[memoryview] = ()) -> None:
        with self._saying:
            if not self._failed:
                self._line.send(head, body)

    def fail(self, text: str) -> None:
        with self._saying:
            if self._failed:
                return
            self._failed = True
            try:
                body = text.encode()[: wire.MAX_TEXT]
                self._line.send(wire.message(wire.Kind.ERROR, len(body)), [memoryview(body)])
                self._line.end()
            except (OSError, EOFError) as error:  # nobody is there to hear it
                why = getattr(error, "strerror", None) or error
                print(f"{self._server.name}: {text}; the other end is gone: {why}", file=sys.stderr)


_Buffer = tuple[Tensors, list[memoryview]]
"""Tensors to receive into, and their bytes."""


class _Served(Work):
    """A stage's work, how requests for it look, and buffers that go round between receiving and the pipeline."""

    reused = True

    def __init__(self, given: tuple[Stage, AnyClient | None] | None, by: Conversation) -> None:
        self.given, self._by = given, by
        self.like = wire.Likeness(wire.Kind.REQUEST, wire.NOTHING, b"")  # like no message
        if given is not None:
            super().__init__(*given)
            self.like = _requests(self.stage)
        self._replies = wire.Likeness(wire.Kind.REPLY, wire.NOTHING)
        self._serialization = Serialization()
        self._free: list[_Buffer] = []
        self._count: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(BUFFERS):
            tensors = wire.empty(self.like.form)
            self.left((tensors, wire.views(tensors)))

    def take(self) -> _Buffer:
        """The buffer that was free last, as the processor's cache may still hold it; waits until one is."""
        self._count.get()
        return self._free.pop()

    def left(self, memory: Any) -> None:
        if memory is not None:
            self._free.append(memory)
            self._count.put(None)

    def answer(self, number: int, result: Tensors, stages_s: tuple[float, ...], serialize_s: float) -> None:
        form, body, own_s = self._serialization.of(result)
        if form is not self._replies.form:
            self._replies = wire.Likeness(wire.Kind.REPLY, form)
        self._by.say(self._replies.told(number, stages_s, serialize_s + own_s), body)

    def fail(self, text: str) -> None:
        self._by.fail(text)


def _requests(stage: Stage) -> wire.Likeness:
    """The likeness of all requests for a stage."""
    return wire.Likeness(wire.Kind.REQUEST, wire.form(stage.takes), stage.fingerprint)

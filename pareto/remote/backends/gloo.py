"""Tensors by torch.distributed's send and recv over Gloo, in a group of two on the data address.

A message's header is a tensor of its own before its tensors, each sent from and received into where it lies, as in
PyTorch's own pipelines. Gloo sends what the other end has asked for: where messages are alike, the next one's tensors
are asked for with its header, or each would wait for one more round trip. So tensors have a tag, which is another one
as soon as a message is unlike the one before: what was asked for in vain stays so, and nothing is written there.
Gloo has no authentication: run it on a link that you trust.
"""

from __future__ import annotations

import atexit
import functools
import os
import socket
import struct
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import ProcessGroupGloo, TCPStore  # type: ignore[attr-defined]

from pareto.protocol.constants import MOST_IN_FLIGHT
from pareto.protocol.errors import BackendError
from pareto.remote.backends import wire
from pareto.remote.backends.handshake import exactly
from pareto.remote.backends.parts import OPEN, TOP, PartLine, PartTransport, close_all, undescribed
from pareto.remote.backends.tls import within

MEET = timedelta(seconds=60)
IDLE = timedelta(days=1)
"""The most that nothing comes for: a host waits for its next stage meanwhile."""
GONE = "closed by peer", "reset by peer", "Broken pipe"
"""Words by which Gloo tells of a connection that has ended."""
OF_HEADERS, OF_OTHERS = 0, 1
"""Tags: of headers, and of what is neither request nor reply; greater ones are of these."""
_PORT, _TAG = struct.Struct("!H"), struct.Struct("!I")


class GlooLine(PartLine):
    """A line by a group of two: the end that listens is rank 0."""

    def __init__(self, sock: socket.socket, *, near: bool) -> None:
        super().__init__(sock, near=near)
        ours, theirs = sock.getsockname()[0], sock.getpeername()[0]
        self._peer = int(not near)
        self._top = memoryview(bytearray(TOP + _TAG.size))
        self._key_out = self._key_in = b""
        self._tag_out = self._tag_in = OF_OTHERS
        self._asked: tuple[list[memoryview], list[Any]] | None = None
        """The next message's tensors, if it is like the last one: into where, and how far that is."""
        self._in_vain: list[Any] = []
        self._given: deque[Any] = deque(maxlen=4 * MOST_IN_FLIGHT)
        """The last sends: none may be forgotten before it is taken."""
        meet = functools.partial(TCPStore, world_size=2, timeout=MEET, wait_for_workers=False)
        if near:
            (port,) = _PORT.unpack(exactly(sock, _PORT.size))
            store = meet(theirs, port, is_master=False)
        else:
            # A socket on the data address, for TCPStore's own choice is every address.
            listener = socket.create_server((ours, 0))
            port = listener.getsockname()[1]
            store = meet(ours, port, is_master=True, master_listen_fd=listener.detach())
            sock.sendall(_PORT.pack(port))
        options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        options._devices = [ProcessGroupGloo.create_device(hostname=ours)]
        options._timeout = IDLE
        self._group: Any = ProcessGroupGloo(store, int(near), 2, options)

    def give(self, parts: Sequence[memoryview]) -> None:
        """As of all lines; the end that sends requests does not wait until they are taken, as tensors stay until the
        reply is there: it would not hear of a fault."""
        top, *tensors = parts
        key = wire.key(top) if top[6] in (wire.Kind.REQUEST, wire.Kind.REPLY) else b""
        if key and key != self._key_out:
            self._key_out, self._tag_out = key, self._tag_out + 1
        tag = self._tag_out if key else OF_OTHERS
        with _Ended():
            given = [self._begun("send", memoryview(bytearray(bytes(top) + _TAG.pack(tag))), OF_HEADERS)]
            given += [self._begun("send", part, tag) for part in tensors]
            if self.near:
                self._given.extend(given)
                return
            for work in given:
                work.wait()

    def take(self, view: memoryview) -> None:
        tag = OF_HEADERS if view is self._top else _TAG.unpack(self._top[TOP:])[0]
        with _Ended():
            self._begun("recv", view, tag).wait()

    def message(self, like: wire.Likeness, views: Sequence[memoryview]) -> memoryview | None:
        wanted = [view for view in (undescribed(like.form), *views) if len(view)]
        if self._asked is None and like.key == self._key_in and not like.form.varies:
            with _Ended():
                self._asked = wanted, [self._begun("recv", view, self._tag_in) for view in wanted]
        head = self.head()
        if not like.has(head):
            self.put_back(head)
            return None
        (tag,) = _TAG.unpack(self._top[TOP:])
        if self._asked is None or tag != self._tag_in:
            self._in_vain += [self._asked] if self._asked else []
            self._asked, self._key_in, self._tag_in = None, wire.key(head), tag
            form = like.body(head)
            self.body(form, within(views, 0, form.nbytes))
            return head
        (there, works), self._asked = self._asked, None
        with _Ended():
            for work in works:
                work.wait()
        for view, came in zip(wanted, there, strict=True):
            if view is not came:  # another message had come before
                view[:] = came
        self.check(like.form, wanted[0] if len(wanted) > len([*filter(len, views)]) else memoryview(b""))
        return head

    def close(self) -> None:
        """As of all lines. Nothing but the other end wakes who waits in Gloo: it is told, and tells us as it closes."""
        with suppress(EOFError, RuntimeError):
            self._begun("send", memoryview(bytearray(TOP + _TAG.size)), OF_HEADERS)
        self._group = None
        self._given.clear()
        super().close()

    def _begun(self, what: str, view: memoryview, tag: int) -> Any:
        if (group := self._group) is None:
            raise EOFError
        there = memoryview(bytearray(view)) if view.readonly else view
        return getattr(group, what)([torch.frombuffer(there, dtype=torch.uint8)], self._peer, tag)


class _Ended:
    """A context where a connection that has ended is an EOFError, and each other fault of Gloo a BackendError."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, RuntimeError):
            return
        if any(words in str(error) for words in GONE):
            raise EOFError from None
        raise BackendError(f"gloo: {str(error).splitlines()[0].rpartition('] ')[2]}") from None


@atexit.register
def _leave() -> None:
    """Close what is open. A thread that Gloo still holds when Python ends would have C++ end the process in noise."""
    if any(isinstance(line, GlooLine) for line in OPEN):
        close_all()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


class Transport(PartTransport):
    line, name, copies = GlooLine, "gloo", False


_transport = Transport()
serve, connect = _transport.serve, _transport.connect

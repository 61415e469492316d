"""Tensors by torch.distributed's send and recv over Gloo, in a group of two on the data address.

A message's header is a tensor of its own before its tensors, each sent from where it lies. Gloo sends what the other
end has asked for, and each question takes as long as the link delays it: so both ends ask ahead, for as many messages
as may be under way. Tensors of one form have a tag of their own. Whatever was asked for and did not come waits for the
next message of that form.
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
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.distributed import ProcessGroupGloo, TCPStore  # type: ignore[attr-defined]

from pareto.protocol.constants import MOST_IN_FLIGHT
from pareto.protocol.errors import BackendError
from pareto.remote.backends import wire
from pareto.remote.backends.handshake import exactly, rtt_s
from pareto.remote.backends.parts import OPEN, TOP, PartLine, PartTransport, close_all, undescribed
from pareto.remote.backends.tls import within

MEET = timedelta(seconds=60)
IDLE = timedelta(days=1)
"""The most that nothing comes for: a host waits for its next stage meanwhile."""
GONE = "closed by peer", "reset by peer", "Broken pipe"
"""Words by which Gloo tells of a connection that has ended."""
COPIED_BYTES, NEAR_S = 1 << 16, 1e-3
"""Over a shorter round trip than this a larger message is asked for with its header, and comes to where it belongs."""
AHEAD_BYTES = 8 << 20
"""How much is asked for ahead of one form at most."""
OF_HEADERS, OF_OTHERS = 0, 1
"""Tags: of headers, and of what is neither request nor reply; greater ones are of these."""
_PORT, _TAG = struct.Struct("!H"), struct.Struct("!I")


class _Asked(NamedTuple):
    """What was asked for: into where, and how far that is."""

    there: list[memoryview]
    works: list[Any]

    def into(self, views: Sequence[memoryview]) -> None:
        """Wait until it has come, and have it in these views."""
        for view, came, work in zip(views, self.there, self.works, strict=True):
            work.wait()
            if view is not came:
                view[:] = came


class GlooLine(PartLine):
    """A line by a group of two: the end that listens is rank 0."""

    def __init__(self, sock: socket.socket, *, near: bool) -> None:
        super().__init__(sock, near=near)
        ours, theirs = sock.getsockname()[0], sock.getpeername()[0]
        self._peer = int(not near)
        self._top = memoryview(bytearray(TOP + _TAG.size))
        self._is_near = rtt_s(sock) < NEAR_S
        self._tags: dict[bytes, int] = {}
        """By key of a message, the tag of its tensors, as this end sends them."""
        self._asked: dict[bytes, tuple[int, deque[_Asked]]] = {}
        """By key, the tag of what comes, and the tensors that were asked for."""
        self._heads: deque[_Asked] = deque()
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
        tag = OF_OTHERS
        if top[6] in (wire.Kind.REQUEST, wire.Kind.REPLY):
            tag = self._tags.setdefault(wire.key(top), OF_OTHERS + 1 + len(self._tags))
        with _Ended():
            given = [self._begun("send", memoryview(bytearray(bytes(top) + _TAG.pack(tag))), OF_HEADERS)]
            given += [self._begun("send", part, tag) for part in tensors]
            if self.near:
                self._given.extend(given)
                return
            for work in given:
                work.wait()

    def take(self, view: memoryview) -> None:
        with _Ended():
            if view is not self._top:
                self._begun("recv", view, _TAG.unpack(self._top[TOP:])[0]).wait()
                return
            while len(self._heads) < MOST_IN_FLIGHT:
                self._heads.append(self._ask([memoryview(bytearray(len(self._top)))], OF_HEADERS))
            self._heads.popleft().into([view])

    def message(self, like: wire.Likeness, views: Sequence[memoryview]) -> memoryview | None:
        wanted = [view for view in (undescribed(like.form), *views) if len(view)]
        known = None if like.form.varies else self._asked.get(like.key)
        if known is not None:
            tag, asked = known
            depth = self._depth(like.form.nbytes)
            with _Ended():
                while len(asked) < depth:
                    there = wanted if depth == 1 else [np.empty(len(view), np.uint8).data for view in wanted]
                    asked.append(self._ask(there, tag))
        head = self.head()
        if not like.has(head):
            self.put_back(head)
            return None
        if known is None:
            if not like.form.varies:
                self._asked[like.key] = _TAG.unpack(self._top[TOP:])[0], deque()
            form = like.body(head)
            self.body(form, within(views, 0, form.nbytes))
            return head
        with _Ended():
            asked.popleft().into(wanted)
        self.check(like.form, wanted[0] if len(wanted) > len([*filter(len, views)]) else memoryview(b""))
        return head

    def close(self) -> None:
        """As of all lines. Nothing but the other end wakes who waits in Gloo: it is told, and tells us as it closes."""
        with suppress(EOFError, RuntimeError):
            self._begun("send", memoryview(bytearray(TOP + _TAG.size)), OF_HEADERS)
        self._group = None
        self._given.clear()
        super().close()

    def _depth(self, nbytes: int) -> int:
        """How many messages of a size are asked for ahead."""
        if self._is_near and nbytes > COPIED_BYTES:
            return 1
        return max(1, min(MOST_IN_FLIGHT, AHEAD_BYTES // max(1, nbytes)))

    def _ask(self, there: list[memoryview], tag: int) -> _Asked:
        return _Asked(there, [self._begun("recv", view, tag) for view in there])

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

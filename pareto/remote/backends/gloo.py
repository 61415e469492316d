"""Tensors by torch.distributed's send and recv over Gloo, in a group of two on the data address.

A message's header is a tensor of its own before its tensors, each sent from where it lies. Gloo sends what the other
end has asked for, and each question takes as long as the link delays it: so both ends ask ahead, for as many messages
as may be under way. Tensors of one form have a tag that both ends know: whatever was asked for and did not come waits
for the next message of that form. Over a short round trip a large message is asked for with its header only, into the
memory where it belongs, which may be gone when such a form comes again: its tag is another one then.
Gloo has no authentication: run it on a link that you trust.
"""

from __future__ import annotations

import atexit
import functools
import math
import os
import socket
import struct
import sys
import threading
import zlib
from collections import defaultdict, deque
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
SMALL_BYTES, SHORT_S = 1 << 16, 1e-3
"""A larger message, and a longer round trip, are large and long."""
AHEAD_BYTES = 8 << 20
"""How much is asked for ahead of one form at most."""
OF_HEADERS, OF_OTHERS, OF_FORMS = 0, 1, 1 << 20
"""Tags: of headers; of what is neither request nor reply; from there on, of what is asked for with its header, in the
order in which that is sent; and of all other forms, by their bytes. A tag has 31 bits."""
_MEET, _TAG = struct.Struct("!H?"), struct.Struct("!I")
"""The port, and whether the round trip is short; the tag behind a header."""


class _Asked(NamedTuple):
    """Tensors that were asked for: into where, and how far that is."""

    there: list[memoryview]
    works: list[Any]

    def into(self, views: Sequence[memoryview]) -> None:
        """Wait until it has come, and have it in these views."""
        for view, came, work in zip(views, self.there, self.works, strict=True):
            work.wait()
            if view is not came:
                view[:] = came


def _tag(key: bytes) -> int:
    return OF_FORMS + zlib.crc32(key) % ((1 << 31) - OF_FORMS)


class GlooLine(PartLine):
    """A line by a group of two: the end that listens is rank 0."""

    def __init__(self, sock: socket.socket, *, near: bool) -> None:
        super().__init__(sock, near=near)
        ours, theirs = sock.getsockname()[0], sock.getpeername()[0]
        self._peer = int(not near)
        self._top = memoryview(bytearray(TOP + _TAG.size))
        self._last, self._tag_out = b"", OF_OTHERS
        """The key and the tag of what was sent last in place."""
        self._asked = defaultdict[bytes, deque[_Asked]](deque)
        """By key, the tensors that were asked for."""
        self._tags_in: dict[bytes, int] = {}
        """By key, the tag of what comes in place."""
        self._asking = threading.Lock()
        self._in_vain: list[object] = []
        self._heads: deque[_Asked] = deque()
        self._given: deque[Any] = deque(maxlen=4 * MOST_IN_FLIGHT)
        """The last sends: none may be forgotten before it is taken."""
        meet = functools.partial(TCPStore, world_size=2, timeout=MEET, wait_for_workers=False)
        if near:
            port, self._is_short = _MEET.unpack(exactly(sock, _MEET.size))
            store = meet(theirs, port, is_master=False)
        else:
            # A socket on the data address, for TCPStore's own choice is every address.
            listener = socket.create_server((ours, 0))
            port = listener.getsockname()[1]
            store = meet(ours, port, is_master=True, master_listen_fd=listener.detach())
            self._is_short = rtt_s(sock) < SHORT_S
            sock.sendall(_MEET.pack(port, self._is_short))
        options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        options._devices = [ProcessGroupGloo.create_device(hostname=ours)]
        options._timeout = IDLE
        self._group: Any = ProcessGroupGloo(store, int(near), 2, options)
        for _ in range(MOST_IN_FLIGHT):
            self._ask_head()

    def give(self, parts: Sequence[memoryview]) -> None:
        """As of all lines; the end that sends requests does not wait until they are taken, as tensors stay until the
        reply is there: it would not hear of a fault."""
        top, *tensors = parts
        tag = OF_OTHERS
        if top[6] in (wire.Kind.REQUEST, wire.Kind.REPLY):
            key = wire.key(top)
            if self._in_place(int.from_bytes(key[-8:], "big")):
                self._tag_out += key != self._last
                tag = self._tag_out
            else:
                tag = _tag(key)
            self._last = key
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
            self._ask_head()
            self._heads.popleft().into([view])

    def expect(self, like: wire.Likeness) -> None:
        nbytes = like.form.nbytes
        if like.form.varies or not nbytes or self._in_place(nbytes):
            return
        sizes = [
            len(undescribed(like.form)),
            *(math.prod(shape) * dtype.itemsize for dtype, shape in like.form.specs),
        ]
        asked = self._asked[like.key]
        with _Ended(), self._asking:
            while len(asked) < max(1, min(MOST_IN_FLIGHT, AHEAD_BYTES // nbytes)):
                asked.append(
                    self._ask([np.empty(size, np.uint8).data for size in sizes if size], _tag(like.key))
                )

    def message(self, like: wire.Likeness, views: Sequence[memoryview]) -> memoryview | None:
        wanted = [view for view in (undescribed(like.form), *views) if len(view)]
        self.expect(like)
        asked = self._asked[like.key]
        if not asked and like.key in self._tags_in:
            with _Ended():
                asked.append(self._ask(wanted, self._tags_in[like.key]))
        head = self.head()
        if not like.has(head):
            self.put_back(head)
            return None
        (tag,) = _TAG.unpack(self._top[TOP:])
        comes_in_place = tag < OF_FORMS and not like.form.varies
        if comes_in_place and not self._in_place(like.form.nbytes):
            raise BackendError("a message comes under another tag than both ends know")
        if not asked or (comes_in_place and tag != self._tags_in[like.key]):
            if comes_in_place:
                self._in_vain.append(self._asked.pop(like.key))
                self._tags_in[like.key] = tag
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

    def _in_place(self, nbytes: int) -> bool:
        """Whether a message of this size comes to where it belongs, and is asked for with its header."""
        return self._is_short and nbytes > SMALL_BYTES

    def _ask_head(self) -> None:
        self._heads.append(self._ask([memoryview(bytearray(len(self._top)))], OF_HEADERS))

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

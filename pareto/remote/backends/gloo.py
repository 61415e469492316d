"""Tensors by torch.distributed's send and recv over Gloo, in a group of two on the data address.

A message's header is a tensor of its own before its tensors, each sent from and received into where it lies, as in
PyTorch's own pipelines. Gloo has no authentication: run it on a link that you trust.
"""

from __future__ import annotations

import atexit
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
from pareto.remote.backends.handshake import exactly
from pareto.remote.backends.parts import OPEN, TOP, PartLine, PartTransport, close_all

MEET = timedelta(seconds=60)
IDLE = timedelta(days=1)
"""The most that nothing comes for: a host waits for its next stage meanwhile."""
GONE = "closed by peer", "reset by peer", "Broken pipe"
"""Of Gloo's words for a connection that has ended."""
_PORT = struct.Struct("!H")


class GlooLine(PartLine):
    """A line by a group of two: the end that listens is rank 0."""

    def __init__(self, sock: socket.socket, *, near: bool) -> None:
        super().__init__(sock)
        ours, theirs = sock.getsockname()[0], sock.getpeername()[0]
        self._near, self._peer = near, int(not near)
        self._given: deque[Any] = deque(maxlen=4 * MOST_IN_FLIGHT)
        """What was sent last: a message must not be forgotten before it is taken."""
        if near:
            (port,) = _PORT.unpack(exactly(sock, _PORT.size))
            store = TCPStore(theirs, port, 2, is_master=False, timeout=MEET, wait_for_workers=False)
        else:
            # A socket on the data address, for TCPStore's own choice is every address.
            listener = socket.create_server((ours, 0))
            port = listener.getsockname()[1]
            store = TCPStore(
                ours,
                port,
                2,
                is_master=True,
                timeout=MEET,
                wait_for_workers=False,
                master_listen_fd=listener.detach(),
            )
            sock.sendall(_PORT.pack(port))
        options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        options._devices = [ProcessGroupGloo.create_device(hostname=ours)]
        options._timeout = IDLE
        self._group: Any = ProcessGroupGloo(store, int(near), 2, options)

    def give(self, parts: Sequence[memoryview]) -> None:
        """As of all lines; the end that sends requests does not wait until they are taken, as tensors stay until the
        reply is there: it would not hear of a fault."""
        with _Ended():
            given = [self._begun("send", part) for part in parts]
            if self._near:
                self._given.extend(given)
                return
            for work in given:
                work.wait()

    def take(self, view: memoryview) -> None:
        with _Ended():
            self._begun("recv", view).wait()

    def close(self) -> None:
        """As of all lines. Nothing but the other end wakes who waits in Gloo: it is told, and tells us as it closes."""
        with suppress(EOFError, RuntimeError):
            self._begun("send", memoryview(bytearray(TOP)))
        self._group = None
        self._given.clear()
        super().close()

    def _begun(self, what: str, view: memoryview) -> Any:
        if (group := self._group) is None:
            raise EOFError
        there = memoryview(bytearray(view)) if view.readonly else view
        return getattr(group, what)([torch.frombuffer(there, dtype=torch.uint8)], self._peer, 0)


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
    name, copies = "gloo", False

    def near(self, sock: socket.socket) -> GlooLine:
        return GlooLine(sock, near=True)

    def far(self, sock: socket.socket) -> GlooLine:
        return GlooLine(sock, near=False)


_transport = Transport()
serve, connect = _transport.serve, _transport.connect

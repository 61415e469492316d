"""A tcp connection that carries messages: tensors go straight out of their own memory, and into it."""

from __future__ import annotations

import contextlib
import math
import socket
from collections.abc import Sequence

from pareto.backends import wire
from pareto.backends.base import BackendError

AHEAD = 16 << 10
"""Bytes read at once where a message begins. A smaller one costs one call into the kernel, header, tensors and all;
copying so much takes less time than a second call."""


class Line:
    """One connection. All methods raise BackendError for nonsense, and OSError. One thread may send, one receive."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._ahead = memoryview(bytearray(AHEAD))
        self._begin = self._end = 0
        """What of `_ahead` has come and was not taken yet."""

    def send(self, head: bytes, body: Sequence[memoryview] = ()) -> None:
        """One message; its memory may be used again when this returns."""
        wire.send(self._sock, head, body)

    def end(self) -> None:
        """Nothing more is sent."""
        self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # it may be broken
            self._sock.shutdown(socket.SHUT_RDWR)  # wakes who still waits for a message: closing does not
        self._sock.close()

    def head(self) -> memoryview:
        """The next message's header, good until the next call. EOFError at the end of the stream."""
        return self._take(wire.HEADER.size, at_start=True)

    def body(self, form: wire.Form, views: list[memoryview]) -> None:
        """The rest of a message, which must have this form: each tensor's bytes into its memory."""
        if self._take(len(form.descriptors)) != form.descriptors:
            raise BackendError("tensors of another dtype or shape came than were expected")
        for view in views:
            ahead = min(len(view), self._end - self._begin)
            view[:ahead] = self._ahead[self._begin : self._begin + ahead]
            self._begin += ahead
            if ahead < len(view):
                self._fill(view[ahead:])

    def text(self, header: wire.Header) -> str:
        """The body of an error."""
        if header.body_bytes > wire.MAX_TEXT:
            raise BackendError(f"an error text of {header.body_bytes} bytes came")
        return bytes(self._take(header.body_bytes)).decode(errors="replace")

    def discard(self, nbytes: int | None = None) -> None:
        """Read a body and forget it, or all that still comes. EOFError where the stream ends."""
        left = math.inf if nbytes is None else nbytes
        came = int(min(left, self._end - self._begin))
        self._begin += came
        left -= came
        scratch = memoryview(bytearray(int(min(left, 1 << 18))))
        while left:
            count = self._sock.recv_into(scratch[: int(min(left, len(scratch)))])
            if not count:
                raise EOFError
            left -= count

    def _fill(self, view: memoryview) -> None:
        while view:
            came = self._sock.recv_into(view, 0, socket.MSG_WAITALL)
            if not came:
                raise BackendError("the peer closed the connection in the middle of a message")
            view = view[came:]

    def _take(self, count: int, *, at_start: bool = False) -> memoryview:
        """So many bytes from the beginning of a message: at most `AHEAD`, good until the next call."""
        begin = self._begin
        if begin == self._end or begin + count > AHEAD:
            left = self._end - begin
            self._ahead[:left] = self._ahead[begin : self._end]
            begin, self._end = 0, left
        while self._end < begin + count:
            came = self._sock.recv_into(self._ahead[self._end :])
            if not came:
                if at_start and begin == self._end:
                    raise EOFError
                raise BackendError("the peer closed the connection in the middle of a message")
            self._end += came
        self._begin = begin + count
        return self._ahead[begin : self._begin]

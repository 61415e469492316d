"""A socket whose bytes are encrypted and authenticated: what `wire.Line` and `stripes.Stripes` use of a socket.

Two ways to do it have a module each: `tls` and `aes_gcm`. Both cut what is sent into records, so that the first bytes
of a large payload are decrypted while the last are on their way. Nothing is handed out that is not authentic, complete
and in its place: one byte changed, a record left out, sent twice or out of order raises `Tampered`, once and for all.

The kernel's calls are made without a lock: one thread may send while another receives.
"""

from __future__ import annotations

import contextlib
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from pareto.backends.base import BackendError
from pareto.backends.handshake import TIMEOUT_S, Place

AT_ONCE = 256 << 10
"""Bytes that are encrypted, sent and received at once: more does not save time, less costs calls into the kernel."""
READY = b"ok"
"""What each end sends first: whoever reads it knows that the other end has the run's key."""


class Tampered(BackendError, OSError):
    """What came is not what the other end sent."""


class Seal(ABC):
    """A way to encrypt the connections of a run."""

    @abstractmethod
    def sealed(self, sock: socket.socket, place: Place, *, server: bool) -> Sealed:
        """This connection, encrypted from here on, once both ends have proven that they know the run's keys.

        Raises BackendError, OSError.
        """


class Sealed(ABC):
    """An encrypted connection, blocking or not."""

    def __init__(self, sock: socket.socket) -> None:
        self.beneath = sock
        self._taken = 0
        self._unsent = memoryview(b"")
        """What is encrypted of `_taken` bytes, and did not leave yet."""
        self._fault: Tampered | None = None

    @abstractmethod
    def _seal(self, parts: Sequence[memoryview]) -> tuple[int, memoryview]:
        """Encrypt up to `AT_ONCE` bytes from the start of these parts: how many, and what is to be sent of them."""

    @abstractmethod
    def _room(self) -> memoryview:
        """Memory to receive into."""

    @abstractmethod
    def _came(self, count: int) -> None:
        """So many bytes came into the room."""

    @abstractmethod
    def _open(self, view: memoryview) -> int:
        """Decrypt into `view` of what came; the number of bytes, 0 if no record is there whole. Raises Tampered."""

    def sendmsg(self, parts: Sequence[memoryview]) -> int:
        """Send from the start of these parts; the number of bytes.

        After a BlockingIOError the same parts must come again: they are encrypted already. Raises OSError.
        """
        if not self._unsent:
            self._taken, self._unsent = self._seal(parts)
        while self._unsent:
            self._unsent = self._unsent[self.beneath.send(self._unsent) :]
        return self._taken

    def recv_into(self, view: memoryview, nbytes: int = 0, flags: int = 0) -> int:
        """Receive up to as many bytes as `view` has, or with MSG_WAITALL all of them; 0 at the end of the stream.

        Raises Tampered, OSError.
        """
        view, count = view[: nbytes or None], 0
        while count < len(view):
            if opened := self._opened(view[count:]):
                count += opened
                continue
            if count and not flags & socket.MSG_WAITALL:
                break
            try:
                came = self.beneath.recv_into(self._room())
            except BlockingIOError:
                if count:
                    break
                raise
            if not came:
                break
            self._came(came)
        return count

    def recvmsg_into(self, parts: Sequence[memoryview]) -> tuple[int, list[object], int, object]:
        """Receive what is there, up to as many bytes as these parts have. For a socket that does not block."""
        count = 0
        for part in parts:
            try:
                came = self.recv_into(part, 0, socket.MSG_WAITALL)
            except BlockingIOError:
                if count:
                    break
                raise
            count += came
            if came < len(part):
                break
        return count, [], 0, None

    def fileno(self) -> int:
        return self.beneath.fileno()

    def setblocking(self, flag: bool) -> None:
        self.beneath.setblocking(flag)

    def setsockopt(self, level: int, option: int, value: int) -> None:
        self.beneath.setsockopt(level, option, value)

    def shutdown(self, how: int) -> None:
        self.beneath.shutdown(how)

    def close(self) -> None:
        self.beneath.close()

    def _opened(self, view: memoryview) -> int:
        if self._fault is not None:
            raise self._fault
        try:
            return self._open(view)
        except Tampered as fault:
            self._fault = fault
            raise

    def _confirm(self) -> None:
        """Wait until both ends know that the other one has the keys."""
        self.sendmsg([memoryview(READY)])
        answer = memoryview(bytearray(len(READY)))
        if self.recv_into(answer, 0, socket.MSG_WAITALL) < len(READY):
            raise BackendError(
                "the other end closed the connection before it was encrypted: it has other keys"
            )
        if answer != READY:
            raise BackendError("the other end does not speak this protocol")


@contextlib.contextmanager
def in_time(sock: socket.socket) -> Iterator[float]:
    """What `time.monotonic` shows at the latest when a connection is encrypted; then the socket blocks again."""
    sock.settimeout(TIMEOUT_S)
    yield time.monotonic() + TIMEOUT_S
    sock.settimeout(None)


def pieces(parts: Sequence[memoryview], scratch: memoryview) -> Iterator[memoryview]:
    """Cut what lies in these parts, up to `AT_ONCE` bytes, into pieces as long as `scratch`; the last may be shorter.

    A piece that lies in several parts is gathered in `scratch`, and good until the next one.
    """
    left = min(AT_ONCE, sum(map(len, parts)))
    number = begin = 0
    while left:
        most, part = min(left, len(scratch)), parts[number]
        if len(part) - begin >= most:
            piece = part[begin : begin + most]
            begin += most
        else:
            filled = 0
            while filled < most:
                some = parts[number][begin : begin + most - filled]
                scratch[filled : filled + len(some)] = some
                filled += len(some)
                begin += len(some)
                if begin == len(parts[number]):
                    number, begin = number + 1, 0
            piece = scratch[:most]
        yield piece
        left -= most
        while number < len(parts) and begin == len(parts[number]):
            number, begin = number + 1, 0


def beneath(sock: socket.socket | Sealed) -> socket.socket:
    """The socket that carries the bytes."""
    return sock.beneath if isinstance(sock, Sealed) else sock

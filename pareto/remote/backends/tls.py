"""TLS 1.3 over a connection, by the standard library: with a certificate of the run, which both ends pin.

Each end shows the run's certificate, proves that it has its key, and takes nothing but this very certificate: no
authority is trusted, and no date, as a small device may not know it. The cipher is TLS_AES_256_GCM_SHA384, OpenSSL's
first choice. There are no session tickets, and TLS 1.3 has no renegotiation: after the handshake nothing but payload
crosses. Keys are agreed by ephemeral Diffie-Hellman: whoever gets the run's key later cannot read what was recorded.

A `TlsSocket` has what `wire.Line` and `stripes.Stripes` use of a socket. Data is sent in records, so that the first
bytes of a large payload are decrypted while the last are on their way. Nothing is handed out that is not authentic,
complete and in its place: one byte changed, a record left out, sent twice or out of order raises `Tampered`, once and
for all.

OpenSSL allows one thread at a time in a connection, and here one sends while another receives: it works in memory under
a lock, and the kernel is called without.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence

from pareto.protocol.errors import BackendError
from pareto.remote.backends.handshake import TIMEOUT_S
from pareto.remote.backends.registry import CIPHER

RECORD = 16 << 10
"""The most that TLS puts into a record."""
AT_ONCE = 256 << 10
"""Bytes that are encrypted, sent and received at once: more does not save time, less costs calls into the kernel."""
READY = b"ok"
"""Each end's first message: whoever reads it knows that the other end has the run's key."""


class Tampered(BackendError, OSError):
    """The bytes that came are not those that the other end sent."""


class Tls:
    """The encryption of a run's connections: by the run's certificate and the key of that, both as PEM."""

    def __init__(self, certificate: str, private_key: str) -> None:
        self._pinned = ssl.PEM_cert_to_DER_cert(certificate)
        self._contexts = {
            server: _context(certificate, private_key, server=server) for server in (False, True)
        }

    def sealed(self, sock: socket.socket, *, server: bool) -> TlsSocket:
        """This connection, encrypted from here on, once both ends have proven that they know the run's key.

        Raises BackendError, OSError.
        """
        with in_time(sock):
            made = TlsSocket(sock, self._contexts[server], server=server)
            made.shake_hands(self._pinned)
            made._confirm()
        return made


def _context(certificate: str, private_key: str, *, server: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the certificate itself is pinned
    context.verify_mode = ssl.CERT_REQUIRED
    context.options |= ssl.OP_NO_TICKET
    if server:
        context.num_tickets = 0
    context.load_verify_locations(cadata=certificate)
    memory = os.memfd_create("certificate")  # the module reads files only, and a key belongs on no disk
    try:
        with open(memory, "w", closefd=False) as file:
            file.write(certificate + private_key)
        context.load_cert_chain(f"/proc/self/fd/{memory}")
    finally:
        os.close(memory)
    return context


class TlsSocket:
    """An encrypted connection, blocking or not."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, *, server: bool) -> None:
        self.beneath = sock
        self._taken = 0
        self._unsent = memoryview(b"")
        """Encrypted bytes that did not leave yet: the rest of `_taken` bytes in the clear."""
        self._fault: Tampered | None = None
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=server)
        self._guard = threading.Lock()
        self._gathered = memoryview(bytearray(RECORD))
        self._incoming = memoryview(bytearray(AT_ONCE))

    def shake_hands(self, pinned: bytes) -> None:
        """Raises BackendError unless the other end has this certificate and its key; OSError."""
        try:
            while True:
                try:
                    self._tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    self.beneath.sendall(self._out.read())
                    came = self.beneath.recv_into(self._incoming)
                    if not came:
                        raise BackendError(
                            "the other end closed the connection during TLS's handshake"
                        ) from None
                    self._in.write(self._incoming[:came])
        except ssl.SSLError as error:
            self._alert()
            raise BackendError(f"no TLS: {_reason(error)}") from None
        self.beneath.sendall(self._out.read())
        if not hmac.compare_digest(self._tls.getpeercert(binary_form=True) or b"", pinned):
            raise BackendError("the other end has another certificate than this run's")
        cipher = (self._tls.cipher() or ("none",))[0]
        if cipher != CIPHER:
            raise BackendError(f"TLS chose {cipher} instead of {CIPHER}: OpenSSL is configured to prefer it")

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
                came = self.beneath.recv_into(self._incoming)
            except BlockingIOError:
                if count:
                    break
                raise
            if not came:
                break
            with self._guard:
                self._in.write(self._incoming[:came])
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

    def _seal(self, parts: Sequence[memoryview]) -> tuple[int, memoryview]:
        """Encrypt up to `AT_ONCE` bytes from the start of these parts: how many, and what is to be sent of them."""
        taken = 0
        with self._guard:
            for piece in pieces(parts, self._gathered):
                self._write(piece)
                taken += len(piece)
            return taken, memoryview(self._out.read())

    def _write(self, piece: memoryview) -> None:
        """Raises BrokenPipeError where TLS has ended, by its peer or by a fault, in words instead of OpenSSL's."""
        try:
            self._tls.write(piece)
        except ssl.SSLError:
            raise BrokenPipeError(errno.EPIPE, "its TLS has ended") from None

    def _open(self, view: memoryview) -> int:
        """Decrypt into `view` of what came; the number of bytes, 0 if no record is there whole. Raises Tampered."""
        try:
            with self._guard:
                return int(self._tls.read(len(view), view))
        except ssl.SSLWantReadError:
            return 0
        except ssl.SSLError as error:
            self._alert()
            raise Tampered(f"encrypted data was changed on its way: {_reason(error)}") from None

    def _alert(self) -> None:
        """Send what OpenSSL has to say of a fault, if the kernel takes it now, and nothing after it."""
        with contextlib.suppress(OSError):
            self.beneath.send(self._out.read(), socket.MSG_DONTWAIT)
            self.beneath.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def in_time(sock: socket.socket) -> Iterator[float]:
    """The time of `time.monotonic` by which the connection must be encrypted; then the socket blocks again."""
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


def beneath(sock: socket.socket | TlsSocket) -> socket.socket:
    """The socket that carries the bytes."""
    return sock.beneath if isinstance(sock, TlsSocket) else sock


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()

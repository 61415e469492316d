"""TLS 1.3 over a connection, by the standard library: with a certificate of the run, which both ends pin.

Each end shows the run's certificate, proves that it has its key, and takes nothing but this very certificate: no
authority is trusted, and no date, as a small device may not know it. There are no session tickets, and TLS 1.3 has no
renegotiation: after the handshake nothing but payload crosses. Keys are agreed by ephemeral Diffie-Hellman: whoever
gets the run's key later cannot read what was recorded.

A `TlsSocket` has what `wire.Line` and `stripes.Stripes` use of a socket. Nothing is handed out that is not authentic,
complete and in its place: one byte changed, a record left out, sent twice or out of order raises `Tampered`, once and
for all. OpenSSL allows one thread at a time in a connection, and here one sends while another receives: it works in
memory under a lock, and the kernel is called without.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import os
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence

from pareto.protocol.errors import BackendError
from pareto.protocol.messages import Keys
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
        self._contexts = [_context(certificate, private_key, server=server) for server in (False, True)]

    @classmethod
    def of(cls, keys: Keys) -> Tls | None:
        """None where there are no keys."""
        return cls(keys.certificate, keys.private_key) if keys.certificate else None

    def sealed(self, sock: socket.socket, *, server: bool) -> TlsSocket:
        """This connection, encrypted from here on, once both ends have proven that they know the run's key; closed if
        that fails. Raises BackendError, OSError."""
        try:
            sock.settimeout(TIMEOUT_S)
            made = TlsSocket(sock, self._contexts[server], server=server)
            made.shake_hands(self._pinned)
            sock.settimeout(None)
        except BaseException:
            sock.close()
            raise
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
        self.fileno, self.shutdown, self.close = sock.fileno, sock.shutdown, sock.close
        self.setblocking, self.setsockopt = sock.setblocking, sock.setsockopt
        self._taken = 0
        self._unsent = memoryview(b"")
        """Encrypted bytes that did not leave yet: the rest of `_taken` bytes in the clear."""
        self._fault: Tampered | None = None
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=server)
        self._guard = threading.Lock()
        self._incoming = memoryview(bytearray(AT_ONCE))

    def shake_hands(self, pinned: bytes) -> None:
        """Raises BackendError unless the other end has this certificate and its key, and says so; OSError."""
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
        self.sendmsg([memoryview(READY)])
        answer = memoryview(bytearray(len(READY)))
        if self.recv_into(answer, 0, socket.MSG_WAITALL) < len(READY):
            raise BackendError(
                "the other end closed the connection before it was encrypted: it has other keys"
            )
        if answer != READY:
            raise BackendError("the other end does not speak this protocol")

    def sendmsg(self, parts: Sequence[memoryview]) -> int:
        """Send from the start of these parts; the number of bytes. Raises OSError. After a BlockingIOError the same
        parts must come again: they are encrypted already."""
        if not self._unsent:
            self._taken, self._unsent = self._seal(parts)
        while self._unsent:
            self._unsent = self._unsent[self.beneath.send(self._unsent) :]
        return self._taken

    def sendall(self, data: bytes) -> None:
        """Send all of it, on a connection that blocks. Raises OSError."""
        left = memoryview(data)
        while left:
            left = left[self.sendmsg([left]) :]

    def recv_into(self, view: memoryview, nbytes: int = 0, flags: int = 0) -> int:
        """Receive up to as many bytes as `view` has, or with MSG_WAITALL all of them; 0 at the end of the stream.
        Raises Tampered, OSError."""
        view, count = view[: nbytes or None], 0
        while count < len(view):
            if opened := self._open(view[count:]):
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
        """Receive what is there, up to as many bytes as these parts have; at least one, or 0 at the end of the
        stream."""
        count = 0
        for part in parts:
            filled = 0
            while filled < len(part):
                opened = self._open(part[filled:]) if count + filled else self.recv_into(part)
                if not opened:
                    return count + filled, [], 0, None
                filled += opened
            count += filled
        return count, [], 0, None

    def _seal(self, parts: Sequence[memoryview]) -> tuple[int, memoryview]:
        """Encrypt up to `AT_ONCE` bytes from the start of these parts: how many, and what is to be sent of them. Raises
        BrokenPipeError where TLS has ended, by its peer or by a fault."""
        taken = 0
        try:
            with self._guard:
                for piece in pieces(parts):
                    self._tls.write(piece)
                    taken += len(piece)
                return taken, memoryview(self._out.read())
        except ssl.SSLError:
            raise BrokenPipeError(errno.EPIPE, "its TLS has ended") from None

    def _open(self, view: memoryview) -> int:
        """Decrypt into `view` of what came; the number of bytes, 0 if no record is there whole. Raises Tampered, then
        and ever after."""
        if self._fault is not None:
            raise self._fault
        try:
            with self._guard:
                return int(self._tls.read(len(view), view))
        except ssl.SSLWantReadError:
            return 0
        except ssl.SSLError as error:
            self._alert()
            self._fault = Tampered(f"encrypted data was changed on its way: {_reason(error)}")
            raise self._fault from None

    def _alert(self) -> None:
        """Send what OpenSSL has to say of a fault, if the kernel takes it now, and nothing after it."""
        with contextlib.suppress(OSError):
            self.beneath.send(self._out.read(), socket.MSG_DONTWAIT)
            self.beneath.shutdown(socket.SHUT_WR)


AnySocket = socket.socket | TlsSocket


def pieces(parts: Sequence[memoryview]) -> Iterator[memoryview]:
    """Cut what lies in these parts, up to `AT_ONCE` bytes, into pieces as long as a record; the last may be shorter."""
    total = min(AT_ONCE, sum(map(len, parts)))
    for begin in range(0, total, RECORD):
        views = within(parts, begin, min(begin + RECORD, total))
        yield views[0] if len(views) == 1 else memoryview(b"".join(views))


def within(parts: Sequence[memoryview], begin: int, end: int) -> list[memoryview]:
    """The views of what lies from `begin` to `end` in these parts, laid one after another."""
    views = []
    for part in parts:
        if begin < len(part) and end > 0:
            views.append(part[max(begin, 0) : end])
        begin, end = begin - len(part), end - len(part)
    return views


def beneath(sock: AnySocket) -> socket.socket:
    """The socket that carries the bytes."""
    return sock.beneath if isinstance(sock, TlsSocket) else sock


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()

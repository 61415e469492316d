"""TLS 1.3 over a connection, by the standard library: with a certificate of the run, which both ends pin.

Each end shows the run's certificate, proves that it has its key, and takes nothing but this very certificate: no
authority is trusted, and no date, as a small device may not know it. The cipher is TLS_AES_256_GCM_SHA384, OpenSSL's
first choice. There are no session tickets, and TLS 1.3 has no renegotiation: after the handshake nothing but payload
crosses. Keys are agreed by ephemeral Diffie-Hellman: whoever gets the run's key later cannot read what was recorded.

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
from collections.abc import Sequence

from pareto.backends.base import BackendError
from pareto.backends.handshake import Place
from pareto.backends.sealed import AT_ONCE, Seal, Sealed, Tampered, in_time, pieces

CIPHER = "TLS_AES_256_GCM_SHA384"
RECORD = 16 << 10
"""The most that TLS puts into a record."""


class Tls(Seal):
    """The seal by a run's certificate and its key, both as PEM."""

    def __init__(self, certificate: str, private_key: str) -> None:
        self._pinned = ssl.PEM_cert_to_DER_cert(certificate)
        self._contexts = {
            server: _context(certificate, private_key, server=server) for server in (False, True)
        }

    def sealed(self, sock: socket.socket, place: Place, *, server: bool) -> Sealed:
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


class TlsSocket(Sealed):
    """A connection in TLS."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, *, server: bool) -> None:
        super().__init__(sock)
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

    def _seal(self, parts: Sequence[memoryview]) -> tuple[int, memoryview]:
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

    def _room(self) -> memoryview:
        return self._incoming

    def _came(self, count: int) -> None:
        with self._guard:
            self._in.write(self._incoming[:count])

    def _open(self, view: memoryview) -> int:
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


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()

"""AES-256-GCM over a connection, by keys of its own: no certificates, no negotiation, one key of the run.

    hello       32 random bytes from each end, in the clear
    keys        HKDF-SHA256 of the run's key, salted with both hellos (the client's first), for this place among the
                connections that go together: 32 bytes for what the client sends, 32 for what the server sends
    record      bytes u32 (big endian), as many encrypted bytes, tag of 16 bytes; the nonce is the record's number in
                this direction, from 0, and the first four bytes are authenticated with it

A nonce cannot repeat under a key: both hellos are new for each connection, and a number is used once. A record that is
changed, left out, sent twice or out of order has another nonce than the receiver's, whose tag then differs. The run's
key travels over SSH and stays in memory. Whoever gets it later can read what was recorded of the run: unlike TLS, this
has no forward secrecy.
"""

from __future__ import annotations

import secrets
import socket
import struct
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from pareto.backends.handshake import Place, exactly
from pareto.backends.sealed import AT_ONCE, Seal, Sealed, Tampered, in_time, pieces

RECORD = 64 << 10
"""Bytes of a record but the last of a message: 5 MB/s of encryption are lost to 20 bytes in so many, and its receiver
can begin with it after a quarter of `AT_ONCE`."""
KEY_BYTES = 32
HELLO_BYTES = 32
TAG_BYTES = 16
_LENGTH = struct.Struct("!I")
_NONCE = struct.Struct("!4xQ")
_MOST = _LENGTH.size + RECORD + TAG_BYTES
_PURPOSE = b"pareto tcp aes-256-gcm 1"
_PLACE = struct.Struct("!8sBB")


class AesGcm(Seal):
    """The seal by a run's key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def sealed(self, sock: socket.socket, place: Place, *, server: bool) -> Sealed:
        with in_time(sock) as until:
            own = secrets.token_bytes(HELLO_BYTES)
            sock.sendall(own)
            other = exactly(sock, HELLO_BYTES, until)
            hellos = other + own if server else own + other
            keys = HKDF(SHA256(), 2 * KEY_BYTES, hellos, _PURPOSE + _PLACE.pack(*place)).derive(self._key)
            of_client, of_server = keys[:KEY_BYTES], keys[KEY_BYTES:]
            made = Records(sock, *((of_server, of_client) if server else (of_client, of_server)))
            made._confirm()
        return made


class Records(Sealed):
    """A connection in records. out: the key of what this end sends; back: of what the other one does."""

    def __init__(self, sock: socket.socket, out: bytes, back: bytes) -> None:
        super().__init__(sock)
        self._out, self._back = AESGCM(out), AESGCM(back)
        self._sent = self._received = 0
        """Records."""
        self._gathered = memoryview(bytearray(RECORD))
        self._outgoing = memoryview(bytearray(AT_ONCE // RECORD * _MOST))
        self._incoming = memoryview(bytearray(_MOST + AT_ONCE))
        self._begin = self._end = 0
        """What has come of `_incoming`."""
        self._plain = memoryview(bytearray(RECORD))
        self._left = self._plain[:0]
        """What is decrypted, and did not fit where it belongs."""

    def _seal(self, parts: Sequence[memoryview]) -> tuple[int, memoryview]:
        taken = end = 0
        for piece in pieces(parts, self._gathered):
            head = _LENGTH.pack(len(piece))
            self._outgoing[end : end + _LENGTH.size] = head
            begin = end + _LENGTH.size
            end = begin + len(piece) + TAG_BYTES
            self._out.encrypt_into(_NONCE.pack(self._sent), piece, head, self._outgoing[begin:end])
            self._sent += 1
            taken += len(piece)
        return taken, self._outgoing[:end]

    def _room(self) -> memoryview:
        if self._begin == self._end:
            self._begin = self._end = 0
        elif len(self._incoming) - self._end < AT_ONCE:
            left = self._end - self._begin  # less than a record
            self._incoming[:left] = self._incoming[self._begin : self._end]
            self._begin, self._end = 0, left
        return self._incoming[self._end :]

    def _came(self, count: int) -> None:
        self._end += count

    def _open(self, view: memoryview) -> int:
        if not self._left:
            length = self._whole()
            if not length:
                return 0
            if length <= len(view):
                return self._decrypt(length, view[:length])
            self._decrypt(length, self._plain[:length])
            self._left = self._plain[:length]
        count = min(len(view), len(self._left))
        view[:count] = self._left[:count]
        self._left = self._left[count:]
        return count

    def _whole(self) -> int:
        """How many bytes the next record holds; 0 if it has not come whole."""
        there = self._end - self._begin
        if there < _LENGTH.size:
            return 0
        (length,) = _LENGTH.unpack_from(self._incoming, self._begin)
        if not 0 < length <= RECORD:
            raise Tampered(f"encrypted data was changed on its way: a record of {length} bytes came")
        return int(length) if there >= _LENGTH.size + length + TAG_BYTES else 0

    def _decrypt(self, length: int, into: memoryview) -> int:
        begin = self._begin + _LENGTH.size
        end = begin + length + TAG_BYTES
        head = self._incoming[self._begin : begin]
        nonce = _NONCE.pack(self._received)
        try:
            self._back.decrypt_into(nonce, self._incoming[begin:end], head, into)
        except InvalidTag:
            raise Tampered("encrypted data was changed on its way: its tag is wrong") from None
        self._received += 1
        self._begin = end
        return length

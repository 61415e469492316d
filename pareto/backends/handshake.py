"""Proof of knowing the run's token, without sending it: a nonce one way, its HMAC the other.

The token travelled over SSH. The protocol's version goes into the HMAC, so that two versions never talk; so does the
connection's place among those that belong together.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import struct
from typing import NamedTuple

from pareto.backends.names import MOST_CONNECTIONS

VERSION = 3
TIMEOUT_S = 10.0
PEER_TIMEOUT_S = 60
"""Longer than any outage of an emulated link, and than a stage that keeps its peer waiting with full buffers."""
_NONCE_BYTES = _PROOF_BYTES = 32
_WELCOME = b"ok"
_PLACE = struct.Struct("!8sBB")


class Place(NamedTuple):
    """Which one of how many connections this is, of those that carry one another's messages. group: 8 random bytes."""

    group: bytes = bytes(8)
    number: int = 0
    of: int = 1


ALONE = Place()


class Rejected(Exception):
    """The other end does not know the token, or speaks another version."""


def prove(sock: socket.socket, token: str, place: Place = ALONE) -> None:
    """The connecting end. Raises Rejected, OSError. Leaves `sock` blocking, with Nagle's algorithm off."""
    _tune(sock)
    try:
        told = _PLACE.pack(*place)
        sock.sendall(_proof(token, exactly(sock, _NONCE_BYTES) + told) + told)
        welcome = exactly(sock, len(_WELCOME))
    except EOFError:
        raise Rejected("turned away: wrong token or protocol version") from None
    if welcome != _WELCOME:
        raise Rejected("the other end does not speak this protocol")
    sock.settimeout(None)


def admit(sock: socket.socket, token: str) -> Place:
    """The listening end. Raises Rejected, OSError, EOFError."""
    _tune(sock)
    nonce = secrets.token_bytes(_NONCE_BYTES)
    sock.sendall(nonce)
    proof, told = exactly(sock, _PROOF_BYTES), exactly(sock, _PLACE.size)
    if not hmac.compare_digest(proof, _proof(token, nonce + told)):
        raise Rejected("wrong token or protocol version")
    place = Place(*_PLACE.unpack(told))
    if not place.number < place.of <= MOST_CONNECTIONS:
        raise Rejected(f"connection {place.number} of {place.of}, at most {MOST_CONNECTIONS} go together")
    sock.sendall(_WELCOME)
    sock.settimeout(None)
    return place


def _tune(sock: socket.socket) -> None:
    sock.settimeout(TIMEOUT_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A peer whose cable was pulled says nothing: by itself TCP would go on trying for a quarter of an hour.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PEER_TIMEOUT_S // 4)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PEER_TIMEOUT_S // 4)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * PEER_TIMEOUT_S)


def _proof(token: str, nonce: bytes) -> bytes:
    return hmac.digest(token.encode(), bytes([VERSION]) + nonce, "sha256")


def exactly(sock: socket.socket, nbytes: int) -> bytes:
    """The next `nbytes` of the stream. Raises EOFError if it ends before."""
    data = bytearray()
    while len(data) < nbytes:
        part = sock.recv(nbytes - len(data))
        if not part:
            raise EOFError("the peer closed the connection")
        data += part
    return bytes(data)

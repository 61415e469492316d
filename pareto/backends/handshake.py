"""Proof of knowing the run's token, without sending it: a nonce one way, its HMAC the other.

The token travelled over SSH. The protocol's version goes into the HMAC, so that two versions never talk; so does the
connection's place among those that belong together. The listening end is `door`.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import struct
import time
from typing import NamedTuple

from pareto.backends.registry import MOST_CONNECTIONS

VERSION = 3
TIMEOUT_S = 10.0
"""Of connecting; then again of all attempts to be let in."""
PEER_TIMEOUT_S = 60
"""Longer than any outage of an emulated link, and than a stage that keeps its peer waiting with full buffers."""
NONCE_BYTES = 32
WELCOME, REFUSAL = b"ok", b"no"
_PROOF_BYTES = 32
_PLACE = struct.Struct("!8sBB")
ANSWER_BYTES = _PROOF_BYTES + _PLACE.size
_AGAIN_S = 0.05


class Place(NamedTuple):
    """A connection's number among those that carry messages together. group: the 8 random bytes that they share."""

    group: bytes = bytes(8)
    number: int = 0
    of: int = 1


ALONE = Place()


class Rejected(Exception):
    """The other end does not know the token, or speaks another version."""


def connected(address: str, port: int, token: str, place: Place = ALONE) -> socket.socket:
    """A connection that the listening end has let in, blocking. Raises Rejected, OSError."""
    until = None
    while True:
        sock = socket.create_connection((address, port), TIMEOUT_S)
        until = until or time.monotonic() + TIMEOUT_S
        try:
            prove(sock, token, place, until)
            return sock
        except (EOFError, ConnectionError):  # let go without a verdict: strangers crowd the door
            sock.close()
            if time.monotonic() + _AGAIN_S > until:
                raise Rejected(
                    "turned away without an answer: it is closing, or strangers crowd it"
                ) from None
            time.sleep(_AGAIN_S)
        except BaseException:
            sock.close()
            raise


def prove(sock: socket.socket, token: str, place: Place, until: float) -> None:
    """Prove to the listening end that this one knows the token, by `until` of `time.monotonic`.

    Raises Rejected, EOFError, OSError.
    """
    tune(sock)
    nonce = exactly(sock, NONCE_BYTES, until)
    sock.sendall(answer(token, nonce, place))
    verdict = exactly(sock, len(WELCOME), until)
    if verdict == REFUSAL:
        raise Rejected("turned away: wrong token or protocol version")
    if verdict != WELCOME:
        raise Rejected("the other end does not speak this protocol")
    sock.settimeout(None)


def challenge(sock: socket.socket, token: str, until: float) -> Place:
    """Have the connecting end prove that it knows the token, by `until` of `time.monotonic`; returns its place.

    Raises Rejected, EOFError, OSError.
    """
    tune(sock)
    nonce = secrets.token_bytes(NONCE_BYTES)
    sock.sendall(nonce)  # an empty buffer has room for it
    place = checked(token, nonce, exactly(sock, ANSWER_BYTES, until))
    sock.settimeout(None)
    sock.sendall(WELCOME)
    return place


def answer(token: str, nonce: bytes, place: Place) -> bytes:
    """The connecting end's answer to a nonce."""
    stated = _PLACE.pack(*place)
    return _proof(token, nonce + stated) + stated


def checked(token: str, nonce: bytes, answer: bytes) -> Place:
    """The place that an answer of `ANSWER_BYTES` states. Raises Rejected."""
    proof, stated = answer[:_PROOF_BYTES], answer[_PROOF_BYTES:]
    if not hmac.compare_digest(proof, _proof(token, nonce + stated)):
        raise Rejected("wrong token or protocol version")
    place = Place(*_PLACE.unpack(stated))
    if not place.number < place.of <= MOST_CONNECTIONS:
        raise Rejected(f"connection {place.number} of {place.of}, at most {MOST_CONNECTIONS} go together")
    return place


def tune(sock: socket.socket) -> None:
    """Switch Nagle's algorithm off, and limit how long a peer may be out of reach."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A peer whose cable was pulled says nothing: by itself TCP would go on trying for a quarter of an hour.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PEER_TIMEOUT_S // 4)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PEER_TIMEOUT_S // 4)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * PEER_TIMEOUT_S)


def exactly(sock: socket.socket, nbytes: int, until: float | None = None) -> bytes:
    """The next `nbytes` of the stream. Raises EOFError if it ends before.

    Raises TimeoutError where they are not there by `until` of `time.monotonic`, however they dribble in.
    """
    data = bytearray()
    while len(data) < nbytes:
        if until is not None:
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("the other end does not answer in time")
            sock.settimeout(left_s)
        part = sock.recv(nbytes - len(data))
        if not part:
            raise EOFError("the peer closed the connection")
        data += part
    return bytes(data)


def _proof(token: str, nonce: bytes) -> bytes:
    return hmac.digest(token.encode(), bytes([VERSION]) + nonce, "sha256")

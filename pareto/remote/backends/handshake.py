"""Who is let in: proof of knowing the run's token, without sending it, by a nonce one way and its HMAC the other.

The token travelled over SSH. The protocol's version goes into the HMAC, so that two versions never talk; so does the
connection's place among those that belong together. Nobody else holds the listening end (`Door`) up: a handshake ends
within `ADMIT_S` and a few round trips, however its bytes come; there are at most `MOST_WAITING`, and where more come,
the address with most of them loses its oldest.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from pareto.remote.backends.registry import MOST_CONNECTIONS

VERSION = 4
TIMEOUT_S = 10.0
"""Seconds for connecting; then again for all attempts to be let in."""
PEER_TIMEOUT_S = 60
"""Longer than any outage of an emulated link, and than a stage that keeps its peer waiting with full buffers."""
NONCE_BYTES = 32
WELCOME, REFUSAL = b"ok", b"no"
_PROOF_BYTES = 32
_PLACE = struct.Struct("!8sBB?")
ANSWER_BYTES = _PROOF_BYTES + _PLACE.size
_AGAIN_S = 0.05
ADMIT_S = 2.0
ROUND_TRIPS = 4
"""Round trips of the connection, on top of `ADMIT_S`: the answer takes one, and may be lost on its way."""
MOST_WAITING = 256
"""More than connections that go together."""
SAY_S = 1.0
"""At most one line in so long says who was turned away: a flood of them fills no disk."""
_RTT_US = slice(68, 72)
"""The bytes of the smoothed round trip in TCP_INFO."""


class Place(NamedTuple):
    """A connection's number among those that carry messages together. group: the 8 random bytes that they share. polls:
    both ends look for what comes before they wait."""

    group: bytes = bytes(8)
    number: int = 0
    of: int = 1
    polls: bool = False


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
            tune(sock)
            sock.sendall(answer(token, exactly(sock, NONCE_BYTES, until), place))
            verdict = exactly(sock, len(WELCOME), until)
            if verdict != WELCOME:
                wrong = "turned away: wrong token or protocol version"
                raise Rejected(wrong if verdict == REFUSAL else "the other end does not speak this protocol")
            sock.settimeout(None)
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
    """The next `nbytes` of the stream. Raises EOFError if it ends before, TimeoutError where they are not there by
    `until` of `time.monotonic`, however they dribble in."""
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


class Door:
    """A free port on one address. `let_in` gets each connection that may come in, blocking, in a thread of its own."""

    def __init__(
        self, address: str, token: str, let_in: Callable[[socket.socket, Place], None], name: str
    ) -> None:
        """Raises OSError."""
        self._token = token
        self._let_in = let_in
        self._name = name
        self._listener = socket.create_server((address, 0), backlog=MOST_WAITING)
        self.address, port = self._listener.getsockname()[:2]
        self.port = int(port)
        self._waiting: dict[socket.socket, str] = {}
        """The addresses of those that have proven nothing yet, in the order of coming."""
        self._guard = threading.Lock()
        self._closing = False
        self._turned_away = 0
        self._say_at = 0.0
        threading.Thread(target=self._accept, name=f"{name}-door", daemon=True).start()

    def close(self) -> None:
        """Stop listening; connections that were let in stay."""
        self._closing = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread, which closes the rest

    def _accept(self) -> None:
        while not self._closing:
            try:
                sock, peer = self._listener.accept()
            except OSError as error:
                if self._waiting and not self._closing:  # there may be no number left for another
                    self._make_room(str(error))
                elif not self._closing:
                    time.sleep(SAY_S / 10)
                continue
            if len(self._waiting) >= MOST_WAITING:
                self._make_room("too many are waiting")
            self._waiting[sock] = peer[0]
            try:
                threading.Thread(target=self._admit, args=(sock,), name=self._name, daemon=True).start()
            except RuntimeError as error:  # there may be no thread left
                self._turn_away(sock, str(error))
                sock.close()
        self._listener.close()
        for sock in list(self._waiting):
            self._leave(sock)

    def _admit(self, sock: socket.socket) -> None:
        """Have the connecting end prove that it knows the token, and let it in, or turn it away."""
        until = time.monotonic() + min(ADMIT_S + ROUND_TRIPS * rtt_s(sock), TIMEOUT_S)
        try:
            tune(sock)
            nonce = secrets.token_bytes(NONCE_BYTES)
            sock.sendall(nonce)  # an empty buffer has room for it
            place = checked(self._token, nonce, exactly(sock, ANSWER_BYTES, until))
            sock.settimeout(None)
            sock.sendall(WELCOME)
        except Rejected as error:
            with contextlib.suppress(OSError):
                sock.sendall(REFUSAL)
            self._turn_away(sock, str(error))
        except (OSError, EOFError) as error:
            self._turn_away(sock, str(error))
        else:
            with self._guard:
                admitted = self._waiting.pop(sock, None) is not None
            if admitted:
                self._let_in(sock, place)
                return
        sock.close()

    def _make_room(self, why: str) -> None:
        """Turn away the oldest connection of the address that has most, so that one that crowds pays for itself."""
        with self._guard:
            ((crowding, _),) = Counter(self._waiting.values()).most_common(1) or [("", 0)]
            oldest = next((sock for sock, address in self._waiting.items() if address == crowding), None)
        if oldest is not None:
            self._turn_away(oldest, why)

    def _turn_away(self, sock: socket.socket, why: str) -> None:
        if not (address := self._leave(sock)):
            return
        with self._guard:
            self._turned_away += 1
            now = time.monotonic()
            if now >= self._say_at:
                others = f", and {self._turned_away - 1} others" if self._turned_away > 1 else ""
                print(f"{self._name}: turned {address} away: {why}{others}", file=sys.stderr)
                self._turned_away, self._say_at = 0, now + SAY_S

    def _leave(self, sock: socket.socket) -> str | None:
        """End a waiting connection, which its thread then closes; its address, or None if it was not waiting."""
        with self._guard:
            address = self._waiting.pop(sock, None)
        if address is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        return address


def rtt_s(sock: socket.socket) -> float:
    """The round trip that the kernel measured when the connection was made; 0 where it reports none."""
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    except OSError:
        return 0.0
    return int.from_bytes(info[_RTT_US], sys.byteorder) / 1e6

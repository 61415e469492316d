"""A listening port that lets in whoever proves to know the run's token (`handshake`); nobody else holds it up.

Each connection has a thread. A handshake ends within `ADMIT_S` and a few round trips, however its bytes come; there
are at most `MOST_WAITING`, and where more come, the address with most of them loses its oldest.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

from pareto.backends import handshake
from pareto.backends.handshake import Place

ADMIT_S = 2.0
ROUND_TRIPS = 4
"""Of the connection, on top: the answer takes one, and may be lost on its way."""
MOST_WAITING = 256
"""More than connections that go together."""
SAY_S = 1.0
"""At most one line in so long says who was turned away: a flood of them fills no disk."""
_RTT_US = struct.Struct("=I")
_RTT_AT = 68
"""Of the smoothed round trip in TCP_INFO."""

LetIn = Callable[[socket.socket, Place], None]


class Door:
    """A port on one address. `let_in` gets each connection that may come in, blocking, in a thread of its own."""

    def __init__(self, address: str, token: str, let_in: LetIn, name: str) -> None:
        self._token = token
        self._let_in = let_in
        self._name = name
        self._listener = socket.create_server((address, 0), backlog=MOST_WAITING)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._waiting: dict[socket.socket, str] = {}
        """The addresses of those that have proven nothing yet, in the order of coming."""
        self._guard = threading.Lock()
        self._closing = False
        self._turned_away = 0
        self._say_at = 0.0
        threading.Thread(target=self._accept, name=f"{name}-door", daemon=True).start()

    @property
    def port(self) -> int:
        return self.address[1]

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
        until = time.monotonic() + min(ADMIT_S + ROUND_TRIPS * _rtt_s(sock), handshake.TIMEOUT_S)
        try:
            place = handshake.challenge(sock, self._token, until)
        except handshake.Rejected as error:
            with contextlib.suppress(OSError):
                sock.sendall(handshake.REFUSAL)
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


def _rtt_s(sock: socket.socket) -> float:
    """The round trip that the kernel measured when the connection was made; 0 where it reports none."""
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
        return float(_RTT_US.unpack_from(info, _RTT_AT)[0]) / 1e6
    except (OSError, struct.error):
        return 0.0

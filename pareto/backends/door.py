"""Listening, and letting in who proves to know the run's token (`handshake`): whoever does not holds up nobody.

One thread has all handshakes beside each other. Each ends within `ADMIT_S` and a few round trips, however its bytes
come; there are at most `MOST_WAITING`, and where more come, the address with most of them loses its oldest.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

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


@dataclass
class _Waiting:
    """Who has connected and not proven anything yet. until: on `time.monotonic`."""

    sock: socket.socket
    address: str
    until: float
    nonce: bytes = field(default_factory=handshake.nonce)
    answer: bytes = b""


class Door:
    """A port on one address. `let_in` gets each connection that may come in, blocking, in a thread of its own."""

    def __init__(self, address: str, token: str, let_in: LetIn, name: str) -> None:
        self._token = token
        self._let_in = let_in
        self._name = name
        self._listener = socket.create_server((address, 0), backlog=MOST_WAITING)
        self._listener.setblocking(False)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._waiting: dict[socket.socket, _Waiting] = {}
        """In the order of coming."""
        self._closing = False
        self._turned_away = 0
        self._say_at = 0.0
        threading.Thread(target=self._keep, name=f"{name}-door", daemon=True).start()

    @property
    def port(self) -> int:
        return self.address[1]

    def close(self) -> None:
        """Let nobody in any more; who is in stays."""
        self._closing = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread, which closes the rest

    def _keep(self) -> None:
        while not self._closing:
            for key, _ in self._selector.select(self._patience_s()):
                if key.fileobj is self._listener:
                    self._greet()
                elif (waiting := self._waiting.get(key.data)) is not None:
                    self._hear(waiting)
            now = time.monotonic()
            for waiting in [each for each in self._waiting.values() if each.until <= now]:
                self._turn_away(waiting, "it proved nothing in time")
        for waiting in self._waiting.values():
            waiting.sock.close()
        self._selector.close()
        self._listener.close()

    def _patience_s(self) -> float | None:
        untils = [waiting.until for waiting in self._waiting.values()]
        return max(0.0, min(untils) - time.monotonic()) if untils else None

    def _greet(self) -> None:
        try:
            sock, peer = self._listener.accept()
        except BlockingIOError:
            return  # it has gone again
        except OSError as error:
            if self._waiting:  # there may be no number left for another
                self._make_room(str(error))
            elif not self._closing:
                time.sleep(SAY_S / 10)
            return
        if len(self._waiting) >= MOST_WAITING:
            self._make_room("too many are waiting")
        until = time.monotonic() + min(ADMIT_S + ROUND_TRIPS * _rtt_s(sock), handshake.TIMEOUT_S)
        waiting = _Waiting(sock, peer[0], until)
        self._waiting[sock] = waiting
        self._selector.register(sock, selectors.EVENT_READ, sock)
        try:
            sock.setblocking(False)
            handshake.tune(sock)
            sock.sendall(waiting.nonce)  # an empty buffer has room for it
        except OSError as error:
            self._turn_away(waiting, str(error))

    def _hear(self, waiting: _Waiting) -> None:
        try:
            part = waiting.sock.recv(handshake.ANSWER_BYTES - len(waiting.answer))
            if not part:
                raise EOFError("it closed the connection")
            waiting.answer += part
            if len(waiting.answer) < handshake.ANSWER_BYTES:
                return
            place = handshake.checked(self._token, waiting.nonce, waiting.answer)
            waiting.sock.sendall(handshake.WELCOME)
            waiting.sock.setblocking(True)
        except BlockingIOError:
            return
        except handshake.Rejected as error:
            with contextlib.suppress(OSError):
                waiting.sock.sendall(handshake.REFUSAL)
            self._turn_away(waiting, str(error))
        except (OSError, EOFError) as error:
            self._turn_away(waiting, str(error))
        else:
            self._forget(waiting)
            threading.Thread(
                target=self._let_in, args=(waiting.sock, place), name=self._name, daemon=True
            ).start()

    def _make_room(self, why: str) -> None:
        """The oldest goes, of the address that has most: one that crowds pays for itself."""
        ((crowding, _),) = Counter(each.address for each in self._waiting.values()).most_common(1)
        self._turn_away(next(each for each in self._waiting.values() if each.address == crowding), why)

    def _turn_away(self, waiting: _Waiting, why: str) -> None:
        self._forget(waiting)
        waiting.sock.close()
        self._turned_away += 1
        now = time.monotonic()
        if now >= self._say_at:
            others = f", and {self._turned_away - 1} others" if self._turned_away > 1 else ""
            print(f"{self._name}: turned {waiting.address} away: {why}{others}", file=sys.stderr)
            self._turned_away, self._say_at = 0, now + SAY_S

    def _forget(self, waiting: _Waiting) -> None:
        self._selector.unregister(waiting.sock)
        del self._waiting[waiting.sock]


def _rtt_s(sock: socket.socket) -> float:
    """As the kernel measured it when the connection was made; 0 where it does not tell."""
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
        return float(_RTT_US.unpack_from(info, _RTT_AT)[0]) / 1e6
    except (OSError, struct.error):
        return 0.0

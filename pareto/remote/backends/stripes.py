"""Several tcp connections that carry messages together: a large one in stripes, a small one whole on one of them.

    stripe      message u64, where it begins in the message u64, bytes u32 (big endian); then the bytes

A message is its header, descriptors and body one after another (`wire`), cut every `STRIPE` bytes. Each stripe goes to
a connection that has nothing waiting to be sent, so that each carries what its window lets it, and one that lost
packets gets none until it has caught up: what it holds up is one stripe. The receiver takes what comes on any
connection, straight to where it belongs; what comes of a later message waits in the kernel's buffers, which is the
credit. So whoever sends much must receive meanwhile.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
from collections.abc import Sequence

from pareto.protocol.errors import BackendError
from pareto.remote.backends import wire
from pareto.remote.backends.tls import AnySocket, TlsSocket, beneath, within
from pareto.remote.backends.wire import AnyLine, Line

STRIPE = 16 << 10
"""Ten packets, the window that a connection with 1 % loss gets to: what a smaller one would take longer for."""
LAST_S = 3.0
"""Where one connection has ended, all do within this, or one was lost."""
_HEADER = struct.Struct("!QQI")


class _Connection:
    """One of the connections, as its receiver sees it: `left` bytes of a stripe are to come, for `at` in `message`."""

    def __init__(self, sock: AnySocket) -> None:
        self.sock = sock
        self.message = self.at = self.left = 0
        self._head = memoryview(bytearray(_HEADER.size))
        self._came = 0

    def _read(self, parts: Sequence[memoryview]) -> int:
        """Bytes that came into these parts; 0 if none are there now. Raises OSError; EOFError where the stream ends, or
        BackendError in the middle of a stripe or its header."""
        try:
            came = self.sock.recvmsg_into(parts)[0]
        except BlockingIOError:
            return 0
        if not came:
            raise BackendError(wire.CUT) if self.left or self._came else EOFError
        return came

    def take(self, parts: Sequence[memoryview]) -> int:
        """Read into these parts what has come of the stripe that has begun; returns the number of bytes."""
        came = self._read(parts)
        self.at += came
        self.left -= came
        return came

    def begin(self) -> bool:
        """Read the next stripe's header. Returns whether all of it has come."""
        self._came += self._read([self._head[self._came :]])
        if self._came < _HEADER.size:
            return False
        self._came = 0
        self.message, self.at, self.left = _HEADER.unpack(self._head)
        if not 0 < self.left <= STRIPE:
            raise BackendError(f"a stripe of {self.left} bytes came, at most {STRIPE} are one")
        if self.at % STRIPE:
            raise BackendError(f"a stripe came that begins at {self.at}, where none does")
        return True


class Stripes(AnyLine):
    """A line over several connections whose sockets nobody else uses."""

    def __init__(self, socks: Sequence[AnySocket]) -> None:
        self._connections = {sock.fileno(): _Connection(sock) for sock in socks}
        self._out, self._in = select.poll(), select.poll()
        for fd, connection in self._connections.items():
            connection.sock.setblocking(False)
            # It is ready to be written to when all that it got is sent, and not when the kernel's buffer has room.
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, 1)
            self._out.register(fd, select.POLLOUT)
            self._in.register(fd, select.POLLIN)
        self._sent = 0
        """Messages that were."""
        self._free: list[_Connection] = []
        """Connections that were ready to be written to, and got nothing since."""
        self._back: memoryview | None = None
        """A header that came and was not taken."""
        self._message = -1
        """The one that is being received."""
        self._begun: set[tuple[int, int]] = set()
        """Stripes that have come: message, and where in it. One that comes twice would leave a hole."""
        self._ready = [each for each in self._connections.values() if isinstance(each.sock, TlsSocket)]
        """Connections on which something has come, or may have: with the handshake, which the kernel does not know."""
        self._watched = set(self._connections)
        self._ended = False
        """Whether one of them has."""
        self._parked: list[int] = []
        """Connections that wait with a later message, or with a part of this one for which there is no place yet."""

    def send(self, head: bytes, body: Sequence[memoryview] = ()) -> None:
        parts = [memoryview(head), *body]
        total = sum(map(len, parts))
        # Counted first: where sending fails, the report of that has a number of its own.
        number = self._sent
        self._sent += 1
        for begin in range(0, total, STRIPE):
            end = min(begin + STRIPE, total)
            self._send([memoryview(_HEADER.pack(number, begin, end - begin)), *within(parts, begin, end)])

    def _send(self, parts: list[memoryview]) -> None:
        while not self._free:
            self._free = [self._connections[fd] for fd, _ in self._out.poll()]
        wire.send_all(self._free.pop().sock, parts)  # the rest of a stripe cannot go elsewhere

    def head(self) -> memoryview:
        if self._back is not None:
            head, self._back = self._back, None
            return head
        self._message += 1
        self._begun = {stripe for stripe in self._begun if stripe[0] >= self._message}
        head = memoryview(bytearray(wire.HEADER.size))
        self._fill([head], 0)
        return head

    def put_back(self, head: memoryview) -> None:
        self._back = head

    def body(self, form: wire.Form, views: Sequence[memoryview]) -> None:
        descriptors = bytearray(len(form.descriptors))
        try:
            self._fill([memoryview(descriptors), *views], wire.HEADER.size)
        except EOFError:
            raise BackendError(wire.CUT) from None
        if descriptors != form.descriptors:
            raise BackendError(wire.OTHER_FORM)

    def skip(self, nbytes: int) -> None:
        scratch = memoryview(bytearray(STRIPE))
        self._unpark()
        while nbytes:
            connection = self._next()
            wanted = min(connection.left, nbytes)
            came = connection.take([scratch[:wanted]])
            nbytes -= came
            if came == wanted:
                self._ready.append(connection)  # there may be more, decrypted, and the kernel knows not of it

    def drain(self) -> None:
        scratch = memoryview(bytearray(STRIPE))
        self._unpark()
        while self._watched:
            for fd, _ in self._in.poll():
                with contextlib.suppress(BlockingIOError):
                    if not beneath(self._connections[fd].sock).recv_into(scratch):
                        self._unwatch(fd)

    def end(self) -> None:
        for connection in self._connections.values():
            connection.sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        for connection in self._connections.values():
            Line(connection.sock).close()

    def _fill(self, parts: list[memoryview], start: int) -> None:
        """Receive into these parts the message from byte `start` on: its header, or everything after that."""
        left = total = sum(map(len, parts))
        self._unpark()
        while left:
            connection = self._next()
            begin = connection.at - start
            if not start and begin >= total:
                self._park(connection)  # of the body, which has no place before the header is there
                continue
            if begin < 0 or (start and begin + connection.left > total):
                raise BackendError("a stripe came that lies outside of its message")
            wanted = min(connection.left, total - begin)
            came = connection.take(within(parts, begin, begin + wanted))
            left -= came
            if came == wanted:
                self._ready.append(connection)  # there may be more

    def _next(self) -> _Connection:
        """A connection that has something of the current message. EOFError where nothing more comes."""
        while True:
            while not self._ready:
                if not self._watched:
                    raise EOFError
                came = self._in.poll(1000 * LAST_S if self._ended else None)
                if not came:
                    raise BackendError("the peer closed one of several connections")
                self._ready = [self._connections[fd] for fd, _ in came]
            connection = self._ready.pop()
            try:
                if not connection.left:
                    if not connection.begin():
                        continue
                    stripe = connection.message, connection.at
                    if stripe in self._begun:
                        raise BackendError("a stripe came twice")
                    self._begun.add(stripe)
            except EOFError:
                self._ended = True
                self._unwatch(connection.sock.fileno())
                continue
            if connection.message < self._message:
                raise BackendError("more came of a message than was expected")
            if connection.message == self._message:
                return connection
            self._park(connection)

    def _unwatch(self, fd: int) -> None:
        if fd < 0:
            raise OSError("it was closed here")  # meanwhile, by another thread
        self._in.unregister(fd)
        self._watched.discard(fd)

    def _park(self, connection: _Connection) -> None:
        self._parked.append(connection.sock.fileno())
        self._unwatch(self._parked[-1])

    def _unpark(self) -> None:
        for fd in self._parked:
            self._in.register(fd, select.POLLIN)
            self._watched.add(fd)
            self._ready.append(self._connections[fd])
        self._parked.clear()

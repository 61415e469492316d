"""Messages over several connections, over loopback: what goes where, in which order it comes, and what is refused."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import pytest
import torch

from pareto.protocol.errors import BackendError
from pareto.remote.backends import handshake, stripes, wire
from pareto.remote.backends.base import Tensors, layout
from pareto.remote.backends.stripes import STRIPE, Stripes
from pareto.remote.backends.tcp import TcpServer
from tests.program import wait_until
from tests.unit.backends.builders import HERE, TOKEN, connected, refusal, requests_for

LANES = 3
HEAD = wire.HEADER.size


class Ends:
    """Both ends of some connections; `near` and `far` are made of what a test did not take for itself."""

    def __init__(self, count: int = LANES) -> None:
        pairs = [connected() for _ in range(count)]
        self.near_socks, self.far_socks = [near for near, _ in pairs], [far for _, far in pairs]

    def close(self) -> None:
        for sock in (*self.near_socks, *self.far_socks):
            sock.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    with closing(Ends()) as ends:
        yield ends


def message(tensors: Tensors) -> tuple[bytes, list[memoryview]]:
    return requests_for(b"f" * 8, wire.form_of(tensors)).numbered(7), wire.views(tensors)


def received(line: Stripes, tensors: Tensors) -> Tensors:
    """The next message, which is to be like these."""
    assert wire.header(line.head()).kind is wire.Kind.REQUEST
    got = wire.empty(wire.form(layout(tensors)))
    line.body(wire.form(layout(tensors)), wire.views(got))
    return got


def stripe(number: int, begin: int, data: bytes) -> bytes:
    return struct.pack("!QQI", number, begin, len(data)) + data


def whole(tensors: Tensors) -> bytes:
    head, body = message(tensors)
    return head + b"".join(body)


def big(value: int, stripes: float = 10) -> Tensors:
    return (torch.full((int(stripes * STRIPE),), value, dtype=torch.uint8),)


def waiting(sock: socket.socket) -> int:
    """The bytes that have come."""
    sock.setblocking(False)
    with suppress(BlockingIOError):
        return len(sock.recv(1 << 20))
    return 0


def test_a_large_message_is_shared_and_a_small_one_is_not(ends: Ends) -> None:
    near = Stripes(ends.near_socks)
    near.send(*message(big(1, LANES - 0.5)))
    shares = [waiting(sock) for sock in ends.far_socks]
    assert sum(shares) > (LANES - 0.5) * STRIPE
    assert max(shares) < 1.1 * STRIPE
    near.send(*message(big(1, 0.5)))
    (one,) = filter(None, map(waiting, ends.far_socks))
    assert one > STRIPE / 2


def test_a_connection_that_is_stuck_gets_nothing_and_the_others_go_on(ends: Ends) -> None:
    stuck = ends.near_socks[1]
    stuck.setblocking(False)
    before = 0
    with suppress(BlockingIOError):
        while True:
            before += stuck.send(bytes(1 << 16))
    near, messages = Stripes(ends.near_socks), [big(number, 20) for number in range(10)]

    def drained(sock: socket.socket) -> int:
        return sum(map(len, iter(lambda: sock.recv(1 << 20), b"")))

    with ThreadPoolExecutor() as pool:
        others = [pool.submit(drained, ends.far_socks[lane]) for lane in (0, 2)]
        for tensors in messages:
            near.send(*message(tensors))
        near.end()
        carried = sum(it.result() for it in others)
        assert drained(ends.far_socks[1]) == before
    assert carried > sum(len(whole(tensors)) for tensors in messages)


def test_stripes_come_in_any_order_on_any_connection(ends: Ends) -> None:
    """What comes of the next message, or of a body before its header, waits."""
    first, second = big(1, 2.5), big(2, 0.1)
    data = whole(first)
    parts = [stripe(0, at, data[at : at + STRIPE]) for at in range(0, len(data), STRIPE)]
    a, b, c = ends.near_socks
    a.sendall(stripe(1, 0, whole(second)))
    b.sendall(parts[2] + parts[1])
    c.sendall(parts[0][:10])
    far = Stripes(ends.far_socks)
    with ThreadPoolExecutor() as pool:
        receiving = pool.submit(received, far, first)
        c.sendall(parts[0][10:])
        assert torch.equal(receiving.result()[0], first[0])
    assert torch.equal(received(far, second)[0], second[0])
    Stripes(ends.near_socks).end()
    refusal(far.head, by=EOFError)


@pytest.mark.parametrize(
    ("kind", "data"),
    {
        "too large": stripe(0, HEAD, b"")[:16] + (STRIPE + 1).to_bytes(4, "big"),
        "empty": stripe(0, HEAD, b""),
        "beyond its message": stripe(0, 3 * STRIPE, b"x"),
        "over the header": stripe(0, 0, b"x"),
        "of a message that was": stripe(0, 0, whole(big(1, 0.1))) + stripe(0, 0, b"x"),
    }.items(),
)
def test_a_stripe_that_cannot_be_is_refused(ends: Ends, kind: str, data: bytes) -> None:
    far, tensors = Stripes(ends.far_socks), big(1, 0.1)
    if "was" not in kind:
        ends.near_socks[0].sendall(stripe(0, 0, whole(tensors)[:HEAD]))
    ends.near_socks[0].sendall(data)
    with pytest.raises(BackendError, match=r"stripe|more came"):
        for _ in range(2):
            received(far, tensors)


@pytest.mark.parametrize(("times", "said"), [(2, "twice"), (0, "in the middle")])
def test_a_stripe_that_comes_twice_would_leave_a_hole(ends: Ends, times: int, said: str) -> None:
    far, tensors = Stripes(ends.far_socks), big(1, 2)
    first, second = (stripe(0, at, whole(tensors)[at : at + STRIPE]) for at in (0, STRIPE))
    ends.near_socks[0].sendall(first + times * second)
    Stripes(ends.near_socks).end()
    assert said in refusal(received, far, tensors)


def test_connections_whose_others_never_came_are_closed_with_the_next_that_come() -> None:
    first, next_one = (handshake.Place(group * 8, 0, 2) for group in (b"a", b"b"))
    with closing(TcpServer(HERE, TOKEN)) as server:
        alone = handshake.connected(HERE, server.port, TOKEN, first)
        alone.settimeout(10)
        assert wait_until(lambda: server._gathering)  # its end hears of it before the server counts it
        with alone, handshake.connected(HERE, server.port, TOKEN, next_one):
            assert alone.recv(1) == b""


def test_what_is_said_of_a_fault_is_no_part_of_the_message_that_failed(ends: Ends) -> None:
    """Else its first stripe would come twice, and that would be the reason that everybody is told."""
    near = Stripes(ends.near_socks)
    ends.near_socks[0].shutdown(socket.SHUT_WR)
    with pytest.raises(BrokenPipeError):
        near.send(b"x" * HEAD, [memoryview(bytearray(LANES * STRIPE))])
    near.send(b"a fault")
    came: list[tuple[int, int]] = []
    for sock in ends.far_socks[1:]:
        sock.setblocking(False)
        with suppress(BlockingIOError):
            while head := sock.recv(stripes._HEADER.size, socket.MSG_WAITALL):
                message, at, size = stripes._HEADER.unpack(head)
                came.append((message, at))
                while size:
                    size -= len(sock.recv(size))
    assert len(came) == LANES
    assert len({*came}) == LANES

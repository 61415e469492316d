"""The kernel's stamps of what comes in, and the rate of the line that it came over."""

from __future__ import annotations

import math
import random
import socket
import time

import pytest

from pareto.worker.arrivals import Arrival, line_rate_bps, mean_rate_bps, receive, stamp

RATE_BPS = 8e6  # a byte a microsecond
PACKET = 1448


def line(packets: int = 100, late_s: float = 0.0, late: range = range(0)) -> list[Arrival]:
    return [(n * PACKET / 1e6 + (late_s if n in late else 0.0), (n + 1) * PACKET) for n in range(packets)]


def test_the_rate_is_the_lines() -> None:
    assert line_rate_bps(line()) == pytest.approx(RATE_BPS)
    assert mean_rate_bps(line()) == pytest.approx(RATE_BPS)


@pytest.mark.parametrize("late", [range(80, 100), range(20), range(40, 60), range(99, 100)])
def test_a_fifth_of_the_arrivals_may_be_late(late: range) -> None:
    """From first to last such a hiccup is the link's: 20 ms in 145 are 14 %."""
    assert line_rate_bps(line(late_s=0.02, late=late)) == pytest.approx(RATE_BPS, rel=0.002)


def test_every_arrival_may_be_a_little_late() -> None:
    chance = random.Random(5)  # noqa: S311
    noisy = [(at_s + chance.expovariate(1 / 0.0003), nbytes) for at_s, nbytes in line()]
    assert line_rate_bps(noisy) == pytest.approx(RATE_BPS, rel=0.005)


def test_what_is_skipped_counts_neither_in_bytes_nor_in_time() -> None:
    """A bucket's credit: the first 20 packets come at once."""
    credit = [(max(0.0, at_s - 20 * PACKET / 1e6), nbytes) for at_s, nbytes in line()]
    assert line_rate_bps(credit, skip=20 * PACKET) == pytest.approx(RATE_BPS)
    assert mean_rate_bps(credit, skip=20 * PACKET) == pytest.approx(RATE_BPS)
    assert (mean_rate_bps(credit) or 0.0) > 1.2 * RATE_BPS


def test_a_line_that_changes_has_a_mean() -> None:
    """An outage of as long as the bulk itself halves what is carried, and is no hiccup."""
    outage = line(late_s=100 * PACKET / 1e6, late=range(50, 100))
    assert mean_rate_bps(outage) == pytest.approx(RATE_BPS / 2, rel=0.01)


def test_one_piece_and_nothing() -> None:
    for rate in (line_rate_bps, mean_rate_bps):
        assert rate([(1.0, 62_500)]) == math.inf
        assert rate([(1.0, 31_250), (1.0, 62_500)]) == math.inf
        assert rate([]) is None
        assert rate(line(), skip=100 * PACKET) is None


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_what_waits_to_be_read_has_the_stamp_of_its_coming(kind: socket.SocketKind) -> None:
    with socket.socket(socket.AF_INET, kind) as near, socket.socket(socket.AF_INET, kind) as far:
        far.bind(("127.0.0.1", 0))
        if kind == socket.SOCK_STREAM:
            far.listen()
        near.connect(far.getsockname())
        end = far.accept()[0] if kind == socket.SOCK_STREAM else far
        with end:
            stamp(end)
            buffer = bytearray(8)
            for _ in range(20):  # a kernel begins to stamp a moment after the first socket asks for it
                sent_ns = time.time_ns()
                near.send(b"x" * 8)
                time.sleep(0.05)
                size, came_ns = receive(end, buffer)
                assert size == 8
                if came_ns - sent_ns < 25_000_000:
                    break
            assert came_ns - sent_ns < 25_000_000

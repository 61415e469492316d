"""A clock that is set while a probe runs. The guest's: nobody else's depends on it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pareto.remote.link.probe import Question
from pareto.remote.worker.probe import ProbeClient, ProbeServer

pytestmark = pytest.mark.vm
TOKEN = "0" * 64
HOUR_S = 3600


@contextmanager
def clock_that_jumps() -> Iterator[None]:
    """Set the clock an hour on and back, ten times a second, as long as the block lasts."""
    over = threading.Event()

    def jump() -> None:
        by_s = HOUR_S
        while not over.wait(0.1) or by_s < 0:  # in the end it is right again
            time.clock_settime(time.CLOCK_REALTIME, time.clock_gettime(time.CLOCK_REALTIME) + by_s)
            by_s = -by_s

    jumping = threading.Thread(target=jump)
    jumping.start()
    try:
        yield
    finally:
        over.set()
        jumping.join()


@pytest.mark.parametrize("datagrams", [False, True])
def test_a_clock_that_is_set_moves_no_reading(datagrams: bool) -> None:
    server = ProbeServer("127.0.0.1", TOKEN)
    client = ProbeClient("127.0.0.1", server.port, TOKEN)
    with clock_that_jumps():
        reading = client.measure(Question(pings=20, ping_gap_s=0.05, datagrams=datagrams))
    client.close()
    server.close()
    assert len(reading.rtts_s) == 20
    assert min(reading.rtts_s) > 0
    assert max(reading.rtts_s) < 5.0

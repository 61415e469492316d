"""When packets leave: exact times in nanoseconds on a made-up clock, and the distribution of jitter."""

from __future__ import annotations

import statistics
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from pareto.link.pacing import FULL, Jitter, Line, TokenBucket, pacing_for
from pareto.link.profile import Bucket, Direction
from pareto.link.trace import Step, Trace

MS = 1_000_000
S = 1000 * MS


def pacing_of(bucket: Bucket | None = None, begin_ns: int = 0, **fields: Any) -> Line:
    return pacing_for(Direction(**fields), bucket, Random(1), begin_ns)  # noqa: S311


def send(pacing: Line, *arrivals: tuple[int, int]) -> list[int]:
    """When packets leave that arrive at (ns, bytes), one after the other."""
    leaves, last = [], 0
    for now, size in arrivals:
        leave = pacing.leave_ns(now, size, last)
        leaves.append(leave)
        last = max(last, leave)
    return leaves


def trace_of(*steps: tuple[float, float, float | None], period_s: float) -> Trace:
    return Trace("test", period_s, tuple(Step(*step) for step in steps))


# A line: max(arrival + delay, the one before) + bytes / rate. At 8 Mbit/s a byte takes a microsecond.


def test_delay_first_then_the_line() -> None:
    pacing = pacing_of(delay_s=0.1, rate_bps=8e6)
    sent = send(pacing, (0, 1000), (0, 2000), (200 * MS, 1000))
    assert sent == [101 * MS, 103 * MS, 301 * MS]


def test_jitter_delays_the_line_but_costs_it_nothing() -> None:
    """Behind a late packet the next ones leave at the rate, not later."""
    pacing = pacing_of(delay_s=0.1, rate_bps=8e6, jitter_s=0.05)
    delays = Random(1)  # noqa: S311
    delays.gauss(0, 1)  # the jitter's own start
    leaves, last = [], 0
    for number in range(100):
        ready = number * MS + 100 * MS + round(50 * MS * (2 * delays.random() - 1))
        last = max(ready, last) + 1 * MS
        leaves.append(last)
    assert send(pacing, *((number * MS, 1000) for number in range(100))) == leaves


def test_jitter_alone_never_reorders() -> None:
    sent = send(pacing_of(delay_s=0.1, jitter_s=0.1), *((number * MS, 1000) for number in range(1000)))
    assert sent == sorted(sent)
    assert len(set(sent)) < 500  # many catch up with one that was held up
    apart = send(pacing_of(delay_s=0.1, jitter_s=0.1), *((number * S, 1000) for number in range(1000)))
    delays = [leave - number * S for number, leave in enumerate(apart)]
    assert 0 <= min(delays) < 1 * MS
    assert 199 * MS < max(delays) <= 200 * MS


@pytest.mark.parametrize("correlation", [0.0, 0.25, 0.7, 1.0])
def test_jitter_is_uniform_and_correlated_as_asked(correlation: float) -> None:
    direction = Direction(delay_s=0.1, jitter_s=0.1, jitter_correlation=correlation)
    count = 40_000
    jitter = Jitter(direction, Random(3))  # noqa: S311
    if correlation == 1:
        drawn_ns = [jitter.draw_ns() for _ in range(100)]
        assert max(drawn_ns) - min(drawn_ns) < 1000
        return
    drawn = [jitter.draw_ns() / (100 * MS) for _ in range(count)]
    # Kolmogorov-Smirnov's distance to the uniform distribution; correlated draws are worth fewer.
    distance = max(abs((value + 1) / 2 - rank / count) for rank, value in enumerate(sorted(drawn)))
    worth = count * (1 - correlation) / (1 + correlation)
    assert distance < 1.95 / worth**0.5  # p = 0.001
    variance = statistics.fmean(value * value for value in drawn)
    assert variance == pytest.approx(1 / 3, abs=0.02)
    neighbours = statistics.fmean(a * b for a, b in pairwise(drawn)) / variance
    assert neighbours == pytest.approx(correlation, abs=0.02)


# A router's queue: what waits for the line, what is in flight not counted.


def test_the_packet_that_does_not_fit_is_dropped() -> None:
    pacing = pacing_of(delay_s=0.1, rate_bps=8e6, limit_bytes=3000)
    sent = send(pacing, *[(0, 1000)] * 4)
    assert sent == [101 * MS, 102 * MS, 103 * MS, FULL]
    # The first has left the line after a millisecond; for 99 more it is in flight, and no longer in the queue.
    assert send(pacing, (1 * MS - 1, 1000)) == [FULL]
    assert pacing.leave_ns(1 * MS, 1000, 103 * MS) == 104 * MS
    assert pacing.leave_ns(1 * MS, 1000, 104 * MS) == FULL


def test_a_dropped_packet_takes_no_time_on_the_line() -> None:
    pacing = pacing_of(rate_bps=8e6, limit_bytes=2000)
    assert send(pacing, (0, 1000), (0, 1500), (0, 1000)) == [1 * MS, FULL, 2 * MS]


def test_what_a_late_packet_holds_up_is_not_a_queue() -> None:
    """With jitter far above what the limit takes to drain, an idle line still drops nothing."""
    pacing = pacing_of(delay_s=0.2, jitter_s=0.2, rate_bps=8e6, limit_bytes=3000)
    assert FULL not in send(pacing, *((number * 4 * MS, 1000) for number in range(500)))


def test_a_super_packet_larger_than_the_limit_passes_an_idle_line() -> None:
    pacing = pacing_of(rate_bps=8e6, limit_bytes=3000)
    assert send(pacing, (0, 64_000), (0, 1000), (64 * MS, 64_000)) == [64 * MS, FULL, 128 * MS]


# tbf: 8 Mbit/s, bursts of 3000 bytes.


def test_a_full_bucket_passes_its_burst_at_once() -> None:
    pacing = pacing_of(Bucket(3000), delay_s=0.1, rate_bps=8e6)
    sent = send(pacing, *[(0, 1000)] * 5)
    assert sent == [100 * MS, 100 * MS, 100 * MS, 101 * MS, 102 * MS]


def test_the_bucket_fills_at_the_rate_and_no_further_than_the_burst() -> None:
    pacing = pacing_of(Bucket(3000), rate_bps=8e6)
    assert send(pacing, *[(0, 1000)] * 3) == [0, 0, 0]
    half_full = 1500_000
    assert send(pacing, *[(half_full, 1000)] * 2) == [half_full, 2 * MS]
    later = 500 * MS
    assert send(pacing, *[(later, 1500)] * 3) == [later, later, later + 1500_000]


def test_the_bucket_drops_what_exceeds_tcs_queue() -> None:
    """rate x latency + burst: 4 ms at a byte a microsecond, and 3000 bytes."""
    pacing = pacing_of(Bucket(3000, latency_s=0.004), rate_bps=8e6)
    assert pacing.limit_bytes == 7000
    sent = send(pacing, *[(0, 1000)] * 11)
    assert sent == [0, 0, 0, *(number * MS for number in range(1, 8)), FULL]


def test_a_reordered_packet_spends_tokens() -> None:
    pacing = pacing_of(Bucket(3000), delay_s=0.1, rate_bps=8e6)
    pacing.overtaken(100 * MS, 2000)
    assert send(pacing, (0, 1000), (0, 1000)) == [100 * MS, 101 * MS]


def test_a_super_packet_larger_than_the_burst_is_paid_for() -> None:
    pacing = pacing_of(Bucket(3000), rate_bps=8e6)
    assert send(pacing, (0, 10_000), (0, 1000)) == [7 * MS, 8 * MS]


def test_the_long_run_is_the_rate() -> None:
    pacing = pacing_of(Bucket(32_000, latency_s=10), rate_bps=8e6)
    assert send(pacing, *[(0, 1000)] * 1000)[-1] == (1000 - 32) * MS


def test_what_jitter_held_up_finds_the_queue_as_it_is_then() -> None:
    class Draws(Random):
        # The first two go into the jitter's own start.
        values = iter([0.5] * 2 + [0.5] * 5 + [1.0] + [0.5] * 3)

        def random(self) -> float:
            return next(self.values)

    direction = Direction(delay_s=0.1, rate_bps=8e6, jitter_s=0.1)
    pacing = pacing_for(direction, Bucket(2000, latency_s=0.001), Draws(), 0)
    # Five fill burst and queue, the sixth is 100 ms late; those behind it come when the burst is whole again.
    expected = [100, 100, 101, 102, 103, 200, 200, 201, 202]
    assert send(pacing, *[(0, 1000)] * 9) == [leave * MS for leave in expected]


def test_without_a_rate_there_is_no_bucket() -> None:
    assert not isinstance(pacing_of(Bucket(), delay_s=0.1), TokenBucket)


# Traces.


def test_a_constant_trace_is_a_line() -> None:
    arrivals = [(0, 1000), (0, 2000), (200 * MS, 1000)]
    trace = trace_of((0, 0.1, 8e6), period_s=0.05)
    expected = send(pacing_of(delay_s=0.1, rate_bps=8e6), *arrivals)
    assert send(pacing_of(trace=trace), *arrivals) == expected


def test_a_queue_drains_at_the_rates_that_come() -> None:
    trace = trace_of((0, 0.0, 8e6), (0.002, 0.0, 4e6), period_s=10)
    sent = send(pacing_of(trace=trace), *[(0, 1000)] * 4)
    assert sent == [1 * MS, 2 * MS, 4 * MS, 6 * MS]
    straddling = send(pacing_of(trace=trace), (1 * MS, 2000))
    assert straddling == [4 * MS]  # 1000 bytes at each rate


def test_an_outage_stops_the_line() -> None:
    trace = trace_of((0, 0.0, 8e6), (0.002, 0.0, 0.0), (0.5, 0.0, 8e6), period_s=1)
    sent = send(pacing_of(trace=trace), (0, 1500), (0, 1500), (100 * MS, 1000))
    assert sent == [1_500_000, 501 * MS, 502 * MS]
    assert send(pacing_of(trace=trace), (100 * MS, 1000)) == [501 * MS]


def test_the_delay_is_that_of_the_departure_and_order_is_kept() -> None:
    trace = trace_of((0, 0.1, 8e6), (0.0015, 0.01, 8e6), (0.2, 0.02, 8e6), period_s=1)
    sent = send(pacing_of(trace=trace), (0, 1000), (0, 1000), (150 * MS, 1000), (200 * MS, 1000))
    assert sent == [101 * MS, 101 * MS, 161 * MS, 221 * MS]


def test_a_trace_of_delays_alone() -> None:
    trace = trace_of((0, 0.1, None), (1, 0.05, None), period_s=2)
    pacing = pacing_of(trace=trace)
    assert send(pacing, (0, 1000), (0, 9000), (1500 * MS, 1000), (2000 * MS, 1000)) == [
        100 * MS,
        100 * MS,
        1550 * MS,
        2100 * MS,
    ]


def test_a_trace_begins_where_it_is_told_and_wraps() -> None:
    trace = trace_of((0, 0.0, 8e6), (1, 0.0, 1.6e6), period_s=2)
    now = 1000 * S
    assert send(pacing_of(trace=trace, begin_ns=now), (now, 1000)) == [now + 1 * MS]
    assert send(pacing_of(trace=trace, begin_ns=now - S), (now, 1000)) == [now + 5 * MS]
    assert send(pacing_of(trace=trace, begin_ns=now - 2 * S), (now, 1000)) == [now + 1 * MS]
    # Read just before `apply` looked at the clock: the beginning, not the end of the lap before.
    assert send(pacing_of(trace=trace, begin_ns=now + 10), (now, 1000)) == [now + 10 + 1 * MS]
    delays = trace_of((0, 0.01, None), (1, 0.5, None), period_s=2)
    assert send(pacing_of(trace=delays, begin_ns=now + 10), (now, 1000)) == [now + 10 + 10 * MS]


def test_a_trace_after_a_day_is_still_exact() -> None:
    trace = trace_of((0, 0.01, 8e6), (0.7, 0.01, 16e6), period_s=1)
    day = 86400 * S
    assert send(pacing_of(trace=trace), (day, 1000))[0] == pytest.approx(day + 11 * MS, abs=100)


def test_the_queue_of_a_trace_is_limited() -> None:
    trace = trace_of((0, 0.1, 8e6), (0.002, 0.1, 0.0), (0.5, 0.1, 8e6), period_s=1)
    pacing = pacing_of(trace=trace, limit_bytes=3000)
    sent = send(pacing, *[(0, 1000)] * 4, (300 * MS, 1000), (300 * MS, 1000), (300 * MS, 1000))
    assert sent == [101 * MS, 102 * MS, 601 * MS, FULL, 602 * MS, 603 * MS, FULL]


def test_a_trace_takes_jitter() -> None:
    trace = trace_of((0, 0.1, 8e6), period_s=1)
    sent = send(pacing_of(trace=trace, jitter_s=0.2), *((number * S, 1000) for number in range(500)))
    delays = [leave - number * S - 1 * MS for number, leave in enumerate(sent)]
    assert min(delays) == 0  # not before it has left the line
    assert 290 * MS < max(delays) <= 300 * MS

"""What physics allows, also where the link varies."""

from __future__ import annotations

import pytest

from pareto import bounds
from pareto.link.profile import Bucket, Direction, Profile
from pareto.link.trace import Step, Trace


def test_both_directions_count() -> None:
    both = Profile("x", Direction(0.1, 8e6), Direction(0.05, 1e6))
    assert bounds.latency_s(both, 1.0, 2.0, 1_000_000, 250_000) == pytest.approx(1 + 2 + 0.15 + 1 + 2)
    assert bounds.throughput_ips(both, 4, 1.0, 1.5, 1_000_000, 250_000) == pytest.approx(4 / 2.0)
    assert bounds.throughput_ips(both, 4, 1.0, None, 0, 0) == pytest.approx(4.0)


def test_jitter_may_always_be_in_favour() -> None:
    shaky = Profile("x", Direction(0.1, jitter_s=0.03), Direction(0.05, jitter_s=0.05))
    assert bounds.latency_s(shaky, 0.0, 0.0, 0, 0) == pytest.approx(0.07)


def test_a_buckets_credit_lowers_the_latency_bound_and_no_other() -> None:
    plain, tbf = Profile("x", Direction(0.1, 8e6)), Profile("x", Direction(0.1, 8e6), bucket=Bucket(32_768))
    assert bounds.latency_s(tbf, 0.0, 0.0, 30_000, 0) == pytest.approx(0.1)
    assert bounds.latency_s(plain, 0.0, 0.0, 132_768, 0) - bounds.latency_s(
        tbf, 0.0, 0.0, 132_768, 0
    ) == pytest.approx(0.032768)
    assert bounds.throughput_ips(tbf, 1, 0.0, 0.0, 30_000, 0) == bounds.throughput_ips(
        plain, 1, 0.0, 0.0, 30_000, 0
    )


def test_reordered_packets_pass_by_the_line() -> None:
    link = Profile("x", Direction(0.1, 8e6, reorder=0.25))
    assert bounds.latency_s(link, 0.0, 0.0, 1_000_000, 0) == pytest.approx(0.1 + 0.75)


def test_a_trace_is_taken_at_its_best_in_the_part_seen() -> None:
    trace = Trace("t", 20.0, (Step(0, 0.2, 1e6), Step(10, 0.1, 8e6)))
    link = Profile("x", Direction(trace=trace))
    assert bounds.latency_s(link, 0.0, 0.0, 100_000, 0, (0.0, 5.0)) == pytest.approx(0.2 + 0.8)
    assert bounds.latency_s(link, 0.0, 0.0, 100_000, 0, (5.0, 12.0)) == pytest.approx(0.1 + 0.1)
    assert bounds.throughput_ips(link, 1, 0.0, 0.0, 100_000, 0, (5.0, 12.0)) == pytest.approx(10)


def test_what_is_foreseen_goes_by_the_mean() -> None:
    trace = Trace("t", 20.0, (Step(0, 0.2, 1e6), Step(10, 0.1, 3e6)))
    assert bounds.transfer_s(Profile("x", Direction(trace=trace)), 250_000, 0) == pytest.approx(
        1 * 1514 / 1448
    )
    assert bounds.transfer_s(Profile("x"), 250_000, 4000) == 0.0

"""What physics allows, also where the link varies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pareto.remote.link.probe import GOODPUT, STILL, Reading, Span
from pareto.remote.link.profile import Bucket, Direction, Profile
from pareto.remote.link.trace import Step, Trace
from pareto.sweep import bounds
from pareto.sweep.bounds import Crossing


def over(profile: Profile, payload_bytes: int, result_bytes: int, seen: Span = STILL) -> Crossing:
    return Crossing("edge-server", profile, payload_bytes, result_bytes, seen)


def latency_s(profile: Profile, payload_bytes: int, seen: Span = STILL) -> float:
    return bounds.latency_s(0.0, [over(profile, payload_bytes, 0, seen)])


def ips(profile: Profile, payload_bytes: int, seen: Span = STILL) -> float:
    return bounds.throughput_ips(1, {"edge": 0.0}, [over(profile, payload_bytes, 0, seen)])[0]


def test_both_directions_count() -> None:
    both = Profile("x", Direction(0.1, 8e6), Direction(0.05, 1e6))
    crossed, stages_s = [over(both, 1_000_000, 250_000)], {"edge": 1.0, "server": 1.5}
    assert bounds.latency_s(3.0, crossed) == pytest.approx(1 + 2 + 0.15 + 1 + 2)
    assert bounds.throughput_ips(4, stages_s, crossed) == (pytest.approx(4 / 2.0), "edge-server back")
    assert bounds.throughput_ips(4, {"edge": 1.0}, []) == (4.0, "edge")


def test_a_chain_is_as_slow_as_all_of_it_and_as_fast_as_its_slowest_step() -> None:
    wide, narrow = Profile("x", Direction(0.1, 8e6)), Profile("y", Direction(0.2, 1e6), Direction(0.3))
    crossed = [
        Crossing("edge-middle1", wide, 1_000_000, 4000),
        Crossing("middle1-server", narrow, 100_000, 4000),
    ]
    assert bounds.latency_s(0.6, crossed) == pytest.approx(0.6 + (0.1 + 1.0) + (0.5 + 0.8))
    stages_s = {"edge": 0.1, "middle1": 0.2, "server": 0.3}
    assert bounds.throughput_ips(1, stages_s, crossed) == (pytest.approx(1.0), "edge-middle1 out")
    assert bounds.throughput_ips(1, stages_s | {"middle1": 2.0}, crossed) == (pytest.approx(0.5), "middle1")


def test_jitter_may_always_be_in_favour() -> None:
    shaky = Profile("x", Direction(0.1, jitter_s=0.03), Direction(0.05, jitter_s=0.05))
    assert latency_s(shaky, 0) == pytest.approx(0.07)


def test_a_buckets_credit_lowers_the_latency_bound_and_no_other() -> None:
    plain, tbf = Profile("x", Direction(0.1, 8e6)), Profile("x", Direction(0.1, 8e6), bucket=Bucket(32_768))
    assert latency_s(tbf, 30_000) == pytest.approx(0.1)
    assert latency_s(plain, 132_768) - latency_s(tbf, 132_768) == pytest.approx(0.032768)
    assert ips(tbf, 30_000) == ips(plain, 30_000)


def test_reordered_packets_pass_by_the_line() -> None:
    assert latency_s(Profile("x", Direction(0.1, 8e6, reorder=0.25)), 1_000_000) == pytest.approx(0.1 + 0.75)


def test_a_trace_is_taken_at_its_best_in_the_part_seen() -> None:
    trace = Trace("t", 20.0, (Step(0, 0.2, 1e6), Step(10, 0.1, 8e6)))
    link = Profile("x", Direction(trace=trace))
    assert latency_s(link, 100_000, (0.0, 5.0)) == pytest.approx(0.2 + 0.8)
    assert latency_s(link, 100_000, (5.0, 12.0)) == pytest.approx(0.1 + 0.1)
    assert ips(link, 100_000, (5.0, 12.0)) == pytest.approx(10)


def test_what_is_foreseen_goes_by_the_mean() -> None:
    trace = Trace("t", 20.0, (Step(0, 0.2, 1e6), Step(10, 0.1, 3e6)))
    assert over(Profile("x", Direction(trace=trace)), 250_000, 0).usual_s == pytest.approx(1 * 1514 / 1448)
    assert over(Profile("x"), 250_000, 4000).usual_s == 0.0


def test_a_crossing_as_probed_is_as_fast_as_the_fastest_reading() -> None:
    asked = over(Profile("x", Direction(0.1, 8e6), Direction(0.1, 4e6)), 1_000_000, 500_000)
    slow, fast = (Reading(0.2, 8e6 * share * GOODPUT, 4e6 * GOODPUT) for share in (0.98, 1.01))
    assert asked.as_probed([slow, fast]).occupied_s == pytest.approx((1 / 1.01, 1.0))
    assert asked.as_probed([slow]).least_s == pytest.approx(0.2 + 1 / 0.98 + 1.0)
    assert asked.as_probed([]) == asked
    datagrams = Reading(0.2, 8e6 * 1472 / 1514, None, payload_share=1472 / 1514)
    assert asked.as_probed([datagrams]).occupied_s == pytest.approx((1.0, 1.0))


def test_what_changes_or_has_a_bucket_stays_as_asked() -> None:
    reading = Reading(0.2, 1e6, 1e6)
    bucket = over(Profile("b", Direction(0.1, 8e6), bucket=Bucket()), 1_000_000, 0)
    assert bucket.as_probed([reading]) == bucket
    trace = over(Profile("t", Direction(trace=Trace("t", 1.0, (Step(0, 0.1, 8e6),)))), 1_000_000, 0)
    assert trace.as_probed([reading]).occupied_s == trace.occupied_s


def test_a_link_of_its_own_may_be_a_quarter_faster_between_its_probes() -> None:
    own = replace(over(Profile("none", Direction(0.1, 8e6), Direction(0.1)), 1_000_000, 0), own=True)
    assert own.as_probed([Reading(0.2, 8e6 * GOODPUT, None)]).least_s == pytest.approx(0.75 * 0.2 + 1 / 1.25)

"""What physics allows, also where the link varies; what is foreseen of a cell; how many requests are in flight,
and in a phase."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pareto.remote.link.probe import GOODPUT, STILL, Reading, Span
from pareto.remote.link.profile import Bucket, Direction, Profile
from pareto.remote.link.trace import Step, Trace
from pareto.remote.worker import pace
from pareto.sweep import bounds, foreseen
from pareto.sweep.bounds import Crossing
from pareto.sweep.cell import Cell
from pareto.sweep.foreseen import ModelFacts


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


def test_a_buckets_credit_lowers_the_latency_bound_and_no_other() -> None:
    plain, tbf = Profile("x", Direction(0.1, 8e6)), Profile("x", Direction(0.1, 8e6), bucket=Bucket(32_768))
    assert latency_s(tbf, 30_000) == pytest.approx(0.1)
    assert latency_s(plain, 132_768) - latency_s(tbf, 132_768) == pytest.approx(0.032768)
    assert ips(tbf, 30_000) == ips(plain, 30_000)


def test_jitter_may_always_be_in_favour_and_reordered_packets_pass_by_the_line() -> None:
    shaky = Profile("x", Direction(0.1, jitter_s=0.03), Direction(0.05, jitter_s=0.05))
    assert latency_s(shaky, 0) == pytest.approx(0.07)
    assert latency_s(Profile("x", Direction(0.1, 8e6, reorder=0.25)), 1_000_000) == pytest.approx(0.1 + 0.75)


def test_a_trace_is_taken_at_its_best_in_the_part_seen() -> None:
    trace = Trace("t", 20.0, (Step(0, 0.2, 1e6), Step(10, 0.1, 8e6)))
    link = Profile("x", Direction(trace=trace))
    assert latency_s(link, 100_000, (0.0, 5.0)) == pytest.approx(0.2 + 0.8)
    assert latency_s(link, 100_000, (5.0, 12.0)) == pytest.approx(0.1 + 0.1)
    assert ips(link, 100_000, (5.0, 12.0)) == pytest.approx(10)
    # What is foreseen goes by the mean.
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
    # What changes or has a bucket stays as asked.
    reading = Reading(0.2, 1e6, 1e6)
    bucket = over(Profile("b", Direction(0.1, 8e6), bucket=Bucket()), 1_000_000, 0)
    assert bucket.as_probed([reading]) == bucket
    trace = over(Profile("t", Direction(trace=Trace("t", 1.0, (Step(0, 0.1, 8e6),)))), 1_000_000, 0)
    assert trace.as_probed([reading]).occupied_s == trace.occupied_s
    # A link of its own may be a quarter faster between its probes.
    own = replace(over(Profile("none", Direction(0.1, 8e6), Direction(0.1)), 1_000_000, 0), own=True)
    assert own.as_probed([Reading(0.2, 8e6 * GOODPUT, None)]).least_s == pytest.approx(0.75 * 0.2 + 1 / 1.25)


# What crosses in a cell, and what a local testbed's cores leave of its throughput


@pytest.mark.parametrize(
    ("codec", "batch_size", "nbytes"),
    [
        ("none", 1, (400, 400)),
        ("int8", 2, (800, pytest.approx(208))),
        ("zstd:3", 1, (400, 400)),  # nothing is known of it
    ],
)
def test_a_crossing_has_what_the_codec_sends(codec: str, batch_size: int, nbytes: tuple[float, Any]) -> None:
    cell = Cell("m", (1,), "one", "tcp", "none", batch_size, codec)
    points, shares = (("input", 100), ("one", 400), ("last", 0)), {"int8": (0.25, 0.26, 1.0)}
    known = ModelFacts(points, 0.01, wire_shares=shares)
    (crossing,) = foreseen.crossings(cell, known, [Profile("x")], ["link"])
    assert (crossing.payload_bytes, crossing.sent_bytes) == nbytes


def test_what_a_local_testbeds_cores_leave_of_a_throughput() -> None:
    quick = ModelFacts((("input", 100_000), ("a", 1000), ("output", 0)), 0.004, splits=((1,), (2,)))
    cut, whole = (Cell("m", (point,), "", "tcp", "x", 1) for point in (1, 2))
    still, slow = Profile("x"), Profile("x", Direction(0.0, 1e5))
    sends_s = foreseen.SENDING_S
    assert foreseen.reach(whole, quick, [still], cores=2) == 1.0  # nothing is sent
    assert foreseen.reach(cut, quick, [slow], cores=2) == 1.0  # the link is slower than all of it
    assert foreseen.reach(cut, quick, [still], cores=2) == pytest.approx(0.002 / (0.002 + sends_s), rel=0.05)
    # A quarter of a core: the edge's stage and its sending alike take four times as long.
    slowed = foreseen.reach(cut, quick, [still], edge_cpu=0.25, cores=2)
    assert slowed == pytest.approx(0.002 / (0.002 + sends_s), rel=0.05)
    # One core for both hosts does the work of both, and the relay's.
    carried_s = foreseen.RELAY_S_PER_BYTE * (1000 + quick.result_bytes)
    shared = foreseen.reach(cut, quick, [still], cores=1)
    assert shared == pytest.approx(0.002 / (0.004 + 2 * sends_s + carried_s))


# How many requests there are


@pytest.mark.parametrize(
    ("latency_s", "slowest_s", "depth"),
    [(2.92, 2.68, 2), (0.4, 0.168, 3), (0.23, 0.015, 20), (0.02, 0.02, 2), (10.0, 0.001, 64)],
)
def test_in_flight_covers_the_round_trip(latency_s: float, slowest_s: float, depth: int) -> None:
    assert pace.in_flight(latency_s, slowest_s) == depth
    assert depth == 64 or depth * slowest_s >= latency_s


@pytest.mark.parametrize(
    ("length", "pace_s", "depth", "made"),
    [
        ((1, 0.5), 0.1, 2, (2 + 3, 6 + 3)),
        ((1, 0.5), 2.0, 3, (3 + 4, 3 + 4)),
        ((4, 0.0), 0.1, 3, (6 + 4, 6 + 4)),
        ((662, 0.0), 0.1, 3, (663 + 4, 663 + 4)),
        ((1, 10.0), 1e-4, 2, (2 + 3, 10_000 + 3)),
        ((10_000, 0.0), 1e-4, 64, (10_048 + 65, 10_048 + 65)),
    ],
)
def test_steady_state_is_whole_bursts_beside_those_that_fill_the_steps(
    length: tuple[int, float], pace_s: float, depth: int, made: tuple[int, int]
) -> None:
    assert pace.in_bursts(*length, pace_s, depth) == made


def test_what_a_trial_takes_for_stages_by_themselves() -> None:
    assert pace.alone_s((0.2, 0.001)) == pytest.approx(0.2 + 0.2 + 2 * (2 * 0.2 + 0.03))
    assert pace.alone_s((0.001, 0.2)) == pytest.approx(0.2 + 0.001 + 2 * (0.03 + 2 * 0.2))
    assert pace.alone_s((0.6, 0.0)) == pytest.approx(0.6 + 0.6 + 2 * 0.6)


def test_a_first_reply_that_comes_late_makes_no_step_quicker_than_it_is() -> None:
    rows = (99.0, 0.01, 99.0), (101.0, 0.01, 98.0), (101.0, None, 101.0), (250.0, 0.01, 98.0)
    for ips, best_s, shown in rows:
        assert pace.paced(ips, 1, best_s, 98.0) == shown
        assert pace.paced(8 * ips, 8, best_s, 98.0) == 8 * shown

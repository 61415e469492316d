"""What a probe is asked, and the verdict on its reading."""

from __future__ import annotations

import math
import random

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.remote.link import probe
from pareto.remote.link.probe import GOODPUT, Reading, Sample, Tolerance, bulk_bytes, judge, question
from pareto.remote.link.profile import Bucket, Direction, Gilbert, Profile
from pareto.remote.link.trace import Step, Trace
from pareto.sweep.profile_files import load

SLOW = load("200ms-5mbit")
LOSSY = Profile("lossy", Direction(0.05, 10e6, loss=0.1), Direction(0.05))
STAIRS = Trace("stairs", 20.0, (Step(0, 0.01, 2e6), Step(10, 0.05, 8e6)))
CHANGING = Profile("stairs", Direction(trace=STAIRS))


def test_the_slow_uplink(snapshot: SnapshotAssertion) -> None:
    assert judge(SLOW, Reading(0.2003, 4.78e6, 9e8)) == ""
    verdicts = [
        judge(SLOW, Reading(rtt_s, rate_bps, None))
        for rtt_s, rate_bps in (
            *((0.231, 4.78e6), (0.0002, 4.78e6), (0.2, 900e6), (0.2, 4.0e6)),
            *((0.2, None), (None, 4.78e6)),
        )
    ]
    assert all(verdicts)
    assert verdicts == snapshot


def test_the_way_back_is_judged_where_it_is_shaped(snapshot: SnapshotAssertion) -> None:
    verdict = judge(load("wifi"), Reading(0.002, 15e6 * GOODPUT, 100e6))
    assert "server to edge" in verdict
    assert verdict == snapshot


def test_not_a_number_is_a_fault() -> None:
    assert judge(SLOW, Reading(math.nan, 4.78e6, None))
    assert judge(SLOW, Reading(0.2, math.nan, None))


def test_a_clean_link_may_take_the_floor(snapshot: SnapshotAssertion) -> None:
    clean = load("none")
    assert judge(clean, Reading(0.00029, 1e9, 1e9)) == ""
    verdict = judge(clean, Reading(0.003, None, None))
    assert verdict
    assert verdict == snapshot
    assert judge(clean, Reading(0.003, None, None), Tolerance(rtt_floor_s=0.01)) == ""


def test_jitter_widens_what_a_round_trip_may_be(snapshot: SnapshotAssertion) -> None:
    shaky = Profile("shaky", Direction(0.05, jitter_s=0.02), Direction(0.05, jitter_s=0.01))
    assert judge(shaky, Reading(0.072, None, None)) == ""
    assert judge(shaky, Reading(0.128, None, None)) == ""
    verdict = judge(shaky, Reading(0.145, None, None))
    assert "70 ms to 130 ms" in verdict
    assert verdict == snapshot


def test_datagrams_have_their_own_share_of_the_wire() -> None:
    share = 1472 / 1514
    assert judge(LOSSY, Reading(0.1, 10e6 * share, None, payload_share=share)) == ""
    assert judge(SLOW, Reading(0.2, 5e6 * 1.019 * share, None, payload_share=share)) == ""
    assert judge(SLOW, Reading(0.2, 5e6 * 1.021 * share, None, payload_share=share)) != ""


@pytest.mark.parametrize(("rate", "fine"), [(0.97, False), (0.985, True), (1.015, True), (1.03, False)])
def test_a_rate_3_percent_off_is_a_fault(rate: float, fine: bool) -> None:
    assert (judge(SLOW, Reading(0.2, 5e6 * rate * GOODPUT, None)) == "") is fine


RATE_OFF = "rate edge to server"
LINK, GIGABIT, TWENTY = (
    load("10ms-20mbit"),
    load("lan-1gbit"),
    Profile("20ms", Direction(0.01), Direction(0.01)),
)
READ = {
    "honest": (LINK, 0.010331739, 19125760.67, None, ()),
    "97 % of the rate": (LINK, 0.010280763, 18554075.22, None, (RATE_OFF,)),
    "103 % of the rate": (LINK, 0.010241207, 19700163.85, None, (RATE_OFF,)),
    "97 % of a gigabit": (GIGABIT, 0.001100611, 928266306.91, 956221634.18, ("RTT", RATE_OFF)),
    "103 % of a gigabit": (GIGABIT, 0.000489488, 984737961.17, 952767027.09, (RATE_OFF,)),
    "1 ms less": (TWENTY, 0.019281237, None, None, ("RTT",)),
    "1 ms more": (TWENTY, 0.021299317, None, None, ("RTT",)),
}
"""Readings of relays that were not what they said, on a machine that was also kept busy, and what was found off."""


@pytest.mark.parametrize(("asked", "rtt_s", "out_bps", "back_bps", "off"), READ.values(), ids=READ)
def test_a_relay_that_is_not_what_it_says_is_found(
    asked: Profile, rtt_s: float, out_bps: float | None, back_bps: float | None, off: tuple[str, ...]
) -> None:
    faults = judge(asked, Reading(rtt_s, out_bps, back_bps, ping_bytes=83)).split("; ")
    assert len(faults) == len(off or ("",))
    assert all(fault.startswith(words) for fault, words in zip(faults, off or ("",), strict=True))
    assert any(faults) is bool(off)


def test_a_ping_takes_its_time_on_the_line() -> None:
    """83 bytes at 384 kbit/s and back at 1.5 Mbit/s: 2.2 ms that are the rate's and not the delay's."""
    dsl, rates = load("dsl"), (384e3 * GOODPUT, 1.5e6 * GOODPUT)
    needed_s = 0.050 + 83 * 8 / 384e3 + 83 * 8 / 1.5e6
    assert judge(dsl, Reading(needed_s, *rates, ping_bytes=83)) == ""
    assert judge(dsl, Reading(needed_s, *rates, ping_bytes=0)) != ""
    bucket = Profile("tbf", Direction(0.05, 384e3), bucket=Bucket())
    assert probe.on_line_s(bucket, 83) == 0.0


def test_what_overtakes_takes_no_time_and_what_is_damaged_does_not_count() -> None:
    share = 1472 / 1514
    for way, passing in (
        (Direction(0.05, 10e6, reorder=0.1), 1 / 0.9),
        (Direction(0.05, 10e6, corrupt=0.1), 0.9),
    ):
        odd = Profile("odd", way)
        assert judge(odd, Reading(0.05, 10e6 * share * passing, None, payload_share=share)) == ""
        assert judge(odd, Reading(0.05, 10e6 * share, None, payload_share=share)) != ""


@pytest.mark.parametrize(("received", "fine"), [(180, True), (168, True), (200, False), (140, False)])
def test_lost_datagrams_must_fit_what_was_asked(
    received: int, fine: bool, snapshot: SnapshotAssertion
) -> None:
    fault = judge(LOSSY, Reading(0.1, 9.56e6, None, Sample(200, received, 0, 0)))
    assert (fault == "") is fine
    if not fine:
        assert f" {200 - received} of 200 " in fault
        assert fault == snapshot


def test_a_damaged_datagram_does_not_arrive_either() -> None:
    assert probe.missing_share(Direction(loss=0.1, corrupt=0.1)) == pytest.approx(0.19)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    chance = random.Random(7)  # noqa: S311
    missed = 0
    for _ in range(2000):
        lost = sum(chance.random() < 0.05 for _ in range(200))
        least, most = probe.interval(lost, 200)
        missed += not least <= 0.05 <= most
    assert missed <= 12  # 2 foreseen at 99.9 %
    assert probe.interval(0, 200)[0] == pytest.approx(0.0, abs=1e-12)
    assert probe.interval(200, 200)[1] == pytest.approx(1.0)


def test_bursts_widen_the_interval() -> None:
    bursty = Direction(loss=Gilbert(0.01, 0.09))
    assert bursty.mean_loss == pytest.approx(0.1)
    assert probe.burstiness(bursty) == pytest.approx(1.9 / 0.1)
    plain, wide = probe.interval(20, 200), probe.interval(20, 200, probe.burstiness(bursty))
    assert wide[0] < plain[0] < plain[1] < wide[1]


@pytest.mark.parametrize(
    ("rate_bps", "size"),
    [(1e6, 48_000), (5e6, 62_500), (50e6, 625_000), (1e9, 12_500_000), (1e10, 12_500_000)],
)
def test_bulk_is_a_tenth_of_a_second(rate_bps: float, size: int) -> None:
    assert bulk_bytes(rate_bps) == size


def test_only_links_that_hold_tcp_up_are_asked_by_datagrams() -> None:
    plain = question(SLOW)
    assert not plain.datagrams
    assert (plain.bulk_out, plain.bulk_back, plain.sample_out) == (62_500, 0, 0)
    lossy = question(LOSSY)
    assert lossy.datagrams
    assert lossy.sample_out == 200
    assert lossy.sample_back == 0
    assert question(Profile("short", Direction(0.01, 1e7, limit_bytes=20_000))).datagrams


def test_more_pings_where_more_are_lost() -> None:
    """50 % each way: of 21 echoes none comes in 0.2 % of probes."""
    assert question(SLOW).pings == question(LOSSY).pings == 21
    heavy = question(Profile("h", Direction(0.05, loss=0.5), Direction(0.05, loss=0.5))).pings
    assert (1 - 0.5**2) ** heavy < 1e-4 < (1 - 0.5**2) ** (heavy - 2)
    assert question(Profile("dead", Direction(0.05, loss=1.0))).pings == 21


def test_a_sample_fits_the_link_and_the_time_given() -> None:
    slow = question(Profile("s", Direction(0.05, 1e5, loss=0.1)), sample_s=4.0)
    assert slow.sample_gap_s == pytest.approx(2 * 142 * 8 / 1e5)
    assert slow.sample_out == pytest.approx(4.0 / slow.sample_gap_s, abs=1)


def test_a_buckets_credit_is_not_counted() -> None:
    asked = question(Profile("b", Direction(0.2, 5e6), bucket=Bucket(32_768)))
    assert asked.skip_out == 40_960
    assert asked.bulk_out == 62_500 + 40_960


def test_jitter_must_not_look_like_a_slow_line() -> None:
    """Pings keep clear of each other, and the bulk counts once the line always has work."""
    asked = question(Profile("j", Direction(0.05, 20e6, jitter_s=0.02), Direction(0.05, jitter_s=0.01)))
    assert asked.ping_gap_s == pytest.approx(0.06)
    assert asked.skip_out == int(1.25 * 0.04 * 20e6 / 8)
    assert asked.bulk_out == asked.skip_out + 250_000
    assert question(SLOW).ping_gap_s == 0.002


def test_a_changing_link_is_judged_by_what_it_was_meanwhile() -> None:
    for span, reading, fine in (
        ((1.0, 2.0), Reading(0.010, 2e6 * GOODPUT, None), True),
        ((1.0, 2.0), Reading(0.050, 8e6 * GOODPUT, None), False),
        ((11.0, 12.0), Reading(0.050, 8e6 * GOODPUT, None), True),
        ((31.0, 32.0), Reading(0.050, 8e6 * GOODPUT, None), True),  # the second lap
        ((9.0, 11.0), Reading(0.030, 5e6 * GOODPUT, None), True),
        ((9.0, 11.0), Reading(0.080, 5e6 * GOODPUT, None), False),
    ):
        assert (judge(CHANGING, reading, span=span) == "") is fine, (span, reading)


def test_a_probes_duration_is_foreseen() -> None:
    assert probe.duration_s(SLOW) == pytest.approx(0.2 + 0.042 + 0.1 + 0.03)
    assert probe.duration_s(LOSSY) > probe.duration_s(Profile("x", Direction(0.05, 10e6), Direction(0.05)))


def test_an_outage_holds_an_echo_back() -> None:
    gap = Trace("gap", 10.0, (Step(0, 0.05, 10e6), Step(4, 0.05, 0), Step(4.5, 0.05, 10e6)))
    link = Profile("gap", Direction(trace=gap))
    late = Reading(0.5, 10e6 * GOODPUT, None)
    assert judge(link, late, span=(3.9, 5.0)) == ""
    assert judge(link, late, span=(6.0, 7.0))

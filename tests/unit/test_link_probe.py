"""The verdict on a link."""

from __future__ import annotations

import math

import pytest

from pareto.link.probe import GOODPUT, Reading, Tolerance, bulk_bytes, expected, judge
from pareto.link.profile import load

SLOW = load("200ms-5mbit")


def test_expected_is_the_delays_and_the_payload_rate() -> None:
    rtt_s, rate_bps = expected(SLOW)
    assert rtt_s == 0.2
    assert rate_bps == pytest.approx(4.782e6, rel=1e-3)
    assert expected(load("none")) == (0.0, None)


@pytest.mark.parametrize(
    ("reading", "verdict"),
    [
        (Reading(0.2003, 4.78e6, 9e8), ""),
        (Reading(0.2003, None, None), ""),
        (Reading(0.231, None, None), "RTT 231 ms, asked 200 ms (tolerance 20 ms)"),
        (Reading(0.0002, None, None), "RTT 0.2 ms, asked 200 ms (tolerance 20 ms)"),
        (
            Reading(0.2, 900e6, None),
            "rate edge to server 900 Mbit/s, asked 4.78 Mbit/s of payload (tolerance 10%)",
        ),
        (
            Reading(0.2, 4.0e6, None),
            "rate edge to server 4 Mbit/s, asked 4.78 Mbit/s of payload (tolerance 10%)",
        ),
    ],
)
def test_the_slow_uplink(reading: Reading, verdict: str) -> None:
    assert judge(SLOW, reading) == verdict


def test_the_way_back_is_judged_where_it_is_shaped() -> None:
    assert "rate server to edge 100 Mbit/s" in judge(load("wifi"), Reading(0.002, 15e6 * GOODPUT, 100e6))


def test_every_fault_is_named() -> None:
    assert judge(SLOW, Reading(0.5, 1e6, None)).count(";") == 1


def test_not_a_number_is_a_fault() -> None:
    assert judge(SLOW, Reading(math.nan, None, None)).startswith("RTT nan ms")
    assert "rate edge to server" in judge(SLOW, Reading(0.2, math.nan, None))


def test_a_clean_link_may_take_the_floor() -> None:
    clean = load("none")
    assert judge(clean, Reading(0.004, 1e9, 1e9)) == ""
    assert judge(clean, Reading(0.006, None, None)) == "RTT 6 ms, asked 0 ms (tolerance 5 ms)"
    assert judge(clean, Reading(0.006, None, None), Tolerance(rtt_floor_s=0.01)) == ""


@pytest.mark.parametrize(
    ("rate_bps", "size"), [(1e6, 48_000), (5e6, 62_500), (50e6, 625_000), (1e9, 4_000_000), (None, 4_000_000)]
)
def test_bulk_is_a_tenth_of_a_second(rate_bps: float | None, size: int) -> None:
    assert bulk_bytes(rate_bps) == size

"""What a trace's line does at a moment, for netem, which fixes a packet's times as it comes in."""

from __future__ import annotations

import pytest

from pareto.link.player import moment
from pareto.link.profile import Direction
from pareto.link.trace import Step, Trace

PACKET_S = 1514 * 8 / 8e6  # at 8 Mbit/s


def way(*steps: tuple[float, float, float | None], period_s: float = 4.0, jitter_s: float = 0.0) -> Direction:
    return Direction(trace=Trace("test", period_s, tuple(Step(*step) for step in steps)), jitter_s=jitter_s)


def test_a_step_holds_until_the_next() -> None:
    direction = way((0, 0.02, 2e6), (0.5, 0.03, 8e6))
    now, until_s = moment(direction, 0.1)
    assert (now.delay_s, now.rate_bps, until_s) == (
        pytest.approx(0.02),
        pytest.approx(2e6),
        pytest.approx(0.5),
    )
    now, until_s = moment(direction, 0.5)
    assert (now.delay_s, now.rate_bps) == (pytest.approx(0.03), pytest.approx(8e6))
    assert until_s == pytest.approx(1.5)  # a look at least every second
    assert moment(direction, 4.2)[0].rate_bps == pytest.approx(2e6)


def test_short_steps_are_merged_into_their_mean() -> None:
    now, until_s = moment(way((0, 0.02, 2e6), (0.005, 0.04, 6e6), (0.3, 0.1, 1e6)), 0.0)
    assert until_s == pytest.approx(0.02)
    assert now.rate_bps == pytest.approx((2e6 * 5 + 6e6 * 15) / 20)
    assert now.delay_s == pytest.approx((0.02 * 5 + 0.04 * 15) / 20)


def test_an_outage_is_delay_until_it_is_over_with_the_rate_after_it() -> None:
    now, until_s = moment(way((0, 0.02, 2e6), (1, 0.02, 0.0), (2, 0.02, 8e6)), 1.25)
    assert now.rate_bps == pytest.approx(8e6)
    assert now.delay_s == pytest.approx(0.02 + 0.75)
    assert until_s == pytest.approx(1.27)  # said anew, or packets that come later would be late


def test_an_outage_at_the_end_lasts_into_the_next_lap() -> None:
    now, _ = moment(way((0, 0.02, 2e6), (3, 0.02, 0.0)), 3.5)
    assert (now.delay_s, now.rate_bps) == (pytest.approx(0.52), pytest.approx(2e6))


def test_a_packet_that_a_slow_step_cannot_carry_alone_is_not_held_by_its_rate() -> None:
    # 20 ms at 1 kbit/s: at that rate a packet would take 12 s, and all after it with it.
    now, _ = moment(way((0, 0.0, 1e3), (0.02, 0.0, 8e6)), 0.0)
    assert now.rate_bps == pytest.approx(8e6)
    assert now.delay_s == pytest.approx(0.02, abs=0.0001)


def test_a_rate_that_is_slow_for_long_is_that_rate() -> None:
    now, _ = moment(way((0, 0.02, 1e5), (3, 0.02, 8e6)), 1.0)
    assert (now.delay_s, now.rate_bps) == (pytest.approx(0.02), pytest.approx(1e5))


def test_delay_alone_has_no_rate() -> None:
    now, until_s = moment(way((0, 0.02, None), (1, 0.05, None)), 0.75)
    assert (now.delay_s, now.rate_bps, until_s) == (pytest.approx(0.02), None, pytest.approx(1.0))


def test_what_went_out_before_the_rate_fell_is_still_in_flight() -> None:
    direction = way((0, 0.1, 8e6), (1, 0.1, 1e6), jitter_s=0.02)
    assert moment(direction, 0.9)[0].in_flight_bytes == pytest.approx(1e6 * 0.12)
    assert moment(direction, 1.05)[0].in_flight_bytes == pytest.approx(1e6 * 0.12)
    assert moment(direction, 1.5)[0].in_flight_bytes == pytest.approx(0.125e6 * 0.12)

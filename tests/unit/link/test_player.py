"""What a trace makes of netem and tbf at a moment."""

from __future__ import annotations

import pytest

from pareto.remote.link import player
from pareto.remote.link.netem import Netem, Tbf
from pareto.remote.link.player import Rates, delay_at
from pareto.remote.link.profile import Direction, Gilbert
from pareto.remote.link.trace import Step, Trace

PACKET_BITS = 1514 * 8


def way(*steps: tuple[float, float, float | None], period_s: float = 4.0, **others: object) -> Direction:
    trace = Trace("test", period_s, tuple(Step(*step) for step in steps))
    return Direction(trace=trace, **others)  # type: ignore[arg-type]


def passes(tbf: Tbf, seconds: float) -> float:
    """Bits that a busy tbf lets pass from a change on: its bucket lacked half a packet, then its rate."""
    burst = tbf.burst_ticks * 64e-9 * tbf.rate_bps
    return burst - PACKET_BITS / 2 + tbf.rate_bps * seconds


def test_a_steps_delay_holds_until_the_next() -> None:
    changing = way((0, 0.02, None), (0.5, 0.03, None))
    netem, until_s = delay_at(changing, 0.1)
    assert (netem.direction.delay_s, until_s) == (pytest.approx(0.02), pytest.approx(0.5))
    assert netem.rate_bytes == 0
    netem, until_s = delay_at(changing, 0.5)
    assert (netem.direction.delay_s, until_s) == (pytest.approx(0.03), pytest.approx(4.0))
    assert delay_at(changing, 4.2)[0].direction.delay_s == pytest.approx(0.02)


def test_short_delays_are_merged_into_their_mean() -> None:
    netem, until_s = delay_at(way((0, 0.02, None), (0.005, 0.04, None), (0.3, 0.1, None)), 0.0)
    assert until_s == pytest.approx(0.02)
    assert netem.direction.delay_s == pytest.approx((0.02 * 5 + 0.04 * 15) / 20)


def test_a_step_carries_what_the_trace_says() -> None:
    rates = Rates(way((0, 0.0, 2e6), (0.5, 0.0, 8e6)))
    for at_s, bits in ((0.0, 1e6), (0.5, 3.5 * 8e6)):
        tbf, until_s = rates.at(at_s)
        assert passes(tbf, until_s - at_s) == pytest.approx(bits, rel=1e-4)


def test_short_rates_are_merged_into_their_mean() -> None:
    tbf, until_s = Rates(way((0, 0.0, 2e6), (0.005, 0.0, 6e6), (0.3, 0.0, 1e6))).at(0.0)
    assert until_s == pytest.approx(0.02)
    assert passes(tbf, 0.02) == pytest.approx(2e6 * 0.005 + 6e6 * 0.015, rel=1e-3)


def test_the_rate_comes_as_much_later_as_the_packets() -> None:
    rates = Rates(way((0, 0.1, 2e6), (1, 0.1, 8e6)))
    tbf, until_s = rates.at(1.05)  # what comes to tbf now was sent at 0.95
    assert until_s == pytest.approx(1.1)
    assert tbf.rate_bps < 2e6
    assert rates.at(1.1)[0].rate_bps > 7e6


def test_an_outage_passes_one_packet_by_its_end() -> None:
    tbf, until_s = Rates(way((0, 0.0, 2e6), (1, 0.0, 0.0), (2, 0.0, 8e6))).at(1.0)
    assert until_s == pytest.approx(2.0)
    assert tbf.rate_bps == pytest.approx(PACKET_BITS, rel=1e-3)


def test_what_passed_too_much_is_taken_off_later() -> None:
    rates = Rates(way((0, 0.0, 2e6), (1, 0.0, 0.0), (1.1, 0.0, 8e6), (1.2, 0.0, 0.0)))
    fresh = Rates(way((0, 0.0, 2e6), (1, 0.0, 0.0), (1.1, 0.0, 8e6), (1.2, 0.0, 0.0))).at(1.1)[0]
    rates.at(1.0)
    assert passes(fresh, 0.1) - passes(rates.at(1.1)[0], 0.1) == pytest.approx(PACKET_BITS / 2, rel=0.01)


def test_the_buffer_is_tbfs() -> None:
    assert Rates(way((0, 0.02, 2e6), limit_bytes=30_000)).at(0.0)[0].limit_bytes == 30_000
    assert Rates(way((0, 0.02, 2e6))).at(0.0)[0].limit_bytes >= 10_000_000
    assert delay_at(way((0, 0.02, 2e6), limit_bytes=30_000), 0.0)[0].limit_packets > 10_000


def test_chains() -> None:
    assert [type(layer) for layer in player.chain(way((0, 0.02, None)), 0.0)] == [Netem]
    assert [type(layer) for layer in player.chain(way((0, 0.02, 2e6)), 0.0)] == [Netem, Tbf]


def test_bursts_of_loss_have_a_netem_that_the_trace_does_not_change() -> None:
    first, second, _ = player.chain(way((0, 0.1, 1e6), loss=Gilbert(0.1, 0.5), duplicate=0.1), 0.0)
    assert isinstance(first, Netem)
    assert isinstance(second, Netem)
    assert first.gilbert
    assert not first.delay_ticks
    assert not second.gilbert
    assert second.duplicate

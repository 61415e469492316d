"""The one place where seconds and bit/s become netem's units."""

from __future__ import annotations

import pytest

from pareto.link import offload
from pareto.link.profile import MAX_DELAY_S, MAX_RATE_BPS, Direction
from pareto.link.qdisc import Netem


def test_ticks_and_bytes() -> None:
    netem = Netem.of(Direction(0.2, 5e6))
    assert (netem.delay_ticks, netem.rate_bytes) == (3_125_000, 625_000)
    assert netem.direction == Direction(0.2, 5e6)


def test_no_rate_is_zero_and_back() -> None:
    assert Netem.of(Direction(0.01)).rate_bytes == 0
    assert Netem.of(Direction(0.01)).direction == Direction(0.01)


def test_every_profile_fits_the_kernels_32_bits() -> None:
    netem = Netem.of(Direction(MAX_DELAY_S, MAX_RATE_BPS))
    assert max(netem.delay_ticks, netem.rate_bytes, netem.limit_packets) < 1 << 32


@pytest.mark.parametrize("direction", [Direction(0.2, 5e6), Direction(0.1, 1e9), Direction(0.2)])
def test_the_limit_holds_what_is_in_flight_and_full_windows(direction: Direction) -> None:
    in_flight = (direction.rate_bps or 1e9) / 8 * direction.delay_s / 1514
    assert Netem.of(direction).limit_packets > in_flight + 10_000


@pytest.mark.parametrize(("rate_bps", "coarse"), [(5e6, True), (199e6, True), (200e6, False), (None, False)])
def test_slow_links_want_no_super_packets(rate_bps: float | None, coarse: bool) -> None:
    assert offload.too_coarse(rate_bps) is coarse

"""Quantities as people write them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.remote.link import units

READ: dict[Callable[[str], float], dict[str, float]] = {
    units.delay_s: {"200ms": 0.2, "1.5ms": 0.0015, "100us": 1e-4, "2s": 2.0, "80 MS": 0.08},
    units.rate_bps: {"5mbit": 5e6, "2.5mbit": 2.5e6, "768kbit": 768e3, "1gbit": 1e9, ".5Mbit": 5e5},
    units.share: {"1%": 0.01, "0.1%": 0.001, "100 %": 1.0, "0%": 0.0},
    units.size_bytes: {
        **{"1514b": 1514, "64kib": 65536, "64KB": 64000, "1.5kib": 1536},
        **{"2mb": 2_000_000, "1mib": 1 << 20, "1gb": 1_000_000_000, "1gib": 1 << 30},
    },
}


@pytest.mark.parametrize("read", READ)
def test_what_people_write(read: Callable[[str], float]) -> None:
    assert {text: read(text) for text in READ[read]} == READ[read]


@pytest.mark.parametrize(
    ("read", "text", "name"),
    [
        (units.delay_s, "200", "delay"),
        (units.delay_s, "5mbit", "delay"),
        (units.delay_s, "fast", "delay"),
        (units.delay_s, "5", "jitter"),
        (units.share, "0.01", "reorder"),
        (units.size_bytes, "100p", "limit"),
    ],
)
def test_what_is_wrong_has_its_name(
    read: Callable[[str, str], float], text: str, name: str, snapshot: SnapshotAssertion
) -> None:
    with pytest.raises(ValueError, match=f"^{name} '{text}' ") as refused:
        read(text, name)
    assert str(refused.value) == snapshot


def test_a_delay_is_called_so_unless_it_is_another_thing() -> None:
    with pytest.raises(ValueError, match=r"^delay '200' "):
        units.delay_s("200")


def test_a_size_of_too_many_digits_is_a_size() -> None:
    """Out of any range, and for the profile to refuse."""
    assert units.size_bytes("9" * 400 + "b") > 1 << 60


def test_what_people_read() -> None:
    seconds = (0.2, 0.231, 0.00012, 0.000025, 2.0)
    assert [*map(units.duration, seconds)] == ["200 ms", "231 ms", "0.12 ms", "25 µs", "2 s"]
    rates = [units.rate(bits, 3) for bits in (4.79e6, 1e9, 250e3)]
    assert rates == ["4.79 Mbit/s", "1 Gbit/s", "250 kbit/s"]

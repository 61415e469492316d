"""Quantities as people write them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.remote.link import units


@pytest.mark.parametrize(
    ("text", "seconds"), [("200ms", 0.2), ("1.5ms", 0.0015), ("100us", 1e-4), ("2s", 2.0), ("80 MS", 0.08)]
)
def test_delays(text: str, seconds: float) -> None:
    assert units.delay_s(text) == seconds


@pytest.mark.parametrize(
    ("text", "bits"),
    [("5mbit", 5e6), ("2.5mbit", 2.5e6), ("768kbit", 768e3), ("1gbit", 1e9), (".5Mbit", 5e5)],
)
def test_rates(text: str, bits: float) -> None:
    assert units.rate_bps(text) == bits


@pytest.mark.parametrize(("text", "value"), [("1%", 0.01), ("0.1%", 0.001), ("100 %", 1.0), ("0%", 0.0)])
def test_shares(text: str, value: float) -> None:
    assert units.share(text) == value


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("1514b", 1514),
        ("64kib", 65536),
        ("64KB", 64000),
        ("1.5kib", 1536),
        ("2mb", 2_000_000),
        ("1mib", 1 << 20),
        ("1gb", 1_000_000_000),
        ("1gib", 1 << 30),
    ],
)
def test_sizes(text: str, nbytes: int) -> None:
    assert units.size_bytes(text) == nbytes


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


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "200 ms"), (0.231, "231 ms"), (0.00012, "0.12 ms"), (0.000025, "25 µs"), (2.0, "2 s")],
)
def test_times_are_written(seconds: float, text: str) -> None:
    assert units.duration(seconds) == text


@pytest.mark.parametrize(
    ("bits", "text"), [(4.79e6, "4.79 Mbit/s"), (1e9, "1 Gbit/s"), (250e3, "250 kbit/s")]
)
def test_rates_are_shown(bits: float, text: str) -> None:
    assert units.rate(bits, 3) == text

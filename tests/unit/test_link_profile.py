"""Profiles: what a name or a file means, and every way in which one can be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from pareto.link import units
from pareto.link.profile import Direction, Profile, ProfileError, load, names


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("200", "delay '200' has no unit: use us, ms, s, as in 200ms"),
        ("5mbit", "delay '5mbit' has the unknown unit 'mbit': use us, ms, s, as in 200ms"),
        ("fast", "delay 'fast' is not a number and a unit: write it like 200ms"),
    ],
)
def test_a_wrong_delay_says_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        units.delay_s(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "200 ms"), (0.231, "231 ms"), (0.00012, "0.12 ms"), (2.0, "2000 ms")]
)
def test_delays_are_shown(seconds: float, text: str) -> None:
    assert units.show_delay(seconds) == text


@pytest.mark.parametrize(
    ("bits", "text"), [(4.79e6, "4.79 Mbit/s"), (1e9, "1 Gbit/s"), (250e3, "250 kbit/s")]
)
def test_rates_are_shown(bits: float, text: str) -> None:
    assert units.show_rate(bits) == text


def test_every_file_loads_under_its_name() -> None:
    assert {"none", "200ms-5mbit", "lan-1gbit", "wifi", "lte", "3g", "dsl"} <= set(names())
    for name in names():
        assert load(name).name == name


def test_the_slow_uplink() -> None:
    profile = load("200ms-5mbit")
    assert profile == Profile("200ms-5mbit", Direction(0.2, 5e6), Direction())
    assert profile.rtt_s == 0.2


def test_none_is_the_clean_link_even_without_its_file(tmp_path: Path) -> None:
    for profile in (load("none"), load("none", tmp_path)):
        assert profile == Profile("none", Direction(), Direction())
        assert not profile.edge_to_server.shaped


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        ("80ms-20mbit", Direction(0.08, 20e6)),
        ("50ms", Direction(0.05)),
        ("10mbit", Direction(rate_bps=10e6)),
        ("0.5ms-2.5gbit", Direction(0.0005, 2.5e9)),
    ],
)
def test_a_name_without_a_file_is_read(name: str, direction: Direction) -> None:
    assert load(name) == Profile(name, direction, Direction())


def test_a_file_of_that_name_wins_over_the_name(tmp_path: Path) -> None:
    (tmp_path / "50ms.yaml").write_text("server_to_edge: {delay: 50ms}\n")
    assert load("50ms", tmp_path) == Profile("50ms", Direction(), Direction(0.05))


def test_a_path_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("edge_to_server: {delay: 1ms}\nserver_to_edge: {rate: 1mbit}\n")
    assert load(str(path)) == Profile("mine", Direction(0.001), Direction(rate_bps=1e6))


def test_dictionaries_round_trip() -> None:
    for name in [*names(), "80ms-20mbit"]:
        assert Profile.from_dict(load(name).to_dict()) == load(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("10mbit-", "netem profile '10mbit-' is malformed: write a name such as 80ms"),
        ("80mss", "netem profile '80mss' is malformed"),
        ("20mbit-80ms", "(delay first; units us ms s, kbit mbit gbit)"),
        ("ltee", "there is no netem profile 'ltee': did you mean lte?"),
        ("satellite", "there is no netem profile 'satellite': there are 200ms-5mbit, 3g,"),
        ("99s", "netem profile '99s': delay 99 s is out of range: 0 to 60 s"),
        ("100gbit", "netem profile '100gbit': rate 1e+11 bit/s is out of range: 1kbit to 34gbit"),
        ("no/such.yaml", "cannot read the netem profile no/such.yaml"),
    ],
)
def test_a_name_that_means_nothing(name: str, message: str) -> None:
    with pytest.raises(ProfileError) as caught:
        load(name)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ": is empty; write 'edge_to_server"),
        ("- 1\n", ":1: the profile must be a mapping with the keys edge_to_server, server_to_edge"),
        ("edge_to_server: {}\nup: {}\n", ":2: unknown key 'up': the profile has the keys"),
        (
            "edge_to_server:\n  delay: 1ms\n  jitter: 1ms\n",
            ":3: unknown key 'jitter': a direction has the keys",
        ),
        ("edge_to_server:\n  delay: 5\n", ":2: delay '5' has no unit: use us, ms, s, as in 200ms"),
        ("edge_to_server:\n  rate: 5mbps\n", ":2: rate '5mbps' has the unknown unit 'mbps': use kbit"),
        ("edge_to_server:\n  rate: [1]\n", ":2: rate must be a number and a unit"),
        ("edge_to_server:\n  rate: 1kbit\n  rate: 2kbit\n", ":3: key 'rate' stands here twice"),
        ("edge_to_server:\n  rate: 50gbit\n", ":2: rate 5e+10 bit/s is out of range"),
        ("edge_to_server: 5\n", ":1: a direction must be a mapping with the keys delay, rate"),
        ("edge_to_server: {\n", ":2: not YAML:"),
    ],
)
def test_a_wrong_file_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(ProfileError) as caught:
        load(str(path))
    assert str(caught.value).startswith(f"{path}{message}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"loss": 1}, "unknown field 'loss': use delay_s, rate_bps"),
        ({"delay_s": [1]}, "delay_s and rate_bps are numbers"),
        ({"delay_s": float("nan")}, "out of range"),
        ({"rate_bps": 0}, "rate 0 bit/s is out of range"),
        ("50ms", "expected the fields delay_s, rate_bps, not '50ms'"),
    ],
)
def test_a_wrong_request_is_refused(fields: object, message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        Direction.from_dict(fields)  # type: ignore[arg-type]

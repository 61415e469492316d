"""Profiles by name: the library, files by path, and names that say it all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.errors import UserError
from pareto.link.library import PROFILES, load, names
from pareto.link.profile import NETEM_TBF, Bucket, Direction, Profile


def test_every_file_loads_under_its_name() -> None:
    assert {"none", "lan-1gbit", "wifi", "5g", "lte", "3g", "dsl", "satellite", "200ms-5mbit"} <= set(names())
    assert names() == sorted(names())
    for name in names():
        assert load(name).name == name


def test_every_file_says_where_it_comes_from() -> None:
    for name in names():
        assert (PROFILES / f"{name}.yaml").read_text().startswith("# "), name


@pytest.mark.parametrize(
    ("name", "out", "back"),
    [
        ("200ms-5mbit", Direction(0.2, 5e6), Direction()),
        ("lan-1gbit", Direction(1e-4, 1e9), Direction(1e-4, 1e9)),
        ("wifi", Direction(0.001, 15e6), Direction(0.001, 30e6)),
        ("5g", Direction(0.0095, 14.7e6), Direction(0.0095, 129.9e6)),
        ("lte", Direction(0.035, 12e6), Direction(0.035, 12e6)),
        ("3g", Direction(0.075, 768e3), Direction(0.075, 1.6e6)),
        ("dsl", Direction(0.025, 384e3), Direction(0.025, 1.5e6)),
        ("satellite", Direction(0.325, 10e6), Direction(0.325, 50e6)),
    ],
)
def test_what_the_library_says(name: str, out: Direction, back: Direction) -> None:
    """As the sources that the files name."""
    assert load(name) == Profile(name, out, back)


def test_the_published_mode_differs_in_its_bucket_alone() -> None:
    profile = load("200ms-5mbit-tbf")
    assert profile.directions == load("200ms-5mbit").directions
    assert profile.shaper == NETEM_TBF
    assert profile.bucket == Bucket(32 * 1024, 0.4)


def test_the_example_of_a_trace() -> None:
    profile = load("handover")
    trace = profile.edge_to_server.trace
    assert trace is not None
    assert (trace.name, profile.period_s, profile.rtt_s) == ("handover.csv", 30.0, pytest.approx(0.05))
    assert [trace.step(at).rate_bps for at in (0, 15.9, 16.0, 16.2, 16.4, 29.9)] == [
        20e6,
        2e6,
        0,
        0,
        4e6,
        20e6,
    ]


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
        ("10ms-100mbit-1%", Direction(0.01, 100e6, loss=0.01)),
        ("20ms-1%", Direction(0.02, loss=0.01)),
        ("5mbit-0.1%", Direction(rate_bps=5e6, loss=0.001)),
        ("2%", Direction(loss=0.02)),
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
    "name",
    [
        *("10mbit-", "80mss", "20mbit-80ms", "1%-20mbit", "5ms-5ms"),
        *("ltee", "zzz", "", "99s", "100gbit", "101%", "no/such.yaml"),
    ],
)
def test_a_name_that_means_nothing(name: str, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(UserError) as caught:
        load(name)
    message = str(caught.value)
    assert name in message
    assert "\n" not in message
    assert message.replace(", ".join(names()), "NAMES") == snapshot


def test_a_name_that_means_nothing_names_what_there_is() -> None:
    with pytest.raises(UserError) as caught:
        load("zzz")
    assert all(name in str(caught.value) for name in names())
    with pytest.raises(UserError, match=r"\blte\b"):
        load("ltee")


def test_hosts_need_no_yaml() -> None:
    """What the link's modules on a host import does without PyYAML."""
    code = "import sys; sys.modules['yaml'] = None; import pareto.link.profile, pareto.link.relay, pareto.link.probe"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=PROFILES.parent)

"""The local testbed on real netem."""

from __future__ import annotations

import shlex
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from pareto.hosts.local_testbed import open_local
from pareto.link.profile import Direction, Profile
from tests import REPOSITORY
from tests.integration.own_machine import left_behind

pytestmark = [pytest.mark.vm, pytest.mark.timeout(700)]

# The guest's processor is emulated, twenty times slower than the machine's own: a round trip costs it milliseconds.
SLOW = ("--rtt-floor", "25ms", "--tolerance", "20%")


def pareto(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pareto", *arguments, *SLOW],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=660,
        check=False,
    )


# Microseconds until a connection is refused: a round trip.
REFUSED = (
    "began=$EPOCHREALTIME; : 2>/dev/null 3<>/dev/tcp/{}/9; echo $((${{EPOCHREALTIME/./}} - ${{began/./}}))"
)


def test_each_link_of_a_chain_has_its_own_netem() -> None:
    """On the edge's side of each, both directions; the host in the middle passes on what is for others."""
    profiles = [
        Profile("near", Direction(0.05), Direction(0.1)),
        Profile("far", Direction(0.2, 5e6), Direction(0.25)),
    ]
    with closing(open_local(hosts=3, shape_at="edge")) as bed:
        assert bed.facts["shaper"] == "netem"
        for link, profile in zip(bed.links, profiles, strict=True):
            told = link.shaper.apply(profile)
            assert list(told) == [link.near.role]
            for way, asked in zip(("egress", "ingress"), profile.directions, strict=True):
                assert told[link.near.role][way]["delay_s"] == asked.delay_s
        for (role, later), asked_s in {
            ("edge", "middle1"): 0.15,
            ("middle1", "server"): 0.45,
            ("edge", "server"): 0.6,
        }.items():
            connect = REFUSED.format(bed.remotes[later].host.data_address)
            said = bed.remotes[role].way.run(f"bash -c {shlex.quote(f'{connect}; {connect}')}").out
            took_s = min(map(int, said.split())) / 1e6
            assert asked_s - 0.001 < took_s < 1.2 * asked_s + 0.025, (role, later)
    assert left_behind() == set()


def test_both_directions_can_be_shaped_on_the_edge_alone(tmp_path: Path) -> None:
    profile = tmp_path / "both.yaml"
    profile.write_text(
        "edge_to_server: {delay: 30ms, rate: 5mbit}\nserver_to_edge: {delay: 60ms, rate: 8mbit}\n"
    )
    asked = (str(profile), "--shape-at", "edge", "--duration", "2s", "--out", str(tmp_path))
    done = pareto("netem", "check", *asked)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rate back" in done.stdout
    assert left_behind() == set()

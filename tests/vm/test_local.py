"""The local testbed on real netem."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest

from pareto.hosts.local.testbed import open_local
from pareto.hosts.testbed import Testbed
from pareto.remote.link.probe import Tolerance, question
from pareto.remote.link.profile import Direction, Profile
from pareto.trial.probes import Probers
from tests.integration.own_machine import left_behind
from tests.less_than_root import container, delegated_cgroup, share_of_a_quarter, user

pytestmark = [pytest.mark.vm, pytest.mark.deep, pytest.mark.timeout(700)]

SLOW = Tolerance(rtt_floor_s=0.025, rtt_fraction=0.2, rate_fraction=0.2)
"""The guest's processor is emulated, twenty times slower than the machine's own: a round trip costs it milliseconds."""

# Microseconds until a connection is refused: a round trip.
REFUSED = (
    "began=$EPOCHREALTIME; : 2>/dev/null 3<>/dev/tcp/{}/9; echo $((${{EPOCHREALTIME/./}} - ${{began/./}}))"
)


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    """A chain, each of whose links is shaped in both directions on its edge's side."""
    before = left_behind()
    with closing(open_local(hosts=3, shape_at="edge")) as bed:
        assert bed.facts["shaper"] == "netem"
        yield bed
    assert left_behind() <= before


def test_each_link_of_a_chain_has_its_own_netem(bed: Testbed) -> None:
    """The host in the middle passes on what is for others."""
    profiles = [
        Profile("near", Direction(0.05), Direction(0.1)),
        Profile("far", Direction(0.2, 5e6), Direction(0.25)),
    ]
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
        said = bed.remotes[role].connection.run(f"bash -c {shlex.quote(f'{connect}; {connect}')}").out
        took_s = min(map(int, said.split())) / 1e6
        assert asked_s - 0.001 < took_s < 1.2 * asked_s + 0.025, (role, later)


def test_both_directions_can_be_shaped_on_the_edge_alone(bed: Testbed) -> None:
    link, profile = bed.links[0], Profile("both", Direction(0.03, 5e6), Direction(0.06, 8e6))
    with closing(Probers(bed)) as probers:
        probers.shape(link, profile)
        asked = question(profile)
        faults = [probers.probed(link, profile, SLOW, asked)[0].fault for _ in range(3)]
    assert "" in faults, faults


ROOTLESS = f"""
import shlex
import subprocess
import sys
from contextlib import closing
from pareto.hosts.local.testbed import open_local
from pareto.remote.link.profile import Direction, Profile
with closing(open_local()) as bed:
    bed.links[0].shaper.apply(Profile("near", Direction(0.1), Direction(0.2)))
    connect = {REFUSED!r}.format(bed.remotes["server"].host.data_address)
    times = bed.remotes["edge"].connection.run(f"bash -c {{shlex.quote(connect + '; ' + connect)}}").out
    print(bed.facts["shaper"], min(map(int, times.split())))
"""


def test_a_container_without_privileges_gets_netem_in_its_own_user_namespace() -> None:
    before = left_behind()
    done = subprocess.run(
        [*container(), sys.executable, "-c", ROOTLESS],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shaper, took_us = done.stdout.split()
    assert shaper == "netem"
    assert 0.299 < int(took_us) / 1e6 < 0.4
    assert left_behind() <= before


def test_an_ordinary_user_gets_a_share_of_a_core_where_a_cgroup_of_version_2_is_delegated() -> None:
    before = left_behind()
    with delegated_cgroup() as enter:
        assert "/sys/fs/cgroup" in enter[2]
        assert share_of_a_quarter([*enter, *user()]) == 0.25
    assert left_behind() <= before

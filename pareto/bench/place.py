"""The places that are measured in, one after another."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from pareto.bench.asked import LOOPBACK, NETEM, VETH, Asked
from pareto.bench.ends import Spot
from pareto.hosts.host import EDGE, SERVER
from pareto.hosts.inventory import THIS_MACHINE
from pareto.hosts.local_testbed import open_local
from pareto.hosts.session import Heartbeat
from pareto.hosts.testbed import Testbed
from pareto.hosts.testbeds import open_testbed
from pareto.link.profile import Profile, describe


@dataclass(frozen=True)
class Place:
    """profile: what is on the link, None where nothing shapes it; in_force: what its shaper read back."""

    name: str
    words: str
    spot: Spot
    heartbeat: Heartbeat
    profile: Profile | None
    in_force: dict[str, Any]


def names(asked: Asked) -> list[tuple[str, Profile | None]]:
    """Every place that was asked for, and what shapes its link."""
    bare: list[tuple[str, Profile | None]] = [(name, None) for name in asked.places if name != NETEM]
    return bare + [(profile.name, profile) for profile in asked.profiles]


def visit(asked: Asked, measure: Callable[[Place], None]) -> None:
    """Have each place measured, while it is there. Raises TestbedError, hosts.way.FAULTS."""
    bare = [name for name in asked.places if name != NETEM]
    if bare:
        with closing(open_local(shaper="none")) as bed:
            for name in bare:
                measure(_loopback(bed) if name == LOOPBACK else _veth(bed))
    if asked.profiles:
        with closing(open_testbed(THIS_MACHINE, asked.profiles, shape_at="both")) as bed:
            for profile in asked.profiles:
                measure(_shaped(bed, profile))


def _loopback(bed: Testbed) -> Place:
    """Two programs on one host would share its core: the far one moves to the other host's."""
    edge, server = bed.remotes[EDGE], bed.remotes[SERVER]
    core = server.host.core if server.host.core != edge.host.core else None
    cores = "sharing a core" if core is None else f"on cores {edge.host.core} and {core}"
    return Place(
        LOOPBACK,
        f"two processes on one host, {cores}, over 127.0.0.1",
        Spot(edge, edge, "127.0.0.1", "lo", "lo", core),
        bed.heartbeat,
        None,
        {},
    )


def _veth(bed: Testbed) -> Place:
    words = "two namespaces joined by a veth pair, nothing in between"
    return Place(VETH, words, _across(bed), bed.heartbeat, None, {})


def _shaped(bed: Testbed, profile: Profile) -> Place:
    in_force = bed.links[0].shaper.apply(profile)
    words = f"{describe(profile)}; shaped by {bed.facts['shaper']}"
    return Place(profile.name, words, _across(bed), bed.heartbeat, profile, in_force)


def _across(bed: Testbed) -> Spot:
    (link,) = bed.links
    near, far = bed.remotes[link.near.role], bed.remotes[link.far.role]
    return Spot(near, far, link.far.address, link.near.interface, link.far.interface)

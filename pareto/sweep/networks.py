"""The networks of a sweep: a profile for each link of its testbed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pareto.hosts import inventory
from pareto.hosts.inventory import THIS_MACHINE
from pareto.protocol.errors import UserError
from pareto.remote.link.profile import Profile
from pareto.sweep import profile_files
from pareto.sweep.sweep import Sweep

ALONG = "+"
"""Joins what belongs to one link after another: `wifi+lte`, `3+7`."""
Networks = Mapping[str, Sequence[Profile]]
"""By name, the profile of each link."""


def profiles(netem: str, links: int | None = None) -> tuple[Profile, ...]:
    """The profile of each link: `wifi+lte` names them in order; a single one is for every link. links: how many there
    are; None where that is not known yet. Raises UserError, also for another number of profiles."""
    names = [netem] if Path(netem).exists() else netem.split(ALONG)
    loaded = tuple(profile_files.load(name) for name in names)
    if links is None or len(loaded) == links:
        return loaded
    if len(loaded) > 1:
        named = f"names {len(loaded)} profiles for {links} link{'s' if links > 1 else ''}"
        raise UserError(f"--netem {netem} {named}: name one a link, or one for all")
    return loaded * links


def links_of(sweep: Sweep) -> int:
    """How many links the sweep's testbed has. Raises TestbedError for a file that names too few hosts."""
    if sweep.alone:
        return 0
    if sweep.fleet:
        return links_of(sweep.on(next(iter(sweep.testbeds.values()))))
    if sweep.testbed == THIS_MACHINE or sweep.simulated:
        return (sweep.hosts or 2) - 1
    return len(inventory.load(Path(sweep.testbed)).roles) - 1


def networks_of(sweep: Sweep, links: int) -> Networks:
    """The sweep's networks, by their profile's name, or their links' profiles' in order (`wifi+lte`). Raises UserError
    where two profiles have one name."""
    if sweep.alone:  # a name of its own: it is never compared with what a network slows
        return {f"{sweep.alone}-only": ()}
    networks: dict[str, tuple[Profile, ...]] = {}
    known: dict[str, Profile] = {}
    for netem in sweep.netems:
        network = profiles(netem, links)
        for profile in network:
            if known.setdefault(profile.name, profile) != profile:
                what = f"another profile is called {profile.name} too"
                raise UserError(f"--netem {netem}: {what}; rename one's file")
        names = [profile.name for profile in network]
        networks[names[0] if len(set(names)) == 1 else ALONG.join(names)] = network
    return networks


def networks_to_check(sweep: Sweep) -> list[tuple[Profile, ...]]:
    """Each network's profiles, one a link; without `hosts`, as many links as the longest needs. Raises UserError."""
    is_free = sweep.testbed == THIS_MACHINE and sweep.hosts is None
    links = max(len(profiles(name)) for name in sweep.netems) if is_free else links_of(sweep)
    return [profiles(name, links) for name in sweep.netems]

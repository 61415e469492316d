"""Which of a host's addresses is on the link to another: a proposal, which the user can change in the file."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from pareto.hosts.host import TestbedError
from pareto.hosts.way import Way

# What containers and virtual machines are joined by leads to no other host.
_VIRTUAL = re.compile(r"lo|(docker|br-|veth|virbr|cni|flannel|lxcbr|lxdbr|podman).*")

_ASK = """
ip -j addr || exit 1
for each in /sys/class/net/*; do
    [ -e "$each/wireless" ] || [ -e "$each/phy80211" ] && air=1 || air=0
    echo "${each##*/} $air $(cat "$each/speed" 2>/dev/null || echo -1)"
done
echo "ssh $SSH_CONNECTION"
"""


@dataclass(frozen=True)
class Address:
    """An IPv4 address of a host. mbps: as the network card tells it; -1 where it does not."""

    interface: str
    network: ipaddress.IPv4Interface
    is_wireless: bool = False
    mbps: int = -1

    def __str__(self) -> str:
        return str(self.network.ip)


@dataclass(frozen=True)
class Choice:
    """reaches: whether the other host's data address is in one network with it."""

    address: Address
    why: str
    reaches: bool = False


def choose(way: Way, peer: str, peer_name: str) -> Choice:
    """The address towards the other host's data address, `peer`, which is empty while that is not known.

    Raises TestbedError where there is none, Unreachable.
    """
    found, arrived_at = _ask(way)
    if not found:
        raise TestbedError(
            "it has no IPv4 address but its own loopback's: give the interface of the link one"
        )
    best_first = sorted(found, key=lambda each: (each.is_wireless, -each.mbps))
    if peer:
        near = [each for each in best_first if ipaddress.IPv4Address(peer) in each.network.network]
        if near:
            return Choice(near[0], f"in one network with {peer_name}, {peer}" + _over(near), reaches=True)
    far = f"; none is in one network with {peer_name}, {peer}: check both" if peer else ""
    for each in best_first:
        if each.interface == arrived_at:
            return Choice(each, f"where SSH arrives{far}")
    return Choice(
        best_first[0], f"the first of {len(found)}{far}" if len(found) > 1 else f"its only one{far}"
    )


def _over(near: list[Address]) -> str:
    others = ", ".join(each.interface for each in near[1:])
    return f"; before {others}: wired and fast ones first" if others else ""


def _ask(way: Way) -> tuple[list[Address], str]:
    """A host's addresses, and the interface with the address at which SSH arrived."""
    outcome = way.run(_ASK)
    if outcome.status != 0:
        raise TestbedError(f"its addresses cannot be listed: {outcome.words} (sudo apt-get install iproute2)")
    listed, _, rest = outcome.out.partition("\n")
    cards = {}
    arrived = ""
    for line in rest.splitlines():
        name, *facts = line.split()
        if name == "ssh":
            arrived = facts[2].partition("%")[0] if len(facts) == 4 else ""
        else:
            cards[name] = (facts[0] == "1", int(facts[1]))
    found, arrived_at = [], ""
    for link in json.loads(listed):
        name = link["ifname"]
        addresses = link.get("addr_info", [])
        if any(each["local"] == arrived for each in addresses):
            arrived_at = name
        if not _VIRTUAL.fullmatch(name):
            found += [
                Address(name, network, *cards.get(name, (False, -1))) for network in _networks(addresses)
            ]
    return found, arrived_at


def _networks(addresses: Iterable[dict[str, object]]) -> list[ipaddress.IPv4Interface]:
    return [
        ipaddress.IPv4Interface(f"{each['local']}/{each['prefixlen']}")
        for each in addresses
        if each["family"] == "inet"
    ]

"""The data links as the host sees them: its addresses and interfaces, the way to its neighbours, TCP's settings."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any

from pareto.hosts.checkup.case import Case
from pareto.hosts.finding import Finding
from pareto.hosts.inventory import Side

_NO_CARDS = ("lo", "docker", "veth", "br-", "virbr", "ifb", "dummy")


def interface_of(facts: Mapping[str, Any], side: Side) -> str:
    """The one that has the address where the file does not say. Empty if none has."""
    return side.interface or next(iter(_owners(facts, side.address)), "")


def link(case: Case) -> Iterator[Finding]:
    """Both sides of a host in the middle; they are one where it has all its neighbours in one network."""
    names: dict[tuple[str, str], str] = {}
    for side in case.sides:
        own = side.address, side.interface
        if own not in names:
            names[own] = yield from _interface(case, side)
        if names[own]:
            yield from _route(case, side, names[own])
    first = case.sides[0]
    if not names[first.address, first.interface]:
        return
    if case["listens"] is not True:
        words = f"cannot listen on {first.address}: {case['listens']}"
        mend = f"ip address show dev {names[first.address, first.interface]}"
        yield Finding("listening", words, mend, fatal=True)
    else:
        yield Finding("listening", f"can listen on {first.address}")


def _interface(case: Case, side: Side) -> Generator[Finding, None, str]:
    """The data interface on that side, or nothing. The first rule that fails is the last that is looked at."""
    address, said = side.address, side.interface
    key = "data" if address == case.member.data_address else "next"
    owners = _owners(case.facts, address)
    if not owners:
        there = ", ".join(_with_owners(case.facts)) or "none"
        words = (
            f"the {key} address {address} is not on this host, which has {there}; mend that or {case.testbed}"
        )
        mend = f"sudo ip address add {address}/24 dev {_likely(case, said)}"
        yield Finding("data link", words, mend, fatal=True)
        return ""
    if said and said not in owners:
        mend = f"say {key}_interface: {owners[0]} for {case.member.name} in {case.testbed}"
        yield Finding("data link", f"{address} is on {owners[0]}, not on {said}", mend, fatal=True)
        return ""
    name = said or owners[0]
    interface = next(each for each in case["interfaces"] if each["name"] == name)
    if not interface["up"]:
        yield Finding("data link", f"{name} is down", f"sudo ip link set {name} up", fatal=True)
        return ""
    if not interface["carrier"]:
        yield Finding("data link", f"{name} has no carrier", f"plug in the cable of {name}", fatal=True)
        return ""
    speed = f", {interface['speed_mbps']} Mbit/s" if interface["speed_mbps"] else ""
    yield Finding("data link", f"{address} on {name}{speed}")
    if interface["wireless"]:
        words = (
            f"{name} is wireless: other people's traffic, and the weather of the air, will be in the figures"
        )
        yield Finding(
            "data link", words, f"join the hosts by a cable and say its addresses in {case.testbed}"
        )
    return name


def tcp(case: Case) -> Iterator[Finding]:
    control = f"{case['congestion_control'] or 'unknown'} congestion control"
    if case["slow_start_after_idle"]:
        words = f"{control}; after each pause a connection starts slowly again, at the cost of round trips"
        yield Finding("tcp", words, "sudo sysctl -w net.ipv4.tcp_slow_start_after_idle=0")
    else:
        yield Finding("tcp", control)


def _route(case: Case, side: Side, name: str) -> Iterator[Finding]:
    peer = side.peer
    route = (case["routes"] or {}).get(peer)
    mend = f"sudo ip route replace {peer} dev {name} src {side.address}"
    if route is None:
        yield Finding("route", f"there is no route to {peer}", mend, fatal=True)
    elif route["interface"] == "lo":
        mend = f"say the other host's own data_address in {case.testbed}"
        yield Finding("route", f"{peer} is an address of this host itself", mend, fatal=True)
    elif route["interface"] != name:
        words = (
            f"packets to {peer} leave through {route['interface']} ({route['source']}), not through {name}"
        )
        yield Finding("route", words, mend, fatal=True)
    else:
        yield Finding("route", f"packets to {peer} leave through {name}")


def _owners(facts: Mapping[str, Any], address: str) -> list[str]:
    return [
        each["name"]
        for each in facts.get("interfaces") or ()
        if any(own.partition("/")[0] == address for own in each["addresses"])
    ]


def _with_owners(facts: Mapping[str, Any]) -> list[str]:
    interfaces = [each for each in facts.get("interfaces") or () if each["name"] != "lo"]
    return [f"{own} on {each['name']}" for each in interfaces for own in each["addresses"]]


def _likely(case: Case, said: str) -> str:
    """The interface that was meant: the one in the file, else a card, best one that has no address yet."""
    cards = [each for each in case["interfaces"] or () if not each["name"].startswith(_NO_CARDS)]
    cards.sort(key=lambda each: (each["wireless"], bool(each["addresses"])))
    return said or (cards[0]["name"] if cards else "eth0")

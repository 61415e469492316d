"""What a host's facts mean for its links: its own addresses on them, and the ways to its neighbours."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from syrupy.assertion import SnapshotAssertion

from pareto.hosts import checkup
from pareto.hosts.finding import Finding
from pareto.hosts.inventory import Member, Side
from tests.unit import checkup_facts
from tests.unit.checkup_facts import DIGEST, NOW_S, PI, interface
from tests.unit.hosts.test_checkup import side, the_one


def test_the_data_interface_is_the_one_with_the_address() -> None:
    own = side(PI)
    assert checkup.interface_of(checkup_facts.pi(), own) == "eth0"
    assert checkup.interface_of(checkup_facts.pi(), replace(own, interface="bond0")) == "bond0"
    assert checkup.interface_of(checkup_facts.pi(), replace(own, address="192.168.7.20")) == ""
    assert checkup.interface_of({"interfaces": None}, own) == ""


def test_a_data_interface_that_has_not_the_address(snapshot: SnapshotAssertion) -> None:
    one = the_one(checkup_facts.pi(), replace(PI, data_interface="wlan0"))
    assert (one.what, one.fatal) == ("data link", True)
    assert [one.words, one.mend] == snapshot


CARDS = [interface("eth0", "192.168.7.3/24"), interface("eth1", "192.168.8.3/24")]
WAYS = {
    "192.168.7.2": {"source": "192.168.7.3", "interface": "eth0"},
    "192.168.8.1": {"source": "192.168.8.3", "interface": "eth1"},
}
BEFORE, AFTER = Side("192.168.7.3", "", "192.168.7.2"), Side("192.168.8.3", "", "192.168.8.1")
MIDDLE = Member("mid", "middle", "mid.lab", "192.168.7.3", next_address="192.168.8.3")


def between(*sides: Side, **changed: Any) -> list[Finding]:
    """What is found of the links of a host in the middle."""
    facts = checkup_facts.pi(interfaces=CARDS, routes=WAYS, **changed)
    found = checkup.findings(MIDDLE, sides, facts, shaped=True, helper_digest=DIGEST, now_s=NOW_S)
    return [one for one in found if one.what in ("data link", "route", "listening")]


def test_both_sides_of_a_host_in_the_middle(snapshot: SnapshotAssertion) -> None:
    found = between(BEFORE, AFTER)
    assert [one.what for one in found] == ["data link", "route", "data link", "route", "listening"]
    assert not any(one.fatal for one in found)
    assert [one.words for one in found] == snapshot


def test_a_host_in_the_middle_of_one_network(snapshot: SnapshotAssertion) -> None:
    found = between(BEFORE, replace(BEFORE, peer="192.168.7.1"), listens="no")
    assert [(one.what, one.fatal) for one in found] == [
        ("data link", False),
        ("route", False),
        ("route", True),
        ("listening", True),
    ]
    assert [one.words for one in found] == snapshot


def test_faults_on_the_side_of_the_next_host(snapshot: SnapshotAssertion) -> None:
    (interface,) = (found for found in between(BEFORE, replace(AFTER, interface="eth0")) if found.fatal)
    (route,) = (found for found in between(BEFORE, replace(AFTER, peer="10.0.0.9")) if found.fatal)
    assert (interface.what, route.what) == ("data link", "route")
    assert "next_interface: eth1 for mid in lab.yaml" in interface.mend
    assert [interface.words, interface.mend, route.words, route.mend] == snapshot

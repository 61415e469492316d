"""What a host's facts mean for its links: its own addresses on them, and the ways to its neighbours."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

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


def test_a_data_interface_that_has_not_the_address() -> None:
    one = the_one(checkup_facts.pi(), replace(PI, data_interface="wlan0"))
    assert (one.what, one.fatal) == ("data link", True)
    assert one.words == "192.168.7.2 is on eth0, not on wlan0"
    assert one.mend == "say data_interface: eth0 for pi in lab.yaml"


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


def test_both_sides_of_a_host_in_the_middle() -> None:
    assert [one.words for one in between(BEFORE, AFTER)] == [
        "192.168.7.3 on eth0, 1000 Mbit/s",
        "packets to 192.168.7.2 leave through eth0",
        "192.168.8.3 on eth1, 1000 Mbit/s",
        "packets to 192.168.8.1 leave through eth1",
        "can listen on 192.168.7.3",
    ]


def test_a_host_in_the_middle_of_one_network() -> None:
    one = between(BEFORE, replace(BEFORE, peer="192.168.7.1"), listens="no")
    assert [(found.words, found.fatal) for found in one] == [
        ("192.168.7.3 on eth0, 1000 Mbit/s", False),
        ("packets to 192.168.7.2 leave through eth0", False),
        ("there is no route to 192.168.7.1", True),
        ("cannot listen on 192.168.7.3: no", True),
    ]


def test_faults_on_the_side_of_the_next_host() -> None:
    (one,) = (found for found in between(BEFORE, replace(AFTER, interface="eth0")) if found.fatal)
    assert one.words == "192.168.8.3 is on eth1, not on eth0"
    assert one.mend == "say next_interface: eth1 for mid in lab.yaml"
    (one,) = (found for found in between(BEFORE, replace(AFTER, peer="10.0.0.9")) if found.fatal)
    assert one.mend == "sudo ip route replace 10.0.0.9 dev eth1 src 192.168.8.3"

"""Which addresses hosts have, and which reach each other: those of this machine's loopback are really tried."""

from __future__ import annotations

import ipaddress
import json
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.hosts.connection import Outcome, ThisMachine
from pareto.hosts.host import TestbedError
from pareto.hosts.ssh import addresses
from pareto.hosts.ssh.addresses import Address, Pair
from tests.unit.example_host import ExampleHost, example_host, has

WIRED, AIR, DOCKER, LOOPBACK = "192.168.7.2/24", "192.168.1.20/24", "172.17.0.1/16", "127.0.0.1/8"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ExampleHost:
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    return example_host(tmp_path, monkeypatch)


def chosen(peer: str = "") -> tuple[str, str]:
    address, why, reaches = addresses.choose(
        addresses.list_addresses(ThisMachine()), peer, "gpu" if peer else ""
    )
    assert reaches == ("in one network" in why and "none is" not in why)
    return f"{address} {address.interface}", why


def test_the_address_in_the_other_hosts_network_is_chosen(
    host: ExampleHost, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    has(host, lo=LOOPBACK, docker0=DOCKER, wlan0=AIR, eth0=WIRED)
    monkeypatch.setenv("SSH_CONNECTION", "192.168.1.5 50000 192.168.1.20 22")
    address, why = chosen("192.168.7.1")
    assert address == "192.168.7.2 eth0"
    assert why == snapshot


def test_without_another_host_it_is_where_ssh_arrives(
    host: ExampleHost, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    has(host, lo=LOOPBACK, eth0=WIRED, wlan0=AIR)
    monkeypatch.setenv("SSH_CONNECTION", "192.168.1.5 50000 192.168.1.20 22")
    (alone, why_alone), (with_other, why_with_other) = chosen(), chosen("10.9.9.9")
    assert alone == with_other == "192.168.1.20 wlan0"
    assert [why_alone, why_with_other] == snapshot


def test_ssh_that_arrives_by_ipv6_names_the_interface(
    host: ExampleHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    has(host, lo=LOOPBACK, eth0=WIRED, wlan0=AIR)
    links = json.loads((host.home / "links").read_text())
    links[2]["addr_info"].append({"family": "inet6", "local": "fe80::7", "prefixlen": 64})
    (host.home / "links").write_text(json.dumps(links))
    monkeypatch.setenv("SSH_CONNECTION", "fe80::1%wlan0 50000 fe80::7%wlan0 22")
    assert chosen()[0] == "192.168.1.20 wlan0"


def test_wired_and_fast_interfaces_come_first(snapshot: SnapshotAssertion) -> None:
    class Cards(ThisMachine):
        def run(self, *arguments: object, **named: object) -> object:  # type: ignore[override]
            links = [
                {"ifname": name, "addr_info": [{"family": "inet", "local": f"10.0.0.{i}", "prefixlen": 24}]}
                for i, name in enumerate(["wlan0", "eth0", "eth1"], start=2)
            ]
            cards = "wlan0 1 -1\neth0 0 100\neth1 0 1000\nssh\n"
            return Outcome(0, json.dumps(links) + "\n" + cards, "")

    address, why, _ = addresses.choose(addresses.list_addresses(Cards()), "10.0.0.1", "gpu")
    assert address.interface == "eth1"
    assert why == snapshot


def test_a_host_without_a_usable_address(host: ExampleHost, snapshot: SnapshotAssertion) -> None:
    has(host, lo=LOOPBACK, docker0=DOCKER, veth1="10.1.1.1/24", eth0="fe80::7/64")
    with pytest.raises(TestbedError) as none:
        chosen()
    host.program("ip", "echo 'ip: broken' >&2; exit 1")
    with pytest.raises(TestbedError, match="ip: broken") as unknown:
        chosen()
    assert [str(refused.value) for refused in (none, unknown)] == snapshot


def at(address: str, name: str = "eth0", has_ssh: bool = False) -> Address:
    return Address(name, ipaddress.IPv4Interface(address), False, 1000, has_ssh)


def tried(pair: Pair) -> Pair:
    return addresses.tried(pair, ThisMachine(), ThisMachine())


def test_pairs_are_in_one_network() -> None:
    cable, office = at("192.168.7.2/24"), at("10.0.0.2/24")
    other_cable, other_office = at("192.168.7.1/24"), at("10.0.0.9/24")
    near = addresses.pairs([cable, office], [other_office, other_cable])
    assert near == [Pair(cable, other_cable), Pair(office, other_office)]
    assert addresses.pairs([cable], [other_office]) == [Pair(cable, other_office)]
    assert addresses.pairs([cable], [at("192.168.7.2/24")]) == []


def test_a_pair_that_works_has_a_rate() -> None:
    pair = tried(Pair(at("127.0.0.2/8"), at("127.0.0.3/8")))
    assert pair.fault == ""
    assert pair.bps > 1e6


def test_a_pair_that_does_not_work_has_a_reason(host: ExampleHost, snapshot: SnapshotAssertion) -> None:
    here, nowhere = at("127.0.0.2/8"), at("192.0.2.1/24")
    faults = [tried(Pair(here, nowhere)).fault, tried(Pair(nowhere, here)).fault]
    host.program("python3", "echo 'python3: not found' >&2; exit 127")
    faults.append(tried(Pair(here, here)).fault)
    assert faults == snapshot


def test_who_does_not_know_the_token_is_not_read_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        addresses, "_SEND", addresses._SEND.replace("token.encode()", "bytes(len(token))"), raising=True
    )
    assert tried(Pair(at("127.0.0.2/8"), at("127.0.0.3/8"))).fault == "a stranger connected"


def test_the_best_pair_is_fast_and_not_where_ssh_arrives() -> None:
    def pair(bps: float, address: str, has_ssh: bool = False) -> Pair:
        return Pair(at("10.0.0.2/8", has_ssh=has_ssh), at(address), bps)

    slow, office = pair(38e6, "10.0.0.3/8"), pair(941e6, "10.0.0.4/8", has_ssh=True)
    cable, other = pair(935e6, "10.0.0.5/8"), pair(930e6, "10.0.0.6/8")
    assert addresses.best([slow, office], "10.0.0.3") == office
    assert addresses.best([slow, office, cable, other], "") == cable
    assert addresses.best([slow, office, cable, other], "10.0.0.6") == other

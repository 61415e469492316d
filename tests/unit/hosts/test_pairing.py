"""Which addresses hosts have and which reach each other, and what pairing makes of that by itself.

Those of this machine's loopback are really tried; with a server to log in to it is tested in a lab.
"""

from __future__ import annotations

import ipaddress
import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.hosts import inventory
from pareto.hosts.connection import Connection, Outcome, ThisMachine, Unreachable
from pareto.hosts.host import TestbedError
from pareto.hosts.inventory import HostEntry
from pareto.hosts.setup import pair as pairing
from pareto.hosts.setup.pair import Terminal
from pareto.hosts.ssh import addresses
from pareto.hosts.ssh.addresses import Address, Pair
from pareto.hosts.ssh.keys import Keyring
from pareto.hosts.ssh.login import Login
from tests.unit.example_host import ExampleHost, example_host, has
from tests.unit.refusals import refusal

SPEEDS = {"eth0": 941e6, "wlan0": 38e6}
WIRED, AIR, DOCKER, LOOPBACK = "192.168.7.2/24", "192.168.1.20/24", "172.17.0.1/16", "127.0.0.1/8"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ExampleHost:
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return example_host(tmp_path, monkeypatch)


def new(target: str, role: str, name: str = "", **more: Any) -> HostEntry:
    """What the user says about a host."""
    return HostEntry(name, role, target, "", **more)


def lost(entry: HostEntry) -> Connection:
    """Connects to no host."""
    raise Unreachable(f"{entry.name} is off")


def test_this_machine_needs_no_login(host: ExampleHost, snapshot: SnapshotAssertion) -> None:
    has(host, lo=LOOPBACK, eth0=WIRED)
    path = host.home / "lab.yaml"
    member = pairing.add(
        new("local", "server", "gpu", device="cuda:0"), path, Terminal(host.lines.append), lost
    )
    assert inventory.load(path).hosts == (member,)
    assert (member.name, member.ssh, member.data_address, member.data_interface, member.device) == (
        *("gpu", "local", "192.168.7.2", "eth0", "cuda:0"),
    )
    assert host.lines == snapshot


BENCH = "hosts:\n  pi: {role: edge, ssh: pi, data_address: 192.168.7.1}\n"
SERVER = "  gpu: {role: server, ssh: gpu, data_address: 192.168.8.1}\n"
MIDDLE = "  mid: {role: middle, ssh: mid, data_address: 192.168.7.3, next_address: 192.168.8.3}\n"


def test_a_host_in_the_middle_has_an_address_towards_each_side(host: ExampleHost) -> None:
    has(host, lo=LOOPBACK, wlan0=AIR, eth0=WIRED, eth1="192.168.8.2/24")
    path = host.home / "lab.yaml"
    near, far = "192.168.7.2 eth0", "192.168.8.2 eth1"
    for before, role, expected in (
        (BENCH + SERVER, "middle", (near, far)),
        ("hosts:\n" + SERVER + BENCH[7:], "middle", (near, far)),
        (BENCH + SERVER.replace("8.1", "7.9"), "middle", (near, " ")),
        (BENCH, "middle", (near, " ")),
        (BENCH + SERVER + MIDDLE, "middle", (far, " ")),
        (BENCH + MIDDLE, "server", (far, " ")),
        (BENCH + SERVER.replace("8.1", "9.1"), "middle", (near, " ")),
    ):
        host.lines.clear()
        path.write_text(before)
        member = pairing.add(new("local", role, "new"), path, Terminal(host.lines.append), lost)
        assert inventory.load(path).hosts[-1] == member
        own = f"{member.data_address} {member.data_interface}"
        assert (own, f"{member.next_address} {member.next_interface}") == expected
        assert any("next address" in line for line in host.lines) == bool(member.next_address)


MEETS = "hosts:\n  gpu: {role: server, ssh: gpu, data_address: 192.168.1.9}  # mine\n"
Meet = Callable[..., HostEntry]


@pytest.fixture
def meet(host: ExampleHost, monkeypatch: pytest.MonkeyPatch) -> Meet:
    """Adds a new host on two networks to a file with one by the slower of its addresses."""

    def add(confirm: bool | None = None, faults: tuple[str, ...] = (), address: str = "") -> HostEntry:
        has(host, eth0=WIRED, wlan0=AIR)
        links = addresses.list_addresses(ThisMachine())
        far = {"192.168.1.9": "wlan0", "192.168.7.1": "eth1"}
        theirs = [
            replace(each, interface=name, network=ipaddress.IPv4Interface(f"{own}/24"))
            for each, (own, name) in zip(reversed(links), far.items(), strict=True)
        ]
        monkeypatch.setattr(pairing, "list_addresses", Mock(side_effect=[links, theirs]))

        def tried(pair: Pair, *_: object) -> Pair:
            name = pair.own.interface
            return replace(pair, fault="no route") if name in faults else replace(pair, bps=SPEEDS[name])

        monkeypatch.setattr(pairing, "tried", tried)
        (path := host.home / "lab.yaml").write_text(MEETS)
        answer = None if confirm is None else lambda question: host.lines.append(question) or confirm
        wanted = replace(new("local", "edge", "pi"), data_address=address)
        return pairing.add(wanted, path, Terminal(host.lines.append, answer), lambda entry: ThisMachine())

    return add


def test_the_fastest_way_that_works_is_taken_if_the_user_says_yes(
    host: ExampleHost, meet: Meet, snapshot: SnapshotAssertion
) -> None:
    for confirm in (None, False):
        host.lines.clear()
        added = meet(confirm)
        assert (added.data_address, added.data_interface) == ("192.168.1.20", "wlan0")
        assert (host.home / "lab.yaml").read_text().startswith(MEETS)
        assert host.lines == snapshot(name=str(confirm))
    # A way that does not work or that the user does not name is not taken. Nor is an address that the host does
    # not have.
    host.lines.clear()
    assert meet(faults=("eth0",)).data_interface == meet(address="192.168.1.20").data_interface == "wlan0"
    assert not any("that way" in line for line in host.lines)
    assert refusal(TestbedError, meet, address="10.1.1.1") == snapshot
    # The fastest way is taken and the file says so.
    host.lines.clear()
    added = meet(confirm=True)
    assert (added.data_address, added.data_interface) == ("192.168.7.2", "eth0")
    gpu, pi = inventory.load(host.home / "lab.yaml").hosts
    assert (gpu.data_address, gpu.data_interface, pi) == ("192.168.7.1", "eth1", added)
    assert "# mine" in (host.home / "lab.yaml").read_text()
    assert host.lines == snapshot


FULL = "".join(f"  m{i}: {{role: middle, ssh: m{i}, data_address: 10.0.0.{10 + i}}}\n" for i in range(7))


def test_bad_input_is_said_before_anything_is_done(host: ExampleHost, snapshot: SnapshotAssertion) -> None:
    path, said = host.home / "lab.yaml", []
    for wanted, named, more in (
        (new("pi@10.0.0.3", "edgy"), "edgy", ""),
        (new("pi@10.0.0.3", "server"), "role server", ""),
        (new("pi@10.0.0.3", "edge", "gpu"), "host gpu", ""),
        (new("pi@10.0.0.3", "edge", "my pi"), "--name 'my pi'", ""),
        (new("pi@10.0.0.3", "edge", device="gpu"), "--device gpu", ""),
        (new("pi@10.0.0.3", "edge", key=Path("/nowhere/key.pub")), "/nowhere/key", ""),
        (new("local", "middle", "new"), " 8 ", FULL),
    ):
        path.write_text(f"hosts:\n  gpu: {{role: server, ssh: gpu, data_address: 10.0.0.1}}\n{more}")
        said.append(refusal(TestbedError, pairing.add, wanted, path, Terminal(host.lines.append), lost))
        assert named in said[-1]
    assert said == snapshot
    assert host.lines == []


def test_a_host_is_called_what_it_is_called(host: ExampleHost) -> None:
    for target, own, name in (
        ("pi@lab-pi.local", "raspberrypi", "lab-pi"),
        ("gpu", "x", "gpu"),
        ("pi@10.0.0.2", "raspberrypi.lan", "raspberrypi"),
        ("pi@fe80::1%eth0", "raspberrypi", "raspberrypi"),
        ("pi@10.0.0.2", "", "edge"),
        ("local", "here", "here"),
    ):
        host.program("uname", f"echo {own}")
        assert pairing._name(ThisMachine(), new(target, "edge")) == name


def test_ssh_puts_the_key_over_and_asks_whose_it_is(
    host: ExampleHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it says last is why it failed; without it the package is named."""
    (host.home / "hosts").mkdir()
    who = Login("pi", "10.0.0.2", 2222, "pi", known_hosts=(host.home / "hosts" / "known",))

    def put() -> None:
        pairing._put_over(who, "me@lab-pi", "ssh-ed25519 AAAA1 ann@home", Terminal(host.lines.append))

    host.program("ssh-copy-id", 'printf "%s\\n" "$@" >~/arguments; cat "$3" >~/public')
    put()
    arguments = (host.home / "arguments").read_text().splitlines()
    assert (host.home / "public").read_text() == "ssh-ed25519 AAAA1 ann@home\n"
    assert "StrictHostKeyChecking=ask" in arguments
    assert f'UserKnownHostsFile="{host.home}/hosts/known"' in arguments
    assert arguments[arguments.index("-p") + 1] == "2222"
    assert arguments[-1] == "pi@lab-pi"
    host.program("ssh-copy-id", "echo 'Permission denied (publickey,password).' >&2; exit 1")
    with pytest.raises(TestbedError, match=r"pi .*not put over: Permission denied \(publickey,password\)"):
        put()
    (host.home / "bin" / "ssh-copy-id").unlink()
    monkeypatch.setenv("PATH", f"{host.home}/bin")
    with pytest.raises(TestbedError, match="openssh-client"):
        put()


def public_key(host: ExampleHost, *identities: Path, confirm: bool | None = None) -> str:
    who = Login("pi", "10.0.0.2", 22, "pi", identities=identities)
    asked = None if confirm is None else lambda question: confirm
    return pairing._public_key(who, Keyring(), Terminal(host.lines.append, asked))


def test_ed25519_goes_first_and_a_locked_one_needs_no_passphrase_for_that(host: ExampleHost) -> None:
    def make(kind: str, passphrase: str = "") -> Path:
        path = host.home / f"id_{kind}"
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-f", str(path)], check=True)
        return path

    other, ours = make("ecdsa"), make("ed25519", "locked")
    kind, public = ours.with_name("id_ed25519.pub").read_text().split()[:2]
    assert public_key(host, other, ours).split()[:2] == [kind, public]
    assert public_key(host, other).startswith("ecdsa-sha2-nistp256 ")
    assert "~/id_ed25519" in host.lines[0]


def test_without_any_one_is_made_if_the_user_says_so_and_never_overwritten(host: ExampleHost) -> None:
    path = host.home / ".ssh" / "id_ed25519"
    for confirm in (None, False):
        with pytest.raises(TestbedError, match="ssh-keygen -t ed25519"):
            public_key(host, confirm=confirm)
    made = public_key(host, confirm=True)
    assert made.split()[:2] == path.with_name("id_ed25519.pub").read_text().split()[:2]
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("precious")
    with pytest.raises(TestbedError, match="--key"):
        public_key(host, confirm=True)
    assert path.read_text() == "precious"


# Addresses.


def chosen(peer: str = "") -> tuple[str, str]:
    address, why, reaches = addresses.choose(
        addresses.list_addresses(ThisMachine()), peer, "gpu" if peer else ""
    )
    assert reaches == ("in one network" in why and "none is" not in why)
    return f"{address} {address.interface}", why


def test_the_address_in_the_other_hosts_network_is_chosen_or_where_ssh_arrives(
    host: ExampleHost, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    has(host, lo=LOOPBACK, docker0=DOCKER, wlan0=AIR, eth0=WIRED)
    monkeypatch.setenv("SSH_CONNECTION", "192.168.1.5 50000 192.168.1.20 22")
    addressed, whys = zip(*(chosen(peer) for peer in ("192.168.7.1", "", "10.9.9.9")), strict=True)
    assert addressed == ("192.168.7.2 eth0", "192.168.1.20 wlan0", "192.168.1.20 wlan0")
    assert whys == snapshot
    # SSH that arrives by IPv6 names the interface.
    links = json.loads((host.home / "links").read_text())
    links[2]["addr_info"].append({"family": "inet6", "local": "fe80::7", "prefixlen": 64})
    (host.home / "links").write_text(json.dumps(links))
    monkeypatch.setenv("SSH_CONNECTION", "fe80::1%wlan0 50000 fe80::7%wlan0 22")
    assert chosen()[0] == "192.168.1.20 wlan0"
    # A host without a usable address.
    has(host, lo=LOOPBACK, docker0=DOCKER, veth1="10.1.1.1/24", eth0="fe80::7/64")
    none = refusal(TestbedError, chosen)
    host.program("ip", "echo 'ip: broken' >&2; exit 1")
    unknown = refusal(TestbedError, chosen)
    assert "ip: broken" in unknown
    assert [none, unknown] == snapshot


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

    # The best pair is fast and not where SSH arrives.
    def pair(bps: float, address: str, has_ssh: bool = False) -> Pair:
        return Pair(at("10.0.0.2/8", has_ssh=has_ssh), at(address), bps)

    slow, office = pair(38e6, "10.0.0.3/8"), pair(941e6, "10.0.0.4/8", has_ssh=True)
    cable, other = pair(935e6, "10.0.0.5/8"), pair(930e6, "10.0.0.6/8")
    assert addresses.best([slow, office], "10.0.0.3") == office
    assert addresses.best([slow, office, cable, other], "") == cable
    assert addresses.best([slow, office, cable, other], "10.0.0.6") == other


def test_a_pair_that_works_has_a_rate_and_another_a_reason(
    host: ExampleHost, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    """Who does not know the token is not read from."""
    works = Pair(at("127.0.0.2/8"), at("127.0.0.3/8"))
    pair = tried(works)
    assert (pair.fault, pair.bps > 1e6) == ("", True)
    with monkeypatch.context() as stranger:
        stranger.setattr(addresses, "_SEND", addresses._SEND.replace("token.encode()", "bytes(len(token))"))
        assert tried(works).fault == "a stranger connected"
    here, nowhere = at("127.0.0.2/8"), at("192.0.2.1/24")
    faults = [tried(Pair(here, nowhere)).fault, tried(Pair(nowhere, here)).fault]
    host.program("python3", "echo 'python3: not found' >&2; exit 127")
    faults.append(tried(Pair(here, here)).fault)
    assert faults == snapshot

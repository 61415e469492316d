"""What pairing decides and does by itself; with a server to log in to it is tested in a lab."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.hosts import inventory, pairing
from pareto.hosts.connection import Outcome, ThisMachine
from pareto.hosts.host import TestbedError
from pareto.hosts.inventory import HostEntry
from pareto.hosts.keys import Keyring
from pareto.hosts.login import Login
from pareto.hosts.pairing import Terminal
from tests.unit.example_host import ExampleHost, example_host

WIRED, AIR, DOCKER, LOOPBACK = "192.168.7.2/24", "192.168.1.20/24", "172.17.0.1/16", "127.0.0.1/8"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ExampleHost:
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return example_host(tmp_path, monkeypatch)


def new(target: str, role: str, name: str = "", **more: Any) -> HostEntry:
    """What the user says about a host."""
    return HostEntry(name, role, target, "", **more)


def has(host: ExampleHost, **of: str) -> None:
    """Give the host these addresses, by interface."""
    links = []
    for name, text in of.items():
        address, _, prefix = text.partition("/")
        family = "inet6" if ":" in address else "inet"
        links.append(
            {"ifname": name, "addr_info": [{"family": family, "local": address, "prefixlen": int(prefix)}]}
        )
    (host.home / "links").write_text(json.dumps(links))
    host.program("ip", f"cat {host.home}/links; echo")


def chosen(peer: str = "") -> tuple[str, str]:
    address, why, reaches = pairing.choose(pairing.list_addresses(ThisMachine()), peer, "gpu" if peer else "")
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

    address, why, _ = pairing.choose(pairing.list_addresses(Cards()), "10.0.0.1", "gpu")
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


def test_this_machine_needs_no_login(host: ExampleHost, snapshot: SnapshotAssertion) -> None:
    has(host, lo=LOOPBACK, eth0=WIRED)
    path = host.home / "lab.yaml"
    member = pairing.add(new("local", "server", "gpu", device="cuda:0"), path, Terminal(host.lines.append))
    assert inventory.load(path).hosts == (member,)
    assert (member.name, member.ssh, member.data_address, member.data_interface, member.device) == (
        *("gpu", "local", "192.168.7.2", "eth0", "cuda:0"),
    )
    assert host.lines == snapshot


BENCH = "hosts:\n  pi: {role: edge, ssh: pi, data_address: 192.168.7.1}\n"
SERVER = "  gpu: {role: server, ssh: gpu, data_address: 192.168.8.1}\n"
MIDDLE = "  mid: {role: middle, ssh: mid, data_address: 192.168.7.3, next_address: 192.168.8.3}\n"


@pytest.mark.parametrize(
    ("before", "role", "addresses"),
    [
        (BENCH + SERVER, "middle", ("192.168.7.2 eth0", "192.168.8.2 eth1")),
        ("hosts:\n" + SERVER + BENCH[7:], "middle", ("192.168.7.2 eth0", "192.168.8.2 eth1")),
        (BENCH + SERVER.replace("8.1", "7.9"), "middle", ("192.168.7.2 eth0", " ")),
        (BENCH, "middle", ("192.168.7.2 eth0", " ")),
        (BENCH + SERVER + MIDDLE, "middle", ("192.168.8.2 eth1", " ")),
        (BENCH + MIDDLE, "server", ("192.168.8.2 eth1", " ")),
        (BENCH + SERVER.replace("8.1", "9.1"), "middle", ("192.168.7.2 eth0", " ")),
    ],
)
def test_a_host_in_the_middle_has_an_address_towards_each_side(
    host: ExampleHost, before: str, role: str, addresses: tuple[str, str]
) -> None:
    has(host, lo=LOOPBACK, wlan0=AIR, eth0=WIRED, eth1="192.168.8.2/24")
    path = host.home / "lab.yaml"
    path.write_text(before)
    member = pairing.add(new("local", role, "new"), path, Terminal(host.lines.append))
    assert inventory.load(path).hosts[-1] == member
    own, onward = addresses
    assert f"{member.data_address} {member.data_interface}" == own
    assert f"{member.next_address} {member.next_interface}" == onward
    assert any("next address" in line for line in host.lines) == bool(member.next_address)


def test_a_chain_that_is_full(host: ExampleHost, snapshot: SnapshotAssertion) -> None:
    path = host.home / "lab.yaml"
    more = [f"  m{i}: {{role: middle, ssh: m{i}, data_address: 192.168.7.{10 + i}}}\n" for i in range(6)]
    path.write_text(BENCH + SERVER + "".join(more))
    with pytest.raises(TestbedError, match=f"{path} .* 8 ") as refused:
        pairing.add(new("local", "middle", "new"), path, Terminal(host.lines.append))
    assert str(refused.value) == snapshot


@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        (new("pi@10.0.0.3", "edgy"), "edgy"),
        (new("pi@10.0.0.3", "server"), "role server"),
        (new("pi@10.0.0.3", "edge", "gpu"), "host gpu"),
        (new("pi@10.0.0.3", "edge", "my pi"), "--name 'my pi'"),
        (new("pi@10.0.0.3", "edge", device="gpu"), "--device gpu"),
        (new("pi@10.0.0.3", "edge", key=Path("/nowhere/key.pub")), "/nowhere/key"),
    ],
    ids=["role", "role that is taken", "name that is taken", "name", "device", "key"],
)
def test_bad_input_is_one_line_before_anything_is_done(
    host: ExampleHost, wanted: HostEntry, named: str, snapshot: SnapshotAssertion
) -> None:
    path = host.home / "lab.yaml"
    path.write_text("hosts:\n  gpu: {role: server, ssh: gpu, data_address: 10.0.0.1}\n")
    with pytest.raises(TestbedError) as fault:
        pairing.add(wanted, path, Terminal(host.lines.append))
    assert named in str(fault.value)
    assert "\n" not in str(fault.value)
    assert str(fault.value) == snapshot
    assert host.lines == []


@pytest.mark.parametrize(
    ("target", "own", "name"),
    [
        ("pi@lab-pi.local", "raspberrypi", "lab-pi"),
        ("gpu", "x", "gpu"),
        ("pi@10.0.0.2", "raspberrypi.lan", "raspberrypi"),
        ("pi@fe80::1%eth0", "raspberrypi", "raspberrypi"),
        ("pi@10.0.0.2", "", "edge"),
        ("local", "here", "here"),
    ],
)
def test_a_host_is_called_what_it_is_called(host: ExampleHost, target: str, own: str, name: str) -> None:
    host.program("uname", f"echo {own}")
    assert pairing._name(ThisMachine(), new(target, "edge")) == name


class TestPuttingOver:
    WHO = Login("pi", "10.0.0.2", 2222, "pi", known_hosts=(Path("/home/me/my hosts"),))

    def put(self, host: ExampleHost) -> list[str]:
        """The arguments of ssh-copy-id."""
        (host.home / "hosts").mkdir(exist_ok=True)
        who = replace(self.WHO, known_hosts=(host.home / "hosts" / "known",))
        pairing._put_over(who, "me@lab-pi", "ssh-ed25519 AAAA1 ann@home", Terminal(host.lines.append))
        return (host.home / "arguments").read_text().splitlines()

    def test_ssh_asks_whether_it_is_the_hosts_own_key(self, host: ExampleHost) -> None:
        host.program("ssh-copy-id", 'printf "%s\\n" "$@" >~/arguments; cat "$3" >~/public')
        arguments = self.put(host)
        assert (host.home / "public").read_text() == "ssh-ed25519 AAAA1 ann@home\n"
        assert "StrictHostKeyChecking=ask" in arguments
        assert f'UserKnownHostsFile="{host.home}/hosts/known"' in arguments
        assert arguments[arguments.index("-p") + 1] == "2222"
        assert arguments[-1] == "pi@lab-pi"

    def test_what_it_says_last_is_why_it_failed(self, host: ExampleHost) -> None:
        host.program("ssh-copy-id", "echo 'Permission denied (publickey,password).' >&2; exit 1")
        with pytest.raises(
            TestbedError, match=r"pi .*not put over: Permission denied \(publickey,password\)"
        ):
            self.put(host)

    def test_without_it_the_package_is_named(
        self, host: ExampleHost, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", f"{host.home}/bin")
        with pytest.raises(TestbedError, match="openssh-client"):
            self.put(host)


class TestPublicKey:
    def key(self, host: ExampleHost, *identities: Path, confirm: bool | None = None) -> str:
        who = Login("pi", "10.0.0.2", 22, "pi", identities=identities)
        asked = None if confirm is None else lambda question: confirm
        return pairing._public_key(who, Keyring(), Terminal(host.lines.append, asked))

    def make(self, host: ExampleHost, name: str, kind: str, passphrase: str = "") -> Path:
        path = host.home / ".ssh" / name
        path.parent.mkdir(mode=0o700, exist_ok=True)
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-f", str(path)], check=True)
        return path

    def test_ed25519_goes_first_and_a_locked_one_needs_no_passphrase_for_that(
        self, host: ExampleHost
    ) -> None:
        other, ours = self.make(host, "id_ecdsa", "ecdsa"), self.make(host, "id_ed25519", "ed25519", "locked")
        kind, public = ours.with_name("id_ed25519.pub").read_text().split()[:2]
        assert self.key(host, other, ours).split()[:2] == [kind, public]
        assert self.key(host, other).startswith("ecdsa-sha2-nistp256 ")
        assert "~/.ssh/id_ed25519" in host.lines[0]

    def test_without_any_one_is_made_if_the_user_says_so(self, host: ExampleHost) -> None:
        for confirm in (None, False):
            with pytest.raises(TestbedError, match="ssh-keygen -t ed25519"):
                self.key(host, confirm=confirm)
        made = self.key(host, confirm=True)
        path = host.home / ".ssh" / "id_ed25519"
        assert made.split()[:2] == path.with_name("id_ed25519.pub").read_text().split()[:2]
        assert path.stat().st_mode & 0o777 == 0o600

    def test_a_key_that_is_there_is_never_overwritten(self, host: ExampleHost) -> None:
        (host.home / ".ssh").mkdir()
        (host.home / ".ssh" / "id_ed25519").write_text("precious")
        with pytest.raises(TestbedError, match="--key"):
            self.key(host, confirm=True)
        assert (host.home / ".ssh" / "id_ed25519").read_text() == "precious"

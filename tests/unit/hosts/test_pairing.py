"""What pairing decides and does by itself; with a server to log in to it is tested in a lab."""

from __future__ import annotations

import ipaddress
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.hosts import inventory
from pareto.hosts.connection import Connection, ThisMachine, Unreachable
from pareto.hosts.host import TestbedError
from pareto.hosts.inventory import HostEntry
from pareto.hosts.setup import pair as pairing
from pareto.hosts.setup.pair import Terminal
from pareto.hosts.ssh import addresses
from pareto.hosts.ssh.addresses import Pair
from pareto.hosts.ssh.keys import Keyring
from pareto.hosts.ssh.login import Login
from tests.unit.example_host import ExampleHost, example_host, has

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


@pytest.mark.parametrize(
    ("before", "role", "expected"),
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
    host: ExampleHost, before: str, role: str, expected: tuple[str, str]
) -> None:
    has(host, lo=LOOPBACK, wlan0=AIR, eth0=WIRED, eth1="192.168.8.2/24")
    path = host.home / "lab.yaml"
    path.write_text(before)
    member = pairing.add(new("local", role, "new"), path, Terminal(host.lines.append), lost)
    assert inventory.load(path).hosts[-1] == member
    own, onward = expected
    assert f"{member.data_address} {member.data_interface}" == own
    assert f"{member.next_address} {member.next_interface}" == onward
    assert any("next address" in line for line in host.lines) == bool(member.next_address)


class TestMeeting:
    """A new host on two networks with one that the file has by the slower of its addresses."""

    FILE = "hosts:\n  gpu: {role: server, ssh: gpu, data_address: 192.168.1.9}  # mine\n"

    def add(
        self,
        host: ExampleHost,
        monkeypatch: pytest.MonkeyPatch,
        confirm: bool | None,
        faults: tuple[str, ...] = (),
        address: str = "",
    ) -> HostEntry:
        has(host, eth0=WIRED, wlan0=AIR)
        links = addresses.list_addresses(ThisMachine())
        far = {"192.168.1.9": "wlan0", "192.168.7.1": "eth1"}
        theirs = [
            replace(each, interface=name, network=ipaddress.IPv4Interface(f"{own}/24"))
            for each, (own, name) in zip(reversed(links), far.items(), strict=True)
        ]
        lists = iter([links, theirs])
        monkeypatch.setattr(pairing, "list_addresses", lambda connection: next(lists))

        def tried(pair: Pair, *_: object) -> Pair:
            name = pair.own.interface
            return replace(pair, fault="no route") if name in faults else replace(pair, bps=SPEEDS[name])

        monkeypatch.setattr(pairing, "tried", tried)
        path = host.home / "lab.yaml"
        path.write_text(self.FILE)
        answer = None if confirm is None else lambda question: host.lines.append(question) or confirm
        terminal = Terminal(host.lines.append, answer)
        wanted = replace(new("local", "edge", "pi"), data_address=address)
        return pairing.add(wanted, path, terminal, lambda entry: ThisMachine())

    def test_the_fastest_way_is_taken_and_the_file_says_so(
        self, host: ExampleHost, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
    ) -> None:
        added = self.add(host, monkeypatch, confirm=True)
        assert (added.data_address, added.data_interface) == ("192.168.7.2", "eth0")
        gpu, pi = inventory.load(host.home / "lab.yaml").hosts
        assert (gpu.data_address, gpu.data_interface, pi) == ("192.168.7.1", "eth1", added)
        assert "# mine" in (host.home / "lab.yaml").read_text()
        assert host.lines == snapshot

    @pytest.mark.parametrize("confirm", [None, False])
    def test_what_the_file_says_stays_unless_the_user_says_yes(
        self,
        host: ExampleHost,
        monkeypatch: pytest.MonkeyPatch,
        confirm: bool | None,
        snapshot: SnapshotAssertion,
    ) -> None:
        added = self.add(host, monkeypatch, confirm)
        assert (added.data_address, added.data_interface) == ("192.168.1.20", "wlan0")
        assert (host.home / "lab.yaml").read_text().startswith(self.FILE)
        assert host.lines == snapshot

    def test_a_way_that_does_not_work_is_not_taken(
        self, host: ExampleHost, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        added = self.add(host, monkeypatch, confirm=None, faults=("eth0",))
        assert added.data_interface == "wlan0"
        assert not any("that way" in line for line in host.lines)

    def test_an_address_that_the_user_names(self, host: ExampleHost, monkeypatch: pytest.MonkeyPatch) -> None:
        added = self.add(host, monkeypatch, confirm=None, address="192.168.1.20")
        assert added.data_interface == "wlan0"
        assert not any("that way" in line for line in host.lines)

    def test_an_address_that_the_host_does_not_have(
        self, host: ExampleHost, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
    ) -> None:
        with pytest.raises(TestbedError) as fault:
            self.add(host, monkeypatch, confirm=None, address="10.1.1.1")
        assert str(fault.value) == snapshot


FULL = "".join(f"  m{i}: {{role: middle, ssh: m{i}, data_address: 10.0.0.{10 + i}}}\n" for i in range(7))


@pytest.mark.parametrize(
    ("wanted", "named", "more"),
    [
        (new("pi@10.0.0.3", "edgy"), "edgy", ""),
        (new("pi@10.0.0.3", "server"), "role server", ""),
        (new("pi@10.0.0.3", "edge", "gpu"), "host gpu", ""),
        (new("pi@10.0.0.3", "edge", "my pi"), "--name 'my pi'", ""),
        (new("pi@10.0.0.3", "edge", device="gpu"), "--device gpu", ""),
        (new("pi@10.0.0.3", "edge", key=Path("/nowhere/key.pub")), "/nowhere/key", ""),
        (new("local", "middle", "new"), " 8 ", FULL),
    ],
    ids=["role", "role that is taken", "name that is taken", "name", "device", "key", "full"],
)
def test_bad_input_is_one_line_before_anything_is_done(
    host: ExampleHost, wanted: HostEntry, named: str, more: str, snapshot: SnapshotAssertion
) -> None:
    path = host.home / "lab.yaml"
    path.write_text(f"hosts:\n  gpu: {{role: server, ssh: gpu, data_address: 10.0.0.1}}\n{more}")
    with pytest.raises(TestbedError) as fault:
        pairing.add(wanted, path, Terminal(host.lines.append), lost)
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

"""From a testbed file to hosts that a sweep can run on: what the examination stops, and what it lets pass."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.hosts import inventory
from pareto.hosts.connection import Connection, NotAdmitted, ThisMachine, Unreachable
from pareto.hosts.host import EDGE, SERVER, End, TestbedError
from pareto.hosts.inventory import HostEntry, Inventory, Side
from pareto.hosts.session import Session
from pareto.hosts.setup import checkup, privileged
from pareto.hosts.shapers import NetemShaper, Shaper
from pareto.hosts.ssh import testbed as ssh_testbed
from pareto.hosts.ssh.keys import Keyring
from pareto.hosts.testbed import Remote
from pareto.protocol.jsonlines import plain
from pareto.remote.link.profile import Direction, Profile
from tests.unit import checkup_facts
from tests.unit.far_end import FarEnd

LAB = """\
hosts:
  gpu: {role: server, ssh: gpu.lab, data_address: 192.168.7.1, folder: /srv/pareto, device: "cuda:0"}
  pi: {role: edge, ssh: pi@pi.local, data_address: 192.168.7.2, threads: 4}
"""
SHAPES = {"sudo": True, "installed": True, "allowed": True, "digest": privileged.digest(), "words": ""}
NO_NETEM = {"netem": "absent", "netem_supported": None}
ASKED_ROOT = {"uid": 1000, "privileged": {**SHAPES, "allowed": False, "digest": None, "words": ""}}


class Hosts(ThisMachine):
    """This machine in place of a host; notes that it was logged out of."""

    closed = False

    def close(self) -> None:
        self.closed = True


@dataclass
class Bench:
    """What the hosts of the file tell, and what was done with them."""

    file: Inventory
    facts: dict[str, dict[str, Any]]
    connections: dict[str, Hosts] = field(default_factory=dict)
    asked: list[tuple[str, list[str]]] = field(default_factory=list)
    helpers: dict[str, FarEnd] = field(default_factory=dict)
    as_root: dict[str, bool] = field(default_factory=dict)
    supported: bool = True
    ahead: list[dict[str, Any]] = field(default_factory=list)
    """Other drivers that have the hosts."""
    carrier_losses: dict[str, int | None] = field(default_factory=dict)
    """By interface."""

    def connect(self, member: HostEntry, keys: Keyring | None = None) -> Connection:
        return self.connections.setdefault(member.name, Hosts())

    def ask(self, connection: Connection, member: HostEntry, sides: Sequence[Side]) -> dict[str, Any]:
        self.asked.append((member.name, [side.peer for side in sides]))
        return self.facts[member.name]

    def start(self, remote: Remote, module: str) -> Session:
        assert module == "pareto.remote.worker.lease"
        answers: dict[str, Callable[[dict[str, Any]], Any]] = dict.fromkeys(
            ("take", "lease"), lambda _: {"host": remote.host.name, "ahead": self.ahead}
        )
        answers["carrier"] = lambda request: self.carrier_losses.get(request["interface"], 0)
        return Session(remote.host.name, FarEnd(answers))

    def start_privileged(self, remote: Remote, *, as_root: bool) -> Session:
        answers: Mapping[str, Callable[[dict[str, Any]], Any]] = {
            "supported": lambda request: self.supported,
            "apply": lambda request: {},
        }
        self.as_root[remote.host.name] = as_root
        self.helpers[remote.host.name] = FarEnd(answers)
        return Session(remote.host.name, self.helpers[remote.host.name])


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    path = tmp_path / "lab.yaml"
    path.write_text(LAB)
    facts = {"pi": checkup_facts.pi(privileged=SHAPES), "gpu": checkup_facts.gpu(privileged=SHAPES)}
    bench = Bench(inventory.load(path), facts)
    monkeypatch.setattr(ssh_testbed, "connect", bench.connect)
    monkeypatch.setattr(checkup, "ask", bench.ask)
    monkeypatch.setattr(
        Remote, "start_privileged", lambda remote, *, as_root: bench.start_privileged(remote, as_root=as_root)
    )
    monkeypatch.setattr(Remote, "start", lambda remote, module: bench.start(remote, module))
    monkeypatch.setenv("HOME", str(tmp_path))
    return bench


def test_hosts_as_the_file_and_they_themselves_say(
    bench: Bench, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    with closing(ssh_testbed.open_ssh_testbed(bench.file, shaped=True)) as bed:
        assert list(bed.remotes) == [EDGE, SERVER]
        edge, server = (bed.remotes[role].host for role in (EDGE, SERVER))
        assert not bed.is_local
        assert bed.label == snapshot
    assert (edge.name, edge.data_address, edge.data_interface) == ("pi", "192.168.7.2", "eth0")
    assert (edge.folder, edge.python) == (f"{tmp_path}/.pareto", "/home/pi/.pareto/venv/bin/python")
    assert (edge.device, edge.threads) == ("cpu", 4)
    assert (server.data_interface, server.folder, server.device) == ("enp3s0", "/srv/pareto", "cuda:0")
    assert sorted(bench.asked) == [("gpu", ["192.168.7.2"]), ("pi", ["192.168.7.1"])]
    assert all(connection.closed for connection in bench.connections.values())


def test_a_fatal_finding_is_told_with_its_fix(bench: Bench, snapshot: SnapshotAssertion) -> None:
    bench.facts["gpu"] |= NO_NETEM
    with pytest.raises(TestbedError) as raised:
        ssh_testbed.open_ssh_testbed(bench.file, shaped=True)
    assert str(raised.value).startswith("gpu: netem: ")
    assert "sudo apt-get install -y linux-modules-extra-6.8.0-60-generic" in str(raised.value)
    assert str(raised.value) == snapshot
    assert [connection.closed for connection in bench.connections.values()] == [True, True]
    assert bench.helpers == {}


def test_of_several_hosts_with_a_fault_the_first_is_named(bench: Bench) -> None:
    bench.facts["pi"] = bench.facts["gpu"] = {"python": None, "fault": ""}
    with pytest.raises(TestbedError, match=r"^pi: python: "):
        ssh_testbed.open_ssh_testbed(bench.file, shaped=False)
    assert {name for name, _ in bench.asked} == {"pi", "gpu"}
    assert all(connection.closed for connection in bench.connections.values())


@pytest.mark.parametrize("facts", [NO_NETEM, ASKED_ROOT])
def test_a_sweep_that_shapes_nothing_needs_nothing_to_shape_with(bench: Bench, facts: dict[str, Any]) -> None:
    bench.facts["pi"] |= facts
    with pytest.raises(TestbedError, match=r"^pi: "):
        ssh_testbed.open_ssh_testbed(bench.file, shaped=True)
    with closing(ssh_testbed.open_ssh_testbed(bench.file, shaped=False)) as bed:
        assert type(bed.links[0].shaper) is Shaper
        assert bed.facts["shaper"] == "none"
    assert bench.helpers == {}


@pytest.mark.parametrize("facts", [NO_NETEM, ASKED_ROOT])
def test_a_host_at_which_nothing_is_shaped_needs_nothing_to_shape_with(
    bench: Bench, facts: dict[str, Any]
) -> None:
    bench.facts["gpu"] |= facts
    with closing(ssh_testbed.open_ssh_testbed(bench.file, shaped=True, shape_at="edge")) as bed:
        (link,) = bed.links
        assert isinstance(link.shaper, NetemShaper)
        link.shaper.apply(Profile("delayed", Direction(0.2)))
        (asked,) = bench.helpers["pi"].of("apply")
        assert (asked["interface"], asked["egress"]) == ("eth0", plain(Direction(0.2)))
        assert bed.facts["shaper"] == "netem"
    assert list(bench.helpers) == ["pi"]
    assert bench.helpers["pi"].closed


def test_sudo_is_for_those_who_are_not_root(bench: Bench) -> None:
    bench.facts["gpu"]["uid"] = 0
    ssh_testbed.open_ssh_testbed(bench.file, shaped=True).close()
    assert bench.as_root == {"pi": False, "gpu": True}


def test_what_does_not_stop_a_sweep_is_kept(bench: Bench) -> None:
    bench.facts["pi"]["governors"] = ["ondemand"]
    with closing(ssh_testbed.open_ssh_testbed(bench.file, shaped=False)) as bed:
        told = bed.facts["hosts"]
    (finding,) = told[EDGE]["findings"]
    assert finding.startswith("governor: ondemand: ")
    assert told[SERVER]["findings"] == []
    assert (told[EDGE]["ssh"], told[EDGE]["data_interface"]) == ("pi@pi.local", "eth0")


def test_a_helper_that_finds_no_netem_after_all(bench: Bench) -> None:
    bench.supported = False
    with pytest.raises(TestbedError, match=r"^pi: .*sch_netem"):
        ssh_testbed.open_ssh_testbed(bench.file, shaped=True)
    assert bench.helpers["pi"].closed
    assert all(connection.closed for connection in bench.connections.values())


def test_a_helper_that_does_not_start(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    def dead(remote: Remote, *, as_root: bool) -> Session:
        end = FarEnd({})
        end.dead = True
        return Session(remote.host.name, end)

    monkeypatch.setattr(Remote, "start_privileged", dead)
    with pytest.raises(TestbedError, match="pi ended: it was killed") as raised:
        ssh_testbed.open_ssh_testbed(bench.file, shaped=True)
    assert str(raised.value) == snapshot


def test_a_host_that_cannot_be_reached(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(member: HostEntry, keys: Keyring) -> Connection:
        if member.name == "gpu":
            raise Unreachable("gpu.lab: no such name")
        return bench.connect(member)

    monkeypatch.setattr(ssh_testbed, "connect", connect)
    with pytest.raises(TestbedError, match=r"^gpu\.lab: no such name$"):
        ssh_testbed.open_ssh_testbed(bench.file, shaped=False)
    assert bench.connections["pi"].closed
    assert bench.asked == []  # all are logged in to before any is looked at, which takes its time


def test_hosts_are_logged_in_to_at_the_same_time_and_looked_at_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    met = threading.Barrier(2, timeout=20)

    def connect(member: HostEntry, keys: Keyring) -> Connection:
        met.wait()
        return bench.connect(member)

    def ask(connection: Connection, member: HostEntry, sides: Sequence[Side]) -> dict[str, Any]:
        met.wait()
        return bench.ask(connection, member, sides)

    monkeypatch.setattr(ssh_testbed, "connect", connect)
    monkeypatch.setattr(checkup, "ask", ask)
    ssh_testbed.open_ssh_testbed(bench.file, shaped=False).close()


def test_a_passphrase_is_asked_for_when_all_other_hosts_are_logged_in_to(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the main thread: whoever interrupts the question gets the terminal back as it was."""
    asking: list[str] = []

    def connect(member: HostEntry, keys: Keyring) -> Connection:
        if member.name == "pi":
            if keys is not ssh_testbed.keyring():
                raise NotAdmitted("pi.local: the key has a passphrase")
            assert list(bench.connections) == ["gpu"]
            asking.append(threading.current_thread().name)
        return bench.connect(member)

    monkeypatch.setattr(ssh_testbed, "connect", connect)
    with closing(ssh_testbed.open_ssh_testbed(bench.file, shaped=False)) as bed:
        assert list(bed.remotes) == [EDGE, SERVER]
    assert asking == [threading.main_thread().name]
    assert all(connection.closed for connection in bench.connections.values())


CHAIN = """\
hosts:
  pi: {role: edge, ssh: pi@pi.local, data_address: 192.168.7.2}
  gpu: {role: server, ssh: gpu.lab, data_address: 192.168.8.1, device: "cuda:0"}
  mid: {role: middle, ssh: mid.lab, data_address: 192.168.7.3, next_address: 192.168.8.3}
"""


@pytest.fixture
def chain(bench: Bench) -> Bench:
    """A host between the two, with a card for each."""
    bench.file.path.write_text(CHAIN)
    cards = [
        checkup_facts.interface("eth0", "192.168.7.3/24"),
        checkup_facts.interface("eth1", "192.168.8.3/24"),
    ]
    connections = {
        "192.168.7.2": {"source": "192.168.7.3", "interface": "eth0"},
        "192.168.8.1": {"source": "192.168.8.3", "interface": "eth1"},
    }
    bench.facts["mid"] = checkup_facts.pi(privileged=SHAPES, interfaces=cards, routes=connections)
    bench.facts["pi"]["routes"] = {"192.168.7.3": {"source": "192.168.7.2", "interface": "eth0"}}
    bench.facts["gpu"] |= {
        "interfaces": [checkup_facts.interface("enp3s0", "192.168.8.1/24")],
        "routes": {"192.168.8.3": {"source": "192.168.8.1", "interface": "enp3s0"}},
    }
    bench.file = inventory.load(bench.file.path)
    return bench


@pytest.mark.parametrize("shape_at", ["both", "edge"])
def test_in_a_chain_each_link_is_shaped_where_it_begins(
    chain: Bench, shape_at: str, snapshot: SnapshotAssertion
) -> None:
    chain.facts["gpu"] |= NO_NETEM
    profiles = [
        Profile(name, Direction(delay_s), Direction(2 * delay_s))
        for name, delay_s in (("a", 0.1), ("b", 0.3))
    ]
    with closing(ssh_testbed.open_ssh_testbed(chain.file, shaped=True, shape_at=shape_at)) as bed:
        assert list(bed.remotes) == [EDGE, "middle1", SERVER]
        assert bed.label == snapshot
        assert [(link.near, link.far) for link in bed.links] == [
            (End(EDGE, "192.168.7.2", "eth0"), End("middle1", "192.168.7.3", "eth0")),
            (End("middle1", "192.168.8.3", "eth1"), End(SERVER, "192.168.8.1", "enp3s0")),
        ]
        middle = bed.remotes["middle1"].host
        assert (middle.data_address, middle.data_interface) == ("192.168.7.3", "eth0")
        for link, profile in zip(bed.links, profiles, strict=True):
            link.shaper.apply(profile)
    assert list(chain.helpers) == ["pi", "mid"]
    for name, interface, peer, delay_s in (
        ("pi", "eth0", "192.168.7.3", 0.1),
        ("mid", "eth1", "192.168.8.1", 0.3),
    ):
        (asked,) = chain.helpers[name].of("apply")
        assert (asked["interface"], asked["peer"], asked["filtered"]) == (interface, peer, True)
        assert asked["egress"] == plain(Direction(delay_s))
        assert asked["ingress"] == plain(Direction(2 * delay_s))
        assert chain.helpers[name].closed
    assert sorted(chain.asked) == [
        ("gpu", ["192.168.8.3"]),
        ("mid", ["192.168.7.2", "192.168.8.1"]),
        ("pi", ["192.168.7.3"]),
    ]


def test_in_a_chain_all_but_the_last_must_be_able_to_shape(chain: Bench) -> None:
    chain.facts["mid"] |= NO_NETEM
    with pytest.raises(TestbedError, match=r"^mid: netem: "):
        ssh_testbed.open_ssh_testbed(chain.file, shaped=True)
    ssh_testbed.open_ssh_testbed(chain.file, shaped=False).close()


def test_a_middle_host_without_its_second_address(chain: Bench, snapshot: SnapshotAssertion) -> None:
    chain.facts["mid"]["interfaces"] = chain.facts["mid"]["interfaces"][:1]
    with pytest.raises(TestbedError, match=r"^mid: data link: .*192\.168\.8\.3") as raised:
        ssh_testbed.open_ssh_testbed(chain.file, shaped=False)
    assert str(raised.value) == snapshot


def test_a_host_that_another_driver_took_meanwhile_stays_refused(bench: Bench) -> None:
    """Also when it is asked for again: a ticket alone does not hold it."""
    other = {"who": "ann@lab", "origin": "10.0.0.3", "run": "run", "since_s": 60.0}
    with closing(ssh_testbed.open_ssh_testbed(bench.file, shaped=False)) as bed:
        bed.hold()
        bench.ahead.append(other)
        for _ in range(2):
            with pytest.raises(TestbedError, match="ann@lab measures there"):
                bed.hold()


def test_a_data_link_that_is_lost_for_a_moment_is_noticed(bench: Bench) -> None:
    bench.carrier_losses["eth0"] = 2  # earlier: setting the interface up
    with closing(ssh_testbed.open_ssh_testbed(bench.file, shaped=False)) as bed:
        bed.watch()
        bed.check(every_s=0.0)
        for now in (3, None):  # it is there again, or not yet
            bench.carrier_losses["eth0"] = now
            with pytest.raises(Unreachable, match="pi: eth0 lost its carrier"):
                bed.check(every_s=0.0)
        bed.watch()  # there was none when the trial began
        with pytest.raises(Unreachable, match="pi: eth0 lost its carrier"):
            bed.check(every_s=0.0)
        bench.carrier_losses["eth0"] = 3
        bed.watch()
        bed.check(every_s=0.0)

"""From a testbed file to hosts that a sweep can run on: what the examination stops, and what it lets pass."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
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
from pareto.hosts.testbed import Remote, Testbed
from pareto.protocol.jsonlines import plain
from pareto.protocol.validation import read
from pareto.remote.link.profile import Direction, Profile
from pareto.remote.link.requests import Apply
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


def opened(bench: Bench, *, shaped: bool = False, shape_at: str = "both") -> AbstractContextManager[Testbed]:
    return closing(ssh_testbed.open_ssh_testbed(bench.file, shaped=shaped, shape_at=shape_at))


def refused(bench: Bench, words: str, *, shaped: bool = False) -> str:
    """What is said; all that was connected to is logged out of."""
    with pytest.raises(TestbedError, match=words) as raised:
        ssh_testbed.open_ssh_testbed(bench.file, shaped=shaped)
    assert all(connection.closed for connection in bench.connections.values())
    return str(raised.value)


def test_hosts_as_the_file_and_they_themselves_say(bench: Bench, snapshot: SnapshotAssertion) -> None:
    """What does not stop a sweep is kept; sudo is for those who are not root."""
    bench.facts["pi"]["governors"] = ["ondemand"]
    bench.facts["gpu"]["uid"] = 0
    with opened(bench, shaped=True) as bed:
        assert not bed.is_local
        hosts = {role: remote.host for role, remote in bed.remotes.items()}
    assert [bed.label, hosts, bed.facts["hosts"], sorted(bench.asked), bench.as_root] == snapshot
    assert all(connection.closed for connection in bench.connections.values())


def test_a_fatal_finding_is_told_with_its_fix(bench: Bench, snapshot: SnapshotAssertion) -> None:
    """Of several hosts with a fault the first is named."""
    bench.facts["gpu"] |= NO_NETEM
    said = refused(bench, "^gpu: netem: ", shaped=True)
    assert "sudo apt-get install -y linux-modules-extra-6.8.0-60-generic" in said
    assert said == snapshot
    assert (len(bench.connections), bench.helpers) == (2, {})
    bench.facts["pi"] = bench.facts["gpu"] = {"python": None, "fault": ""}
    refused(bench, r"^pi: python: ")
    assert {name for name, _ in bench.asked} == {"pi", "gpu"}


@pytest.mark.parametrize("facts", [NO_NETEM, ASKED_ROOT])
def test_a_host_at_which_nothing_is_shaped_needs_no_shaping(bench: Bench, facts: dict[str, Any]) -> None:
    bench.facts["gpu"] |= facts
    refused(bench, r"^gpu: ", shaped=True)
    with opened(bench) as bed:
        assert type(bed.links[0].shaper) is Shaper
        assert bed.facts["shaper"] == "none"
    assert bench.helpers == {}
    with opened(bench, shaped=True, shape_at="edge") as bed:
        (link,) = bed.links
        assert isinstance(link.shaper, NetemShaper)
        link.shaper.apply(Profile("delayed", Direction(0.2)))
        (asked,) = bench.helpers["pi"].of("apply")
        assert (asked["interface"], asked["egress"]) == ("eth0", plain(Direction(0.2)))
        assert bed.facts["shaper"] == "netem"
    assert list(bench.helpers) == ["pi"]
    assert bench.helpers["pi"].closed


def test_a_helper_that_finds_no_netem_after_all_or_does_not_start(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    bench.supported = False
    refused(bench, r"^pi: .*sch_netem", shaped=True)
    assert bench.helpers["pi"].closed

    def dead(remote: Remote, *, as_root: bool) -> Session:
        end = FarEnd({})
        end.dead = True
        return Session(remote.host.name, end)

    monkeypatch.setattr(Remote, "start_privileged", dead)
    assert refused(bench, "pi ended: it was killed", shaped=True) == snapshot


def test_a_host_that_cannot_be_reached(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(member: HostEntry, keys: Keyring) -> Connection:
        if member.name == "gpu":
            raise Unreachable("gpu.lab: no such name")
        return bench.connect(member)

    monkeypatch.setattr(ssh_testbed, "connect", connect)
    refused(bench, r"^gpu\.lab: no such name$")
    assert list(bench.connections) == ["pi"]
    assert bench.asked == []  # all are logged in to before any is looked at, which takes its time
    # Hosts are logged in to at once and looked at.
    met = threading.Barrier(2, timeout=20)
    for module, name, does in ((ssh_testbed, "connect", bench.connect), (checkup, "ask", bench.ask)):
        monkeypatch.setattr(module, name, lambda *given, does=does: (met.wait(), does(*given))[1])
    with opened(bench):
        pass


def test_a_passphrase_is_asked_for_after_other_logins(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
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
    with opened(bench) as bed:
        assert list(bed.remotes) == [EDGE, SERVER]
    assert asking == [threading.main_thread().name]
    assert all(connection.closed for connection in bench.connections.values())


CHAIN = """\
hosts:
  pi: {role: edge, ssh: pi@pi.local, data_address: 192.168.7.2}
  gpu: {role: server, ssh: gpu.lab, data_address: 192.168.8.1, device: "cuda:0"}
  mid: {role: middle, ssh: mid.lab, data_address: 192.168.7.3, next_address: 192.168.8.3}
"""


def way(source: str, interface: str) -> dict[str, str]:
    return {"source": source, "interface": interface}


@pytest.fixture
def chain(bench: Bench) -> Bench:
    """A host between the two, with a card for each."""
    bench.file.path.write_text(CHAIN)
    card = checkup_facts.interface
    cards = [card("eth0", "192.168.7.3/24"), card("eth1", "192.168.8.3/24")]
    ways = {"192.168.7.2": way("192.168.7.3", "eth0"), "192.168.8.1": way("192.168.8.3", "eth1")}
    bench.facts["mid"] = checkup_facts.pi(privileged=SHAPES, interfaces=cards, routes=ways)
    bench.facts["pi"]["routes"] = {"192.168.7.3": way("192.168.7.2", "eth0")}
    bench.facts["gpu"]["interfaces"] = [card("enp3s0", "192.168.8.1/24")]
    bench.facts["gpu"]["routes"] = {"192.168.8.3": way("192.168.8.1", "enp3s0")}
    bench.file = inventory.load(bench.file.path)
    return bench


@pytest.mark.parametrize("shape_at", ["both", "edge"])
def test_each_link_is_shaped_where_it_begins(chain: Bench, shape_at: str) -> None:
    chain.facts["gpu"] |= NO_NETEM
    out, back = Direction(0.1), Direction(0.2)
    pi, gpu = End(EDGE, "192.168.7.2", "eth0"), End(SERVER, "192.168.8.1", "enp3s0")
    before, after = End("middle1", "192.168.7.3", "eth0"), End("middle1", "192.168.8.3", "eth1")
    with opened(chain, shaped=True, shape_at=shape_at) as bed:
        assert bed.label == "edge pi (cpu), middle1 mid (cpu), server gpu (cuda:0)"
        assert [*bed.remotes] == [EDGE, "middle1", SERVER]
        assert [(link.near, link.far) for link in bed.links] == [(pi, before), (after, gpu)]
        bed.links[0].shaper.apply(Profile("a", out, back))
        bed.links[1].shaper.apply(Profile("b", back, out))
    for name, near, far, ways in (("pi", pi, before, (out, back)), ("mid", after, gpu, (back, out))):
        (told,) = chain.helpers[name].of("apply")
        asked = Apply(near.interface, near.address, *ways, peer=far.address, filtered=True)
        assert read(Apply, {key: value for key, value in told.items() if key != "op"}) == asked
        assert chain.helpers[name].closed
    assert list(chain.helpers) == ["pi", "mid"]
    assert sorted(chain.asked) == [
        ("gpu", ["192.168.8.3"]), ("mid", ["192.168.7.2", "192.168.8.1"]), ("pi", ["192.168.7.3"]),
    ]  # fmt: skip


def test_in_a_chain_all_but_the_last_must_be_able_to_shape(chain: Bench, snapshot: SnapshotAssertion) -> None:
    """And a host in the middle has both its addresses."""
    chain.facts["mid"] |= NO_NETEM
    refused(chain, r"^mid: netem: ", shaped=True)
    with opened(chain):
        pass
    chain.facts["mid"]["interfaces"] = chain.facts["mid"]["interfaces"][:1]
    assert refused(chain, r"^mid: data link: .*192\.168\.8\.3") == snapshot


def test_a_data_link_that_is_lost_for_a_moment_is_noticed(bench: Bench) -> None:
    bench.carrier_losses["eth0"] = 2  # earlier: setting the interface up
    with opened(bench) as bed:
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
    # A host that another driver took meanwhile stays refused. Also when it is asked for again: a ticket alone
    # does not hold it.
    other = {"who": "ann@lab", "origin": "10.0.0.3", "run": "run", "since_s": 60.0}
    with opened(bench) as bed:
        bed.hold()
        bench.ahead.append(other)
        for _ in range(2):
            with pytest.raises(TestbedError, match="ann@lab measures there"):
                bed.hold()

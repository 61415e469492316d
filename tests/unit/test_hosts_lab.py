"""From a testbed file to hosts that a sweep can run on: what the examination stops, and what it lets pass."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pareto.hosts import checkup, inventory, lab, privileged
from pareto.hosts.host import EDGE, SERVER, TestbedError
from pareto.hosts.inventory import Inventory, Member
from pareto.hosts.remote import Remote
from pareto.hosts.session import Session
from pareto.hosts.shaping import NetemShaper, NoShaper
from pareto.hosts.way import Here, Unreachable, Way
from pareto.link.profile import Direction, Profile
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


class Hosts(Here):
    """This machine in place of a host; notes that it was logged out of."""

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


@dataclass
class Bench:
    """What the hosts of the file tell, and what was done with them."""

    file: Inventory
    facts: dict[str, dict[str, Any]]
    ways: dict[str, Hosts] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    helpers: dict[str, FarEnd] = field(default_factory=dict)
    as_root: dict[str, bool] = field(default_factory=dict)
    supported: dict[str, Any] = field(default_factory=lambda: {"netem": True})

    def open_way(self, member: Member) -> Way:
        return self.ways.setdefault(member.name, Hosts())

    def ask(self, way: Way, member: Member, peer_address: str) -> dict[str, Any]:
        self.asked.append((member.name, peer_address))
        return self.facts[member.name]

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
    now = {"privileged": SHAPES, "clock_s": time.time()}
    facts = {"pi": checkup_facts.pi(**now), "gpu": checkup_facts.gpu(**now)}
    bench = Bench(inventory.load(path), facts)
    monkeypatch.setattr(lab, "open_way", bench.open_way)
    monkeypatch.setattr(checkup, "ask", bench.ask)
    monkeypatch.setattr(
        Remote, "start_privileged", lambda remote, *, as_root: bench.start_privileged(remote, as_root=as_root)
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    return bench


def test_hosts_as_the_file_and_they_themselves_say(bench: Bench, tmp_path: Path) -> None:
    with closing(lab.open_lab(bench.file, shaped=True)) as bed:
        assert list(bed.remotes) == [EDGE, SERVER]
        edge, server = (bed.remotes[role].host for role in (EDGE, SERVER))
        assert not bed.is_local
        assert bed.label == "edge pi (cpu), server gpu (cuda:0)"
    assert (edge.name, edge.data_address, edge.data_interface) == ("pi", "192.168.7.2", "eth0")
    assert (edge.folder, edge.python) == (f"{tmp_path}/.pareto", "/home/pi/.pareto/venv/bin/python")
    assert (edge.device, edge.threads) == ("cpu", 4)
    assert (server.data_interface, server.folder, server.device) == ("enp3s0", "/srv/pareto", "cuda:0")
    assert bench.asked == [("pi", "192.168.7.1"), ("gpu", "192.168.7.2")]
    assert all(way.closed for way in bench.ways.values())


def test_a_fatal_finding_is_told_with_its_mend(bench: Bench) -> None:
    bench.facts["gpu"] |= NO_NETEM
    with pytest.raises(TestbedError) as raised:
        lab.open_lab(bench.file, shaped=True)
    assert str(raised.value) == (
        "gpu: netem: the kernel 6.8.0-60-generic has no sch_netem to shape the link with; "
        "mend it with: sudo apt-get install -y linux-modules-extra-6.8.0-60-generic "
        f"(more: ./pareto.sh doctor --testbed {bench.file.path})"
    )
    assert [way.closed for way in bench.ways.values()] == [True, True]
    assert bench.helpers == {}


def test_the_first_host_with_a_fault_is_the_last_that_is_asked(bench: Bench) -> None:
    bench.facts["pi"] = {"python": None, "fault": ""}
    with pytest.raises(TestbedError, match=r"^pi: python: there is no python3; mend it with: "):
        lab.open_lab(bench.file, shaped=False)
    assert [name for name, _ in bench.asked] == ["pi"]
    assert all(way.closed for way in bench.ways.values())


@pytest.mark.parametrize("facts", [NO_NETEM, ASKED_ROOT])
def test_a_sweep_that_shapes_nothing_needs_nothing_to_shape_with(bench: Bench, facts: dict[str, Any]) -> None:
    bench.facts["pi"] |= facts
    with pytest.raises(TestbedError, match=r"^pi: "):
        lab.open_lab(bench.file, shaped=True)
    with closing(lab.open_lab(bench.file, shaped=False)) as bed:
        assert isinstance(bed.shaper, NoShaper)
        assert bed.facts["shaper"] == "none"
    assert bench.helpers == {}


@pytest.mark.parametrize("facts", [NO_NETEM, ASKED_ROOT])
def test_a_host_at_which_nothing_is_shaped_needs_nothing_to_shape_with(
    bench: Bench, facts: dict[str, Any]
) -> None:
    bench.facts["gpu"] |= facts
    with closing(lab.open_lab(bench.file, shaped=True, shape_at="edge")) as bed:
        assert isinstance(bed.shaper, NetemShaper)
        bed.shaper.apply(Profile("delayed", Direction(0.2)))
        (asked,) = bench.helpers["pi"].of("apply")
        assert (asked["interface"], asked["egress"]) == ("eth0", {"delay_s": 0.2})
        assert (bed.facts["shaper"], bed.facts["shape_at"]) == ("netem", "edge")
    assert list(bench.helpers) == ["pi"]
    assert bench.helpers["pi"].closed


def test_sudo_is_for_those_who_are_not_root(bench: Bench) -> None:
    bench.facts["gpu"]["uid"] = 0
    lab.open_lab(bench.file, shaped=True).close()
    assert bench.as_root == {"pi": False, "gpu": True}


def test_what_does_not_stop_a_sweep_is_kept(bench: Bench) -> None:
    bench.facts["pi"]["governors"] = ["ondemand"]
    with closing(lab.open_lab(bench.file, shaped=False)) as bed:
        told = bed.facts["hosts"]
    assert told[EDGE]["findings"] == ["governor: ondemand: the clock follows the load, and times with it"]
    assert told[SERVER]["findings"] == []
    assert (told[EDGE]["ssh"], told[EDGE]["data_interface"]) == ("pi@pi.local", "eth0")


def test_a_helper_that_finds_no_netem_after_all(bench: Bench) -> None:
    bench.supported["netem"] = False
    with pytest.raises(TestbedError, match="pi: its kernel has no sch_netem"):
        lab.open_lab(bench.file, shaped=True)
    assert bench.helpers["pi"].closed
    assert all(way.closed for way in bench.ways.values())


def test_a_helper_that_does_not_start(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def dead(remote: Remote, *, as_root: bool) -> Session:
        end = FarEnd({})
        end.dead = True
        return Session(remote.host.name, end)

    monkeypatch.setattr(Remote, "start_privileged", dead)
    with pytest.raises(TestbedError, match=r"^the link cannot be shaped: pi ended: it was killed$"):
        lab.open_lab(bench.file, shaped=True)


def test_a_host_that_cannot_be_reached(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_way(member: Member) -> Way:
        if member.name == "gpu":
            raise Unreachable("gpu.lab: no such name")
        return bench.open_way(member)

    monkeypatch.setattr(lab, "open_way", open_way)
    with pytest.raises(TestbedError, match=r"^gpu\.lab: no such name$"):
        lab.open_lab(bench.file, shaped=False)
    assert bench.ways["pi"].closed
    assert bench.asked == []  # all are logged in to before any is looked at, which takes its time

"""Which testbed is meant, and hosts of one that go away for a while."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.hosts import testbed as testbed_module
from pareto.hosts import testbeds
from pareto.hosts.connection import Unreachable
from pareto.hosts.host import EDGE, SERVER, TestbedError
from pareto.hosts.shaping import Shaper
from pareto.hosts.testbed import Testbed
from tests.unit.far_end import HOSTS, FarEnd, StandIn, bed_of


class Clock:
    """In place of `time`: sleeping takes none of ours."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Away(StandIn):
    """A host that cannot be logged in to before its time; each try takes a while."""

    def until(self, clock: Clock, back_s: float, *, try_s: float = 0.0) -> Away:
        self.clock, self.back_s, self.try_s, self.tries = clock, back_s, try_s, 0
        return self

    def renew(self) -> None:
        self.tries += 1
        self.clock.now_s += self.try_s
        if self.clock.now_s < self.back_s:
            raise Unreachable(f"{self.host.name}: No route to host")


class Revived(Shaper):
    """Notes when it was asked to."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.at_s: list[float] = []

    def revive(self) -> None:
        self.at_s.append(self.clock.now_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(testbed_module, "time", clock)
    return clock


Lost = tuple[Testbed, Away, Away, Revived]
"""The testbed, its edge, its server, its shaper."""


@pytest.fixture
def lost(clock: Clock) -> Iterator[Lost]:
    """Both hosts within reach at once, unless the test says otherwise."""
    edge, server = (Away(HOSTS[role], lambda module: FarEnd({})).until(clock, 0.0) for role in HOSTS)
    shaper = Revived(clock)
    bed = bed_of({EDGE: edge, SERVER: server}, shaper=shaper)
    yield bed, edge, server, shaper
    bed.close()


def test_hosts_that_answer_are_not_waited_for(lost: Lost) -> None:
    bed, edge, server, shaper = lost
    bed.revive()
    assert (edge.tries, server.tries, shaper.at_s) == (1, 1, [0.0])


def test_a_host_that_comes_back_is_waited_for(lost: Lost) -> None:
    bed, edge, server, shaper = lost
    server.back_s = 45.0
    bed.revive()
    assert edge.tries == 1
    assert server.tries == pytest.approx(46, abs=1)
    assert shaper.at_s == [pytest.approx(45.0)]  # only when all are there


def test_a_host_that_stays_away_is_given_up(lost: Lost, clock: Clock) -> None:
    bed, edge, _, shaper = lost
    edge.back_s = float("inf")
    with pytest.raises(Unreachable, match=r"^pi: No route to host$"):
        bed.revive()
    assert clock.now_s == pytest.approx(testbed_module.RETURN_TIMEOUT_S, abs=2.0)
    assert shaper.at_s == []


def test_both_hosts_share_the_time(lost: Lost, clock: Clock) -> None:
    bed, edge, server, _ = lost
    edge.until(clock, 50.0)
    server.until(clock, float("inf"), try_s=4.0)
    with pytest.raises(Unreachable, match="gpu"):
        bed.revive()
    assert clock.now_s < 70.0


def test_a_testbed_file_is_needed_whole(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    path = tmp_path / "lab.yaml"
    with pytest.raises(TestbedError, match=str(path)) as no_file:
        testbeds.require(str(path))
    path.write_text("hosts:\n  pi: {role: edge, ssh: pi@pi.local, data_address: 192.168.7.2}\n")
    with pytest.raises(TestbedError, match=f"{path}: .*server") as no_server:
        testbeds.require(str(path))
    with path.open("a") as file:
        file.write("  gpu: {role: server, ssh: local, data_address: 192.168.7.1}\n")
    testbeds.require(str(path))
    path.write_text(path.read_text().replace("ssh: local", "shh: local"))
    with pytest.raises(TestbedError, match=f"{path}:3: .*'shh'") as typo:
        testbeds.require(str(path))
    assert [str(refused.value) for refused in (no_file, no_server, typo)] == snapshot


def test_how_many_hosts_a_file_has(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    hosts = ["edge", "server", "middle", "middle"]
    entries = [
        f"  {role[0]}{number}: {{role: {role}, ssh: host{number}, data_address: 192.168.7.{number}}}\n"
        for number, role in enumerate(hosts, start=1)
    ]
    for count in (2, 3, 4):
        path.write_text("hosts:\n" + "".join(entries[:count]))
        assert testbeds.size(str(path)) == count

"""Which testbed is meant, hosts of one that go away for a while, and programs that are started there."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.hosts import testbed as testbed_module
from pareto.hosts.access import require_testbed
from pareto.hosts.connection import ThisMachine, Unreachable
from pareto.hosts.host import EDGE, SERVER, Host, TestbedError
from pareto.hosts.session import Session, SessionLost
from pareto.hosts.shapers import Shaper
from pareto.hosts.testbed import Remote, Testbed
from pareto.remote.link.probe import OpenProbe
from pareto.remote.worker.probe import ProbeClient
from tests.unit.far_end import HOSTS, Clock, FarEnd, StandIn, bed_of


class Away(StandIn):
    """A host that cannot be logged in to before its time; each try takes a while."""

    def until(self, clock: Clock, back_s: float, *, try_s: float = 0.0) -> Away:
        self.clock, self.back_s, self.try_s, self.tries, self.cut_off_s = clock, back_s, try_s, 0, 0.0
        return self

    def loss(self) -> str:
        cut_off = self.clock.now_s < self.cut_off_s
        return f"{self.host.name}: no carrier on {self.host.data_interface}" if cut_off else ""

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


def test_a_host_that_is_cut_off_from_the_data_link_is_waited_for(lost: Lost, clock: Clock) -> None:
    bed, edge, _, shaper = lost
    edge.cut_off_s = 20.0
    assert bed.lost() == "pi: no carrier on eth0"
    bed.revive()
    assert bed.lost() == ""
    assert edge.tries == pytest.approx(21, abs=1)
    assert shaper.at_s == [pytest.approx(20.0)]


def test_a_data_link_that_was_lost_for_a_moment_is_noticed_until_the_testbed_is_revived(
    lost: Lost, clock: Clock
) -> None:
    bed, *_ = lost
    said = [""]
    bed.watch_links = lambda: lambda: said[-1]
    bed.watch()
    said.append("gpu: eth0 lost its carrier")
    bed.check()  # it has looked a moment ago
    clock.now_s += testbed_module.CHECK_S
    with pytest.raises(Unreachable, match="gpu: eth0 lost its carrier"):
        bed.check()
    assert bed.lost() == "gpu: eth0 lost its carrier"
    bed.revive()
    assert bed.lost() == ""
    with pytest.raises(Unreachable):
        bed.check(every_s=0.0)


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
        require_testbed(str(path))
    path.write_text("hosts:\n  pi: {role: edge, ssh: pi@pi.local, data_address: 192.168.7.2}\n")
    with pytest.raises(TestbedError, match=f"{path}: .*server") as no_server:
        require_testbed(str(path))
    with path.open("a") as file:
        file.write("  gpu: {role: server, ssh: local, data_address: 192.168.7.1}\n")
    require_testbed(str(path))
    path.write_text(path.read_text().replace("ssh: local", "shh: local"))
    with pytest.raises(TestbedError, match=f"{path}:3: .*'shh'") as typo:
        require_testbed(str(path))
    assert [str(refused.value) for refused in (no_file, no_server, typo)] == snapshot


WORD = "c0ffee"


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[Remote]:
    host = Host("pi", "127.0.0.1", "lo", f"{tmp_path}/it's here", sys.executable, threads=3)
    with closing(Remote(host, ThisMachine())) as remote:
        yield remote


def python_of(session: Session) -> psutil.Process:
    """The program itself, under the shell that waits for its end."""
    wire: Any = session._program
    (process,) = psutil.Process(wire.process.pid).children()
    return process


def listens(session: Session) -> int:
    return session.ask(OpenProbe("127.0.0.1", WORD))


def test_a_program_answers_from_the_shipped_code(remote: Remote) -> None:
    with closing(remote.start("pareto.remote.worker.probe")) as session:
        ProbeClient("127.0.0.1", listens(session), WORD).close()
        process = python_of(session)
        assert Path(process.cwd()).parent == Path(remote.host.folder)
        told = process.environ()
    assert not process.is_running()
    assert told["OMP_NUM_THREADS"] == "3"
    assert told["TP_SOCKET_IFNAME"] == told["GLOO_SOCKET_IFNAME"] == "lo"
    assert told["PYTHONDONTWRITEBYTECODE"] == "1"
    assert told["TORCHINDUCTOR_CACHE_DIR"].startswith(
        remote.host.folder
    )  # torch makes it when it is imported


def test_its_options_go_to_it(remote: Remote, tmp_path: Path) -> None:
    nothing_there = str(tmp_path / "a place")
    with closing(remote.start("pareto.remote.worker.monitor", "--sysfs", nothing_there)) as session:
        assert session.request("latest") is None
        assert python_of(session).cmdline()[1:] == [
            "-m",
            "pareto.remote.worker.monitor",
            "--sysfs",
            nothing_there,
        ]


@pytest.mark.parametrize(
    ("how", "says"), [(signal.SIGKILL, "9: .*memory"), (signal.SIGABRT, "6$")], ids=["KILL", "ABRT"]
)
def test_a_program_that_is_killed(
    remote: Remote, how: signal.Signals, says: str, snapshot: SnapshotAssertion
) -> None:
    """It is the kernel that kills with 9 where there is no memory left; it tells nobody but its log."""
    with closing(remote.start("pareto.remote.worker.probe")) as session:
        listens(session)
        python_of(session).send_signal(how)
        with pytest.raises(SessionLost, match=rf"^pi ended: .* {says}") as lost:
            session.report(session.send("connect", address="127.0.0.1", probe=1, token=""))
    assert str(lost.value) == snapshot


def test_a_program_that_fails_says_why(remote: Remote) -> None:
    lost = pytest.raises(SessionLost, match=r"^pi ended: .*pareto\.remote\.worker\.nothing$")
    with closing(remote.start("pareto.remote.worker.nothing")) as session, lost:
        session.request("listen")


def test_a_program_that_ends_by_itself_was_not_killed(remote: Remote) -> None:
    with closing(remote.start("pareto.remote.worker.probe")) as session:
        listens(session)
    log = Path(remote.host.folder, "pareto.remote.worker.probe.log")
    assert log.read_text() == ""


def test_a_host_that_comes_back_without_its_files(remote: Remote) -> None:
    remote.start("pareto.remote.worker.probe").close()
    (code,) = Path(remote.host.folder).glob("code-*")
    shutil.rmtree(code)
    with (
        closing(remote.start("pareto.remote.worker.probe")) as session,
        pytest.raises(SessionLost, match="code-"),
    ):
        session.request("listen")
    remote.renew()
    with closing(remote.start("pareto.remote.worker.probe")) as session:
        assert listens(session) > 0
    assert code.is_dir()


def test_a_file_goes_into_the_hosts_folder(remote: Remote) -> None:
    target = remote.ship(b"weights", "d1ge57.safetensors")
    assert target == f"{remote.host.folder}/d1ge57.safetensors"
    assert Path(target).read_bytes() == b"weights"

"""Which testbed is meant, its hosts: in use, gone for a while, done at the same time; and programs started there."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.hosts import testbed as testbed_module
from pareto.hosts.access import require_testbed
from pareto.hosts.connection import ThisMachine, Unreachable
from pareto.hosts.host import EDGE, SERVER, Host, TestbedError, chain, devices, gpus_in_words
from pareto.hosts.leases import HostLeases, hold_cores, in_words
from pareto.hosts.session import Session, SessionLost
from pareto.hosts.shapers import Shaper
from pareto.hosts.testbed import Remote, Testbed, on_each
from pareto.protocol.host_messages import Holder, Lease, TakeLease
from pareto.remote.link.probe import OpenProbe
from pareto.remote.worker import lease
from pareto.remote.worker.probe import ProbeClient
from tests.unit.far_end import HOSTS, Clock, FarEnd, StandIn, bed_of
from tests.unit.refusals import refusal


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


def test_hosts_are_waited_for_until_all_are_there(lost: Lost, clock: Clock) -> None:
    """One that does not answer, or is cut off from the data link; those that answer are not waited for."""
    bed, edge, server, shaper = lost
    bed.revive()
    assert (edge.tries, server.tries, shaper.at_s) == (1, 1, [0.0])
    server.back_s = 45.0
    bed.revive()
    assert edge.tries == 2
    assert server.tries == pytest.approx(1 + 46, abs=1)
    assert shaper.at_s[1:] == [pytest.approx(45.0)]
    edge.cut_off_s, tries = 65.0, edge.tries
    assert bed.lost() == "pi: no carrier on eth0"
    bed.revive()
    assert bed.lost() == ""
    assert edge.tries - tries == pytest.approx(21, abs=1)
    assert shaper.at_s[2:] == [pytest.approx(65.0)]


def test_a_host_that_stays_away_is_given_up_and_both_share_the_time(lost: Lost, clock: Clock) -> None:
    bed, edge, server, shaper = lost
    edge.back_s = float("inf")
    with pytest.raises(Unreachable, match=r"^pi: No route to host$"):
        bed.revive()
    assert clock.now_s == pytest.approx(testbed_module.RETURN_TIMEOUT_S, abs=2.0)
    assert shaper.at_s == []
    clock.now_s = 0.0
    edge.until(clock, 50.0)
    server.until(clock, float("inf"), try_s=4.0)
    with pytest.raises(Unreachable, match="gpu"):
        bed.revive()
    assert clock.now_s < 70.0


def test_a_data_link_lost_for_a_moment_is_noticed_until_the_bed_is_revived(lost: Lost, clock: Clock) -> None:
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


def test_a_testbed_file_is_needed_whole(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    path = tmp_path / "lab.yaml"
    said = [refusal(TestbedError, require_testbed, str(path))]
    path.write_text("hosts:\n  pi: {role: edge, ssh: pi@pi.local, data_address: 192.168.7.2}\n")
    said.append(refusal(TestbedError, require_testbed, str(path)))
    with path.open("a") as file:
        file.write("  gpu: {role: server, ssh: local, data_address: 192.168.7.1}\n")
    require_testbed(str(path))
    path.write_text(path.read_text().replace("ssh: local", "shh: local"))
    said.append(refusal(TestbedError, require_testbed, str(path)))
    for words, line in zip((str(path), f"{path}: .*server", f"{path}:3: .*'shh'"), said, strict=True):
        assert re.search(words, line)
    assert said == snapshot


WORD = "c0ffee"


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    host = Host("pi", "127.0.0.1", "lo", f"{tmp_path}/it's here", sys.executable, threads=3)
    return Remote(host, ThisMachine())


def python_of(session: Session) -> psutil.Process:
    """The program itself, under the shell that waits for its end."""
    wire: Any = session._program
    (process,) = psutil.Process(wire.process.pid).children()
    return process


def listens(session: Session) -> int:
    return session.ask(OpenProbe("127.0.0.1", WORD))


def test_a_program_answers_from_the_shipped_code(remote: Remote, tmp_path: Path) -> None:
    """And leaves no word, as none that was killed; a file goes into the host's folder."""
    folder = remote.host.folder
    with closing(remote.start("pareto.remote.worker.probe")) as session:
        ProbeClient("127.0.0.1", listens(session), WORD).close()
        process = python_of(session)
        assert Path(process.cwd()).parent == Path(folder)
        told = process.environ()
    assert not process.is_running()
    assert Path(folder, "pareto.remote.worker.probe.log").read_text() == ""
    names = ("OMP_NUM_THREADS", "TP_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "PYTHONDONTWRITEBYTECODE")
    assert [told[name] for name in names] == ["3", "lo", "lo", "1"]
    assert told["TORCHINDUCTOR_CACHE_DIR"].startswith(folder)  # torch makes it when it is imported
    target = remote.ship(b"weights", "d1ge57.safetensors")
    assert target == f"{folder}/d1ge57.safetensors"
    assert Path(target).read_bytes() == b"weights"
    # Its options go to it.
    given = ["pareto.remote.worker.monitor", "--sysfs", str(tmp_path / "a place")]
    with closing(remote.start(*given)) as session:
        assert session.request("latest") is None
        assert python_of(session).cmdline()[1:] == ["-m", *given]


def test_a_program_that_is_killed_or_fails(remote: Remote, snapshot: SnapshotAssertion) -> None:
    """It is the kernel that kills with 9 where there is no memory left; it tells nobody but its log."""
    for how, says in ((signal.SIGKILL, "9: .*memory"), (signal.SIGABRT, "6$")):
        with closing(remote.start("pareto.remote.worker.probe")) as session:
            listens(session)
            python_of(session).send_signal(how)
            with pytest.raises(SessionLost, match=rf"^pi ended: .* {says}") as lost:
                session.report(session.send("connect", address="127.0.0.1", probe=1, token=""))
        assert str(lost.value) == snapshot(name=how.name)
    says_why = pytest.raises(SessionLost, match=r"^pi ended: .*pareto\.remote\.worker\.nothing$")
    with closing(remote.start("pareto.remote.worker.nothing")) as session, says_why:
        session.request("listen")
    # A host that comes back without its files.
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


def test_where_each_host_computes(snapshot: SnapshotAssertion) -> None:
    texts = ("cpu", "cuda:1", "server=cuda:0", "server=cuda:0, middle1=cuda:1,edge=cpu")
    given = (("cpu",), ("server=cuda:1",), ("cuda:0",), ("cuda:0", "edge"))
    words = {each: gpus_in_words(each[0], chain(2), *each[1:]) for each in given}
    assert [{text: devices(text, chain(3)) for text in texts}, words] == snapshot


def test_all_drivers_take_hosts_in_one_order_so_that_no_two_wait_for_each_other() -> None:
    taken: list[str] = []

    def remote(name: str) -> Any:
        def ask(request: object, timeout_s: float = 0.0) -> Lease:
            taken.extend([name] * isinstance(request, TakeLease))
            return Lease(name, [])

        session = SimpleNamespace(ask=ask)
        return SimpleNamespace(host=SimpleNamespace(name=name), start=lambda module: session)

    for hosts in ({"edge": "pi", "server": "desk"}, {"edge": "desk", "server": "pi"}):
        HostLeases({role: remote(name) for role, name in hosts.items()}, 0.0, print).take()
    assert taken == ["desk", "pi"] * 2
    # Words of others are shown and do nothing to a terminal.
    assert "\x1b" not in in_words([Holder("eve\x1b[2J", "\x1b]0;x\x07", "run\nof eve", 1.0)])


@pytest.mark.parametrize("put", [os.mkdir, os.mkfifo, lambda file: file.symlink_to("/etc/hostname")])
def test_what_lies_in_place_of_a_core_s_queue_is_said_once_and_stops_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, put: Callable[[Path], None]
) -> None:
    monkeypatch.setattr(lease, "FOLDERS", (tmp_path,))
    for core in (5, 6):
        put(tmp_path / f"{lease.HOST}-core-{core}")
    said: list[str] = []
    hold_cores([5, 6, 7], 0.0, said.append)()
    (line,) = said
    assert line.startswith("attention: whether others measure on cores 5, 6 ")
    assert str(tmp_path / f"{lease.HOST}-core-5") in line


def test_each_begins_before_any_has_ended_and_results_keep_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    met = threading.Barrier(3, timeout=20)
    calls = {name: lambda name=name: (met.wait(), name.upper())[1] for name in "cab"}
    assert list(on_each(calls).items()) == [("c", "C"), ("a", "A"), ("b", "B")]
    assert on_each({}) == {}
    # The first one's error is raised when all have ended.
    second_failed, ended = threading.Event(), []

    def first() -> None:
        assert second_failed.wait(20)
        raise ValueError("first")

    def second() -> None:
        second_failed.set()
        raise KeyError("second")

    with pytest.raises(ValueError, match="first"):
        on_each({"a": first, "b": second, "c": lambda: ended.append("c")})
    assert ended == ["c"]

    # Those that take too long are left. The time is up when one of the two has ended.
    def waits(futures: Collection[Future[object]], within_s: float) -> None:
        assert within_s == 60.0
        wait(futures, return_when=FIRST_COMPLETED)

    monkeypatch.setattr(testbed_module, "wait", waits)
    forever = threading.Event()
    assert on_each({"slow": forever.wait, "quick": lambda: True}, 60.0) == {"quick": True}
    forever.set()

"""Programs on a host: started in the code that was shipped, and what is heard of their end."""

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

from pareto.hosts.connection import ThisMachine
from pareto.hosts.host import Host
from pareto.hosts.remote import Remote
from pareto.hosts.session import Session, SessionLost
from pareto.link.probe import OpenProbe
from pareto.worker.probe import ProbeClient

WORD = "c0ffee"


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[Remote]:
    host = Host("pi", "127.0.0.1", "lo", f"{tmp_path}/it's here", sys.executable, threads=3)
    with closing(Remote(host, ThisMachine())) as remote:
        yield remote


def python_of(session: Session) -> psutil.Process:
    """The program itself, under the shell that waits for its end."""
    wire: Any = session._wire
    (process,) = psutil.Process(wire.process.pid).children()
    return process


def listens(session: Session) -> int:
    return session.ask(OpenProbe("127.0.0.1", WORD))


def test_a_program_answers_from_the_shipped_code(remote: Remote) -> None:
    with closing(remote.start("pareto.worker.probe")) as session:
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
    with closing(remote.start("pareto.worker.monitor", "--sysfs", nothing_there)) as session:
        assert session.request("latest") is None
        assert python_of(session).cmdline()[1:] == ["-m", "pareto.worker.monitor", "--sysfs", nothing_there]


@pytest.mark.parametrize(
    ("how", "says"), [(signal.SIGKILL, "9: .*memory"), (signal.SIGABRT, "6$")], ids=["KILL", "ABRT"]
)
def test_a_program_that_is_killed(
    remote: Remote, how: signal.Signals, says: str, snapshot: SnapshotAssertion
) -> None:
    """It is the kernel that kills with 9 where there is no memory left; it tells nobody but its log."""
    with closing(remote.start("pareto.worker.probe")) as session:
        listens(session)
        python_of(session).send_signal(how)
        with pytest.raises(SessionLost, match=rf"^pi ended: .* {says}") as lost:
            session.wait(session.send("connect", address="127.0.0.1", probe=1, token=""))
    assert str(lost.value) == snapshot


def test_a_program_that_fails_says_why(remote: Remote) -> None:
    lost = pytest.raises(SessionLost, match=r"^pi ended: .*pareto\.worker\.nothing$")
    with closing(remote.start("pareto.worker.nothing")) as session, lost:
        session.request("listen")


def test_a_program_that_ends_by_itself_was_not_killed(remote: Remote) -> None:
    with closing(remote.start("pareto.worker.probe")) as session:
        listens(session)
    log = Path(remote.host.folder, "pareto.worker.probe.log")
    assert log.read_text() == ""


def test_a_host_that_comes_back_without_its_files(remote: Remote) -> None:
    remote.start("pareto.worker.probe").close()
    (code,) = Path(remote.host.folder).glob("code-*")
    shutil.rmtree(code)
    with closing(remote.start("pareto.worker.probe")) as session, pytest.raises(SessionLost, match="code-"):
        session.request("listen")
    remote.renew()
    with closing(remote.start("pareto.worker.probe")) as session:
        assert listens(session) > 0
    assert code.is_dir()


def test_a_file_goes_into_the_hosts_folder(remote: Remote) -> None:
    target = remote.ship(b"weights", "d1ge57.safetensors")
    assert target == f"{remote.host.folder}/d1ge57.safetensors"
    assert Path(target).read_bytes() == b"weights"

"""What happens to the local testbed and to the programs on its hosts: real namespaces, sshd, relay and workers."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
import pytest

from pareto.hosts.host import SERVER
from pareto.hosts.local import journal
from pareto.hosts.local.testbed import open_local
from pareto.hosts.session import Session
from pareto.trial.workers import Workers
from tests.faults.harness import Harness, Struck, once, tiny_model
from tests.faults.table import AGAIN, TESTBED, WORKERS, Fault
from tests.integration.own_machine import left_behind
from tests.less_than_root import needs_networks
from tests.program import descendants, ended, python_programs, wait_until

pytestmark = [pytest.mark.integration, needs_networks]
FAULTS = (*TESTBED, *WORKERS)
CROSSED_PACKETS = 12
"""After so many a request is in flight."""
ON_START = ("load", "connect", "shape", "warm")
"""Asked of fresh workers only."""
MADE = {"namespace": 3, "interface": 2}
"""What is there of one testbed, and nothing of another."""

_send = Session.send


class Bench:
    """The harness on a local testbed; faults strike once their request was sent."""

    def __init__(self, out: Path) -> None:
        self.others = descendants(os.getpid())  # what earlier tests of this process leave running
        prepared = tiny_model()
        self.bed = open_local(shaper="relay")
        self.workers = Workers(self.bed, {prepared.name: prepared}, ("tcp", "rpc"), 0.2)
        self.harness = Harness(out, prepared, self.workers)
        self.sending: Callable[[str], Callable[[], None]] = lambda op: lambda: None
        """Called with a request that is about to be sent; what it returns, once that was sent."""

    def close(self) -> None:
        self.workers.close()
        self.bed.close()

    def send(self, session: Session, op: str, *report: Any, **request: Any) -> Any:
        sent = self.sending(op)
        number = _send(session, op, *report, **request)
        sent()
        return number


@pytest.fixture(scope="module")
def bench(machine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with closing(Bench(tmp_path_factory.mktemp("results"))) as bench:
        with patch.object(
            Session, "send", lambda session, *of, **request: bench.send(session, *of, **request)
        ):
            yield bench
        bench.harness.resume()


def test_fault(bench: Bench, fault: Fault, note: Callable[[Fault, str, float | None], None]) -> None:
    if fault.when in ON_START:
        bench.harness.runner._restart()
    family = [process for process in descendants(os.getpid()) if process not in bench.others]
    repairs: list[Callable[[], None]] = []

    def arm(struck: Struck) -> None:
        strike = once(lambda: act_of(fault, repairs)(), struck)

        def sending(op: str) -> Callable[[], None]:
            if op != fault.when or struck.at_s is not None:
                return lambda: None
            # To look for a process takes longer than a trial, where there are many or a core is hard to get.
            crossed = Crossed() if op == "trial" else None

            def sent() -> None:
                if crossed is not None:
                    crossed.wait(CROSSED_PACKETS)
                strike()

            return sent

        bench.sending = sending

    row, struck = bench.harness.suffer(fault, arm, repairs)
    if fault.then == AGAIN:
        assert ended(family), family
    kinds = [thing.partition(" ")[0] for thing in left_behind()]
    assert {kind: kinds.count(kind) for kind in MADE} == MADE
    note(fault, row["reason"], struck.noticed_s)


def act_of(fault: Fault, repairs: list[Callable[[], None]]) -> Callable[[], None]:
    """What does the fault; `repairs` gets what ends one that lasts."""
    acts: dict[tuple[str, str], Callable[[], None]] = {
        ("removed", "the namespace of edge"): lambda: ip("netns del pareto0-edge"),
        ("removed", "the namespace of the link"): lambda: ip("netns del pareto0-link0"),
        ("removed", "the management interface"): lambda: ip("link del pareto0m0"),
        ("down", "the data interface"): lambda: ip("-n pareto0-edge link set data0 down"),
        ("removed", "the data interface"): lambda: ip("-n pareto0-edge link del data0"),
        ("removed", "the journal's folder"): lambda: shutil.rmtree(journal.ROOT / "0"),
        ("nothing for 10 s", "the link"): lambda: threading.Timer(10.0, black_hole()).start(),
        ("nothing for good", "the link"): lambda: repairs.append(black_hole()),
        ("out of memory", "the worker of server"): lambda: repairs.append(starve(server_worker())),
    }
    if (act := acts.get((fault.what, fault.whom))) is not None:
        return act
    number = signal.Signals[fault.what]
    return lambda: victim(fault.whom).send_signal(number)


def victim(whom: str) -> psutil.Process:
    kind, _, host = whom.removeprefix("the ").partition(" of ")
    if kind == "sshd":
        return next(it for it in descendants(os.getpid(), "[listener]") if lives_in(it, host))
    parts = {"builder": "-m pareto.hosts.local", "relay": "-m pareto.remote.link.relay"}
    if kind in parts:
        return descendants(os.getpid(), parts[kind])[0]
    return program({"worker": "pareto.remote.worker", "monitor": "pareto.remote.worker.monitor"}[kind], host)


def program(module: str, host: str) -> psutil.Process:
    return next(it for it in python_programs(os.getpid(), module) if lives_in(it, host))


def server_worker() -> psutil.Process:
    return program("pareto.remote.worker", SERVER)


def lives_in(process: psutil.Process, host: str) -> bool:
    with suppress(OSError):
        number = Path(f"/proc/{process.pid}/ns/net").stat().st_ino
        return number == Path(f"/run/netns/pareto0-{host}").stat().st_ino
    return False


class Crossed:
    """The packets that come to the server's data interface from now on."""

    def __init__(self) -> None:
        self._counters = Path(f"/proc/{server_worker().pid}/net/dev")
        self._begun = self._received()

    def wait(self, packets: int) -> None:
        """Until so many have come."""
        assert wait_until(lambda: self._received() >= self._begun + packets)

    def _received(self) -> int:
        lines = self._counters.read_text().splitlines()
        (line,) = (line for line in lines if line.strip().startswith("data0:"))
        return int(line.split()[2])


def ip(arguments: str) -> None:
    subprocess.run(["ip", *arguments.split()], check=True)


def black_hole() -> Callable[[], None]:
    """What the edge sends gets nowhere from now on, and the interface looks as always; returns what ends that."""
    show = ["ip", "-n", "pareto0-edge", "neigh", "show", "dev", "data0"]
    there = subprocess.run(show, check=True, capture_output=True, text=True).stdout.split()
    address, mac = there[0], there[there.index("lladdr") + 1]
    change = f"-n pareto0-edge neigh replace {address} nud permanent dev data0 lladdr"
    ip(f"{change} 02:00:00:00:00:01")
    return lambda: ip(f"{change} {mac}")


def starve(process: psutil.Process) -> Callable[[], None]:
    """The kernel gives it no more memory, and kills it once it needs a page; returns what takes its group away."""
    old = Path("/sys/fs/cgroup/memory")
    root, limit = (old, "memory.limit_in_bytes") if old.is_dir() else (old.parent, "memory.max")
    group = root / f"pareto-test-{os.getpid()}"
    group.mkdir()
    (group / limit).write_text("4096")
    (group / "cgroup.procs").write_text(str(process.pid))
    return group.rmdir

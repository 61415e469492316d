"""Whole sweeps on several simulated testbeds at once: real dask, real processes, which are forked."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

pytest.importorskip("distributed")

from pareto.__main__ import main
from pareto.driver.fleet import cluster, driver
from tests import rows_of
from tests.certificates import certificates
from tests.program import command, measured, refused, wait_until
from tests.unit.forked import forked
from tests.unit.own_command import Command
from tests.unit.simulated.worlds import MODEL

SWEEP = (*("--model", MODEL, "--points", "3,5", "--only", "--figures", "none"), "--backend", "tcp")
Rows = list[dict[str, str]]
MEASURED = ("netem", "point", "round", "status", "latency_s", "throughput_ips", "edge_s", "latency_bound_s")
START_S = 120.0


class Member:
    """What a driver starts for a testbed: of `subprocess.Popen`, what is asked of it."""

    def __init__(self, words: list[str], *, env: dict[str, str], **_: object) -> None:
        self._process, self._said = forked(join, env, *words[3:])
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        self._process.join(timeout)
        assert self.poll() is not None
        self._said.close()
        return "", ""

    def kill(self) -> None:
        self._process.kill()


def join(environment: dict[str, str], *words: str) -> None:
    """As `pareto words...` with that environment, which dask has read when it was imported."""
    import dask

    os.environ |= environment
    dask.config.refresh()
    sys.argv = ["pareto", *words]
    main()


@pytest.fixture(autouse=True)
def forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver's members are forked from a process that has imported torch."""
    monkeypatch.setattr(cluster, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": Member}))


def world(folder: Path, text: str = "") -> str:
    """A file of a simulated testbed of slow hosts."""
    path = folder / "w.yaml"
    path.write_text(f"hosts: {{edge: {{gflops: 0.02}}, server: {{gflops: 0.2}}}}\nrequests: 20\n{text}")
    return f"simulated:{path}"


def read(run: Path, table: str = "trials") -> Rows:
    return rows_of(run / f"{table}.csv")


def assert_each_once(rows: Rows, rounds: int) -> None:
    expected = {(point, str(number)): 1 for point in "35" for number in range(1, rounds + 1)}
    assert Counter((row["point"], row["round"]) for row in rows) == expected


def figures(rows: Rows) -> list[tuple[str, ...]]:
    """What was measured, wherever and after whatever."""
    return sorted(tuple(row[name] for name in MEASURED) for row in rows)


def test_a_fleet_measures_what_one_testbed_measures_and_each_trial_once(tmp_path: Path) -> None:
    testbed, options = world(tmp_path), (*SWEEP, "--netem", "10ms-50mbit,wifi", "--trials", "3")
    alone = measured(*options, "--testbed", testbed, "--out", str(tmp_path / "alone"))
    fleet = measured(*options, "--testbed", f"{testbed}*2", "--out", str(tmp_path / "fleet"))
    assert (alone.code, fleet.code) == (0, 0), fleet
    ((one,), (run,)) = ((tmp_path / name).iterdir() for name in ("alone", "fleet"))
    rows = read(run)
    assert len(rows) == 2 * 2 * 3
    assert figures(rows) == figures(read(one))
    requests = ({path.name for path in (each / "requests").iterdir()} for each in (run, one))
    assert next(requests) == next(requests)
    assert len(read(run, "stages")) == len(read(one, "stages"))
    of_all = (*rows, *read(run, "stages"), *read(run, "link"))
    assert {row["testbed"] for row in of_all} <= {"simulated", "simulated-2"}
    tasks = Counter((row["round"], row["netem"], row["testbed"]) for row in rows)
    assert set(tasks.values()) == {2}, tasks
    sessions = json.loads((run / "manifest.json").read_text())["sessions"]
    assert {row["testbed"] for row in rows} == {session["testbed_name"] for session in sessions}
    assert len({row["restart"] for row in rows}) == len(sessions)


@pytest.fixture
def in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second testbed has tasks only when the first is out."""
    here = driver.Driver._here

    def one_of_them(self: driver.Driver) -> list[driver.FleetTestbed]:
        return [each for each in here(self) if each.name == "simulated" or self._testbeds["simulated"].out]

    monkeypatch.setattr(driver.Driver, "_here", one_of_them)


LOST = "faults: {lost: server, after: 3}"
"""In the middle of a task."""
TURNS = (*SWEEP, "--netem", "wifi", "--trials", "8")


@pytest.mark.usefixtures("in_turn")
def test_a_testbed_that_fails_is_taken_out_and_the_others_do_its_trials(tmp_path: Path) -> None:
    good, bad = world(tmp_path), tmp_path / "bad.yaml"
    bad.write_text(LOST)
    done = measured(*TURNS, "--testbed", f"simulated:{bad},{good}", "--out", str(tmp_path / "out"))
    assert done.code == 0, done
    (line,) = (line for line in done.out.splitlines() if "taken out" in line)
    assert "simulated is" in line
    assert "server" in line
    rows = read(next((tmp_path / "out").iterdir()))
    assert_each_once(rows, 8)
    assert {row["status"] for row in rows} == {"ok"}


@pytest.mark.usefixtures("in_turn")
def test_where_no_testbed_is_left_the_run_ends_and_goes_on_later(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = measured(*TURNS, "--out", str(out), "--testbed", f"{world(tmp_path, LOST)}*2")
    assert (done.code, "no testbed is left" in done.out, "go on with" in done.out) == (1, True, True)
    lines = [line for line in done.out.splitlines() if "taken out" in line]
    assert [("simulated-2 is" in line, "server" in line) for line in lines] == [(False, True), (True, True)]
    (run,) = out.iterdir()
    kept = [row for row in read(run) if row["status"] == "ok"]
    assert_each_once(kept, 3)
    where = Counter((row["round"], row["testbed"].removeprefix("simulated")) for row in kept)
    assert where == {("1", ""): 2, ("2", ""): 1, ("2", "-2"): 1, ("3", "-2"): 2}
    again = command("--resume", str(run), *SWEEP[:2], "--testbed", f"{world(tmp_path)}*2")
    assert again.code == 2  # another world
    assert [row for row in read(run) if row["status"] == "ok"] == kept


class Cluster:
    """A scheduler as a user starts it, and the commands at it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count()
        self.files = certificates(folder / "lab")
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.address = f"tls://127.0.0.1:{server.getsockname()[1]}"
        http = ("--no-dashboard", "--dashboard-address", "127.0.0.1:0")
        self.scheduler = subprocess.Popen(
            [sys.executable, "-m", "dask", "scheduler", "--host", self.address, *self.files, *http],
            stderr=subprocess.DEVNULL,
            cwd=folder,  # where there is none of this program
        )

    def start(self, *words: str) -> Command:
        log = self._folder / f"log-{next(self._numbers)}"
        return Command(*words, *self.files, log=log, environment={"COLUMNS": "1000"})

    def joining(self, testbed: str) -> Command:
        words = ("--scheduler", self.address, "--testbed", testbed, "--name", "lab")
        return self.start("fleet", "join", *words)

    def join(self, testbed: str) -> Command:
        """A member, when it has joined."""
        member = self.joining(testbed)
        hears(member, "joined")
        return member

    def end(self) -> None:
        self.scheduler.kill()
        self.scheduler.wait()


def hears(program: Command, words: str) -> None:
    assert wait_until(lambda: words in program.said or not program.lives, START_S)
    assert words in program.said, program.said


def test_one_joins_by_hand_and_is_killed_and_a_driver_that_is_killed_leaves_it_free(tmp_path: Path) -> None:
    testbed, out = world(tmp_path, "real_time: 20%"), tmp_path / "out"

    def rows() -> Rows:
        return [row for run in out.glob("*/trials.csv") for row in read(run.parent)]

    at = Cluster(tmp_path)
    killed = at.join(testbed)
    listening = psutil.Process(killed.pid).net_connections("inet")
    assert {each.laddr.ip for each in listening if each.status == psutil.CONN_LISTEN} == {"127.0.0.1"}
    taken = at.joining(testbed).ended()
    assert taken.code == 2
    assert "--name" in taken.err
    sweep = (*SWEEP, "--netem", "wifi", "--trials", "6", "--out", str(out))
    driver = at.start(*sweep, "--cluster", at.address, "--testbed", "simulated")
    hears(killed, "measuring for")
    assert wait_until(rows, START_S)
    killed.send(signal.SIGKILL)
    hears(driver, "lost")
    member = at.join(testbed)
    before = len(rows())
    hears(member, "measuring for")
    assert wait_until(lambda: len(rows()) > before, START_S)
    driver.send(signal.SIGKILL)
    driver.ended()
    (run,) = out.iterdir()
    again = measured("--resume", str(run), *SWEEP[:2], "--cluster", at.address, *at.files)
    assert again.code == 0, again
    hears(member, "put back")
    assert_each_once(rows(), 6)
    assert {row["testbed"] for row in rows()} == {"lab"}
    at.end()
    ended = member.ended()
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert at.address in ended.err


def test_where_the_scheduler_is_gone_the_run_ends_and_can_go_on(tmp_path: Path) -> None:
    at = Cluster(tmp_path)
    member = at.join(world(tmp_path, "real_time: 20%"))
    sweep = (*SWEEP, "--netem", "wifi", "--trials", "50", "--out", str(tmp_path / "out"))
    driver = at.start(*sweep, "--cluster", at.address, "--testbed", "simulated")
    hears(driver, "/100 trials")
    at.end()
    ended = driver.ended()
    assert ended.code == 1
    assert f"the scheduler at {at.address} is gone" in ended.out
    assert "go on with" in ended.out
    assert member.ended().code == 2


def test_without_dask_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert cluster.REQUIREMENTS in refused(*SWEEP, "--testbed", "simulated*2", "--out", str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_where_no_testbed_can_be_had_the_input_is_at_fault(tmp_path: Path) -> None:
    """One file with two testbeds, whose hosts refuse connections."""
    host = "ssh: 127.0.0.1, port: 1, data_address: 192.0.2"
    hosts = f"{{hosts: {{pi: {{role: edge, {host}.1}}, gpu: {{role: server, {host}.2}}}}}}"
    (tmp_path / "labs.yaml").write_text(f"testbeds: {{one: {hosts}, two: {hosts}}}")
    out = tmp_path / "out"
    line = refused(*SWEEP, "--netem", "none", "--testbed", str(tmp_path / "labs.yaml"), "--out", str(out))
    assert all(f"{name}: pi" in line for name in ("one", "two"))
    assert not out.exists()

"""Whole sweeps on several simulated testbeds at once: real dask, real processes."""

from __future__ import annotations

import csv
import json
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

import pytest

pytest.importorskip("distributed")

from pareto.fleet import cluster
from tests.program import command, end_started, pareto, wait_until
from tests.unit.simulated.worlds import MODEL

SWEEP = (*("--model", MODEL, "--points", "3,5", "--only", "--figures", "none"), "--backend", "tcp")
Rows = list[dict[str, str]]
MEASURED = ("netem", "point", "round", "status", "latency_s", "throughput_ips", "edge_s", "latency_bound_s")
START_S = 120.0


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    """A test that fails leaves no program running."""
    yield
    end_started()


def world(folder: Path, text: str = "") -> str:
    """A file of a simulated testbed of slow hosts."""
    path = folder / "w.yaml"
    path.write_text(f"hosts: {{edge: {{gflops: 0.02}}, server: {{gflops: 0.2}}}}\nrequests: 20\n{text}")
    return f"simulated:{path}"


def read(run: Path, table: str = "trials") -> Rows:
    with (run / f"{table}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def figures(rows: Rows) -> list[tuple[str, ...]]:
    """What was measured, wherever and after whatever."""
    return sorted(tuple(row[name] for name in MEASURED) for row in rows)


def test_a_fleet_measures_what_one_testbed_measures_and_each_trial_once(tmp_path: Path) -> None:
    testbed, options = world(tmp_path), (*SWEEP, "--netem", "10ms-50mbit,wifi", "--trials", "3")
    alone = command(*options, "--testbed", testbed, "--out", str(tmp_path / "alone"))
    fleet = command(*options, "--testbed", f"{testbed}*2", "--out", str(tmp_path / "fleet"))
    assert (alone.code, fleet.code) == (0, 0), fleet
    ((one,), (run,)) = ((tmp_path / name).iterdir() for name in ("alone", "fleet"))
    rows = read(run)
    assert len(rows) == 2 * 2 * 3
    assert figures(rows) == figures(read(one))
    assert sorted(path.name for path in (run / "requests").iterdir()) == sorted(
        path.name for path in (one / "requests").iterdir()
    )
    assert len(read(run, "stages")) == len(read(one, "stages"))
    assert {row["testbed"] for row in (*rows, *read(run, "stages"), *read(run, "link"))} <= {
        *("simulated", "simulated-2")
    }
    tasks = Counter((row["round"], row["netem"], row["testbed"]) for row in rows)
    assert set(tasks.values()) == {2}, tasks
    sessions = json.loads((run / "manifest.json").read_text())["sessions"]
    assert {row["testbed"] for row in rows} == {session["testbed_name"] for session in sessions}
    assert len({row["restart"] for row in rows}) == len(sessions)


def test_a_testbed_that_fails_is_taken_out_and_the_others_do_its_trials(tmp_path: Path) -> None:
    good, bad = world(tmp_path, "real_time: 10%"), tmp_path / "bad.yaml"
    bad.write_text("faults: {lost: server, after: 3}")  # in the middle of a task
    done = command(
        *(*SWEEP, "--netem", "wifi", "--trials", "20", "--out", str(tmp_path / "out")),
        *("--testbed", f"{good},simulated:{bad}"),
    )
    assert done.code == 0, done
    (line,) = (line for line in done.out.splitlines() if "taken out" in line)
    assert "simulated-2" in line
    assert "server" in line
    rows = read(next((tmp_path / "out").iterdir()))
    assert Counter((row["point"], row["round"]) for row in rows) == {
        (point, str(number)): 1 for point in "35" for number in range(1, 21)
    }
    assert {row["status"] for row in rows} == {"ok"}


def test_where_no_testbed_is_left_the_run_ends_and_goes_on_later(tmp_path: Path) -> None:
    testbed = world(tmp_path, "faults: {lost: server, after: 3}")
    out = tmp_path / "out"
    first = command(
        *(*SWEEP, "--netem", "wifi", "--trials", "8", "--out", str(out), "--testbed", f"{testbed}*2")
    )
    assert first.code == 1
    assert "no testbed is left" in first.out
    assert "go on with" in first.out
    (run,) = out.iterdir()
    kept = [row for row in read(run) if row["status"] == "ok"]
    assert kept
    again = command("--resume", str(run), *SWEEP[:2], "--testbed", f"{world(tmp_path, '')}*2")
    assert again.code == 2  # another world
    assert [row for row in read(run) if row["status"] == "ok"] == kept


@contextmanager
def silent(address: str) -> Iterator[str]:
    """Another address of a server, which never hears that who came this way is gone, as when a machine loses power."""
    with ExitStack() as undo:
        host, port = address.removeprefix("tls://").split(":")

        def carry(source: socket.socket, sink: socket.socket) -> None:
            with suppress(OSError):
                while data := source.recv(1 << 16):
                    sink.sendall(data)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    near = undo.enter_context(listener.accept()[0])
                    far = undo.enter_context(socket.create_connection((host, int(port))))
                    for ends in ((near, far), (far, near)):
                        threading.Thread(target=carry, args=ends, daemon=True).start()

        listener = undo.enter_context(socket.create_server(("127.0.0.1", 0)))
        threading.Thread(target=accept, daemon=True).start()
        yield f"tls://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def test_one_joins_by_hand_and_is_killed_and_a_driver_that_is_killed_leaves_it_free(tmp_path: Path) -> None:
    folder, testbed = tmp_path / "certificates", world(tmp_path, "real_time: 20%")
    assert command("fleet", "certificates", str(folder)).code == 0
    certified = ("--certificates", str(folder))
    scheduler = pareto("fleet", "scheduler", "--listen", "tls://127.0.0.1:0", *certified)
    assert scheduler.stdout is not None
    address = scheduler.stdout.readline().split()[2].rstrip(";")
    out = tmp_path / "out"

    def join(there: str) -> tuple[subprocess.Popen[str], IO[str], str]:
        """A member, what it says next, and the name under which it joined."""
        member = pareto("fleet", "join", "--scheduler", there, *certified, "--testbed", testbed)
        assert member.stdout is not None
        line = member.stdout.readline()
        assert "joined" in line, member.communicate()
        return member, member.stdout, line.split()[-1]

    def rows() -> Rows:
        return [row for run in out.glob("*/trials.csv") for row in read(run.parent)]

    with silent(address) as there:
        killed, said, name = join(there)
        sweep = (*SWEEP, "--netem", "wifi", "--trials", "6", "--out", str(out))
        at = ("--cluster", address, *certified)
        driver = pareto(*sweep, *at, "--testbed", "simulated")
        assert "measuring for" in said.readline(), driver.communicate()
        assert wait_until(rows, START_S)
        killed.kill()
        killed.communicate()
        member, said, same = join(address)
        assert same == name
    before = len(rows())
    assert "measuring for" in said.readline(), driver.communicate()
    assert wait_until(lambda: len(rows()) > before, START_S)
    driver.kill()
    seen = "".join(driver.communicate())
    assert f"simulated: joined as {name}" in seen
    assert "there again" in seen
    (run,) = out.iterdir()
    again = command("--resume", str(run), *SWEEP[:2], *at)
    assert again.code == 0, again
    assert "put back" in said.readline()
    assert Counter((row["point"], row["round"]) for row in rows()) == {
        (point, str(number)): 1 for point in "35" for number in range(1, 7)
    }
    assert {row["testbed"] for row in rows()} == {"simulated"}
    for process in (member, scheduler):
        process.terminate()
        assert "Traceback" not in "".join(process.communicate(timeout=30))


def test_without_dask_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = command(*SWEEP, "--testbed", "simulated*2", "--out", str(tmp_path))
    assert done.code == 2
    assert cluster.REQUIREMENTS in done.err
    assert not list(tmp_path.iterdir())


def test_where_no_testbed_can_be_had_the_input_is_at_fault(tmp_path: Path) -> None:
    """One file with two testbeds, whose hosts refuse connections."""
    host = "ssh: 127.0.0.1, port: 1, data_address: 192.0.2"
    hosts = f"{{hosts: {{pi: {{role: edge, {host}.1}}, gpu: {{role: server, {host}.2}}}}}}"
    (tmp_path / "labs.yaml").write_text(f"testbeds: {{one: {hosts}, two: {hosts}}}")
    out = tmp_path / "out"
    done = command(*SWEEP, "--netem", "none", "--testbed", str(tmp_path / "labs.yaml"), "--out", str(out))
    assert done.code == 2, done
    (line,) = done.err.splitlines()
    assert all(f"{name}: pi" in line for name in ("one", "two"))
    assert not out.exists()

"""The link as its user meets it: checked, swept over while it changes, mended after a kill."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from pareto import checking
from pareto.link import qdisc
from pareto.link.library import load
from pareto.link.probe import Tolerance
from tests import REPOSITORY
from tests.integration.conftest import left_behind, processes, wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces: needs root"),
    pytest.mark.usefixtures("nothing_left"),
]


def pareto(*arguments: str, timeout_s: float = 200.0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pareto", *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def test_a_link_is_checked_thing_by_thing(tmp_path: Path) -> None:
    done = pareto(
        "netem", "check", "20ms-20mbit", "20ms-20mbit-5%", "--duration", "2s", "--out", str(tmp_path)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    plain, lossy = done.stdout.split("20ms-20mbit-5% on ")
    for line in ("RTT", "rate out", "30 kB, answered"):
        assert f"\n{line}" in plain
    assert "lost out" not in plain
    assert "\nlost out" in lossy
    assert "off" not in [line.split()[-1] for line in done.stdout.splitlines() if line.strip()]
    assert max(len(line) for line in done.stdout.splitlines() if str(tmp_path) not in line) <= 80
    for name in ("20ms-20mbit", "20ms-20mbit-5%"):
        assert (tmp_path / f"netem-check-{name}.png").stat().st_size > 5000


def test_each_link_of_a_chain_is_checked(tmp_path: Path) -> None:
    said = io.StringIO()
    network = [load("20ms-20mbit"), load("5ms-50mbit")]
    assert checking.check(
        Console(file=said, width=80), [network], 1.0, Tolerance(), tmp_path, "local", "both"
    ), said.getvalue()
    tables = said.getvalue().split("edge-middle1: 20ms-20mbit on local: three namespaces")[1]
    first, second = tables.split("middle1-server: 5ms-50mbit on local: three namespaces")
    for table, asked_ms in ((first, "20"), (second, "5")):
        (line,) = (line for line in table.splitlines() if line.startswith("RTT"))
        assert line.split()[2] == asked_ms
    for name in ("20ms-20mbit-edge-middle1", "5ms-50mbit-middle1-server"):
        assert (tmp_path / f"netem-check-{name}.png").stat().st_size > 5000


def test_a_link_that_is_off_says_by_how_much_and_fails(tmp_path: Path) -> None:
    strict = ("--tolerance", "0.001%", "--rtt-floor", "1us", "--duration", "1s")
    done = pareto("netem", "check", "20ms-20mbit", *strict, "--out", str(tmp_path))
    assert done.returncode == 1
    assert "off: RTT 20." in done.stdout


def test_a_link_that_changes_is_swept_part_by_part(tmp_path: Path) -> None:
    job = (
        "--model",
        "alexnet",
        "--netem",
        "netem_profiles/handover.yaml",
        "--points",
        "13",
        "--quick",
        "--trials",
        "2",
    )
    done = pareto(*job, "--out", str(tmp_path))
    (run,) = tmp_path.iterdir()
    with (run / "trials.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4
    assert len(list((run / "requests").iterdir())) == 4
    # Short phases: a machine that stands still for a moment may spoil one.
    assert [row["status"] for row in rows].count("ok") >= 3, done.stdout + done.stderr
    for row in rows:
        assert row["netem"] == "handover"
        began, ended = float(row["trace_from_s"]), float(row["trace_to_s"])
        assert began == pytest.approx(15.0 * (int(row["round"]) - 1), abs=0.2)
        assert began < ended < began + 15
        assert float(row["latency_s"]) >= float(row["latency_bound_s"])
    # The trace falls from 20 to 2 Mbit/s and stops for 0.3 s in the second half.
    by_round = {number: max(float(r["latency_s"]) for r in rows if r["round"] == number) for number in "12"}
    assert by_round["2"] > by_round["1"]
    manifest = json.loads((run / "manifest.json").read_text())
    trace = manifest["profiles"]["handover"]["edge_to_server"]["trace"]
    assert (trace["period_s"], trace["steps"]) == (30.0, 11)
    if manifest["sessions"][0]["testbed"]["shaper"] == "relay":
        assert 0 < manifest["sessions"][0]["shaping"]["edge-server"]["relay"]["cpu_share"] < 1


def test_doctor_finds_and_removes_what_a_killed_testbed_left() -> None:
    assert "left behind: nothing" in pareto("doctor").stdout
    check = subprocess.Popen(
        [sys.executable, "-m", "pareto", "netem", "check", "none", "--duration", "60s"],
        cwd=REPOSITORY,
        stdout=subprocess.DEVNULL,
    )

    def keepers() -> list[int]:
        return [pid for pid, command in processes() if command.endswith("pareto.hosts.local ")]

    assert wait_until(lambda: any("pareto.worker" in command for _, command in processes()), 60)
    for pid in [*keepers(), check.pid]:
        os.kill(pid, signal.SIGKILL)
    check.wait()
    assert wait_until(lambda: not list(processes()))
    assert any(thing.startswith("namespace") for thing in left_behind())
    found = pareto("doctor")
    assert found.returncode == 0
    assert "left behind: testbed" in found.stdout
    assert "./pareto.sh doctor --repair" in found.stdout
    assert "removed" in pareto("doctor", "--repair").stdout
    assert left_behind() == set()


def test_a_testbed_that_cannot_be_had_leaves_no_run(tmp_path: Path) -> None:
    if qdisc.supported():
        pytest.skip("this kernel has sch_netem, so the edge can shape both directions")
    job = ("--model", "alexnet", "--points", "15", "--netem", "wifi", "--shape-at", "edge")
    done = pareto(*job, "--out", str(tmp_path))
    assert done.returncode == 2
    assert (
        done.stderr.strip()
        == "error: --shape-at edge needs sch_netem, and this kernel has none: leave it out"
    )
    assert list(tmp_path.iterdir()) == []

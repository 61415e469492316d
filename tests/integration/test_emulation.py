"""The link as its user meets it: checked, swept over while it changes, mended after a kill."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from pathlib import Path

import psutil
import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from pareto import netem_check
from pareto.link import qdisc
from pareto.link.probe import Tolerance
from pareto.profile_files import load
from tests.integration.own_machine import left_behind
from tests.integration.test_sweep import sound
from tests.less_than_root import needs_networks
from tests.program import (
    LENIENT,
    LENIENT_LINK,
    command,
    descendants,
    ended,
    pareto,
    python_programs,
    wait_until,
)

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    needs_networks,
    pytest.mark.usefixtures("nothing_left"),
]


LOOSE = Tolerance(rtt_floor_s=0.1, rate_fraction=0.5)


def test_a_link_is_checked_thing_by_thing(tmp_path: Path) -> None:
    lossy = "20ms-20mbit-5%"
    done = command(
        "netem", "check", "20ms-20mbit", lossy, "--duration", "1s", "--out", str(tmp_path), *LENIENT_LINK
    )
    assert done.code == 0, done
    of_plain, of_lossy = done.out.split(f"{lossy} on ")
    for line in ("RTT", "rate out", "30 kB, answered"):
        assert f"\n{line}" in of_plain
    assert "lost out" not in of_plain
    assert "\nlost out" in of_lossy
    assert "off" not in [line.split()[-1] for line in done.out.splitlines() if line.strip()]
    assert max(len(line) for line in done.out.splitlines() if str(tmp_path) not in line) <= 80
    for name in ("20ms-20mbit", lossy):
        assert (tmp_path / f"netem-check-{name}.png").stat().st_size > 5000


def test_each_link_of_a_chain_is_checked(tmp_path: Path) -> None:
    said = io.StringIO()
    network = [load("20ms-20mbit"), load("5ms-50mbit")]
    assert netem_check.check(
        Console(file=said, width=80), [network], 1.0, LOOSE, tmp_path, "local", "both"
    ), said.getvalue()
    tables = said.getvalue().split("edge-middle1: 20ms-20mbit on local: three namespaces")[1]
    first, second = tables.split("middle1-server: 5ms-50mbit on local: three namespaces")
    for table, asked_ms in ((first, 20), (second, 5)):
        (line,) = (line for line in table.splitlines() if line.startswith("RTT"))
        assert float(line.split()[2]) == pytest.approx(asked_ms, abs=0.05)  # and a ping's own bytes
    for name in ("20ms-20mbit-edge-middle1", "5ms-50mbit-middle1-server"):
        assert (tmp_path / f"netem-check-{name}.png").stat().st_size > 5000


def test_a_link_that_is_off_says_by_how_much_and_fails(tmp_path: Path) -> None:
    strict = (
        "--tolerance",
        "0.001%",
        "--rtt-tolerance",
        "0.001%",
        "--rtt-floor",
        "1us",
        "--duration",
        "0.5s",
    )
    done = command("netem", "check", "20ms-20mbit", *strict, "--out", str(tmp_path))
    assert done.code == 1
    assert "off: RTT 2" in done.out


def test_a_link_that_changes_is_swept_part_by_part(tmp_path: Path) -> None:
    job = (
        "--model",
        "squeezenet1_1",
        "--points",
        "7",
        "--only",
        "--quick",
        "--trials",
        "2",
        "--figures",
        "none",
    )
    link = ("--netem", "netem_profiles/handover.yaml")
    done = command(*job, *link, *LENIENT, "--out", str(tmp_path))
    (run,) = tmp_path.iterdir()
    with (run / "trials.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4
    assert len(list((run / "requests").iterdir())) == 4
    assert all(map(sound, rows)), done
    for row in rows:
        assert row["netem"] == "handover"
        began, ended = float(row["trace_from_s"]), float(row["trace_to_s"])
        assert began == pytest.approx(15.0 * (int(row["round"]) - 1), abs=1.0)
        assert began < ended < began + 15
        assert row["status"] != "ok" or float(row["latency_s"]) >= float(row["latency_bound_s"])
    # The trace falls from 20 to 2 Mbit/s and stops for 0.3 s in the second half.
    by_round = {number: max(float(r["latency_s"]) for r in rows if r["round"] == number) for number in "12"}
    assert by_round["2"] > by_round["1"]
    manifest = json.loads((run / "manifest.json").read_text())
    trace = manifest["profiles"]["handover"]["edge_to_server"]["trace"]
    assert (trace["period_s"], trace["steps"]) == (30.0, 11)
    if manifest["sessions"][0]["testbed"]["shaper"] == "relay":
        assert 0 < manifest["sessions"][0]["shaping"]["edge-server"]["relay"]["cpu_share"] < 1


def test_doctor_finds_and_removes_what_a_killed_testbed_left(tmp_path: Path) -> None:
    """And nothing of a testbed that somebody works with meanwhile."""
    assert "left behind: nothing" in command("doctor").out
    lives, dies = (
        pareto("netem", "check", "none", "--duration", "600s", "--out", str(tmp_path)) for _ in range(2)
    )
    assert wait_until(lambda: all(len(workers(check)) == 2 for check in (lives, dies)), 120)
    family = descendants(dies.pid)
    (builder,) = python_programs(dies.pid, "pareto.hosts.local")
    builder.kill()
    dies.kill()
    assert ended(family), family
    there = namespaces()
    found = command("doctor")
    assert found.code == 0
    assert found.out.count("left behind: testbed") == 1
    assert "./pareto.sh doctor --repair" in found.out
    assert namespaces() == there, "it only looks"
    assert "removed" in command("doctor", "--repair").out
    assert "left behind: nothing" in command("doctor").out
    assert len(namespaces()) == len(there) // 2
    assert lives.poll() is None
    assert len(workers(lives)) == 2


def workers(driver: subprocess.Popen[str]) -> list[psutil.Process]:
    return python_programs(driver.pid, "pareto.worker.probe")


def namespaces() -> list[str]:
    return sorted(name for name in left_behind() if name.startswith("namespace"))


def test_a_testbed_that_cannot_be_had_leaves_no_run(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    if qdisc.supported():
        pytest.skip("this kernel has sch_netem, so the edge can shape both directions")
    job = ("--model", "squeezenet1_1", "--points", "3", "--only", "--netem", "wifi", "--shape-at", "edge")
    done = command(*job, "--out", str(tmp_path))
    assert done.code == 2
    assert done.err == snapshot
    assert list(tmp_path.iterdir()) == []

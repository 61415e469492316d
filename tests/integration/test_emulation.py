"""The link as its user meets it: checked, and mended after a kill."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psutil
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.remote.link import qdisc
from tests.integration.own_machine import left_behind
from tests.less_than_root import needs_networks
from tests.program import command, descendants, ended, pareto, python_programs, wait_until

pytestmark = [
    pytest.mark.integration,
    needs_networks,
    pytest.mark.usefixtures("nothing_left"),
]


def test_each_link_of_a_chain_is_checked_thing_by_thing_and_says_by_how_much_it_is_off(
    tmp_path: Path,
) -> None:
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
    done = command("doctor", "--link", "20ms-20mbit-5%+5ms-50mbit", *strict, "--out", str(tmp_path))
    assert done.code == 1, done
    assert "off: RTT " in done.out
    tables = done.out.split("edge-middle1: 20ms-20mbit-5% on local: three namespaces")[1]
    lossy, plain = tables.split("middle1-server: 5ms-50mbit on local: three namespaces")
    for table, asked_ms in ((lossy, 20), (plain, 5)):
        (line,) = (line for line in table.splitlines() if line.startswith("RTT"))
        assert float(line.split()[2]) >= asked_ms  # late on a busy machine, never early
        assert "\nrate out" in table
    assert "\nlost out" in lossy
    assert "lost out" not in plain
    assert "\n30 kB, answered" in plain
    assert max(len(line) for line in done.out.splitlines() if str(tmp_path) not in line) <= 80
    for name in ("20ms-20mbit-5%-edge-middle1", "5ms-50mbit-middle1-server"):
        assert (tmp_path / f"link-{name}.png").stat().st_size > 5000


def test_doctor_finds_and_removes_what_a_killed_testbed_left(tmp_path: Path) -> None:
    """And nothing of a testbed that somebody works with meanwhile."""
    assert "left behind: nothing" in command("doctor").out
    lives, dies = (
        pareto("doctor", "--link", "none", "--duration", "600s", "--out", str(tmp_path)) for _ in range(2)
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
    return python_programs(driver.pid, "pareto.remote.worker.probe")


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

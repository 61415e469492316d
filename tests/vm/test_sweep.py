"""The main job on real netem: two hosts, SSH, the helper on each, both backends."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.conftest import REPOSITORY, left_behind

pytestmark = [pytest.mark.vm, pytest.mark.timeout(400)]

# The guest's processor is emulated, twenty times slower than the machine's own: a round trip costs it milliseconds.
SLOW = ("--rtt-floor", "25ms", "--tolerance", "20%")


def pareto(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pareto", *arguments, *SLOW],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )


def test_a_sweep_at_the_first_and_a_middle_point_over_both_backends(tmp_path: Path) -> None:
    job = ("--model", "shufflenet_v2_x0_5", "--netem", "50ms-5mbit", "--points", "0,2", "--trials", "1")
    done = pareto(*job, "--out", str(tmp_path))
    print(done.stdout)
    (run,) = tmp_path.iterdir()
    with (run / "trials.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {(row["point"], row["backend"]) for row in rows} == {
        (point, backend) for point in "02" for backend in ("tcp", "rpc")
    }
    for row in rows:
        assert row["status"] == "ok", row["reason"]
        assert float(row["latency_s"]) >= float(row["latency_bound_s"])
    assert done.returncode == 0, done.stdout + done.stderr
    session = json.loads((run / "manifest.json").read_text())["sessions"][0]
    assert session["testbed"]["shaper"] == "netem"
    in_force = session["link"]["50ms-5mbit"]["in_force"]
    assert in_force["edge"]["egress"]["delay_s"] == 0.05
    assert in_force["edge"]["egress"]["rate_bps"] == 5e6
    assert in_force["server"]["shaper"] == "none"
    assert left_behind() == set()


def test_both_directions_can_be_shaped_on_the_edge_alone(tmp_path: Path) -> None:
    profile = tmp_path / "both.yaml"
    profile.write_text(
        "edge_to_server: {delay: 30ms, rate: 5mbit}\nserver_to_edge: {delay: 60ms, rate: 8mbit}\n"
    )
    asked = (str(profile), "--shape-at", "edge", "--duration", "2s", "--out", str(tmp_path))
    done = pareto("netem", "check", *asked)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rate back" in done.stdout
    assert left_behind() == set()

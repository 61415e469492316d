"""The main job for real, small: the command, its files, its faults."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from pyarrow import parquet

from tests import REPOSITORY
from tests.integration.conftest import left_behind, processes, start, wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces: needs root"),
    pytest.mark.usefixtures("nothing_left"),
]

Rows = list[dict[str, str]]


def read(path: Path) -> Rows:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def only_run(out: Path) -> Path:
    (run,) = out.iterdir()
    return run


def test_a_sweep_from_command_to_front(tmp_path: Path) -> None:
    job = ("--model", "mobilenetv2", "--netem", "20ms-20mbit", "--points", "0,7,14,21", "--quick")
    process = start(tmp_path, *job)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, out + err
    run = only_run(tmp_path)
    assert out.splitlines()[0] == "pareto: mobilenetv2 at 20ms-20mbit"
    assert out.splitlines()[-1] == str(run)
    assert re.search(r"8 trials in .*: measuring \d+%", out)
    assert max(len(line) for line in out.splitlines() if str(run) not in line) <= 80

    rows = read(run / "trials.csv")
    assert {(row["point"], row["backend"]) for row in rows} == {
        (point, backend) for point in ("0", "7", "14", "21") for backend in ("tcp", "rpc")
    }
    for row in rows:
        assert row["status"] == "ok", row["reason"]
        assert float(row["latency_s"]) >= float(row["latency_bound_s"])
        assert float(row["max_abs_error"]) <= 1e-3
        assert (row["server_s"] == "") == (row["point"] == "21")
    crossing = [row for row in rows if row["point"] != "21"]
    assert all(float(row["rtt_s"]) == pytest.approx(0.02, abs=0.005) for row in rows)
    assert {row["payload_bytes"] for row in crossing if row["point"] == "0"} == {"602112"}

    for row in rows:
        name = f"mobilenet_v2-k{int(row['point']):02d}-{row['backend']}-20ms-20mbit-b1-r01.parquet"
        table = parquet.read_table(run / "requests" / name).to_pylist()
        phases = Counter(request["phase"] for request in table)
        assert phases["latency"] == int(row["latency_requests"])
        assert phases["throughput"] == int(row["throughput_requests"])
        assert all(request["finished_s"] > request["started_s"] for request in table)

    probes = read(run / "link.csv")
    assert len(probes) >= len(rows) + 1
    assert [probe["verdict"] for probe in probes].count("ok") >= len(rows) + 1
    manifest = json.loads((run / "manifest.json").read_text())
    (session,) = manifest["sessions"]
    assert session["testbed"]["shaper"] in ("relay", "netem")
    assert session["hosts"]["edge"]["threads"] == 1
    in_force = session["links"]["20ms-20mbit"]["edge-server"]["in_force"]
    assert in_force["edge_to_server"]["rate_bps"] == 20e6
    front = read(run / "front.csv")
    assert {row["point"] for row in front if row["on_front"] == "True"} >= {"21"}
    for kind in ("front", "attribution"):
        for suffix in (".pdf", ".png"):
            assert (run / "figures" / f"{kind}-mobilenet-v2-20ms-20mbit{suffix}").stat().st_size > 5000

    made = (run / "front.csv").read_bytes()
    (run / "front.csv").unlink()
    again = subprocess.run(
        [sys.executable, "-m", "pareto", "report", str(run)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert (run / "front.csv").read_bytes() == made
    assert again.stdout.splitlines()[-1] == str(run)


def test_a_backend_against_itself_and_what_tcp_did(tmp_path: Path) -> None:
    """Two names are two rows a round, over one connection; and with other settings of TCP than usual."""
    job = ("--model", "squeezenet1_1", "--netem", "10ms-50mbit", "--points", "3", "--quick", "--trials", "2")
    settings = ("--congestion", "reno", "--initial-window", "20", "--slow-start-after-idle")
    process = start(tmp_path, *job, "--backend", "tcp:a,rpc,tcp:b", *settings)
    out, err = process.communicate(timeout=240)
    assert process.returncode in (0, 1), out + err  # a busy machine may make a trial invalid
    run = only_run(tmp_path)
    rows = read(run / "trials.csv")
    assert Counter(row["backend"] for row in rows) == {"tcp:a": 2, "rpc": 2, "tcp:b": 2}
    assert not any(row["status"] == "failed" for row in rows), out
    assert len(list((run / "requests").iterdir())) == 6
    for row in rows:
        assert row["congestion"] == "reno"
        assert row["tcp_retransmits"] == "0"
        assert 0.0095 < float(row["tcp_min_rtt_s"]) < 0.02
        assert float(row["tcp_rtt_s"]) > 0
        assert int(row["tcp_cwnd_packets"]) > 0
        assert 1e6 < float(row["tcp_delivery_rate_bps"]) < 51e6
    (session,) = json.loads((run / "manifest.json").read_text())["sessions"]
    assert session["testbed"]["congestion_control"] == "reno"
    assert session["testbed"]["initial_window_segments"] == 20

    refused = start(tmp_path, "--resume", run.name, "--congestion", "bbr")
    _, err = refused.communicate(timeout=60)
    assert refused.returncode == 2
    assert "congestion was reno, not bbr" in err


def test_a_killed_run_resumes_with_each_trial_once(tmp_path: Path) -> None:
    job = ("--model", "alexnet", "--netem", "10ms-50mbit", "--points", "3,13,15", "--quick", "--trials", "2")
    process = start(tmp_path, *job)
    assert wait_until(lambda: list(tmp_path.glob("*/trials.csv")), 120)
    trials = next(iter(tmp_path.glob("*/trials.csv")))
    assert wait_until(lambda: len(trials.read_text().splitlines()) > 4, 120)
    process.kill()
    process.communicate()
    assert wait_until(lambda: not left_behind()), left_behind()
    kept = read(trials)
    assert 0 < len(kept) < 12

    run = only_run(tmp_path)
    refused = start(tmp_path, "--resume", run.name, "--trials", "5")
    _, err = refused.communicate(timeout=60)
    assert refused.returncode == 2
    assert "was made with other settings: trials was 2, not 5" in err

    process = start(tmp_path, "--resume", run.name)
    out, err = process.communicate(timeout=240)
    rows = read(trials)
    # A busy machine may make a trial invalid: that is its place in the run, too.
    assert process.returncode == int(any(row["status"] != "ok" for row in rows)), out + err
    assert not any(row["status"] == "failed" for row in rows)
    assert rows[: len(kept)] == kept
    counted = Counter((row["point"], row["backend"], row["round"]) for row in rows)
    assert set(counted.values()) == {1}
    assert len(counted) == 12
    assert only_run(tmp_path) == run


def test_ctrl_c_keeps_what_was_measured_and_says_how_to_go_on(tmp_path: Path) -> None:
    process = start(tmp_path, "--model", "alexnet", "--netem", "none", "--points", "3,15")
    assert wait_until(lambda: list(tmp_path.glob("*/trials.csv")), 120)
    trials = next(iter(tmp_path.glob("*/trials.csv")))
    assert wait_until(lambda: len(trials.read_text().splitlines()) > 2, 120)
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"--resume {only_run(tmp_path)}" in out
    assert (only_run(tmp_path) / "front.csv").exists()


def test_a_lost_worker_costs_one_trial(tmp_path: Path) -> None:
    process = start(tmp_path, "--model", "alexnet", "--netem", "none", "--points", "3,13", "--trials", "2")
    assert wait_until(lambda: list(tmp_path.glob("*/trials.csv")), 120)
    trials = next(iter(tmp_path.glob("*/trials.csv")))
    assert wait_until(lambda: len(trials.read_text().splitlines()) > 1, 120)
    workers = [
        pid for pid, command in processes() if "pareto.worker" in command and "-c" not in command.split()
    ]
    os.kill(max(workers), signal.SIGKILL)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 1, out + err
    rows = read(trials)
    assert Counter(row["status"] for row in rows) == {"ok": 7, "failed": 1}
    (failed,) = (row for row in rows if row["status"] == "failed")
    assert failed["reason"] != ""
    assert failed["latency_s"] == ""
    assert "failed: alexnet" in out

    process = start(tmp_path, "--resume", only_run(tmp_path).name)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, out + err
    assert "1: 1 cells" in out
    assert Counter(row["status"] for row in read(trials)) == {"ok": 8}

"""The main job for real, small: the command, its files, its faults."""

from __future__ import annotations

import csv
import itertools
import json
import os
import re
import signal
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyarrow import parquet

from analysis.schema import STANDS
from pareto.searching import OBJECTIVES
from partitions.engines import registry as engines
from tests.less_than_root import needs_networks
from tests.program import LENIENT, command, descendants, ended, pareto, python_programs, wait_until
from tests.unit.own_codecs import LEARNED, written

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    needs_networks,
    pytest.mark.usefixtures("nothing_left"),
]

Rows = list[dict[str, str]]
ONE = ("--model", "squeezenet1_1", "--points", "7", "--only", "--quick", "--figures", "none", *LENIENT)
SMALL = (*ONE[:3], "7,8", *ONE[4:])


def read(path: Path) -> Rows:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def only_run(out: Path) -> Path:
    (run,) = out.iterdir()
    return run


def rows_in(out: Path) -> Rows:
    """So far."""
    return [row for path in out.glob("*/trials.csv") for row in read(path)]


def sound(row: dict[str, str]) -> bool:
    """Whether it is valid, or was spoilt by nothing but what else keeps this machine busy: late, or uneven."""
    wrong = ("output differs", "data interface")
    return row["status"] != "failed" and not any(each in row["reason"] for each in wrong)


def exit_code(rows: Rows) -> int:
    """What the command ends with."""
    return int(any(row["status"] != "ok" for row in rows))


def test_a_sweep_from_command_to_front(tmp_path: Path) -> None:
    job = ("--model", "mobilenetv2", "--netem", "20ms-20mbit", "--points", "0,7,21", "--quick")
    process = pareto(*job, *LENIENT, "--out", str(tmp_path))
    out, err = process.communicate(timeout=240)
    run = only_run(tmp_path)
    rows = read(run / "trials.csv")
    assert process.returncode == exit_code(rows), out + err
    assert out.splitlines()[0] == "pareto: mobilenetv2 at 20ms-20mbit"
    assert out.splitlines()[-1] == str(run)
    assert re.search(r"6 trials in .*: measuring \d+%", out)
    assert max(len(line) for line in out.splitlines() if str(run) not in line) <= 80

    assert {(row["point"], row["backend"]) for row in rows} == {
        (point, backend) for point in ("0", "7", "21") for backend in ("tcp", "rpc")
    }
    for row in rows:
        assert sound(row), row["reason"]
        assert row["status"] != "ok" or float(row["latency_s"]) >= float(row["latency_bound_s"])
        assert float(row["max_abs_error"]) <= 1e-3
        assert (row["server_s"] == "") == (row["point"] == "21")
    crossing = [row for row in rows if row["point"] != "21"]
    # A busy machine is late, never early.
    assert min(float(row["rtt_s"]) for row in rows) == pytest.approx(0.02, abs=0.005)
    assert {row["payload_bytes"] for row in crossing if row["point"] == "0"} == {"150528"}

    for row in rows:
        name = f"mobilenet_v2-k{int(row['point']):02d}-{row['backend']}-20ms-20mbit-b1-r01.parquet"
        table = parquet.read_table(run / "requests" / name).to_pylist()
        phases = Counter(request["phase"] for request in table)
        assert phases["latency"] == int(row["latency_requests"])
        assert phases["throughput"] == int(row["throughput_requests"])
        assert all(request["finished_s"] > request["started_s"] for request in table)

    probes = read(run / "link.csv")
    assert len(probes) >= len(rows) + 1
    assert {probe["verdict"] for probe in probes} == {"ok"}
    manifest = json.loads((run / "manifest.json").read_text())
    (session,) = manifest["sessions"]
    assert session["testbed"]["shaper"] in ("relay", "netem")
    assert session["hosts"]["edge"]["threads"] == 1
    in_force = session["links"]["20ms-20mbit"]["edge-server"]["in_force"]
    assert in_force["edge_to_server"]["rate_bps"] == 20e6
    front = read(run / "front.csv")
    for figure, column in OBJECTIVES.items():
        assert {(row["point"], row["backend"]) for row in front if row[column]} == {
            (row["point"], row["backend"] if row["point"] != "21" else "")
            for row in rows
            if row["status"] in STANDS[figure]
        }
    (whole,) = (row for row in front if row["point"] == "21")
    if all(whole[column] for column in OBJECTIVES.values()):
        # Nothing crosses, and this edge is as fast as the server.
        assert whole["on_front"] == "True"
    for kind in ("front", "attribution"):
        for suffix in (".pdf", ".png"):
            assert (run / "figures" / f"{kind}-mobilenet-v2-20ms-20mbit{suffix}").stat().st_size > 5000

    made = (run / "front.csv").read_bytes()
    (run / "front.csv").unlink()
    again = command("report", str(run), "--figures", "none")
    assert again.code == 0
    assert (run / "front.csv").read_bytes() == made
    assert again.out.splitlines()[-1] == str(run)


def test_variants_of_a_backend_are_measured_in_one_run(tmp_path: Path) -> None:
    """Of rpc, which has one agent in a process, too: the hosts' agents meet anew within a round."""
    backends = ("tcp:4", "rpc:basic", "rpc")
    job = (*ONE, "--input", "float32", "--netem", "10ms-50mbit")
    done = command(*job, "--backend", ",".join(backends), "--out", str(tmp_path))
    rows = rows_in(tmp_path)
    assert done.code == exit_code(rows), done
    assert Counter((row["point"], row["backend"]) for row in rows) == {("7", each): 1 for each in backends}
    assert all(map(sound, rows)), [row["reason"] for row in rows]
    many = {row["backend"]: int(row["tcp_connections"]) for row in rows if row["status"] == "ok"}
    assert many.get("tcp:4", 4) == 4
    assert many.get("rpc:basic", 2) <= 2
    assert many.get("rpc", 17) >= 16
    assert set(many) <= {row["backend"] for row in read(only_run(tmp_path) / "front.csv")}


def test_codecs_send_less_and_are_proven(tmp_path: Path) -> None:
    codecs = ("none", "int8", "int8+zstd:3", "Bottleneck")
    own = f"{written(tmp_path, LEARNED)}:Bottleneck"
    job = (*ONE, "--netem", "10ms-50mbit", "--backend", "tcp,rpc")
    done = command(*job, "--codec", ",".join((*codecs[:-1], own)), "--out", str(tmp_path / "out"))
    rows = rows_in(tmp_path / "out")
    assert done.code == exit_code(rows), done
    assert Counter((row["backend"], row["codec"]) for row in rows) == {
        (backend, codec): 1 for backend in ("tcp", "rpc") for codec in codecs
    }
    assert all(map(sound, rows)), [row["reason"] for row in rows]
    for row in rows:
        if row["status"] != "ok":
            continue
        payload, wire = float(row["payload_bytes"]), float(row["wire_bytes"])
        assert float(row["max_abs_error"]) == 0.0, "the same processor, and the same codec"
        if row["codec"] == "none":
            assert (wire, row["agreement"], row["output_error"]) == (payload, "1", "0")
            assert row["encode_s"] == row["decode_s"] == ""
        else:
            assert wire == payload / 4 + 8 if row["codec"] == "int8" else wire < payload / 4
            assert 0 < float(row["output_error"]) < (9.0 if row["codec"] == "Bottleneck" else 0.2)
            assert float(row["encode_s"]) > 0 and float(row["decode_s"]) > 0


@dataclass(frozen=True)
class Resumed:
    """A run that was killed and gone on with; kept: its rows before, rows: in the end."""

    out: Path
    run: Path
    kept: Rows
    rows: Rows


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Resumed:
    """Of two names for one backend, and with other settings of TCP than usual."""
    out = tmp_path_factory.mktemp("results")
    job = (
        "--model",
        "squeezenet1_1",
        "--points",
        "7",
        "--only",
        "--netem",
        "10ms-50mbit",
        "--quick",
        "--trials",
        "2",
        "--restart",
        "round",
    )
    settings = ("--congestion", "reno", "--initial-window", "20", "--slow-start-after-idle")
    process = pareto(*job, "--backend", "tcp:a,tcp:b", *settings, *LENIENT, "--out", str(out))
    assert wait_until(lambda: len(rows_in(out)) > 2, 240)
    family = descendants(process.pid)
    assert len(family) > 5
    process.kill()
    process.communicate()
    assert ended(family), family
    kept = rows_in(out)
    done = command("--resume", str(only_run(out)), "--figures", "none")
    rows = rows_in(out)
    assert done.code == exit_code(rows), done
    return Resumed(out, only_run(out), kept, rows)


def test_a_killed_run_resumes_with_each_trial_once(resumed: Resumed) -> None:
    assert len(resumed.kept) == 3
    assert resumed.rows[: len(resumed.kept)] == resumed.kept
    assert all(map(sound, resumed.rows))
    assert Counter((row["backend"], row["round"]) for row in resumed.rows) == {
        (backend, number): 1 for backend in ("tcp:a", "tcp:b") for number in "12"
    }
    assert len(list((resumed.run / "requests").iterdir())) == 4


def test_each_round_begins_with_fresh_workers(resumed: Resumed) -> None:
    rounds: dict[str, list[int]] = {}
    for row in resumed.rows:
        rounds.setdefault(row["round"], []).append(int(row["restart"]))
    assert all(max(before) < min(after) for before, after in itertools.pairwise(rounds.values()))
    kept, since = (max(int(row["restart"]) for row in of) for of in (resumed.kept, resumed.rows))
    assert since > kept  # a run that goes on has workers of its own


def test_a_run_is_gone_on_with_as_it_was_begun(resumed: Resumed) -> None:
    other = command("--resume", resumed.run.name, "--out", str(resumed.out), "--congestion", "bbr")
    assert other.code == 2
    assert "congestion was reno, not bbr" in other.err


def test_what_tcp_did(resumed: Resumed) -> None:
    for row in resumed.rows:
        assert row["congestion"] == "reno"
        assert 0.0095 < float(row["tcp_min_rtt_s"]) < 0.02
        assert float(row["tcp_rtt_s"]) > 0
        assert int(row["tcp_cwnd_packets"]) > 0
        assert float(row["tcp_delivery_rate_bps"]) > 1e6
        # Many, where the relay had to wait for a core and its queue overflowed.
        assert int(row["tcp_retransmits"]) >= 0
    # Where a host had to wait for a core, acknowledgements come in a heap, and that row's rate is theirs.
    assert min(float(row["tcp_delivery_rate_bps"]) for row in resumed.rows) < 51e6
    for session in json.loads((resumed.run / "manifest.json").read_text())["sessions"]:
        assert session["testbed"]["congestion_control"] == "reno"
        assert session["testbed"]["initial_window_segments"] == 20


def test_a_lost_worker_costs_one_trial_and_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    process = pareto(*SMALL, "--netem", "none", "--trials", "50", "--out", str(tmp_path))
    assert wait_until(lambda: rows_in(tmp_path), 240)
    python_programs(process.pid, "pareto.worker")[-1].kill()
    assert wait_until(lambda: "failed" in [row["status"] for row in rows_in(tmp_path)[:-1]], 240)
    family = descendants(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert ended(family), family
    assert f"--resume {only_run(tmp_path)}" in out
    assert (only_run(tmp_path) / "front.csv").exists()
    (failed,) = (row for row in rows_in(tmp_path) if not sound(row))
    assert failed["status"] == "failed"
    assert failed["reason"] != ""
    assert failed["latency_s"] == ""
    assert "failed: squeezenet1_1" in out


@pytest.mark.skipif(bool(engines.missing("onnx")), reason="ONNX Runtime is not installed")
def test_each_engine_of_a_sweep_has_its_own_results_and_quality(tmp_path: Path) -> None:
    mixed = "edge=onnx+server=onnx:int8"
    chosen = ("--backend", "tcp", "--trials", "1", "--engine", f"eager,{mixed}")
    process = pareto(*ONE, "--netem", "20ms-20mbit", *chosen, "--out", str(tmp_path))
    out, err = process.communicate(timeout=240)
    rows = {row["engine"]: row for row in read(only_run(tmp_path) / "trials.csv")}
    assert set(rows) == {"eager", mixed}, out + err
    assert all(map(sound, rows.values())), out
    assert float(rows["eager"]["output_error"]) == 0 < float(rows[mixed]["output_error"])
    stages = {(row["engine"], row["host"]): row for row in read(only_run(tmp_path) / "stages.csv")}
    assert float(stages[mixed, "edge"]["engine_s"]) > 0
    bytes_of = {key: int(row["weights_bytes"]) for key, row in stages.items()}
    assert bytes_of[mixed, "server"] < bytes_of["eager", "server"] / 2

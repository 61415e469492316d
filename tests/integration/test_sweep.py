"""The main job for real: one sweep over a chain of three hosts, which loses a worker, is interrupted, and is gone on
with; its files then say what happened."""

from __future__ import annotations

import csv
import json
import re
import signal
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pyarrow import parquet

from pareto.analysis.schema import STANDS
from pareto.analysis.statistics.significance import MEASURES
from pareto.trial.store import REDONE
from tests import rows_of
from tests.integration import short
from tests.integration.own_machine import left_behind
from tests.less_than_root import needs_networks
from tests.program import LENIENT, descendants, ended, python_programs, wait_until

Rows = list[dict[str, str]]


def only_run(out: Path) -> Path:
    (run,) = out.iterdir()
    return run


def rows_in(out: Path) -> Rows:
    """So far."""
    return [row for path in out.glob("*/trials.csv") for row in rows_of(path)]


def sound(row: dict[str, str]) -> bool:
    """Whether it is valid, or was spoilt by nothing but what else keeps this machine busy: late, or uneven."""
    wrong = ("output differs", "data interface")
    return row["status"] != "failed" and not any(each in row["reason"] for each in wrong)


def exit_code(rows: Rows) -> int:
    """What the command ends with."""
    return int(any(row["status"] != "ok" for row in rows))


pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1200), needs_networks]

NET = """
import torch
from torch import nn

from pareto.partitions.registry import register


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return torch.relu(self.conv(x)) + x


@register(input_shape=(3, 64, 64))
def small():
    return nn.Sequential(
        nn.Conv2d(3, 32, 4, stride=4), *(Block(32) for _ in range(4)),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 3),
    )
"""
TRACE = "edge_to_server: {delay: 5ms, trace: moving.csv}\nserver_to_edge: {rate: 50mbit}\n"
STEPS = "at,rate\n0s,50mbit\n30s,40mbit\n60s\n"
IMAGES = 6
START_S = 300.0
KEPT = 2
"""Rows, when the worker is lost."""
LAST = "11"
CUT, WHOLE = "2+4", f"{LAST}+{LAST}"
"""Two tensors cross each link, or nothing."""
DELAYS_S = {"edge-middle1": 0.002, "middle1-server": 0.005}
BACKENDS = ("tcp:4", "rpc")
CODECS = ("none", "int8+zstd:3/lz4")
MIXED = "server=onnx:int8"
ENGINES = ("eager", MIXED)
ROUNDS = "12"
RESULT_BYTES = "12"
PAYLOAD_BYTES = 2 * 32 * 16 * 16 * 4
CELLS = {
    *((CUT, backend, codec, engine) for backend in BACKENDS for codec in CODECS for engine in ENGINES),
    *((WHOLE, backend, "none", engine) for backend in BACKENDS for engine in ENGINES),
}


@dataclass
class Session:
    """kept: the whole lines of trials.csv then. all_ended: whether its programs had. left: what was left of it on the
    machine."""

    code: int
    said: str
    kept: bytes
    all_ended: bool
    left: set[str]


@dataclass
class Told:
    """The run's folder, how it is gone on with, and its sessions: interrupted after a lost worker, and the last."""

    out: Path
    resume: tuple[str, ...] = ()
    sessions: list[Session] = field(default_factory=list)

    @property
    def run(self) -> Path:
        return only_run(self.out)

    @property
    def rows(self) -> Rows:
        return rows_in(self.out)

    @property
    def manifest(self) -> dict[str, Any]:
        return dict(json.loads((self.run / "manifest.json").read_text()))

    def ended(self, code: int, said: str, all_ended: bool) -> None:
        """Note how a session ended, and what is on the machine, once nothing is or it stays."""
        kept = (self.run / "trials.csv").read_bytes()
        wait_until(lambda: not left_behind())
        whole = kept[: kept.rfind(b"\n") + 1]
        self.sessions.append(Session(code, said, whole, all_ended, left_behind()))


@pytest.fixture(scope="module")
def told(machine: None, tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder = tmp_path_factory.mktemp("sweep")
    for name, text in {"net.py": NET, "moving.yaml": TRACE, "moving.csv": STEPS}.items():
        (folder / name).write_text(text)
    noise = np.random.default_rng(0)
    for number in range(IMAGES):
        of_class = folder / "images" / f"class{number % 3}"
        of_class.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noise.integers(0, 255, (80, 90, 3), dtype=np.uint8)).save(of_class / f"{number}.png")
    links = f"2ms-100mbit+{folder}/moving.yaml"
    named = f"--model {folder}/net.py:small --netem {links} --data-path {folder}/images".split()
    job = (
        f"--hosts 3 --quick --trials {len(ROUNDS)} --granularity op --live-tensors 2 --points {CUT},{WHOLE} --only "
        f"--dataset folder --images {IMAGES} --backend {','.join(BACKENDS)} --codec {','.join(CODECS)} "
        f"--engine {','.join(ENGINES)} --congestion reno --initial-window 20 --slow-start-after-idle"
    ).split()
    it = Told(folder / "out")

    process = short.pareto(*named, *job, *LENIENT, "--out", str(it.out), "--figures", "none")

    def happens(what: Callable[[], bool]) -> None:
        assert wait_until(lambda: what() or process.poll() is not None, START_S), process.communicate()
        assert process.poll() is None, process.communicate()

    happens(lambda: len(rows_in(it.out)) >= KEPT)
    python_programs(process.pid, "pareto.remote.worker")[1].kill()
    happens(lambda: "failed" in [row["status"] for row in it.rows[:-1]])
    family = descendants(process.pid)
    process.send_signal(signal.SIGTERM)
    said = "".join(process.communicate(timeout=START_S))
    it.ended(process.returncode, said, ended(family))
    it.resume = ("--resume", str(it.run), *named)
    done = short.command(*it.resume, "--figures", "none")
    it.ended(done.code, done.out + done.err, True)
    return it


def key(row: dict[str, str]) -> tuple[str, str, str, str]:
    return row["point"], row["backend"], row["codec"], row["engine"]


def requests_of(row: dict[str, str]) -> str:
    """What the file of a trial's requests is called."""
    cuts = "+".join(f"{int(cut):02}" for cut in row["point"].split("+"))
    chosen = [row[name] for name, usual in (("codec", "none"), ("engine", "eager")) if row[name] != usual]
    words = [f"net.small-k{cuts}", row["backend"], *chosen, row["netem"], "b1", f"r{int(row['round']):02}"]
    return "-".join(words).replace(":", ".").replace("/", "_")


def test_what_was_measured_is_kept_and_a_lost_worker_costs_one_trial(told: Told) -> None:
    """To the byte; each session ends as it was told to, leaves nothing, and has workers of its own."""
    interrupted, last = told.sessions
    assert (interrupted.code, last.code) == (130, exit_code(told.rows))
    assert all(session.all_ended and not session.left for session in told.sessions), told.sessions
    head, *lines = interrupted.kept.splitlines(keepends=True)
    kept = [line for line in lines if not any(b",%s," % status.encode() in line for status in REDONE)]
    # At least one: a disturbed machine may spoil another beside the one whose worker was killed.
    assert 0 < len(kept) < len(lines)
    assert last.kept.startswith(head + b"".join(kept))
    starts = [int(row["restart"]) for row in told.rows]
    assert max(starts[: len(kept)]) < min(starts[len(kept) :])

    rows = list(csv.DictReader(interrupted.kept.decode().splitlines()))
    at = [row["status"] for row in rows].index("failed")
    assert rows[at]["latency_s"] == ""
    assert "killed by signal 9" in rows[at]["reason"]
    assert "failed: net.small" in interrupted.said
    starts = [int(row["restart"]) for row in rows]
    assert max(starts[: at + 1]) < min(starts[at + 1 :])


def test_what_is_said_fits_and_a_run_is_gone_on_with_as_it_was_begun(told: Told) -> None:
    interrupted, last = told.sessions
    said = " ".join(interrupted.said.split())
    assert "on the links in order: 2ms-100mbit, moving" in said
    assert "fold into their neighbours" in said
    assert "24: 12 cells, 2 of 2 rounds" in said
    assert f"--resume {told.run}" in interrupted.said
    assert re.search(r"trials in .*: measuring \d+%", interrupted.said)
    folder, *missing = last.said.splitlines()[-1 - exit_code(told.rows) :]
    assert folder == str(told.run)
    assert all(line.startswith("exit code 1: ") for line in missing)
    lines = [line for session in told.sessions for line in session.said.splitlines()]
    assert max(len(line) for line in lines if str(told.out.parent) not in line) <= 80
    other = short.command(*told.resume, "--congestion", "bbr")
    assert other.code == 2
    assert "congestion was reno, not bbr" in other.err


def test_each_cell_is_measured_once_a_round_is_proven_and_never_early(told: Told) -> None:
    """Each codec and engine has its bytes and its quality, each round its part of the trace."""
    cells = {(cell, number): 1 for cell in CELLS for number in ROUNDS}
    assert Counter((key(row), row["round"]) for row in told.rows) == cells
    for row in told.rows:
        assert sound(row), row["reason"]
        assert float(row["max_abs_error"]) <= (1e-5 if "onnx" in row["engine"] else 0.0)
        assert row["netem"] == "2ms-100mbit+moving"
        assert row["status"] != "ok" or float(row["latency_s"]) >= float(row["latency_bound_s"])
        assert 30.0 * (int(row["round"]) - 1) <= float(row["trace_from_s"]) < float(row["trace_to_s"])
        assert row["agreement_images"] == row["top1_images"] == str(IMAGES)
        if row["point"] == WHOLE:
            assert (float(row["payload_bytes"]), row["output_error"]) == (0.0, "0")
            continue
        assert float(row["latency_bound_s"]) >= sum(DELAYS_S.values())
        payload, wire = float(row["payload_bytes"]), float(row["wire_bytes"])
        assert payload == PAYLOAD_BYTES
        assert wire == payload if row["codec"] == "none" else wire < payload / 4
        assert (row["result_bytes"] == RESULT_BYTES) == (row["codec"] == "none")
        assert (row["encode_s"] == row["decode_s"] == "") == (row["codec"] == "none")
        is_exact = (row["codec"], row["engine"]) == ("none", "eager")
        assert float(row["output_error"]) == 0 if is_exact else 0 < float(row["output_error"]) < 0.2
        assert row["agreement"] == "1" or not is_exact
    assert len({row["top1"] for row in told.rows if row["codec"] == "none" and row["engine"] == "eager"}) == 1
    trace = told.manifest["profiles"]["moving"]["edge_to_server"]["trace"]
    assert (trace["period_s"], trace["steps"]) == (60.0, 2)
    probes = rows_of(told.run / "link.csv")
    for link, delay_s in DELAYS_S.items():
        rtts = [float(probe["rtt_s"]) for probe in probes if probe["link"] == link and probe["rtt_s"]]
        assert len(rtts) > len(told.rows)
        assert min(rtts) >= delay_s


def test_what_else_ran_and_what_tcp_did_is_told(told: Told) -> None:
    """Whatever it is: what verdict follows is decided in tests/unit/test_trial.py."""
    connections = defaultdict(set)
    for row in told.rows:
        for role in ("edge", "server") if row["point"] == CUT else ("edge",):
            assert float(row[f"{role}_slowdown"]) > 0
            for what in ("steal", "others", "wait", "core"):
                assert float(row[f"{role}_{what}_percent"]) >= 0
            assert 0 < float(row[f"{role}_core_percent"]) <= 100
        assert float(row["strangers_percent"]) >= 0
        if row["point"] == CUT:
            connections[row["backend"]].add(int(row["tcp_connections"]))
            assert row["congestion"] == "reno"
            assert float(row["tcp_rtt_s"]) >= float(row["tcp_min_rtt_s"]) >= 0.9 * DELAYS_S["edge-middle1"]
            assert min(float(row[name]) for name in ("tcp_cwnd_packets", "tcp_delivery_rate_bps")) > 0
            assert int(row["tcp_retransmits"]) >= 0  # many, where the relay had to wait for a core
    assert connections["tcp:4"] == {4}
    assert min(connections["rpc"]) >= 16


def test_each_host_tells_what_it_did(told: Told) -> None:
    stages: dict[tuple[tuple[str, ...], str], dict[str, dict[str, str]]] = defaultdict(dict)
    for stage in rows_of(told.run / "stages.csv"):
        stages[key(stage), stage["round"]][stage["host"]] = stage
    assert set(stages) == {(cell, number) for cell in CELLS for number in ROUNDS}
    of_whole = [hosts["edge"]["weights_bytes"] for (cell, _), hosts in stages.items() if cell[0] == WHOLE]
    (whole_bytes,) = set(map(int, of_whole))
    for (cell, _), hosts in stages.items():
        assert list(hosts) == (["edge", "middle1", "server"] if cell[0] == CUT else ["edge"])
        *senders, last = hosts.values()
        assert {int(stage["payload_bytes"]) for stage in senders} <= {PAYLOAD_BYTES}
        assert last["payload_bytes"] == ""
        weights_bytes = [int(stage["weights_bytes"]) for stage in hosts.values()]
        if "onnx" not in cell[3]:
            assert sum(weights_bytes) == whole_bytes  # each parameter on one host, all of them together
        elif cell[0] == CUT:
            assert float(last["engine_s"]) > 0
            assert weights_bytes[-1] < (whole_bytes - sum(weights_bytes[:-1])) / 2

    assert {path.stem for path in (told.run / "requests").iterdir()} == set(map(requests_of, told.rows))
    for row in told.rows:
        table = parquet.read_table(told.run / "requests" / f"{requests_of(row)}.parquet").to_pylist()
        phases = Counter(request["phase"] for request in table)
        for phase in ("latency", "throughput"):
            assert phases[phase] == int(row[f"{phase}_requests"])
        for request in table:
            assert request["finished_s"] > request["started_s"]
            if row["point"] == CUT:
                (middle_s,) = request["middle_s"]
                # A codec's work is taken off, which may have waited for a core longer than the rest took.
                stages_s = (middle_s, request["server_s"])
                assert min(stages_s) >= 0 if row["codec"] != "none" else min(stages_s) > 0


def test_the_manifest_has_each_session_and_what_was_in_force(told: Told) -> None:
    sessions = told.manifest["sessions"]
    assert len(sessions) == len(told.sessions)
    for session in sessions:
        assert set(session["hosts"]) == {"edge", "middle1", "server"}
        assert session["testbed"]["shaper"] in ("relay", "netem")
        assert session["testbed"]["congestion_control"] == "reno"
        assert session["testbed"]["initial_window_segments"] == 20
        for host in session["hosts"].values():
            assert (host["threads"], host["slow_start_after_idle"]) == (1, "1")
    links = sessions[-1]["links"]["2ms-100mbit+moving"]
    assert list(links) == list(DELAYS_S)
    assert links["edge-middle1"]["in_force"]["edge_to_server"]["rate_bps"] == 100e6
    assert links["middle1-server"]["in_force"]["server_to_edge"]["rate_bps"] == 50e6


def test_the_front_has_the_figures_that_can_be_trusted_and_is_made_again(told: Told) -> None:
    front = rows_of(told.run / "front.csv")
    for figure, column in MEASURES.items():
        stand = [row for row in told.rows if row["status"] in STANDS[figure]]
        wanted = {key(row) for row in stand if row["point"] == CUT}
        wanted |= {(WHOLE, "none", "none", row["engine"]) for row in stand if row["point"] == WHOLE}
        # Where nothing crosses, all backends and codecs are the same: such a point is named under each codec.
        has = {(row["point"], row["backend"], row["codec"], row["engine"]) for row in front if row[column]}
        assert {each for each in has if each[0] == CUT or each[2] == "none"} == wanted
    made = (told.run / "front.csv").read_bytes()
    (told.run / "front.csv").unlink()
    again = short.command("report", str(told.run), "--figures", "none")
    assert again.code == 0
    assert (told.run / "front.csv").read_bytes() == made
    assert again.out.splitlines()[-1] == str(told.run)

"""Sweeps beside the main job: the whole model on one host, without a link; until all is sure; by a fleet."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.integration import short
from tests.integration.test_sweep import exit_code, only_run, rows_in, sound
from tests.lab import open_lab
from tests.less_than_root import needs_networks
from tests.program import LENIENT, measured, wait_until
from tests.unit.simulated.worlds import MODEL

pytestmark = pytest.mark.integration

NET = Path(__file__).parents[1] / "faults" / "net.py"
BOTH = "tuned,default"
OF_A_LINK = "server_s network_s rtt_s rate_bps dropped_packets"
SWEEP = ("--model", f"{NET}:build", "--quick", "--figures", "none", *LENIENT)


@needs_networks
@pytest.mark.usefixtures("nothing_left")
def test_the_edge_of_the_local_testbed(tmp_path: Path) -> None:
    done = short.measured(
        *SWEEP, "--edge-only", "--batch-size", "1,8", "--allocator", BOTH, "--out", str(tmp_path)
    )
    rows = rows_in(tmp_path)
    assert done.code == exit_code(rows), done
    names = ("point", "netem", "batch_size", "allocator", "restart")
    assert {tuple(row[name] for name in names) for row in rows} == {
        ("3", "edge-only", size, *allocator)
        for size in "18"
        for allocator in (("tuned", "1"), ("default", "2"))
    }
    for row in rows:
        assert sound(row), row["reason"]
        assert float(row["edge_s"]) > 0
        assert {row[name] for name in OF_A_LINK.split()} == {""}
        assert float(row["payload_bytes"]) == 0
    session = json.loads((only_run(tmp_path) / "manifest.json").read_text())["sessions"][0]
    assert list(session["hosts"]) == ["edge"]
    assert session["hosts"]["edge"]["allocator"] == "tuned", "as it said itself, which each start is held to"
    costs = [(of["batch_size"], list(of["times"])) for of in session["allocator_cost"]]
    assert costs == [(1, ["edge"]), (8, ["edge"])]
    again = short.measured(
        "--resume", str(only_run(tmp_path)), *SWEEP[:2], "--edge-only", "--figures", "none"
    )
    assert again.code == exit_code(rows), again
    assert len(rows_in(tmp_path)) == 4


def test_the_only_host_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home := tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(home))
    file, out = tmp_path / "one.yaml", tmp_path / "out"
    here = f"ssh: local, data_address: 192.0.2.1, python: {sys.executable}"
    file.write_text(f"hosts:\n  box: {{role: server, {here}}}\n")
    done = short.command(*SWEEP, "--server-only", "--testbed", str(file), "--out", str(out))
    rows = rows_in(out)
    assert done.code == exit_code(rows), done
    assert [(row["point"], row["netem"]) for row in rows] == [("3", "server-only")]
    assert all(map(sound, rows)), done
    assert "the server alone" in " ".join(done.out.split())
    assert "all on the edge" not in " ".join(done.out.split())
    manifest = json.loads((only_run(out) / "manifest.json").read_text())
    assert manifest["testbed"] == "the server alone, box (cpu)"
    refused = short.measured(*SWEEP, "--edge-only", "--testbed", str(file), "--out", str(out))
    assert refused.code == 2
    assert "no host has the role edge" in refused.err


def test_a_run_goes_on_until_it_is_sure(tmp_path: Path) -> None:
    def finished(words: str) -> tuple[str, Counter[str], list[dict[str, object]]]:
        """What is said, how many trials each round has, and how the sessions ended."""
        done = measured(*words.split(), "--model", MODEL, "--figures", "none", "--out", str(tmp_path))
        assert done.code == 0, done
        trials = Counter((row["point"], row["round"]) for row in rows_in(tmp_path))
        assert set(trials.values()) == {1}
        sessions = json.loads((only_run(tmp_path) / "manifest.json").read_text())["sessions"]
        rounds = Counter(number for _, number in trials)
        return " ".join(done.out.split()), rounds, [session["stopping"] for session in sessions]

    job = "--netem none --points 3,5 --only --backend tcp --quick --testbed simulated"
    _, rounds, stopping = finished(f"{job} --trials 2 --budget 1s")
    assert (rounds, stopping) == ({"1": 2}, [{"until": None, "budget_s": 1.0, "ended": "budget"}])

    (run,) = tmp_path.iterdir()
    said, rounds, stopping = finished(f"--resume {run.name} --until 10% --budget 30min")
    assert "round 3 is added: 2 points unsure" in said
    assert len(rounds) >= 6
    assert rounds == {str(number): 2 for number in range(1, len(rounds) + 1)}
    wanted = {"ended": "sure", "until": 0.1, "rounds": len(rounds), "unsure": 0}
    assert stopping[-1].items() >= wanted.items()
    # Then nothing is measured: no session.
    assert finished(f"--resume {run.name}")[1:] == (rounds, stopping)
    assert len(stopping) == 2


@pytest.mark.deep
@pytest.mark.timeout(900)
@needs_networks
@pytest.mark.skipif(importlib.util.find_spec("distributed") is None, reason="needs distributed")
@pytest.mark.usefixtures("nothing_left")
def test_a_local_testbed_and_hosts_of_a_file_measure_one_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until both have measured something: then it is interrupted."""
    out = tmp_path / "results"
    sweep = ("--model", MODEL, "--netem", "none", "--points", "3,5", "--only", "--backend", "tcp", "--quick")
    with open_lab(tmp_path / "lab") as lab:
        monkeypatch.setenv("HOME", str(lab.home))
        monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
        where = ("--testbed", f"local,{lab.testbed()}", "--trials", "1000", "--out", str(out))
        process = short.pareto(*sweep, *where, *LENIENT, "--figures", "none")
        both = {"local", "testbed"}
        wait_until(
            lambda: {row["testbed"] for row in rows_in(out)} == both or process.poll() is not None, 240
        )
        process.terminate()
        said = "".join(process.communicate(timeout=240))
    assert process.returncode == 130, said
    rows = rows_in(out)
    assert all(map(sound, rows)), said
    assert set(Counter((row["point"], row["round"]) for row in rows).values()) == {1}
    names = ("strangers_percent", "edge_others_percent")
    assert {(row["testbed"], *(row[name] != "" for name in names)) for row in rows} == {
        ("local", True, True),
        ("testbed", False, True),
    }

"""Sweeps beside the main job: the whole model on one host, without a link; a search; by a fleet."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from pareto.analysis.model_profile import ModelProfile, read
from pareto.predict import backend_costs, model_profiles, model_times
from tests.integration import short
from tests.integration.test_sweep import exit_code, only_run, rows_in, sound
from tests.lab import open_lab
from tests.less_than_root import needs_networks
from tests.program import LENIENT, wait_until
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


WIDE = """
from torch import nn

input_shape = (3, 32, 32)


def build():
    steps = (nn.Sequential(nn.Conv2d(width, 16, 3, padding=1), nn.ReLU()) for width in (3, 16, 16))
    return nn.Sequential(*steps, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
"""


def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a model profile made of few runs."""
    few = {"runs": 8, "seconds": 0.1, "payloads": 4, "rounds": 2, "streams": 1, "host_s": 0.0, "link_s": 0.0}
    for name in ("THOROUGH", "QUICK"):
        made = replace(getattr(backend_costs, name), **few)
        for module in (backend_costs, model_profiles, model_times):
            monkeypatch.setattr(module, name, made, raising=False)
    monkeypatch.setattr(backend_costs, "USUAL_BYTES", 100_000)


def is_whole(made: ModelProfile, units: int) -> None:
    """Each device has its times, and the link its backends; what each device reaches at best orders no cells."""
    assert made.roles == ("edge", "server")
    for times in made.times:
        assert len(times.median_s) == units
        assert (times.median_s > 0).all() and (times.least_s <= times.median_s * 1.001).all()
        assert times.outside_s > 0
        assert not {"peak_flops", "peak_bytes_s"} & made.hosts[times.role].keys()
    costs = {(cost.link, cost.backend): cost.fixed_s for cost in made.backends}
    assert costs.keys() == {("edge-server", backend) for backend in ("tcp", "rpc")}
    assert min(costs.values()) > 0


@pytest.mark.long
@needs_networks
@pytest.mark.usefixtures("nothing_left")
def test_a_search_profiles_the_model_on_its_own_testbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 2 Mbit/s an image takes 50 ms: physics strikes off what sends it, or more, also after a trial; and nothing
    where the edge took as long. A cell that has no trial is one of those."""
    (tmp_path / "wide.py").write_text(WIDE)
    quick(monkeypatch)
    model, out = ("--model", f"{tmp_path}/wide.py:build"), tmp_path / "out"
    job = (*model, "--netem", "20ms-2mbit", "--trials", "1", "--quick", "--search")
    done = short.command("run", *job, "--figures", "none", *LENIENT, "--out", str(out))
    assert done.code in (0, 1), done
    (run,) = (path.parent for path in out.glob("*/trials.csv"))
    trials, struck, front = (pd.read_csv(run / f"{table}.csv") for table in ("trials", "struck", "front"))
    assert done.code == int((trials["status"] != "ok").any()), done
    assert "failed" not in set(trials["status"])
    impossible, cut = struck[struck["how"] == "physics"], front[front["backend"] != "none"]
    measured, spared, every = (
        {*zip(table["point"], table["backend"], strict=True)} for table in (trials, impossible, cut)
    )
    assert spared - measured == every - measured
    if spared:
        assert set(front["settled"]) >= {"physics", "measured"}
    (session,) = json.loads((run / "manifest.json").read_text())["sessions"]
    assert session["profiling_s"] > 0
    (profile,) = (run / "profiles").iterdir()
    is_whole(read(profile), int(trials["point"].max()))

    again = short.measured("run", "--resume", str(run), *model, "--figures", "none")
    rows = pd.read_csv(run / "trials.csv")
    assert again.code == int((rows["status"] != "ok").any()), again
    assert len(rows) == len(trials)


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

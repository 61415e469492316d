"""`profile` and `run --search` for real, small: kept and used again, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pandas as pd
import pytest

from analysis import model_profile
from pareto import backend_costs, model_profiles
from tests.less_than_root import needs_networks
from tests.program import LENIENT, command, pareto
from tests.unit.simulated.worlds import MODEL, POINTS

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    needs_networks,
    pytest.mark.usefixtures("nothing_left"),
]


def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a model profile made of few runs."""
    monkeypatch.setattr(model_profiles, "SECONDS", 0.1)
    monkeypatch.setattr(model_profiles, "RUNS", 8)
    monkeypatch.setattr(backend_costs, "PAYLOADS", 4)
    monkeypatch.setattr(backend_costs, "USUAL_BYTES", 100_000)
    monkeypatch.setattr(backend_costs, "ROUNDS", 2)
    monkeypatch.setattr(backend_costs, "STREAM_ROUNDS", 1)


def test_a_chain_is_profiled_and_not_a_second_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    out, trace = tmp_path / "kept", tmp_path / "trace.json"
    typed = ("profile", MODEL, "--hosts", "3", "--batch-size", "1,2", "--out", str(out))
    done = command(*typed, "--trace", str(trace))
    assert done.code == 0, done
    (folder,) = out.iterdir()
    assert (folder / "units.pdf").exists()
    assert (folder / "roofline.png").exists()
    made = model_profile.read(folder)
    assert made.roles == ("edge", "middle1", "server")
    assert made.batch_sizes == (1, 2)
    for times in made.times:
        assert len(times.median_s) == POINTS - 1
        assert (times.median_s > 0).all()
        assert (times.least_s <= times.median_s * 1.001).all()
        assert times.outside_s > 0
        assert made.hosts[times.role]["peak_flops"] > 1e8
        assert made.hosts[times.role]["peak_bytes_s"] > 1e7
    costs = {(cost.link, cost.backend): cost for cost in made.backends}
    links = ("edge-middle1", "middle1-server")
    assert costs.keys() == {(link, backend) for link in links for backend in ("tcp", "rpc")}
    assert all(cost.fixed_s > 0 for cost in costs.values())
    rows = [event for event in json.loads(trace.read_text())["traceEvents"] if event["name"] == "thread_name"]
    assert len(rows) == len(made.times)

    again = command(*typed)
    assert again.code == 0, again
    assert "is used" in again.out
    assert model_profile.read(folder).made_at == made.made_at


def test_a_search_profiles_the_model_on_its_own_testbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 10 Mbit/s physics strikes off cuts of SqueezeNet, whose early tensors are larger than its image."""
    quick(monkeypatch)
    job = ("--model", "squeezenet1_1", "--netem", "20ms-10mbit", "--trials", "1", "--quick", "--search")
    done = command("run", *job, "--figures", "none", *LENIENT, "--out", str(tmp_path))
    (run,) = (path.parent for path in tmp_path.glob("*/trials.csv"))
    trials, struck, front = (pd.read_csv(run / f"{table}.csv") for table in ("trials", "struck", "front"))
    assert done.code == int((trials["status"] != "ok").any()), done
    assert "failed" not in set(trials["status"])
    impossible, cut = struck[struck["how"] == "physics"], front.dropna(subset="backend")
    disturbed = trials[trials["status"] != "ok"]  # no figure of its own keeps physics from striking it, too
    measured, unknown, spared, every = (
        {*zip(table["point"], table["backend"], strict=True)}
        for table in (trials, disturbed, impossible, cut)
    )
    assert spared - unknown
    assert spared - unknown == every - measured
    assert set(front["settled"]) >= {"physics", "measured"}
    (session,) = json.loads((run / "manifest.json").read_text())["sessions"]
    assert session["profiling_s"] > 0
    (profile,) = (run / "profiles").iterdir()
    assert model_profile.read(profile).roles == ("edge", "server")

    again = command("run", "--resume", str(run), "--figures", "none")
    assert again.code == done.code, again
    assert len(pd.read_csv(run / "trials.csv")) == len(trials)


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(("profile", "squeezenet1_1"), marks=pytest.mark.deep),
        ("run", "--model", "squeezenet1_1", "--search"),
    ],
)
def test_ctrl_c_leaves_no_profile(tmp_path: Path, job: tuple[str, ...]) -> None:
    process = pareto(*job, "--out", str(tmp_path / "kept"))
    assert process.stdout is not None
    assert any("its model profile takes" in line for line in process.stdout)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert not [*tmp_path.glob("**/*.csv")]

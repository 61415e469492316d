"""`partitions --times` and `run --search` for real, small: kept and used again, and nothing left behind."""

from __future__ import annotations

import itertools
import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from pareto.analysis.model_profile import ModelProfile, read
from pareto.predict import backend_costs, model_profiles, model_times
from tests.integration import short
from tests.less_than_root import needs_networks
from tests.program import LENIENT, command, pareto
from tests.unit.simulated.worlds import MODEL, POINTS

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    needs_networks,
    pytest.mark.usefixtures("nothing_left"),
]

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


def is_whole(made: ModelProfile, roles: tuple[str, ...], units: int, *, with_best: bool = True) -> None:
    """Each device has its times, and each link its backends; with care, what each device reaches at best."""
    assert made.roles == roles
    for times in made.times:
        assert len(times.median_s) == units
        assert (times.median_s > 0).all() and (times.least_s <= times.median_s * 1.001).all()
        assert times.outside_s > 0
        best = made.hosts[times.role].get("peak_flops"), made.hosts[times.role].get("peak_bytes_s")
        assert (min(best) > 1e7) if with_best else best == (None, None)
    costs = {(cost.link, cost.backend): cost for cost in made.backends}
    assert costs.keys() == set(itertools.product(map("-".join, itertools.pairwise(roles)), ("tcp", "rpc")))
    assert all(cost.fixed_s > 0 for cost in costs.values())


@pytest.mark.deep
def test_a_chain_is_profiled_and_not_a_second_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    out, trace = tmp_path / "kept", tmp_path / "trace.json"
    typed = ("partitions", MODEL, "--times", "--hosts", "3", "--batch-size", "1,2", "--out", str(out))
    done = command(*typed, "--trace", str(trace))
    assert done.code == 0, done
    (folder,) = (out / "profiles").iterdir()
    assert (folder / "profile.csv").exists()
    made = read(folder)
    assert made.batch_sizes == (1, 2)
    is_whole(made, ("edge", "middle1", "server"), POINTS - 1)
    rows = [event for event in json.loads(trace.read_text())["traceEvents"] if event["name"] == "thread_name"]
    assert len(rows) == len(made.times)

    again = command(*typed)
    assert again.code == 0, again
    assert "is used" in again.out
    assert read(folder).made_at == made.made_at


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
    is_whole(read(profile), ("edge", "server"), int(trials["point"].max()), with_best=False)

    again = short.measured("run", "--resume", str(run), *model, "--figures", "none")
    rows = pd.read_csv(run / "trials.csv")
    assert again.code == int((rows["status"] != "ok").any()), again
    assert len(rows) == len(trials)


@pytest.mark.deep
@pytest.mark.parametrize(
    "job", [("partitions", "squeezenet1_1", "--times"), ("run", "--model", "squeezenet1_1", "--search")]
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

"""The highest rate that holds an SLO: how it is bracketed, and that theory's answer is found in a simulation; and a run
with loads there, from the command line to what its report concludes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto import analysis
from pareto.analysis.fronts import load
from pareto.analysis.statistics.doubt import cures
from pareto.analysis.tables.load import load_tables
from pareto.driver.rates import BEYOND, LEAST, MOST_FAULTS, MOST_STEPS, WITHIN, next_rate
from pareto.sweep.load import LATE
from tests.program import command, well
from tests.unit.simulated.worlds import HOSTS, MODEL, STILL

JOB = f"--model {MODEL} --input float32 --netem 10ms-50mbit --backend tcp --figures none".split()
LIMIT_S, STAGE_S = 0.3, 0.0709


@pytest.mark.parametrize("first", [0.3, 0.8, 3.0])
@pytest.mark.parametrize("highest", [0.1, 0.33, 0.7, 0.99, 1.2])
def test_the_search_ends_with_the_highest_rate_between_two(highest: float, first: float) -> None:
    """highest, first: as shares of what the closed loop does."""
    closed = 17.3
    tried: list[tuple[float, str]] = []
    rate: float | None = first * closed
    while rate is not None:
        tried.append((rate, "yes" if rate <= highest * closed else "no" if len(tried) % 2 else "open"))
        rate = next_rate(tried, closed)
    held = max(rate for rate, holds in tried if holds == "yes")
    refused = min((rate for rate, holds in tried if holds != "yes"), default=math.inf)
    assert held <= highest * closed < refused and len(tried) <= MOST_STEPS
    assert refused <= held * (1 + WITHIN) or held >= BEYOND * closed / (1 + WITHIN) - 1e-9


def test_the_search_ends_where_nothing_holds_or_nothing_is_known() -> None:
    tried = [(LEAST * 1.9, "no")]
    assert next_rate(tried, 1.0) is None, "half of it is less than is looked for"
    assert next_rate([(1.0, "")] * MOST_FAULTS, 1.0) is None
    assert next_rate([(1.0, "")], 1.0) == 0.8, "a trial that tells nothing is done again"
    assert next_rate([(1.0, "")], 0.0) is None, "a first trial that failed"
    assert next_rate([(0.3, ""), (1.0, "no")], 1.0) == 0.5, "what tells nothing does not hold"


def bearable(by_chance: bool, service_s: np.ndarray) -> float:
    """The rate at which 5 % of the requests take longer than the limit, by Lindley's recursion."""
    low, high = 1.0, 1 / float(service_s.mean())
    periods = (
        np.random.default_rng(1).exponential(size=len(service_s)) if by_chance else np.ones(len(service_s))
    )
    for _ in range(10):
        rate = (low + high) / 2
        waited_s, over = 0.0, 0
        for gap_s, took_s in zip(periods / rate, service_s, strict=True):
            over += waited_s + took_s > LIMIT_S
            waited_s = max(0.0, waited_s + took_s - gap_s)
        low, high = (rate, high) if over <= 0.05 * len(service_s) else (low, rate)
    return low


@pytest.mark.parametrize(
    ("kind", "noise", "spread"),
    [("constant", STILL, 0.0), ("poisson", STILL, 0.0), ("poisson", {**STILL, "request": 0.3}, 0.3)],
    ids=["D/D/1", "M/D/1", "M/G/1"],
)
def test_a_queue_of_one_server_bears_what_theory_says(
    tmp_path: Path, kind: str, noise: dict[str, object], spread: float, snapshot: SnapshotAssertion
) -> None:
    (tmp_path / "world.json").write_text(json.dumps({"hosts": HOSTS, "noise": noise}))
    bed, points = f"simulated:{tmp_path / 'world.json'}", ("--points", "output", "--only")
    objective = ("--slo", f"p95 < {LIMIT_S}s", "--find-rate", kind, "--queue", "1000", "--requests", "3000")
    well(*JOB, *objective, *points, "--testbed", bed, "--out", str(tmp_path / "out"))
    (run,) = (tmp_path / "out").iterdir()
    (row,) = pd.read_csv(run / "rates.csv").to_dict("records")
    draws = np.random.default_rng(0)
    service_s = STAGE_S * np.maximum(0.05, 1 + spread * draws.standard_normal(40_000))
    expected = bearable(kind == "poisson", service_s)
    assert row["sustained_ips"] <= 1.05 * expected and row["refused_ips"] >= 0.9 * expected
    assert row["refused_ips"] <= (1 + WITHIN) * row["sustained_ips"] + 1e-9
    done = command("report", str(run), "--figures", "none")
    table = done.out[done.out.index("Highest rate") :]
    assert table[: table.index("holds to =")] == snapshot
    trials = analysis.load(run)
    assert load.loads(trials, [run]).empty and trials["round"].nunique() == row["rounds"] == len(trials)
    assert list(load.rate_sentences(load.sustained(trials))) == snapshot(name="sentence")


def test_a_search_that_was_interrupted_ends_as_one_that_never_was(tmp_path: Path) -> None:
    objective = ("--slo", "p95 < 0.3s", "--find-rate", "constant", "--points", "0,output", "--only")
    well(*JOB, *objective, "--testbed", "simulated", "--quick", "--out", str(tmp_path))
    (run,) = tmp_path.iterdir()
    whole = (run / "rates.csv").read_bytes()
    rows = (run / "trials.csv").read_text().splitlines(keepends=True)
    (run / "trials.csv").write_text("".join(rows[: len(rows) // 2]))
    well("--resume", str(run), "--model", MODEL, "--figures", "none")
    assert (run / "rates.csv").read_bytes() == whole
    assert len((run / "trials.csv").read_text().splitlines()) == len(rows)


def test_a_figure_draws_the_latency_over_what_arrives(tmp_path: Path) -> None:
    objective = ("--slo", "p95 < 0.3s", "--find-rate", "constant", "--points", "0,output", "--only")
    well(*JOB, *objective, "--testbed", "simulated", "--quick", "--out", str(tmp_path))
    (run,) = tmp_path.iterdir()
    well("report", str(run), "--figures", "all")
    (data,) = (run / "figures").glob("load-*.csv")
    rows, trials = pd.read_csv(data), pd.read_csv(run / "trials.csv")
    assert set(rows["point"]) == {0, 7} and len(rows) <= len(trials)
    drawn = rows.merge(trials, on=["point", "offered_ips"], suffixes=("", "_2"))
    assert drawn["latency_s"].tolist() == drawn["load_latency_p95_s"].tolist() and len(drawn) == len(rows)
    front = command("report", str(run), "--objectives", "latency,sustained-rate", "--figures", "none")
    assert front.code == 0 and "front of latency, sustained-rate" in " ".join(front.out.split())


# A run with loads

LOADS = (
    "--slo",
    "p95 < 150ms",
    *["--trials", "3", "--load", "none,7/s,poisson:13/s,poisson:40/s", "--queue", "20"],
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("loads")
    (folder / "world.json").write_text(json.dumps({"hosts": HOSTS, "noise": STILL}))
    bed = f"simulated:{folder / 'world.json'}"
    well(*JOB, *LOADS, "--testbed", bed, "--out", str(folder / "out"))
    (made,) = (folder / "out").iterdir()
    yield made


def test_the_rows_of_loads_say_whether_the_slo_holds(run: Path) -> None:
    """The whole model takes 71 ms on the edge: it keeps up with 13 a second, and with 40 nothing does."""
    rows = pd.read_csv(run / "loads.csv", keep_default_na=False).query("point == 7")
    found = dict(zip(rows["load"], rows["holds"], strict=True))
    assert found == {"7/s": "yes", "poisson:13/s": "no", "poisson:40/s": "no"}
    assert rows.set_index("load")["unstable_rounds"]["poisson:40/s"] == 3
    trials = pd.read_csv(run / "trials.csv")
    assert trials.loc[trials["load"] == "none", "load_requests"].isna().all()
    assert trials["load_fault"].isna().all() and (trials["status"] == "ok").all()
    arrived = trials[trials["load"] != "none"].groupby(["load", "round"])["offered_ips"].nunique()
    assert (arrived == 1).all(), "all cells of a round meet the same arrivals"


def test_the_report_says_it_in_a_table_an_answer_and_a_doubt(run: Path, snapshot: SnapshotAssertion) -> None:
    done = command("report", str(run), "--figures", "none")
    trials = analysis.load(run)
    rows = load.loads(trials, [run])
    (table,) = load_tables(rows, load.sustained(trials))
    assert table.title in done.out
    found = list(load.doubts(trials))
    assert [*load.sentences(rows), *map(str, found), cures(found)] == snapshot
    assert done.out[done.out.index("Under load") : done.out.index("attention")] == snapshot(name="printed")
    assert "Under load" in (run / "report.md").read_text()
    assert not [*load.doubts(trials.drop(columns="load_fault"))]


def test_requests_that_arrive_late_are_a_doubt_and_no_figures() -> None:
    row = {
        "load": "7/s",
        "load_fault": f"{LATE}1 % of ...",
        "lateness_s": 0.02,
        "stability": None,
    }
    (doubt,) = load.doubts(pd.DataFrame([row, {**row, "load_fault": None, "lateness_s": 0.001}]))
    assert (doubt.head, "20 ms" in doubt.worst) == ("1 trial without figures under load", True)

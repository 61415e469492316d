"""A run with loads on the simulated testbed, from the command line to what its report concludes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto import analysis
from pareto.analysis.fronts import load
from pareto.analysis.statistics.doubt import cures
from pareto.analysis.tables.load import load_tables
from pareto.sweep.load import LATE
from tests.program import command, well
from tests.unit.simulated.worlds import HOSTS, MODEL, STILL

SLO = "p95 < 150ms"
JOB = ("--model", MODEL, "--input", "float32", "--netem", "10ms-50mbit", "--backend", "tcp", "--trials", "3")
LOADS = ("--load", "none,7/s,poisson:13/s,poisson:40/s", "--slo", SLO, "--queue", "20")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("loads")
    (folder / "world.json").write_text(json.dumps({"hosts": HOSTS, "noise": STILL}))
    bed = f"simulated:{folder / 'world.json'}"
    well(*JOB, *LOADS, "--testbed", bed, "--figures", "none", "--out", str(folder / "out"))
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

"""Trials of several testbeds: what is compared within each of them, and how far they are apart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis import as_json
from pareto.analysis.comparing.paired import paired
from pareto.analysis.findings import Options
from pareto.analysis.fronts.draws import prepared
from pareto.analysis.fronts.front import front
from pareto.analysis.fronts.objectives import DEFAULT
from pareto.analysis.reporting import report
from pareto.analysis.runs.load import load
from pareto.analysis.runs.points import round_of
from pareto.analysis.statistics.noise import levels
from pareto.analysis.statistics.stability import drifts
from pareto.analysis.statistics.testbeds import differences, sentences
from tests.unit.example_run import trials, write

TIMES = ("latency_s", "edge_s", "network_s", "server_s", "latency_bound_s")


def on_testbeds(
    folder: Path, slower: Sequence[float], *, rounds: int = 6, noise: float = 0.01, **fixed: Any
) -> pd.DataFrame:
    """Trials whose rounds go round several testbeds, each slower by a factor in all that it does."""
    rows = trials(rounds=rounds, noise=noise, **fixed)
    for row in rows:
        factor = slower[row["round"] % len(slower)]
        row["testbed"] = f"lab{row['round'] % len(slower) + 1}"
        row |= {name: row[name] * factor for name in TIMES if row[name] != ""}
        row["throughput_ips"] /= factor
    return load(write(folder, rows))


def test_nothing_is_compared_across_testbeds(tmp_path: Path) -> None:
    """A lost testbed measured what has tcp in the first round; another one, twice as slow, the rest of it."""
    rows = trials(rounds=6, noise=0.0)
    for row in rows:
        if row["round"] == 0 and row["backend"] == "rpc":
            row |= {"testbed": "slow", "latency_s": 2 * row["latency_s"]}
    frame = load(write(tmp_path, rows))
    of_all = paired(frame).query("point == 'all'").iloc[0]
    whole = paired(frame[frame["round"] > 0]).query("point == 'all'").iloc[0]
    assert of_all["rounds"] == whole["rounds"] == 5
    assert of_all["latency_difference_percent"] == whole["latency_difference_percent"]
    assert round_of(frame).nunique() == 7


def test_a_slower_testbed_moves_no_point(tmp_path: Path) -> None:
    """Also where one cell was measured on the faster testbed alone, whose median is less for it."""
    alike = on_testbeds(tmp_path / "alike", [1.0, 1.0])
    apart = on_testbeds(tmp_path / "apart", [1.0, 1.15])
    lost = (alike["testbed"] == "lab2") & (alike["point"] == "9") & (alike["backend"] == "rpc")
    was, now = front(alike[~lost]), front(apart[~lost])
    assert now["on_front"].tolist() == was["on_front"].tolist()
    np.testing.assert_allclose(now["probability_all"], was["probability_all"], atol=0.1)
    columns = ["latency_difference_percent", "latency_low_percent", "latency_high_percent"]
    np.testing.assert_allclose(paired(apart)[columns], paired(alike)[columns], atol=1e-6)


def test_a_change_of_testbed_is_no_drift(tmp_path: Path) -> None:
    rows = trials(rounds=8, noise=0.01)
    for row in (row for row in rows if row["round"] >= 4):
        row |= {"testbed": "slow", "latency_s": 1.15 * row["latency_s"]}
    assert drifts(load(write(tmp_path, rows)))["change_percent"].abs().max() < 5


def test_what_a_testbed_does_to_some_cells_alone_makes_the_front_less_sure(tmp_path: Path) -> None:
    """Two testbeds, on one of which some points take 6 % less, and others more: another one may turn the front over."""
    frame = on_testbeds(tmp_path, [1.0, 1.0], rounds=8, noise=0.002, backends=("tcp",))
    there = frame["testbed"] == "lab2"
    away = np.random.default_rng(3).normal(0, 0.06, frame["point"].nunique())
    factor = np.exp(away[pd.factorize(frame["point"])[0]] * there)
    frame["latency_s"] *= factor
    frame["throughput_ips"] /= factor
    (sure,) = prepared(frame.assign(testbed="lab1"), DEFAULT, "").draws
    (unsure,) = prepared(frame, DEFAULT, "").draws
    assert sure.floor.max() < 0.003
    assert unsure.floor == pytest.approx([0.06 / 2] * 2, rel=0.4), "of the mean of two, of which one is away"


def test_how_far_testbeds_are_apart_is_told(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    frame = differences(on_testbeds(tmp_path, [1.0, 1.14, 1.0], rounds=12))
    assert set(frame["rounds"]) == {4}
    slow = frame[frame["testbed"] == "lab2"].set_index("measure")["difference_percent"]
    assert slow.to_dict() == pytest.approx({"latency": 14, "throughput": -12.3}, abs=0.5)
    assert list(sentences(frame)) == snapshot
    assert differences(on_testbeds(tmp_path / "alone", [1.0])).empty


def test_the_spread_between_testbeds_is_a_level_of_its_own(tmp_path: Path) -> None:
    of = {level.name: level.variance for level in levels(on_testbeds(tmp_path, [1.0, 1.15]), np.nan, np.nan)}
    assert of["testbeds"] == pytest.approx(np.log(1.15) ** 2 / 2, rel=0.05)
    assert of["rounds"] < 0.02**2
    assert np.isnan(of["runs"])


def test_a_report_shows_the_testbeds_of_a_run(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    on_testbeds(tmp_path, [1.0, 1.14, 1.0], rounds=9)
    server = {"hostname": "gpu", "cpu": "EPYC", "cuda": "H100"}
    hosts = {
        f"lab{n}": {"edge": {"hostname": f"pi{n}<b>", "cpu": "A76"}, "server": server} for n in (1, 2, 3)
    }
    sessions = [{"testbed_name": name, "hosts": of} for name, of in hosts.items()]
    (tmp_path / "manifest.json").write_text(json.dumps({"testbed": "; ".join(hosts), "sessions": sessions}))
    found = report([tmp_path], options=Options(figures="none"))
    assert [line for line in found.warnings if line.startswith("testbeds: ")]
    assert pd.read_csv(tmp_path / "testbeds.csv")["testbed"].tolist() == [*hosts] * 2
    text, html = ((tmp_path / f"report.{form}").read_text() for form in ("md", "html"))
    assert text.partition("## Testbeds")[2].partition("##")[0] == snapshot
    assert "pi2&lt;b&gt;" in html
    assert "3 testbeds" in html
    assert [row["testbed"] for row in as_json.plain(as_json.of_report(found, tmp_path))["testbeds"]]

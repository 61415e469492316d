"""How much runs, starts, rounds, requests and testbeds vary, so that two names of one thing are not told apart."""

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
from pareto.analysis.comparing.paired import ALL, paired
from pareto.analysis.findings import Options
from pareto.analysis.fronts.draws import prepared
from pareto.analysis.fronts.front import front
from pareto.analysis.fronts.objectives import DEFAULT
from pareto.analysis.reporting import report
from pareto.analysis.runs.load import load
from pareto.analysis.runs.points import round_of
from pareto.analysis.statistics.noise import floor_sentences, floors, levels, spread_of, spread_sentences
from pareto.analysis.statistics.stability import drifts
from pareto.analysis.statistics.testbeds import differences, sentences
from tests.unit.example_run import trials as example
from tests.unit.example_run import write
from tests.unit.simulated_rounds import trials

AA = ("tcp:a", "tcp:b")


def run(
    seed: int, *, offset: float, noise: float = 0.02, rounds: int = 6, points: int = 8, names: tuple[str, ...] = AA
) -> pd.DataFrame:  # fmt: skip
    """Points that trade latency for throughput, under two names: an offset of its own for each cell in all rounds."""
    rng = np.random.default_rng(seed)
    along, cells = np.repeat(np.linspace(0, 1, points), 2), 2 * points
    logs = [
        along + sum(size * rng.standard_normal(of) for size, of in parts)
        for parts in [((offset, (1, 1, cells)), (0.05, (1, rounds, 1)), (noise, (1, rounds, cells)))] * 2
    ]
    return trials(*np.exp(logs), names).assign(payload_bytes=1000.0, latency_bound_s=0.1)


KEY = ("m", "eager", "0", "tuned", "")


def test_the_floor_is_what_was_put_in(snapshot: SnapshotAssertion) -> None:
    for offset in (0.0, 0.05):
        found = [floors(run(seed, offset=offset, points=40))[KEY] for seed in range(4)]
        assert {floor.comparisons for floor in found} == {40}
        shares = np.array([list(floor.shares.values()) for floor in found])
        assert np.sqrt((shares**2).mean(axis=0)) == pytest.approx([offset, offset], abs=0.005)
    texts = [list(floor_sentences(floors(run(1, offset=offset)))) for offset in (0.05, 0.0)]
    assert texts == snapshot


def test_where_nothing_crosses_every_backend_is_a_control_and_elsewhere_none() -> None:
    data = run(0, offset=0.03, names=("tcp", "rpc"))
    assert floors(data) == {}
    data.loc[data["point"] == "7", "payload_bytes"] = 0
    assert floors(data)[KEY].comparisons == 1
    assert floors(data.iloc[:0]) == {}


def test_two_names_of_one_thing_are_not_told_apart_on_a_front() -> None:
    """The issue's run had p 0.95 and 0.13 of one point under two names."""
    apart = []
    for seed in range(3):
        rows = front(run(seed, offset=0.03)).pivot(index="point", columns="backend", values="probability_all")
        apart.append((rows["tcp:a"] - rows["tcp:b"]).abs().max())
    assert np.nanmax(apart) < 0.75 and np.nanmedian(apart) < 0.5


def test_no_verdict_on_what_identical_treatments_differ_by() -> None:
    """An offset of 3 % would be significant in 12 rounds of 1 % noise, and means nothing."""
    p_values, seen = [], 0
    for seed in range(4):
        rows = paired(run(seed, offset=0.03, noise=0.01, rounds=12))
        p_values.append(rows["latency_p_corrected"].min())
        seen += int(rows["latency_significant"].sum())
        of_all = rows[rows["point"] == ALL].iloc[0]
        assert of_all["latency_low_s"] < 0 < of_all["latency_high_s"]
    assert min(p_values) <= 0.05, "which rounds alone would say"
    assert seen <= 1
    data = run(0, offset=0.03, noise=0.01, rounds=12, names=("tcp", "rpc"))
    data.loc[data["point"] == "7", "payload_bytes"] = 0
    data.loc[(data["backend"] == "rpc") & (data["payload_bytes"] > 0), "latency_s"] *= 1.5
    assert paired(data)["latency_significant"].any(), "what is far beyond the floor is told"


def measured(
    runs: int, starts: int, rounds: int, spreads: tuple[float, ...] = (0.1, 0.1, 0.1), seed: int = 0
) -> pd.DataFrame:
    """40 cells of so many rounds for each start, so many starts in each run; spreads: of runs, starts, rounds."""
    rng = np.random.default_rng(seed)
    parts = ((runs, 1, 1, 40), (runs, starts, 1, 40), (runs, starts, rounds, 40))
    logs = sum(spread * rng.standard_normal(of) for spread, of in zip(spreads, parts, strict=True))
    latency = np.exp(logs).reshape(1, -1, 40)
    data = trials(latency, np.ones_like(latency))
    number = data["round"].to_numpy()
    run = [f"run {n}" for n in number // (starts * rounds)]
    return data.assign(run=run, restart=1.0 + number // rounds % starts)


def test_each_level_is_what_was_put_in() -> None:
    found = levels(measured(4, 3, 4, (0.05, 0.1, 0.2)), 0.08, 1000)
    assert [level.name for level in found] == ["runs", "starts of the workers", "rounds", "requests"]
    spreads = np.sqrt([level.variance for level in found])
    assert spreads == pytest.approx([0.05, 0.1, 0.2, 0.08**0.5], rel=0.25)
    alone = levels(measured(1, 1, 6, (0, 0, 0.1)), 0.04, 10)
    assert alone[2].variance == pytest.approx(0.1**2 - np.pi / 2 * 0.004, rel=0.3), (
        "less what few requests make of it"
    )


@pytest.mark.parametrize(
    ("shape", "unknown"),
    [
        ((1, 1, 6), ["runs", "starts of the workers"]),
        ((1, 6, 1), ["runs", "starts of the workers", "rounds"]),
        ((3, 1, 4), ["starts of the workers"]),
        ((2, 2, 2), []),
    ],
)
def test_what_cannot_be_told_is_said(shape: tuple[int, int, int], unknown: list[str]) -> None:
    found = levels(measured(*shape), 0.01, 50)
    assert [level.name for level in found if np.isnan(level.variance)] == unknown
    assert [level.name for level in found if level.why] == unknown


def test_runs_that_differ_as_a_whole_make_probabilities_less_sure() -> None:
    """Two runs of 20 rounds each: rounds alone would be sure of what another day turns round."""
    rng = np.random.default_rng(3)
    logs = rng.normal(0, 0.1, (2, 1, 30, 1)) + rng.normal(0, 0.01, (2, 20, 30, 1))
    run = np.repeat([0, 1], 20)
    assert spread_of(logs.reshape(40, 30, 1), run) == pytest.approx(0.1 / np.sqrt(2), rel=0.3)
    assert spread_of(logs.reshape(40, 30, 1), np.zeros(40, dtype=int)) == 0
    sure = []
    for spread in (0.0, 0.05):
        data = measured(2, 1, 10, (spread, 0, 0.02), seed=5)
        data["throughput_ips"] = 1 / data["latency_s"]
        p = front(data)["probability"]
        sure.append(p.max())
    assert sure[1] < 0.9 * sure[0]


def test_the_spread_is_told(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    run = write(tmp_path / "run", [row | {"restart": 1 + row["round"] // 2} for row in example(rounds=6)])
    once = write(tmp_path / "once", example(rounds=4))
    assert [list(spread_sentences(load([each]), [each])) for each in (run, once)] == snapshot


TIMES = ("latency_s", "edge_s", "network_s", "server_s", "latency_bound_s")


def on_testbeds(
    folder: Path, slower: Sequence[float], *, rounds: int = 6, noise: float = 0.01, **fixed: Any
) -> pd.DataFrame:
    """Trials whose rounds go round several testbeds, each slower by a factor in all that it does."""
    rows = example(rounds=rounds, noise=noise, **fixed)
    for row in rows:
        factor = slower[row["round"] % len(slower)]
        row["testbed"] = f"lab{row['round'] % len(slower) + 1}"
        row |= {name: row[name] * factor for name in TIMES if row[name] != ""}
        row["throughput_ips"] /= factor
    return load(write(folder, rows))


def test_nothing_is_compared_across_testbeds(tmp_path: Path) -> None:
    """A lost testbed measured what has tcp in the first round; another one, twice as slow, the rest of it."""
    rows = example(rounds=6, noise=0.0)
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
    rows = example(rounds=8, noise=0.01)
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
    (sure,) = prepared(frame.assign(testbed="lab1"), DEFAULT, "")[1]
    (unsure,) = prepared(frame, DEFAULT, "")[1]
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

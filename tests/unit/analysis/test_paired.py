"""Backends against each other in one run: a difference that was put in is found, and none where there is none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.comparing.paired import ALL, COLUMNS, paired
from pareto.analysis.comparing.sentences import verdicts
from pareto.analysis.runs.load import load
from pareto.analysis.statistics.noise import Floor
from pareto.analysis.statistics.samples import interval
from tests.unit import example_codecs, example_engines
from tests.unit.example_run import PAYLOAD_KIB, trials, write

AA = ("tcp:a", "tcp:b")
CROSSING = len(PAYLOAD_KIB) - 1


def measured(
    backends: Sequence[str] = ("tcp", "rpc"),
    *,
    rounds: int = 3,
    later_s: float = 0.0,
    slower: float = 0.0,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Trials whose rounds drift by half, with noise of 1 % of the network; the second backend is `later_s` later, and
    has fewer images/s by the share `slower`, where something crosses."""
    rng = np.random.default_rng(seed)
    rows = trials(rounds=rounds, backends=("tcp",), noise=0)
    drift = rng.uniform(1, 1.5, rounds)
    made = []
    for row in rows:
        crosses = bool(row["payload_bytes"])
        for place, backend in enumerate(backends):
            late_s = later_s if place and crosses else 0.0
            latency_s = row["latency_s"] * drift[row["round"]] * rng.normal(1, 0.01) + late_s
            throughput_ips = row["throughput_ips"] * rng.normal(1, 0.01) * (1 - place * slower * crosses)
            made.append(row | {"backend": backend, "latency_s": latency_s, "throughput_ips": throughput_ips})
    return made


def compared(folder: Path, rows: list[dict[str, Any]]) -> pd.DataFrame:
    return paired(load([write(folder, rows)]))


def over_all(rows: pd.DataFrame) -> dict[Any, Any]:
    (row,) = rows[rows["point"] == ALL].to_dict("records")
    return row


@pytest.mark.parametrize(("rounds", "over", "later_s"), [(3, "points", 0.05), (8, "rounds", -0.05)])
def test_a_shift_is_found_with_its_sign(tmp_path: Path, rounds: int, over: str, later_s: float) -> None:
    rows = compared(tmp_path, measured(rounds=rounds, later_s=later_s, slower=0.05))
    row = over_all(rows)
    assert (row["first"], row["other"]) == ("tcp", "rpc")
    assert row["interval_over"] == over
    assert row["latency_low_s"] < later_s < row["latency_high_s"]
    assert np.sign(row["latency_low_s"]) == np.sign(row["latency_high_s"]) == np.sign(later_s)
    assert np.sign(row["latency_difference_percent"]) == np.sign(later_s)
    assert row["throughput_low_percent"] < -5 < row["throughput_high_percent"] < 0
    assert (row["points"], row["rounds"], row["pairs"]) == (CROSSING, rounds, CROSSING * rounds)
    assert row["first_faster"] + row["other_faster"] == CROSSING
    assert (row["first_faster"] > row["other_faster"]) == (later_s > 0)
    (text,) = verdicts(rows)
    assert ("longer" in text) == (later_s > 0) != ("shorter" in text)
    assert ("by the points" in text) == (over == "points")
    assert f"21 points x {rounds} rounds" in text


def test_each_point_by_its_rounds(tmp_path: Path) -> None:
    # Without pairs, a drift by half would hide a shift of 5 %.
    rows = compared(tmp_path, measured(rounds=6, later_s=0.03))
    assert over_all(rows)["latency_low_s"] > 0.01
    points = rows[rows["point"] != ALL]
    assert points["point"].tolist() == [str(point) for point in range(len(PAYLOAD_KIB) - 1)]
    assert points["pairs"].eq(6).all()
    assert points["latency_low_s"].le(points["latency_difference_s"]).all()
    assert points["latency_difference_s"].le(points["latency_high_s"]).all()
    latencies = load(tmp_path).set_index(["backend", "point", "round"])["latency_s"].sort_index()
    ends = points.set_index("point").loc["3", ["latency_low_s", "latency_high_s"]].to_numpy(dtype=float)
    assert ends == pytest.approx(interval(latencies["rpc", "3"] - latencies["tcp", "3"]))
    few = compared(tmp_path / "few", measured(rounds=5))
    points = few[few["point"] != ALL]
    assert points[["latency_low_s", "throughput_high_percent"]].isna().all(axis=None)
    assert points["note"].eq("too few rounds").all()
    assert points["latency_difference_s"].notna().all()


def test_rounds_that_are_missing_or_invalid_have_no_pair(tmp_path: Path) -> None:
    rows = measured(rounds=7)
    clean = compared(
        tmp_path / "clean",
        [row for row in rows if not (row["backend"] == "rpc" and row["point"] == 3 and row["round"] == 2)],
    )
    for row in rows:
        if row["backend"] == "rpc" and row["point"] == 3 and row["round"] == 2:
            row |= {"status": "invalid", "latency_s": 99.0, "throughput_ips": 1e9, "reason": "link off"}
    marked = compared(tmp_path / "marked", rows)
    pd.testing.assert_frame_equal(marked, clean)
    assert marked.set_index("point").loc["3", "pairs"] == 6
    assert over_all(marked)["pairs"] == 21 * 7 - 1
    (text,) = verdicts(marked)
    assert "146 pairs at 21 points" in text


def test_what_has_no_pair(tmp_path: Path) -> None:
    assert compared(tmp_path / "one", measured(("tcp",))).empty
    assert paired(load(write(tmp_path / "nothing", []))).empty
    rows = measured(later_s=0.05)
    single = over_all(compared(tmp_path / "few", [row for row in rows if row["point"] == 3]))
    assert (single["points"], single["pairs"], single["note"]) == (1, 3, "too few rounds")
    assert math.isnan(single["latency_low_s"])
    for row in rows:
        if not row["payload_bytes"] and row["backend"] == "rpc":
            row["latency_s"] += 9
    found = compared(tmp_path / "edge", rows)
    assert "21" not in set(found["point"]), "it stays on the edge"
    assert over_all(found)["points"] == CROSSING
    alone = compared(tmp_path / "alone", [row for row in rows if not row["payload_bytes"]])
    assert alone["point"].tolist() == [ALL]
    assert over_all(alone)["pairs"] == 0


def test_three_backends_make_three_pairs_and_depths_are_apart(tmp_path: Path) -> None:
    rows = measured(("rpc", *AA))
    rows += [row | {"in_flight_asked": "4"} for row in rows]
    found = compared(tmp_path, rows)
    pairs = found.loc[found["point"] == ALL, ["in_flight_asked", "first", "other"]].to_numpy().tolist()
    assert pairs == [
        [depth, *pair]
        for depth in ("4", "auto")
        for pair in (("tcp:a", "tcp:b"), ("tcp:a", "rpc"), ("tcp:b", "rpc"))
    ]


def points_of(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["point"] != ALL].set_index("point")


def test_one_latency_of_a_condition_is_tested_and_it_favours_no_side(tmp_path: Path) -> None:
    rows = measured(rounds=12, later_s=0.05, slower=0.05)
    points = points_of(compared(tmp_path, rows))
    (best,) = points.index[points["tested"]]
    both = pd.DataFrame(rows).groupby("point")["latency_s"].median()
    assert int(best) == both.drop(CROSSING).idxmin(), "where both together take least"
    assert points.index[points["latency_p_value"].notna()].tolist() == [best]
    assert points.index[points["latency_significant"]].tolist() == [best]
    assert points["tests"].eq(1).all()
    assert points["rounds_needed"].eq(6).all(), "as many as an interval"
    for row in rows:
        row["backend"] = {"tcp": "rpc", "rpc": "tcp"}[row["backend"]]
    swapped = points_of(compared(tmp_path / "swapped", rows))
    assert swapped.index[swapped["tested"]].tolist() == [best]
    assert swapped["latency_p_value"][best] == points["latency_p_value"][best]


@pytest.mark.parametrize("runs", [4, pytest.param(20, marks=pytest.mark.deep)])
def test_backends_alike_are_seldom_told_apart(tmp_path: Path, runs: int) -> None:
    seen = 0
    for seed in range(runs):
        rows = compared(tmp_path / str(seed), measured(AA, rounds=12, seed=seed))
        seen += int(rows["latency_significant"].any())
    assert seen <= 0.15 * runs


def test_conditions_are_one_family(tmp_path: Path) -> None:
    rows = measured(rounds=12, later_s=0.05)
    one = compared(tmp_path / "one", rows)
    both = compared(tmp_path / "both", rows + [row | {"netem": "wifi"} for row in rows])
    assert both["tests"].eq(2).all()
    same = both[both["netem"] != "wifi"].reset_index(drop=True)
    pd.testing.assert_series_equal(same["latency_p_value"], one["latency_p_value"])
    assert same["latency_p_corrected"].min() == pytest.approx(2 * one["latency_p_corrected"].min(), rel=0.1)


def test_each_figure_has_its_own_number_of_pairs(tmp_path: Path) -> None:
    """An interval of six rounds never stands beside the number of those that have a throughput, too."""
    rows = measured(rounds=6, later_s=0.05)
    for row in rows:
        if row["round"] > 2:
            row["status"] = "latency only"
    points = points_of(compared(tmp_path, rows))
    assert (points["pairs"] == 6).all()
    assert points["throughput_pairs"].nunique() == 1
    assert (points["throughput_pairs"] < 6).all()
    assert points["latency_low_s"].notna().all()
    assert points["throughput_low_percent"].isna().all()
    # A trial that is repeated within a round is no round more.
    rows = [row for row in measured(rounds=6, later_s=0.5) if row["point"] == 3]
    once, twice = (points_of(compared(tmp_path / str(len(of)), of)) for of in (rows, rows + rows))
    assert twice["pairs"].tolist() == once["pairs"].tolist()
    assert twice["latency_p_value"].tolist() == once["latency_p_value"].tolist() == [2 / 2**6]


def coded(
    rounds: int = 12, *, faster: float = 0.7, codecs: Sequence[str] = ("none", "int8", "zstd")
) -> pd.DataFrame:
    """Trials of two backends whose rounds drift by half; with int8 a request takes 0.7 times as long, with zstd as long
    as without."""
    rng = np.random.default_rng(4)
    drift = rng.uniform(1, 1.5, rounds + 1)
    data = example_codecs.trials(codecs=("none",), rounds=rounds, noise=0, backends=("tcp", "rpc"))
    parts = [data]
    for codec in codecs:
        own = data[data["payload_bytes"] > 0].assign(codec=codec)
        share = faster if codec == "int8" else 1.0
        own["latency_s"] *= share * rng.normal(1, 0.005, len(own))
        own["throughput_ips"] /= share * rng.normal(1, 0.005, len(own))
        parts.append(own)
    every = pd.concat([data[data["payload_bytes"] == 0], *parts[1:]], ignore_index=True)
    every["latency_s"] *= drift[every["round"]]
    return every.assign(throughput_ips=every["throughput_ips"] / drift[every["round"]])


def test_codecs_are_compared_with_none_within_rounds(snapshot: SnapshotAssertion) -> None:
    rows = paired(coded(), "codec")
    assert list(rows) == COLUMNS["codec"]
    assert "codec" not in rows
    assert set(zip(rows["first"], rows["other"], rows["backend"], strict=True)) == {
        ("none", codec, backend) for codec in ("int8", "zstd") for backend in ("tcp", "rpc")
    }
    assert set(rows["point"]) == {"0", "1", "2", "3", ALL}, "nothing is encoded where nothing crosses"
    points = rows[rows["point"] != ALL]
    int8, zstd = (points[points["other"] == codec] for codec in ("int8", "zstd"))
    # The drift of half is in both of a pair.
    assert int8["latency_difference_percent"].to_numpy() == pytest.approx(-30, abs=1)
    assert (int8["latency_high_percent"] < -28).all()
    assert int8["throughput_difference_percent"].to_numpy() == pytest.approx(100 / 0.7 - 100, abs=2)
    assert int8["latency_significant"].tolist() == int8["tested"].tolist()
    assert not zstd["latency_significant"].any()
    assert ((zstd["latency_low_percent"] < 0) & (zstd["latency_high_percent"] > 0)).mean() >= 0.75
    assert (points["pairs"] == 12).all()
    assert points["tests"].unique().tolist() == [2 * 2], "each codec over each backend"
    assert list(verdicts(rows)) == snapshot


def test_a_codec_is_compared_where_it_has_cells_alone_and_without_none_with_the_first() -> None:
    data = coded()
    rows = paired(data[(data["codec"] != "zstd") | (data["point"] == "2")], "codec")
    assert set(rows.loc[rows["other"] == "zstd", "point"]) == {"2", ALL}
    data = coded(codecs=("zstd", "int8"))
    crossing = paired(data[data["payload_bytes"] > 0], "codec")
    assert set(zip(crossing["first"], crossing["other"], strict=True)) == {("int8", "zstd")}
    assert paired(coded(codecs=("none",)), "codec").empty


def test_engines_are_compared_with_eager_within_rounds(snapshot: SnapshotAssertion) -> None:
    rows = paired(example_engines.trials(), "engine")
    assert list(rows) == COLUMNS["engine"]
    assert set(zip(rows["first"], rows["other"], strict=True)) == {("eager", "onnx"), ("eager", "compile")}
    assert rows["setup"].unique().tolist() == [""], "what tells runs apart, without the engine"
    onnx = rows[rows["other"] == "onnx"].set_index("point")
    assert list(onnx.index) == ["0", "1", "2", "3", "4", ALL], "engines differ where nothing crosses, too"
    assert onnx.loc["4", "latency_difference_percent"] == pytest.approx(-50, abs=1)
    assert onnx.loc["4", "edge_difference_percent"] == pytest.approx(-50, abs=1)
    assert onnx.loc[["0", "4"], ["edge_high_percent", "server_high_percent"]].isna().sum().sum() == 2, (
        "a host without units has no engine"
    )
    assert onnx.index[onnx["latency_significant"]].tolist() == onnx.index[onnx["tested"]].tolist() != []
    assert list(verdicts(rows)) == snapshot


def test_engines_that_run_the_same_are_no_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {
        ("small", name, "0", "tuned", ""): Floor({"latency_s": share})
        for name, share in (("onnx", 0.03), ("eager", 0.01))
    }
    monkeypatch.setattr("pareto.analysis.comparing.paired.floors", lambda trials: known)
    rows = paired(example_engines.trials(("eager", "onnx")), "engine")
    assert rows["latency_floor_percent"].unique() == pytest.approx(3 * math.sqrt(2)), "the greater of the two"
    rows = paired(example_engines.trials(("eager", "edge=onnx", "server=onnx")), "engine")
    points = rows[rows["point"] != ALL].groupby("other")["point"].agg(list).to_dict()
    assert points == {"edge=onnx": ["1", "2", "3", "4"], "server=onnx": ["0", "1", "2", "3"]}
    (first,) = set(paired(example_engines.trials(("onnx", "compile")), "engine")["first"])
    assert first == "compile", "the first by name, without eager"
    assert paired(example_engines.trials(("eager",)), "engine").empty

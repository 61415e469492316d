"""Backends, codecs and engines against each other in one run: a difference that was put in is found and told, and none
where there is none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.comparing.paired import ALL, COLUMNS, paired
from pareto.analysis.comparing.sentences import sides, start_up, verdicts
from pareto.analysis.statistics.noise import Floor
from pareto.analysis.statistics.samples import interval
from tests.unit import example_codecs, example_engines
from tests.unit.example_run import PAYLOAD_KIB, loaded

AA = ("tcp:a", "tcp:b")
CROSSING = len(PAYLOAD_KIB) - 1
ENDS = ["latency_low_s", "latency_high_s"]


def measured(
    backends: Sequence[str] = ("tcp", "rpc"), *, rounds: int = 3, later_s: float = 0, slower: float = 0, seed: int = 0
) -> pd.DataFrame:  # fmt: skip
    """Trials whose rounds drift by half, with noise of 1 %; where something crosses, all backends but the first are
    `later_s` later, and have fewer images/s by the share `slower`."""
    rng, data = np.random.default_rng(seed), loaded(12, ("tcp",), 0)
    data = data[data["round"] < rounds]
    drifting_s = data["latency_s"] * rng.uniform(1, 1.5, rounds)[data["round"]]
    parts = []
    for place, backend in enumerate(backends):
        noise, is_other = rng.normal(1, 0.01, (2, len(data))), (data["payload_bytes"] > 0) * bool(place)
        ips = data["throughput_ips"] * noise[1] * (1 - slower * is_other)
        latency_s = drifting_s * noise[0] + later_s * is_other
        parts.append(data.assign(backend=backend, latency_s=latency_s, throughput_ips=ips))
    return pd.concat(parts, ignore_index=True)


def at(rows: pd.DataFrame, *points: int, **values: Any) -> pd.Series:
    """Whether each row is at one of these points, and has these values."""
    return rows["point"].isin(map(str, points)) & (rows[[*values]] == [*values.values()]).all(axis=1)


def parted(rows: pd.DataFrame) -> tuple[pd.DataFrame, dict[Any, Any]]:
    """The rows of points, by point, and the one over them all."""
    is_all = rows["point"] == ALL
    (row,) = rows[is_all].to_dict("records")
    return rows[~is_all].set_index("point"), row


@pytest.mark.parametrize(("rounds", "over", "later_s"), [(3, "points", 0.05), (8, "rounds", -0.05)])
def test_a_shift_is_found_with_its_sign(rounds: int, over: str, later_s: float) -> None:
    _, row = parted(paired(measured(rounds=rounds, later_s=later_s, slower=0.05)))
    assert (row["first"], row["other"], row["interval_over"]) == ("tcp", "rpc", over)
    assert row["latency_low_s"] < later_s < row["latency_high_s"]
    assert {np.sign(row[name]) for name in (*ENDS, "latency_difference_percent")} == {np.sign(later_s)}
    assert row["throughput_low_percent"] < -5 < row["throughput_high_percent"] < 0
    assert (row["points"], row["rounds"], row["pairs"]) == (CROSSING, rounds, CROSSING * rounds)
    faster = row["first_faster"], row["other_faster"]
    assert sum(faster) == CROSSING and (faster[0] > faster[1]) == (later_s > 0)


def test_each_point_by_its_rounds() -> None:
    """Without pairs, a drift by half would hide a shift of 5 %."""
    data = measured(rounds=6, later_s=0.03)
    points, every = parted(paired(data))
    assert every["latency_low_s"] > 0.01
    assert points.index.tolist() == [str(point) for point in range(CROSSING)], (
        "as numbers, and not where nothing crosses"
    )
    assert points["pairs"].eq(6).all()
    latencies = data.set_index(["backend", "point", "round"])["latency_s"].sort_index()
    assert [*points.loc["3", ENDS]] == pytest.approx(interval(latencies["rpc", "3"] - latencies["tcp", "3"]))
    few, _ = parted(paired(measured(rounds=5)))
    assert few[["latency_low_s", "throughput_high_percent"]].isna().all(axis=None)
    assert few["note"].eq("too few rounds").all() and few["latency_difference_s"].notna().all()


def test_rounds_that_are_missing_or_invalid_have_no_pair() -> None:
    rows = measured(rounds=7)
    spoilt = at(rows, 3, backend="rpc", round=2)
    marked = rows.assign(
        status=rows["status"].mask(spoilt, "invalid"), latency_s=rows["latency_s"].mask(spoilt, 99)
    )
    found = paired(marked)
    pd.testing.assert_frame_equal(found, paired(rows[~spoilt]))
    points, every = parted(found)
    assert (points.loc["3", "pairs"], every["pairs"]) == (6, 21 * 7 - 1)
    assert "146 pairs at 21 points" in next(verdicts(found))


def test_what_has_no_pair() -> None:
    rows = measured(later_s=0.05)
    assert paired(rows[rows["backend"] == "tcp"]).empty and paired(rows.head(0)).empty
    _, single = parted(paired(rows[at(rows, 3)]))
    assert (single["points"], single["pairs"], single["note"]) == (1, 3, "too few rounds")
    assert math.isnan(single["latency_low_s"])
    alone = paired(rows[at(rows, CROSSING)])
    assert (alone["point"].tolist(), alone["pairs"].tolist()) == ([ALL], [0])


def test_three_backends_make_three_pairs_and_depths_are_apart() -> None:
    rows = measured(("rpc", *AA))
    found = paired(pd.concat([rows, rows.assign(in_flight_asked="4")]))
    pairs = found.loc[found["point"] == ALL, ["in_flight_asked", "first", "other"]].to_numpy().tolist()
    each = [["tcp:a", "tcp:b"], ["tcp:a", "rpc"], ["tcp:b", "rpc"]]
    assert pairs == [[depth, *pair] for depth in ("4", "auto") for pair in each]


def test_one_latency_of_a_condition_is_tested_and_it_favours_no_side() -> None:
    rows = measured(rounds=12, later_s=0.05, slower=0.05)
    points, _ = parted(paired(rows))
    least = rows[rows["payload_bytes"] > 0].groupby("point")["latency_s"].median().idxmin()
    for column in (points["tested"], points["latency_p_value"].notna(), points["latency_significant"]):
        assert points.index[column.astype(bool)].tolist() == [least], "of both backends"
    assert points["tests"].eq(1).all() and points["rounds_needed"].eq(6).all(), "as many as an interval"
    swapped, _ = parted(paired(rows.replace({"backend": {"tcp": "rpc", "rpc": "tcp"}})))
    # All conditions are one family.
    both, _ = parted(paired(pd.concat([rows, rows.assign(netem="wifi")])).query("netem != 'wifi'"))
    assert both["tests"].eq(2).all()
    for same in (swapped, both):
        pd.testing.assert_series_equal(same["latency_p_value"], points["latency_p_value"])
    twice = 2 * points["latency_p_corrected"][least]
    assert both["latency_p_corrected"][least] == pytest.approx(twice, rel=0.1)


def test_backends_alike_are_seldom_told_apart() -> None:
    """One in twenty is what 95 % means."""
    differ = told = 0
    for seed in range(5):
        rows = paired(measured(AA, rounds=3 if seed % 2 else 12, seed=seed))
        told += int(rows["latency_significant"].any())
        _, every = parted(rows)
        holds = every["latency_low_s"] <= 0 <= every["latency_high_s"]
        said = "no difference seen over all points between tcp:a and tcp:b: "
        assert (said in next(verdicts(rows))) == holds
        differ += not holds
    assert told == 0 and differ <= 1


def test_each_figure_has_its_own_number_of_pairs() -> None:
    """An interval of six rounds never stands beside the number of those that have a throughput, too."""
    rows = measured(rounds=6, later_s=0.05)
    late = rows["round"] > 2
    rows = rows.assign(
        status=rows["status"].mask(late, "latency only"), throughput_ips=rows["throughput_ips"].mask(late)
    )
    points, _ = parted(paired(rows))
    assert points["pairs"].eq(6).all() and points["throughput_pairs"].eq(3).all()
    assert points["latency_low_s"].notna().all() and points["throughput_low_percent"].isna().all()


def coded(codecs: Sequence[str] = ("none", "int8", "zstd")) -> pd.DataFrame:
    """Trials of two backends whose rounds drift by half; with int8 a request takes 0.7 times as long, with zstd as long
    as without."""
    rng = np.random.default_rng(4)
    drift = rng.uniform(1, 1.5, 13)
    data = example_codecs.trials(codecs=("none",), rounds=12, noise=0, backends=("tcp", "rpc"))
    crosses, parts = data["payload_bytes"] > 0, []
    for codec in codecs:
        own, share = data[crosses].assign(codec=codec), 0.7 if codec == "int8" else 1.0
        own["latency_s"] *= share * rng.normal(1, 0.005, len(own))
        own["throughput_ips"] /= share * rng.normal(1, 0.005, len(own))
        parts.append(own)
    every = pd.concat([data[~crosses], *parts], ignore_index=True)
    slower = drift[every["round"]]
    return every.assign(
        latency_s=every["latency_s"] * slower, throughput_ips=every["throughput_ips"] / slower
    )


def test_codecs_are_compared_with_none_within_rounds(snapshot: SnapshotAssertion) -> None:
    rows = paired(coded(), "codec")
    assert list(rows) == COLUMNS["codec"] and "codec" not in rows
    each = {*zip(rows["first"], rows["other"], rows["backend"], strict=True)}
    assert each == {("none", codec, backend) for codec in ("int8", "zstd") for backend in ("tcp", "rpc")}
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
    assert points["pairs"].eq(12).all() and points["tests"].eq(4).all(), "each codec over each backend"
    assert list(verdicts(rows)) == snapshot


def test_a_codec_is_compared_where_it_has_cells_alone_and_without_none_with_the_first() -> None:
    data = coded()
    rows = paired(data[(data["codec"] != "zstd") | (data["point"] == "2")], "codec")
    assert set(rows.loc[rows["other"] == "zstd", "point"]) == {"2", ALL}
    crossing = paired(data[(data["payload_bytes"] > 0) & (data["codec"] != "none")], "codec")
    assert {*zip(crossing["first"], crossing["other"], strict=True)} == {("int8", "zstd")}
    for alone, factor in ((coded(("none",)), "codec"), (example_engines.trials(("eager",)), "engine")):
        assert paired(alone, factor).empty


def test_engines_are_compared_with_eager_within_rounds(snapshot: SnapshotAssertion) -> None:
    rows = paired(example_engines.trials(), "engine")
    assert list(rows) == COLUMNS["engine"]
    assert {*zip(rows["first"], rows["other"], strict=True)} == {("eager", "onnx"), ("eager", "compile")}
    onnx = rows[rows["other"] == "onnx"].set_index("point")
    assert list(onnx.index) == ["0", "1", "2", "3", "4", ALL], "engines differ where nothing crosses, too"
    for measure in ("latency", "edge"):
        assert onnx.loc["4", f"{measure}_difference_percent"] == pytest.approx(-50, abs=1)
    lacking = onnx.loc[["0", "4"], ["edge_high_percent", "server_high_percent"]].isna().sum()
    assert lacking.tolist() == [1, 1], "a host without units has no engine"
    assert onnx.index[onnx["latency_significant"]].tolist() == onnx.index[onnx["tested"]].tolist() != []
    assert list(verdicts(rows)) == snapshot


def test_engines_that_run_the_same_are_no_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = {("small", name, "0", "tuned", ""): share for name, share in (("onnx", 0.03), ("eager", 0.01))}
    known = {key: Floor({"latency_s": share}) for key, share in shares.items()}
    monkeypatch.setattr("pareto.analysis.comparing.paired.floors", lambda trials: known)
    rows = paired(example_engines.trials(("eager", "onnx")), "engine")
    assert rows["latency_floor_percent"].unique() == pytest.approx(3 * math.sqrt(2)), "the greater of the two"
    rows = paired(example_engines.trials(("eager", "edge=onnx", "server=onnx")), "engine")
    points = rows[rows["point"] != ALL].groupby("other")["point"].agg(list).to_dict()
    assert points == {"edge=onnx": ["1", "2", "3", "4"], "server=onnx": ["0", "1", "2", "3"]}
    (first,) = set(paired(example_engines.trials(("onnx", "compile")), "engine")["first"])
    assert first == "compile", "the first by name, without eager"


def test_each_kind_of_difference_in_words(snapshot: SnapshotAssertion) -> None:
    later, alike, of_two = measured(later_s=0.05), measured(AA, rounds=6), measured(rounds=2)
    late_s = 0.9 * at(alike, 4, backend="tcp:b") - 0.5 * at(alike, 5, backend="tcp:b")
    either = alike.assign(latency_s=alike["latency_s"] + late_s)
    # A stage that happened to be slower under one backend is not the backend's cost.
    slower_s = 0.1 * (later["backend"] == "rpc")
    of = {
        "longer": measured(later_s=0.05, slower=0.05),
        "shorter": measured(rounds=8, later_s=-0.05, slower=0.05),
        "significantly": measured(rounds=12, later_s=0.05, slower=0.05),
        "none": alike,
        "none significantly": measured(AA, rounds=12),
        "apart either way": pd.concat([either, either.assign(netem="wifi")]),
        "a single point": later[at(later, 3)],
        "in flight": measured(AA).assign(in_flight_asked="4"),
        "three, of which two are one program": measured(("rpc", *AA)),
        "no throughput": later.assign(throughput_ips=math.nan),
        "no latency": later.assign(latency_s=math.nan),
        "by its stages alone": later.assign(
            latency_bound_s=slower_s, latency_s=slower_s + 0.002 + 0.002 * (later["backend"] == "rpc")
        ),
        "nothing crosses": later[at(later, CROSSING)],
        "no round has both": of_two[(of_two["backend"] == "rpc") == (of_two["round"] == 1)],
    }
    assert {kind: list(verdicts(paired(rows))) for kind, rows in of.items()} == snapshot


def said(*trials: pd.DataFrame) -> list[str]:
    return list(sides(paired(pd.concat(trials, ignore_index=True), "engine")))


def test_the_fastest_engine_of_each_host_is_named(snapshot: SnapshotAssertion) -> None:
    both = pd.concat(
        [example_engines.trials(netem=netem, seed=seed) for seed, netem in enumerate(("near", "far"))]
    )
    edge, server = said(both)
    assert "on the edge onnx is fastest" in edge and "on the server onnx is fastest" in server
    (one,) = said(*(example_engines.trials(("eager", "edge=onnx"), netem=netem) for netem in ("near", "far")))
    assert "on the edge onnx is fastest" in one, "an engine of one host counts there alone"
    near = both["edge_s"].where(both["engine"] != "compile", 0.501 / 0.8 * both["edge_s"])
    assert "no difference is seen between onnx and compile" in said(both.assign(edge_s=near))[0]
    slow = both["edge_s"].where(both["engine"] == "eager", 4 * both["edge_s"])
    assert "eager is fastest" in said(both.assign(edge_s=slow))[0]
    # What cannot be told is not.
    alike = example_engines.trials(("eager", "onnx"))
    same, few = alike.assign(edge_s=0.02, server_s=0.01), alike[at(alike, 1, 2)]
    lines = [*said(same, same.assign(netem="far")), *said(few)]
    assert not any("fastest:" in line and "do not decide" not in line for line in lines)
    assert said(example_engines.trials(("eager",))) == []
    assert [edge, server, *lines] == snapshot


def test_the_start_is_told_of_the_first_time_and_of_later_ones(snapshot: SnapshotAssertion) -> None:
    each = [
        ("eager", "edge", "2", None), ("onnx", "edge", "2", 4.4), ("onnx", "edge", "2", 0.05),
        ("onnx", "edge", "3", 2.0), ("onnx", "server", "2", 0.5), ("edge=onnx", "server", "2", None),
        ("compile", "edge", "2", 30.0), ("compile", "edge", "2", 29.0),
    ]  # fmt: skip
    stages = pd.DataFrame(each, columns=["engine", "host", "point", "engine_s"])
    assert list(start_up(stages.assign(run="r", model="net", batch_size=1))) == snapshot

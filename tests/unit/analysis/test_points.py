"""Points and steps by their names.

Where nothing crosses, all backends do the same: one point, with one figure, in all that is said of it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pareto.analysis.comparing.paired import paired
from pareto.analysis.figures.shown import drawings
from pareto.analysis.findings import Options
from pareto.analysis.fronts.front import front
from pareto.analysis.fronts.indicators import attainment, hypervolumes
from pareto.analysis.naming import point_label
from pareto.analysis.reporting import report
from pareto.analysis.runs.load import load
from pareto.analysis.runs.points import NONE, TRIAL, cuts, of_role, short_step, undivided
from pareto.analysis.runs.treatments import AT_WORK, at_work, backend_of, each_once, in_every_codec, pooled
from pareto.analysis.statistics.stability import certainty
from pareto.analysis.tables.latex import front_latex
from pareto.analysis.tables.table import sureness
from tests.unit import example_chain
from tests.unit.analysis.test_tables import of_each, printed
from tests.unit.example_codecs import of_bytes
from tests.unit.example_codecs import trials as codecs
from tests.unit.example_run import trials, write


@pytest.mark.parametrize(
    ("points", "found"),
    [
        (["0", "1", "7"], ["0", "7"]),
        (["0+0", "0+3", "0+7", "3+3", "3+7", "7+7"], ["0+0", "0+7", "7+7"]),
        (["0+0", "0+3", "3+3"], ["0+0"]),
    ],
    ids=["two hosts", "three hosts", "the last point was not asked for"],
)
def test_points_that_leave_the_model_to_one_host(points: list[str], found: list[str]) -> None:
    payloads = [0 if set(point.split("+")) == {"7"} else 9 for point in points]
    rows = pd.DataFrame({"point": points, "payload_bytes": payloads})
    assert rows.loc[undivided(rows), "point"].tolist() == found


@pytest.mark.parametrize(
    ("step", "hosts", "short"),
    [
        ("edge", 2, "edge"),
        ("edge-server out", 2, "link out"),
        ("edge-middle1 back", 3, "link 1 back"),
        ("middle2-server out", 4, "link 3 out"),
        ("middle1", 3, "middle1"),
        ("", 3, ""),
    ],
)
def test_steps_by_their_short_names(step: str, hosts: int, short: str) -> None:
    assert short_step(step, hosts) == short


@pytest.mark.parametrize(
    ("point", "name", "label"),
    [
        ("7", "features.6", "7 features.6"),
        ("7", "", "7"),
        ("7", "7", "7"),
        ("7", "backbone.features.6.conv", "7 backb…res.6.conv"),
        ("3+7", "features.2+backbone.features.6.conv", "3+7 features.2+back….6.conv"),
        ("3+7+9", "a+b+c", "3+7+9"),
    ],
)
def test_labels_of_points(point: str, name: str, label: str) -> None:
    assert point_label(point, name) == label


def test_only_hosts_with_units_have_an_engine_at_work() -> None:
    roles = ("edge", "middle1", "server")
    assert [of_role("edge=onnx+server=compile", role) for role in roles] == ["onnx", "eager", "compile"]
    assert of_role("onnx", "server") == "onnx"
    two = [("onnx", "0", 9.0), ("edge=onnx", "2", 9.0), ("onnx", "4", 0.0), ("server=onnx", "4", 0.0)]
    three = [("onnx", "0+3", 9.0), ("onnx", "3+3", 9.0), ("onnx", "4+4", 0.0)]
    found = []
    for rows in (two, three):
        frame = pd.DataFrame(rows, columns=["engine", "point", "payload_bytes"])
        found.append(at_work(frame.assign(model="net", setup="")).tolist())
    assert found == [
        ["server=onnx", "edge=onnx+server=eager", "edge=onnx", "edge=eager"],
        ["middle1=onnx+server=onnx", "edge=onnx+server=onnx", "edge=onnx"],
    ]


LAST = "21"
Rows = list[dict[str, Any]]


def loaded(folder: Path, rows: Rows) -> pd.DataFrame:
    return load(write(folder, rows))


def last(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["point"] == LAST]


def test_a_round_is_the_mean_of_its_valid_trials(tmp_path: Path) -> None:
    raw = loaded(tmp_path, trials(rounds=4))
    first, second = (raw.index[(raw["point"] == LAST) & (raw["round"] == number)] for number in (0, 1))
    raw.loc[first[1], "status"] = "invalid"
    raw.loc[second, "status"] = "failed"
    one = last(pooled(raw))
    assert one["backend"].tolist() == [NONE] * 4
    assert one["status"].tolist() == ["ok", "failed", "ok", "ok"]
    assert one["latency_s"].iloc[0] == raw.loc[first[0], "latency_s"]
    usual = raw[(raw["point"] == LAST) & (raw["round"] == 2)]
    assert one["throughput_ips"].iloc[2] == pytest.approx(usual["throughput_ips"].mean())
    assert one[["controls", "controls_valid"]].to_numpy().tolist() == [[2, 1], [2, 0], [2, 2], [2, 2]]
    assert (backend_of(raw) == NONE).sum() == 8
    pd.testing.assert_frame_equal(pooled(pooled(raw)), pooled(raw))
    crossing = raw[raw["point"] != LAST].reset_index(drop=True)
    assert pooled(crossing) is crossing
    kept = pooled(raw)[lambda rows: rows["backend"] != NONE]
    pd.testing.assert_frame_equal(kept[list(raw)].reset_index(drop=True), crossing)


def test_it_may_be_on_the_front_of_one_backend_alone(tmp_path: Path) -> None:
    of_3 = {"tcp": (0.01, 99), "rpc": (0.02, 1)}
    rows = [row for row in trials(rounds=6, noise=0) if row["point"] in (3, 21)]
    for row in rows[::2]:
        row["latency_s"], row["throughput_ips"] = of_3[row["backend"]]
    found = front(loaded(tmp_path, rows)).set_index(["backend", "point"])
    told = found[["on_fronts_of", "on_backend_front", "on_front", "probability"]].to_numpy().tolist()
    assert dict(zip(found.index, told, strict=True)) == {
        ("rpc", "3"): ["rpc", True, False, 1.0], ("tcp", "3"): ["tcp", True, True, 1.0],
        (NONE, LAST): ["rpc", True, False, 0.0],
    }  # fmt: skip


@pytest.mark.parametrize(("status", "left_out"), [("ok", 0), ("invalid", 6)])
def test_it_is_one_row_also_where_one_side_has_no_valid_trial_of_it(
    tmp_path: Path, status: str, left_out: int
) -> None:
    rows = trials(rounds=6, noise=0.1)
    for row in rows[43::44]:
        row["status"] = status
    (one,) = last(front(loaded(tmp_path, rows))).to_dict("records")
    counts = ("backend", "rounds", "excluded", "trials", "left_out", "on_fronts_of")
    assert [one[name] for name in counts] == [NONE, 6, 0, 12, left_out, "tcp; rpc"]
    assert one["probability"] == one["probability_all"] > 0


def test_it_bounds_what_each_backend_is_worth(tmp_path: Path) -> None:
    """The same code under two names: that one was luckier at the last point is not worth anything."""
    rows = trials(rounds=6, noise=0, backends=("tcp:a", "tcp:b"))
    for row in rows:
        if not row["payload_bytes"] and row["backend"] == "tcp:b":
            row["latency_s"], row["throughput_ips"] = row["latency_s"] * 0.9, row["throughput_ips"] * 1.1
    raw = loaded(tmp_path, rows)
    sizes = hypervolumes(raw).set_index("backend")["hypervolume"]
    assert sizes["tcp:a"] == pytest.approx(sizes["tcp:b"]) == pytest.approx(sizes["all"])
    assert set(attainment(raw)["backend"]) == {"tcp:a", "tcp:b", "all"}
    assert LAST not in set(paired(raw)["point"])
    assert "tcp:b 21" not in " ".join(front(raw)["ties"])


def test_what_does_not_depend_on_the_backend_is_pooled_where_it_decides(tmp_path: Path) -> None:
    rows = trials(rounds=6, noise=0)
    for row in rows:
        if row["point"] == 7:
            row["edge_s"] = 0.0448 if row["backend"] == "tcp" else 0.0522
    raw = loaded(tmp_path, rows)
    for limit, holds in (("50ms", True), ("48ms", False)):
        found = front(raw, where=f"edge_s < {limit}")
        at = found[found["point"] == "7"]
        assert at["feasible"].tolist() == [holds] * 2
        assert at["edge_s"].tolist() == [0.0522, 0.0448], "each is told as it was measured"
    assert front(raw, where="edge_s < 48ms").query("point == '7'")["probability"].tolist() == [0, 0]


def test_in_a_chain_it_is_where_no_link_is_crossed(tmp_path: Path) -> None:
    rows, staged = example_chain.trials(example_chain.splits(2, (3, 21)))
    found = front(load(example_chain.write(tmp_path, rows, staged)))
    assert found.loc[found["backend"] == NONE, "point"].tolist() == ["21+21"]
    assert {"3+21"} <= set(found.loc[found["backend"] == "tcp", "point"])
    first = found.sort_values("point_order")["point"].unique().tolist()
    assert first == sorted(first, key=cuts), "as numbers, not as texts"


def test_all_say_the_same_of_it(tmp_path: Path) -> None:
    rows = [row for row in trials(rounds=6, noise=0.1) if row["point"] in (0, 7, 14, 20, 21)]
    found = report(write(tmp_path / "run", rows), tmp_path / "out", Options(figures="none"))
    (one,) = last(found.front).to_dict("records")
    shown = f"{1e3 * one['latency_s']:.2f}"
    assert f"{1e3 * one['latency_s']:.3g} ms" in found.answers[0]
    (line,) = re.findall(r"any +21\* +classifier +(\S+).* (\S+) *\n", printed(*of_each(found.front)))
    assert line == (f"{one['latency_s']:.3f}", sureness(one["probability_all"]))
    page = (tmp_path / "out" / "report.html").read_text()
    (row,) = re.findall(r"<td>any</td><td class=n>21\*</td>.*?</tr>", page)
    assert f">{shown}<" in row
    made = {each.kind: each for each in drawings(found, each=True)}
    for kind in ("front", "attribution"):
        assert last(made[kind].drawn()[2])["latency_s"].tolist() == [one["latency_s"]]
    assert len(re.findall(r"any & 21 classifier", front_latex(found.front))) == 1
    assert certainty(found.front, 0.0001).widest.count("tcp 21") == 0


def test_stages_are_pooled_like_their_trials(tmp_path: Path) -> None:
    rows, staged = example_chain.trials(example_chain.splits(1, (21,)))
    run = example_chain.write(tmp_path, rows, staged)
    raw = load(run)
    stages = raw[TRIAL]
    made = pooled(stages.assign(position=0, host="edge", compute_s=np.arange(len(stages)) / 7), raw)
    assert made["backend"].tolist() == [NONE] * raw["round"].nunique()
    assert made["compute_s"].sum() == pytest.approx((np.arange(len(stages)) / 7).sum() / 2)


def test_no_codec_is_no_condition_of_its_own_where_it_has_no_other_point() -> None:
    lossy, plain = (
        codecs(codecs=("int8", "fp16"), rounds=1),
        codecs(codecs=("none",), rounds=1, netem="other"),
    )
    every = in_every_codec(pd.concat([lossy, plain], ignore_index=True))
    points = every.groupby(["netem", "codec"])["point"].nunique().to_dict()
    assert points == {("other", "none"): 5, ("slow", "fp16"): 5, ("slow", "int8"): 5}
    alone = pd.concat([lossy, plain[plain["payload_bytes"] == 0]], ignore_index=True)
    assert in_every_codec(alone)["netem"].eq("other").sum() == 1, "a profile with no other point keeps it"


def test_a_cell_is_a_row_of_each_codec_that_it_stands_for() -> None:
    data = of_bytes(codecs(codecs=("none", "zstd", "int8"), rounds=2))
    every = in_every_codec(data)
    assert list(every.columns) == [*data.columns, AT_WORK]
    first, last = (every[every["point"] == point].set_index("codec") for point in "04")
    assert first[AT_WORK].to_dict() == {"none": "none", "zstd": "zstd", "int8": "none"}
    assert set(last[AT_WORK]) == {"none"}, "nothing is encoded where nothing crosses"
    for of_point in (first, last):
        assert of_point.loc["int8", "latency_s"].tolist() == of_point.loc["none", "latency_s"].tolist()
    assert every.groupby("codec").size().eq(2 * 5).all(), "the last point, too, once a round"
    pd.testing.assert_frame_equal(in_every_codec(every), every)


def test_a_cell_that_stands_for_others_alone_is_no_codec_of_the_front() -> None:
    data = of_bytes(codecs(codecs=("none", "int8"), rounds=2))
    data.loc[data["stands_for"] != "", "stands_for"] = "int8"  # as --codec int8 has it
    data = data[(data["codec"] == "int8") | data["point"].isin(["0", "4"])]
    assert set(in_every_codec(data)["codec"]) == {"int8"}
    rows = front(data)
    assert rows["codec"].unique().tolist() == ["int8"]
    assert rows.set_index("point")[AT_WORK].to_dict() == {
        "0": "none", "1": "int8", "2": "int8", "3": "int8", "4": "none",
    }  # fmt: skip
    alone = data[data["point"] == "0"].assign(stands_for="none; int8")
    on = front(alone)
    assert set(on["codec"]) == {"none", "int8"}
    assert (on["codec_probability"].fillna(1) == on["probability_all"].fillna(1)).all(), "one cell, one front"


def test_over_codecs_a_cell_competes_once() -> None:
    rows = front(of_bytes(codecs(50e6, codecs=("none", "fp16", "int8"))))
    first = rows[rows["point"] == "0"].set_index("codec")
    assert first[["on_codec_front", "codec_probability", "codec_ties"]].drop_duplicates().shape[0] == 1
    assert not any("int8 0" in text or "fp16 0" in text for text in rows["codec_ties"])
    once = each_once(rows)
    assert once.groupby("point").size().to_dict() == {"0": 1, "1": 3, "2": 3, "3": 3, "4": 1}
    assert once.loc[once["point"] == "0", "codec"].tolist() == ["none"]

"""One backend against another, drawn: what stands where, and what is said of how sure it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from analysis.comparing.paired import ALL, paired
from analysis.figures.drawing import Drawing
from analysis.figures.paired_figure import INTERVAL, RANGE, SIGNIFICANT, UNSURE, paired_drawing
from analysis.figures.style import codec_looks
from analysis.runs.load import load
from tests.unit import drawn, example_chain, example_codecs, example_engines
from tests.unit.example_run import trials, write


def drawing(folder: Path, rows: list[dict[str, Any]]) -> tuple[Drawing | None, pd.DataFrame, pd.DataFrame]:
    measured = load(write(folder, rows))
    compared = paired(measured)
    return paired_drawing(compared, measured, "two hosts"), compared, measured


def made(folder: Path, rows: list[dict[str, Any]]) -> Drawing:
    found, _, _ = drawing(folder, rows)
    assert found is not None
    return found


def some(points: tuple[int, ...], **options: Any) -> list[dict[str, Any]]:
    return [row for row in trials(**options) if row["point"] in points]


@pytest.mark.parametrize("width", ["page", "column"])
def test_every_point_in_order_with_its_interval(tmp_path: Path, width: str) -> None:
    found, compared, _ = drawing(tmp_path, trials(rounds=7))
    assert found is not None
    assert found.kind == "paired"
    points = compared[compared["point"] != ALL].set_index("point")
    assert found.data["point"].tolist() == [str(point) for point in range(21)]
    for column in ("latency_difference_s", "latency_low_s", "latency_high_s", "throughput_high_percent"):
        assert found.data[column].tolist() == points.loc[found.data["point"], column].tolist()
    figure = drawn.rendered(found.draw(width))
    above, below = figure.axes
    upper, lower = drawn.marks(above, marker="o"), drawn.marks(below, marker="o")
    assert upper[:, 0].tolist() == lower[:, 0].tolist() == list(range(21))
    assert "(ms)" in above.get_ylabel()
    assert upper[:, 1] == pytest.approx(1e3 * found.data["latency_difference_s"])
    assert lower[:, 1] == pytest.approx(found.data["throughput_difference_percent"])
    assert above.get_ylim()[0] < 0 < above.get_ylim()[1], "zero is there to compare with"
    assert drawn.outside(figure) == []
    assert drawn.overlapping(figure) == []
    shown = drawn.texts(figure)
    assert "20" in shown
    percent = found.data["latency_difference_percent"].iloc[0]
    assert percent > 10
    assert f"+{percent:.0f}" in shown


def test_too_few_rounds_have_a_range_and_no_interval(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    found, _, measured = drawing(tmp_path, trials(rounds=3))
    assert found is not None
    assert set(found.data["latency_mark"]) == set(found.data["throughput_mark"]) == {RANGE}
    both = measured.pivot(index=["round", "point"], columns="backend", values=["latency_s", "throughput_ips"])
    of_point = (both["latency_s"]["rpc"] - both["latency_s"]["tcp"]).groupby("point")
    row = found.data.set_index("point").loc["7"]
    assert row["latency_low_s"] == pytest.approx(of_point.min()["7"])
    assert row["latency_high_s"] == pytest.approx(of_point.max()["7"])
    percent = 100 * (both["throughput_ips"]["rpc"] / both["throughput_ips"]["tcp"] - 1)
    assert row["throughput_low_percent"] == pytest.approx(percent.groupby("point").min()["7"])
    figure = found.draw("page")
    assert [drawn.legend(figure), drawn.sentences(found.caption)] == snapshot
    assert len(drawn.marks(figure.axes[0], filled=True, marker="o")) == 0


def test_significance_is_marked_where_there_are_rounds_for_it(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    rows = some((0, 7, 21), rounds=10, noise=0.01)
    found, compared, _ = drawing(tmp_path, rows)
    assert found is not None
    told = compared.set_index("point").loc[["0", "7"]]
    assert told["latency_significant"].tolist() == [True, True]
    assert found.data["latency_mark"].tolist() == [SIGNIFICANT, SIGNIFICANT]
    figure = found.draw("page")
    assert len(drawn.marks(figure.axes[0], filled=True, marker="o")) == 2
    assert [drawn.legend(figure), drawn.sentences(found.caption)] == snapshot


def test_what_is_not_significant_is_hollow(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    rows = some((0, 7), rounds=10, backends=("tcp:a", "tcp:b"))
    found = made(tmp_path, rows)
    assert set(found.data["latency_mark"]) == {UNSURE}
    figure = found.draw("column")
    assert len(drawn.marks(figure.axes[0], filled=False, marker="o")) == 2
    assert len(drawn.marks(figure.axes[0], filled=True, marker="o")) == 0
    assert drawn.legend(figure) == snapshot


def test_a_test_that_could_find_nothing_finds_nothing(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """Six rounds cannot make a point of 21 significant: that it is not says nothing."""
    found = made(tmp_path, trials(rounds=6))
    assert found.data["latency_mark"].tolist() == [INTERVAL] * 21
    assert [drawn.legend(found.draw("page")), drawn.sentences(found.caption)] == snapshot


def test_nothing_to_compare(tmp_path: Path) -> None:
    assert drawing(tmp_path / "one", trials(backends=("tcp",)))[0] is None
    apart = [row for row in trials(rounds=2) if (row["backend"] == "rpc") == (row["round"] == 1)]
    assert drawing(tmp_path / "apart", apart)[0] is None
    assert drawing(tmp_path / "failed", trials(status="failed"))[0] is None


def test_three_backends_make_three_pairs(tmp_path: Path) -> None:
    found = made(tmp_path, some((0, 7, 21), backends=("tcp:a", "tcp:b", "rpc")))
    figure = drawn.rendered(found.draw("column"))
    assert drawn.legend(figure)[:3] == ["tcp:b − tcp:a", "rpc − tcp:a", "rpc − tcp:b"]  # noqa: RUF001
    places = drawn.marks(figure.axes[0], filled=False)[:, 0]
    assert len(np.unique(places)) == 6, "none hides another"
    assert drawn.outside(figure) == []


def test_trials_that_do_not_count_are_told(tmp_path: Path) -> None:
    rows = trials(rounds=3)
    rows[0] |= {"status": "invalid", "latency_s": 99.0}
    found = made(tmp_path, rows)
    assert "1 of 132 trials" in found.caption
    assert any("1 of 132 trials" in text for text in drawn.texts(found.draw("page")))
    assert found.data["latency_high_s"].max() < 5


def test_a_single_point_and_a_run_without_throughput(tmp_path: Path) -> None:
    one = made(tmp_path / "one", some((7,)))
    assert drawn.outside(drawn.rendered(one.draw("column"))) == []
    dry = made(tmp_path / "dry", trials(throughput_ips=""))
    assert dry.data["throughput_low_percent"].isna().all()
    drawn.rendered(dry.draw("page"))


def test_a_chain_is_numbered_where_names_have_no_room(tmp_path: Path) -> None:
    rows, _ = example_chain.trials(example_chain.splits(2), rounds=1)
    found = made(tmp_path, rows)
    assert len(found.data) == 252
    figure = drawn.rendered(found.draw("column"))
    numbers = [text.get_text() for text in figure.axes[1].get_xticklabels()]
    assert numbers[0] == "0+0"
    assert 5 <= len(numbers) <= 9
    assert drawn.overlapping(figure) == []


@pytest.mark.parametrize("width", ["page", "column"])
def test_codecs_against_none_in_percent(width: str, snapshot: SnapshotAssertion) -> None:
    data = example_codecs.trials(backends=("tcp", "rpc"), rounds=7)
    compared = paired(data, "codec")
    found = paired_drawing(compared, data, "two hosts", "codec")
    assert found is not None
    assert found.kind == "paired-codecs"
    assert len(found.data) == 4 * 4 * 2
    figure = drawn.rendered(found.draw(width))
    above = figure.axes[0]
    looks = codec_looks(data)
    for codec in ("fp16", "int8", "uint4", "zstd"):
        own = found.data[(found.data["other"] == codec) & (found.data["backend"] == "tcp")]
        marks = drawn.marks(above, marker=looks[codec].marker)[:, 1]
        assert set(own["latency_difference_percent"]) <= set(marks)
    assert "(%)" in above.get_ylabel()
    assert "against no codec" in above.get_title(loc="left")
    assert above.bbox.height / figure.dpi > 1, "the legend takes nothing from the axes"
    assert {"int8 over tcp", "int8 over rpc"} <= set(drawn.legend(figure))
    assert drawn.outside(figure) == []
    assert drawn.overlapping(figure) == []
    assert drawn.sentences(found.caption)[0] == snapshot
    assert paired_drawing(paired(data[data["codec"] == "none"], "codec"), data, what="codec") is None


def test_engines_against_eager_have_a_colour_each() -> None:
    data = example_engines.trials(rounds=7)
    found = paired_drawing(paired(data, "engine"), data, "two hosts", "engine")
    assert found is not None
    assert found.kind == "paired-engines"
    assert len(found.data) == 2 * 5
    assert found.data["point_name"].ne("").all()
    figure = drawn.rendered(found.draw("page"))
    assert "Engines against eager" in figure.axes[0].get_title(loc="left")
    assert {"compile", "onnx"} <= set(drawn.legend(figure))
    alone = data[data["engine"].isin(["eager", "onnx"])]
    other = paired_drawing(paired(alone, "engine"), data, "two hosts", "engine")
    assert other is not None
    marks = [drawn.marks(drawn.rendered(each.draw("page")).axes[0], marker="^") for each in (found, other)]
    assert len(marks[0]) == len(marks[1]) == 5, "an engine looks the same, whichever else is compared"
    assert drawn.outside(figure) == drawn.overlapping(figure) == []

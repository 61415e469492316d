"""What many requests in flight gain, drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.figures.pipelining_figure import pipelining_drawing
from analysis.fronts.front import front
from analysis.points import order
from analysis.runs.load import load
from tests.unit import drawn, example_chain
from tests.unit.example_codecs import trials as codecs
from tests.unit.example_run import trials, write


def measured(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same with what one request in flight gave."""
    for row in rows:
        sequential_ips = 0.98 / row["latency_s"]
        row |= {"sequential_ips": sequential_ips, "pipeline_gain": row["throughput_ips"] / sequential_ips}
    return rows


def fronted(folder: Path, rows: list[dict[str, Any]]) -> pd.DataFrame:
    return front(load(write(folder, rows)), resamples=20)


@pytest.mark.parametrize("width", ["page", "column"])
def test_both_throughputs_the_bound_and_the_gain(tmp_path: Path, width: str) -> None:
    rows = fronted(tmp_path, measured(trials()))
    found = pipelining_drawing(rows, "two hosts")
    assert found is not None
    assert found.kind == "pipelining"
    figure = drawn.rendered(found.draw(width))
    (axes,) = figure.axes
    for backend, marker in (("tcp", "o"), ("rpc", "s"), ("", "<")):
        of_backend = rows[rows["backend"] == backend].sort_values("point", key=order)
        for column, filled in (("throughput_ips", True), ("sequential_ips", False)):
            marks = drawn.marks(axes, filled=filled, marker=marker)
            assert marks[:, 0].round().tolist() == of_backend["point"].astype(int).tolist(), column
            assert marks[:, 1] == pytest.approx(of_backend[column]), column
            low, high = axes.get_ylim()
            assert ((low < marks[:, 1]) & (marks[:, 1] < high)).all(), column
    bounds = drawn.marks(axes, marker="_")
    assert sorted(bounds[:, 1]) == pytest.approx(sorted(rows["throughput_bound_ips"]))
    assert drawn.outside(figure) == []
    assert drawn.overlapping(figure) == []
    assert "two hosts" in found.caption
    assert "3 rounds" in found.caption


def test_the_gain_stands_above_where_there_is_room(tmp_path: Path) -> None:
    few = [row for row in trials() if row["point"] in (0, 7, 21)]
    rows = fronted(tmp_path, measured(few))
    found = pipelining_drawing(rows)
    assert found is not None
    gain = rows.loc[rows["backend"].eq("tcp") & rows["point"].eq("7"), "pipeline_gain"].item()
    figure = drawn.rendered(found.draw("page"))
    assert f"{gain:.1f}×" in drawn.texts(figure)  # noqa: RUF001
    assert drawn.overlapping(figure) == []


def test_gains_side_by_side_do_not_run_together() -> None:
    rows = front(
        codecs(
            rounds=1, codecs=("none", "int8"), backends=("tcp", "rpc"), sequential_ips=1, pipeline_gain=1.2
        )
    )
    found = pipelining_drawing(rows)
    assert found is not None
    figure = drawn.rendered(found.draw("page"))
    boxes = [text.get_window_extent() for text in figure.axes[0].texts if "1.2" in text.get_text()]
    lefts, rights = (sorted(getattr(box, end) for box in boxes) for end in ("x0", "x1"))
    assert min(left - right for left, right in zip(lefts[1:], rights, strict=False)) > 2


def test_what_was_not_measured_is_not_drawn(tmp_path: Path) -> None:
    assert pipelining_drawing(fronted(tmp_path / "older", trials())) is None
    partly = measured(trials())
    for row in partly:
        if row["backend"] == "rpc" or row["point"] == 3:
            row["sequential_ips"] = ""
    found = pipelining_drawing(fronted(tmp_path / "partly", partly))
    assert found is not None
    assert len(found.data) == 21
    figure = found.draw("page")
    assert 3 not in drawn.marks(figure.axes[0])[:, 0].round()
    assert "3" in drawn.texts(drawn.rendered(figure)), "its place is kept"


def test_a_single_point_and_a_chain(tmp_path: Path) -> None:
    one = pipelining_drawing(
        fronted(tmp_path / "one", measured([row for row in trials() if row["point"] == 3]))
    )
    assert one is not None
    assert drawn.outside(drawn.rendered(one.draw("column"))) == []
    rows, _ = example_chain.trials(example_chain.splits(2), backends=("tcp",))
    chain = pipelining_drawing(fronted(tmp_path / "chain", measured(rows)))
    assert chain is not None
    figure = drawn.rendered(chain.draw("column"))
    assert len(drawn.marks(figure.axes[0], filled=True, marker="o")) == 252
    assert len(drawn.marks(figure.axes[0], filled=True, marker="<")) == 1, "where nothing crosses"
    assert drawn.overlapping(figure) == []


def test_codecs_stand_side_by_side() -> None:
    data = codecs(codecs=("none", "int8"), rounds=1, backends=("tcp", "rpc"))
    rows = front(
        data.assign(
            sequential_ips=1 / data["latency_s"], pipeline_gain=data["throughput_ips"] * data["latency_s"]
        )
    )
    found = pipelining_drawing(rows)
    assert found is not None
    figure = drawn.rendered(found.draw("page"))
    assert drawn.legend(figure)[:4] == ["tcp none", "tcp int8", "rpc none", "rpc int8"]
    at = np.unique(drawn.marks(figure.axes[0], filled=True)[:, 0])
    assert np.bincount(at.round().astype(int)).tolist() == [4, 4, 4, 4, 1], "all on the edge once"
    assert "side by side" in found.caption

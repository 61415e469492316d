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
    assert len(figure.axes) == 2, "a panel a backend"
    for axes, backend, marker in zip(figure.axes, ("tcp", "rpc"), "os", strict=True):
        of_backend = rows[rows["backend"].isin([backend, ""])].sort_values("point", key=order)
        assert axes.get_ylabel().startswith(backend)
        for column, marks in (
            ("throughput_ips", drawn.marks(axes, filled=True, marker=marker)),
            ("sequential_ips", drawn.marks(axes, filled=False, marker=marker)),
            ("throughput_bound_ips", drawn.marks(axes, marker="_")),
        ):
            assert marks[:, 0].tolist() == list(range(22)), column
            assert marks[:, 1] == pytest.approx(of_backend[column]), column
            low, high = axes.get_ylim()
            assert ((low < marks[:, 1]) & (marks[:, 1] < high)).all(), column
    gain = rows.loc[rows["backend"].eq("tcp") & rows["point"].eq("7"), "pipeline_gain"].item()
    assert f"{gain:.1f}×" in drawn.texts(figure)  # noqa: RUF001
    assert drawn.outside(figure) == []
    assert drawn.overlapping(figure) == []
    assert "two hosts" in found.caption
    assert "3 rounds" in found.caption


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
    assert len(figure.axes) == 1
    assert 3 not in drawn.marks(figure.axes[0])[:, 0]
    assert "3 features.2" in drawn.texts(drawn.rendered(figure)), "its place is kept"


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
    assert len(drawn.marks(figure.axes[0], filled=True, marker="o")) == 253
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
    assert len(figure.axes) == 2, "a panel a backend"
    assert drawn.legend(figure)[:2] == ["no codec", "int8"]
    at = np.unique(drawn.marks(figure.axes[0], filled=True)[:, 0])
    assert np.bincount(at.round().astype(int)).tolist() == [2, 2, 2, 2, 1], "all on the edge once"
    assert not any("×" in text for text in drawn.texts(figure))  # noqa: RUF001
    assert "side by side" in found.caption

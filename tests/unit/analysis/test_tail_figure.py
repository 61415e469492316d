"""How often a request takes long, drawn from the requests' files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis import figures
from analysis.figures.tail_figure import ALONE, LOADED, chosen_points, tail_data, tail_drawing
from analysis.fronts.front import front
from analysis.runs.load import load
from pareto.cell import Cell
from pareto.errors import UserError
from pareto.store import Store
from tests.unit import drawn, example_codecs
from tests.unit.analysis.test_requests import phase
from tests.unit.example_run import trials, write

DEPTH = 4


def kept(folder: Path, requests: int = 300) -> tuple[Path, np.ndarray]:
    """A run of one point with requests of three rounds; and their latencies alone. The first under load are quick."""
    rng = np.random.default_rng(5)
    rows: list[dict[str, Any]] = [
        row | {"in_flight": DEPTH} for row in trials(backends=("tcp",)) if row["point"] == 7
    ]
    alone = []
    for row in rows:
        alone.append(rng.lognormal(-3, 0.3, requests))
        under_load = np.concatenate([np.full(DEPTH, 1e-4), 10 * alone[-1]])
        cell = Cell(row["model"], (7,), row["point_name"], "tcp", row["netem"], 1)
        (folder / "requests").mkdir(parents=True, exist_ok=True)
        phases = {"latency": phase(alone[-1]), "throughput": phase(under_load)}
        Store(folder).write_requests(cell, row["round"], phases)
    return write(folder, rows), np.concatenate(alone)


def test_lines_are_the_share_of_requests_that_take_longer(tmp_path: Path) -> None:
    run, alone = kept(tmp_path / "run")
    measured = load(run)
    made = tail_drawing(front(measured, resamples=20), measured, [run], "")
    assert made is not None
    for of_phase, factor in ((ALONE, 1), (LOADED, 10)):
        line = made.data[made.data["phase"] == of_phase]
        slower = [(factor * alone > at).mean() for at in line["latency_s"]]
        np.testing.assert_allclose(slower, line["share_slower"], atol=2 / len(alone))
        assert list(line.loc[line["percentile"] != "", "percentile"]) == ["p50", "p90", "p95", "p99"]
        assert line["requests"].eq(len(alone)).all()
    for width in ("page", "column"):
        figure = drawn.rendered(made.draw(width))
        assert len(figure.axes) == 2
        assert [axes.get_yscale() for axes in figure.axes] == ["log", "log"]
        assert drawn.outside(figure) == []
        assert drawn.overlapping(figure) == []
    figures.tail(measured, run)


def test_where_nothing_crosses_the_requests_under_every_backend_count(tmp_path: Path) -> None:
    """That point is of no backend, and may be the answer: it has a line of its own."""
    rows = trials(rounds=2)
    latencies = {"tcp": 0.1, "rpc": 0.3}
    (tmp_path / "run" / "requests").mkdir(parents=True)
    for row in (row for row in rows if row["point"] == 21):
        cell = Cell(row["model"], (21,), row["point_name"], row["backend"], row["netem"], 1)
        requests = {"latency": phase(np.full(20, latencies[row["backend"]]))}
        Store(tmp_path / "run").write_requests(cell, row["round"], requests)
    run = write(tmp_path / "run", rows)
    measured = load(run)
    points = front(measured, resamples=20)
    made = tail_drawing(points.assign(on_backend_front=points["point"] == "21"), measured, [run], "")
    assert made is not None
    assert made.data["requests"].eq(80).all()
    assert (made.data["latency_s"].min(), made.data["latency_s"].max()) == pytest.approx((0.1, 0.3))
    assert any("nothing crosses" in text for text in drawn.legend(made.draw("page")))


def test_a_cell_that_stands_for_several_codecs_has_one_line() -> None:
    chosen = chosen_points(front(example_codecs.trials(rounds=1, codecs=("none", "int8"))))
    assert not chosen.duplicated(["backend", "point", "codec_at_work"]).any()


def test_a_percentile_that_cannot_be_stated_has_no_mark(tmp_path: Path) -> None:
    run, _ = kept(tmp_path / "run", requests=30)
    measured = load(run)
    data = tail_data(front(measured, resamples=20), measured, [run])
    assert set(data["percentile"]) == {"", "p50", "p90"}


def test_without_requests_there_is_no_figure(tmp_path: Path) -> None:
    run = write(tmp_path / "run", trials(backends=("tcp",)))
    measured = load(run)
    assert tail_drawing(front(measured, resamples=20), measured, [run], "") is None
    with pytest.raises(UserError):
        figures.tail(measured, run)


def test_a_file_that_cannot_be_read_costs_this_figure_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run, _ = kept(tmp_path / "run")
    for file in (run / "requests").iterdir():
        file.write_bytes(b"nothing")
    measured = load(run)
    rows: pd.DataFrame = front(measured, resamples=20)
    assert tail_drawing(rows, measured, [run], "") is None
    assert "not a file of requests" in caplog.text


def test_no_codec_comes_first() -> None:
    rows = front(example_codecs.trials(rounds=1, codecs=("fp16", "none", "int8")))
    chosen = chosen_points(rows[rows["backend"] != ""])
    assert chosen["codec"].unique().tolist() == ["none", "fp16", "int8"]

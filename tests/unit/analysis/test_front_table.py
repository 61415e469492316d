"""The tables of each condition, and of all codecs: all that was measured, how sure, and why there is no front."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console, RenderableType
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.fronts.front import front
from pareto.analysis.runs.load import load
from pareto.analysis.tables.columns import sureness
from pareto.analysis.tables.front import codecs_tables
from pareto.analysis.tables.overview import MOST_ROWS, of_each
from tests.unit import example_chain
from tests.unit.example_codecs import trials as codecs
from tests.unit.example_run import trials, with_energy, write

Tables = Callable[..., Sequence[RenderableType]]


def analysed(folder: Path, rows: list[dict[str, Any]], *asked: Any) -> pd.DataFrame:
    return front(load([write(folder, rows)]), *asked, resamples=50)


def printed(rows: pd.DataFrame, *asked: Any, tables: Tables = of_each) -> str:
    console = Console(width=80, color_system=None, record=True, file=io.StringIO())
    console.print(*tables(rows, *asked))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    return text


def words(rows: pd.DataFrame, *asked: Any) -> str:
    return " ".join(printed(rows, *asked).split())


def test_without_a_front_the_table_says_why(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    rows = trials(rounds=1)
    joules = ("latency", "energy", "payload")
    said = [words(analysed(tmp_path / "j", rows, joules), joules).rpartition("; ")[2]]
    few = ("latency", "throughput"), "latency_s < 1us"
    said.append(words(analysed(tmp_path / "w", rows, *few), *few))
    said.append(words(analysed(tmp_path / "f", [row | {"status": "failed"} for row in rows])))
    assert said == snapshot


def test_every_point_has_its_probability_and_a_star_on_the_front(tmp_path: Path) -> None:
    rows = analysed(tmp_path, trials(rounds=6))
    lines = [line.split() for line in printed(rows).splitlines()]
    shown = {(cells[0], cells[1].rstrip("*")): cells for cells in lines if len(cells) > 5}
    assert len(rows) > MOST_ROWS
    for row in rows.itertuples():
        cells = shown[row.backend.replace("none", "any"), row.point]
        assert cells[-1] == sureness(row.probability_all)
        assert cells[1].endswith("*") == row.on_front


def test_a_chain_and_other_objectives(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    rows, _ = example_chain.analysed([(3, 5), (5, 5), (21, 21)], rounds=3)
    joules = ("latency", "energy"), "latency_s < 0.5"
    few = [row for row in with_energy(trials(rounds=1), server=False) if row["point"] in (0, 7, 20, 21)]
    of_energy = analysed(tmp_path, few, *joules)
    assert [printed(rows), printed(of_energy, *joules)] == snapshot


def test_a_codec_s_table_says_what_it_costs(snapshot: SnapshotAssertion) -> None:
    rows = front(codecs(codecs=("none", "int8"), rounds=3))
    text = printed(rows[rows["codec"] == "int8"])
    assert "98.5" in text
    assert "accuracy = agreement of 200 images" in " ".join(text.split())
    assert "accuracy" not in printed(rows[rows["codec"] == "none"])
    assert text == snapshot


def test_the_front_over_all_codecs(snapshot: SnapshotAssertion) -> None:
    data = codecs(rounds=3)
    data.loc[data["codec"] == "fp16", ["agreement", "output_error"]] = np.nan
    text = printed(front(data), tables=codecs_tables)
    assert "fp16" not in text.partition("front of")[0]
    assert "what they cost in accuracy was not measured: fp16" in " ".join(text.split())
    asked = ("latency", "throughput"), "agreement >= 95%"
    other = printed(front(codecs(rounds=3), *asked), *asked, tables=codecs_tables)
    assert "uint4" not in other
    assert [text, other] == snapshot
    assert not codecs_tables(front(codecs(codecs=("int8",), rounds=1)))


def test_accuracy_among_the_objectives_says_which_it_is() -> None:
    asked = ("latency", "accuracy")
    assert "accuracy (agreement of 200 images)" in words(front(codecs(rounds=1), asked), asked)
    labels = codecs(rounds=1, top1=0.9, top1_images=400)
    assert "accuracy (top-1 of 400 images)" in words(front(labels, asked), asked)

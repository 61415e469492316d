"""The front's table: of which front it is, how sure it is of each, and why there is none."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from analysis.fronts.front import front
from analysis.runs.trials import load
from analysis.tables.front import front_table
from tests.unit.example_run import trials, with_energy, write


def analysed(folder: Path, rows: list[dict[str, Any]], *asked: Any) -> pd.DataFrame:
    return front(load([write(folder, rows)]), *asked, resamples=50)


def printed(rows: pd.DataFrame, *asked: Any) -> str:
    console = Console(width=80, color_system=None, record=True, file=io.StringIO())
    console.print(front_table(rows, *asked))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    return text


def words(rows: pd.DataFrame, *asked: Any) -> str:
    return " ".join(printed(rows, *asked).split())


def test_without_a_front_the_table_says_why(tmp_path: Path) -> None:
    rows = trials()
    title = "mobilenetv2 at 200ms-5mbit, batch size 1: "
    joules = ("latency", "energy", "payload")
    assert words(analysed(tmp_path / "j", rows, joules), joules) == f"{title}no front: energy not measured"
    few = ("latency", "throughput"), "latency_s < 1us"
    assert words(analysed(tmp_path / "w", rows, *few), *few) == (
        f"{title}no point satisfies the constraint latency_s < 1us"
    )
    for row in rows:
        row["status"] = "invalid" if row["backend"] == "tcp" else "ok"
    tcp = ("latency", "throughput"), "backend == tcp"
    assert "no point satisfies the constraint" in words(analysed(tmp_path / "t", rows, *tcp), *tcp)
    parts = analysed(tmp_path / "p", trials())
    parts["latency_s"] = parts["latency_s"].where(parts["backend"] == "tcp")
    parts["throughput_ips"] = parts["throughput_ips"].where(parts["backend"] == "rpc")
    parts["on_backend_front"] = False
    assert words(parts) == f"{title}no front: no point has all of latency, throughput"
    failed = [row | {"status": "failed"} for row in rows]
    assert words(analysed(tmp_path / "f", failed)) == f"{title}no valid trial, {len(rows)} excluded"


def test_a_front_of_something_else_says_so(tmp_path: Path) -> None:
    asked = ("latency", "payload"), "latency_s < 0.5 and backend in [tcp]"
    rows = analysed(tmp_path, trials(), ("latency", "payload"), "latency_s < 0.5")
    assert f" front of latency, payload; where {asked[1]}; * on the front" in words(rows, *asked)
    usual = words(rows, ("throughput", "latency"))
    assert "front of" not in usual.replace("front of all", "")
    assert "where" not in usual


def test_each_front_has_its_probability(tmp_path: Path) -> None:
    rows = analysed(tmp_path, trials(rounds=6))
    text = printed(rows)
    assert "p all = on that of all" in " ".join(text.split())
    shown = rows[rows["on_backend_front"]].set_index(["backend", "point"])
    backend, seen = "", 0
    for line in text.splitlines():
        cells = line.split()
        if cells[:1] in (["tcp"], ["rpc"]):
            backend = cells.pop(0)
        if cells and (backend, cells[0].rstrip("*")) in shown.index:
            row = shown.loc[(backend, cells[0].rstrip("*"))]
            assert cells[-2:] == [f"{row['probability']:.2f}", f"{row['probability_all']:.2f}"]
            assert cells[0].endswith("*") == row["on_front"]
            seen += 1
    assert seen == len(shown)
    assert not np.allclose(shown["probability"], shown["probability_all"])


@pytest.mark.parametrize(
    ("more", "has_room"),
    [
        ({}, True),
        ({"bottleneck": "edge-server back", "pipeline_gain": 12.34}, True),
        ({"bottleneck": "edge-server back", "top1": 0.5, "top1_images": 320}, False),
        ({"pipeline_gain": 12.34, "edge_energy_j": 1.5, "top1": 0.5, "top1_images": 320}, True),
    ],
)
def test_the_second_probability_is_shown_where_it_fits(
    tmp_path: Path, more: dict[str, Any], has_room: bool
) -> None:
    made = analysed(tmp_path, [row | more for row in trials()])
    text = printed(made)
    assert ("p all" in text) == has_room
    shown = next(line for line in text.splitlines() if "21*" in line).split()
    assert shown[-2:].count("1.00") == 1 + has_room, "the last columns are whole"


def test_one_backend_has_one_front(tmp_path: Path) -> None:
    assert "p all" not in words(analysed(tmp_path, with_energy(trials(backends=("tcp",)))))

"""The front's table: of which front it is, how sure it is of each, and why there is none."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console, RenderableType
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.fronts.front import front
from pareto.analysis.runs.load import load
from pareto.analysis.tables.columns import sureness
from pareto.analysis.tables.front import codecs_table, front_table
from tests.unit import example_chain
from tests.unit.example_codecs import trials as codecs
from tests.unit.example_run import trials, with_energy, write

SURE = r"\d\d|>99|<1|\d"
CHAIN = [(3, 5), (5, 5), (21, 21)]


def analysed(folder: Path, rows: list[dict[str, Any]], *asked: Any) -> pd.DataFrame:
    return front(load([write(folder, rows)]), *asked, resamples=50)


def printed(rows: pd.DataFrame, *asked: Any, table: Callable[..., RenderableType] = front_table) -> str:
    console = Console(width=80, color_system=None, record=True, file=io.StringIO())
    console.print(table(rows, *asked))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    return text


def words(rows: pd.DataFrame, *asked: Any) -> str:
    return " ".join(printed(rows, *asked).split())


def test_without_a_front_the_table_says_why(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    rows = trials()
    joules = ("latency", "energy", "payload")
    said = [words(analysed(tmp_path / "j", rows, joules), joules)]
    few = ("latency", "throughput"), "latency_s < 1us"
    said.append(words(analysed(tmp_path / "w", rows, *few), *few))
    for row in rows:
        row["status"] = "invalid" if row["backend"] == "tcp" or not row["payload_bytes"] else "ok"
    tcp = ("latency", "throughput"), "backend == tcp"
    said.append(words(analysed(tmp_path / "t", rows, *tcp), *tcp))
    parts = analysed(tmp_path / "p", trials())
    parts["latency_s"] = parts["latency_s"].where(parts["backend"] == "tcp")
    parts["throughput_ips"] = parts["throughput_ips"].where(parts["backend"] == "rpc")
    parts["on_backend_front"] = False
    said.append(words(parts))
    failed = [row | {"status": "failed"} for row in rows]
    said.append(words(analysed(tmp_path / "f", failed)))
    assert said == snapshot


def test_a_front_of_something_else_says_so(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    asked = ("latency", "payload"), "latency_s < 0.5 and backend in [tcp]"
    rows = analysed(tmp_path, trials(noise=0), ("latency", "payload"), "latency_s < 0.5")
    text = printed(rows, *asked)
    assert asked[1] in " ".join(text.split())
    assert text == snapshot
    assert "where" not in words(rows, ("throughput", "latency"))


def test_each_front_has_its_probability(tmp_path: Path) -> None:
    rows = analysed(tmp_path, trials(rounds=6))
    text = printed(rows)
    shown = rows[rows["on_backend_front"]].set_index(["backend", "point"])
    backend, seen = "", 0
    for line in text.splitlines():
        cells = line.split()
        if cells[:1] in (["tcp"], ["rpc"], ["any"]):
            backend = cells.pop(0).replace("any", "")
        if cells and (backend, cells[0].rstrip("*")) in shown.index:
            row = shown.loc[(backend, cells[0].rstrip("*"))]
            assert cells[-2:] == [sureness(row[name]) for name in ("probability", "probability_all")]
            assert cells[0].endswith("*") == row["on_front"]
            seen += 1
    assert seen == len(shown)
    assert not np.allclose(shown["probability"], shown["probability_all"])


@pytest.mark.parametrize(
    ("more", "has_room"),
    [
        ({}, True),
        ({"bound_by": "edge-server back", "top1": 0.5, "top1_images": 320}, False),
    ],
)
def test_the_second_probability_is_shown_where_it_fits(
    tmp_path: Path, more: dict[str, Any], has_room: bool
) -> None:
    made = analysed(tmp_path, [row | more for row in trials(rounds=6)])
    text = printed(made)
    assert ("all = on that of all" in " ".join(text.split())) == has_room
    shown = next(line for line in text.splitlines() if "21*" in line).split()
    whole = [cell for cell in shown[-2:] if re.fullmatch(SURE, cell)]
    assert len(whole) == 1 + has_room, "the last columns are whole"


def test_one_backend_has_one_front(tmp_path: Path) -> None:
    assert "all = on that of all" not in words(analysed(tmp_path, with_energy(trials(backends=("tcp",)))))


def test_the_table_names_what_bounds_the_throughput(snapshot: SnapshotAssertion) -> None:
    rows, _ = example_chain.analysed(CHAIN, rounds=3, top1=0.75, top1_images=16)
    rows["energy_of"], rows["energy_j"], rows["probability"] = "edge + middle + server", 12.3456, 1.0
    text = printed(rows)
    shown = next(line.split() for line in text.splitlines() if "3+5" in line)
    assert shown[-7:] == ["100", "link", "1", "out", "12.35", "75.0", ">99"]
    assert text == snapshot


def test_the_table_names_the_busiest_step_beside_it(tmp_path: Path) -> None:
    busiest = {"busiest": "edge", "busiest_utilization": 0.864}
    text = printed(analysed(tmp_path, [row | FULL | busiest for row in trials()]))
    assert max(map(len, text.splitlines())) <= 80
    shown = next(line.split() for line in text.splitlines() if "21*" in line)
    assert shown[-6:-2] == ["link", "back", "edge", "86"]
    assert "12.3" not in text, "no room for the gain beside both probabilities"


def test_the_latency_under_load_is_shown_where_the_front_is_of_it(tmp_path: Path) -> None:
    rows = [row | FULL | {"loaded_latency_s": 2 * row["latency_s"]} for row in trials()]
    made = front(load([write(tmp_path, rows)]), ("loaded-latency", "throughput"), resamples=50)
    console = Console(width=80, color_system=None, record=True, file=io.StringIO())
    console.print(front_table(made, ("loaded-latency", "throughput")))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    shown = next(line.split() for line in text.splitlines() if "21*" in line)
    latency_ms = 1e3 * made.loc[made["point"] == "21", "latency_s"].min()
    assert f"{2 * latency_ms:.2f}" in shown
    assert "loaded" not in printed(analysed(tmp_path / "usual", rows))


def test_two_hosts_have_one_link(snapshot: SnapshotAssertion) -> None:
    rows, _ = example_chain.analysed([(3,), (5,)], rounds=3)
    rows[["probability", "probability_all"]] = 1.0, 0.5
    text = printed(rows)
    assert "link 1" not in text
    assert "features.4" in text
    assert "top-1" not in text
    assert text == snapshot


def test_the_table_has_joules_only_where_energy_was_measured(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    rows = with_energy(trials(rounds=6), server=False)
    for row in rows:
        row["edge_energy_j"] *= 100
        row["point_name"] = "a.very.long.name.of.a.block." + row["point_name"]
    points = analysed(tmp_path / "with", rows)
    text = printed(points)
    assert " J " in text
    shown = next(line.split() for line in text.splitlines() if line.strip().startswith("tcp"))
    row = points[points["backend"].eq("tcp") & points["point"].eq(shown[1].strip("*"))].iloc[0]
    assert shown[2].endswith("…"), "names are what is shortened"
    chances = [sureness(row[name]) for name in ("probability", "probability_all")]
    assert shown[-3:] == [f"{row['energy_j']:.2f}", *chances]
    without = printed(analysed(tmp_path / "without", trials(noise=0)))
    assert " J " not in without
    assert without == snapshot


def test_the_table_fits_80_columns_without_colour(tmp_path: Path) -> None:
    text = printed(analysed(tmp_path, trials(noise=0)))
    assert "…" not in text
    assert "\x1b" not in text
    last = next(line for line in text.splitlines() if "classifier" in line)
    assert last.split()[:3] == ["any", "21*", "classifier"]
    assert text.index("tcp") < text.index("rpc")


FULL = {"bound_by": "edge-server back", "pipeline_gain": 12.34, "sequential_ips": 5.0}


@pytest.mark.parametrize(
    ("more", "gain"),
    [({}, True),
     ({"edge_energy_j": 1.5, "top1": 0.5, "top1_images": 320}, False)],
)  # fmt: skip
def test_the_gain_has_a_column_where_it_fits(tmp_path: Path, more: dict[str, Any], gain: bool) -> None:
    label = ":abcdefghijklmnop"
    rows = [row | FULL | more | {"backend": f"{row['backend']}{label}"} for row in trials(rounds=6)]
    made = analysed(tmp_path, rows)
    assert made["pipeline_gain"].eq(12.34).all()
    assert made["sequential_ips"].eq(5.0).all()
    text = printed(made)
    assert ("12.3" in text) == gain
    shown = next(line for line in text.splitlines() if line.split()[1:2] == ["21*"]).split()
    assert re.fullmatch(SURE, shown[-1]), "the last column is whole"
    assert "…" not in shown[0], "the end of a label may be all that tells it apart"


def test_a_codec_s_front_says_what_it_costs(snapshot: SnapshotAssertion) -> None:
    rows = front(codecs(codecs=("none", "int8"), rounds=3))
    text = printed(rows[rows["codec"] == "int8"])
    assert "98.5" in text
    assert "of 200 images" in " ".join(text.split())
    assert "agree" not in printed(rows[rows["codec"] == "none"])
    assert text == snapshot
    unknown = rows.assign(agreement=np.nan)
    assert "what int8 costs in accuracy was not measured" in words(unknown[unknown["codec"] == "int8"])


def test_the_front_over_all_codecs(snapshot: SnapshotAssertion) -> None:
    data = codecs(rounds=3)
    data.loc[data["codec"] == "fp16", "agreement"] = np.nan
    data.loc[data["codec"] == "fp16", "output_error"] = np.nan
    rows = front(data)
    text = printed(rows, table=codecs_table)
    assert "fp16" not in text.partition("front of")[0]
    flat = " ".join(text.split())
    assert "accuracy (agreement of 200 images)" in flat
    assert "what they cost in accuracy was not measured: fp16" in flat
    limited = "agreement >= 95%"
    other = printed(
        front(codecs(rounds=3), where=limited), ("latency", "throughput"), limited, table=codecs_table
    )
    assert "uint4" not in other
    assert [text, other] == snapshot
    assert codecs_table(front(codecs(codecs=("int8",), rounds=1))) is None


def test_accuracy_among_the_objectives_says_which_it_is() -> None:
    asked = ("latency", "accuracy")
    assert "accuracy (agreement of 200 images)" in words(front(codecs(rounds=1), asked), asked)
    labels = codecs(rounds=1, top1=0.9, top1_images=400)
    assert "accuracy (top-1 of 400 images)" in words(front(labels, asked), asked)

"""What is worth a line beside the tables; what a report finds, read back by what other programs read it with."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from pyarrow import parquet
from syrupy.assertion import SnapshotAssertion

from pareto.analysis import findings as notes
from pareto.analysis.advice.answers import Answer
from pareto.analysis.exporting import export, tables, targets
from pareto.analysis.figures.shown import drawings
from pareto.analysis.findings import Findings
from pareto.analysis.fronts.front import front
from pareto.analysis.page.document import html
from pareto.analysis.runs.points import CONDITION
from pareto.analysis.schema import TRIALS
from pareto.analysis.statistics.doubt import Doubt
from pareto.protocol.errors import UserError
from tests.unit import example_chain
from tests.unit.analysis.figure_runs import Reported
from tests.unit.analysis.test_tables import NASTY
from tests.unit.example_codecs import trials as codecs
from tests.unit.example_findings import findings
from tests.unit.example_run import trials

Reports = Callable[[str], Reported]


def test_the_notes_name_what_bounds_the_best_points_and_what_was_busiest_there(
    snapshot: SnapshotAssertion,
) -> None:
    rows, _ = example_chain.analysed([(3, 5), (5, 5), (21, 21)])
    (alone,) = notes.best_points(rows[rows["point"] == "21+21"], "x")
    assert "tcp" not in alone and "rpc" not in alone, "where nothing crosses no backend is named"
    best, nearest = rows.loc[rows["throughput_ips"].idxmax()], rows.loc[rows["latency_s"].idxmin()]
    assert (best["point"], nearest["point"]) == ("3+5", "5+5")
    one = rows[rows["point"] == "5+5"]
    assert [*notes.best_points(rows, "mobilenetv2 wifi"), *notes.best_points(one, "x")] == snapshot
    assert list(notes.best_points(rows.assign(bound_by=""), "x")) == []
    told = rows.assign(busiest="middle1", busiest_utilization=0.864)
    assert all("busiest: middle1, 86 %" in note for note in notes.best_points(told, "x"))
    (same,) = notes.best_points(told[told["point"] == "5+5"].assign(busiest="edge"), "x")
    assert "bound by edge (busy 86 %)" in same
    constrained = rows.assign(feasible=rows["point"] == "5+5")
    (note,) = notes.best_points(constrained, "x")
    assert "5+5" in note and "3+5" not in note
    assert list(notes.best_points(rows.assign(feasible=False), "x")) == []


def test_a_best_point_names_its_codec_and_what_that_costs() -> None:
    for of, words in (
        ({}, "point 2 over tcp with uint4 (agreement 90 %)"),
        ({"codecs": ("zstd",)}, "point 3 over tcp with zstd, where"),
    ):
        (note,) = notes.best_points(front(codecs(rounds=1, **of)), "small slow")
        assert words in note


def test_a_run_of_several_codecs_says_what_each_costs_and_where_it_pays(reported: Reports) -> None:
    found, made = reported("codecs").found, reported("codecs").drawings
    assert sum("codec int8: agreement of 200 images 98.5 %" in line for line in found.codecs) == 1
    assert sum("; int8 may pay from" in line for line in found.answers) == 2
    drawn = made["best-map-small-codecs"].drawn()[2]
    # By the images fp16 costs nothing; int8 and uint4 do, and were not admitted.
    assert set(drawn.loc[drawn["what"] == "measured", "backend"]) == {"tcp fp16"}
    assert not drawn["predicted_backend"].str.contains("int").any()
    where = "agreement >= 98%"
    admitted = replace(found, where=where, front=front(found.trials, where=where, resamples=1))
    (one,) = (each for each in drawings(admitted, each=False) if each.name == ("small", "codecs"))
    _, caption, data = one.drawn()
    assert "int8 98.5 %" in caption
    best = set(data.loc[data["what"] == "measured", "backend"])
    assert "tcp int8" in best
    assert "tcp uint4" not in best


def test_engines_are_found_to_differ_and_drawn_once(reported: Reports) -> None:
    found = reported("engines").found
    assert set(found.paired_engines["setup"]) == {""}
    assert any("than eager" in line for line in found.engines)
    assert any("best by engine: " in line for line in found.answers)
    assert "Engines: what they win" in html(found)
    names = [each.name for each in reported("engines").drawings.values() if each.kind == "paired-engines"]
    assert names == [("small", "slow")]


def test_attention_first_says_which_answers_stand(reported: Reports) -> None:
    found = reported("codecs").found
    keys = [tuple(map(str, key)) for key in found.front[CONDITION].drop_duplicates().itertuples(index=False)]
    doubt = [Doubt("all points are unsteady", cures=("measure again",))]

    def said(*sure: bool) -> list[str]:
        known = [Answer("cut", (key,), sure=each) for key, each in zip(keys, sure, strict=False)]
        return replace(found, answers=known, doubts=doubt).warnings

    rest = ["all points are unsteady", "to mend: measure again"]
    assert said(True) == ["the answer stands: sure with all this in it", *rest]
    assert said(True, True) == ["all 2 answers stand: sure with all this in it", *rest]
    assert said(True, False) == [f"1 of 2 answers stands; open: {keys[1][0]} at {keys[1][1]}", *rest]
    assert said() == rest
    assert replace(found, doubts=[]).warnings == []


def test_the_slowest_requests_at_the_best_point_are_told_with_an_interval(
    reported: Reports, snapshot: SnapshotAssertion
) -> None:
    found = reported("backends").found
    best = found.front.loc[found.front["latency_s"].idxmin()]
    assert set(found.tails["point"]) == {best["point"]}
    known = found.tails.dropna(subset="latency_p95_s")
    assert (known["latency_p95_low_s"] < known["latency_p95_s"]).all()
    assert (known["latency_p95_s"] < known["latency_p95_high_s"]).all()
    assert [note for note in found.notes if note.startswith("slowest")] == snapshot


REASON = 'said "no";\nDROP TABLE trials \x1b[31m\x07'


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    rows = [row | {"model": f"=1+{NASTY}"} for row in trials(rounds=2) if row["point"] in (0, 7, 21)]
    rows[0] |= {"status": "invalid", "reason": REASON, "latency_s": "", "throughput_ips": ""}
    return findings(tmp_path_factory.mktemp("export"), rows)


def written(found: Findings, path: Path) -> Path:
    (target,) = targets([str(path)])
    assert export(found, target) == str(path)
    return path


def test_one_parquet_file_says_what_its_columns_mean_and_how_it_was_made(
    found: Findings, tmp_path: Path
) -> None:
    path = written(found, tmp_path / "new" / "run.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(path), found.trials, check_dtype=False)
    schema = parquet.read_schema(path)
    assert schema.field("latency_s").metadata[b"meaning"].decode() == TRIALS.meanings()["latency_s"]
    assert json.loads(schema.metadata[b"pareto"])["run"]["pareto"] == "0.1.0"


def test_sqlite_has_every_table_and_replaces_the_file(found: Findings, tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    path.write_text("an older one")
    with closing(sqlite3.connect(written(found, path))) as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        assert names == set(tables(found)) >= {"trials", "front", "runs", "columns"}
        counted = connection.execute(
            "SELECT reason, latency_s FROM trials WHERE status = 'invalid'"
        ).fetchall()
        assert counted == [(REASON, None)], "not measured is no 0"
        front = pd.read_sql("SELECT * FROM front WHERE on_front", connection)
    assert set(front["point"]) == set(found.front.loc[found.front["on_front"], "point"])


def test_excel_computes_nothing_that_a_name_says(found: Findings, tmp_path: Path) -> None:
    pytest.importorskip("openpyxl", reason="openpyxl is not installed")
    sheets = pd.read_excel(written(found, tmp_path / "run.xlsx"), sheet_name=None)
    assert set(sheets) == set(tables(found))
    assert set(sheets["trials"]["model"]) == {f"'=1+{NASTY}"}
    assert "trials \\x1b[31m\\x07" in sheets["trials"]["reason"][0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *((text, "parquet") for text in ("run.csv", "run", "", "mlflow", "run.duckdb")),
        ("a.xlsx", "pip install openpyxl$"),
        ("link.sqlite", "a link"),
    ],
)
def test_what_cannot_be_written_is_one_line(
    text: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown form, a missing package, which it says how to install, and a link, which is not followed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    Path("link.sqlite").symlink_to("elsewhere")
    with pytest.raises(UserError, match=words) as refused:
        targets([text])
    assert "\n" not in str(refused.value)

"""How runs were made, in words; what is worth a line beside the tables; what a report exports."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyarrow import parquet
from syrupy.assertion import SnapshotAssertion

import pareto
from pareto.analysis import findings as notes
from pareto.analysis.advice.answers import Answer
from pareto.analysis.costs import allocators as sentences
from pareto.analysis.exporting import export, tables, targets
from pareto.analysis.figures.shown import drawings
from pareto.analysis.findings import Findings
from pareto.analysis.fronts.front import front
from pareto.analysis.methods import commands, made, methods
from pareto.analysis.page.document import html
from pareto.analysis.runs.load import joined
from pareto.analysis.runs.manifest import manifest, read_manifest
from pareto.analysis.runs.points import CONDITION
from pareto.analysis.schema import TABLES, TRIALS, Table
from pareto.analysis.statistics.doubt import Doubt
from pareto.protocol.errors import UserError
from pareto.sweep.options import FIELDS, Option, command
from pareto.sweep.sweep import Sweep
from tests import REPOSITORY
from tests.unit import example_chain
from tests.unit.analysis import hostile
from tests.unit.analysis.figure_runs import Reported
from tests.unit.analysis.test_tables import NASTY
from tests.unit.example_codecs import trials as codecs
from tests.unit.example_findings import findings
from tests.unit.example_run import trials, write
from tests.unit.refusals import refusal

HOST = {"cpu": "Cortex-A76", "kernel": "6.6.1", "threads": 1, "device": "cpu", "torch": "2.13.0"}
MANIFEST: dict[str, Any] = {
    "pareto": "0.9.1",
    "created_at": "2026-01-01T00:00:00+00:00",
    "sweep": {"models": ["mobilenetv2"], "seed": 3, "testbed": "local", "edge_cpu": 0.25, "tolerance": 0.02},
    "models": {"mobilenetv2": {"weights": "seeded", "input": "uint8", "dataset": {"name": "synthetic"}}},
    "profiles": {"200ms-5mbit": {"edge_to_server": {"delay_s": 0.2, "rate_bps": 5e6}, "server_to_edge": {}}},
    "testbed": "local: two namespaces",
    "sessions": [{"testbed": {"shaper": "relay"}, "hosts": {"edge": HOST, "server": HOST}}],
}


def told(folder: Path, rows: list[dict[str, Any]] | None = None, **manifest: Any) -> str:
    return methods(joined(write(folder, rows or trials(rounds=2), **MANIFEST | manifest)))


def test_of_a_run(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    rows = trials(rounds=7, in_flight=3, latency_requests=20, throughput_requests=31)
    rows[0] |= {"status": "invalid", "reason": "the link was off", "latency_s": "", "throughput_ips": ""}
    text = told(tmp_path, rows)
    assert text == snapshot
    facts = "pareto 0.9.1", "7 rounds", "seed 3", "Cortex-A76", f"{len(rows)} trials", "1 invalid", "Limits:"
    assert all(fact in text for fact in facts)
    assert commands(joined(tmp_path)) == ["./pareto.sh --model mobilenetv2 --edge-cpu 0.25 --seed 3"]


@pytest.mark.parametrize(
    ("asked", "is_short"), [({}, True), ({"requests": 662}, False), ({"phase": 10.0}, False)]
)
def test_a_quick_run_whose_phases_are_as_long_as_asked_for_is_not_short(
    tmp_path: Path, asked: dict[str, Any], is_short: bool
) -> None:
    sweep = {**MANIFEST["sweep"], "quick": True, **asked}
    assert ("shortened (--quick)" in told(tmp_path, sweep=sweep)) == is_short
    assert ("(--quick)" in made([MANIFEST | {"sweep": sweep}])) == is_short


@pytest.mark.parametrize("allocators", [["tuned"], ["default"], ["tuned", "default"], ["edge=default"]])
def test_whose_allocator_was_measured(
    tmp_path: Path, allocators: list[str], snapshot: SnapshotAssertion
) -> None:
    """And what to deploy with, and what leaving that out costs, where it was tuned."""
    times = {"edge": 2.28, "server": 1.071}
    cost = [{"model": "mobilenetv2", "point": "7", "batch_size": 8, "times": times}]
    manifest = MANIFEST | {"sweep": {**MANIFEST["sweep"], "allocators": allocators}}
    rows = [{**row, "allocator": allocator} for row in trials(rounds=1) for allocator in allocators]
    said = []
    for name, sessions in (("with", [{"allocator_cost": cost}]), ("without", [{}])):
        runs = joined(write(tmp_path / name, rows, **manifest | {"sessions": sessions}))
        said.append(list(sentences(runs.trials, [run.manifest for run in runs.runs])))
        assert " ".join(said[-1]) in methods(runs)
    assert said == snapshot
    assert "MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=1073741824 MALLOC_ARENA_MAX=1" in str(
        said
    )
    assert ("2.28" in str(said[0])) == ("tuned" in allocators)


def test_says_no_more_than_is_known_and_in_lines_that_nothing_breaks(tmp_path: Path) -> None:
    runs = joined(write(tmp_path, trials(rounds=2)))
    (tmp_path / "manifest.json").unlink()
    known = {"models": {"mobilenetv2": {"input_shape": {"a": 1}}}, "pareto": ["x\n\x1b"]}
    for text in (methods(runs), methods(joined(tmp_path)), told(tmp_path / "odd", **known)):
        assert "None" not in text
        assert "interval of" not in text, "there are none with two rounds"
        assert "\x1b" not in text
    assert len(text.split("\n\n")) == 6
    assert commands(joined(tmp_path)) == []
    assert made([{}]) == ""


def test_cells_that_have_fewer_rounds_are_not_hidden(tmp_path: Path) -> None:
    rows = [row for row in trials(rounds=7, backends=("tcp",)) if row["point"] != 3 or row["round"] < 2]
    text = told(tmp_path, rows)
    assert "in 2 to 7 rounds" in text
    assert "Backends are compared" not in text, "there is one"


def test_a_simulated_run_was_not_measured(tmp_path: Path) -> None:
    text = told(tmp_path, simulated=True)
    assert "Nothing was measured" in text
    assert not re.search(r"\bwe measured\b|was measured once", text, re.IGNORECASE)


def test_what_differs_between_runs_stands_beside_each_other() -> None:
    both = [MANIFEST, MANIFEST | {"pareto": "1.0.0", "sweep": {"seed": 4}}]
    expected = "pareto 0.9.1 and 1.0.0 with seeded weights, uint8 input, synthetic images, seed 3 and 4"
    assert made(both) == expected


def test_the_version_and_the_title_are_the_same_everywhere() -> None:
    cited, entry, changes = (
        (REPOSITORY / name).read_text() for name in ("CITATION.cff", "docs/citing.md", "CHANGELOG.md")
    )
    version, title = (
        re.findall(rf'^{key}: "?(.*?)"?$', cited, re.MULTILINE)[0] for key in ("version", "title")
    )
    assert version == pareto.__version__
    assert f"title = {{{title}}}" in entry and f"version = {{{version}}}" in entry
    assert re.search(rf"^## {re.escape(version)}\b", changes, re.MULTILINE)


def written(folder: Path, value: Any) -> Path:
    text = value if isinstance(value, str | bytes) else json.dumps(value)
    (folder / "manifest.json").write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


@pytest.mark.parametrize("content", hostile.MANIFESTS.values(), ids=hostile.MANIFESTS)
def test_an_unreadable_manifest_is_done_without_and_that_is_said(
    tmp_path: Path, content: str | bytes
) -> None:
    found, (note,) = read_manifest(written(tmp_path, content))
    assert found == {}
    assert "manifest.json" in note
    assert note.isprintable()
    assert len(note) < 300 + len(str(tmp_path))


def test_a_missing_one_is_nothing_to_say(tmp_path: Path) -> None:
    assert read_manifest(tmp_path) == ({}, [])
    os.mkfifo(tmp_path / "manifest.json")
    assert manifest(tmp_path) == {}


@pytest.mark.parametrize("option", FIELDS.values(), ids=FIELDS)
def test_an_option_of_another_type_is_left_out_and_all_that_is_written_fits(
    tmp_path: Path, option: Option
) -> None:
    """As a report writes the command that makes a run again."""
    fine = Sweep(model="m").model_dump(mode="json")
    assert read_manifest(written(tmp_path, {"sweep": fine})) == ({"sweep": fine}, [])
    for wrong in ("x", 7, {"a": 1}, [[1]], True):
        found, _ = read_manifest(written(tmp_path, {"sweep": {**fine, option.field: wrong}}))
        assert isinstance(command(found["sweep"]), str)
        assert isinstance(found["sweep"].get(option.field, wrong), type(wrong))


def test_only_what_is_of_another_type_is_left_out(tmp_path: Path) -> None:
    host = {"cpu": "ARM", "memory_bytes": "much", "idle_power_w": None, "threads": True}
    links = {"edge-server": {"rtt_s": 0.1, "rate_bps": "fast"}}
    fine = {"testbed": "two hosts", "newer": [[[1]]]}
    made = fine | {
        "sweep": {"tolerance": "wide", "rtt_floor": 0.002, "images": 16},
        "networks": {"wifi": ["wifi"], "lan": None, "lte": "lte"},
        "models": {"net": {"points": [{"payload_bytes": 4}, 7, {"payload_bytes": []}]}, "other": 3},
        "sessions": [{"hosts": {"edge": host, "server": []}, "bare_links": links}, 5],
    }
    edge, bare = {"cpu": "ARM", "idle_power_w": None}, {"edge-server": {"rtt_s": 0.1}}
    found, (note,) = read_manifest(written(tmp_path, made))
    assert found == fine | {
        "sweep": {"rtt_floor": 0.002, "images": 16}, "networks": {"wifi": ["wifi"]},
        "models": {"net": {"points": [{"payload_bytes": 4}, {}]}},
        "sessions": [{"hosts": {"edge": edge}, "bare_links": bare}],
    }  # fmt: skip
    assert "sweep.tolerance, networks.lte, models.net.points[1] and 7 more" in note


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.file)
def test_every_column_is_declared_once_and_explained(table: Table) -> None:
    assert len(set(table.columns)) == len(table.columns)
    assert list(table.meanings()) == list(table.columns)


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
    admitted = replace(found, where=where, front=front(found.trials, where=where))
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


def exported(found: Findings, path: Path) -> Path:
    (target,) = targets([str(path)])
    assert export(found, target) == str(path)
    return path


def test_one_parquet_file_says_what_its_columns_mean_and_how_it_was_made(
    found: Findings, tmp_path: Path
) -> None:
    path = exported(found, tmp_path / "new" / "run.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(path), found.trials, check_dtype=False)
    schema = parquet.read_schema(path)
    assert schema.field("latency_s").metadata[b"meaning"].decode() == TRIALS.meanings()["latency_s"]
    assert json.loads(schema.metadata[b"pareto"])["run"]["pareto"] == "0.1.0"


def test_sqlite_has_every_table_and_replaces_the_file(found: Findings, tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    path.write_text("an older one")
    with closing(sqlite3.connect(exported(found, path))) as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        assert names == set(tables(found)) >= {"trials", "front", "runs", "columns"}
        counted = connection.execute("SELECT reason, latency_s FROM trials WHERE status = 'invalid'")
        assert list(counted) == [(REASON, None)], "not measured is no 0"
        front = pd.read_sql("SELECT * FROM front WHERE on_front", connection)
    assert set(front["point"]) == set(found.front.loc[found.front["on_front"], "point"])


def test_excel_computes_nothing_that_a_name_says(found: Findings, tmp_path: Path) -> None:
    pytest.importorskip("openpyxl", reason="openpyxl is not installed")
    sheets = pd.read_excel(exported(found, tmp_path / "run.xlsx"), sheet_name=None)
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
    assert re.search(words, refusal(UserError, targets, [text]))

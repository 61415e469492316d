"""How runs were made: their manifests and columns, and both in words."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

import pareto
from pareto.analysis.costs import allocators as sentences
from pareto.analysis.methods import commands, made, methods
from pareto.analysis.runs.load import joined
from pareto.analysis.runs.manifest import manifest, read_manifest
from pareto.analysis.schema import TABLES, Table
from pareto.sweep.options import FIELDS, Option, command
from pareto.sweep.sweep import Sweep
from tests import REPOSITORY
from tests.unit.analysis import hostile
from tests.unit.example_run import trials, write

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

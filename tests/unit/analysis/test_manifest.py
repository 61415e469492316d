"""A run's manifest."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pareto.analysis.runs.manifest import manifest, read_manifest
from pareto.sweep.options import FIELDS, Option, command
from pareto.sweep.sweep import Sweep
from tests.unit.analysis import hostile


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
    made = {
        "testbed": "two hosts",
        "sweep": {"tolerance": "wide", "rtt_floor": 0.002, "images": 16},
        "networks": {"wifi": ["wifi"], "lan": None, "lte": "lte"},
        "models": {"net": {"points": [{"payload_bytes": 4}, 7, {"payload_bytes": []}]}, "other": 3},
        "sessions": [{"hosts": {"edge": host, "server": []}, "bare_links": links}, 5],
        "newer": [[[1]]],
    }
    found, (note,) = read_manifest(written(tmp_path, made))
    assert found == {
        "testbed": "two hosts",
        "sweep": {"rtt_floor": 0.002, "images": 16},
        "networks": {"wifi": ["wifi"]},
        "models": {"net": {"points": [{"payload_bytes": 4}, {}]}},
        "sessions": [
            {
                "hosts": {"edge": {"cpu": "ARM", "idle_power_w": None}},
                "bare_links": {"edge-server": {"rtt_s": 0.1}},
            }
        ],
        "newer": [[[1]]],
    }
    assert "sweep.tolerance, networks.lte, models.net.points[1] and 7 more" in note

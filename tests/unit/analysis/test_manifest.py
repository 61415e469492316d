"""A run's manifest."""

from __future__ import annotations

from pathlib import Path

from analysis.runs.manifest import manifest


def test_an_unreadable_manifest_is_done_without(tmp_path: Path) -> None:
    assert manifest(tmp_path) == {}
    (tmp_path / "manifest.json").write_text("{torn")
    assert manifest(tmp_path) == {}

"""The journal's files and folder while many programs come and go. What it undoes: tests/integration/test_link.py."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from pareto.remote.link import journal
from pareto.remote.link.netem import QdiscError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(journal, "FOLDER", tmp_path / "journal")
    return tmp_path / "journal"


@pytest.mark.parametrize("taken", ["before it is opened", "before it is locked", "and another made"])
def test_a_claim_whose_file_another_takes_away_is_made_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, taken: str
) -> None:
    """With the empty folder, once or several times."""
    opened, flock, times = os.open, fcntl.flock, iter(range(5))
    path = journal._path("lo")

    def take() -> bool:
        if more := next(times, None) is not None:
            path.unlink(missing_ok=True)
            folder.rmdir()
        return more

    def opening(*arguments: Any) -> int:
        if taken == "before it is opened":
            take()
        return opened(*arguments)

    def locking(*arguments: Any) -> None:
        if taken != "before it is opened" and take() and taken == "and another made":
            folder.mkdir()
            path.touch()
        flock(*arguments)

    monkeypatch.setattr(os, "open", opening)
    monkeypatch.setattr(fcntl, "flock", locking)
    claim = journal.claim("lo")
    assert next(times, None) is None
    assert [each.name for each in folder.iterdir()] == [path.name]
    assert claim.undo() == []
    assert not folder.exists()


def test_a_program_killed_before_it_had_written_leaves_nothing_to_undo(folder: Path) -> None:
    claim = journal.claim("lo")
    path = journal._path("lo")
    for written in ("", '{"namespace": 1, "interf'):
        path.with_name("1-other0.json").write_text(written)
        assert journal.leftovers() == journal.repair() == []
        assert list(folder.iterdir()) == [path]
    claim.undo()
    assert not folder.exists()


def test_what_cannot_be_put_back_keeps_its_record(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = journal.claim("lo").lock
    assert lock is not None
    os.close(lock)  # as its death does
    record = journal._path("lo").read_text()
    with monkeypatch.context() as patch:
        patch.setattr(journal.Journal, "put_back", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            journal.claim("lo")
    assert journal._path("lo").read_text() == record
    journal.claim("lo").undo()
    assert not folder.exists()


def test_a_folder_that_cannot_be_made_is_one_line(folder: Path) -> None:
    folder.symlink_to("/nowhere/at/all")
    with pytest.raises(QdiscError, match="cannot be made"):
        journal.claim("lo")


def test_a_journal_that_cannot_be_written_leaves_no_half_of_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        journal.claim("lo")
    assert not folder.exists()

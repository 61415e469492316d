"""The folder of what an ordinary user's testbeds have to put back: nobody else's, and there as long as one needs it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from pareto.hosts.local import user_namespace
from pareto.protocol.jsonlines import Refused


def test_a_folder_that_somebody_else_has_laid_there_is_refused(tmp_path: Path) -> None:
    """The folder for temporary files is everybody's: a link or an open folder of that name leads elsewhere."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "theirs")
    (tmp_path / "file").touch()
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    for name in ("link", "file", "open"):
        with pytest.raises(Refused, match="TMPDIR"):
            user_namespace._locked(tmp_path / name)
    assert list((tmp_path / "theirs").iterdir()) == []


def test_one_that_is_taken_away_meanwhile_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the testbed that used it last, between our opening and our locking it."""
    folder, flock, taken = tmp_path / "pareto", fcntl.flock, []

    def late(descriptor: int, how: int) -> None:
        if not taken:
            folder.rmdir()
            taken.append(descriptor)
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    descriptor = user_namespace._locked(folder)
    assert os.fstat(descriptor).st_ino == folder.stat().st_ino
    os.close(descriptor)

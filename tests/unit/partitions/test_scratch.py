"""Folders for a moment: gone at the end, and known where their process was killed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pareto.partitions import scratch
from tests import REPOSITORY

HOLD = """
import sys
from pareto.partitions import scratch
with scratch.folder() as folder:
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_is_removed_with_all_that_is_in_it(temporary: Path) -> None:
    with pytest.raises(KeyError), scratch.folder() as folder:
        (folder / "in it").mkdir()
        assert folder.stat().st_mode & 0o77 == 0
        raise KeyError
    assert [*temporary.iterdir()] == []
    # Only what is left over is removed.
    environment, pipes = (
        {**os.environ, "TMPDIR": str(temporary)},
        dict.fromkeys(("stdin", "stdout"), subprocess.PIPE),
    )
    command = [sys.executable, "-c", HOLD]
    with subprocess.Popen(command, cwd=REPOSITORY, env=environment, text=True, **pipes) as holder:
        assert holder.stdout
        folder = Path(holder.stdout.readline().strip())
        (folder / "weights").touch()
        with scratch.folder() as ours:
            assert scratch.left() == scratch.left(remove=True) == []
            assert ours.is_dir()
        holder.kill()
        holder.wait()
        assert scratch.left() == [folder]
        with scratch.folder() as ours:
            assert [*temporary.iterdir()] == [ours]
    # Folders of others are let be. Somebody else may make names in a folder that is everybody's.
    (temporary / "precious").mkdir()
    (temporary / f"{scratch.PREFIX}link").symlink_to("precious")
    (temporary / f"{scratch.PREFIX}file").touch()
    if os.geteuid() == 0:
        theirs = temporary / f"{scratch.PREFIX}theirs"
        theirs.mkdir()
        os.chown(theirs, 12345, 12345)
    before = sorted(temporary.iterdir())
    assert scratch.left(remove=True) == scratch.left() == []
    assert sorted(temporary.iterdir()) == before

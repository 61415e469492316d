"""What the main job needs from the machine is found out first, and said in one line."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.hosts.host import TestbedError
from pareto.hosts.local import rights
from pareto.hosts.local_testbed import require_local
from tests import REPOSITORY


def test_no_sshd(monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion) -> None:
    monkeypatch.setattr(rights, "SSHD", ("/nowhere/sshd",))
    with pytest.raises(TestbedError) as refused:
        require_local()
    assert str(refused.value) == snapshot


def test_the_entry_says_what_is_wrong_with_the_python_it_was_given(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    """A copy without .venv, so that it must look for an interpreter."""
    for name in ("pareto.sh", "requirements.txt", "requirements-worker.txt"):
        shutil.copy(REPOSITORY / name, tmp_path)
    old = tmp_path / "python2"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 2.7.18\nexit 1\n')
    old.chmod(0o755)
    said = []
    for python, named in ((str(old), "2.7.18"), ("/nowhere/python", "/nowhere/python")):
        done = subprocess.run(
            [tmp_path / "pareto.sh", "--help"],
            env={**os.environ, "PYTHON": python},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert named in line
        said.append(line)
    assert said == snapshot
    assert not (tmp_path / ".venv").exists()

"""What the main job needs from the machine is found out first, and said in one line."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.hosts import local_testbed
from pareto.hosts.host import TestbedError
from pareto.hosts.local import sshd
from pareto.hosts.local_testbed import require_local
from tests import REPOSITORY


@pytest.fixture
def with_sshd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sshd, "_BINARIES", ("/bin/sh",))


def test_no_sshd(monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion) -> None:
    monkeypatch.setattr(sshd, "_BINARIES", ("/nowhere/sshd",))
    with pytest.raises(TestbedError) as refused:
        require_local()
    assert str(refused.value) == snapshot


@pytest.mark.usefixtures("with_sshd")
def test_root_needs_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    require_local()
    assert "sudo" not in local_testbed._keeper_command()


@pytest.mark.usefixtures("with_sshd")
def test_neither_root_nor_sudo(monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(TestbedError) as refused:
        require_local()
    assert str(refused.value) == snapshot


@pytest.mark.usefixtures("with_sshd")
@pytest.mark.parametrize(("lets", "sudo"), [(True, "true"), (False, "false")])
def test_sudo_decides(
    monkeypatch: pytest.MonkeyPatch, lets: bool, sudo: str, snapshot: SnapshotAssertion
) -> None:
    found = shutil.which(sudo)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(shutil, "which", lambda name: found)
    if lets:
        require_local()
        assert local_testbed._keeper_command()[:2] == ["sudo", "-n"]
    else:
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

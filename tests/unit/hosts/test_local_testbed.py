"""What the main job needs from the machine is found out first, and said in one line."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.hosts.connection import Unreachable
from pareto.hosts.host import EDGE, SERVER, TestbedError
from pareto.hosts.local import rights
from pareto.hosts.local.testbed import LocalTestbed, require_local
from pareto.hosts.session import SessionError
from tests import REPOSITORY


def test_no_sshd(monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion) -> None:
    monkeypatch.setattr(rights, "SSHD", ("/nowhere/sshd",))
    with pytest.raises(TestbedError) as refused:
        require_local()
    assert str(refused.value) == snapshot


def bed_of(renew: Mock, check: Mock, build: Mock) -> LocalTestbed:
    """A testbed whose hosts are made sure of by `renew`, and whose builder looks at its parts by `check`."""
    remote: Any = Mock(renew=renew)
    remote.connection.loss = Mock(return_value="")
    builder: Any = Mock(request=check)
    hosts = {EDGE: remote, SERVER: remote}
    return LocalTestbed(hosts, (), "", {}, True, ExitStack(), builder=builder, build=build)


def test_a_testbed_whose_parts_answer_is_whole() -> None:
    renew = Mock()
    bed_of(renew, Mock(), Mock(side_effect=AssertionError("it is whole"))).revive()
    assert renew.call_count == 2


@pytest.mark.parametrize(
    ("renew", "check"),
    [
        (Mock(side_effect=Unreachable("edge: the connection is lost")), Mock()),
        (Mock(), Mock(side_effect=SessionError("no relay"))),
    ],
)
def test_a_testbed_with_a_part_that_does_not_answer_is_built_again(renew: Mock, check: Mock) -> None:
    anew = bed_of(Mock(), Mock(), Mock())
    bed = bed_of(renew, check, Mock(return_value=anew))
    bed.revive()
    assert bed.builder is anew.builder


def test_the_entry_says_what_is_wrong_with_the_python_it_was_given(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    """A copy without .venv, so that it must look for an interpreter."""
    for name in ("pareto.sh", *(path.name for path in REPOSITORY.glob("requirements*.txt"))):
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

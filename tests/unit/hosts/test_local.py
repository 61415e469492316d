"""The local testbed: by which right, on which cores, in which folder, and what the main job needs of the machine."""

from __future__ import annotations

import fcntl
import os
import platform
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.hosts.connection import Unreachable
from pareto.hosts.host import EDGE, SERVER, TestbedError
from pareto.hosts.local import cpu, rights, user_namespace
from pareto.hosts.local.cpu import Placement, core_time, quota, siblings
from pareto.hosts.local.rights import OWN, ROOT, SUDO, Forbidden
from pareto.hosts.local.testbed import LocalTestbed, require_local
from pareto.hosts.session import SessionError
from pareto.protocol.jsonlines import Refused
from tests import REPOSITORY
from tests.unit.refusals import refusal


def test_no_sshd(monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion) -> None:
    monkeypatch.setattr(rights, "SSHD", ("/nowhere/sshd",))
    assert refusal(TestbedError, require_local) == snapshot


def bed_of(renew: Mock, check: Mock, build: Mock) -> LocalTestbed:
    """A testbed whose hosts are made sure of by `renew`, and whose builder looks at its parts by `check`."""
    remote: Any = Mock(renew=renew)
    remote.connection.loss = Mock(return_value="")
    builder: Any = Mock(request=check)
    return LocalTestbed(
        {EDGE: remote, SERVER: remote}, (), "", {}, True, ExitStack(), builder=builder, build=build
    )


def test_a_testbed_with_a_part_that_does_not_answer_is_built_again() -> None:
    renew = Mock()
    bed_of(renew, Mock(), Mock(side_effect=AssertionError("it is whole"))).revive()
    assert renew.call_count == 2
    lost = Mock(side_effect=Unreachable("edge: the connection is lost"))
    for renew, check in ((lost, Mock()), (Mock(), Mock(side_effect=SessionError("no relay")))):
        anew = bed_of(Mock(), Mock(), Mock())
        bed = bed_of(renew, check, Mock(return_value=anew))
        bed.revive()
        assert bed.builder is anew.builder


def test_the_entry_says_what_is_wrong_with_a_python(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """A copy without .venv, so that it must look for an interpreter."""
    for name in ("pareto.sh", *(path.name for path in REPOSITORY.glob("requirements*.txt"))):
        shutil.copy(REPOSITORY / name, tmp_path)
    old = tmp_path / "python2"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 2.7.18\nexit 1\n')
    old.chmod(0o755)
    said = []
    for python, named in ((str(old), "2.7.18"), ("/nowhere/python", "/nowhere/python")):
        environment = {**os.environ, "PYTHON": python}
        argv = [tmp_path / "pareto.sh", "--help"]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert named in line
        said.append(line)
    assert said == snapshot
    assert not (tmp_path / ".venv").exists()


# On which cores.


PAIRS = [(0, 4), (1, 5), (2, 6), (3, 7)]


def test_siblings_are_not_two_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for hosts, physical, placed in (
        (2, PAIRS, ((0, 1), (2, 3, 6, 7), ())),
        (4, PAIRS, ((0, 1, 2, 3), (4, 5, 6, 7), ())),
        (5, PAIRS, ((0, 1, 2, 3, 4), (5, 6, 7), ((0, 4),))),
        (2, [(0, 1)], ((0, 1), (), ((0, 1),))),
        (2, [(0, 1), (2, 3)], ((0, 2), (1, 3), ())),
        (2, [(0,), (1,)], ((0, 1), (), ())),
        (3, [(0,), (1,)], ((0, 1, 0), (), ((0, 2),))),
        (2, [(5,)], ((5, 5), (), ((0, 1),))),
    ):
        assert cpu.place(hosts, physical) == Placement(*placed)
    # The share is kept and the period is as short as the kernel allows.
    for share in (0.05, 0.1, 0.2, 0.25, 0.5, 0.99):
        quota_us, period_us = quota(share)
        assert quota_us / period_us == pytest.approx(share, rel=0.01)
        assert quota_us >= cpu.LEAST_QUOTA_US
        assert period_us == cpu.PERIOD_US or quota_us == cpu.LEAST_QUOTA_US
    # The kernel says which threads a core has. Only those that this process may use are given: all of them
    # siblings of one core, whatever this machine has.
    assert siblings(3, tmp_path) == {3}
    for text, threads in (("0,4\n", {0, 4}), ("0-1\n", {0, 1}), ("3\n", {3}), ("?", {3})):
        topology(tmp_path, 3, text)
        assert siblings(3, tmp_path) == threads
    allowed = os.sched_getaffinity(0)
    for number in allowed:
        topology(tmp_path, number, "0-9999")
    found = cpu.place(2, cpu.physical(tmp_path))
    assert set(found.hosts) <= allowed
    assert found.together == ((0, 1),)
    # Several testbeds have cores apart if enough.
    nowhere = tmp_path / "none"
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3, 4, 5})
    assert cpu.apart(2, 2, nowhere) == [[0, 1, 2], [3, 4, 5]]
    assert cpu.apart(2, 4, nowhere) == cpu.apart(1, 2, nowhere) == []


def topology(root: Path, number: int, threads: str) -> None:
    file = root / f"devices/system/cpu/cpu{number}/topology/thread_siblings_list"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(threads)


def test_a_process_and_all_that_it_starts_are_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what has ended since; the rest of some cores is what others have had."""
    for after, percent in (
        ((12.0, 103.0, 41.0), 100 * 2.0 / (2 * 2)),
        ((12.0, 100.9, 41.0), 0.0),  # two counts, not quite of one time
    ):
        with monkeypatch.context() as counted:
            times = iter(((10.0, 100.0, 40.0), after))
            counted.setattr(cpu, "core_time", lambda _, times=times: next(times))
            assert cpu.watch_strangers([0, 1])() == pytest.approx(percent)
    core = max(os.sched_getaffinity(0))
    spend = f"import os, time; os.sched_setaffinity(0, {{{core}}})\nwhile time.process_time() < 0.3: pass"
    _, all_before_s, before_s = core_time({core})
    subprocess.run([sys.executable, "-c", spend], check=True)
    _, all_s, ours_s = core_time({core})
    assert ours_s - before_s >= 0.28
    assert all_s - all_before_s >= 0.2
    # Programs have had the time in which cores were not idle. Whatever the kernel's ticks say of programs: a quota
    # ends their turns at these.
    counted = iter([[[7, 7, 7, 100, 20, 1, 2, 3]] * 2, [[99, 99, 99, 200, 50, 11, 12, 13]] * 2])
    monkeypatch.setattr(cpu, "cores", lambda *_: next(counted))
    (began_s, all_before_s, _), (at_s, all_s, _) = (core_time({0, 1}) for _ in range(2))
    without_s = 2 * (100 + 30 + 3 * 10) / os.sysconf("SC_CLK_TCK")
    assert all_s - all_before_s == pytest.approx(2 * (at_s - began_s) - without_s)


class Cgroups:
    """A /proc and a cgroup tree of version 2, of which only some groups are this user's."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.proc, self.top = root / "proc", root / "cgroup"
        self.own = self.top / "user.slice/user@1000.service/app.slice/pareto.scope"
        self.ours: set[Path] = set()
        (self.proc / "self").mkdir(parents=True)
        self.own.mkdir(parents=True)
        line = f"29 22 0:26 / {self.top} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
        (self.proc / "self/mountinfo").write_text(f"28 22 0:25 / /sys rw - sysfs sysfs rw\n{line}")
        (self.proc / "self/cgroup").write_text(f"0::/{self.own.relative_to(self.top)}\n")
        (self.top / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
        monkeypatch.setattr(cpu, "_is_ours", lambda group: group in self.ours)

    def found(self) -> Path:
        group, version = cpu._controller("cpu", self.proc)
        assert version == 2
        return group


def test_shares_are_made_where_they_are_delegated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root's at the top; a user's not among the processes themselves, but beside them, in the nearest group that gives
    its own shares. Nothing delegated is one line that says how to get it."""
    cgroups = Cgroups(tmp_path, monkeypatch)
    cgroups.ours = {cgroups.top, cgroups.own}
    assert cgroups.found() == cgroups.top
    cgroups.ours = {cgroups.own}
    assert re.search("--edge-cpu .* systemd-run", refusal(Refused, cgroups.found))
    service = cgroups.own.parent
    cgroups.ours = {cgroups.own, service, service.parent}
    for group in (service, service.parent):
        (group / "cgroup.subtree_control").write_text("cpu memory pids\n")
    assert cgroups.found() == service


# By which right.


@pytest.mark.parametrize(
    ("uid", "lacking", "refused", "sudo", "own_lacks", "kind"),
    [
        (0, [], "", False, "", ROOT),
        (0, [], "", False, "no share of a core", ROOT),
        (1000, [], "", True, "", OWN),  # sudo is not asked for where the kernel lets a user make a namespace
        (1000, [], "unshare: no", True, "", SUDO),
        (1000, [], "", True, "no share of a core", SUDO),
        (0, ["NET_ADMIN", "SYS_ADMIN"], "", False, "", OWN),  # root of a container
        (1000, [], "unshare: no", False, "", None),
        (1000, [], "unshare: no", False, "no share of a core", None),
        (0, ["NET_ADMIN", "SYS_ADMIN"], "unshare: no", False, "", None),
        (0, ["SYS_ADMIN"], "unshare: no", False, "", None),
        (0, [], "mount: /run: permission denied.", False, "", None),
    ],
)
def test_by_which_right_it_is_made_and_what_is_said_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
    uid: int,
    lacking: list[str],
    refused: str,
    sudo: bool,
    own_lacks: str,
    kind: str | None,
    snapshot: SnapshotAssertion,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    for name, answer in (("_lacking", lacking), ("_refusal", refused), ("_sudo", sudo)):
        monkeypatch.setattr(rights, name, Mock(return_value=answer))
    if kind is not None:
        found = rights.find(own_lacks)
        prefix = {ROOT: (), OWN: ("unshare",), SUDO: ("sudo", "-n")}[kind]
        assert (found.kind, found.prefix[: len(prefix)]) == (kind, prefix)
        return
    words = refusal(Forbidden, rights.find, own_lacks)
    assert words == snapshot
    assert re.findall(r"--cap-add (\w+)", words) == lacking
    assert not lacking or "--testbed FILE" in words
    assert not own_lacks or words == own_lacks


def test_another_system_is_told_what_it_can_do(
    monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    assert refusal(Forbidden, rights.find) == snapshot


# In which folder.


def test_a_folder_that_somebody_else_has_laid_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    # One taken away meanwhile is made again. By the testbed that used it last, between our opening and our
    # locking it.
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

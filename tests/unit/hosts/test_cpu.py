"""How much of a core a host of the local testbed gets, before any kernel is asked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pareto.hosts.local import cpu
from pareto.hosts.local.cpu import (
    LEAST_QUOTA_US,
    PERIOD_US,
    CoreTime,
    Placement,
    apart,
    core_time,
    place,
    placement,
    quota,
    siblings,
)
from pareto.protocol.jsonlines import Refused


@pytest.mark.parametrize("share", [0.05, 0.1, 0.2, 0.25, 0.5, 0.99])
def test_the_share_is_kept_and_the_period_is_as_short_as_the_kernel_allows(share: float) -> None:
    quota_us, period_us = quota(share)
    assert quota_us / period_us == pytest.approx(share, rel=0.01)
    assert quota_us >= LEAST_QUOTA_US
    assert period_us == PERIOD_US or quota_us == LEAST_QUOTA_US


PAIRS = [(0, 4), (1, 5), (2, 6), (3, 7)]


@pytest.mark.parametrize(
    ("hosts", "physical", "placed"),
    [
        (2, PAIRS, Placement((0, 1), (2, 3, 6, 7), ())),
        (4, PAIRS, Placement((0, 1, 2, 3), (4, 5, 6, 7), ())),
        (5, PAIRS, Placement((0, 1, 2, 3, 4), (5, 6, 7), ((0, 4),))),
        (2, [(0, 1)], Placement((0, 1), (), ((0, 1),))),
        (2, [(0, 1), (2, 3)], Placement((0, 2), (1, 3), ())),
        (2, [(0,), (1,)], Placement((0, 1), (), ())),
        (3, [(0,), (1,)], Placement((0, 1, 0), (), ((0, 2),))),
        (2, [(5,)], Placement((5, 5), (), ((0, 1),))),
    ],
)
def test_siblings_of_a_core_are_not_two_cores(
    hosts: int, physical: list[tuple[int, ...]], placed: Placement
) -> None:
    assert place(hosts, physical) == placed


@pytest.mark.parametrize(
    ("text", "threads"), [("0,4\n", {0, 4}), ("0-1\n", {0, 1}), ("3\n", {3}), ("?", {3})]
)
def test_which_threads_a_core_has_is_the_kernels_word(tmp_path: Path, text: str, threads: set[int]) -> None:
    assert siblings(3, tmp_path) == {3}
    file = tmp_path / "devices/system/cpu/cpu3/topology/thread_siblings_list"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert siblings(3, tmp_path) == threads


def test_only_processors_that_this_process_may_use_are_given(tmp_path: Path) -> None:
    """All of them siblings of one core: what this machine has is not asked."""
    allowed = os.sched_getaffinity(0)
    for number in allowed:
        file = tmp_path / f"devices/system/cpu/cpu{number}/topology/thread_siblings_list"
        file.parent.mkdir(parents=True)
        file.write_text("0-9999")
    found = placement(2, tmp_path)
    assert set(found.hosts) <= allowed
    assert found.together == ((0, 1),)


def test_several_testbeds_have_cores_apart_where_there_are_enough(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3, 4, 5})
    assert apart(2, 2, tmp_path) == [[0, 1, 2], [3, 4, 5]]
    assert apart(2, 4, tmp_path) == apart(1, 2, tmp_path) == []


def test_what_others_have_had_of_some_cores() -> None:
    before, after = CoreTime(10.0, 100.0, 40.0), CoreTime(12.0, 103.0, 41.0)
    assert after.strangers_percent(before, 2) == pytest.approx(100 * 2.0 / (2 * 2))
    assert (
        CoreTime(12.0, 100.9, 41.0).strangers_percent(before, 2) == 0.0
    )  # two counts, not quite of one time


def test_a_process_and_all_that_it_starts_are_ours() -> None:
    """Also what has ended since."""
    core = max(os.sched_getaffinity(0))
    spend = f"import os, time; os.sched_setaffinity(0, {{{core}}})\nwhile time.process_time() < 0.3: pass"
    before = core_time(os.getpid(), {core})
    subprocess.run([sys.executable, "-c", spend], check=True)
    after = core_time(os.getpid(), {core})
    assert after.ours_s - before.ours_s >= 0.28
    assert after.all_s - before.all_s >= 0.2


def test_what_cores_were_not_idle_is_what_programs_have_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the kernel's ticks say of programs: a quota ends their turns at these."""
    counted = iter([[[7, 7, 7, 100, 20, 1, 2, 3]] * 2, [[99, 99, 99, 200, 50, 11, 12, 13]] * 2])
    monkeypatch.setattr(cpu, "cores", lambda *_: next(counted))
    before, after = (core_time(os.getpid(), {0, 1}) for _ in range(2))
    without_s = 2 * (100 + 30 + 3 * 10) / os.sysconf("SC_CLK_TCK")
    assert after.all_s - before.all_s == pytest.approx(2 * (after.at_s - before.at_s) - without_s)


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
        group, version = cpu._cpu_controller(self.proc)
        assert version == 2
        return group


@pytest.fixture
def cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cgroups:
    return Cgroups(tmp_path, monkeypatch)


def test_root_s_shares_are_made_at_the_top(cgroups: Cgroups) -> None:
    cgroups.ours = {cgroups.top, cgroups.own}
    assert cgroups.found() == cgroups.top


def test_a_user_s_are_made_where_they_are_delegated(cgroups: Cgroups) -> None:
    """Not among the processes themselves, but beside them, in the nearest group that gives its own shares."""
    service = cgroups.own.parent
    cgroups.ours = {cgroups.own, service, service.parent}
    for group in (service, service.parent):
        (group / "cgroup.subtree_control").write_text("cpu memory pids\n")
    assert cgroups.found() == service


def test_nothing_delegated_is_one_line_that_says_how_to_get_it(cgroups: Cgroups) -> None:
    cgroups.ours = {cgroups.own}
    with pytest.raises(Refused, match=r"--edge-cpu .* systemd-run"):
        cgroups.found()

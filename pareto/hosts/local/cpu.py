"""Which core a host runs on, and how much of it: a pinned core each, and a CPU quota for a slower one."""

from __future__ import annotations

import os
from pathlib import Path

from pareto.hosts.local.journal import Journal
from pareto.jsonlines import Refused

PERIOD_US = 5_000
"""Length of a quota period. With the kernel's 100 ms a stage either fits or waits 75 ms: latency gets bursty."""
LEAST_QUOTA_US = 1_000
"""The kernel's: for less of a core the period is longer."""


def cores(hosts: int) -> list[int]:
    """A core for each host; they share where there are fewer cores than hosts."""
    available = sorted(os.sched_getaffinity(0))
    return [available[i % len(available)] for i in range(hosts)]


def limit(journal: Journal, name: str, share: float) -> Path:
    """A cgroup whose members get `share` of one core; returns the file that takes their pids."""
    parent, version = _cpu_controller()
    group = parent / f"pareto{journal.slot}-{name}"
    journal.note("cgroup", str(group))
    group.mkdir()
    quota_us, period_us = quota(share)
    if version == 2:
        (group / "cpu.max").write_text(f"{quota_us} {period_us}")
    else:
        (group / "cpu.cfs_period_us").write_text(str(period_us))
        (group / "cpu.cfs_quota_us").write_text(str(quota_us))
    return group / "cgroup.procs"


def quota(share: float) -> tuple[int, int]:
    """Microseconds of computing, and the period they are for."""
    quota_us = max(LEAST_QUOTA_US, round(share * PERIOD_US))
    return quota_us, max(PERIOD_US, round(quota_us / share))


def _cpu_controller() -> tuple[Path, int]:
    """Where a cgroup with a CPU quota can be made, and the cgroup version there."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, kind, options, *_ = line.split()
        if kind == "cgroup" and "cpu" in options.split(","):
            return Path(mount), 1
    unified = Path("/sys/fs/cgroup")
    if "cpu" not in _words(unified / "cgroup.controllers"):
        raise Refused("--edge-cpu needs the cgroup cpu controller, and this kernel has none mounted")
    if "cpu" not in _words(unified / "cgroup.subtree_control"):
        (unified / "cgroup.subtree_control").write_text("+cpu")
    return unified, 2


def _words(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []

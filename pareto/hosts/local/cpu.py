"""The core that a host runs on, and how much of it and of memory: a pinned core each, and cgroups for less."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from pareto import COMMAND
from pareto.hosts.local.journal import Journal
from pareto.protocol.jsonlines import Refused
from pareto.remote.worker.sensors.processor import cores

PERIOD_US = 5_000
"""Length of a quota period. With the kernel's 100 ms a stage either fits or waits 75 ms: latency gets bursty."""
LEAST_QUOTA_US = 1_000
"""The kernel's: for less of a core the period is longer."""
OPTIONS = {"cpu": "--edge-cpu", "memory": "--memory"}
"""The option that each cgroup controller is for."""


@dataclass(frozen=True)
class Placement:
    """Logical processors as the kernel numbers them.

    hosts: one for each. rest: for what belongs to no host, where something is left. together: of hosts whose threads of
    execution are on one physical core, so that each slows the others, the numbers in the chain.
    """

    hosts: tuple[int, ...]
    rest: tuple[int, ...]
    together: tuple[tuple[int, ...], ...]


def physical(sysfs: Path = Path("/sys")) -> list[tuple[int, ...]]:
    """The threads of each physical core, of those that this process may use."""
    available = os.sched_getaffinity(0)
    return sorted({tuple(sorted(siblings(number, sysfs) & available)) for number in available})


def place(hosts: int, cores: Sequence[tuple[int, ...]]) -> Placement:
    """Where the hosts of a chain run: each on a core of its own where there are enough, else a thread, else a share."""
    turns = [thread for turn in itertools.zip_longest(*cores) for thread in turn if thread is not None]
    chosen = tuple(turns[number % len(turns)] for number in range(hosts))
    of_core = {core: tuple(i for i, thread in enumerate(chosen) if thread in core) for core in cores}
    free = [thread for core in cores if not of_core[core] for thread in core]
    return Placement(
        chosen,
        tuple(sorted(free or set(turns) - set(chosen))),
        tuple(those for those in of_core.values() if len(those) > 1),
    )


def apart(testbeds: int, hosts: int, sysfs: Path = Path("/sys")) -> list[list[int]]:
    """The processors that each of several testbeds may use: physical cores of its own, enough for its hosts.

    None where there are not enough for all. Then each is told by the lease on a core that another has it.
    """
    cores = physical(sysfs)
    each = len(cores) // testbeds
    if testbeds < 2 or each < hosts:
        return []
    return [[*itertools.chain(*cores[place * each :][:each])] for place in range(testbeds)]


def siblings(number: int, sysfs: Path) -> set[int]:
    """The threads of the physical core that a logical processor belongs to; itself alone where nobody knows."""
    file = sysfs / f"devices/system/cpu/cpu{number}/topology/thread_siblings_list"
    try:
        ranges = [part.partition("-") for part in file.read_text().strip().split(",")]
        return {each for first, _, last in ranges for each in range(int(first), int(last or first) + 1)}
    except (OSError, ValueError):
        return {number}


def core_time(which: set[int]) -> tuple[float, float, float]:
    """The time, and the seconds of some cores that until then all programs, and this one with all it started, have had.

    The kernel counts idle time exactly. It samples running programs at its ticks, at which a CPU quota ends turns: a
    quarter of a core looks like 0.33 to 0.4 of it.
    """
    ours_s = 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with suppress(psutil.Error):
            if which.intersection(process.cpu_affinity()):
                times = process.cpu_times()
                # What has ended counts with who has waited for it.
                ours_s += times.user + times.system + times.children_user + times.children_system
    counters, at_s = cores(Path("/proc/stat").read_text(), which), time.monotonic()
    without_s = sum(sum(of[3:8]) for of in counters) / os.sysconf("SC_CLK_TCK")  # idle, interrupts, stolen
    return at_s, at_s * len(counters) - without_s, ours_s


def watch_strangers(which: Sequence[int]) -> Callable[[], float]:
    """A function: the percentage of some cores that others than this process have taken since now."""
    before = core_time(set(which))

    def percent() -> float:
        took_s, all_s, ours_s = (now - then for now, then in zip(core_time(set(which)), before, strict=True))
        return max(0.0, 100 * (all_s - ours_s) / took_s / len(which))

    return percent


def limit(journal: Journal, name: str, share: float, memory: int) -> list[Path]:
    """The files that take the pids of cgroups whose members get `share` of one core, and all together `memory` bytes;
    none for a whole core and 0. Raises Refused."""
    takes: list[Path] = []
    for controller in limited(share, memory):
        parent, version = _controller(controller)
        group, quota_us = parent / f"pareto{journal.slot}-{name}", quota(share)
        by_version: dict[tuple[str, int], dict[str, int | str]] = {
            ("cpu", 1): {"cpu.cfs_period_us": quota_us[1], "cpu.cfs_quota_us": quota_us[0]},
            ("cpu", 2): {"cpu.max": "{} {}".format(*quota_us)},
            ("memory", 1): {"memory.swappiness": 0, "memory.limit_in_bytes": memory},
            ("memory", 2): {"memory.swap.max": 0, "memory.max": memory},
        }
        try:
            if version == 2 and controller not in _words(parent / "cgroup.subtree_control"):
                (parent / "cgroup.subtree_control").write_text(f"+{controller}")
            if not takes or takes[0].parent != group:
                journal.note("cgroup", str(group))
                group.mkdir()
                takes.append(group / "cgroup.procs")
            for file, value in by_version[controller, version].items():
                if "swap" not in file or (group / file).exists():  # not each kernel swaps
                    (group / file).write_text(str(value))
        except OSError as error:
            raise Refused(
                f"{OPTIONS[controller]}: nothing is to be had in {parent}: {error.strerror}"
            ) from None
    return takes


def limited(share: float, memory: int) -> list[str]:
    """The cgroup controllers that hold a host to this share of a core, and to so many bytes."""
    return ["cpu"] * (share < 1) + ["memory"] * (memory > 0)


def refused(controllers: Sequence[str] = ("cpu",)) -> str:
    """Why this process, as it is, can limit no host by these controllers; empty where it can."""
    try:
        for each in controllers:
            _controller(each)
    except Refused as refused:
        return str(refused)
    return ""


def quota(share: float) -> tuple[int, int]:
    """Microseconds of computing, and the period they are for."""
    quota_us = max(LEAST_QUOTA_US, round(share * PERIOD_US))
    return quota_us, max(PERIOD_US, round(quota_us / share))


def _controller(name: str = "cpu", proc: Path = Path("/proc")) -> tuple[Path, int]:
    """Where this process may make a cgroup with this controller, and the cgroup version there. Raises Refused.

    At the top; else in the nearest of the groups it is in that is the user's, delegated to him by who is root.
    """
    root, top, version = _hierarchy(name, proc)
    if _is_ours(top):
        return top, version
    of_ours = (line.split(":", 2)[1:] for line in (proc / "self/cgroup").read_text().splitlines())
    wanted = name if version == 1 else ""
    path = next((path for controllers, path in of_ours if wanted in controllers.split(",")), "/")
    own = top / os.path.relpath(path, root)
    for group in [own, *own.parents]:
        if not group.is_relative_to(top):
            break
        # A group of version 2 that has processes itself gives no shares to the groups in it.
        if _is_ours(group) and (version == 1 or name in _words(group / "cgroup.subtree_control")):
            return group, version
    raise Refused(
        f"{OPTIONS[name]} needs a cgroup of its own, and none is delegated to this user: run it as root, or by "
        f"systemd-run --user --scope -p Delegate=yes {COMMAND} ..."
    )


def _is_ours(group: Path) -> bool:
    return os.access(group, os.W_OK) and os.access(group / "cgroup.procs", os.W_OK)


def _hierarchy(name: str, proc: Path) -> tuple[str, Path, int]:
    """The group that is mounted, where, and the cgroup version, by proc(5)'s mountinfo: a later mount covers others."""
    unified = ("", proc, 2)
    for line in reversed((proc / "self/mountinfo").read_text().splitlines()):
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        root, mount = before.split()[3:5]
        if kind == "cgroup" and name in options.split(","):
            return root, Path(mount), 1
        if kind == "cgroup2" and not unified[0]:
            unified = root, Path(mount), 2
    if name not in _words(unified[1] / "cgroup.controllers"):
        raise Refused(f"{OPTIONS[name]} needs the cgroup {name} controller, and this kernel has none mounted")
    return unified


def _words(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []

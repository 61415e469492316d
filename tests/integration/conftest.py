"""What integration tests share: where the repository is, and what a testbed would leave on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyroute2 import IPRoute, netns

from tests import REPOSITORY

OURS = ("pareto.worker", "pareto.link", "pareto.hosts.local", "/run/pareto/")


def left_behind() -> set[str]:
    """Namespaces, interfaces, folders, cgroups and processes of local testbeds that are here now."""
    found = {f"namespace {name}" for name in netns.listnetns() if name.startswith("pareto")}
    with IPRoute() as ip:
        names = [str(link.get_attr("IFLA_IFNAME")) for link in ip.get_links()]
    found |= {f"interface {name}" for name in names if name.startswith("pareto")}
    for pattern in (
        "run/pareto",
        "run/pareto-link/*.json",
        "tmp/pareto*",
        "sys/fs/cgroup/pareto*",
        "sys/fs/cgroup/cpu/pareto*",
    ):
        found |= {f"file {path}" for path in Path("/").glob(pattern)}
    return found | {f"process {pid} {command}" for pid, command in processes()}


def processes() -> Iterator[tuple[int, str]]:
    """Pids and commands of every program that a testbed starts, this one's ancestors and pytest left out."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if any(mark in command for mark in OURS) and "pytest" not in command and state != "Z":
            yield int(entry.name), command


def start(out: Path, *arguments: str) -> subprocess.Popen[str]:
    """The program, as from a command line of its own; its results go to `out`."""
    return subprocess.Popen(
        [sys.executable, "-m", "pareto", *arguments, "--out", str(out)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_until(true: Callable[[], object], timeout_s: float = 20.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Whatever the test does, the machine is as it was a moment later."""
    before = left_behind()
    yield
    wait_until(lambda: left_behind() <= before)
    assert left_behind() - before == set()

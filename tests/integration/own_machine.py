"""A machine of a test module's own: a network, /run, shared memory and CPU quotas that nobody else sees or touches.

Namespaces, interfaces, addresses, journals and cgroups of a local testbed have the same names in each, so that suites
and sweeps run beside each other; what a killed run leaves in one is swept up there alone; and when the last process
in it has ended, the kernel takes away what is left.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from pyroute2 import IPRoute, netns

from pareto.hosts.local import cpu
from pareto.protocol.jsonlines import Refused
from tests.less_than_root import MAKES_NETWORKS
from tests.program import wait_until

_NAMESPACES = {"mnt": 0x00020000, "net": 0x40000000}  # CLONE_NEWNS, CLONE_NEWNET
_CLONE_FS = 0x00000200
_CGROUP = "pareto-test-"
_FOLDERS = {"/run": "755", "/dev/shm": "1777"}  # noqa: S108
_TEMPORARY = "/run/tmp"


@contextmanager
def left_clean() -> Iterator[None]:
    """A machine of its own, where such can be made; nothing may be left on it in the end."""
    if not MAKES_NETWORKS:
        yield
        return
    with own_machine():
        yield
        wait_until(lambda: not left_behind())
        left = left_behind()
        assert left == set(), (left, dict(processes()))


@contextmanager
def own_machine() -> Iterator[None]:
    """For the calling thread, and for what it starts meanwhile."""
    with ExitStack() as undo:
        cgroups = _own_cgroup()
        for own in cgroups.values():
            undo.callback(_remove_cgroup, own)
        undo.callback(os.chdir, Path.cwd())
        for kind in _NAMESPACES:
            before = os.open(f"/proc/thread-self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)
            undo.callback(os.close, before)
            undo.callback(_enter, before)
        _system_call("unshare", sum(_NAMESPACES.values()))
        subprocess.run(["sh", "-ec", "\n".join(_script(cgroups))], check=True)
        undo.enter_context(pytest.MonkeyPatch.context()).setenv("TMPDIR", _TEMPORARY)
        yield


def left_behind() -> set[str]:
    """Namespaces, interfaces, folders, cgroups and processes that are on this machine now."""
    found = {f"namespace {name}" for name in netns.listnetns()}
    with IPRoute() as ip:
        names = [str(link.get_attr("IFLA_IFNAME")) for link in ip.get_links()]
    found |= {f"interface {name}" for name in names if name.startswith("pareto")}
    patterns = (
        "run/pareto run/pareto-link/*.json dev/shm/pareto* sys/fs/cgroup/pareto* sys/fs/cgroup/cpu/pareto*"
    )
    for pattern in (*patterns.split(), f"{_TEMPORARY[1:]}/pareto*"):
        found |= {f"file {path}" for path in Path("/").glob(pattern)}
    return found | {f"process {pid}" for pid, _ in processes()}


def processes() -> Iterator[tuple[int, str]]:
    """Pids and commands of what runs on this machine, in whichever of its namespaces; pytest left out."""
    networks = {Path("/proc/thread-self/ns/net").stat().st_ino}
    for name in netns.listnetns():
        with suppress(OSError):  # it was removed meanwhile
            networks.add(Path("/run/netns", name).stat().st_ino)
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):  # it ended meanwhile
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if command and (entry / "ns" / "net").stat().st_ino in networks:
                yield int(entry.name), command


def _script(cgroups: Mapping[Path, Path]) -> Iterator[str]:
    yield "mount --make-rprivate /"
    # A /sys that shows the interfaces of the new network, with the cgroups that the old one had.
    yield "mkdir -p /run/cgroup && mount --rbind /sys/fs/cgroup /run/cgroup"
    yield "mount -t sysfs sysfs /sys && mount --move /run/cgroup /sys/fs/cgroup"
    yield from (shlex.join(["mount", "--bind", str(own), str(root)]) for root, own in cgroups.items())
    for folder, mode in _FOLDERS.items():
        yield f"mount -t tmpfs -o mode={mode} tmpfs {folder}"
    # Where leases are: else they meet in the folder for temporary files, which all suites and sweeps share.
    yield f"mkdir -m 1777 {_TEMPORARY} /run/lock"
    yield "ip link set lo up"


def _own_cgroup() -> dict[Path, Path]:
    """The root of those with CPU quotas, if this kernel has them, and a group that is to stand for it."""
    try:
        parent, version = cpu._controller()
    except Refused:
        return {}
    if version == 2:
        (parent / "cgroup.subtree_control").write_text("+cpu")
    for left in parent.glob(f"{_CGROUP}*"):
        if not Path("/proc", left.name.removeprefix(_CGROUP)).exists():
            _remove_cgroup(left)
    own = parent / f"{_CGROUP}{os.getpid()}"
    own.mkdir()
    return {parent: own}


def _remove_cgroup(group: Path) -> None:
    with suppress(OSError):  # another suite removes it, too
        for inner in group.iterdir():
            if inner.is_dir():
                inner.rmdir()
        group.rmdir()


def _enter(namespace: int) -> None:
    _system_call("unshare", _CLONE_FS)  # threads that this one started share its root and its working folder
    _system_call("setns", namespace, 0)


def _system_call(name: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments):
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")

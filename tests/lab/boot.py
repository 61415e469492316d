"""What a lab host does when it boots: cover this machine's folders by its own, then become sshd.

It runs as the first process in namespaces of its own, so that nothing of it is seen outside, and nothing is to be
undone. What it does not cover it can read but not write.
"""

from __future__ import annotations

import shlex
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from pareto.hosts.local import rights
from tests import REPOSITORY
from tests.lab.disk import MIRRORED, OWN, Disk, mirrored

EMPTY_AT_BOOT = {"run": "755", "tmp": "1777", "dev/shm": "1777"}
"""Folders in memory, and their modes."""
_STAGE = "/mnt"
"""Where the disk is while folders that may contain it are covered."""


def script(disk: Disk, name: str) -> str:
    """For `sh`, run by root in mount, PID, network and host name namespaces of its own."""
    commands = [*_commands(disk, name)]
    return "\n".join(["set -e", "umask 022", *map(shlex.join, commands)]) + "\n"


def needed() -> list[Path]:
    """Folders that Python and this repository need, and that a host has at the same place. The rest is in /usr."""
    wanted = {REPOSITORY, Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve().parent}
    outside = [path for path in wanted if not path.is_relative_to("/usr")]
    return sorted(p for p in outside if not any(other in p.parents for other in outside))


def hidden(paths: Iterable[Path], covered: Iterable[Path]) -> list[Path]:
    """Folders above them that only root may pass, and so are to be covered too, outermost first."""
    found: dict[Path, None] = {}
    for path in paths:
        for parent in reversed(path.parents):
            if any(parent.is_relative_to(cover) for cover in [*covered, *found]):
                break
            if not parent.stat().st_mode & stat.S_IXOTH:
                found[parent] = None
    return list(found)


def _commands(disk: Disk, name: str) -> Iterator[list[str]]:
    kept = {str(path): f"kept/{number}" for number, path in enumerate(needed())}
    kept_whole = {f"/{part}": f"machine/{part}" for part in MIRRORED}
    yield ["hostname", name]
    for path, at in (kept | kept_whole).items():
        (disk.folder / at).mkdir(parents=True, exist_ok=True)
        yield ["mount", "--bind", path, str(disk.folder / at)]
    yield ["mount", "--bind", str(disk.etc), str(disk.folder / "etc")]
    yield ["mount", "--rbind", str(disk.folder), _STAGE]

    own = [Path("/", part) for part in (*OWN, *MIRRORED, *EMPTY_AT_BOOT)]
    for shut in hidden(needed(), own):
        yield ["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(shut)]
    for part in (*OWN, *MIRRORED):
        yield ["mount", "--rbind", f"{_STAGE}/{part}", f"/{part}"]
    for part in MIRRORED:
        for entry in mirrored(part):
            if not entry.is_symlink():
                yield from _read_only(f"{_STAGE}/machine/{part}/{entry.name}", str(entry))
    for part, mode in EMPTY_AT_BOOT.items():
        yield ["mount", "-t", "tmpfs", "-o", f"mode={mode}", "tmpfs", f"/{part}"]
    for path, at in kept.items():
        yield ["mkdir", "-p", path]
        yield from _read_only(f"{_STAGE}/{at}", path)
    yield ["umount", "-R", _STAGE]

    # /sys shows the interfaces of the namespace in which it was mounted.
    yield ["mount", "-t", "sysfs", "sysfs", "/sys"]
    yield ["mount", "-t", "devpts", "-o", "newinstance,gid=5,mode=620,ptmxmode=666", "devpts", "/dev/pts"]
    yield ["mount", "-o", "remount,bind,ro", "/"]
    yield ["mkdir", "/run/sshd"]
    yield ["exec", rights.sshd() or "sshd", "-D", "-e"]


def _read_only(source: str, target: str) -> Iterator[list[str]]:
    yield ["mount", "--bind", source, target]
    yield ["mount", "-o", "remount,bind,ro", target]

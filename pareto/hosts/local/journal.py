"""The record of what a testbed makes on this machine, written before that is made, so it can always be taken away.

Each testbed has a lock on a slot, a folder under /run/pareto, as long as it lives: one that can be locked is left over.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pyroute2 import IPRoute, netns
from pyroute2.netlink.exceptions import NetlinkError

from pareto.basics import files
from pareto.remote.link.journal import try_lock

ROOT = Path("/run/pareto")
MAX_SLOTS = 64


class Journal:
    """One testbed's slot: its number, its folder, and the list of what has to go."""

    def __init__(self, slot: int, lock: int) -> None:
        self.slot = slot
        self.folder = ROOT / str(slot)
        self._lock = lock
        self._entries: list[list[str]] = []

    def note(self, kind: str, name: str) -> None:
        """Write down that `name` is about to be made. Kinds: see `_REMOVE`."""
        self._entries.append([kind, name])
        files.write(self.folder / "journal.json", json.dumps(self._entries))

    def fault(self) -> str:
        """Why the slot is no longer this testbed's: another could be built in it; empty where it is."""
        gone = not (self.folder / "journal.json").exists()
        return f"{self.folder}, where the testbed keeps what it made, is gone" if gone else ""

    def undo(self) -> None:
        """Remove what was noted, last made first, then the slot itself."""
        _remove(self.folder, self._entries)
        os.close(self._lock)


def acquire() -> Journal:
    """The lowest free slot. Raises OSError when all are in use."""
    ROOT.mkdir(mode=0o755, exist_ok=True)
    for slot in range(MAX_SLOTS):
        folder = ROOT / str(slot)
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        if (lock := try_lock(folder)) is None:
            continue
        if not any(folder.iterdir()):
            return Journal(slot, lock)
        os.close(lock)  # a leftover that nobody has swept yet
    raise OSError(f"{MAX_SLOTS} local testbeds are running already")


def sweep() -> list[str]:
    """Remove what testbeds that are no longer alive left behind; returns their slots."""
    swept = []
    for folder in _left():
        journal = folder / "journal.json"
        _remove(folder, json.loads(journal.read_text()) if journal.exists() else [])
        swept.append(folder.name)
    return swept


def leftovers() -> list[str]:
    """The slots that `sweep` would remove."""
    return [folder.name for folder in _left()]


def _left() -> Iterator[Path]:
    """The folders of testbeds that are no longer alive; each is locked until the next one."""
    for folder in sorted(ROOT.iterdir()) if ROOT.is_dir() else []:
        if (lock := try_lock(folder)) is not None:
            try:
                yield folder
            finally:
                os.close(lock)


def _remove(folder: Path, entries: Sequence[Sequence[str]]) -> None:
    for kind, name in reversed(entries):
        _REMOVE[kind](name)
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):  # other testbeds live in it
        ROOT.rmdir()


def _remove_namespace(name: str) -> None:
    if name in netns.listnetns():
        netns.remove(name)


def _remove_interface(name: str) -> None:
    with IPRoute() as ip:
        for index in ip.link_lookup(ifname=name):
            try:
                ip.link("del", index=index)
            except NetlinkError as error:
                if error.code != errno.ENODEV:  # it went with its peer's namespace meanwhile
                    raise


def _remove_cgroup(name: str) -> None:
    """A cgroup can go once the last of its processes, killed just now, has been reaped."""
    deadline = time.monotonic() + 5.0
    while Path(name).exists():
        try:
            Path(name).rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


_REMOVE: dict[str, Callable[[str], None]] = {
    "namespace": _remove_namespace,
    "interface": _remove_interface,
    "cgroup": _remove_cgroup,
    "folder": lambda name: shutil.rmtree(name, ignore_errors=True),
}

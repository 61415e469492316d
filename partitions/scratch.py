"""Scratch folders for files that are needed for a moment, which a killed process cannot leave behind for good.

Their maker holds an flock on each, which the kernel drops when the process ends, however it ends: a folder that can be
locked is left over. The next start takes it away, and so does `doctor --repair`.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "pareto-scratch-"


@contextmanager
def folder() -> Iterator[Path]:
    """An empty folder of this process, removed at the end. Raises OSError."""
    remove_left()
    path, lock = _locked()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def left() -> list[Path]:
    """This user's folders whose process has ended."""
    return list(_each_left())


def remove_left() -> list[Path]:
    """Remove the folders that `left` names; returns their paths."""
    removed = []
    for path in _each_left():
        shutil.rmtree(path, ignore_errors=True)
        removed.append(path)
    return removed


def _each_left() -> Iterator[Path]:
    """Each of them, locked while it is the current one."""
    for path in sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*")):
        if (lock := _lock(path)) is not None:
            yield path
            os.close(lock)


def _locked() -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX))
        if (lock := _lock(path)) is not None:
            return path, lock
        # Between these lines another process took the folder for one that was left.


def _lock(path: Path) -> int | None:
    """The descriptor that holds the folder's lock; None if somebody holds it, it is gone, or not this user's."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        here = os.fstat(lock)
        if here.st_uid == os.geteuid() and here.st_ino == path.lstat().st_ino:
            return lock
    except OSError:
        pass
    os.close(lock)
    return None

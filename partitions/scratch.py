"""Scratch folders for files that are needed for a moment, which a killed process cannot leave behind for good.

Their maker holds an flock on each, which the kernel drops when the process ends, however it ends: a folder that can be
locked is left over. The next start takes it away, and so does `doctor --repair`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "pareto-scratch-"


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """An empty folder of this process, removed at the end. Raises OSError."""
    left(remove=True)
    lock = None
    while lock is None:  # once, unless another process took it meanwhile for one that was left
        path = Path(tempfile.mkdtemp(prefix=PREFIX))
        lock = _lock(path)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def left(*, remove: bool = False) -> list[Path]:
    """This user's folders whose process has ended. remove: they are gone afterwards."""
    found = []
    for path in sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*")):
        if (lock := _lock(path)) is not None:
            found.append(path)
            if remove:
                shutil.rmtree(path, ignore_errors=True)
            os.close(lock)
    return found


def _lock(path: Path) -> int | None:
    """The descriptor that holds the folder's lock; None if somebody holds it, it is gone, or not this user's."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        here = os.fstat(lock)
        if here.st_uid == os.geteuid() and here.st_ino == path.lstat().st_ino:
            return lock
    os.close(lock)
    return None

"""Files in a run's folder: written whole or not at all, by one process at a time, and no link in it is followed.

A folder may be anybody's, and disks become full.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pareto.basics import files
from pareto.protocol.errors import UserError
from pareto.protocol.jsonlines import write_all

LOCK = ".lock"


class StoreError(UserError):
    """A results folder that cannot be used: one line that says why."""


def append(path: Path, content: bytes, *, new: bool = False) -> None:
    """Append all of it, on disk; where there is no room for all, nothing. Raises StoreError."""
    with written(path):
        file = files.descriptor(path, os.O_WRONLY | os.O_APPEND | (os.O_CREAT | os.O_EXCL if new else 0))
        try:
            size = os.fstat(file).st_size
            try:
                write_all(file, content)
                os.fsync(file)
            except BaseException:
                os.ftruncate(file, size)
                raise
        finally:
            os.close(file)


def replace(folder: Path, name: str, content: bytes, *, durable: bool = True) -> None:
    """Write all of it in place of what was there beneath a run's folder, or nothing. Raises StoreError.

    The user may name the folder by a link; beneath it there is none. durable: on disk when this returns.
    """
    with written(folder / name):
        files.write(folder / name, content, durable=durable, under=folder)


@contextmanager
def written(path: Path, verb: str = "write") -> Iterator[None]:
    """Raise the faults of what writes to `path`, or does as the verb says, as StoreErrors."""
    try:
        yield
    except files.NoPlainFile as error:
        raise StoreError(str(error)) from None
    except OSError as error:
        raise StoreError(f"cannot {verb} {path}: {error.strerror}") from None


def content(path: Path, most_bytes: int) -> bytes:
    """The content of a plain file that is no larger. Raises StoreError."""
    with written(path, "read"):
        return files.read(path.parent, path.name, most_bytes=most_bytes)


def refuse_shared(path: Path, named: str) -> None:
    """Raise UserError for a secret that others than its owner can read. named: as the user names it."""
    with suppress(OSError):  # what is missing is said by whoever reads it
        state = path.stat().st_mode
        if not stat.S_ISREG(state) or state & 0o077:
            raise UserError(f"{named}: others than its owner can read it: chmod 600 {shlex.quote(str(path))}")


def drop_torn_line(path: Path) -> None:
    """Cut off what a crash left of a last line. Raises StoreError."""
    with written(path), os.fdopen(files.descriptor(path, os.O_RDWR), "r+b") as table:
        data = table.read()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            table.truncate(whole)


def locked(folder: Path) -> int:
    """The descriptor that holds the run's lock; the kernel drops it when this process ends, however it ends.

    Raises StoreError where another process has it.
    """
    path = folder / LOCK
    with written(path):
        while True:
            lock = files.descriptor(path, os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_ino == path.lstat().st_ino:
                    os.ftruncate(lock, 0)
                    os.pwrite(lock, f"process {os.getpid()} on {platform.node()}".encode(), 0)
                    return lock
            except BlockingIOError:
                holder = "".join(filter(str.isprintable, os.pread(lock, 80, 0).decode(errors="ignore")))
                os.close(lock)
                raise StoreError(
                    f"another pareto writes to {folder} ({holder or 'of an unknown name'}): wait for its end, or end it"
                ) from None
            except FileNotFoundError:  # whoever had it let go of it, and removed it, meanwhile
                pass
            except BaseException:
                os.close(lock)
                raise
            os.close(lock)

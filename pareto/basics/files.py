"""Files in folders that somebody else may have made, by three rules: beneath a folder no link is followed, only plain
files of bounded size are read, and what is written comes into its place whole, by one process at a time.

The folder itself is named by the user, through links if he likes. Disks become full: that is one line, too.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shlex
import stat
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from pareto.basics.escaping import spreadsheet
from pareto.protocol.errors import UserError

if TYPE_CHECKING:
    # Whoever only reads a manifest must not pay for pandas.
    import pandas as pd

MOST_BYTES = 1 << 30
"""The most that is read of one file. A run's largest file has a row a trial: a million trials are 0.6 GB."""
MOST_TEXT_BYTES = 1 << 20
"""The most that is read of a text that a user wrote."""
MADE = ".made"
"""A folder's list of what this program wrote there, and may so replace or remove. The folder's maker may lie in it."""
DRAFT = ".new"
"""The end of a file's name until it is complete and takes its place."""
LOCK = ".lock"
_TO_WRITE = ": remove it, or write elsewhere (--out)"
_KINDS = {"l": "a link", "d": "a folder", "p": "a FIFO", "s": "a socket", "c": "a device", "b": "a device"}


class StoreError(UserError):
    """A file or a folder that cannot be used, such as a link where a plain file is expected: one line says why."""


def kind(path: Path) -> str:
    """The kind of thing at a path, links not followed: `a file`, `a link`, `a FIFO`, ...; empty text for nothing."""
    try:
        return _KINDS.get(stat.filemode(os.lstat(path).st_mode)[0], "a file")
    except OSError:
        return ""


def refuse_other(path: Path, wanted: str = "a file", remedy: str = "") -> None:
    """Raise StoreError if something other than what is wanted is at a path."""
    if (there := kind(path)) not in ("", wanted):
        named = "plain file" if wanted == "a file" else "folder"
        raise StoreError(f"{path} is {there}, no {named}{remedy}")


def refuse_link(path: Path) -> None:
    """Raise StoreError if something other than a plain file is where one is to be written."""
    refuse_other(path, remedy=_TO_WRITE)


def make(folder: Path) -> Path:
    """Make a folder unless it is there, and return its path. Raises StoreError for a link to one; OSError."""
    refuse_other(folder, "a folder", _TO_WRITE)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _beneath(folder: Path, *names: str, makes: bool = False) -> Path:
    """The folder that these names lead to, none of them a link. Raises StoreError, OSError."""
    for name in names:
        folder = folder / name
        refuse_other(folder, "a folder")
        if makes:
            folder.mkdir(exist_ok=True)
    return folder


# Reading


def descriptor(path: Path, flags: int) -> int:
    """Open a plain file, itself no link, and return its descriptor. Raises StoreError, OSError."""
    refuse_other(path)  # and whoever swaps it now for a FIFO holds nobody up
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


def opened(folder: Path, *names: str) -> BinaryIO:
    """A file beneath a folder, open: `opened(run, "requests", "one.parquet")`. Raises StoreError, OSError."""
    return os.fdopen(descriptor(_beneath(folder, *names[:-1]) / names[-1], os.O_RDONLY), "rb")


def read(folder: Path, *names: str, most_bytes: int = MOST_BYTES) -> bytes:
    """The content of a file, `opened`. Raises StoreError also for more than `most_bytes`."""
    with opened(folder, *names) as file:
        content = file.read(most_bytes + 1) if os.fstat(file.fileno()).st_size <= most_bytes else None
    if content is None or len(content) > most_bytes:
        path = folder.joinpath(*names)
        raise StoreError(f"{path} is larger than {most_bytes / 1e6:.0f} MB: too large for what it is")
    return content


def text(path: Path, what: str, most_bytes: int = MOST_TEXT_BYTES) -> str:
    """The text of a plain file that the user names, through links if he likes; `what` is for messages. Raises
    UserError."""
    try:
        real = Path(os.path.realpath(path))
        return read(real.parent, real.name, most_bytes=most_bytes).decode("utf-8-sig")
    except StoreError as error:
        raise UserError(f"the {what} {error}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"the {what} {path} is not text in UTF-8: {error}") from None
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read the {what} {path}: {getattr(error, 'strerror', error)}") from None


def listing(folder: Path, *below: str) -> dict[str, str]:
    """The names in a folder, sorted, each with its `kind`; none where none is there. Raises StoreError, OSError."""
    if not kind(where := _beneath(folder, *below)):
        return {}
    with os.scandir(where) as entries:  # the file system is asked again only of what is no file
        is_file = {Path(each): each.is_file(follow_symlinks=False) for each in entries}
    return {path.name: "a file" if is_file[path] else kind(path) for path in sorted(is_file)}


def refuse_shared(path: Path, named: str) -> None:
    """Raise UserError for a secret that others than its owner can read. named: as the user names it."""
    with suppress(OSError):  # what is missing is said by whoever reads it
        state = path.stat().st_mode
        if not stat.S_ISREG(state) or state & 0o077:
            raise UserError(f"{named}: others than its owner can read it: chmod 600 {shlex.quote(str(path))}")


# Writing


@contextmanager
def written(path: Path, verb: str = "write", remedy: str = "") -> Iterator[None]:
    """Raise the faults of what writes to `path`, or does as the verb says, as StoreErrors with a remedy."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot {verb} {path}: {error.strerror or error}{remedy}") from None


def written_into(folder: Path) -> AbstractContextManager[None]:
    """A context like `written`, for a folder that the user may choose."""
    return written(folder, "write to", " (choose another --out)")


def write(path: Path, content: bytes | str, *, durable: bool = False, under: Path | None = None) -> Path:
    """Write a file into a folder, in place of one of that name, and return its path. Raises StoreError, OSError.

    It is written beside its place and renamed, so that nobody reads half of it. Text becomes UTF-8; what has no place
    there becomes a question mark. durable: the content is on disk when this returns. under: a folder beneath which no
    link is on the way, and missing folders are made; without it, the file's own folder is no link.
    """
    if isinstance(content, str):
        content = content.encode("utf-8", errors="replace")
    top = path.parent.parent if under is None else under
    _beneath(top, *path.parent.relative_to(top).parts, makes=under is not None)
    refuse_link(path)
    draft = path.with_name(path.name + DRAFT)
    draft.unlink(missing_ok=True)  # of a process that was killed
    try:
        with os.fdopen(descriptor(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
    return path


def write_table(path: Path, table: pd.DataFrame) -> Path:
    """`write` a frame as CSV: numbers with nine digits, text such that no spreadsheet runs it."""
    return write(path, spreadsheet(table).to_csv(index=False, float_format="%.9g", lineterminator="\n"))


def replace(folder: Path, name: str, content: bytes, *, durable: bool = True) -> None:
    """`write` a file beneath a run's folder. Raises StoreError."""
    with written(folder / name):
        write(folder / name, content, durable=durable, under=folder)


def append(path: Path, content: bytes, *, new: bool = False) -> None:
    """Append all of it, on disk; nothing where there is no room for all. An interrupt leaves what is written whole, as
    others may have read it. Raises StoreError."""
    flags = os.O_WRONLY | os.O_APPEND | (os.O_CREAT | os.O_EXCL if new else 0)
    with written(path), os.fdopen(descriptor(path, flags), "ab", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        rest = memoryview(content)
        try:
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        except BaseException as error:
            if rest or isinstance(error, OSError):
                file.truncate(size)
            raise


def drop_torn_line(path: Path) -> None:
    """Cut off what a crash left of a last line. Raises StoreError."""
    with written(path), os.fdopen(descriptor(path, os.O_RDWR), "r+b") as table:
        table.truncate(table.read().rfind(b"\n") + 1)


def remove(path: Path) -> None:
    """Remove a file if it is there; a link, never what it points to. Raises StoreError, OSError."""
    refuse_other(path.parent, "a folder")
    path.unlink(missing_ok=True)


def locked(folder: Path) -> int:
    """The descriptor that holds the run's lock while this process lives. Raises StoreError where another has it."""
    path = folder / LOCK
    with written(path):
        while True:
            lock = descriptor(path, os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = "".join(filter(str.isprintable, os.pread(lock, 80, 0).decode(errors="ignore")))
                os.close(lock)
                raise StoreError(
                    f"another pareto writes to {folder} ({holder or 'of an unknown name'}): wait for its end, or end it"
                ) from None
            with suppress(FileNotFoundError):  # whoever had it let go of it, and removed it, meanwhile
                if os.fstat(lock).st_ino == path.lstat().st_ino:
                    os.ftruncate(lock, 0)
                    os.pwrite(lock, f"process {os.getpid()} on {platform.node()}".encode(), 0)
                    return lock
            os.close(lock)


# Whose files they are


def made(folder: Path) -> set[str]:
    """The names that a folder's list has; none if there is no such list."""
    try:
        return set(read(folder, MADE, most_bytes=10_000_000).decode().splitlines())
    except (OSError, ValueError):
        return set()


def refuse_foreign(folder: Path, names: Iterable[str]) -> None:
    """Raise StoreError if one of these files is in a folder whose list lacks it: it is not to be replaced."""
    known = made(folder)
    for name in names:
        refuse_link(path := folder / name)
        if name not in known and path.exists():
            raise StoreError(
                f"{path} is there, and this program did not write it: move it away, or write elsewhere (--out)"
            )


def claim(folder: Path, *names: str, instead_of: Iterable[str] = ()) -> Path:
    """A folder, made if need be, in whose list are the names of files that are about to be written there. instead_of:
    names on its list whose files go. Raises StoreError as `refuse_foreign` does; OSError."""
    refuse_foreign(make(folder), names)
    former = set(instead_of)
    for name in former:
        remove(folder / name)
    write(folder / MADE, "".join(f"{name}\n" for name in sorted(made(folder) - former | set(names))))
    return folder

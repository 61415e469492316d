"""Files in folders that somebody else may have made: beneath a folder no link is followed, only plain files are read,
and what is written comes into its place whole. `pareto` writes its runs by the same functions.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from pareto.basics.escaping import spreadsheet
from pareto.protocol.errors import UserError

if TYPE_CHECKING:
    # Whoever only reads a manifest must not pay for pandas.
    import pandas as pd

MOST_BYTES = 1 << 30
"""The most that is read of one file. A run's largest file has a row a trial: a million trials are 0.6 GB."""
MADE = ".made"
"""A folder's list of what this program wrote there, and may so replace or remove. The folder's maker may lie in it."""
MOST_TEXT_BYTES = 1 << 20
"""The most that is read of a text that a user wrote."""
DRAFT = ".new"
"""The end of a file's name until it is complete and takes its place."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class NoPlainFile(UserError):
    """Where a plain file (or a folder) is expected, there is something else: a link, a FIFO, a device."""


def kind(path: Path) -> str:
    """The kind of thing at a path, links not followed: `a file`, `a link`, `a FIFO`, ...; empty text for nothing."""
    try:
        return _named(os.lstat(path).st_mode)
    except OSError:
        return ""


@contextmanager
def opened(folder: Path, *names: str) -> Iterator[BinaryIO]:
    """Open a file beneath a folder for reading: `opened(run, "requests", "one.parquet")`.

    The folder itself is named by the user, through links if he likes; of `names` none may be one. Raises `NoPlainFile`
    for a link, FIFO or device; OSError.
    """
    path = folder.joinpath(*names)
    with _beneath(folder, *names[:-1]) as at:
        file = os.fdopen(descriptor(path, os.O_RDONLY, at), "rb")
    with file:
        yield file


def descriptor(path: Path, flags: int, at: int | None = None) -> int:
    """Open a plain file, itself no link, and return its descriptor. at: its folder's descriptor, if that is open.

    Raises `NoPlainFile`, OSError.
    """
    name = path if at is None else path.name
    with suppress(FileNotFoundError):
        _refuse_other(path, os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)
    # Who swaps it for a FIFO now holds nobody up.
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.open(name, flags, 0o666, dir_fd=at)
    try:
        _refuse_other(path, os.fstat(file).st_mode)
    except NoPlainFile:
        os.close(file)
        raise
    return file


def read(folder: Path, *names: str, most_bytes: int = MOST_BYTES) -> bytes:
    """The content of a file, `opened`. Raises `NoPlainFile` also for more than `most_bytes`."""
    with opened(folder, *names) as file:
        return _content(file, folder.joinpath(*names), most_bytes)


def text(path: Path, what: str, most_bytes: int = MOST_TEXT_BYTES) -> str:
    """The text of a plain file that the user names, through links if he likes. Raises UserError.

    what: the file is, for messages.
    """
    try:
        with os.fdopen(descriptor(Path(os.path.realpath(path)), os.O_RDONLY), "rb") as file:
            return _content(file, path, most_bytes).decode("utf-8-sig")
    except NoPlainFile as error:
        raise UserError(f"the {what} {error}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"the {what} {path} is not text in UTF-8: {error}") from None
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read the {what} {path}: {getattr(error, 'strerror', error)}") from None


def _content(file: BinaryIO, path: Path, most_bytes: int) -> bytes:
    content = file.read(most_bytes + 1) if os.fstat(file.fileno()).st_size <= most_bytes else None
    if content is None or len(content) > most_bytes:
        raise NoPlainFile(f"{path} is larger than {most_bytes / 1e6:.0f} MB: too large for what it is")
    return content


def listing(folder: Path, *below: str) -> dict[str, str]:
    """The names in a folder beneath a folder, sorted, each with its `kind`; nothing if there is no such folder.

    Raises `NoPlainFile`, OSError.
    """
    try:
        with _beneath(folder, *below) as at, os.scandir(at) as entries:
            return dict(sorted((entry.name, _of_entry(entry)) for entry in entries))
    except FileNotFoundError:
        return {}


def make(folder: Path) -> Path:
    """Make a folder unless it is there, and return its path. Raises `NoPlainFile` for a link to one; OSError."""
    if (there := kind(folder)) not in ("", "a folder"):
        raise NoPlainFile(f"{folder} is {there}, no folder: remove it, or write elsewhere (--out)")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write(path: Path, content: bytes | str, *, durable: bool = False, under: Path | None = None) -> Path:
    """Write a file into an existing folder, in place of one of that name, and return its path.

    It is written beside its place and renamed, so that nobody reads half of it. Neither the folder nor the file may be
    a link: raises `NoPlainFile` then; OSError. Text becomes UTF-8; what has no place there becomes a question mark.
    durable: the content is on disk when this returns. under: a folder that the user may name by a link; those from
    there to the file are made, and none of them may be one.
    """
    if isinstance(content, str):
        content = content.encode("utf-8", errors="replace")
    refuse_link(path)
    draft = path.with_name(path.name + DRAFT)
    below = () if under is None else path.parent.relative_to(under).parts
    with _itself(path.parent) if under is None else _beneath(under, *below, make=True) as at:
        with suppress(FileNotFoundError):
            os.unlink(draft.name, dir_fd=at)  # of a process that was killed
        try:
            with os.fdopen(descriptor(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, at), "wb") as file:
                file.write(content)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(draft.name, path.name, src_dir_fd=at, dst_dir_fd=at)
        except BaseException:
            with suppress(OSError):
                os.unlink(draft.name, dir_fd=at)
            raise
    return path


def write_table(path: Path, table: pd.DataFrame) -> Path:
    """`write` a frame as CSV: numbers with nine digits, text such that no spreadsheet runs it."""
    text = spreadsheet(table).to_csv(index=False, float_format="%.9g", lineterminator="\n")
    return write(path, text)


def refuse_link(path: Path, there: str | None = None) -> None:
    """Raise `NoPlainFile` if something other than a plain file is at a path. there: its `kind`, if known."""
    if (there := kind(path) if there is None else there) not in ("", "a file"):
        raise NoPlainFile(
            f"{path} is {there}, and nothing is written through one: remove it, or write elsewhere (--out)"
        )


def made(folder: Path) -> set[str]:
    """The names that a folder's list has; none if there is no such list."""
    try:
        return set(read(folder, MADE, most_bytes=10_000_000).decode().splitlines())
    except (OSError, NoPlainFile, UnicodeDecodeError):
        return set()


def refuse_foreign(folder: Path, names: Iterable[str]) -> None:
    """Raise `NoPlainFile` if one of these files is in a folder, and its list lacks it: it is not to be replaced."""
    known = made(folder)
    for name in names:
        refuse_link(path := folder / name, there := kind(path))
        if there and name not in known:
            raise NoPlainFile(
                f"{path} is there, and this program did not write it: move it away, or write elsewhere (--out)"
            )


def claim(folder: Path, *names: str, instead_of: Iterable[str] = ()) -> Path:
    """Make a folder in which files of these names are about to be written, and list them there; returns it.

    instead_of: names on its list whose files go. Raises `NoPlainFile` for a link, and for a file that is there and that
    its list lacks; OSError.
    """
    refuse_foreign(make(folder), names)
    former = set(instead_of)
    for name in former:
        remove(folder / name)
    write(folder / MADE, "".join(f"{name}\n" for name in sorted(made(folder) - former | set(names))))
    return folder


def remove(path: Path) -> None:
    """Remove a file if it is there; a link, never what it points to. Raises `NoPlainFile`, OSError."""
    with suppress(FileNotFoundError), _itself(path.parent) as at:
        os.unlink(path.name, dir_fd=at)


@contextmanager
def _itself(folder: Path) -> Iterator[int]:
    """Open a folder that is itself no link, wherever it lies."""
    named = folder.name not in ("", "..")
    with _beneath(folder.parent, folder.name) if named else _beneath(folder) as at:
        yield at


@contextmanager
def _beneath(folder: Path, *names: str, make: bool = False) -> Iterator[int]:
    """Open, or make, the folder that these names lead to, none of them a link. Raises `NoPlainFile`, OSError."""
    at, path = os.open(folder, _FOLDER), folder
    try:
        for name in names:
            path = path / name
            with suppress(FileExistsError):
                if make:
                    os.mkdir(name, dir_fd=at)
            mode = os.stat(name, dir_fd=at, follow_symlinks=False).st_mode
            if not stat.S_ISDIR(mode):
                raise NoPlainFile(f"{path} is {_named(mode)}, no folder")
            inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = inner
        yield at
    finally:
        os.close(at)


def _of_entry(entry: os.DirEntry[str]) -> str:
    """An entry's `kind`, asking the file system only if it is neither a file nor a folder."""
    if entry.is_file(follow_symlinks=False):
        return "a file"
    if entry.is_dir(follow_symlinks=False):
        return "a folder"
    return _named(entry.stat(follow_symlinks=False).st_mode)


def _refuse_other(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise NoPlainFile(f"{path} is {_named(mode)}, no plain file")


def _named(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "a file")

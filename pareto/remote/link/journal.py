"""How each shaped interface was, on file before anything on it is changed, so that it can always be put back.

A file for each interface in /run/pareto-link, named by its network namespace's inode. Who shapes the interface holds
an flock on it, which the kernel drops when that program dies, however it dies: a file that can be locked is a leftover.
One that is not complete was never acted on. Only what our qdiscs' handles and our ifb's name do not say is written
down. A root qdisc that somebody else chose is never replaced; the kernel puts its own default back.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from pareto.remote.link import offload, qdisc, steering
from pareto.remote.link.netem import QdiscError
from pareto.remote.link.qdisc import TrafficControl

FOLDER = Path("/run/pareto-link")
_TRIES = 1000


class Occupied(QdiscError):
    """Another program that is alive shapes the interface."""


@dataclass(frozen=True)
class Journal:
    """An interface as it was before it was shaped. namespace: the inode of its network namespace. lock: of its file."""

    interface: str
    index: int
    offloads: offload.Offloads
    namespace: int
    lock: int | None = None

    def undo(self) -> list[str]:
        """Put the interface back and remove the file; says what is left. Raises what `put_back` raises."""
        left = self.put_back()
        _remove(_path(self.interface))
        if self.lock is not None:
            os.close(self.lock)
        return left

    def put_back(self) -> list[str]:
        """Undo what is ours; says what is not as it was because somebody changed it meanwhile. Raises QdiscError,
        NetlinkError or OSError."""
        if dict(socket.if_nameindex()).get(self.index) != self.interface:
            steering.delete_ifb(self.index)
            return ["the interface itself is gone"]
        left: list[str] = []
        # From the last to the first, each whatever becomes of the others.
        with ExitStack() as undo:
            undo.callback(offload.write, self.interface, self.offloads)
            control = undo.enter_context(TrafficControl())
            undo.callback(lambda: left.append(qdisc.remove(control, self.index)))
            undo.callback(lambda: left.append(steering.stop_ingress(control, self.index)))
        return [line for line in left if line]


def claim(interface: str) -> Journal:
    """The interface as it is, which is written down, after undoing what a program that was killed left on it. Raises
    QdiscError where another program shapes it, or where somebody else's qdisc is its root; OSError."""
    path = _path(interface)
    lock = _lock_new(path, interface)
    with ExitStack() as undo:
        undo.callback(os.close, lock)
        if left := _left(path):
            left.put_back()
        undo.callback(_remove, path)
        with TrafficControl() as control:
            qdisc.refuse_foreign(control, interface)
        before = Journal(interface, qdisc.index_of(interface), offload.read(interface), _namespace_here())
        os.truncate(lock, 0)
        os.pwrite(lock, json.dumps(vars(before)).encode(), 0)
        os.fsync(lock)
        undo.pop_all()
    return replace(before, lock=lock)


def leftovers() -> list[str]:
    """A line for each interface that a program which was killed left shaped."""
    return [f"interface {left.interface} is still shaped" for path in _abandoned() if (left := _left(path))]


def repair(namespace: str = "[0-9]*") -> list[str]:
    """Put back what programs that were killed left on their interfaces, each in its own network namespace; a line on
    each. namespace: a pattern of inodes."""
    lines = []
    for path in _abandoned(namespace):
        try:
            lines += _repair(path)
        except Exception as error:  # the others still want repairing, and this one its next try
            lines.append(f"{path.name}: could not be put back: {error}")
    return lines


def repair_here() -> list[str]:
    """As `repair`, for the interfaces of this network namespace alone: also where others cannot be seen from here."""
    return repair(str(_namespace_here()))


def _abandoned(namespace: str = "[0-9]*") -> Iterator[Path]:
    """The files of programs that are dead, each locked until the next."""
    for path in sorted(FOLDER.glob(f"{namespace}-*.json")):
        if (lock := try_lock(path)) is not None:
            try:
                yield path
            finally:
                os.close(lock)


def _repair(path: Path) -> list[str]:
    journal = _left(path)
    if journal is None:
        _remove(path)
        return []
    if (namespace := _namespace(journal.namespace)) is None:
        _remove(path)
        return [f"{journal.interface}: its network namespace is gone, and the shaping with it"]
    left: list[str] = []

    def undo() -> None:
        try:
            left.extend(journal.put_back())
        except QdiscError as error:
            left.append(str(error))

    qdisc.in_namespace(undo, namespace)
    _remove(path)
    return [f"{journal.interface}: put back as it was" + (f", but {'; '.join(left)}" if left else "")]


def _lock_new(path: Path, interface: str) -> int:
    """A file descriptor holding the lock of the interface's file, which is made where it is missing."""
    for _ in range(_TRIES):
        with contextlib.suppress(FileExistsError):
            FOLDER.mkdir(mode=0o755, parents=True)
        try:
            lock = _locked(path, os.O_RDWR | os.O_CREAT)
        except BlockingIOError:
            raise Occupied(
                f"another program shapes {interface}: end it first, or choose another data interface"
            ) from None
        except FileNotFoundError:  # others remove the folder when it is empty
            continue
        if lock is not None:
            return lock
    raise QdiscError(f"{FOLDER} cannot be made: is there something else of that name?")


def try_lock(path: Path) -> int | None:
    """A file descriptor holding the file's lock, or None if somebody else has it or the file is gone."""
    try:
        return _locked(path, os.O_RDONLY)
    except (FileNotFoundError, BlockingIOError):
        return None


def _locked(path: Path, flags: int) -> int | None:
    """The file, open and locked; None where it is no longer the one of that name. Raises OSError."""
    file = os.open(path, flags | os.O_NOFOLLOW, 0o600)
    with ExitStack() as undo:
        undo.callback(os.close, file)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.stat().st_ino == os.fstat(file).st_ino:
            undo.pop_all()
            return file
    return None


def _left(path: Path) -> Journal | None:
    """The interface of a file; None where its program was killed before it was complete."""
    try:
        return Journal(**json.loads(path.read_text()))
    except ValueError:
        return None


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # others are in it
        FOLDER.rmdir()


def _path(interface: str) -> Path:
    return FOLDER / f"{_namespace_here()}-{interface}.json"


def _namespace_here() -> int:
    return Path("/proc/thread-self/ns/net").stat().st_ino


def _namespace(inode: int) -> Path | None:
    """A file by which that network namespace can be entered, if it still exists."""
    here = Path("/proc/thread-self/ns/net")
    for path in (here, *Path("/run/netns").glob("*"), *Path("/proc").glob("[0-9]*/ns/net")):
        with contextlib.suppress(OSError):  # the process ended meanwhile
            if path.stat().st_ino == inode:
                return path
    return None

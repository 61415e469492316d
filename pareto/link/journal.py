"""How each shaped interface was, on file before anything on it is changed, so that it can always be put back.

A file for each interface in /run/pareto-link, named by its network namespace's inode. Who shapes the interface
holds an flock on the file. The kernel drops the lock when that program dies, however it dies: a file that can be
locked is a leftover.

Our qdiscs are known by their handles and what steers arriving packets by its ifb's name: so only what they do not
say is written down. A root qdisc that somebody else chose is never replaced; the kernel puts its own default back.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pareto.link import offload, qdisc, steering
from pareto.link.netem import QdiscError
from pareto.link.qdisc import TrafficControl

FOLDER = Path("/run/pareto-link")

_TRIES = 1000


class Occupied(QdiscError):
    """Another program that is alive shapes the interface."""


@dataclass(frozen=True)
class Before:
    """An interface as it was before it was shaped."""

    index: int
    offloads: offload.Offloads

    def put_back(self, interface: str) -> list[str]:
        """Undo what is ours; says what is not as it was because somebody changed it meanwhile.

        Raises QdiscError, NetlinkError or OSError.
        """
        if dict(socket.if_nameindex()).get(self.index) != interface:
            steering.delete_ifb(self.index)
            return ["the interface itself is gone"]
        left: list[str] = []
        # From the last to the first, each whatever becomes of the others.
        with ExitStack() as undo:
            undo.callback(offload.write, interface, self.offloads)
            control = undo.enter_context(TrafficControl())
            undo.callback(lambda: left.append(self._remove_root(control)))
            undo.callback(lambda: left.append(steering.stop_ingress(control, self.index)))
        return [line for line in left if line]

    def _remove_root(self, control: TrafficControl) -> str:
        qdisc.remove(control, self.index)
        kind = qdisc.foreign(control.root(self.index))
        return kind and f"its root qdisc is now a {kind}, set by somebody else: it is left alone"


def look(interface: str) -> Before:
    """The interface as it is. Raises QdiscError where somebody else's qdisc is its root, or OSError."""
    with TrafficControl() as control:
        qdisc.refuse_foreign(control, interface)
    return Before(qdisc.index_of(interface), offload.read(interface))


class Journal:
    """One interface's file, locked by this process."""

    def __init__(self, interface: str, lock: int, before: Before) -> None:
        self.before = before
        self._interface = interface
        self._lock = lock

    def undo(self) -> list[str]:
        """Put the interface back and remove the file; says what is left. Raises what `Before.put_back` raises."""
        left = self.before.put_back(self._interface)
        _remove(_path(self._interface))
        os.close(self._lock)
        return left


def claim(interface: str) -> Journal:
    """Look at the interface and write that down, after undoing what a program that was killed left on it.

    Raises QdiscError where another program shapes it, or where somebody else's qdisc is its root.
    """
    while True:
        recover(interface)
        before = look(interface)
        draft, lock = _draft(interface, before)
        try:
            # Unlike a rename it never replaces what another program put there meanwhile.
            _path(interface).hardlink_to(draft)
        except (FileExistsError, FileNotFoundError):  # or `repair` took our draft for a dead program's
            os.close(lock)
            continue
        finally:
            draft.unlink(missing_ok=True)
        if look(interface) == before:
            return Journal(interface, lock, before)
        # Another program, which shaped it when we looked, has put it back in between.
        _remove(_path(interface))
        os.close(lock)


def recover(interface: str) -> None:
    """Undo what a program that was killed left on the interface, if one did.

    Raises QdiscError where a program that is alive shapes it.
    """
    path = _path(interface)
    lock = try_lock(path)
    if lock is not None:
        try:
            _before(_record(path)).put_back(interface)
            _remove(path)
        finally:
            os.close(lock)
    elif path.exists():
        raise Occupied(f"another program shapes {interface}: end it first, or choose another data interface")


def leftovers() -> list[str]:
    """A line for each interface that a program which was killed left shaped."""
    lines = []
    for path in _files():
        lock = try_lock(path)
        if lock is not None:
            os.close(lock)
            lines.append(f"interface {_record(path)['interface']} is still shaped")
    return lines


def repair() -> list[str]:
    """Put back what programs that were killed left on their interfaces, each in its own network namespace.

    A line on each. What belongs to a program that is alive stays.
    """
    return _repair_all(_files())


def repair_here() -> list[str]:
    """As `repair`, for the interfaces of this network namespace alone: also where others cannot be seen from here."""
    return _repair_all(path for path in _files() if path.name.startswith(f"{_namespace_here()}-"))


def _repair_all(paths: Iterable[Path]) -> list[str]:
    lines = []
    for path in paths:
        lock = try_lock(path)
        if lock is None:
            continue
        try:
            lines.append(_repair(path))
        except Exception as error:  # the others still want repairing, and this one its next try
            lines.append(f"{path.name}: could not be put back: {error}")
        finally:
            os.close(lock)
    for draft in FOLDER.glob(".[0-9]*"):
        lock = try_lock(draft)
        if lock is not None:
            _remove(draft)
            os.close(lock)
    return lines


def _repair(path: Path) -> str:
    record = _record(path)
    interface = record["interface"]
    namespace = _namespace(record["namespace"])
    if namespace is None:
        _remove(path)
        return f"{interface}: its network namespace is gone, and the shaping with it"
    left: list[str] = []

    def undo() -> None:
        try:
            left.extend(_before(record).put_back(interface))
        except QdiscError as error:
            left.append(str(error))

    qdisc.in_namespace(undo, namespace)
    _remove(path)
    return f"{interface}: put back as it was" + (f", but {'; '.join(left)}" if left else "")


def _draft(interface: str, before: Before) -> tuple[Path, int]:
    """A file that is complete, on disk and locked, under a name that nobody looks for."""
    path = FOLDER / f".{_namespace_here()}-{interface}.{os.getpid()}-{threading.get_ident()}"
    record = {"namespace": _namespace_here(), "interface": interface, "found": asdict(before)}
    file = _open_new(path)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        with open(file, "wb", closefd=False) as draft:
            draft.write(json.dumps(record).encode())
        os.fsync(file)
    except BaseException:
        os.close(file)
        _remove(path)
        raise
    return path, file


def _open_new(path: Path) -> int:
    """The new file, open, in a folder that others take away whenever it is empty."""
    for _ in range(_TRIES):
        with contextlib.suppress(FileExistsError):
            FOLDER.mkdir(mode=0o755, parents=True)
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    raise QdiscError(f"{FOLDER} cannot be made: is there something else of that name?")


def try_lock(path: Path) -> int | None:
    """A file descriptor holding the file's lock, or None if somebody else has it or the file is gone."""
    try:
        lock = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.stat().st_ino == os.fstat(lock).st_ino:
            return lock
    except OSError:
        pass
    os.close(lock)
    return None


def _record(path: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(path.read_text())
    return record


def _before(record: dict[str, Any]) -> Before:
    return Before(record["found"]["index"], record["found"]["offloads"])


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # others are in it
        FOLDER.rmdir()


def _files() -> list[Path]:
    return sorted(FOLDER.glob("[0-9]*.json"))


def _path(interface: str) -> Path:
    return FOLDER / f"{_namespace_here()}-{interface}.json"


def _namespace_here() -> int:
    return Path("/proc/thread-self/ns/net").stat().st_ino


def _namespace(inode: int) -> Path | None:
    """A file by which that network namespace can be entered, if it still exists."""
    for path in _namespaces():
        with contextlib.suppress(OSError):  # the process ended meanwhile
            if path.stat().st_ino == inode:
                return path
    return None


def _namespaces() -> Iterator[Path]:
    yield Path("/proc/thread-self/ns/net")
    yield from Path("/run/netns").glob("*")
    yield from Path("/proc").glob("[0-9]*/ns/net")

"""`python -m pareto.remote.worker.lease`: holds this host for one driver, so that no other measures on it meanwhile.

Who wants a host takes a ticket of its queue, a file that all users may write. Ticket n is held by a lock on the file's
byte n, which the kernel removes with the process, however that ends; the lease is that of the lowest ticket. The kernel
says which tickets are held; what the file says of one is its taker's word, and only shown. A driver may reach one
machine in two roles: tickets of the same key, which a mark proves, stand in nobody's way.

It also says whether the host was cut off from its data link: it has nothing else to do while the host is measured on.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import socket
import stat
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from pareto.protocol import messages
from pareto.protocol.host_messages import GetCarrierLosses, GetLease, Holder, Lease, TakeLease
from pareto.protocol.jsonlines import Refused, serve
from pareto.protocol.messages import MAX_S
from pareto.protocol.validation import read

FOLDERS = (Path("/run/lock"), Path("/tmp"))  # noqa: S108  (all users must find it: see `_opened`)
HOST = "pareto-lease"
FIRST_LOCK = 1 << 40
"""Where the locks begin, far behind what is written: the table's own, then the tickets'."""
_MOST_BYTES = 1 << 18
_MOST_TICKETS = 1 << 30
_MOST_HELD = 200
"""At a time: nobody waits behind so many, and what the file says of them is below its bound."""
_LONGEST = 100
"""Letters of each text that the file has of a ticket."""
_PATIENCE_S = 3.0
"""How long another may keep the table locked, which takes it milliseconds."""
_FLOCK = "hhqqi4x"
"""The kernel's `struct flock`: type, whence, start, length, process."""


@dataclass
class _Ticket:
    """mark: see `_mark`. since_s: on the clock of `time.time`, which outlives this process."""

    mark: str
    who: str
    run: str
    origin: str
    since_s: messages.Finite

    @property
    def holder(self) -> Holder:
        since_s = min(max(0.0, time.time() - self.since_s), MAX_S)
        return Holder(self.who[:_LONGEST], self.origin[:_LONGEST], self.run[:_LONGEST], since_s)


def _mark(key: str, number: int) -> str:
    """The proof that a ticket is one of a key's: nobody can make it for another ticket who does not know the key."""
    return hashlib.sha256(f"{key} {number}".encode()).hexdigest()


class Queue:
    """Those who want one thing, in the order of coming. It and its methods raise Refused where the file is unusable. A
    process has one for each name: closing another would let go of the ticket."""

    def __init__(self, name: str = HOST) -> None:
        self._fd, self._file = _opened(name)
        self._mine: int | None = None

    def ahead(self, key: str, who: str, run: str) -> list[Holder]:
        """Take a ticket, unless there is one, and return who comes before it. Nobody: the lease is held."""
        with self._locked() as tickets:
            if self._mine is None:
                number = 1 + max(tickets, default=0)
                fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, FIRST_LOCK + number)
                self._mine = number
                origin = os.environ.get("SSH_CONNECTION", "").partition(" ")[0] or "this machine"
                who, run = who[:_LONGEST], run[:_LONGEST]
                tickets[number] = _Ticket(_mark(key, number), who, run, origin, time.time())
                content = json.dumps({at: asdict(each) for at, each in tickets.items()}).encode()
                os.ftruncate(self._fd, 0)
                os.pwrite(self._fd, content, 0)
            return [
                each.holder
                for number, each in tickets.items()
                if number < self._mine and each.mark != _mark(key, number)
            ]

    def holders(self) -> list[Holder]:
        """Who holds the lease, and who waits for it."""
        with self._locked() as tickets:
            return [each.holder for each in tickets.values()]

    def close(self) -> None:
        """Give the ticket back."""
        os.close(self._fd)

    @contextmanager
    def _locked(self) -> Iterator[dict[int, _Ticket]]:
        """The tickets that are held, by number, in order; nobody takes one meanwhile."""
        deadline = time.monotonic() + _PATIENCE_S
        try:
            while True:
                try:
                    fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, FIRST_LOCK)
                    break
                except (BlockingIOError, PermissionError):
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.01)
            try:
                noted = self._noted()
                unknown = _Ticket("", "somebody", "unknown", "unknown", time.time())
                yield {number: noted.get(str(number), unknown) for number in self._held()}
            finally:
                fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, FIRST_LOCK)
        except OSError as error:
            raise Refused(f"a program keeps {self._file} locked, or it cannot be written: {error}") from error

    def _noted(self) -> dict[str, _Ticket]:
        noted: dict[str, _Ticket] = {}
        with suppress(ValueError, RecursionError):  # anybody may write into it
            noted = read(dict[str, _Ticket], json.loads(os.pread(self._fd, _MOST_BYTES, 0) or b"{}"))
        return noted

    def _held(self) -> list[int]:
        """The numbers of the tickets that are held, as the kernel says. It names one lock in a span, not the first."""
        found, spans = [self._mine] if self._mine else [], [(1, _MOST_TICKETS)]
        while spans:
            first, last = spans.pop()
            asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, FIRST_LOCK + first, last - first + 1, 0)
            kind, _, start, length, _ = struct.unpack(_FLOCK, fcntl.fcntl(self._fd, fcntl.F_GETLK, asked))
            if kind == fcntl.F_UNLCK:
                continue
            at = max(first, start - FIRST_LOCK)
            end = start - FIRST_LOCK + length if length else last + 1
            found.append(at)
            spans += [span for span in ((first, at - 1), (end, last)) if span[0] <= span[1]]
            if len(found) > _MOST_HELD or end > _MOST_TICKETS:
                raise OSError("no ticket is left")
        return sorted(found)


def _opened(name: str) -> tuple[int, Path]:
    """A file that all users of this machine may lock, opened, and its path. Raises Refused."""
    open_to_all = (each for each in FOLDERS if each.is_dir() and each.stat().st_mode & stat.S_IWOTH)
    folder = next(open_to_all, FOLDERS[-1])
    path, flags = folder / name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        try:
            fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
            os.fchmod(fd, 0o666)  # whatever the umask is
        except FileExistsError:
            fd = os.open(path, flags)  # without O_CREAT, which sticky folders refuse for another's file
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd, path
        os.close(fd)
        words = "a special file"
    except OSError as error:
        words = error.strerror or ""
    raise Refused(f"{path} is no plain file that all users may write ({words}): remove it")


def carrier_losses(interface: str, sysfs: Path = Path("/sys")) -> int | None:
    """How often the kernel saw an interface lose its carrier, 0 where it does not count that; None: it has none now."""
    folder = sysfs / "class/net" / Path(interface).name
    try:
        has_carrier = (folder / "carrier").read_text().strip() != "0"
        return int((folder / "carrier_down_count").read_text()) if has_carrier else None
    except (OSError, ValueError):
        return 0


def main() -> None:
    try:
        queue = Queue()
    except Refused as error:
        raise SystemExit(f"this host cannot be held for one run: {error}") from None
    host = socket.gethostname()
    answers: messages.Answers = {
        TakeLease: lambda take: Lease(host, queue.ahead(take.key, take.who, take.run)),
        GetLease: lambda _: Lease(host, queue.holders()),
        GetCarrierLosses: lambda of: carrier_losses(of.interface),
    }
    serve(messages.handlers(answers))


if __name__ == "__main__":
    main()

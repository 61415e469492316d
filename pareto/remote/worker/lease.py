"""`python -m pareto.remote.worker.lease`: holds this host for one driver, so that no other measures on it meanwhile.

Who wants a host takes a ticket of its queue, a file that all users may write. Ticket n is held by a lock on the file's
byte n, which the kernel removes with the process, however that ends; the lease is that of the lowest ticket. A driver
may reach one machine in two roles: tickets of the same key stand in nobody's way.

It also says whether the host was cut off from its data link: it has nothing else to do while the host is measured on.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import stat
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
_FIRST_LOCK = 1 << 40
"""Where the locks begin, far behind what is written: the table's own, then the tickets'."""
_MOST_BYTES = 1 << 18
_LONGEST = 100
"""Letters of each text that the file has of a ticket."""


@dataclass
class _Ticket:
    """mark: its driver's key. since_s: on the clock of `time.time`, which outlives this process."""

    mark: str
    who: str
    run: str
    origin: str
    since_s: messages.Finite

    @property
    def holder(self) -> Holder:
        return Holder(self.who, self.origin, self.run, min(max(0.0, time.time() - self.since_s), MAX_S))


class Queue:
    """Those who want one thing, in the order of coming. It and its methods raise Refused where the file is unusable. A
    process has one for each name: closing another would let go of the ticket."""

    def __init__(self, name: str = HOST) -> None:
        open_to_all = (each for each in FOLDERS if each.is_dir() and each.stat().st_mode & stat.S_IWOTH)
        self._file = next(open_to_all, FOLDERS[-1]) / name
        try:
            self._fd = _opened(self._file)
        except OSError as error:
            raise self._refused(error) from None
        self._mine: int | None = None

    def ahead(self, take: TakeLease) -> list[Holder]:
        """Who comes before our ticket, which is taken unless there is one. Nobody: the lease is held."""
        with self._locked() as tickets:
            if self._mine is None:
                number = 1 + max(tickets, default=0)
                fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _FIRST_LOCK + number)
                self._mine = number
                origin = os.environ.get("SSH_CONNECTION", "").partition(" ")[0] or "this machine"
                who, run = take.who[:_LONGEST], take.run[:_LONGEST]
                tickets[number] = _Ticket(take.key, who, run, origin, time.time())
                os.ftruncate(self._fd, 0)
                content = json.dumps({at: asdict(each) for at, each in tickets.items()})
                os.pwrite(self._fd, content.encode(), 0)
            return [each.holder for at, each in tickets.items() if at < self._mine and each.mark != take.key]

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
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX, 1, _FIRST_LOCK)
            try:
                yield {at: each for at, each in self._noted().items() if at == self._mine or self._held(at)}
            finally:
                fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, _FIRST_LOCK)
        except OSError as error:
            raise self._refused(error) from error

    def _noted(self) -> dict[int, _Ticket]:
        with suppress(ValueError, RecursionError):  # anybody may write into it
            noted = read(dict[str, _Ticket], json.loads(os.pread(self._fd, _MOST_BYTES, 0) or b"{}"))
            return {int(at): each for at, each in noted.items() if 0 < int(at) < _FIRST_LOCK}
        return {}

    def _held(self, number: int) -> bool:
        """Whether another process holds that ticket."""
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _FIRST_LOCK + number)
        except (BlockingIOError, PermissionError):
            return True
        fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, _FIRST_LOCK + number)
        return False

    def _refused(self, error: OSError) -> Refused:
        return Refused(
            f"{self._file} is no plain file that all users may write ({error.strerror}): remove it"
        )


def _opened(path: Path) -> int:
    """A file that all users of this machine may lock."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(FileExistsError):
        fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
        os.fchmod(fd, 0o666)  # whatever the umask is
        return fd
    return os.open(path, flags)  # without O_CREAT, which sticky folders refuse for another's file


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
        TakeLease: lambda take: Lease(host, queue.ahead(take)),
        GetLease: lambda _: Lease(host, queue.holders()),
        GetCarrierLosses: lambda of: carrier_losses(of.interface),
    }
    serve(messages.handlers(answers))


if __name__ == "__main__":
    main()

"""`python -m pareto.worker.lease`: holds this host for one driver, so that no other measures on it meanwhile.

Who wants a host takes a ticket of its queue, a file that all users may write. Ticket n is held by a lock on the file's
byte n, which the kernel removes with the process, however that ends; the lease is that of the lowest ticket. So whoever
waits is served in the order of coming. What the file says of a ticket is its taker's word, and only shown. A driver may
reach one machine in two roles: tickets of the same key stand in nobody's way.

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
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from pareto import messages
from pareto.host_messages import GetCarrierLosses, GetLease, Holder, Lease, TakeLease
from pareto.jsonlines import serve
from pareto.messages import MAX_S
from pareto.validation import read

FOLDERS = (Path("/run/lock"), Path("/tmp"))  # noqa: S108  (all users must find it: see `_opened`)
HOST = "pareto-lease"
_FIRST_LOCK = 1 << 40
"""Where the locks begin, far behind what is written: the table's own, then the tickets'."""
_MOST_BYTES = 1 << 18


@dataclass
class _Ticket:
    """since_s: on the clock of `time.time`, which outlives this process."""

    key: str
    who: str
    run: str
    origin: str
    since_s: messages.Finite

    @property
    def holder(self) -> Holder:
        return Holder(self.who, self.origin, self.run, min(max(0.0, time.time() - self.since_s), MAX_S))


class Queue:
    """Those who want one thing, in the order of coming. Raises OSError where there can be no such file.

    A process has one for each name: closing another would let go of the ticket.
    """

    def __init__(self, name: str = HOST) -> None:
        self._fd = _opened(name)
        self._mine: int | None = None

    def ahead(self, key: str, who: str, run: str) -> list[Holder]:
        """Take a ticket, unless there is one, and return who comes before it. Nobody: the lease is held."""
        with self._locked() as tickets:
            if self._mine is None:
                self._mine = 1 + max(tickets, default=0)
                self._lock(self._mine)
                tickets[self._mine] = _Ticket(key, who, run, _origin(), time.time())
                self._write(tickets)
            return [
                each.holder for number, each in tickets.items() if number < self._mine and each.key != key
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
        fcntl.lockf(self._fd, fcntl.LOCK_EX, 1, _FIRST_LOCK)
        try:
            yield {
                number: each
                for number, each in self._noted()
                if number == self._mine or self._is_held(number)
            }
        finally:
            self._unlock(0)

    def _noted(self) -> list[tuple[int, _Ticket]]:
        try:
            content = json.loads(os.pread(self._fd, _MOST_BYTES, 0) or b"{}")
            return sorted((int(number), each) for number, each in read(dict[str, _Ticket], content).items())
        except (ValueError, RecursionError):  # anybody may write into it
            return []

    def _is_held(self, number: int) -> bool:
        try:
            self._lock(number)
        except OSError:
            return True
        self._unlock(number)
        return False

    def _lock(self, number: int) -> None:
        fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _FIRST_LOCK + number)

    def _unlock(self, number: int) -> None:
        fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, _FIRST_LOCK + number)

    def _write(self, tickets: dict[int, _Ticket]) -> None:
        content = json.dumps({number: asdict(each) for number, each in tickets.items()}).encode()
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, content, 0)


def _opened(name: str) -> int:
    """A file that all users of this machine may lock, opened. Raises OSError."""
    folder = next(
        (each for each in FOLDERS if each.is_dir() and each.stat().st_mode & stat.S_IWOTH), FOLDERS[-1]
    )
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        try:
            fd = os.open(
                folder / name, flags
            )  # without O_CREAT, which sticky folders refuse for another's file
            break
        except FileNotFoundError:
            try:
                fd = os.open(folder / name, flags | os.O_CREAT | os.O_EXCL, 0o666)
            except FileExistsError:
                continue
            os.fchmod(fd, 0o666)  # whatever the umask is
            break
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(f"{folder / name} is no plain file: remove it")
    return fd


def carrier_losses(interface: str, sysfs: Path = Path("/sys")) -> int | None:
    """How often the kernel saw an interface lose its carrier, 0 where it does not count that; None: it has none now."""
    folder = sysfs / "class/net" / Path(interface).name
    try:
        return int((folder / "carrier_down_count").read_text()) if _has_carrier(folder) else None
    except (OSError, ValueError):
        return 0


def _has_carrier(interface: Path) -> bool:
    return (interface / "carrier").read_text().strip() != "0"


def _origin() -> str:
    """From where the taker has logged in."""
    return os.environ.get("SSH_CONNECTION", "").partition(" ")[0] or "this machine"


def main() -> None:
    try:
        queue = Queue()
    except OSError as error:
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

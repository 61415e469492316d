"""The privileged helper: shapes an interface of this host, and undoes it when the driver is gone.

``python -m pareto.remote.link`` runs as root, speaks `pareto.protocol.jsonlines` and answers
`pareto.remote.link.requests`; the loopback is refused, and an interface whose root qdisc somebody else chose. Every
interface is put back as it was by ``restore``, at end of file, SIGTERM, SIGHUP, after too long a silence or a line that
is no request, and whatever ends or hangs the process that works (`guard`). All that killed helpers left behind
is undone by ``--repair`` and by the next ``apply``.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from pyroute2.netlink.exceptions import NetlinkError

from pareto.protocol import jsonlines, messages
from pareto.protocol.messages import Request
from pareto.remote.link import guard, journal, qdisc
from pareto.remote.link.interface import Interface
from pareto.remote.link.netem import QdiscError
from pareto.remote.link.requests import Apply, Counts, Restart, Restore, Seed, Stats, Supported

RETRY_S = 0.2
SETTLED_S = 1.0
"""Another helper that starts just now may still be putting back what a dead one left."""


class Helper:
    """Answers requests and knows the interfaces that it has shaped. `interface` makes one of a name."""

    def __init__(self, interface: Callable[[str], Interface] = Interface) -> None:
        self._make = interface
        self._interfaces: dict[str, Interface] = {}
        self._lock = threading.Lock()

    def supported(self, _: Supported) -> bool:
        return qdisc.supported()

    def apply(self, wanted: Apply) -> dict[str, Any]:
        deadline = time.monotonic() + max(wanted.patience_s, SETTLED_S)
        while True:
            try:
                with self._lock:
                    for line in journal.repair_here():
                        print(line, file=sys.stderr)
                    return self._of(wanted.interface).apply(wanted)
            except journal.Occupied:
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_S)

    def restart(self, wanted: Restart) -> dict[str, Any]:
        with self._lock:
            self._of(wanted.interface).play(wanted.position_s)
        return {}

    def seed(self, wanted: Seed) -> bool:
        with self._lock:
            return self._of(wanted.interface).seed(wanted.egress, wanted.ingress)

    def stats(self, wanted: Stats) -> Counts:
        with self._lock:
            interface = self._of(wanted.interface)
            return Counts(interface.drops(), interface.position_s)

    def restore(self, _: Restore) -> dict[str, list[str]]:
        with self._lock:
            left, failed = self._restored()
        if failed:
            raise QdiscError("; ".join(failed))
        return {"left": [line for lines in left.values() for line in lines]}

    def handlers(self) -> dict[str, jsonlines.Handler]:
        """The handler of each request, by its name."""
        answers: dict[type[Request[Any]], Callable[[Any], object]] = {
            Supported: self.supported,
            Apply: self.apply,
            Restart: self.restart,
            Seed: self.seed,
            Stats: self.stats,
            Restore: self.restore,
        }
        return messages.handlers({kind: partial(self._answered, answer) for kind, answer in answers.items()})

    def _answered(self, answer: Callable[[Any], object], wanted: Request[Any]) -> object:
        """The report. Refuses without a traceback what the user can act on, and once a trace's fault instead of it."""
        with self._lock:
            fault = "; ".join(filter(None, (each.take_fault() for each in self._interfaces.values())))
        try:
            report = answer(wanted) if not fault or isinstance(wanted, Restore) else None
        except NetlinkError as error:
            raise jsonlines.Refused(f"the kernel refused: {qdisc.in_words(error)}") from None
        except (QdiscError, OSError) as error:
            raise jsonlines.Refused(str(error)) from None
        if fault:
            raise jsonlines.Refused(fault)
        return report

    def end(self) -> None:
        """Put everything back for good: the lock is kept, so that no handler changes anything afterwards."""
        self._lock.acquire()
        left, failed = self._restored()
        for line in (*(f"{name}: {line}" for name, lines in left.items() for line in lines), *failed):
            print(line, file=sys.stderr)

    def _restored(self) -> tuple[dict[str, list[str]], list[str]]:
        """Every interface put back: what is left on them because it is somebody else's, and what failed."""
        left, failed = {}, []
        for name, interface in self._interfaces.items():
            try:
                left[name] = interface.restore()
            except Exception as error:  # the others still want restoring
                failed.append(f"could not restore {name}: {error}")
        return left, failed

    def _of(self, name: str) -> Interface:
        qdisc.index_of(name)
        if name not in self._interfaces:
            self._interfaces[name] = self._make(name)
        return self._interfaces[name]


def work() -> None:
    """Answer requests on stdin until it ends; never returns."""
    helper = Helper()
    jsonlines.serve(helper.handlers(), at_end=helper.end)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m pareto.remote.link", description="Shapes interfaces for a driver."
    )
    parser.add_argument(
        "--repair", action="store_true", help="undo what helpers that were killed left behind"
    )
    parser.add_argument("--supported", action="store_true", help="say whether this kernel has netem")
    arguments = parser.parse_args()
    if arguments.repair:
        print("\n".join(journal.repair()) or "nothing to repair")
    elif arguments.supported:
        print(qdisc.supported())
    else:
        guard.run(work, journal.repair_here)


if __name__ == "__main__":
    main()

"""The privileged helper: shapes an interface of this host, and undoes it when the driver is gone.

``python -m pareto.link`` runs as root and speaks `pareto.jsonlines`:

- ``supported`` answers ``{"netem": true}`` where the kernel has sch_netem.
- ``apply {"interface": "data0", "address": "192.168.7.1", "egress": {"delay_s": 0.2, "rate_bps": 5e6}}`` shapes what
  leaves, as `pareto.link.profile.Direction` says. `address` is this host's data address, which the interface must
  carry: the loopback and any other interface are refused. Also: ``ingress``, a direction for what arrives;
  ``bucket`` with a `Bucket`'s fields for netem+tbf; ``offset_s`` where traces begin; ``peer``, the other host's IPv4
  address, and ``filtered``: true to shape only what goes there, which is done unasked where SSH leaves through the
  interface; ``patience_s``, how long to wait for another helper that still has the interface.
  It answers what is in force, read back from the kernel: ``{"shaper": "netem", "scope": "interface", "egress":
  {"delay_s", "rate_bps", ..., "limit_packets"}, "ingress": null, "offloads": {...}, "without_effect": []}``, the last
  what netem takes and does not do. A trace's rate is tbf's: netem+tbf. An interface whose root qdisc somebody else
  chose is refused.
  With nothing to shape everything of ours is taken off: ``{"shaper": "none", ...}``.
- ``restart {"interface": "data0", "position_s": 12.5}`` plays its traces from another position on.
- ``seed {"interface": "data0", "egress": 7, "ingress": 8}`` begins chance anew; ``{"seeded": false}`` where the kernel
  takes no seed.
- ``stats {"interface": "data0"}`` answers ``{"dropped": 0, "position_s": null}``: packets dropped since the qdiscs
  were put on, and where the traces are. netem counts the packets that it is asked to lose as dropped, too.
- ``restore`` puts every interface back as it was. So do end of file, SIGTERM, SIGHUP, 30 s without a word from
  the driver (`jsonlines.SILENCE_LIMIT_S`), a line that is no request, and whatever ends or hangs the process that
  works: another one waits for that (`pareto.link.guard`).

`pareto.link.requests` declares the fields of each, their types and bounds; what is not as declared is refused.

``python -m pareto.link --repair`` undoes what helpers that were killed left behind, and says what it did. So does the
next ``apply``.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from pyroute2.netlink.exceptions import NetlinkError

from pareto import jsonlines, validation
from pareto.errors import UserError
from pareto.link import guard, journal, qdisc
from pareto.link.interface import Interface
from pareto.link.netem import QdiscError
from pareto.link.requests import Apply, Counts, Restart, Restore, Seed, Seeded, Stats, Support, Supported
from pareto.messages import Request

RETRY_S = 0.2
SETTLED_S = 1.0
"""Another helper that starts just now may still be putting back what a dead one left."""


class Helper:
    """Answers requests and knows the interfaces that it has shaped. `interface` makes one of a name."""

    def __init__(self, interface: Callable[[str], Interface] = Interface) -> None:
        self._make = interface
        self._interfaces: dict[str, Interface] = {}
        self._lock = threading.Lock()

    def supported(self, _: Supported) -> Support:
        return Support(qdisc.supported())

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

    def seed(self, wanted: Seed) -> Seeded:
        with self._lock:
            return Seeded(self._of(wanted.interface).seed(wanted.egress, wanted.ingress))

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
        answers: dict[type[Request[Any]], Callable[[Any], Any]] = {
            Supported: self.supported,
            Apply: self.apply,
            Restart: self.restart,
            Seed: self.seed,
            Stats: self.stats,
            Restore: self.restore,
        }
        return {kind.op: self._handler(kind, answer) for kind, answer in answers.items()}

    def _handler(self, kind: type[Request[Any]], answer: Callable[[Any], Any]) -> jsonlines.Handler:
        """Refuses without a traceback what the user can act on, and all requests until a trace's fault is reported."""

        def handle(request: dict[str, Any]) -> Any:
            fault = self.faults()
            try:
                wanted = validation.read(kind, request)
            except ValueError as error:
                raise jsonlines.Refused(f"the request cannot be: {error}") from None
            try:
                report = answer(wanted) if not fault or kind is Restore else None
            except NetlinkError as error:
                raise jsonlines.Refused(f"the kernel refused: {qdisc.in_words(error)}") from None
            except (UserError, QdiscError, OSError) as error:
                raise jsonlines.Refused(str(error)) from None
            if fault:
                raise jsonlines.Refused(fault)
            return report

        return handle

    def faults(self) -> str:
        """Why traces stopped by themselves, reported once."""
        with self._lock:
            return "; ".join(filter(None, (each.take_fault() for each in self._interfaces.values())))

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
        prog="python -m pareto.link", description="Shapes interfaces for a driver."
    )
    parser.add_argument(
        "--repair", action="store_true", help="undo what helpers that were killed left behind"
    )
    if parser.parse_args().repair:
        print("\n".join(journal.repair()) or "nothing to repair")
        return
    guard.run(work, journal.repair_here)


if __name__ == "__main__":
    main()

"""The privileged helper: shapes an interface of this host, and undoes it when the driver is gone.

``python -m pareto.link`` runs as root and speaks `pareto.jsonlines`:

- ``supported`` answers ``{"netem": true}`` where the kernel has sch_netem.
- ``apply {"interface": "data0", "egress": {"delay_s": 0.2, "rate_bps": 5e6}}`` shapes what leaves, as
  `pareto.link.profile.Direction` says. Also: ``ingress``, a direction for what arrives; ``bucket`` with a
  `Bucket`'s fields for netem+tbf; ``offset_s`` where traces begin; ``peer``, the other host's IPv4 address, and
  ``filtered``: true to shape only what goes there, which is done unasked where SSH leaves through the interface;
  ``patience_s``, how long to wait for another helper that still has the interface.
  It answers what is in force, read back from the kernel: ``{"shaper": "netem", "scope": "interface", "egress":
  {"delay_s", "rate_bps", ..., "limit_packets"}, "ingress": null, "offloads": {...}, "restored_root": null,
  "without_effect": []}``: the kind of a qdisc by somebody else that comes back at the end, and what netem takes and
  does not do. A trace's rate is tbf's: netem+tbf.
  With nothing to shape everything of ours is taken off: ``{"shaper": "none", ...}``.
- ``restart {"position_s": 12.5}`` plays traces from another position on.
- ``seed {"interface": "data0", "egress": 7, "ingress": 8}`` begins chance anew; ``{"seeded": false}`` where the kernel
  takes no seed.
- ``stats {"interface": "data0"}`` answers ``{"dropped": 0, "position_s": null}``: packets dropped since the qdiscs
  were put on, and where the traces are. netem counts the packets that it is asked to lose as dropped, too.
- ``restore`` puts every interface back as it was found. So do end of file, SIGTERM, and 30 s without a word from
  the driver (`jsonlines.SILENCE_LIMIT_S`).

``python -m pareto.link --repair`` undoes what helpers that were killed left behind, and says what it did.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from typing import Any

from pyroute2.netlink.exceptions import NetlinkError

from pareto import jsonlines
from pareto.link import journal, qdisc
from pareto.link.interface import Interface, Wanted
from pareto.link.netem import QdiscError
from pareto.link.profile import ProfileError

RETRY_S = 0.5


class Helper:
    """The interfaces touched."""

    def __init__(self) -> None:
        self._interfaces: dict[str, Interface] = {}
        self._lock = threading.Lock()

    def supported(self, request: dict[str, Any]) -> dict[str, bool]:
        return {"netem": qdisc.supported()}

    def apply(self, request: dict[str, Any]) -> dict[str, Any]:
        wanted = Wanted.from_request(request)
        deadline = time.monotonic() + float(request.get("patience_s") or 0.0)
        while True:
            try:
                with self._lock:
                    return self._of(request).apply(wanted)
            except journal.Occupied:
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_S)

    def restart(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            for interface in self._interfaces.values():
                interface.play(float(request["position_s"]))
        return {}

    def seed(self, request: dict[str, Any]) -> dict[str, bool]:
        with self._lock:
            return {"seeded": self._of(request).seed(int(request["egress"]), int(request["ingress"]))}

    def stats(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            interface = self._of(request)
            return {"dropped": interface.drops(), "position_s": interface.position_s}

    def restore(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            return {"left": [line for each in self._interfaces.values() for line in each.restore()]}

    def faults(self) -> str:
        """Why traces stopped by themselves, told once."""
        with self._lock:
            return "; ".join(filter(None, (each.take_fault() for each in self._interfaces.values())))

    def end(self) -> None:
        """Put everything back for good: the lock is kept, so that no handler changes anything after."""
        self._lock.acquire()
        for interface in self._interfaces.values():
            try:
                for line in interface.restore():
                    print(f"{interface.name}: {line}", file=sys.stderr)
            except Exception as error:  # the others still want restoring
                print(f"could not restore {interface.name}: {error}", file=sys.stderr)

    def _of(self, request: dict[str, Any]) -> Interface:
        name = str(request.get("interface"))
        qdisc.index_of(name)
        return self._interfaces.setdefault(name, Interface(name))


def _answering(helper: Helper, op: str) -> jsonlines.Handler:
    """The handler, refusing without a traceback what the user can act on, and in a trace's fault."""
    handler = getattr(helper, op)

    def handle(request: dict[str, Any]) -> Any:
        fault = helper.faults()
        try:
            answer = handler(request) if not fault or op == "restore" else None
        except NetlinkError as error:
            raise jsonlines.Refused(f"the kernel refused: {qdisc.said(error)}") from None
        except (ProfileError, QdiscError, OSError) as error:
            raise jsonlines.Refused(str(error)) from None
        if fault:
            raise jsonlines.Refused(fault)
        return answer

    return handle


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
    helper = Helper()
    ops = ("supported", "apply", "restart", "seed", "stats", "restore")
    jsonlines.serve({op: _answering(helper, op) for op in ops}, at_end=helper.end)


if __name__ == "__main__":
    main()

"""The privileged helper: shapes what this host sends, and undoes it when the driver is gone.

``python -m pareto.link`` runs as root and speaks `pareto.jsonlines`:

- ``supported`` answers ``{"netem": true}`` where the kernel has sch_netem.
- ``apply {"interface": "data0", "egress": {"delay_s": 0.2, "rate_bps": 5e6}}`` answers what a dump of the qdisc
  says: ``{"shaper": "netem", "delay_s", "rate_bps", "limit_packets", "offloads"}``. An unshaped egress takes
  everything off: ``{"shaper": "none", ...}``.
- ``offloads {"interface": "data0", "rate_bps": 5e6}`` only sets TSO, GSO and GRO as that rate needs them, for a
  link that something else shapes (the relay).
- ``drops {"interface": "data0"}`` answers ``{"dropped": 0}``, packets since the qdisc was put on.
- ``restore`` puts every interface back as it was found. So do end of file, SIGTERM and a silent driver.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from pareto import jsonlines
from pareto.link import offload, qdisc
from pareto.link.profile import Direction, ProfileError


class Helper:
    """The interfaces touched, and how they were found."""

    def __init__(self) -> None:
        self._found: dict[str, offload.Offloads] = {}
        self._lock = threading.Lock()

    def supported(self, request: dict[str, Any]) -> dict[str, bool]:
        return {"netem": qdisc.supported()}

    def apply(self, request: dict[str, Any]) -> dict[str, Any]:
        interface = _interface(request)
        try:
            egress = Direction.from_dict(request.get("egress") or {})
        except ProfileError as error:
            raise jsonlines.Refused(str(error)) from None
        with self._lock:
            if not egress.shaped:
                self._restore(interface)
                qdisc.require_plain(interface)
                shaped: dict[str, Any] = {"shaper": "none", **egress.to_dict(), "limit_packets": None}
                return shaped | {"offloads": offload.read(interface)}
            self._found.setdefault(interface, offload.read(interface))
            netem = qdisc.apply(interface, egress)
            self._set_offloads(interface, egress.rate_bps)
            shaped = {"shaper": "netem", **netem.direction.to_dict(), "limit_packets": netem.limit_packets}
            return shaped | {"offloads": offload.read(interface)}

    def offloads(self, request: dict[str, Any]) -> dict[str, Any]:
        interface, rate_bps = _interface(request), request.get("rate_bps")
        with self._lock:
            self._found.setdefault(interface, offload.read(interface))
            self._set_offloads(interface, rate_bps)
            return {"offloads": offload.read(interface)}

    def drops(self, request: dict[str, Any]) -> dict[str, int]:
        return {"dropped": qdisc.drops(_interface(request))}

    def restore(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            for interface in list(self._found):
                self._restore(interface)
        return {}

    def end(self) -> None:
        """Put everything back for good: the lock is kept, so that no handler changes anything after."""
        self._lock.acquire()
        for interface in list(self._found):
            try:
                self._restore(interface)
            except Exception as error:  # the others still want restoring
                print(f"could not restore {interface}: {error}", file=sys.stderr)

    def _set_offloads(self, interface: str, rate_bps: float | None) -> None:
        if offload.too_coarse(rate_bps):
            offload.switch_off(interface)
        else:
            offload.write(interface, self._found[interface])

    def _restore(self, interface: str) -> None:
        try:
            qdisc.remove(interface)
        finally:
            if interface in self._found:
                offload.write(interface, self._found.pop(interface))


def _interface(request: dict[str, Any]) -> str:
    interface = str(request.get("interface"))
    qdisc.index_of(interface)
    return interface


def _refusing(handler: jsonlines.Handler) -> jsonlines.Handler:
    """What the user can act on, without a traceback."""

    def handle(request: dict[str, Any]) -> Any:
        try:
            return handler(request)
        except (qdisc.QdiscError, OSError) as error:
            raise jsonlines.Refused(str(error)) from None

    return handle


def main() -> None:
    helper = Helper()
    handlers = {
        op: _refusing(getattr(helper, op)) for op in ("supported", "apply", "offloads", "drops", "restore")
    }
    jsonlines.serve(handlers, at_end=helper.end)


if __name__ == "__main__":
    main()

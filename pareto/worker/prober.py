"""`python -m pareto.worker.prober`: the probe by itself, for checking a link. It needs no torch.

- `listen` address, token (on a link's far host): the port of the probe
- `connect` address, probe, token (on its near host): a new connection to it
- `probe` bulk_out, bulk_back, more by name (on its near host): the link, measured; see `ProbeClient.measure`
- `reach` address, probe: whether any host's probe can be connected to; the seconds that took
"""

from __future__ import annotations

import socket
import time
from typing import Any

from pareto.jsonlines import Refused, serve
from pareto.worker.probe import ProbeClient, ProbeServer, Reading

REACH_S = 10.0


class Prober:
    """One end of the link; each public method answers one request."""

    def __init__(self) -> None:
        self._client: ProbeClient | None = None

    def listen(self, request: dict[str, Any]) -> dict[str, int]:
        return {"probe": ProbeServer(request["address"], request["token"]).port}

    def connect(self, request: dict[str, Any]) -> None:
        if self._client is not None:
            self._client.close()
        self._client = ProbeClient(request["address"], request["probe"], request["token"])

    def probe(self, request: dict[str, Any]) -> Reading:
        if self._client is None:
            raise Refused("not connected")
        return self._client.measure(**request)

    def reach(self, request: dict[str, Any]) -> float:
        began = time.perf_counter()
        with socket.create_connection((request["address"], request["probe"]), REACH_S):
            return time.perf_counter() - began


def main() -> None:
    prober = Prober()
    serve({name: getattr(prober, name) for name in ("listen", "connect", "probe", "reach")})


if __name__ == "__main__":
    main()

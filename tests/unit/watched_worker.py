"""A worker that also tells of its connections."""

from __future__ import annotations

from typing import Any

from pareto import jsonlines
from pareto.worker import connections, device
from pareto.worker.__main__ import Worker


class WatchedWorker(Worker):
    def connections(self, request: dict[str, Any]) -> dict[int, dict[str, Any]]:
        return {inode: vars(found) for inode, found in connections.to(request["address"]).items()}


def serve(congestion: str) -> None:
    worker = WatchedWorker(device.named("cpu"), congestion)
    handlers = {name: getattr(worker, name) for name in dir(worker) if not name.startswith("_")}
    jsonlines.serve(handlers, silence_limit_s=600)

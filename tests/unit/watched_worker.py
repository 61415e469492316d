"""`python -m tests.unit.watched_worker CONGESTION`: a worker that also tells of its connections."""

from __future__ import annotations

import sys
from typing import Any

from pareto.jsonlines import serve
from pareto.worker import connections, device
from pareto.worker.__main__ import Worker


class WatchedWorker(Worker):
    def connections(self, request: dict[str, Any]) -> dict[int, dict[str, Any]]:
        return {inode: vars(found) for inode, found in connections.to(request["address"]).items()}


if __name__ == "__main__":
    worker = WatchedWorker(device.named("cpu"), sys.argv[1])
    serve({name: getattr(worker, name) for name in dir(worker) if not name.startswith("_")})

"""A worker that also tells of its connections."""

from __future__ import annotations

from typing import Any

from pareto.protocol import jsonlines
from pareto.protocol.messages import handlers
from pareto.remote.worker import connections, device
from pareto.remote.worker.worker import Worker, answers


class WatchedWorker(Worker):
    def connections(self, request: dict[str, Any]) -> dict[int, dict[str, Any]]:
        return {inode: vars(found) for inode, found in connections.to(request["address"]).items()}


def serve(congestion: str) -> None:
    worker = WatchedWorker(device.named("cpu"), congestion)
    of_worker = handlers(answers(worker))
    jsonlines.serve({**of_worker, "connections": worker.connections}, silence_limit_s=600)

"""The load phase of a trial: requests arrive by the edge's clock, whatever became of those before (an open loop)."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from pareto.protocol.trial_messages import Arrivals
from pareto.remote.worker.phases import Edge, Phase, Pipeline, unseen


@dataclass(frozen=True)
class Offered:
    """The requests that arrived by themselves. phase: of those that were served, in order. dropped_s: when those
    arrived that found the queue full. late_s: by how much later the edge knew of an arrival for which it waited; 0
    where it was busy. All from the start of the phase."""

    phase: Phase
    dropped_s: list[float]
    late_s: list[float]


def offered(edge: Edge, arrivals: Arrivals, depth: int, seen: Callable[[int], None] = unseen) -> Offered:
    """The phase of requests that arrive at their times. They wait before the edge, as many as the queue has room for,
    and are taken in order while fewer than `depth` are in flight.

    Nothing makes an arrival: whenever the edge can take a request it looks who has arrived by then. Nobody left the
    queue meanwhile, so that it also knows who found it full, however late it looks.
    """
    coming, waiting = deque(arrivals.at_s), deque[float]()
    served, dropped_s, late_s = 0, list[float](), list[float]()
    is_over = threading.Event()
    with Pipeline(edge, depth, seen, is_over.set) as pipeline:
        while pipeline.has_room() and (coming or waiting):
            now = time.perf_counter() - pipeline.origin
            while coming and coming[0] <= now:
                (waiting if len(waiting) < arrivals.queue else dropped_s).append(coming.popleft())
                late_s.append(0.0)
            if not waiting:
                if not coming or is_over.wait(pipeline.origin + coming[0] - time.perf_counter()):
                    break
                waiting.append(coming.popleft())
                late_s.append(max(0.0, time.perf_counter() - pipeline.origin - waiting[0]))
            payload, begun = edge.make(edge.take(served))
            pipeline.send(payload, replace(begun, scheduled_s=waiting.popleft()))
            served += 1
    return Offered(pipeline.phase(), dropped_s, late_s)

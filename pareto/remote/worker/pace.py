"""How many requests a phase makes, how many are in flight, and how often a stage runs by itself: what is measured so,
planned so, and simulated so. Travels to the hosts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pareto.protocol.constants import MOST_IN_FLIGHT, MOST_REQUESTS

BASELINE_RUNS, BASELINE_S = 2, 0.03
"""A baseline has as many runs and lasts as long, but for a stage so slow that it would exceed `BASELINE_MOST_S`."""
BASELINE_MOST_S = 0.5


def in_flight(latency_s: float, slowest_s: float) -> int:
    """Requests to keep in flight so that the slowest step never waits (Little's law, with a quarter to spare). A
    latency is computing, transfers and the link's delay: so this covers bandwidth x delay too."""
    return max(2, min(MOST_IN_FLIGHT, math.ceil(1.25 * latency_s / slowest_s)))


def one_by_one(requests: int, seconds: float, latency_s: float) -> int:
    """How many requests of a latency a phase makes that has so many and lasts so long, at the least."""
    return max(requests, min(MOST_REQUESTS, math.ceil(seconds / latency_s)))


def in_bursts(requests: int, seconds: float, pace_s: float, depth: int, prefetch: int = 0) -> tuple[int, int]:
    """The least number of requests in a throughput phase, and how many are made if their pace is as foreseen. requests,
    seconds: how long steady state is at the least. pace_s: from one completion to the next. They come in whole bursts
    of `depth` (`worker.phases.steady` says why); those that fill the steps come on top."""
    least, wanted = (
        depth * math.ceil(number / depth) + 1 + depth + prefetch
        for number in (requests, one_by_one(requests, seconds, pace_s))
    )
    return least, wanted


def alone_s(stages_s: Sequence[float]) -> float:
    """How long a trial runs stages by themselves: each host's once when it gets it, all at the same time, the edge's
    for a first payload, and each in turn for its baseline, before the phases and after. stages_s: what a run takes."""
    baselines_s = [
        stage_s if stage_s > BASELINE_MOST_S else max(BASELINE_S, BASELINE_RUNS * stage_s)
        for stage_s in stages_s
        if stage_s > 0
    ]
    return max(stages_s) + stages_s[0] + 2 * sum(baselines_s)


def paced(ips: float, batch_size: int, best_s: float | None, own_hz: float) -> float:
    """Images per second, by the completions of a phase; but where these are more than a step can do, by how often it
    ended a run of the same requests: the first reply came later after its run than the last. best_s: the least time
    from one run of the step to the next."""
    return own_hz * batch_size if best_s and ips > batch_size / best_s else ips

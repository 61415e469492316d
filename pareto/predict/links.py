"""Links as the arithmetic of predictions takes them: one delay and rate each way, in the mean and at their best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from pareto.analysis.prediction.forecast import Case
from pareto.analysis.prediction.network import Network
from pareto.remote.link.probe import Tolerance, delay_range_s
from pareto.remote.link.profile import Direction, Profile


def case(
    netem: str, profiles: Sequence[Profile], tolerance: Tolerance, batch_size: int, in_flight: str, codec: str
) -> Case:
    """The case of these links: in the mean, at their best, for bounds, and as far off as probes let them be."""
    usual, best = (
        tuple(Network(*of(each.edge_to_server, each), *of(each.server_to_edge, each)) for each in profiles)
        for of in (_mean, _best)
    )
    return Case(netem, usual, best, batch_size, in_flight, tolerance, codec)


def doubts(profiles: Sequence[Profile]) -> Iterator[str]:
    """A line for each link of which the arithmetic does not hold."""
    for profile in dict.fromkeys(profiles):
        if profile.period_s is not None or profile.bucket is not None:
            yield f"attention: {profile.name} changes its rate: the prediction counts with the mean."
        elif not profile.tcp_fills:
            yield (
                f"attention: on {profile.name} packets are lost, overtaken or dropped, so that TCP may not reach its "
                "rate: the prediction counts with that rate."
            )


def _mean(way: Direction, _: Profile) -> tuple[float, float]:
    return way.typical.delay_s, way.typical.rate_bps or inf


def _best(way: Direction, profile: Profile) -> tuple[float, float]:
    """The least delay and the greatest rate at any time."""
    if way.trace is None:
        # What passes a bucket at once, or overtakes, does not wait for the line.
        unlimited = profile.bucket is not None or way.reorder > 0
        return delay_range_s(way)[0], inf if unlimited else way.rate_bps or inf
    steps = way.trace.steps
    rate_bps = max(inf if step.rate_bps is None else step.rate_bps for step in steps)
    return max(0.0, min(step.delay_s for step in steps) - way.jitter_s), rate_bps

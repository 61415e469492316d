"""The requests of a simulated trial: one after another, and many in flight through the steps of a pipeline."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from pareto.analysis.statistics.samples import Floats
from pareto.protocol.trial_messages import Arrivals
from pareto.remote.link.probe import GOODPUT, Span, delay_range_s
from pareto.remote.link.profile import Direction
from pareto.remote.worker.open_loop import Offered
from pareto.remote.worker.pace import in_bursts, one_by_one
from pareto.remote.worker.phases import Phase, Sample
from pareto.simulated.world import LinkTruth, World
from pareto.sweep.bounds import Crossing

Length = tuple[int, float]
"""Requests and seconds that a phase takes at the least."""


@dataclass(frozen=True)
class OneWay:
    """One way over a link: seconds that a message occupies it, and the least and greatest delay that follows."""

    busy_s: float
    delay_s: tuple[float, float]

    @classmethod
    def of(cls, direction: Direction, nbytes: float, truth: LinkTruth, seen: Span) -> OneWay:
        """The times of a message of `nbytes`: by TCP's goodput of the rate, and the delay with its jitter. A trace
        counts in the part seen. Losses cost nothing."""
        if (trace := direction.trace) is not None:
            line_s = fmean((trace.least_transfer_s(nbytes, *seen), trace.most_transfer_s(nbytes, *seen)))
        else:
            line_s = 8 * nbytes / direction.rate_bps if direction.rate_bps else 0.0
        delay_s = delay_range_s(direction, seen)[0] + truth.delay
        return cls(line_s / (GOODPUT * truth.rate), (delay_s, delay_s + 2 * direction.jitter_s))


@dataclass(frozen=True)
class Work:
    """A host's usual work for a request, in seconds: it decodes what comes, computes, and encodes what it sends."""

    compute_s: float
    decode_s: float = 0.0
    encode_s: float = 0.0

    @property
    def seconds(self) -> float:
        return self.decode_s + self.compute_s + self.encode_s


class RequestPath:
    """A request's path: the edge's stage, the link out, the next stage, ..., and the links back."""

    def __init__(
        self,
        crossings: Sequence[Crossing],
        hosts: Sequence[Work],
        world: World,
        overhead_s: float,
        draws: np.random.Generator,
    ) -> None:
        """hosts: those that take part, edge first. overhead_s: the backend's, a link."""
        link, self.crossings, self.hosts = world.link, crossings, hosts
        out = [OneWay.of(on.profile.edge_to_server, on.sent_bytes, link, on.seen) for on in crossings]
        back = [OneWay.of(on.profile.server_to_edge, on.result_bytes, link, on.seen) for on in crossings]
        self.ways = [*out, *reversed(back)]
        """In the order in which a request takes them."""
        self.wire_bytes = [round(each.sent_bytes) for each in crossings]
        self.coded: list[tuple[list[float], list[float]]] = [([], []) for _ in hosts]
        """By host, the seconds of its codec for each request so far: to decode, to encode."""
        self.overhead_s = overhead_s * len(crossings)
        self.noise, self.draws, self.most = world.noise, draws, world.requests

    @property
    def latency_s(self) -> float:
        """The latency of a request without noise."""
        links = sum(way.busy_s + sum(way.delay_s) / 2 for way in self.ways)
        return sum(host.seconds for host in self.hosts) + links + self.overhead_s

    def alone(self, length: Length, origin_s: float) -> Phase:
        """The requests of a latency phase: one in flight."""
        count = max(length[0], min(self.most, one_by_one(*length, self.latency_s)))
        factors, worked, delays = self._drawn(count)
        links_s = sum(way.busy_s for way in self.ways) + self.overhead_s
        latencies = worked.sum(axis=0) + delays.sum(axis=0) + links_s
        finished = np.cumsum(latencies)
        samples = self._samples((finished - latencies).tolist(), finished.tolist(), factors, worked)
        return Phase(origin_s, samples, [])

    def in_flight(self, length: Length, depth: int, pace_s: float, origin_s: float) -> Phase:
        """The requests of a throughput phase with `depth` in flight, as many as `phases.throughput` makes."""
        _, count = in_bursts(length[0], min(length[1], self.most * pace_s), pace_s, depth)
        samples, _ = self._pipelined([0.0] * count, depth, queue=count)
        return Phase(origin_s, samples, [], depth)

    def arriving(self, arrivals: Arrivals, depth: int, origin_s: float) -> Offered:
        """The requests of a load phase, as `open_loop.offered` makes them: with a queue before the edge."""
        at, count = arrivals.at_s, len(arrivals.at_s)
        samples, taken = self._pipelined(at, depth, arrivals.queue)
        dropped_s = [at[number] for number in sorted({*range(count)}.difference(taken))]
        served = [replace(one, scheduled_s=at[number]) for one, number in zip(samples, taken, strict=True)]
        return Offered(Phase(origin_s, served, [], depth), dropped_s, [0.0] * count)

    def _pipelined(self, at_s: Sequence[float], depth: int, queue: int) -> tuple[list[Sample], list[int]]:
        """The requests that come at these times, `depth` in flight, and the numbers of those that the queue took."""
        factors, worked, steps = self._steps(len(at_s))
        free = [0.0] * len(steps[0][0])
        began, finished, taken = list[float](), list[float](), list[int]()
        for number, (came_s, of_request) in enumerate(zip(at_s, steps, strict=True)):
            if len(began) - bisect.bisect_right(began, came_s) >= queue:
                continue
            before = finished[len(began) - depth] if len(began) >= depth else 0.0
            started, ended = _through(max(came_s, before), free, *of_request)
            taken.append(number)
            began.append(started)
            finished.append(max([ended + self.overhead_s, *finished[-1:]]))  # replies come in order
        return self._samples(began, finished, factors[:, taken], worked[:, taken]), taken

    def _samples(
        self, began: Sequence[float], finished: Sequence[float], factors: Floats, worked: Floats
    ) -> list[Sample]:
        """The requests, of which it is noted what codecs took."""
        for host, factor, (decode_s, encode_s) in zip(self.hosts, factors, self.coded, strict=True):
            decode_s += (factor * host.decode_s).tolist()
            encode_s += (factor * host.encode_s).tolist()
        edge, sent = self.hosts[0], self.wire_bytes[0] if self.wire_bytes else 0
        columns = zip(began, finished, factors[0].tolist(), map(tuple, worked[1:].T.tolist()), strict=True)
        return [
            Sample(start, end, factor * edge.compute_s, self.overhead_s, later, factor * edge.encode_s, sent)
            for start, end, factor, later in columns
        ]

    def _steps(self, count: int) -> tuple[Floats, Floats, list[tuple[list[float], list[float]]]]:
        """As of `_drawn`, factors and seconds of the hosts; and of each request the seconds that it occupies each step
        of the pipeline, and those that pass after each."""
        factors, worked, delays = self._drawn(count)
        ways = [(np.full(count, way.busy_s), delay) for way, delay in zip(self.ways, delays, strict=True)]
        out, back = ways[: len(ways) // 2], ways[len(ways) // 2 :]
        stages = [(each, np.zeros(count)) for each in worked]
        steps = [stages[0], *itertools.chain(*zip(out, stages[1:], strict=True)), *back]
        busy, after = (np.array(each) for each in zip(*steps, strict=True))
        return factors, worked, [*zip(busy.T.tolist(), after.T.tolist(), strict=True)]

    def _drawn(self, count: int) -> tuple[Floats, Floats, Floats]:
        """For so many requests: how many times as long as usual each host takes, its seconds, and each way's delay."""
        factors = self.noise.factors(self.draws, self.noise.request, (len(self.hosts), count))
        least, most = np.array([way.delay_s for way in self.ways]).reshape(-1, 2).T[:, :, np.newaxis]
        delays = least + (most - least) * self.draws.random((len(self.ways), count))
        return factors, factors * np.array([host.seconds for host in self.hosts])[:, np.newaxis], delays


def _through(
    from_s: float, free_s: list[float], busy_s: Sequence[float], after_s: Sequence[float]
) -> tuple[float, float]:
    """When a request is begun that may be from a time on, and when its last step is over. free_s: when each step is
    free again, which this changes. busy_s, after_s: how long it occupies each, and is then on its way."""
    started = at = max(free_s[0], from_s)
    for step, (takes, then) in enumerate(zip(busy_s, after_s, strict=True)):
        free_s[step] = at = max(at, free_s[step]) + takes
        at += then
    return started, at

"""The best splits among all of a chain of hosts, without trying each: the whole front of latency and throughput.

`front` is exact for the arithmetic of `analysis.prediction.formula`. Every split on the front has the least latency
among those whose slowest step (a host, or a direction of a link) is no slower than its own. So a dynamic programme
over units x hosts finds the least latency below a limit on the steps, and the limit falls from the slowest step of
one answer to the next: the epsilon-constraint method (Haimes, Lasdon & Wismer, "On a bicriterion formulation of the
problems of integrated system identification and system optimization", IEEE Trans. SMC 1, 1971).

Beside it what others do: `greedy` and `even`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pareto.analysis.prediction import formula
from pareto.analysis.prediction.formula import Conditions, Payloads, Values
from pareto.analysis.statistics.samples import Floats, Ints


@dataclass(frozen=True, eq=False)
class Chain:
    """The times and bytes of a model on a chain of hosts, for one backend and batch size.

    until_s: hosts x points, seconds of all units before each point on that host. once_s: of each host, seconds that a
    stage takes besides if it has a unit; a negative one shortens it, to the share `least` of its units' seconds.
    payload_bytes: what is sent at each point, 0 at the last. result_bytes: of a request. conditions: of each link
    (arrays with an axis of links, or numbers).
    overhead_s: links x points, what the backend adds to the latency. in_flight: in the throughput phase. near_s, far_s:
    links x points, the processor time that sending takes of the host before the link, and of the one behind it, where
    many requests are in flight. core: of each host, where those with the same number share one; empty: none do.
    encode_s, decode_s: links x points, what a codec takes of the host before the link, and of the one behind it, for
    each request; inf where it cannot be used.
    """

    until_s: Floats
    once_s: Floats
    payload_bytes: Floats
    result_bytes: float
    conditions: Conditions
    overhead_s: Floats
    batch_size: int = 1
    in_flight: int = 1
    near_s: Values = 0.0
    far_s: Values = 0.0
    core: tuple[int, ...] = ()
    least: Values = 0.0
    encode_s: Values = 0.0
    decode_s: Values = 0.0

    @property
    def hosts(self) -> int:
        return len(self.until_s)

    @property
    def last(self) -> int:
        """The last point: nothing crosses there."""
        return len(self.payload_bytes) - 1

    @cached_property
    def segments_s(self) -> Floats:
        """Seconds of each stage by its first and its last point: hosts x points x points; inf where it goes back."""
        points = np.arange(self.last + 1)
        some = points > points[:, None]
        units_s = self.until_s[:, None, :] - self.until_s[:, :, None]
        least = np.broadcast_to(self.least, self.hosts)[:, None, None]
        once_s = np.where(some, self.once_s[:, None, None], 0.0)
        return np.where(points < points[:, None], np.inf, np.maximum(least * units_s, units_s + once_s))

    def stages_s(self, splits: Ints) -> Floats:
        """Seconds of each stage: splits x hosts, of splits x links."""
        ends = np.pad(splits, ((0, 0), (1, 1)))
        ends[:, -1] = self.last
        return np.asarray(self.segments_s[np.arange(self.hosts), ends[:, :-1], ends[:, 1:]])

    def steps_s(self, splits: Ints) -> Floats:
        """Seconds that each host is busy with one of many requests, its codec and sending included: splits x hosts."""
        near_s, far_s = (self._of(table, splits) for table in self.beside_s)
        return self.stages_s(splits) + np.pad(near_s, ((0, 0), (0, 1))) + np.pad(far_s, ((0, 0), (1, 0)))

    def cores_s(self, splits: Ints) -> Floats:
        """The same of each host with all that share its core: splits x hosts."""
        steps_s = self.steps_s(splits)
        return np.asarray(steps_s @ np.equal.outer(self.core, self.core)) if self.core else steps_s

    def latency_s(self, splits: Ints) -> Floats:
        """Seconds with one request in flight, of each split (splits x links)."""
        return np.asarray(self.stages_s(splits).sum(axis=1) + self._of(self.carried_s, splits).sum(axis=1))

    def throughput_ips(self, splits: Ints) -> Floats:
        """Images a second, of each split (splits x links)."""
        occupied_s, stage_s = self._of(self.occupied_s, splits).max(axis=1), self.cores_s(splits).max(axis=1)
        payloads, latency_s = self._payloads(splits), self.latency_s(splits)
        period_s = formula.period_s(payloads, stage_s, occupied_s, latency_s, self.in_flight)
        with np.errstate(divide="ignore"):  # nothing takes no time, but a file may say so
            return np.asarray(self.batch_size / period_s)

    @cached_property
    def carried_s(self) -> Floats:
        """Seconds that a link adds to the latency of a request that crosses it at a point: links x points."""
        return formula.carrying_s(*self._each_link) + self._crossing(self.overhead_s) + sum(self.coding_s)

    @cached_property
    def occupied_s(self) -> Floats:
        """Seconds that the slower direction of a link is busy with a request: links x points."""
        return formula.occupied_s(*self._each_link)

    @cached_property
    def coding_s(self) -> tuple[Floats, Floats]:
        """`encode_s` and `decode_s`, 0 at the point where nothing crosses: links x points each."""
        return self._crossing(self.encode_s), self._crossing(self.decode_s)

    @cached_property
    def beside_s(self) -> tuple[Floats, Floats]:
        """Seconds of a request beside the stages, on the hosts before a link and behind it: links x points each."""
        encode_s, decode_s = self.coding_s
        return self._crossing(self.near_s) + encode_s, self._crossing(self.far_s) + decode_s

    def _crossing(self, each: Values) -> Floats:
        """The values as links x points, 0 at the point where nothing crosses."""
        shape = self.hosts - 1, self.last + 1
        return np.asarray(np.where(self.payload_bytes > 0, np.broadcast_to(each, shape), 0.0))

    @property
    def _each_link(self) -> tuple[Payloads, Conditions]:
        """All points' payloads on each link alone, and its conditions: links x points x 1."""
        ways = (np.broadcast_to(way, self.hosts - 1)[:, None, None] for way in vars(self.conditions).values())
        return self._payloads(np.arange(self.last + 1)[:, None]), Conditions(*ways)

    def _payloads(self, splits: Ints) -> Payloads:
        """The bytes that each split (splits x links) puts on each link."""
        out = self.payload_bytes[splits]
        return Payloads(out, np.where(out > 0, self.result_bytes, 0.0))

    @staticmethod
    def _of(table: Floats, splits: Ints) -> Floats:
        return np.asarray(table[np.arange(len(table)), splits])


def front(chain: Chain) -> Ints:
    """The splits that no other dominates in latency and throughput, least latency first: splits x links.

    One of several with the same figures is there.
    """
    found: list[Ints] = []
    stages_s, carried_s = chain.segments_s.copy(), chain.carried_s.copy()
    steps_s = chain.segments_s.copy()
    near_s, far_s = chain.beside_s
    steps_s[:-1] += near_s[:, None, :]
    steps_s[1:] += far_s[:, :, None]
    while (split := _least_latency(stages_s, carried_s)) is not None:
        found.append(split)
        one = split[None]
        limit = max(chain.steps_s(one).max(), chain._of(chain.occupied_s, one).max())
        # From here on more latency only means longer waits.
        if chain.payload_bytes[split[0]] > 0 and chain.latency_s(one)[0] / chain.in_flight >= limit:
            break
        stages_s[steps_s >= limit] = np.inf
        carried_s[chain.occupied_s >= limit] = np.inf
    splits = np.array(found, dtype=np.int64).reshape(len(found), chain.hosts - 1)
    return splits[pareto(chain.latency_s(splits), chain.throughput_ips(splits))]


def _least_latency(stages_s: Floats, carried_s: Floats) -> Ints | None:
    """The split of the least latency, by stages (hosts x points x points) and links (links x points); None: inf."""
    latency_s = stages_s[0, 0]  # of the units before each point
    before: list[Ints] = []
    for of_link_s, of_host_s in zip(carried_s, stages_s[1:], strict=True):
        through_s = (latency_s + of_link_s)[:, None] + of_host_s
        before.append(through_s.argmin(axis=0))
        latency_s = through_s.min(axis=0)
    if not np.isfinite(latency_s[-1]):
        return None
    split = [len(latency_s) - 1]
    for places in reversed(before):
        split.append(int(places[split[-1]]))
    return np.array(split[:0:-1], dtype=np.int64)


def pareto(latency_s: Floats, throughput_ips: Floats) -> Ints:
    """The places of the points that none dominates, least latency first; of equal ones the first."""
    order = np.lexsort((-throughput_ips, latency_s))
    best = np.maximum.accumulate(throughput_ips[order])
    ahead = np.concatenate([[True], best[1:] > best[:-1]]) if len(order) else np.empty(0, dtype=bool)
    return np.asarray(order[ahead])


def even(chain: Chain) -> Ints:
    """The split that gives every host as many units as any other, up to rounding: one row."""
    share = np.arange(1, chain.hosts) / chain.hosts
    return np.rint(share * chain.last).astype(np.int64)[None]


def greedy(chain: Chain) -> Ints:
    """The split that the greedy rule of ParetoPipe finds: one row.

    From points spread evenly, one cut after another moves to the best place near it, as long as that helps: within a
    tenth of the points either way, none onto another or onto an end, at most 20 times each. Best is the least
    0.7 x the coefficient of variation of the stages' times + 0.3 x the seconds that payloads need one way. The rule's
    weights and limits are its authors' (Masud, Foley, Durga Rajarajan & Lama, "Where to Split?", arXiv 2601.08025, and
    its repository, `profiling/intelligent_splitter.py`). They take one device's times for all; here each stage has its
    own host's.
    """
    links, inner = chain.hosts - 1, chain.last - 1
    if inner < links:
        return even(chain)
    reach, step = max(1, inner // 10), inner // (links + 1)
    split = np.array([max(1, 1 + number * step) for number in range(1, links + 1)])
    if len(set(split)) < links or split[-1] > inner:
        split = np.arange(1, links + 1)
    for _ in range(_PASSES):
        before = split.copy()
        for link in range(links):
            others = np.delete(split, link)
            near = np.arange(max(1, split[link] - reach), min(inner, split[link] + reach) + 1)
            near = near[~np.isin(near, others)]
            tried = np.repeat(split[None], len(near), axis=0)
            tried[:, link] = near
            tried.sort(axis=1)
            split = tried[int(_greedy_score(chain, tried).argmin())]
        if (split == before).all():
            break
    return split[None]


_PASSES = 20
_BALANCE, _COMMUNICATION = 0.7, 0.3


def _greedy_score(chain: Chain, splits: Ints) -> Floats:
    stages_s = chain.stages_s(splits)
    mean_s = stages_s.mean(axis=1)
    varied = stages_s.std(axis=1) / np.where(mean_s > 0, mean_s, 1.0)
    out_s = chain.conditions.delay_s + 8 * chain.payload_bytes[splits] / chain.conditions.rate_bps
    return np.asarray(_BALANCE * varied + _COMMUNICATION * np.asarray(out_s).sum(axis=1))

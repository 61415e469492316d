"""Forecasts of any split by a model profile, without trials: figures with errors, and bounds that none beats.

Stages are the profile's units, links are arithmetic (`analysis.prediction.formula`), and what a backend adds is the
profile's a + b x bytes of each link. A host also sends and receives: with many requests in flight the processor time of
that is added to its stage's. With a codec the host before a link encodes and the one behind it decodes, and what is
sent is what the codec makes of a payload. A profile times units in eager: what stages take by another engine is a guess
with a large error, and the bound of such a split counts its links alone. How far forecasts are off is judged where the
truth was measured: `analysis.prediction.compared`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pareto.analysis.model_profile import ModelProfile
from pareto.analysis.prediction import formula
from pareto.analysis.prediction.formula import Chain, Conditions, Values, at
from pareto.analysis.prediction.network import Network
from pareto.analysis.runs.points import EAGER, NO_CODEC, of_role
from pareto.analysis.statistics.samples import Floats, Ints
from pareto.hosts.host import chain
from pareto.protocol.constants import (
    BURST,
    GOODPUT,
    MOST_IN_FLIGHT,
    QUEUE_BDP,
    QUEUE_LEAST_BYTES,
    QUEUE_LEAST_S,
)
from pareto.protocol.errors import UserError
from pareto.remote.link.probe import Tolerance

AUTO = "auto"
# Standard deviations, as shares, unless said otherwise; docs/prediction.md and docs/engines.md have their runs.
BETWEEN_RUNS, UNDER_QUOTA = 0.12, 0.25
"""A device's speed from its profile to a trial: usually, and where it has a share of a core, spent in bursts."""
BY_ENGINE = 0.65
"""Stages by an engine other than the profile's, which took 0.27 to 1.26 of their time in eager."""
ADDED, SENDING = 0.4, 0.7
"""The time that a backend and waking up add to a request, and the processor time of sending: the program that shapes
the link has it on one core or on the other."""
RESENDING_S, RESENDING_RTTS, RESENDING = 0.1, 4, 0.6
"""The cost of packets that a full queue drops: half of Linux' least time-out, 0.2 s, some round trips; its error."""
WAITING = 0.01
"""A host's wait for a link: the longer it is, the longer the stage takes."""
FILLING, DROPPING = 0.025, 0.2
"""The throughput where a link is slowest: how well requests fill it; and where its queue does not hold all of them."""
SPARE = 1.25
"""The requests that a trial has in flight, as a multiple of those that its slowest step needs."""
CODING = 0.35
"""A codec's time: in a trial other data is in the caches, and another thread is sending."""
CODEC_MARGIN, MARGIN = 0.3, 0.1
"""The shares by which a codec may beat every run of the profile, and a stage the sum of its units' 5 % quantiles."""
QUOTA_PERIOD_S, QUOTA_TURN_S = 0.005, 0.004
"""Seconds after which the quota of a host with a share of a core comes anew; and those that it computes at once even
so, for the kernel ends a turn at a tick of its timer, and the pause comes after it (docs/measuring.md)."""
_NORMAL = 1.96
"""Half of a 95 % interval, in standard deviations."""


@dataclass(frozen=True)
class Case:
    """The case in which splits are compared: the links, in order from the edge, and how they are used.

    usual, at_best: each link as it is, and with the least delay and the greatest rate that it has at any time. slack:
    how far it may be off even so. codec: what payloads go through.
    """

    netem: str
    usual: Sequence[Network]
    at_best: Sequence[Network]
    batch_size: int = 1
    in_flight: str = AUTO
    slack: Tolerance = field(default_factory=Tolerance)
    codec: str = NO_CODEC

    @property
    def hosts(self) -> int:
        return len(self.usual) + 1


FIGURES = (
    *("latency_s", "throughput_ips", "latency_error", "throughput_error"),
    *("least_latency_s", "most_throughput_ips"),
)
"""The figures of a forecast: with one request in flight, and with many; standard deviations, as shares; bounds."""


class Forecasts:
    """The forecasts of a model's splits in one case over one backend.

    Arrays of what hosts take are hosts x points (or units), those of links are links x points, or links x 1.
    """

    def __init__(self, profile: ModelProfile, case: Case, backend: str) -> None:
        """Raises UserError for what the profile does not know."""
        self.profile, self.case, self.roles = profile, case, chain(case.hosts)
        times = [profile.of(role, case.batch_size) for role in self.roles]
        of_host = ("cpu", "median_s", "low_s", "high_s", "least_s", "outside_s", "after_pause_s")
        self._host = {name: np.array([getattr(each, name) for each in times]) for name in of_host}
        # From the sum of the units to the stage run whole; under a quota the two are unlike.
        scales = [1.0 if each.cpu < 1 else 1 / (1 + each.difference) for each in times]
        self._scales, cpu = np.array(scales)[:, None], self._host["cpu"][:, None]
        links = _conditions(case.usual)
        self._rtt_s = rtt_s = links.delay_s + links.delay_back_s
        self._coding = encode_s, _, nbytes = self._of_codec("")
        slows = ((rtt_s > 0) | np.isfinite(links.rate_bps)).ravel().tolist()
        ends = zip(self.roles, self.roles[1:], slows, strict=False)
        self._costs = [profile.cost(f"{near}-{far}", backend).where(waiting=slow) for near, far, slow in ends]
        until_s = _until(self._scales * self._host["median_s"])
        # Seconds that packets cost which the link's queue drops; without a rate there is no queue.
        held_s = np.maximum(QUEUE_BDP * rtt_s, QUEUE_LEAST_S)
        self._queue_bytes = np.maximum(QUEUE_LEAST_BYTES, held_s * links.rate_bps / 8)
        resends = self._each("resends") & (nbytes / GOODPUT > self._queue_bytes)
        self._resent_s = np.where(resends, RESENDING_S + RESENDING_RTTS * rtt_s, 0.0)
        # Stages take longer after a wait for the link. Only the first link counts the host before it: all others wait
        # once. A quota that came anew makes the edge's stage no quicker than its processor time; how much of it is left
        # after the work around a request is not known: half of it counts.
        pause_s = self._host["after_pause_s"][:, None]
        before_s = np.maximum(pause_s[0] / np.where(cpu[0] < 1, 2, 1), -(1 - cpu[0]) * until_s[0])
        is_first = np.arange(len(encode_s))[:, None] == 0
        awake_s = np.maximum(0.0, pause_s[1:]) + np.where(is_first & (until_s[0] > 0), before_s, 0.0)
        added_s = self._each("fixed_s") + self._each("per_byte_s") * nbytes + self._resent_s
        self._added_s = np.where(nbytes > 0, added_s + awake_s, 0.0)
        # The program that shapes a link runs on one of its hosts' cores or the other, as the kernel decides: half of it
        # counts on each. A host with a share of a core leaves it room.
        near_s, far_s, shaper_s = (
            np.array([cost.processor_s(end, nbytes) for cost in self._costs])
            for end in ("near_s", "far_s", "shaper_s")
        )
        near_s, far_s = near_s / cpu[:-1] + np.where(cpu[:-1] == 1, shaper_s / 2, 0.0), far_s + shaper_s / 2
        facts = [profile.hosts.get(role, {}).get("core") for role in self.roles]
        cores = tuple(int(core) for core in facts if core is not None)
        shared = cores if len(cores) == case.hosts > len(set(cores)) else ()
        stages_s = _stages_s(until_s, self._host["outside_s"])
        self.chain = self._chain(stages_s, self._coding, links, self._added_s, near_s, far_s, shared)

    def of(self, splits: Ints, engine: str = EAGER) -> dict[str, Floats]:
        """The `FIGURES` of each split (splits x links); NaN where the codec cannot be used. Raises UserError."""
        case, usual, links = self.case, self.chain, len(self.case.usual)
        if splits.shape[1] != links:
            raise UserError(f"{links} links are cut at {links} points, not {splits.shape[1]}")
        if splits.size and not (splits.min() >= 0 and splits.max() <= usual.last):
            raise UserError(f"{self.profile.model} has the points 0 to {usual.last}")
        taken = np.isfinite(at(usual.carried_s, splits)).all(axis=1)
        figures = np.full((len(FIGURES), len(splits)), np.nan)
        splits = splits[taken]
        latency_s, throughput_ips = usual.latency_s(splits), usual.throughput_ips(splits)
        if not (np.isfinite(throughput_ips) & (latency_s > 0)).all():
            raise UserError(f"the profile of {self.profile.model} has times of nothing: make it anew")
        errors = self._errors(splits, engine)
        # In the throughput phase a link has more room.
        room = replace(case.slack, rate_fraction=max(case.slack.rate_fraction, BURST))
        least, most = (self._at_best(engine, nearest(case.at_best, slack)) for slack in (case.slack, room))
        bounds = least.latency_s(splits), most.throughput_ips(splits)
        figures[:, taken] = [latency_s, throughput_ips, *errors, *bounds]
        return dict(zip(FIGURES, figures, strict=True))

    def _chain(
        self,
        stages_s: Floats,
        coding: tuple[Floats, Floats, Floats],
        links: Conditions,
        added_s: Values = 0.0,
        near_s: Values = 0.0,
        far_s: Values = 0.0,
        core: tuple[int, ...] = (),
    ) -> Chain:
        encode_s, decode_s, out_bytes = coding
        crosses = out_bytes > 0
        back_bytes = np.where(crosses, float(self.case.batch_size * self.profile.result_bytes), 0.0)
        depth = self.case.in_flight
        return Chain(
            stages_s,
            carried_s=formula.carrying_s(out_bytes, back_bytes, links) + added_s + (encode_s + decode_s),
            occupied_s=formula.occupied_s(out_bytes, back_bytes, links),
            sent_s=links.delay_s + 8 * out_bytes / links.rate_bps,
            near_s=np.where(crosses, near_s, 0.0) + encode_s,
            far_s=np.where(crosses, far_s, 0.0) + decode_s,
            crosses=crosses,
            batch_size=self.case.batch_size,
            in_flight=MOST_IN_FLIGHT if depth == AUTO else max(1, int(depth)),
            core=core,
        )

    def _each(self, figure: str) -> npt.NDArray[Any]:
        """A figure of each link's backend."""
        return np.array([getattr(cost, figure) for cost in self._costs])[:, None]

    def _of_codec(self, which: str) -> tuple[Floats, Floats, Floats]:
        """Seconds of the codec before and behind each link (inf: it cannot be used), and bytes that it sends at each
        point; which: `_least`, or empty text."""
        case = self.case
        payload_bytes = case.batch_size * self.profile.payload_bytes
        nothing_s = np.zeros((case.hosts - 1, len(payload_bytes)))
        if case.codec == NO_CODEC:
            return nothing_s, nothing_s, payload_bytes
        times = [self.profile.coding(role, case.batch_size, case.codec) for role in self.roles]
        crosses = payload_bytes > 0  # 0 bytes would be a payload that does not cross
        # At the least: a host with a share of a core may have its pauses before or after a codec's work.
        share = self._host["cpu"][:, None] * (1 - CODEC_MARGIN) if which else 1.0
        names = f"encode{which}_s", f"decode{which}_s"
        taken_s = (share * np.array([getattr(each, name) for each in times]) for name in names)
        encode_s, decode_s = (
            np.where(crosses, np.nan_to_num(each_s, nan=np.inf, posinf=np.inf), 0.0) for each_s in taken_s
        )
        wire_bytes = np.maximum(np.nan_to_num(getattr(times[0], f"wire{which}_bytes")), 1.0)
        return encode_s[:-1], decode_s[1:], np.where(crosses, wire_bytes, 0.0)

    def _errors(self, splits: Ints, engine: str) -> tuple[Floats, Floats]:
        """The standard deviations of latency and throughput, as shares.

        Units of one device err together, devices and links by themselves. The period of the throughput errs by as much
        as any step would make it longer that takes its own standard deviation more.
        """
        usual, slack, crosses = self.chain, self.case.slack, self.chain.crosses
        latency_s, stages_s = usual.latency_s(splits), usual.stages_s(splits)
        spread_s = _until((self._host["high_s"] - self._host["low_s"]) / (2 * _NORMAL))
        of_units_s = replace(usual, segments_s=_stages_s(spread_s)).stages_s(splits)
        speeds = np.where(self._host["cpu"] == 1, BETWEEN_RUNS, UNDER_QUOTA)
        speeds[[of_role(engine, role) != EAGER for role in self.roles]] = BY_ENGINE
        encode_s, decode_s = (at(each, splits) for each in self._coding[:2])
        codec_s = np.pad(encode_s, ((0, 0), (0, 1))) + np.pad(decode_s, ((0, 0), (1, 0)))
        of_work_s = np.hypot(np.hypot(of_units_s, speeds * stages_s), CODING * codec_s)
        rtt_s = np.where(crosses, self._rtt_s, 0.0)
        with np.errstate(invalid="ignore"):  # at points where the codec is not used
            link_s = usual.carried_s - self._coding[0] - self._coding[1] - self._added_s
        # A link whose probes pass is within its slack: two standard deviations.
        off_s = np.maximum(slack.rtt_fraction * rtt_s, np.where(crosses, slack.rtt_floor_s, 0.0))
        of_links_s = at(
            np.sqrt(
                (slack.rate_fraction / 2 * (link_s - rtt_s)) ** 2
                + (off_s / 2) ** 2
                + (np.maximum(self._each("residual"), ADDED) * (self._added_s - self._resent_s)) ** 2
                + (RESENDING * self._resent_s) ** 2
                + (WAITING * link_s) ** 2
            ),
            splits,
        )
        of_all_s = np.sqrt((of_work_s**2).sum(axis=1) + (of_links_s**2).sum(axis=1))
        latency_error = of_all_s / np.maximum(latency_s, np.finfo(float).tiny)
        hosts_s, busy_s, waits_s = usual.periods_s(splits)
        period_s = np.hstack([hosts_s, busy_s, waits_s]).max(axis=1)
        depth = np.clip(np.ceil(SPARE * latency_s / np.maximum(period_s, 1e-12)), 2, usual.in_flight)
        sent_bytes = depth[:, None] * self._coding[2][splits] / GOODPUT
        drops = sent_bytes > self._queue_bytes[:, 0]  # inf where there is no rate, and so no queue
        sending_s = usual.steps_s(splits) - stages_s - codec_s
        longer_s = (
            hosts_s + np.hypot(of_work_s, SENDING * sending_s),
            busy_s * (1 + np.where(drops, DROPPING, np.hypot(slack.rate_fraction / 2, FILLING))),
            waits_s * (1 + latency_error[:, None]),
        )
        return latency_error, np.hstack(longer_s).max(axis=1) / np.maximum(period_s, np.finfo(float).tiny) - 1

    def _at_best(self, engine: str, links: Conditions) -> Chain:
        """The chain that no trial can beat: stages and codec at their least, these links, backends that add nothing.

        By another engine nothing is known of what hosts take: links alone. A codec's bytes for other data than the
        input depend on the engine that the data comes from, even where that changes only its last digits.
        """
        encode_s, decode_s, out_bytes = self._of_codec("_least")
        if engine != EAGER:
            nothing_s, some = np.zeros_like(encode_s), 1.0 if self.case.codec != NO_CODEC else np.inf
            out_bytes = np.append(out_bytes[:1], np.minimum(out_bytes[1:], some))
            stages_s = _stages_s(np.zeros((self.case.hosts, len(out_bytes))))
            return self._chain(stages_s, (nothing_s, nothing_s, out_bytes), links)
        until_s = _until((1 - MARGIN) * np.minimum(1.0, self._scales) * self._host["least_s"])
        # The pauses that a quota owes a stage when it ends; no stage takes less than its processor time.
        cpu = self._host["cpu"]
        once_s = -(1 - cpu) * (QUOTA_PERIOD_S + QUOTA_TURN_S / cpu) * (cpu < 1)
        stages_s = _stages_s(until_s, once_s, np.where(cpu < 1, cpu, 0.0))
        return self._chain(stages_s, (encode_s, decode_s, out_bytes), links)


def nearest(networks: Sequence[Network], slack: Tolerance) -> Conditions:
    """The links as good as they may be and their probes still pass: links x 1."""
    links = _conditions(networks)
    rtt_s = links.delay_s + links.delay_back_s
    off_s = np.maximum(slack.rtt_fraction * rtt_s, slack.rtt_floor_s)
    nearer = 1 - np.minimum(1.0, off_s / np.maximum(rtt_s, np.finfo(float).tiny))
    best = zip(vars(links).values(), (nearer, 1 + slack.rate_fraction) * 2, strict=True)
    return Conditions(*(way * times for way, times in best))


def _conditions(networks: Sequence[Network]) -> Conditions:
    """The links' delays and rates: links x 1."""
    return Conditions(*np.array([[*vars(each).values()] for each in networks], dtype=np.float64).T[..., None])


def _until(units_s: Floats) -> Floats:
    """Seconds of all units before each point: hosts x points."""
    return np.pad(np.cumsum(units_s, axis=1), ((0, 0), (1, 0)))


def _stages_s(until_s: Floats, once_s: Values = 0.0, least: Values = 0.0) -> Floats:
    """Seconds of each stage by its first and its last point: hosts x points x points; inf where it goes back.

    once_s: of each host, seconds that a stage takes besides if it has a unit; a negative one shortens it, to the share
    `least` of its units' seconds.
    """
    points = np.arange(until_s.shape[1])
    units_s = until_s[:, None, :] - until_s[:, :, None]
    once_s, least = (np.broadcast_to(each, len(until_s))[:, None, None] for each in (once_s, least))
    stages_s = np.maximum(least * units_s, units_s + np.where(points > points[:, None], once_s, 0.0))
    return np.where(points < points[:, None], np.inf, stages_s)

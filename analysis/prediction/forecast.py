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
from dataclasses import dataclass, fields, replace
from itertools import pairwise

import numpy as np

from pareto.analysis.backend_cost import BackendCost
from pareto.analysis.model_profile import ModelProfile, UnitTimes
from pareto.analysis.prediction.choose import Chain
from pareto.analysis.prediction.formula import Conditions
from pareto.analysis.prediction.network import Network
from pareto.analysis.runs.points import EAGER, of_role
from pareto.analysis.statistics.samples import Floats, Ints
from pareto.protocol.constants import (
    BURST,
    GOODPUT,
    MOST_IN_FLIGHT,
    QUEUE_BDP,
    QUEUE_LEAST_BYTES,
    QUEUE_LEAST_S,
)
from pareto.protocol.errors import UserError

AUTO = "auto"
NONE = "none"
"""No codec."""
# Standard deviations, as shares, unless said otherwise; docs/prediction.md and docs/engines.md have their runs.
BETWEEN_RUNS, UNDER_QUOTA = 0.12, 0.25
"""A device's speed from its profile to a trial: usually, and where it has a share of a core, spent in bursts."""
BY_ENGINE = 0.65
"""Stages by an engine other than the profile's, which took 0.27 to 1.26 of their time in eager."""
ADDED, SENDING = 0.4, 0.7
"""The time that a backend and waking up add to a request, and the processor time of sending: the program that shapes
the link has it on one core or on the other."""
RESENDING_S, RESENDING_RTTS, RESENDING = 0.1, 4, 0.6
"""The cost to a request of packets that a full queue drops: half of Linux' least time-out, 0.2 s, and some round
trips; and its standard deviation."""
WAITING = 0.01
"""A host's wait for a link: the longer it is, the longer the stage takes."""
FILLING, DROPPING = 0.025, 0.2
"""The throughput where a link is the slowest step: how well requests fill it; and where its queue does not hold all
that are in flight."""
SPARE = 1.25
"""The requests that a trial has in flight, as a multiple of those that its slowest step needs."""
CODING = 0.35
"""A codec's time: in a trial other data is in the caches, and another thread is sending."""
CODEC_MARGIN, MARGIN = 0.3, 0.1
"""The shares by which a codec may be quicker than in any run of the profile, and a stage than the sum of its units' 5 %
quantiles: bounds leave them room."""
QUOTA_PERIOD_S, QUOTA_TURN_S = 0.005, 0.004
"""Seconds after which the quota of a host with a share of a core comes anew; and those that it computes at once even
so, for the kernel ends a turn at a tick of its timer, and the pause comes after it (docs/measuring.md)."""
_NORMAL = 1.96
"""Half of a 95 % interval, in standard deviations."""


@dataclass(frozen=True)
class Slack:
    """How far a link may be from its profile and its probes still pass: shares of rate and round trip, or seconds."""

    rate: float = 0.02
    rtt: float = 0.01
    rtt_floor_s: float = 0.0003


@dataclass(frozen=True, eq=False)
class Forecast:
    """The forecast of each split: seconds with one request in flight, images a second with many.

    latency_error, throughput_error: a standard deviation, as a share. least_latency_s, most_throughput_ips: the bound.
    """

    latency_s: Floats
    throughput_ips: Floats
    latency_error: Floats
    throughput_error: Floats
    least_latency_s: Floats
    most_throughput_ips: Floats


def roles(hosts: int) -> tuple[str, ...]:
    """The roles along a chain of so many hosts."""
    return ("edge", *(f"middle{number}" for number in range(1, hosts - 1)), "server")


def chain(
    profile: ModelProfile,
    networks: Sequence[Network],
    backend: str,
    batch_size: int = 1,
    in_flight: str = AUTO,
    codec: str = NONE,
) -> Chain:
    """A model's times and bytes on a chain with these links, in order from the edge. Raises UserError."""
    names = roles(len(networks) + 1)
    times = [profile.of(role, batch_size) for role in names]
    encode_s, decode_s, payload_bytes = _coding(profile, names, batch_size, codec)
    until_s = np.array([_until(_scale(each) * each.median_s) for each in times])
    costs = _costs(profile, networks, backend)
    added = [
        cost.fixed_s
        + cost.per_byte_s * payload_bytes
        + _resending_s(cost, network, payload_bytes)
        + _awake_s(times[link], times[link + 1], until_s[0], link)
        for link, (network, cost) in enumerate(costs)
    ]
    sending = [
        _sending_s(cost, payload_bytes, near.cpu) for near, (_, cost) in zip(times, costs, strict=False)
    ]
    near_s, far_s = zip(*sending, strict=True)
    cores = [int(core) for name in names if (core := profile.hosts.get(name, {}).get("core")) is not None]
    shared = len(cores) == len(names) > len(set(cores))
    return Chain(
        until_s,
        np.array([each.outside_s for each in times]),
        payload_bytes,
        float(batch_size * profile.result_bytes),
        conditions(networks),
        np.array(added),
        batch_size,
        MOST_IN_FLIGHT if in_flight == AUTO else max(1, int(in_flight)),
        np.array(near_s),
        np.array(far_s),
        tuple(cores) if shared else (),
        encode_s=encode_s,
        decode_s=decode_s,
    )


def _coding(
    profile: ModelProfile, names: Sequence[str], batch_size: int, codec: str, *, least: bool = False
) -> tuple[Floats, Floats, Floats]:
    """Seconds that a codec takes of the hosts before and behind each link (links x points; inf: it cannot be used),
    and bytes that it sends at each point; least: at the least.
    """
    payload_bytes = batch_size * profile.payload_bytes
    if codec == NONE:
        nothing_s = np.zeros((len(names) - 1, len(payload_bytes)))
        return nothing_s, nothing_s, payload_bytes
    which = "_least" if least else ""
    times = [profile.coding(name, batch_size, codec) for name in names]
    encode_s, decode_s = (
        np.nan_to_num(
            np.array([getattr(each, f"{step}{which}_s") for each in own]), nan=np.inf, posinf=np.inf
        )
        for step, own in (("encode", times[:-1]), ("decode", times[1:]))
    )
    wire_bytes = np.maximum(np.nan_to_num(getattr(times[0], f"wire{which}_bytes")), 1.0)
    wire_bytes = np.where(payload_bytes > 0, wire_bytes, 0.0)  # 0 would be a payload that does not cross
    if least:
        # A host with a share of a core may have its pauses before or after a codec's work.
        shares = np.array([profile.of(name, batch_size).cpu for name in names])[:, None] * (1 - CODEC_MARGIN)
        encode_s, decode_s = shares[:-1] * encode_s, shares[1:] * decode_s
    return encode_s, decode_s, wire_bytes


def _costs(
    profile: ModelProfile, networks: Sequence[Network], backend: str
) -> list[tuple[Network, BackendCost]]:
    """Each link's network, and what the backend costs on such a link."""
    costs = []
    for network, (near, far) in zip(networks, pairwise(roles(len(networks) + 1)), strict=True):
        slows = network.delay_s + network.delay_back_s > 0 or np.isfinite(network.rate_bps)
        costs.append((network, profile.cost(f"{near}-{far}", backend).where(waiting=bool(slows))))
    return costs


def _resending_s(cost: BackendCost, network: Network, payload_bytes: Floats) -> Floats:
    """Seconds that packets cost which the link's queue drops."""
    resent_s = RESENDING_S + RESENDING_RTTS * (network.delay_s + network.delay_back_s)
    return np.where((payload_bytes / GOODPUT > _queue_bytes(network)) & cost.resends, resent_s, 0.0)


def _queue_bytes(network: Network) -> float:
    """The most bytes that wait for a link, if its profile says nothing else."""
    if not np.isfinite(network.rate_bps):
        return np.inf
    held_bytes = (network.delay_s + network.delay_back_s) * network.rate_bps / 8
    return float(max(QUEUE_BDP * held_bytes, QUEUE_LEAST_BYTES, QUEUE_LEAST_S * network.rate_bps / 8))


def _awake_s(near: UnitTimes, far: UnitTimes, until_s: Floats, link: int) -> Floats:
    """Seconds that stages take longer because their hosts waited for the link: at each point.

    A quota that came anew makes the edge's stage no quicker than its processor time; how much of it is left after the
    work around a request is not known: half of it counts. Only the first link counts the host before it: all others
    wait once.
    """
    awake_s = near.after_pause_s if near.cpu == 1 else near.after_pause_s / 2
    before_s = np.maximum(awake_s, -(1 - near.cpu) * until_s) if link == 0 else 0.0
    return np.asarray(np.where(until_s > 0, before_s, 0.0) + max(0.0, far.after_pause_s))


def _sending_s(cost: BackendCost, payload_bytes: Floats, cpu: float) -> tuple[Floats, Floats]:
    """The processor time of a request on both hosts of a link, the edge's over its share of a core.

    The program that shapes the link runs on one of their cores or the other, as the kernel decides: half of it counts
    on each. A host with a share of a core leaves it room.
    """
    half_s = cost.processor_s("shaper_s", payload_bytes) / 2
    near_s = cost.processor_s("near_s", payload_bytes) / cpu
    return near_s + (half_s if cpu == 1 else 0.0), cost.processor_s("far_s", payload_bytes) + half_s


def of(
    profile: ModelProfile,
    splits: Ints,
    networks: Sequence[Network],
    backend: str,
    batch_size: int = 1,
    in_flight: str = AUTO,
    *,
    at_best: Sequence[Network] | None = None,
    slack: Slack | None = None,
    codec: str = NONE,
    engine: str = EAGER,
) -> Forecast:
    """The forecast of each split (splits x links). Raises UserError for what the profile does not know.

    codec: what is done to each payload that crosses; NaN where it does not take what crosses.
    engine: what runs the stages.
    at_best: of each link, the least delay and greatest rate that it has at any time, if it varies: for the bound.
    slack: how far the link may be off even so.
    """
    slack, best = slack or Slack(), at_best or networks
    if splits.shape[1] != len(networks):
        raise UserError(f"{len(networks)} links are cut at {len(networks)} points, not {splits.shape[1]}")
    usual = chain(profile, networks, backend, batch_size, in_flight, codec)
    if splits.size and not (splits.min() >= 0 and splits.max() <= usual.last):
        raise UserError(f"{profile.model} has the points 0 to {usual.last}")
    taken = np.isfinite(np.add(*usual.coding_s)[np.arange(len(networks)), splits]).all(axis=1)
    every, splits = len(splits), splits[taken]
    latency_s, throughput_ips = usual.latency_s(splits), usual.throughput_ips(splits)
    if not (np.isfinite(throughput_ips) & (latency_s > 0)).all():
        raise UserError(f"the profile of {profile.model} has times of nothing: make it anew")
    errors = _errors(usual, profile, splits, networks, backend, slack, engine)
    least = _at_best(usual, profile, codec, engine, nearest(best, slack))
    # In the throughput phase a link has more room.
    most = replace(least, conditions=nearest(best, replace(slack, rate=max(slack.rate, BURST))))
    figures = np.full((len(fields(Forecast)), every), np.nan)
    bounds = least.latency_s(splits), most.throughput_ips(splits)
    figures[:, taken] = [latency_s, throughput_ips, *errors, *bounds]
    return Forecast(*figures)


def conditions(networks: Sequence[Network]) -> Conditions:
    """The links' delays and rates as arrays."""
    return Conditions(*np.array([list(vars(network).values()) for network in networks], dtype=np.float64).T)


def _until(units_s: Floats) -> Floats:
    return np.asarray(np.concatenate([[0.0], np.cumsum(units_s)]))


def _scale(times: UnitTimes) -> float:
    """The factor from the sum of the units to the stage run whole; 1 under a quota, where the two are unlike."""
    return 1.0 if times.cpu < 1 else 1 / (1 + times.difference)


def _errors(
    usual: Chain,
    profile: ModelProfile,
    splits: Ints,
    networks: Sequence[Network],
    backend: str,
    slack: Slack,
    engine: str,
) -> tuple[Floats, Floats]:
    """The standard deviations of latency and throughput, as shares.

    Units of one device err together, devices and links by themselves. The period of the throughput errs by as much as
    any step would make it longer that takes its own standard deviation more.
    """
    names, link = roles(usual.hosts), np.arange(usual.hosts - 1)
    times = [profile.of(role, usual.batch_size) for role in names]
    spread_s = np.array([_until((each.high_s - each.low_s) / (2 * _NORMAL)) for each in times])
    stages_s = usual.stages_s(splits)
    speeds = np.array([BETWEEN_RUNS if each.cpu == 1 else UNDER_QUOTA for each in times])
    speeds[[of_role(engine, role) != EAGER for role in names]] = BY_ENGINE
    of_units_s = replace(usual, until_s=spread_s, once_s=np.zeros(usual.hosts)).stages_s(splits)
    of_stages_s = np.hypot(of_units_s, speeds * stages_s)
    encode_s, decode_s, carried_s, busy_s, overhead_s = (
        each[link, splits] for each in (*usual.coding_s, usual.carried_s, usual.occupied_s, usual.overhead_s)
    )
    payload_bytes, costs = usual.payload_bytes, _costs(profile, networks, backend)
    resending = np.array([_resending_s(cost, network, payload_bytes) for network, cost in costs])
    resending_s, crossed = resending[link, splits], payload_bytes[splits] > 0
    overhead_s = np.where(crossed, overhead_s, 0.0)
    rtt_s = np.where(crossed, usual.conditions.delay_s + usual.conditions.delay_back_s, 0.0)
    link_s = carried_s - encode_s - decode_s - overhead_s
    added = np.maximum([cost.residual for _, cost in costs], ADDED)
    # A link whose probes pass is within its slack: two standard deviations.
    off_s = np.maximum(slack.rtt * rtt_s, np.where(crossed, slack.rtt_floor_s, 0.0))
    of_links_s = np.sqrt(
        (slack.rate / 2 * (link_s - rtt_s)) ** 2
        + (off_s / 2) ** 2
        + (added * (overhead_s - resending_s)) ** 2
        + (RESENDING * resending_s) ** 2
        + (WAITING * link_s) ** 2
    )
    latency_s = usual.latency_s(splits)
    codec_s = np.pad(encode_s, ((0, 0), (0, 1))) + np.pad(decode_s, ((0, 0), (1, 0)))
    of_work_s = np.hypot(of_stages_s, CODING * codec_s)
    of_all_s = np.sqrt((of_work_s**2).sum(axis=1) + (of_links_s**2).sum(axis=1))
    latency_error = of_all_s / np.maximum(latency_s, np.finfo(float).tiny)
    waits_s = np.where(crossed.any(axis=1), latency_s / usual.in_flight, 0.0)[:, None]
    hosts_s, sending_s = usual.cores_s(splits), usual.steps_s(splits) - stages_s - codec_s
    period_s = np.hstack([hosts_s, busy_s, waits_s]).max(axis=1)
    depth = np.clip(np.ceil(SPARE * latency_s / np.maximum(period_s, 1e-12)), 2, usual.in_flight)
    queues = np.array([_queue_bytes(network) for network in networks])
    drops = np.isfinite(queues) & (depth[:, None] * payload_bytes[splits] / GOODPUT > queues)
    of_busy = np.where(drops, DROPPING, np.hypot(slack.rate / 2, FILLING))
    longer_s = (
        hosts_s + np.hypot(of_work_s, SENDING * sending_s),
        busy_s * (1 + of_busy),
        waits_s * (1 + latency_error[:, None]),
    )
    return latency_error, np.hstack(longer_s).max(axis=1) / np.maximum(period_s, np.finfo(float).tiny) - 1


def nearest(networks: Sequence[Network], slack: Slack) -> Conditions:
    """The links as good as they may be and their probes still pass."""
    links = conditions(networks)
    rtt_s = links.delay_s + links.delay_back_s
    off_s = np.maximum(slack.rtt * rtt_s, slack.rtt_floor_s)
    nearer = 1 - np.minimum(1.0, off_s / np.maximum(rtt_s, np.finfo(float).tiny))
    faster = 1 + slack.rate
    return Conditions(
        links.delay_s * nearer,
        links.rate_bps * faster,
        links.delay_back_s * nearer,
        links.rate_back_bps * faster,
    )


def _at_best(usual: Chain, profile: ModelProfile, codec: str, engine: str, links: Conditions) -> Chain:
    """The chain that no trial can beat: stages and codec at their least, these links, backends that add nothing.

    By another engine nothing is known of what hosts take: links alone. A codec's bytes for other data than the input
    depend on the engine that the data comes from, even where that changes only its last digits.
    """
    names = roles(usual.hosts)
    times = [profile.of(role, usual.batch_size) for role in names]
    encode_s, decode_s, payload_bytes = _coding(profile, names, usual.batch_size, codec, least=True)
    least = replace(
        usual,
        payload_bytes=payload_bytes,
        encode_s=encode_s,
        decode_s=decode_s,
        until_s=np.array([_until((1 - MARGIN) * min(1.0, _scale(each)) * each.least_s) for each in times]),
        # The pauses that a quota owes a stage when it ends; no stage takes less than its processor time.
        once_s=np.array(
            [-(1 - each.cpu) * (QUOTA_PERIOD_S + QUOTA_TURN_S / each.cpu) * (each.cpu < 1) for each in times]
        ),
        least=np.array([each.cpu if each.cpu < 1 else 0.0 for each in times]),
        conditions=links,
        overhead_s=np.zeros_like(usual.overhead_s),
        near_s=0.0,
        far_s=0.0,
        core=(),
    )
    if engine == EAGER:
        return least
    some_bytes = np.minimum(payload_bytes[1:], 1.0 if codec != NONE else np.inf)
    return replace(
        least,
        payload_bytes=np.concatenate([payload_bytes[:1], some_bytes]),
        until_s=np.zeros_like(least.until_s),
        once_s=np.zeros_like(least.once_s),
        encode_s=0.0,
        decode_s=0.0,
    )

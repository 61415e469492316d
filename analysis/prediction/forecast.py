"""What a model profile says of any split, without a trial: figures with their errors, and bounds that no trial beats.

Stages are the profile's units, links are arithmetic (`analysis.prediction.formula`), and what a backend adds is the
profile's a + b x bytes of each link. How far forecasts are off is judged where the truth was measured:
`analysis.prediction.compared`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from analysis.model_profile import ModelProfile, UnitTimes
from analysis.prediction.choose import Chain
from analysis.prediction.formula import Conditions
from analysis.prediction.network import Network
from analysis.statistics.samples import Floats, Ints
from pareto.constants import MOST_IN_FLIGHT
from pareto.errors import UserError

AUTO = "auto"
BETWEEN_RUNS = 0.05
"""The standard deviation of a device's speed from its profile to a trial, as a share."""
MARGIN = 0.1
"""The share by which a stage may be quicker than the sum of its units' 5 % quantiles: bounds leave it room."""
QUOTA_PERIOD_S = 0.005
"""Where a host has a share of a core, what it may compute at once comes anew after this time."""
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
    """Of each split: seconds with one request in flight, images a second with many.

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
) -> Chain:
    """What the model takes on a chain with these links, one after another from the edge. Raises UserError."""
    names = roles(len(networks) + 1)
    times = [profile.of(role, batch_size) for role in names]
    payload_bytes = batch_size * profile.payload_bytes
    costs = [profile.cost(f"{near}-{far}", backend) for near, far in pairwise(names)]
    return Chain(
        np.array([_until(_scale(each) * each.median_s) for each in times]),
        np.array([each.outside_s for each in times]),
        payload_bytes,
        float(batch_size * profile.result_bytes),
        conditions(networks),
        np.array([cost.fixed_s + cost.per_byte_s * payload_bytes for cost in costs]),
        batch_size,
        MOST_IN_FLIGHT if in_flight == AUTO else max(1, int(in_flight)),
    )


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
) -> Forecast:
    """The forecast of each split (splits x links). Raises UserError for what the profile does not know.

    at_best: of each link, the least delay and greatest rate that it has at any time, if it varies: for the bound.
    slack: how far the link may be off even so.
    """
    slack = slack or Slack()
    if splits.shape[1] != len(networks):
        raise UserError(f"{len(networks)} links are cut at {len(networks)} points, not {splits.shape[1]}")
    usual = chain(profile, networks, backend, batch_size, in_flight)
    if splits.size and not (splits.min() >= 0 and splits.max() <= usual.last):
        raise UserError(f"{profile.model} has the points 0 to {usual.last}")
    latency_s, throughput_ips = usual.latency_s(splits), usual.throughput_ips(splits)
    if not (np.isfinite(throughput_ips) & (latency_s > 0)).all():
        raise UserError(f"the profile of {profile.model} has times of nothing: make it anew")
    errors = _errors(usual, profile, splits, backend, slack)
    least = _at_best(usual, profile, at_best or networks, slack)
    return Forecast(
        latency_s,
        throughput_ips,
        *errors,
        least.latency_s(splits),
        least.throughput_ips(splits),
    )


def conditions(networks: Sequence[Network]) -> Conditions:
    """The links' delays and rates as arrays."""
    return Conditions(*np.array([list(vars(network).values()) for network in networks], dtype=np.float64).T)


def _until(units_s: Floats) -> Floats:
    return np.asarray(np.concatenate([[0.0], np.cumsum(units_s)]))


def _scale(times: UnitTimes) -> float:
    """What makes the sum of the units the stage run whole; 1 under a quota, where the two are different things."""
    return 1.0 if times.cpu < 1 else 1 / (1 + times.difference)


def _errors(
    usual: Chain, profile: ModelProfile, splits: Ints, backend: str, slack: Slack
) -> tuple[Floats, Floats]:
    """The standard deviations of latency and throughput, as shares.

    Units of one device err together, devices and links by themselves. The throughput errs as its slowest step does.
    """
    names = roles(usual.hosts)
    link = np.arange(usual.hosts - 1)
    times = [profile.of(role, usual.batch_size) for role in names]
    spread_s = np.array([_until((each.high_s - each.low_s) / (2 * _NORMAL)) for each in times])
    stages_s = usual.stages_s(splits)
    of_stages_s = np.hypot(
        replace(usual, until_s=spread_s, once_s=np.zeros(usual.hosts)).stages_s(splits),
        BETWEEN_RUNS * stages_s,
    )
    residuals = np.array([profile.cost(f"{near}-{far}", backend).residual for near, far in pairwise(names)])
    crossed = usual.payload_bytes[splits] > 0
    busy_s = usual.occupied_s[link, splits]
    overhead_s = np.where(crossed, usual.overhead_s[link, splits], 0.0)
    rtt_s = np.where(crossed, usual.conditions.delay_s + usual.conditions.delay_back_s, 0.0)
    # A link whose probes pass is within its slack: two standard deviations.
    wire_s = usual.carried_s[link, splits] - overhead_s - rtt_s
    off_s = np.maximum(slack.rtt * rtt_s, np.where(crossed, slack.rtt_floor_s, 0.0))
    of_links_s = np.sqrt(
        (slack.rate / 2 * wire_s) ** 2 + (off_s / 2) ** 2 + (residuals[link] * overhead_s) ** 2
    )
    latency_s = usual.latency_s(splits)
    latency_error = np.sqrt((of_stages_s**2).sum(axis=1) + (of_links_s**2).sum(axis=1)) / np.maximum(
        latency_s, np.finfo(float).tiny
    )
    steps_s = np.hstack(
        [stages_s, busy_s, np.where(crossed.any(axis=1), latency_s / usual.in_flight, 0.0)[:, None]]
    )
    shares = np.hstack(
        [
            of_stages_s / np.maximum(stages_s, np.finfo(float).tiny),
            np.full(busy_s.shape, slack.rate / 2),
            latency_error[:, None],
        ]
    )
    slowest = steps_s.argmax(axis=1)
    return latency_error, shares[np.arange(len(splits)), slowest]


def _at_best(usual: Chain, profile: ModelProfile, networks: Sequence[Network], slack: Slack) -> Chain:
    """The chain that no trial can beat: stages at their least, links at their best, backends that add nothing."""
    times = [profile.of(role, usual.batch_size) for role in roles(usual.hosts)]
    nearest = []
    for network in networks:
        rtt_s = network.delay_s + network.delay_back_s
        nearer = max(0.0, 1 - max(slack.rtt, slack.rtt_floor_s / rtt_s)) if rtt_s else 1.0
        nearest.append(
            Network(
                network.delay_s * nearer,
                network.rate_bps * (1 + slack.rate),
                network.delay_back_s * nearer,
                network.rate_back_bps * (1 + slack.rate),
            )
        )
    return replace(
        usual,
        until_s=np.array([_until((1 - MARGIN) * min(1.0, _scale(each)) * each.least_s) for each in times]),
        # What a quota lets a stage compute before it has to wait.
        once_s=np.array([-(1 - each.cpu) * QUOTA_PERIOD_S for each in times]),
        conditions=conditions(nearest),
        overhead_s=np.zeros_like(usual.overhead_s),
    )

"""The model profile of a simulated testbed: its world's unit times with its world's noise."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from pareto.analysis.backend_cost import BackendCost
from pareto.analysis.model_profile import CodecTimes, ModelProfile, Quartet, UnitTimes
from pareto.analysis.statistics.samples import Floats, interval
from pareto.hosts.host import EDGE, chain
from pareto.hosts.inventory import SIMULATED
from pareto.models.prepare import recipe
from pareto.partitions import costs
from pareto.partitions import model as partitioned
from pareto.predict.model_times import coded_at, of_outline
from pareto.remote.backends import registry
from pareto.simulated import codecs
from pareto.simulated.workers import BACKEND_S, Simulation
from pareto.simulated.world import World
from pareto.sweep.networks import links_of
from pareto.sweep.sweep import Sweep

RUNS = 200
"""Simulated runs of the model on each host."""
PAYLOADS = (1e3, 1e5, 1e6)
"""Bytes of the payloads by which backends would be probed."""
LEAST = 0.05
"""The quantile of a profile's least times."""


def model_profile(simulation: Simulation, name: str, sweep: Sweep) -> ModelProfile:
    """The profile of a sweep's model on its simulated hosts, at its batch sizes, over its backends. Raises UserError.

    A host's speed differs from its usual one as it does in a trial and in a round; runs differ as requests do.
    """
    outline = partitioned.outline(recipe(name, sweep))
    units = costs.of_units(outline)
    flops = [cost.flops for cost in units]
    roles = chain(links_of(sweep) + 1)
    world, noise = simulation.world, simulation.world.noise
    draws = np.random.default_rng([world.seed, len(outline.points)])
    times, coded = list[UnitTimes](), list[CodecTimes]()
    shares = codecs.wire_shares(world, outline, sweep.coding)
    used = coded_at(outline, sweep.coding)
    for role in roles:
        share = sweep.edge_cpu if role == EDGE else 1.0
        usual_s = np.array(world.unit_times_s(role, outline.name, flops)) / share
        speed = np.prod([noise.factors(draws, size, (1,)) for size in (noise.trial, noise.round)])
        for batch_size in sweep.batch_sizes:
            factors = speed * noise.factors(draws, noise.request, (RUNS,))
            times.append(_times(role, batch_size * usual_s, factors, batch_size, share))
            nbytes = batch_size * np.array([point.payload_bytes for point in outline.points], dtype=float)
            for codec, of_points in shares.items():
                payloads = np.where([(at, codec) in used for at in range(len(nbytes))], nbytes, np.nan)
                wire_bytes = np.round(np.array(of_points) * payloads)
                coded.append(_codec(world, role, batch_size, codec, payloads, wire_bytes, factors / share))
    links = [f"{near}-{far}" for near, far in pairwise(roles)]
    backends = (_cost(link, backend) for link in links for backend in sweep.transports)
    hosts = {role: {"device": SIMULATED, "threads": 1} for role in roles}
    return of_outline(outline, units, sweep, times, backends, hosts, coded)


def _codec(
    world: World,
    role: str,
    batch_size: int,
    codec: str,
    payload_bytes: Floats,
    wire_bytes: Floats,
    factors: Floats,
) -> CodecTimes:
    """A codec's times on a host for these payloads (NaN: it is not used), all with the same factors in its runs."""
    usual_s = np.array([codecs.seconds(world, role, codec, nbytes) for nbytes in payload_bytes])
    encode_s, decode_s = usual_s.T
    if role == EDGE:
        decode_s = np.full(len(decode_s), np.nan)
    usually, least = float(np.median(factors)), float(factors.min())
    return CodecTimes(
        role, batch_size, codec, payload_bytes, wire_bytes, wire_bytes,
        usually * encode_s, least * encode_s, usually * decode_s, least * decode_s,
    )  # fmt: skip


def _times(role: str, usual_s: Floats, factors: Floats, batch_size: int, share: float) -> UnitTimes:
    """The times of a host's units, all of which take the same factor of their usual time in a run."""
    low, high = interval(factors) or (np.nan, np.nan)
    quartet = float(np.median(factors)), low, high, float(np.quantile(factors, LEAST))
    whole_s: Quartet = tuple(float(factor * usual_s.sum()) for factor in quartet)  # type: ignore[assignment]
    median_s, low_s, high_s, least_s = (factor * usual_s for factor in quartet)
    return UnitTimes(role, SIMULATED, batch_size, 1, share, median_s, low_s, high_s, least_s, whole_s=whole_s)


def _cost(link: str, backend: str) -> BackendCost:
    """The seconds that a simulated backend adds: the same to every request, on a link that takes no time."""
    adds_s = BACKEND_S.get(registry.parse(backend).name, 0.0)
    nbytes = np.array(PAYLOADS)
    return BackendCost(link, backend, nbytes, np.full(len(nbytes), adds_s), np.zeros(len(nbytes)))

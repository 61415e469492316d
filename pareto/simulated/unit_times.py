"""The model profile of a simulated testbed: its world's unit times with its world's noise."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import numpy as np

from pareto.analysis.backend_cost import BackendCost
from pareto.analysis.model_profile import CodecTimes, ModelProfile, UnitTimes
from pareto.hosts.host import EDGE, chain
from pareto.hosts.inventory import SIMULATED
from pareto.models.prepare import recipe
from pareto.partitions import costs
from pareto.partitions import model as partitioned
from pareto.predict.model_times import codec_times, coded_at, of_outline, unit_times
from pareto.protocol.profile_messages import CodecRuns, UnitRuns
from pareto.remote.backends import registry
from pareto.simulated.workers import BACKEND_S, Simulation, coding_s, wire_shares
from pareto.sweep.networks import links_of
from pareto.sweep.sweep import Sweep

RUNS = 200
"""Simulated runs of the model on each host."""
PAYLOADS = (1e3, 1e5, 1e6)
"""Bytes of the payloads by which backends would be probed, on a link that takes no time."""


def model_profile(simulation: Simulation, name: str, sweep: Sweep) -> ModelProfile:
    """The profile of a sweep's model on its simulated hosts, at its batch sizes, over its backends. Raises UserError.

    A host's speed differs from its usual one as it does in a trial and in a round; runs differ as requests do.
    """
    outline = partitioned.outline(recipe(name, sweep))
    flops = [cost.flops for cost in costs.of_units(outline)]
    roles = chain(links_of(sweep) + 1)
    world, noise = simulation.world, simulation.world.noise
    draws = np.random.default_rng([world.seed, len(outline.points)])
    hosts = {role: {"device": SIMULATED, "threads": 1} for role in roles}
    times, coded = list[UnitTimes](), list[CodecTimes]()
    shares = wire_shares(world, outline, sweep.coding)
    used = coded_at(outline, sweep.coding)
    for role in roles:
        share = sweep.edge_cpu if role == EDGE else 1.0
        usual_s = np.array(world.unit_times_s(role, outline.name, flops)) / share
        speed = np.prod([noise.factors(draws, size, (1,)) for size in (noise.trial, noise.round)])
        for batch_size in sweep.batch_sizes:
            factors = speed * noise.factors(draws, noise.request, (RUNS,))
            units_s = np.outer(factors, batch_size * usual_s)
            runs = UnitRuns(units_s.tolist(), units_s.sum(axis=1).tolist(), [0.0], None)
            times.append(unit_times(role, hosts[role], batch_size, share, runs))
            columns = list[tuple[Any, ...]]()
            for point, codec in used:
                nbytes = batch_size * outline.points[point].payload_bytes
                taken_s = coding_s(world, role, codec, nbytes)
                encode_s, decode_s = np.outer(taken_s, factors / share).tolist()
                wire_bytes = [round(shares[codec][point] * nbytes)]
                columns.append((nbytes, encode_s, [], decode_s if role != EDGE else [], [], wire_bytes))
            if columns:
                of_codecs = CodecRuns(*map(list, zip(*columns, strict=True)))
                coded += codec_times(outline, role, batch_size, used, of_codecs, is_all=True)
    payloads = np.array(PAYLOADS)
    adds_s = {backend: BACKEND_S.get(registry.parse(backend).name, 0.0) for backend in sweep.transports}
    backends = (
        BackendCost(f"{near}-{far}", backend, payloads, np.full(len(PAYLOADS), each_s), 0 * payloads)
        for (near, far), (backend, each_s) in product(pairwise(roles), adds_s.items())
    )
    return of_outline(outline, sweep, times, backends, hosts, coded)

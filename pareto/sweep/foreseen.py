"""The facts that are known of a model before anything is measured, and what follows for a cell: what crosses each link,
what the hosts take, and what the edge must hold."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pareto.protocol.constants import BURST
from pareto.remote.codecs.registry import NONE, ways
from pareto.remote.link import probe
from pareto.remote.link.profile import Profile
from pareto.remote.worker.pace import in_flight
from pareto.sweep import bounds
from pareto.sweep.cell import Cell
from pareto.sweep.networks import Networks
from pareto.sweep.sweep import AUTO, Sweep
from pareto.sweep.waits import slowed

SENDING_S = 0.0017
"""A request's seconds of a host's core beyond its stage, for each link: in the example 1.7 to 1.9 ms at most points."""
RELAY_S_PER_BYTE = 38e-9
"""The relay's seconds of a core for a byte: 0.47 core at 100 Mbit/s."""
RUNTIME_BYTES, STAGE_BYTES = 303_000_000, 28_000_000
"""A worker with PyTorch that only sends, and what computing at all adds, on x86 with the CPU build of torch 2."""
WORK = 3.0
"""The memory of a stage in steady work, as a multiple of what its widest operator reads and makes of a request."""


@dataclass(frozen=True)
class ModelFacts:
    """The facts about a model that planning needs. Bytes and seconds, of this machine, are those of one image.

    points: name and payload bytes of each. compute_s: of the whole model. splits: the cuts to measure, a point for each
    link. input: dtypes of what it takes. own_inputs: whether its author makes that, and it is no image. notes: lines
    for the user. wire_shares: by codec, of each point's payload the share that it sends. codec_s: by codec, encoding at
    each point, and decoding. accuracy: by batch size, codec at work, engine and split, as far as it is known. dtypes:
    of the tensors that cross at each point; floats where that is not known. nodes: before each point; of a usual model
    where that is not known. unfit: of a user's own codec, the points at which it does not take what crosses. units: of
    each the bytes of its parameters, and of what its widest operator reads and makes.
    """

    points: tuple[tuple[str, int], ...]
    compute_s: float
    result_bytes: int = 4000
    splits: tuple[tuple[int, ...], ...] = ()
    input: str = "uint8"
    own_inputs: bool = False
    notes: tuple[str, ...] = ()
    wire_shares: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    codec_s: Mapping[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    accuracy: Mapping[tuple[int, str, str, tuple[int, ...]], float] = field(default_factory=dict)
    dtypes: tuple[tuple[str, ...], ...] = ()
    nodes: tuple[int, ...] = ()
    unfit: Mapping[str, frozenset[int]] = field(default_factory=dict)
    units: tuple[tuple[int, int], ...] = ()

    @property
    def last(self) -> int:
        return len(self.points) - 1

    def crossing(self, cuts: Sequence[int]) -> frozenset[str]:
        """The dtypes of all that crosses a link at a split; none where nothing does."""
        known = self.dtypes or (("float32",),) * self.last
        return frozenset(dtype for cut in cuts if cut < self.last for dtype in known[cut])

    def accuracy_of(self, cell: Cell) -> float:
        return self.accuracy.get((cell.batch_size, ways(cell.codec)[0], cell.engine, cell.cuts), 1.0)

    def coding_s(self, cut: int, codec: str) -> tuple[float, float]:
        """A codec's seconds at a point: encoding, decoding; 0 where they are not known."""
        of_points = self.codec_s.get(ways(codec)[0], ())
        return of_points[cut] if cut < len(of_points) else (0.0, 0.0)

    def wire_bytes(self, cut: int, codec: str, images: int = 1) -> float | None:
        """The bytes that a codec sends of images' payload at a point, as far as known; None without a codec."""
        if codec == NONE:
            return None
        shares = self.wire_shares.get(ways(codec)[0])
        return self.points[cut][1] * (shares[cut] if shares else 1.0) * images

    def hosts_s(self, cell: Cell) -> list[float]:
        """The foreseen seconds of each host for a request: its share of the units' number, and its codec."""
        ends, whole_s = (0, *cell.cuts, self.last), cell.batch_size * self.compute_s
        hosts_s = [whole_s * (end - start) / ends[-1] for start, end in itertools.pairwise(ends)]
        for link, cut in enumerate(cell.cuts):
            for host, seconds in enumerate(self.coding_s(cut, cell.codec), start=link):
                hosts_s[host] += cell.batch_size * seconds
        return hosts_s

    def edge_bytes(self, cut: int, batch_size: int) -> int:
        """The most memory of the edge's worker at a point, within 10 % on seven models (docs/load.md)."""
        if not cut:
            return RUNTIME_BYTES
        units = self.units[:cut]
        held, widest = sum(weights for weights, _ in units), max(wide for _, wide in units)
        return round(RUNTIME_BYTES + STAGE_BYTES + held + WORK * widest * batch_size)


Models = Mapping[str, ModelFacts]
Asked = tuple[Sweep, Models, Networks]
"""A sweep, the facts about its models, and its networks: all that a plan follows from."""


def too_large(sweep: Sweep, model: ModelFacts, cuts: Sequence[int], batch_size: int) -> int:
    """The bytes that the edge needs at a split, if it has fewer; else 0."""
    needed = model.edge_bytes(cuts[0], batch_size) if sweep.edge_memory else 0
    return needed if needed > sweep.edge_memory else 0


def crossings(
    cell: Cell,
    model: ModelFacts,
    network: Sequence[Profile],
    links: Sequence[str] | None = None,
    seen: Sequence[probe.Span] | None = None,
) -> list[bounds.Crossing]:
    """The load of a request of the cell on each link that it crosses: the first ones. links: the names of all, where
    they matter. seen: of each link, the part of its traces that passed meanwhile."""
    if not network:
        return []
    links, seen = links or [""] * len(network), seen or [probe.STILL] * len(network)
    result_bytes = model.result_bytes * cell.batch_size
    return [
        bounds.Crossing(
            name,
            profile,
            model.points[cut][1] * cell.batch_size,
            result_bytes,
            span,
            filled=profile.tcp_fills and profile.period_s is None,
            wire_bytes=model.wire_bytes(cut, cell.codec, cell.batch_size),
        )
        for cut, profile, name, span in zip(cell.cuts, network, links, seen, strict=True)
        if cut < model.last
    ]


def of_links(
    cell: Cell, models: Models, networks: Networks, tolerance: probe.Tolerance
) -> tuple[float, float]:
    """The least seconds of a request, and the most images/s, that the links allow whatever the hosts take: as good as
    their probes tolerate, at their best moment. Through a codec payloads, and results, have no bytes: what it makes of
    other data than the first is not known."""
    network = networks[cell.netem]
    whole = [(0.0, each.period_s or 0.0) for each in network]
    crossed = crossings(cell, models[cell.model], network, seen=whole)
    out, back = ways(cell.codec)
    if out != NONE:
        crossed = [replace(each, wire_bytes=0.0) for each in crossed]
    if back:
        crossed = [replace(each, result_bytes=0) for each in crossed]
    delays_s = sum(max(0.0, each.delays_s - tolerance.rtt_s(each.profile.rtt_s)) for each in crossed)
    carried_s = sum(each.least_s - each.delays_s for each in crossed) / (1 + tolerance.rate_fraction)
    busy_s = max((seconds for each in crossed for seconds in each.occupied_s), default=0.0)
    most_ips = cell.batch_size * (1 + max(tolerance.rate_fraction, BURST)) / busy_s if busy_s else math.inf
    return delays_s + carried_s, most_ips


def reach(
    cell: Cell, model: ModelFacts, network: Sequence[Profile], *, edge_cpu: float = 1.0, cores: int
) -> float:
    """The share of a cell's throughput bound that the cores of a local testbed are foreseen to reach. Each host has
    one, which also sends and receives, and the relay works on the same `cores`."""
    crossed = crossings(cell, model, network)
    stages_s = model.hosts_s(cell)[: len(crossed) + 1]
    used_s = [
        stage_s + SENDING_S * ((place > 0) + (place < len(crossed))) for place, stage_s in enumerate(stages_s)
    ]
    carried_s = RELAY_S_PER_BYTE * sum(crossing.sent_bytes + crossing.result_bytes for crossing in crossed)
    links_s = [seconds for crossing in crossed for seconds in crossing.occupied_s]
    bound_s = max(stages_s[0] / edge_cpu, *stages_s[1:], *links_s, 0.0)
    return bound_s / max(bound_s, used_s[0] / edge_cpu, *used_s[1:], (sum(used_s) + carried_s) / cores)


def roughly(cell: Cell, sweep: Sweep, models: Models, networks: Networks) -> tuple[float, float]:
    """Seconds of a request, and images/s: roughly, as units count alike and this machine stands for each host."""
    crossed = crossings(cell, models[cell.model], networks[cell.netem])
    _, latency_s, pace_s, _ = steps_s(cell, models[cell.model], crossed, sweep)
    return latency_s, cell.batch_size / pace_s


def steps_s(
    cell: Cell, model: ModelFacts, crossed: Sequence[bounds.Crossing], sweep: Sweep
) -> tuple[list[float], float, float, int]:
    """Seconds of each host, of a request, and between many requests; and how many are in flight."""
    hosts_s = model.hosts_s(cell)
    hosts_s[0] *= slowed(sweep.edge_cpu)
    latency_s = sum(hosts_s) + sum(sum(each.usual_ways_s) + each.profile.rtt_s for each in crossed)
    slowest_s = max(hosts_s + [crossing.usual_s for crossing in crossed])
    depth = in_flight(latency_s, slowest_s) if cell.in_flight == AUTO else int(cell.in_flight)
    return hosts_s, latency_s, max(slowest_s, latency_s / depth), depth

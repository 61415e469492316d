"""How long trials wait until the hosts are ready: for workers, models, connections, stages that engines build, and for
requests that warm up or are sent again. A stage takes long to build when it is new, and hardly any time later."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

from pareto.hosts import warm_up
from pareto.partitions.engines import registry as engines
from pareto.remote.backends import registry
from pareto.remote.link import probe
from pareto.remote.link.profile import Profile
from pareto.sweep.bounds import Crossing
from pareto.sweep.cell import Cell
from pareto.sweep.sweep import Sweep

START_S, LOAD_NODE_S = 3.0, 0.006
"""Until fresh workers are there, and until they have loaded a model, for each operator of its graph: on the local
testbed both took 3.1 to 3.9 s with MobileNetV2, and loading it 0.6 to 0.9 s."""
CONNECT_TRIPS, JOIN_TRIPS = 6, 22
"""Round trips until connections are open over a link, and until rpc's agents have met over it: 1.22 and 4.49 s of
200 ms."""
USUAL_NODES = 150
"""The usual number of nodes in a model's graph: MobileNetV2 has 153."""
RESENT_RTTS = 25
"""Round trips more that a trial of rpc takes whose payloads do not fit in pairs into a link's queue: the kernel sends
as it does by default (cubic), and what is lost again. At 200ms-5mbit it took 2 to 6.5 s."""
WARMUP_S, LONG_S, MAX_WARMUP_REQUESTS = 0.1, 0.2, 20
"""How long requests warm up what they pass, and how long a request is that is not repeated for that. A trial's first
request takes 2 to 5 % more than the later ones, the second none (docs/notes/measuring.md)."""
QUOTA_COST = 1.2
"""How many times as long as by its share alone a host takes that gets a share of a core by quota: on a quarter of a
core stages took 4.5 to 5.1 times as long as on a whole one, and were built 4.5 to 5.1 times as long."""


def slowed(edge_cpu: float) -> float:
    """How many times as long as on a whole core the local edge takes with a share of one."""
    return QUOTA_COST / edge_cpu if edge_cpu < 1 else 1.0


def starts_anew(every: int | None, number: int) -> bool:
    """Whether a round begins with fresh workers. every: how many rounds share them; None: all do."""
    return number == 1 or (every is not None and (number - 1) % every == 0)


def usual_nodes(points: int) -> tuple[int, ...]:
    """The nodes before each point of a usual model."""
    return tuple(round(USUAL_NODES * point / max(1, points - 1)) for point in range(points))


def warming_requests(request_s: float) -> int:
    """How many requests of that length warm up: none on a slow link or device, where one more would only cost time."""
    most = min(MAX_WARMUP_REQUESTS, int(WARMUP_S / max(request_s, 1e-6)))
    return max(1, most) if request_s <= LONG_S else 0


def resent_s(crossed: Sequence[Crossing]) -> float:
    """Seconds that rpc takes more over links whose queues are too short for two payloads."""
    queues = [each.profile.with_queues().edge_to_server.waiting_bytes for each in crossed]
    sent = zip(crossed, queues, strict=True)
    return RESENT_RTTS * sum(
        each.profile.rtt_s for each, most in sent if most is not None and 2 * each.sent_bytes > most
    )


def open_s(sweep: Sweep, network: Sequence[Profile]) -> float:
    """Seconds until each backend's connections are open and warm, and the links were probed, to settle and to judge."""
    agents = [bool(registry.parse(name).agent) for name in sweep.transports]
    trips = CONNECT_TRIPS + JOIN_TRIPS * any(agents)
    opening_s = 0.0
    for profile in network:
        rate_bps = (profile.typical.edge_to_server.rate_bps or math.inf) * probe.GOODPUT
        warming_s = sum(warm_up.foreseen_s(rate_bps, profile.rtt_s, agent=agent) for agent in agents)
        opening_s += trips * profile.rtt_s + 2 * probe.duration_s(profile) + warming_s
    return opening_s


class Waits:
    """The waits of a sweep's trials, one after the other.

    nodes: by model, how many lie before each point. networks: by name, the profile of each link. fresh: whether the
    workers have neither model nor connections, and have built no stage; else they have the only model, connections over
    the only network, and all stages, or those of the cells that are `done`.
    """

    def __init__(
        self,
        sweep: Sweep,
        nodes: Mapping[str, Sequence[int]],
        networks: Mapping[str, Sequence[Profile]],
        *,
        fresh: bool,
        done: Iterable[Cell] | None = None,
    ) -> None:
        self._sweep, self._nodes, self._networks = sweep, nodes, networks
        self._slowed = slowed(sweep.edge_cpu)
        self._round, self._allocator = 1, sweep.allocators[0] if fresh else ""
        self._model = next(iter(nodes), "") if not fresh and len(nodes) == 1 else ""
        self._netem = next(iter(networks), "") if not fresh and len(networks) == 1 else ""
        knows = fresh or done is not None
        self._built: set[tuple[str, int, int, int, int]] | None = set() if knows else None
        self._started: set[tuple[str, int]] = set()
        for cell in done or ():
            self._builds_s(cell)

    def before_s(self, cell: Cell, number: int) -> float:
        """How long the next trial, of this cell in this round, waits. The first round's workers are there."""
        wait_s = 0.0
        due = number != self._round and starts_anew(self._sweep.restart_rounds, number)
        if due or self._allocator not in ("", cell.allocator):
            self._model = self._netem = ""
            self._built, self._started = set(), set()
            wait_s += START_S * self._slowed
        if cell.model != self._model:
            if self._built is not None:
                self._built = set()
            wait_s += LOAD_NODE_S * self._nodes[cell.model][-1] * self._slowed
        if cell.netem != self._netem:
            wait_s += open_s(self._sweep, self._networks[cell.netem])
        self._round, self._model, self._netem = number, cell.model, cell.netem
        self._allocator = cell.allocator
        return wait_s + self._builds_s(cell)

    def _builds_s(self, cell: Cell) -> float:
        """How long the host that is slowest to build its stage takes."""
        engine, nodes = engines.parse(cell.engine), self._nodes[cell.model]
        builds_s = [0.0]
        for position, (start, end) in enumerate(itertools.pairwise((0, *cell.cuts, len(nodes) - 1))):
            name = engine.at(position, len(cell.cuts) + 1)
            entry, stage = engines.ENGINES[name], (name, position, start, end, cell.batch_size)
            if start == end:
                continue
            core_s = entry.again_s
            if self._built is not None and stage not in self._built:
                is_first = (name, position) not in self._started
                core_s = entry.stage_s + entry.node_s * (nodes[end] - nodes[start]) + entry.first_s * is_first
                self._built.add(stage)
                self._started.add((name, position))
            builds_s.append(core_s * (self._slowed if position == 0 else 1.0))
        return max(builds_s)

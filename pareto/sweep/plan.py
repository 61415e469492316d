"""From a sweep to what will be done: rounds of cells in random order, and how long it takes."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pareto.protocol.constants import BURST
from pareto.protocol.errors import UserError
from pareto.protocol.pace import alone_s, in_bursts, in_flight, one_by_one
from pareto.protocol.trial_messages import Arrivals
from pareto.remote.codecs.registry import NONE, ways
from pareto.remote.link import probe
from pareto.remote.link.profile import Profile
from pareto.remote.link.units import nbytes
from pareto.sweep import bounds, load, memory
from pareto.sweep.cell import Cell, Condition
from pareto.sweep.networks import ALONG, Networks
from pareto.sweep.sweep import AUTO, Sweep
from pareto.sweep.waits import Waits, resent_s, slowed, starts_anew, usual_nodes, warming_requests

OVERHEAD_S = 0.08
"""The rest of a trial: messages, changing stages, checking results, rows. On a quarter of a core it took 0.4 s."""
SENDING_S = 0.0017
"""A request's seconds of a host's core beyond its stage, for each link: in the example 1.7 to 1.9 ms at most points."""
RELAY_S_PER_BYTE = 38e-9
"""The relay's seconds of a core for a byte: 0.47 core at 100 Mbit/s."""


@dataclass(frozen=True)
class Effort:
    """How much is measured in a trial: (requests, seconds) that each phase takes at the least."""

    latency: tuple[int, float]
    throughput: tuple[int, float]
    load: tuple[int, float] = (2, 5.0)


THOROUGH = Effort(latency=(1, 0.6), throughput=(1, 0.5), load=(2, 10.0))
"""Trials of one cell differ by more than the requests of one trial do: six short ones err less than three of the double
length (docs/notes/measuring.md)."""
QUICK = Effort(latency=(1, 0.3), throughput=(1, 0.3))
SHORT = Effort(latency=(1, 0.0), throughput=(1, 0.0), load=(2, 1.0))
"""For a cell that physics rules out: its figures stand, but nothing is decided by how exact they are."""
FIRST = 0.8
"""The first rate that is tried where the highest is to be found, as a share of what the cell is foreseen to do."""
CLEARLY = 1.5
"""How many times as good as the links allow a cell something else must be, for that cell to have a short trial, or a
plan to say so: what the edge takes is known roughly."""


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


Models = Mapping[str, ModelFacts]


@dataclass(frozen=True)
class Trial:
    """A cell to measure in a round. Foreseen: latency_s of a request, estimate_s of the trial with its probes, and of
    that waiting_s, until the hosts are ready. arrivals: of the load phase, if there is one."""

    cell: Cell
    round: int
    latency_s: float
    estimate_s: float
    effort: Effort
    waiting_s: float = 0.0
    arrivals: Arrivals | None = field(default=None, compare=False)

    def warmup_requests(self, proven: bool, compute_s: float = 0.0) -> int:
        """Requests before the clock starts: one to prove a cell's output, and what warms up. compute_s: of a request on
        the hosts, which have warmed their stages."""
        return max(0 if proven else 1, warming_requests(max(self.latency_s, compute_s)))


@dataclass(frozen=True)
class Plan:
    """Trials in their order. rounds: how many there are to begin with; later ones may be added."""

    trials: tuple[Trial, ...]
    rounds: int

    def part(self, number: int) -> float:
        """Where in a trace a round begins, as a share of it. The rounds to begin with divide it evenly, as many more
        begin in the gaps between all before them, by the sequence 0, 1/2, 1/4, 3/4, 1/8, ... (van der Corput, 1935)."""
        turn, place = divmod(number - 1, self.rounds)
        into, half = 0.0, 0.5
        while turn:
            into += half * (turn & 1)
            turn, half = turn >> 1, half / 2
        return (place + into) / self.rounds

    @property
    def estimate_s(self) -> float:
        return sum(trial.estimate_s for trial in self.trials)


def cells(sweep: Sweep, models: Models, netems: Iterable[str]) -> list[Cell]:
    """Every cell of the sweep, in order. netems: the networks' names. Codecs that come to the same at a split are one
    cell, which stands for all of them: any where nothing crosses, and none and int8 where bytes do."""
    return [
        Cell(
            *(model, cuts, ALONG.join(facts.points[cut][0] for cut in cuts), backend, netem, batch_size),
            *(codec, engine, depth, ahead, kept, offered),
            stands_for=meant,
        )
        for model, facts in models.items()
        for netem in netems
        for batch_size in sweep.batch_sizes
        for cuts in facts.splits
        if not too_large(sweep, facts, cuts, batch_size)
        for depth in sweep.depths
        for ahead in sweep.prefetch
        for kept in sweep.allocators
        for offered in sweep.loading
        for engine in sweep.engines
        for codec, meant in _codecs(sweep, facts, cuts).items()
        for backend in sweep.backend_names
    ]


def too_large(sweep: Sweep, model: ModelFacts, cuts: Sequence[int], batch_size: int) -> int:
    """The bytes that the edge needs at a split, if it has fewer; else 0."""
    needed = memory.edge_bytes(model.units, cuts[0], batch_size) if sweep.edge_memory else 0
    return needed if needed > sweep.edge_memory else 0


def check_fits(sweep: Sweep, models: Models) -> None:
    """Raises UserError for a user's own codec, or an edge's memory, that is for none of the points to measure."""
    for name, model in models.items() if sweep.edge_memory else ():
        least = min(memory.edge_bytes(model.units, cuts[0], min(sweep.batch_sizes)) for cuts in model.splits)
        if least > sweep.edge_memory:
            need = f"no point of {name} fits: the least needs {nbytes(least)}"
            raise UserError(f"--memory {sweep.memory}: {need}")
    crossing = [(model, cuts) for model in models.values() for cuts in model.splits if model.crossing(cuts)]
    for codec in sweep.coding:
        if codec.own and crossing and not any(codec.text in _codecs(sweep, *each) for each in crossing):
            raise UserError(
                f"--codec {codec.typed} fits no point that is measured: its fits() says so, or --points leaves it out"
            )


def _codecs(sweep: Sweep, model: ModelFacts, cuts: Sequence[int]) -> dict[str, tuple[str, ...]]:
    """By codec that is at work at a split, the codecs of the sweep that come to it there."""
    dtypes = model.crossing(cuts)
    meant: dict[str, tuple[str, ...]] = {}
    for codec in sweep.coding:
        unfit: frozenset[int] = model.unfit.get(codec.out.text, frozenset())
        if codec.fits(cuts, model.last) and unfit.isdisjoint(cuts):
            at_work = codec.at(dtypes).text
            meant[at_work] = (*meant.get(at_work, ()), codec.text)
    return meant


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
    stages_s = _hosts_s(cell, model)[: len(crossed) + 1]
    used_s = [
        stage_s + SENDING_S * ((place > 0) + (place < len(crossed))) for place, stage_s in enumerate(stages_s)
    ]
    carried_s = RELAY_S_PER_BYTE * sum(crossing.sent_bytes + crossing.result_bytes for crossing in crossed)
    links_s = [seconds for crossing in crossed for seconds in crossing.occupied_s]
    bound_s = max(stages_s[0] / edge_cpu, *stages_s[1:], *links_s, 0.0)
    return bound_s / max(bound_s, used_s[0] / edge_cpu, *used_s[1:], (sum(used_s) + carried_s) / cores)


def make(
    sweep: Sweep, models: Models, networks: Networks, done: frozenset[tuple[Cell, int]] = frozenset()
) -> Plan:
    """`sweep.rounds` rounds of every cell, and the added rounds that were begun, without the trials that are `done`."""
    last = last_rounds(sweep, models, networks, done)
    numbers = range(1, max(last.values(), default=0) + 1)

    def is_due(cell: Cell, number: int) -> bool:
        return number <= max(last[each] for each in cell.conditions) and (cell, number) not in done

    return in_rounds(sweep, models, networks, numbers, is_due, fresh=True)


def last_rounds(
    sweep: Sweep, models: Models, netems: Iterable[str], done: frozenset[tuple[Cell, int]] = frozenset()
) -> dict[Condition, int]:
    """The number of each condition's last round: `sweep.rounds`, or the last added round that was begun."""
    of_cells = {cell: cell.conditions for cell in cells(sweep, models, netems)}
    last = dict.fromkeys(itertools.chain(*of_cells.values()), sweep.rounds)
    # A cell of several conditions does not say whose round was begun, if these have cells of their own.
    own = {conditions[0] for conditions in of_cells.values() if len(conditions) == 1}
    for cell, number in done:
        conditions = of_cells.get(cell, (cell.condition,))
        for condition in last.keys() & set(conditions):
            if len(conditions) == 1 or condition not in own:
                last[condition] = max(last[condition], number)
    return last


def further(
    sweep: Sweep,
    models: Models,
    networks: Networks,
    numbers: Mapping[Condition, int],
    done: Container[tuple[Cell, int]] = frozenset(),
) -> Plan:
    """One more whole round of each of these conditions, with its number, without the trials that are `done`."""

    def is_due(cell: Cell, number: int) -> bool:
        wanted = any(numbers.get(condition) == number for condition in cell.conditions)
        return wanted and (cell, number) not in done

    return in_rounds(sweep, models, networks, sorted(set(numbers.values())), is_due)


def in_rounds(
    sweep: Sweep,
    models: Models,
    networks: Networks,
    numbers: Iterable[int],
    is_due: Callable[[Cell, int], bool],
    *,
    fresh: bool = False,
    done: Iterable[Cell] | None = None,
    short: Container[Cell] = (),
    rates: Mapping[Cell, float] | None = None,
) -> Plan:
    """The cells that are due in each of these rounds. short: those with a short trial. fresh, done: as of `Waits`.
    rates: of the cells whose load says none, in requests a second."""
    nodes = {name: model.nodes or usual_nodes(len(model.points)) for name, model in models.items()}
    waits = Waits(sweep, nodes, networks, fresh=fresh, done=done)
    trials = [
        _trial(
            *(cell, number, sweep, models, networks, waits.before_s(cell, number), (rates or {}).get(cell)),
            short=cell in short,
        )
        for number in numbers
        for cell in _order(sweep, models, networks, number)
        if is_due(cell, number)
    ]
    return Plan(tuple(trials), sweep.rounds)


def _order(sweep: Sweep, models: Models, netems: Iterable[str], number: int) -> Iterator[Cell]:
    """Every cell in the order of a round.

    The cells of one (model, network) stay together, because loading a model or reshaping the link between any two
    trials would take longer than the trials; so do those of one rpc agent, and those of one allocator, with which
    workers start: a round begins with the one that the round before ended with. All else is random from the seed.
    """
    shuffled = random.Random(f"{sweep.seed}/{number}")  # noqa: S311
    groups: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells(sweep, models, netems):
        groups.setdefault((cell.model, cell.netem, cell.allocator), []).append(cell)
    order = list(groups.values())
    shuffled.shuffle(order)
    turns = sweep.allocators if number % 2 else sweep.allocators[::-1]
    order.sort(key=lambda group: turns.index(group[0].allocator))
    for group in order:
        shuffled.shuffle(group)
        yield from _by_agent(group, shuffled)


def _by_agent(group: Sequence[Cell], shuffled: random.Random) -> Iterator[Cell]:
    """The group with the cells of each rpc agent together; cells that need none are spread among them at random. A
    process has one agent with one set of channels: for another one, all hosts' agents must meet anew."""
    agents = list(dict.fromkeys(cell.agent for cell in group if cell.agent))
    if len(agents) < 2:
        return iter(group)
    parts: dict[str, list[Cell]] = {agent: [] for agent in agents}
    for cell in group:
        parts[cell.agent or shuffled.choice(agents)].append(cell)
    return itertools.chain.from_iterable(parts.values())


def foreseen(cell: Cell, sweep: Sweep, models: Models, networks: Networks) -> tuple[float, float]:
    """Seconds of a request, and images/s: roughly, as units count alike and this machine stands for each host."""
    crossed = crossings(cell, models[cell.model], networks[cell.netem])
    _, latency_s, pace_s, _ = _foreseen(cell, models[cell.model], crossed, sweep)
    return latency_s, cell.batch_size / pace_s


def _foreseen(
    cell: Cell, model: ModelFacts, crossed: Sequence[bounds.Crossing], sweep: Sweep
) -> tuple[list[float], float, float, int]:
    """Seconds of each host, of a request, and between many requests; and how many are in flight."""
    hosts_s = _hosts_s(cell, model)
    hosts_s[0] *= slowed(sweep.edge_cpu)
    latency_s = sum(hosts_s) + sum(sum(each.usual_ways_s) + each.profile.rtt_s for each in crossed)
    slowest_s = max(hosts_s + [crossing.usual_s for crossing in crossed])
    depth = in_flight(latency_s, slowest_s) if cell.in_flight == AUTO else int(cell.in_flight)
    return hosts_s, latency_s, max(slowest_s, latency_s / depth), depth


def _trial(
    cell: Cell,
    number: int,
    sweep: Sweep,
    models: Models,
    networks: Networks,
    wait_s: float,
    rate: float | None = None,
    *,
    short: bool,
) -> Trial:
    model, network = models[cell.model], networks[cell.netem]
    crossed = crossings(cell, model, network)
    hosts_s, latency_s, pace_s, depth = _foreseen(cell, model, crossed, sweep)
    effort = SHORT if short else QUICK if sweep.quick else THOROUGH
    if sweep.requests or sweep.phase:  # the user says how much
        each = sweep.requests or 1, sweep.phase or 0.0
        effort = Effort(each, each, each)
    lone = one_by_one(*effort.latency, latency_s)
    _, many = in_bursts(*effort.throughput, pace_s, depth)
    phases_s = lone * latency_s + latency_s + (many - 1) * pace_s
    probing_s = sum(probe.duration_s(profile) for profile in network)
    # Fresh workers prove each cell's output by a request; later they warm up only where requests are short.
    warming_s = latency_s * warming_requests(latency_s)
    if starts_anew(sweep.restart_rounds, number):
        warming_s = max(warming_s, latency_s)
    around_s = warming_s + probing_s + alone_s(hosts_s) + OVERHEAD_S * slowed(sweep.edge_cpu)
    around_s += resent_s(crossed) if cell.agent else 0.0
    arrivals = _arrivals(cell.load, number, sweep, effort, rate or FIRST / pace_s, short=short)
    phases_s += arrivals.at_s[-1] + latency_s if arrivals else 0.0
    return Trial(cell, number, latency_s, phases_s + around_s + wait_s, effort, wait_s, arrivals)


def _arrivals(
    text: str, number: int, sweep: Sweep, effort: Effort, rate: float, *, short: bool
) -> Arrivals | None:
    """When the requests of a load arrive in a round: enough that all rounds tell whether the SLO holds. rate: of
    a load that is to be found."""
    if text == load.NONE or (offered := sweep.loading[text]) is None:
        return None
    if offered.is_found:
        offered = replace(offered, rate=min(max(rate, load.RATES[0]), load.RATES[1]))
    requests, seconds = effort.load
    if not short and not sweep.requests:
        requests = max(requests, sweep.least_requests)
    return Arrivals(offered.arrivals(requests, seconds, sweep.seed, number), sweep.queue)


def _hosts_s(cell: Cell, model: ModelFacts) -> list[float]:
    """The foreseen seconds of each host for a request: its share of the units' number, and its codec."""
    ends = (0, *cell.cuts, model.last)
    whole_s = cell.batch_size * model.compute_s
    hosts_s = [whole_s * (end - start) / ends[-1] for start, end in itertools.pairwise(ends)]
    for link, cut in enumerate(cell.cuts):
        for host, seconds in enumerate(model.coding_s(cut, cell.codec), start=link):
            hosts_s[host] += cell.batch_size * seconds
    return hosts_s

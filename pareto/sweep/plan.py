"""From a sweep to what will be done: rounds of cells in random order, and how long it takes."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pareto.protocol.errors import UserError
from pareto.protocol.trial_messages import Arrivals
from pareto.remote.link import probe
from pareto.remote.link.units import nbytes
from pareto.remote.worker.pace import alone_s, in_bursts, one_by_one
from pareto.sweep import load
from pareto.sweep.cell import Cell, Condition
from pareto.sweep.foreseen import Asked, ModelFacts, Models, crossings, steps_s, too_large
from pareto.sweep.networks import ALONG
from pareto.sweep.sweep import Sweep
from pareto.sweep.waits import Waits, resent_s, slowed, starts_anew, usual_nodes, warming_requests

Done = frozenset[tuple[Cell, int]]
"""Cells with the number of a round in which each was measured."""
OVERHEAD_S = 0.08
"""The rest of a trial: messages, changing stages, checking results, rows. On a quarter of a core it took 0.4 s."""


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


def cells(asked: Asked) -> list[Cell]:
    """Every cell of the sweep, in order. Codecs that come to the same at a split are one cell, which stands for all of
    them: any where nothing crosses, and none and int8 where bytes do."""
    sweep, models, networks = asked
    return [
        Cell(
            *(model, cuts, ALONG.join(facts.points[cut][0] for cut in cuts), backend, netem, batch_size),
            *(codec, engine, depth, ahead, kept, offered),
            stands_for=meant,
        )
        for model, facts in models.items()
        for netem in networks
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


def check_fits(sweep: Sweep, models: Models) -> None:
    """Raises UserError for a user's own codec, or an edge's memory, that is for none of the points to measure."""
    for name, model in models.items() if sweep.edge_memory else ():
        least = min(model.edge_bytes(cuts[0], min(sweep.batch_sizes)) for cuts in model.splits)
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


def make(asked: Asked, done: Done = frozenset()) -> Plan:
    """`Sweep.rounds` rounds of every cell, and the added rounds that were begun, without the trials that are `done`."""
    last = last_rounds(asked, done)
    numbers = range(1, max(last.values(), default=0) + 1)

    def is_due(cell: Cell, number: int) -> bool:
        return number <= max(last[each] for each in cell.conditions) and (cell, number) not in done

    return in_rounds(asked, numbers, is_due, fresh=True)


def last_rounds(asked: Asked, done: Done = frozenset()) -> dict[Condition, int]:
    """The number of each condition's last round: `Sweep.rounds`, or the last added round that was begun."""
    of_cells = {cell: cell.conditions for cell in cells(asked)}
    last = dict.fromkeys(itertools.chain(*of_cells.values()), asked[0].rounds)
    # A cell of several conditions does not say whose round was begun, if these have cells of their own.
    own = {conditions[0] for conditions in of_cells.values() if len(conditions) == 1}
    for cell, number in done:
        conditions = of_cells.get(cell, (cell.condition,))
        for condition in last.keys() & set(conditions):
            if len(conditions) == 1 or condition not in own:
                last[condition] = max(last[condition], number)
    return last


def further(asked: Asked, due: Mapping[Condition, int], done: Done = frozenset()) -> Plan:
    """One more whole round of each condition that is due, with its number, without the trials that are `done`."""

    def is_due(cell: Cell, number: int) -> bool:
        wanted = any(due.get(condition) == number for condition in cell.conditions)
        return wanted and (cell, number) not in done

    return in_rounds(asked, sorted(set(due.values())), is_due)


def in_rounds(
    asked: Asked,
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
    sweep, models, networks = asked
    nodes = {name: model.nodes or usual_nodes(len(model.points)) for name, model in models.items()}
    waits = Waits(sweep, nodes, networks, fresh=fresh, done=done)
    rates = rates or {}
    trials = [
        _trial(asked, cell, number, waits.before_s(cell, number), rates.get(cell), short=cell in short)
        for number in numbers
        for cell in _order(asked, number)
        if is_due(cell, number)
    ]
    return Plan(tuple(trials), sweep.rounds)


def _order(asked: Asked, number: int) -> Iterator[Cell]:
    """Every cell in the order of a round.

    The cells of one (model, network) stay together, because loading a model or reshaping the link between any two
    trials would take longer than the trials; so do those of one rpc agent, and those of one allocator, with which
    workers start: a round begins with the one that the round before ended with. All else is random from the seed.
    """
    sweep = asked[0]
    shuffled = random.Random(f"{sweep.seed}/{number}")  # noqa: S311
    groups: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells(asked):
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


def _trial(asked: Asked, cell: Cell, number: int, wait_s: float, rate: float | None, *, short: bool) -> Trial:
    sweep, models, networks = asked
    model, network = models[cell.model], networks[cell.netem]
    crossed = crossings(cell, model, network)
    hosts_s, latency_s, pace_s, depth = steps_s(cell, model, crossed, sweep)
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

"""The user's view of a run before and after its trials: its plan, and where the time went. Fits 80 columns."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from pareto.analysis.naming import LETTERS, USUAL, count, some
from pareto.driver.rates import FEW, MOST_STEPS, WITHIN
from pareto.driver.runner import Tally
from pareto.hosts.host import TcpSettings, chain, gpus_in_words
from pareto.partitions.allocator import TUNED
from pareto.partitions.engines.registry import EAGER
from pareto.protocol.constants import MOST_REQUESTS, MOST_ROUNDS
from pareto.remote.codecs.registry import NONE
from pareto.remote.link import probe
from pareto.remote.link.profile import describe
from pareto.remote.link.units import minutes, nbytes
from pareto.remote.worker.pace import one_by_one
from pareto.sweep import dataset_names, load
from pareto.sweep.cell import Cell
from pareto.sweep.foreseen import Asked, ModelFacts, Models, of_links, reach, too_large
from pareto.sweep.networks import Networks
from pareto.sweep.plan import CLEARLY, Plan
from pareto.sweep.sweep import AUTO, Sweep
from pareto.sweep.waits import slowed
from pareto.trial.rows import REACHED
from pareto.trial.store import REDONE

LISTED_FAULTS = 10
AROUND_S = 12.0
"""A run's seconds beside its trials: until the workers are there, and for the answer and its figures."""


def plan(
    out: Console, asked: Asked, plan: Plan, expected: Plan | None = None, cores: int | None = None
) -> None:
    """Print the plan: what will be measured, and how long that takes.

    expected: what of the plan is foreseen to be measured; None: all. cores: of the local testbed, if it is one.
    """
    expected, (sweep, models, networks) = expected or plan, asked
    hosts = 1 + max(map(len, networks.values()))
    table = Table.grid(Column(no_wrap=True), Column(), padding=(0, 2, 0, 0))
    for name, model in models.items():
        table.add_row("model", f"{name}: {_chosen(model)}")
        for note in filter(None, model.notes):
            table.add_row("", note)
    for profile in dict.fromkeys(itertools.chain(*networks.values())):
        table.add_row("netem", f"{profile.name}: {describe(profile)}")
    for network in networks.values() if hosts > 2 else ():
        table.add_row("", f"on the links in order: {', '.join(profile.name for profile in network)}")
    if sweep.alone:
        table.add_row("host", f"the {sweep.alone} alone, without a link; tables call it edge")
    else:
        table.add_row("backends", ", ".join(sweep.backend_names))
    for title, values, usual in (
        ("codecs", tuple(codec.text for codec in sweep.coding), NONE),
        ("engines", sweep.engines, EAGER),
        ("batch sizes", sweep.batch_sizes, 1),
        ("in flight", sweep.depths, AUTO),
        ("decoded ahead", sweep.prefetch, 0),
        ("allocators", sweep.allocators, TUNED),
        ("loads", tuple(sweep.loading), load.NONE),
    ):
        if values != (usual,):
            table.add_row(title, ", ".join(map(str, values)))
        for same in _same_codecs(plan, models) if title == "codecs" else ():
            table.add_row("", same)
    slow = f", edge at {sweep.edge_cpu:.0%} of a core" if sweep.edge_cpu < 1 else ""
    gpus = gpus_in_words(sweep.device, chain(max(hosts, 2)), sweep.alone)
    where = f"{len(sweep.testbeds)} at once: {some([*sweep.testbeds])}" if sweep.fleet else sweep.testbed
    where = f"those that join {sweep.cluster}" if sweep.cluster is not None else where
    table.add_row("testbed", where + (f", {hosts} hosts" if hosts > 2 else "") + slow + gpus)
    if cores is not None and (held := _held(sweep, models, networks, plan, cores)):
        table.add_row("cores", held)
    for line in _known(sweep, models, networks, plan) if cores is not None and sweep.device == "cpu" else ():
        table.add_row("physics", line)
    for line in _too_large(sweep, models):
        table.add_row("memory", line)
    if sweep.tcp != TcpSettings():
        table.add_row("TCP", _tcp(sweep.tcp))
    for sent in dict.fromkeys(_input(sweep, model) for model in models.values()):
        table.add_row("input", sent)
    table.add_row("weights", sweep.weights + (f" (seed {sweep.seed})" if sweep.weights == "seeded" else ""))
    if plan.trials and (sweep.requests or sweep.phase):
        table.add_row("phases", _phases(sweep, plan))
    cells, rounds = {trial.cell for trial in plan.trials}, {trial.round for trial in plan.trials}
    grows = sweep.grows
    which = f"{len(rounds)} of {count(sweep.rounds, 'round')}{' to begin with' if grows else ''}"
    if rounds and max(rounds) > sweep.rounds:
        which = f"what is left of round{'s' if len(rounds) > 1 else ''} {', '.join(map(str, sorted(rounds)))}"
    trials = f"about {len(expected.trials)} of {len(plan.trials)}" if sweep.focused else len(plan.trials)
    table.add_row("trials", f"{trials}: {count(len(cells), 'cell')}, {which}")
    if sweep.search:
        table.add_row("search", "the likeliest cells first; what cannot be on the front is struck off")
    elif sweep.focused:
        every = "of every cell once, then of what can still be on the front (--trials: of all)"
        table.add_row("rounds", every)
    if grows:
        table.add_row("then", _ending(sweep))
    # A budget may end after the first round.
    whole_s = sum(trial.estimate_s for trial in expected.trials if trial.round == 1 or not grows) + AROUND_S
    if sweep.search and not sweep.simulated:
        # With torch, which other plans need not have.
        from pareto.predict import backend_costs, model_profiles

        whole_s += len(models) * model_profiles.estimate_s(sweep, backend_costs.QUICK)
    foreseen = f"{'at least' if grows else 'about'} {minutes(whole_s)} with start and report"
    if sweep.focused and not grows:
        foreseen += f", {minutes(plan.estimate_s + AROUND_S)} at most"
    # On several testbeds a task is all cells of one (model, network) in one round.
    tasks = len({(trial.round, trial.cell.model, trial.cell.netem) for trial in plan.trials})
    if tasks and len(sweep.testbeds) > 1:
        turns = -(-tasks // len(sweep.testbeds))
        foreseen += f", {minutes(plan.estimate_s * turns / tasks)} on all testbeds ({tasks} tasks)"
    table.add_row("estimate", foreseen)
    out.print(table)


def _too_large(sweep: Sweep, models: Models) -> Iterator[str]:
    """A line for each model and batch size of which points do not fit into the edge's memory."""
    for model, facts in models.items():
        for size in sweep.batch_sizes if sweep.edge_memory else ():
            needs = {cuts: needed for cuts in facts.splits if (needed := too_large(sweep, facts, cuts, size))}
            if needs:
                names = some(["+".join(map(str, cuts)) for cuts in needs])
                what, room = f"{model}, batch size {size}," if size > 1 else model, nbytes(sweep.edge_memory)
                yield f"{what} does not fit into {room} at {names}: {nbytes(min(needs.values()))} or more"


def _input(sweep: Sweep, model: ModelFacts) -> str:
    what = "the model's own:" if model.own_inputs else f"{dataset_names.shown(sweep.dataset)} images as"
    return f"{what} {model.input}, {model.points[0][1] / 1e3:.3g} kB each"


def lateness(shaping: Mapping[str, Mapping[str, Any] | None]) -> Iterator[str]:
    """How late each relay without real-time scheduling was, a line each. shaping: as recorded of each link."""
    for link, facts in shaping.items():
        relay = (facts or {}).get("relay")
        if relay and not relay["real_time"] and relay["late_p99_s"] is not None:
            yield (
                f"the relay on the link {link} has no right to real-time scheduling: at the end, 99 % of its "
                f"packets left at most {relay['late_p99_s'] * 1e3:.2f} ms late"
            )


def summary(out: Console, tally: Tally, wall_s: float, simulated_in_s: float | None = None) -> None:
    """Print where the time went, and which trials cannot be trusted. simulated_in_s: how long a simulation took."""
    if not tally.trials:
        return
    fleet = f" on {tally.at_once} testbeds" if tally.at_once > 1 else ""
    if simulated_in_s is not None and fleet:
        wall_s = tally.wall / tally.at_once
    # A simulated host that is lost takes no time.
    each_s = wall_s * tally.at_once
    share, probing = (spent_s / each_s if each_s else 0.0 for spent_s in (tally.measuring, tally.probing))
    what = f"measuring {share:.0%}, probing the link {probing:.0%}, the rest {1 - share - probing:.0%}"
    made = f"{tally.trials} trials in"
    if simulated_in_s is None:
        driver = tally.driver_cpu / tally.watching if tally.watching else 0.0
        what += f"; the driver took {driver:.1%} of a core during trials"
    else:
        made = f"{tally.trials} simulated trials, made in {simulated_in_s:.1f} s; real ones would take"
    out.print(f"{made} {minutes(wall_s)}{fleet}: {what}")
    if tally.again:
        blamed = Counter(each["blamed"] for each in tally.again)
        whom = ", ".join(f"{who} ({number})" for who, number in blamed.most_common())
        out.print(f"{count(len(tally.again), 'trial')} measured again after {whom}: report.md lists them")
    if tally.cut:
        out.print(f"{count(tally.cut, 'trial')} had a phase of {MOST_REQUESTS} requests: there it ends")
    told = [row for row in tally.faulty if row["status"] != "failed"]
    for row in told[:LISTED_FAULTS]:
        cell = f"{row['model']} {row['point']} {row['backend']} {row['netem']}{_apart(row)}, round {row['round']}"
        out.print(f"{row['status']}: {cell}: {row['reason']}")
    if len(told) > LISTED_FAULTS:
        out.print(f"and {len(told) - LISTED_FAULTS} more trials that are not ok: see trials.csv")


def ending(rows: Sequence[Mapping[str, str]], again: str) -> str:
    """The last line of a run with trials that are not ok: what is missing, and the command that measures it `again`."""
    without = sum(row["status"] in REDONE for row in rows)
    if not without:
        faulty = sum(row["status"] != "ok" for row in rows)
        return f"exit code 1: {faulty} of {len(rows)} trials count for one figure alone: trials.csv says why"
    is_sound: dict[str, bool] = {}
    for row in rows:
        name = " ".join(row[column] for column in ("model", "point", "backend", "netem"))
        is_sound[name] = is_sound.get(name, False) or row["status"] not in REDONE
    never = [name for name, is_one in is_sound.items() if not is_one]
    more = " and more" * (len(never) > LISTED_FAULTS)
    points = f"; {', '.join(never[:LISTED_FAULTS])}{more} never do" if never else ""
    return (
        f"exit code 1: {without} of {len(rows)} trials do not count{points}; to measure them again: {again}"
    )


def _known(sweep: Sweep, models: Models, networks: Networks, plan: Plan) -> Iterator[str]:
    """A line for each model, network and batch size in which no split can be faster than the edge alone.

    The edge is this machine: on its own it takes what the model took when it was prepared.
    """
    least: dict[tuple[str, str, int], float] = {}
    for cell in {trial.cell for trial in plan.trials}:
        link_s, _ = of_links(cell, models, networks, probe.Tolerance(0.0, 0.0, 0.0))
        if cell.cuts[0] < models[cell.model].last:
            of = cell.model, cell.netem, cell.batch_size
            least[of] = min(least.get(of, math.inf), link_s)
    for (model, netem, size), link_s in sorted(least.items()):
        edge_s = models[model].compute_s * size * slowed(sweep.edge_cpu)
        if link_s > CLEARLY * edge_s:
            which = f"{model} at {netem}" + (f", batch size {size}" if len(sweep.batch_sizes) > 1 else "")
            yield (
                f"{which}: all on the edge takes about {1e3 * edge_s:.3g} ms, and the link alone at least "
                f"{1e3 * link_s:.3g} ms: no split can be faster"
            )


def _held(sweep: Sweep, models: Models, networks: Networks, plan: Plan, cores: int) -> str:
    """The throughputs that the local testbed's own cores are foreseen to hold back, in words; empty if none."""

    def is_held(cell: Cell) -> bool:
        model, network = models[cell.model], networks[cell.netem]
        return reach(cell, model, network, edge_cpu=sweep.edge_cpu, cores=cores) < REACHED

    cells = sorted({trial.cell for trial in plan.trials}, key=attrgetter("cuts"))
    held = [cell for cell in cells if is_held(cell)]
    points = {netem: dict.fromkeys(cell.point for cell in held if cell.netem == netem) for netem in networks}
    where = "; ".join(f"{netem} at {', '.join(of)}" for netem, of in points.items() if of)
    return where and (
        f"{cores} here, on which hosts, senders and the link all run: they will hold images/s of {len(held)} of "
        f"{len(cells)} cells below {REACHED:.0%} of the bound ({where})"
    )


def _same_codecs(plan: Plan, models: Models) -> Iterator[str]:
    """Where something crosses: which codecs come to the same at which points, a line each."""
    points: dict[tuple[str, str, tuple[str, ...]], dict[tuple[int, ...], str]] = {}
    for cell in {trial.cell for trial in plan.trials}:
        others = tuple(codec for codec in cell.stands_for if codec != cell.codec)
        if others and models[cell.model].crossing(cell.cuts):
            points.setdefault((cell.model, cell.codec, others), {})[cell.cuts] = cell.point
    for (model, codec, others), of in sorted(points.items()):
        named = f" of {model}" if len(models) > 1 else ""
        at = f"point{'s' if len(of) > 1 else ''} {', '.join(of[cuts] for cuts in sorted(of))}{named}"
        yield f"{', '.join(others)} {'does' if len(others) == 1 else 'do'} the same as {codec} at {at}: one cell"


def _phases(sweep: Sweep, plan: Plan) -> str:
    """How long each phase is, and which quantiles of its latency a trial of the slowest cell then tells."""
    least = min(one_by_one(*trial.effort.latency, trial.latency_s) for trial in plan.trials)
    told, more, each = "no quantile", "", f"{least} requests each"
    for quantile in (0.999, 0.99, 0.95, 0.9, 0.5):
        if load.NEEDED[quantile] <= least:
            told = f"p{100 * quantile:g}"
            break
        more = f", p{100 * quantile:g} takes {load.NEEDED[quantile]}"
    if sweep.phase:
        each = f"{sweep.phase:g} s each, about {least} requests or more, {MOST_REQUESTS} at most"
    return f"{each}: a trial tells {told} at 99 % confidence{more}"


def _ending(sweep: Sweep) -> str:
    """The words for how long rounds are added."""
    if sweep.find_rate is not None:
        return f"at other rates, until the highest is known within {WITHIN:.0%}: {FEW} to {MOST_STEPS} rounds a cell"
    until, budget = sweep.until, sweep.budget
    sure = "" if until is None else f"until the points that may be on a front are within ±{100 * until:.3g} %"
    spent = f"as long as it is foreseen to end within {minutes(budget)} of this start" if budget else ""
    return f"a round more, {', '.join(filter(None, (sure, spent)))}; {MOST_ROUNDS} rounds at most"


def _tcp(tcp: TcpSettings) -> str:
    window = f"initial window {tcp.initial_window}" * (tcp.initial_window != TcpSettings.initial_window)
    slow_start = "slow start after idle" * tcp.slow_start_after_idle
    return ", ".join(filter(None, (tcp.congestion, window, slow_start)))


_APART = {"codec": "", "engine": "", **LETTERS, "allocator": "allocator ", "load": "at "}
"""The words before an unusual value, by column."""


def named(cell: Cell) -> str:
    """A cell in words: `mobilenet_v2 7 (features.6) tcp wifi`."""
    return f"{cell.model} {cell.point} ({cell.point_name}) {cell.backend} {cell.netem}{_apart(cell.columns)}"


def _apart(columns: Mapping[str, Any]) -> str:
    """The unusual values of a cell, of columns where a sweep may have several."""
    usual = {"batch_size": "1", **USUAL}
    told = {name: columns[name] for name in _APART if str(columns[name]) != usual[name]}
    return "".join(f" {_APART[name]}{value}" for name, value in told.items())


def _chosen(model: ModelFacts) -> str:
    if len(model.splits[0]) > 1:
        return f"{len(model.splits)} ways to split it at {len(model.points)} points"
    points = [cut for (cut,) in model.splits]
    is_whole = len(points) > 2 and points == list(range(points[0], points[-1] + 1))
    which = f"{points[0]} to {points[-1]}" if is_whole else ", ".join(map(str, points))
    return f"{len(points)} of {len(model.points)} points, {which}"

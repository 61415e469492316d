"""Rounds of what can be on the front: what a run measures next by the rows on disk, what it has struck off, in words.

By default every cell is measured in round 1. Physics then knows the links alone. A search has model profiles: it begins
with what they put on the front, and leaves out what physics keeps off it.

The cells of all codecs are searched together: a cell where no codec is at work competes on each one's front. Each
engine is searched by itself.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import numpy as np

from pareto.analysis.model_profile import ModelProfile
from pareto.analysis.prediction import forecast
from pareto.analysis.statistics.samples import Bools, Floats
from pareto.partitions.engines.registry import EAGER
from pareto.predict import links
from pareto.predict.search import Decision, Group, Search, Trials, gaps, medians
from pareto.predict.strikes import PHYSICS, Prospects, losses
from pareto.remote.codecs.registry import NONE
from pareto.remote.link.units import minutes
from pareto.sweep import plan
from pareto.sweep.cell import Cell, Condition
from pareto.sweep.networks import Networks
from pareto.sweep.plan import Models, Plan
from pareto.sweep.sweep import Sweep
from pareto.trial.store import Row, Store

Block = tuple[str, str]
"""A model and a network: what is measured on one after the other."""
FORESEEN = 1.1
"""How many times as good something must be for a cell to be foreseen to have no more rounds."""
NAMED = 3
"""Cells measured below their bounds that are named in a line."""


class Searching:
    """The search of a run. Its state is what the store's rows say: nothing else is remembered."""

    def __init__(
        self,
        sweep: Sweep,
        models: Models,
        networks: Networks,
        store: Store | None = None,
        profiles: Mapping[str, ModelProfile] | None = None,
    ) -> None:
        """store: None as long as there is none. profiles: of a search, by model; those that it lacks it gets later
        (`learn`)."""
        self._sweep, self._models, self._networks, self.store = sweep, models, networks, store
        self._grows = sweep.until is not None or sweep.budget is not None
        every = plan.cells(sweep, models, networks)
        self.conditions = list(dict.fromkeys(condition for cell in every for condition in cell.conditions))
        self._cells: dict[Group, list[Cell]] = {}
        for cell in every:
            self._cells.setdefault(_group(cell.condition), []).append(cell)
        self.learn(profiles or {})
        self.is_measuring = False
        """Whether trials on disk of which no figure counts are this session's: they are not done again in it."""
        self._block: Block | None = None
        self._read()

    def learn(self, profiles: Mapping[str, ModelProfile], *, are_all: bool = False) -> None:
        """Take these models' profiles, from now on; decisions follow from them. are_all: where there is none for some
        of the models, physics knows the links alone, as by default."""
        self._awaits = self._sweep.search and not are_all
        self.lacks_profiles = self._awaits and not self._models.keys() <= profiles.keys()
        self._is_by_profile = bool(profiles)
        self._searches: dict[Group, Search] = {}
        for group, cells in self._cells.items():
            prospects = self._foreseen(group, cells, profiles.get(group[0]))
            self._searches[group] = Search(prospects, self._sweep.rounds, grows=self._grows)

    def update(self) -> None:
        """Decide by the rows on disk, and write what is struck off."""
        self._read()
        assert self.store is not None  # noqa: S101
        self.store.write_struck(self.struck())

    def _read(self) -> None:
        rows = self.store.rows() if self.store is not None else []
        self._tables = {
            group: Trials.of(rows, group, cells, with_unsound=self.is_measuring)
            for group, cells in self._cells.items()
        }
        self._decisions = {group: self._decide(group) for group in self._cells}

    def part(self) -> Plan | None:
        """The next trials of rounds that are the sweep's own, or were added and begun; None when these are whole. Every
        (model, network) has its first round, before the first of them has all its others."""
        rounds: dict[Block, int] = {}
        for group, decision in self._decisions.items():
            if decision.round:
                rounds[group[:2]] = min(decision.round, rounds.get(group[:2], decision.round))
        if not rounds:
            last = {each: self.last(each) for each in self.conditions}
            grown = {each: number for each, number in last.items() if number > self._sweep.rounds}
            missing = self.further(grown if self._grows else {})
            return missing if missing.trials else None
        # To change the network takes as long as many trials do. Within a budget all get as many rounds.
        most = math.inf if self._sweep.budget is not None else 2
        block = min(rounds, key=lambda each: min(rounds[each], most))
        groups, number = [group for group in self._cells if group[:2] == block], rounds[block]
        due = {
            cell
            for group in groups
            if self._decisions[group].round == number
            for cell, is_due in zip(self._cells[group], self._decisions[group].due, strict=True)
            if is_due
        }
        done = [
            self._cells[group][place]
            for group in groups
            for place in np.unique(np.nonzero(self._tables[group].tried)[1])
        ]
        short: set[Cell] = set()
        if number == 1 and not (self._is_by_profile or self._awaits):
            # What needs no link, or the link alone, says which of the others are ruled out.
            due = {cell for cell in due if cell.cuts[0] == 0 or not self._crossed(cell)} or due
            short.update(*map(self._ruled_out, groups))
        fresh, self._block = self._block not in (None, block), block
        return self._some(number, due, block, done=done, short=short, fresh=fresh)

    def _some(self, number: int, due: Set[Cell], block: Block | None = None, **how: Any) -> Plan:
        """These cells in a round of this number, in the order of the round, or of its part that the block is."""
        models, networks = self._models, self._networks
        if block is not None:
            models, networks = {block[0]: models[block[0]]}, {block[1]: networks[block[1]]}
        return plan.in_rounds(self._sweep, models, networks, [number], lambda cell, _: cell in due, **how)

    def _ruled_out(self, group: Group) -> set[Cell]:
        """The cells that the links keep clearly behind what others of their fronts were measured at: they have short
        trials, and are not struck off."""
        bound, seen = self._searches[group].prospects.bound, medians(self._tables[group].measured)
        behind = self._behind(group, bound, seen, plan.CLEARLY)
        return {self._cells[group][place] for place in np.flatnonzero(behind)}

    def _behind(self, group: Group, figures: Floats, others: Floats, times: float) -> Bools:
        """Whether, on each of its fronts, something is `times` as good in both objectives: cells x 2, `losses`."""
        result, clearly = np.ones(len(figures), dtype=bool), math.log(times)
        for those in self._searches[group].prospects.members:
            rivals = np.nan_to_num(others[those], nan=np.inf)
            rivals = rivals[np.argsort(rivals[:, 0])]
            best = np.concatenate([[np.inf], np.minimum.accumulate(rivals[:, 1])])
            faster = np.searchsorted(rivals[:, 0], figures[those, 0] - clearly)
            result[those] &= best[faster] < figures[those, 1] - clearly
        return result

    def expected(self) -> Plan:
        """The rest of the sweep's own rounds, as far as can be foreseen: cells clearly behind by what was measured or
        else foreseen have round 1, or in a search none."""
        parts: dict[tuple[int, Block], set[Cell]] = {}
        short: set[Cell] = set()
        for group, cells in self._cells.items():
            tried, when = self._tables[group].tried, self._decisions[group].when
            known = self._searches[group].prospects.expected
            if np.isnan(known).any():
                rough = [plan.foreseen(cell, self._sweep, self._models, self._networks) for cell in cells]
                known = losses(*np.array(rough).T)
            seen = medians(self._tables[group].measured)
            known = np.where(np.isnan(seen), known, seen) if len(tried) else known
            is_behind = self._behind(group, known, known, FORESEEN)
            most = np.where(is_behind, not self._sweep.search, self._sweep.rounds)
            for place, cell in enumerate(cells):
                for number in range(1, 1 + int(most[place] * (when[place] == 0))):
                    if number > len(tried) or not tried[number - 1, place]:
                        parts.setdefault((number, group[:2]), set()).add(cell)
            behind = self._behind(group, self._searches[group].prospects.bound, known, plan.CLEARLY)
            short.update(cells[place] for place in np.flatnonzero(behind))
        trials: list[plan.Trial] = []
        for number, block in sorted(parts, key=lambda part: (part[0] > 1, part[1], part[0])):
            fresh = not trials or trials[-1].cell.condition[:2] != block
            due = parts[number, block]
            part = self._some(number, due, block, fresh=fresh, short=short if number == 1 else ())
            trials.extend(part.trials)
        return Plan(tuple(trials), self._sweep.rounds)

    def further(self, numbers: Mapping[Condition, int]) -> Plan:
        """The trials that an added round of these conditions lacks, each with the number of its own, after `update`:
        those of all cells that were not struck off before it.

        A round has all that is searched together, of whatever codec. One that makes up for others is no added round:
        `decide` knows what belongs to it.
        """
        due: dict[int, set[Cell]] = {}
        for group, number in {_group(each): number for each, number in numbers.items()}.items():
            before, tried = self._decide(group, number - 1), self._tables[group].tried[number - 1 : number]
            missing = (before.when == 0) & ~tried.any(axis=0) & (before.round == 0)
            due.setdefault(number, set()).update(self._cells[group][each] for each in np.flatnonzero(missing))
        parts = (self._some(number, cells) for number, cells in sorted(due.items()))
        return Plan(tuple(trial for part in parts for trial in part.trials), self._sweep.rounds)

    def _decide(self, group: Group, rounds: int | None = None) -> Decision:
        """The decision after so many rounds; None: after all."""
        table = self._tables[group]
        return self._searches[group].decide(table.measured[:rounds], table.tried[:rounds])

    def last(self, condition: Condition) -> int:
        """The last round of what is searched together with a condition's cells."""
        return len(self._tables[_group(condition)].tried)

    def hardest(self, part: Plan, left_s: float, pace: float) -> Plan | None:
        """The cells of a round whose place is least clear, as many as fit into the time; None for fewer than two."""
        clear: dict[Cell, float] = {}
        for group, cells in self._cells.items():
            least = np.full(len(cells), np.inf)
            for those in self._searches[group].prospects.members:
                least[those] = np.minimum(least[those], gaps(self._tables[group].measured[:, those]))
            clear |= zip(cells, least, strict=True)
        kept: set[Cell] = set()
        for trial in sorted(part.trials, key=lambda trial: clear[trial.cell]):
            left_s -= trial.estimate_s * pace
            if left_s < 0:
                break
            kept.add(trial.cell)
        if len(kept) < 2:
            return None
        return Plan(tuple(trial for trial in part.trials if trial.cell in kept), part.rounds)

    def struck(self) -> list[Row]:
        """A row of struck.csv for each cell that is struck off."""
        rows, run = [], self.store.run if self.store is not None else ""
        for group, cells in self._cells.items():
            decision, measured = self._decisions[group], self._tables[group].measured
            by_physics = (decision.strikes.how == PHYSICS)[:, None]
            at = np.where(by_physics, self._searches[group].prospects.bound, medians(measured))
            for number in np.flatnonzero(decision.when):
                cell, by = cells[number], cells[decision.strikes.by[number]]
                rows.append(
                    {
                        "run": run,
                        **cell.columns,
                        "point_name": cell.point_name,
                        "round": int(decision.when[number]),
                        "how": decision.strikes.how[number],
                        "latency_s": float(np.exp(at[number, 0])),
                        "throughput_ips": float(np.exp(-at[number, 1])),
                        "payload_bytes": self._models[cell.model].points[cell.cuts[0]][1] * cell.batch_size,
                        "by_point": by.point,
                        "by_backend": by.backend,
                        "probability": float(decision.strikes.chance[number]),
                    }
                )
        return rows

    def below(self) -> list[str]:
        """A line for each group in which a cell was measured below its bound, so that no physics strikes off."""
        lines = []
        for group, decision in self._decisions.items():
            broken = [
                f"{cell.backend} {cell.point}{f' {cell.codec}' if cell.codec != NONE else ''}"
                for cell, is_below in zip(self._cells[group], decision.strikes.below, strict=True)
                if is_below
            ]
            if broken:
                more = f" and {len(broken) - NAMED} more" if len(broken) > NAMED else ""
                by = f" by {group[3]}" if group[3] != EAGER else ""
                of, then = (
                    ("model profile", "; make the profile anew") if self._is_by_profile else ("links", "")
                )
                lines.append(
                    f"{group[0]} at {group[1]}{by}: {', '.join(broken[:NAMED])}{more} measured better than the "
                    f"bound by the {of}: no cell is struck off by physics there{then}"
                )
        return lines

    def summary(self) -> list[str]:
        """Lines on how the cells are settled, and on bounds that do not hold."""
        self.update()
        return [*(f"error: {line}" for line in self.below()), self._words()]

    def _words(self) -> str:
        """`44 cells: 6 in 6 rounds, 9 in 1, 29 by physics; 3 min 10 s, all cells would take 14 min 20 s`."""
        tried: Counter[int] = Counter()
        physics, took_s, open_s = 0, 0.0, 0.0
        paces: list[float] = []
        whole = plan.make(self._sweep, self._models, self._networks)
        estimates = {(trial.cell, trial.round): trial.estimate_s for trial in whole.trials}
        for group, cells in self._cells.items():
            table, how = self._tables[group], self._decisions[group].strikes.how
            counts = table.tried.sum(axis=0)
            tried.update(counts[counts > 0].tolist())
            physics += int((how[counts == 0] == PHYSICS).sum())
            took_s += np.nansum(table.took_s)
            for number, cell in enumerate(cells):
                for place in range(self._sweep.rounds):
                    estimate_s = estimates[cell, place + 1]
                    if place < len(table.tried) and table.tried[place, number]:
                        paces.append(table.took_s[place, number] / estimate_s)
                    else:
                        open_s += estimate_s
        total = sum(map(len, self._cells.values()))
        words = [f"{count} in {number}" for number, count in sorted(tried.items(), reverse=True)]
        if words:
            words[0] += " rounds" if max(tried) > 1 else " round"
        open_ = total - tried.total() - physics
        words += [f"{count} {what}" for count, what in ((physics, "by physics"), (open_, "open")) if count]
        # The median: the first trial of a network took the time to open every connection as well.
        every_s = took_s + open_s * (float(np.median(paces)) if paces else 1.0)
        sessions = self.store.manifest()["sessions"] if self.store is not None else []
        profiling_s = sum(float(session.get("profiling_s") or 0) for session in sessions)
        spent = f" with the model profile's {minutes(profiling_s)}" if profiling_s >= 1 else ""
        return (
            f"{total} cells: {', '.join(words)}; {minutes(took_s + profiling_s)}{spent}, "
            f"all cells would take {minutes(every_s)}"
        )

    def _foreseen(self, group: Group, cells: Sequence[Cell], profile: ModelProfile | None) -> Prospects:
        _, netem, batch_size, engine, in_flight, *_ = group
        alone = {cell for cell in cells if not self._crossed(cell)}
        # Which the driver knows beforehand.
        accuracy = np.array([self._models[cell.model].accuracy_of(cell) for cell in cells])
        result = replace(
            Prospects.unknown(len(cells)),
            fronts=_fronts(cells, None if self._sweep.search else alone),
            accuracy=accuracy if len(set(accuracy)) > 1 else None,
            moves=profile is not None and engine == EAGER,
        )
        if self._awaits and profile is None:
            return result
        if profile is None:
            likely = [plan.foreseen(cell, self._sweep, self._models, self._networks) for cell in cells]
            tolerance = self._sweep.link_tolerance
            least = [plan.of_links(cell, self._models, self._networks, tolerance) for cell in cells]
            backends = _numbered([cell.backend for cell in cells])
            if any(backends):
                twins = _numbered([(cell.cuts, cell.codec) for cell in cells]), backends
                result = replace(result, twins=np.array(twins).T)
            result.expected[:], result.bound[:] = (losses(*np.array(each).T) for each in (likely, least))
            return result
        usual, best = links.networks(self._networks[netem])
        slack = links.slack(self._sweep.link_tolerance)
        ways = [(cell.transport, cell.codec) for cell in cells]
        for transport, codec in dict.fromkeys(ways):
            mine = [number for number, way in enumerate(ways) if way == (transport, codec)]
            splits = np.array([cells[number].cuts for number in mine])
            foreseen = forecast.of(
                profile, splits, usual, transport, batch_size, in_flight,
                at_best=best, slack=slack, codec=codec, engine=engine,
            )  # fmt: skip
            result.expected[mine] = losses(foreseen.latency_s, foreseen.throughput_ips)
            result.error[mine] = np.stack([foreseen.latency_error, foreseen.throughput_error], axis=1)
            result.bound[mine] = losses(foreseen.least_latency_s, foreseen.most_throughput_ips)
        return result

    def _crossed(self, cell: Cell) -> int:
        """How many links a request of the cell crosses."""
        return sum(cut < self._models[cell.model].last for cut in cell.cuts)


def _group(condition: Condition) -> Group:
    return (*condition[:3], *condition[4:])


def _numbered(values: Sequence[Hashable]) -> list[int]:
    """A number for each value, from 0 in the order of coming: the same where values are equal."""
    numbers = {value: number for number, value in enumerate(dict.fromkeys(values))}
    return [numbers[value] for value in values]


def _fronts(cells: Sequence[Cell], alone: Set[Cell] | None) -> Bools | None:
    """On which fronts each cell may be: cells x fronts; None where there is one. Each codec has one. alone: cells where
    nothing crosses, where each backend is to have a front of its own, which they are on as well."""
    of_cells = [{condition[3] for condition in cell.conditions} for cell in cells]
    codecs = list(dict.fromkeys(codec for of_cell in of_cells for codec in sorted(of_cell)))
    on = np.array([[codec in of_cell for codec in codecs] for of_cell in of_cells])
    if alone is not None:
        backends = list(dict.fromkeys(cell.backend for cell in cells))
        own = np.array([[cell.backend == each or cell in alone for each in backends] for cell in cells])
        on = (on[:, :, None] & own[:, None]).reshape(len(cells), -1)
    return on if on.shape[1] > 1 else None

"""Rounds of what can be on the front: what a run measures next by the rows on disk, what it has struck off, in words.

By default every cell is measured in round 1. Physics then knows the links alone. A search has model profiles: it begins
with what they put on the front, and leaves out what physics keeps off it.

The cells of all codecs are searched together: a cell where no codec is at work competes on each one's front. Each
engine is searched by itself.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np
import pandas as pd

from pareto.analysis.model_profile import ModelProfile
from pareto.analysis.naming import some
from pareto.analysis.prediction.forecast import Forecasts
from pareto.analysis.statistics.samples import Bools, Floats
from pareto.partitions.engines.registry import EAGER
from pareto.predict import links
from pareto.predict.search import NAMES, Group, Search, gaps, group_of
from pareto.predict.strikes import PHYSICS, Prospects, losses
from pareto.remote.codecs.registry import NONE
from pareto.remote.link.units import minutes
from pareto.sweep import plan
from pareto.sweep.cell import Cell, Condition
from pareto.sweep.foreseen import Asked, of_links, roughly
from pareto.trial.store import REDONE, Row, Store

Block = tuple[str, str]
"""A model and a network: what is measured on one after the other."""
FORESEEN = 1.1
"""How many times as good something must be for a cell to be foreseen to have no more rounds."""


class Searching:
    """The search of a run. Its state is what the store's rows say: nothing else is remembered."""

    def __init__(
        self, asked: Asked, store: Store | None = None, profiles: Mapping[str, ModelProfile] | None = None
    ) -> None:
        """store: None as long as there is none. profiles: of a search, by model; it may get more (`learn`)."""
        self._sweep, self._models, self._networks = self._asked = asked
        self.store, every = store, plan.cells(asked)
        self.conditions = list(dict.fromkeys(condition for cell in every for condition in cell.conditions))
        self._cells: dict[Group, list[Cell]] = {}
        for cell in every:
            self._cells.setdefault(group_of(cell.condition), []).append(cell)
        self.is_measuring = False
        """Whether trials on disk of which no figure counts are this session's: they are not done again in it."""
        self._block: Block | None = None
        self.learn(profiles or {})

    def learn(self, profiles: Mapping[str, ModelProfile], *, are_all: bool = False) -> None:
        """Take these models' profiles, from now on; decisions follow from them. are_all: where there is none for some
        of the models, physics knows the links alone, as by default."""
        sweep = self._sweep
        self._awaits = sweep.search and not are_all
        self.lacks_profiles = self._awaits and not self._models.keys() <= profiles.keys()
        self._is_by_profile = bool(profiles)
        self._searches = dict[Group, Search]()
        for group, cells in self._cells.items():
            prospects = self._foreseen(group, cells, profiles.get(group[0]))
            self._searches[group] = Search(prospects, sweep.rounds, grows=sweep.grows, cells=cells)
        self._read()

    def update(self) -> None:
        """Decide by the rows on disk, and write what is struck off."""
        self._read()
        assert self.store is not None  # noqa: S101
        self.store.write_struck(self.struck())

    def _read(self) -> None:
        of_groups: dict[tuple[str, ...], list[Row]] = {}
        for row in self.store.rows() if self.store is not None else []:
            if self.is_measuring or row["status"] not in REDONE:
                of_groups.setdefault(tuple(row[name] for name in NAMES), []).append(row)
        for group, each in self._searches.items():
            each.read(of_groups.get(tuple(map(str, group)), []))

    def part(self) -> plan.Plan | None:
        """The next trials of rounds that are the sweep's own, or were added and begun; None when these are whole. Every
        (model, network) has its first round, before the first of them has all its others."""
        rounds: dict[Block, int] = {}
        for group, each in self._searches.items():
            if number := each.decision.round:
                rounds[group[:2]] = min(number, rounds.get(group[:2], number))
        if not rounds:
            last = {each: self.last(each) for each in self.conditions}
            grown = {each: number for each, number in last.items() if number > self._sweep.rounds}
            missing = self.further(grown if self._sweep.grows else {})
            return missing if missing.trials else None
        # To change the network takes as long as many trials do. Within a budget all get as many rounds.
        most = math.inf if self._sweep.budget is not None else 2
        block = min(rounds, key=lambda each: min(rounds[each], most))
        there, number = [each for group, each in self._searches.items() if group[:2] == block], rounds[block]
        of_round = [each for each in there if each.decision.round == number]
        due = {cell for each in of_round for cell in each.where(each.decision.due)}
        done = [cell for each in there for cell in each.where(each.tried.any(axis=0))]
        short: set[Cell] = set()
        if number == 1 and not (self._is_by_profile or self._awaits):
            # What needs no link, or the link alone, says which of the others are ruled out.
            crosses = {cell for cell in due if cell.cuts[0] and self._models[cell.model].crossing(cell.cuts)}
            due = due - crosses or due
            short = {cell for each in there for cell in each.ruled_out(each.medians)}
        fresh, self._block = self._block not in (None, block), block
        return self._some(number, due, block, done=done, short=short, fresh=fresh)

    def _some(self, number: int, due: Set[Cell], block: Block, **how: Any) -> plan.Plan:
        """These cells in a round of this number, in the order of its part that the block is."""
        models, networks = {block[0]: self._models[block[0]]}, {block[1]: self._networks[block[1]]}
        return plan.in_rounds((self._sweep, models, networks), [number], lambda cell, _: cell in due, **how)

    def expected(self) -> plan.Plan:
        """The rest of the sweep's own rounds, as far as can be foreseen: cells clearly behind by what was measured or
        else foreseen have round 1, or in a search none."""
        parts: dict[tuple[int, Block], set[Cell]] = {}
        short: set[Cell] = set()
        for group, each in self._searches.items():
            known, seen = each.prospects.expected, each.medians
            if np.isnan(known).any():
                known = self._roughly(each.cells)
            known = np.where(np.isnan(seen), known, seen)
            most = np.where(each.behind(known, known, FORESEEN), not self._sweep.search, self._sweep.rounds)
            most[each.decision.when > 0] = 0
            for number in range(1, self._sweep.rounds + 1):
                left = (most >= number) & ~each.tried[number - 1 : number].any(axis=0)
                parts.setdefault((number, group[:2]), set()).update(each.where(left))
            short.update(each.ruled_out(known))
        trials: list[plan.Trial] = []
        for number, block in sorted(parts, key=lambda part: (part[0] > 1, part[1], part[0])):
            fresh = not trials or trials[-1].cell.condition[:2] != block
            how = {"fresh": fresh, "short": short if number == 1 else ()}
            trials.extend(self._some(number, parts[number, block], block, **how).trials)
        return plan.Plan(tuple(trials), self._sweep.rounds)

    def further(self, numbers: Mapping[Condition, int]) -> plan.Plan:
        """The trials that added rounds of these conditions, by number, lack: of all cells not struck off before.

        A round has all that is searched together, of whatever codec. One that makes up for others is no added round:
        `decide` knows what belongs to it.
        """
        due: dict[int, set[Cell]] = {}
        for group, number in {group_of(each): number for each, number in numbers.items()}.items():
            each = self._searches[group]
            before, tried = each.after(number - 1), each.tried[number - 1 : number]
            missing = (before.when == 0) & ~tried.any(axis=0) & (before.round == 0)
            due.setdefault(number, set()).update(each.where(missing))
        return plan.in_rounds(self._asked, sorted(due), lambda cell, number: cell in due[number])

    def last(self, condition: Condition) -> int:
        """The last round of what is searched together with a condition's cells."""
        return len(self._searches[group_of(condition)].tried)

    def hardest(self, part: plan.Plan, left_s: float, pace: float) -> plan.Plan | None:
        """The cells of a round whose place is least clear, as many as fit into the time; None for fewer than two."""
        clear: dict[Cell, float] = {}
        for each in self._searches.values():
            least = np.full(len(each.cells), np.inf)
            for those in each.prospects.members:
                least[those] = np.minimum(least[those], gaps(each.measured[:, those]))
            clear |= zip(each.cells, least, strict=True)
        order = sorted(part.trials, key=lambda trial: clear[trial.cell])
        spent_s = itertools.accumulate(trial.estimate_s * pace for trial in order)
        kept = {trial.cell for trial, until_s in zip(order, spent_s, strict=True) if until_s <= left_s}
        if len(kept) < 2:
            return None
        return plan.Plan(tuple(trial for trial in part.trials if trial.cell in kept), part.rounds)

    def struck(self) -> list[Row]:
        """A row of struck.csv for each cell that is struck off."""
        rows, run = list[Row](), self.store.run if self.store is not None else ""
        for each in self._searches.values():
            when, strikes = each.decision.when, each.decision.strikes
            by_physics = (strikes.how == PHYSICS)[:, None]
            at = np.where(by_physics, each.prospects.bound, each.medians)
            for number in np.flatnonzero(when):
                cell, by = each.cells[number], each.cells[strikes.by[number]]
                rows.append(
                    {
                        "run": run,
                        **cell.columns,
                        "point_name": cell.point_name,
                        "round": int(when[number]),
                        "how": strikes.how[number],
                        "latency_s": float(np.exp(at[number, 0])),
                        "throughput_ips": float(np.exp(-at[number, 1])),
                        "payload_bytes": self._models[cell.model].points[cell.cuts[0]][1] * cell.batch_size,
                        "by_point": by.point,
                        "by_backend": by.backend,
                        "probability": float(strikes.chance[number]),
                    }
                )
        return rows

    def summary(self) -> list[str]:
        """Lines on how the cells are settled, and on bounds that do not hold."""
        self.update()
        return [*(f"error: {line}" for line in self._below()), self._words()]

    def _below(self) -> Iterator[str]:
        """A line for each group in which a cell was measured below its bound, so that no physics strikes off."""
        of, then = ("model profile", "; make the profile anew") if self._is_by_profile else ("links", "")
        for (model, netem, _, engine, *_), each in self._searches.items():
            cells = each.where(each.decision.strikes.below)
            broken = [f"{cell.backend} {cell.point} {cell.codec}".removesuffix(f" {NONE}") for cell in cells]
            if broken:
                by = f" by {engine}" if engine != EAGER else ""
                yield (
                    f"{model} at {netem}{by}: {some(broken)} measured better than the bound by the {of}: no cell is "
                    f"struck off by physics there{then}"
                )

    def _words(self) -> str:
        """`44 cells: 6 in 6 rounds, 9 in 1, 29 by physics; 3 min 10 s, all cells would take 14 min 20 s`."""
        took_s, tried = dict[tuple[Cell, int], float](), Counter[int]()
        open_ = physics = 0
        for each in self._searches.values():
            rounds = each.tried.sum(axis=0)
            tried.update(rounds[rounds > 0].tolist())
            how = each.decision.strikes.how[rounds == 0]
            physics, open_ = physics + int((how == PHYSICS).sum()), open_ + int((how != PHYSICS).sum())
            for number, place in np.argwhere(each.tried):
                took_s[each.cells[place], number + 1] = each.took_s[number, place]
        words = [f"{count} in {number}" for number, count in sorted(tried.items(), reverse=True)]
        if words:
            words[0] += " rounds" if max(tried) > 1 else " round"
        words += [f"{count} {what}" for count, what in ((physics, "by physics"), (open_, "open")) if count]
        whole = plan.make(self._asked)
        estimates_s = {(trial.cell, trial.round): trial.estimate_s for trial in whole.trials}
        paces = [took_s[place] / estimates_s[place] for place in took_s.keys() & estimates_s.keys()]
        open_s = sum(estimates_s[place] for place in estimates_s.keys() - took_s.keys())
        # The median: the first trial of a network took the time to open every connection as well.
        every_s = sum(took_s.values()) + open_s * (float(np.median(paces)) if paces else 1.0)
        sessions = self.store.manifest()["sessions"] if self.store is not None else []
        profiling_s = sum(float(session.get("profiling_s") or 0) for session in sessions)
        spent = f" with the model profile's {minutes(profiling_s)}" if profiling_s >= 1 else ""
        return (
            f"{tried.total() + physics + open_} cells: {', '.join(words)}; "
            f"{minutes(sum(took_s.values()) + profiling_s)}{spent}, all cells would take {minutes(every_s)}"
        )

    def _roughly(self, cells: Sequence[Cell]) -> Floats:
        """The figures that the plan foresees: cells x 2, `losses`."""
        foreseen = [roughly(cell, self._sweep, self._models, self._networks) for cell in cells]
        return losses(*np.array(foreseen).T)

    def _foreseen(self, group: Group, cells: Sequence[Cell], profile: ModelProfile | None) -> Prospects:
        _, netem, batch_size, engine, in_flight, *_ = group
        tolerance, twins = self._sweep.link_tolerance, None
        known = np.full((3, len(cells), 2), np.nan)
        if profile is not None:
            ways = [(cell.transport, cell.codec) for cell in cells]
            for transport, codec in dict.fromkeys(ways):
                mine = [number for number, way in enumerate(ways) if way == (transport, codec)]
                case = links.case(netem, self._networks[netem], tolerance, batch_size, in_flight, codec)
                splits = np.array([cells[each].cuts for each in mine])
                said = Forecasts(profile, case, transport).of(splits, engine)
                usual, errors, best = np.split(np.array([*said.values()]), 3)
                known[:, mine] = losses(*usual), errors.T, losses(*best)
        elif not self._awaits:
            least = [of_links(cell, self._models, self._networks, tolerance) for cell in cells]
            known[0], known[2] = self._roughly(cells), losses(*np.array(least).T)
            told = pd.DataFrame([cell.columns for cell in cells])
            numbers = (told.groupby(by, sort=False).ngroup() for by in (["point", "codec"], "backend"))
            twins = np.array([*numbers]).T if told["backend"].nunique() > 1 else None
        expected, error, bound = known
        accuracy = np.array([self._models[cell.model].accuracy_of(cell) for cell in cells])
        moves = profile is not None and engine == EAGER
        return Prospects(expected, error, bound, self._fronts(cells), accuracy, twins, moves)

    def _fronts(self, cells: Sequence[Cell]) -> Bools:
        """The fronts that each cell may be on: cells x fronts. Each codec has one; without a search each backend of a
        codec has, and cells where nothing crosses are on all of these."""
        of_cells = [{condition[3] for condition in cell.conditions} for cell in cells]
        codecs = dict.fromkeys(codec for of_cell in of_cells for codec in sorted(of_cell))
        on = np.array([[codec in of_cell for codec in codecs] for of_cell in of_cells])
        if self._sweep.search:
            return on
        backend = np.array([cell.backend for cell in cells])
        is_free = np.array([not self._models[cell.model].crossing(cell.cuts) for cell in cells])
        own = (backend[:, None] == pd.unique(backend)) | is_free[:, None]
        return np.asarray((on[:, :, None] & own[:, None]).reshape(len(cells), -1))

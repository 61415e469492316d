"""A search on a run: what it measures next by the rows on disk, what it has struck off, and that in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.model_profile import ModelProfile
from analysis.prediction import forecast
from analysis.statistics.samples import Bools, Floats
from pareto import plan, predicting
from pareto.console import duration
from pareto.plan import ModelFacts, Plan
from pareto.search import Decision, Search, gaps
from pareto.store import Row, Store
from pareto.strikes import PHYSICS, Prospects, losses
from pareto.sweep import Cell, Condition, Networks, Sweep

NAMED = 3
"""Cells measured below their bounds that are named in a line."""


class Searching:
    """The search of a run. Its state is what the store's rows say: nothing else is remembered."""

    def __init__(
        self,
        sweep: Sweep,
        models: Mapping[str, ModelFacts],
        networks: Networks,
        store: Store,
        profiles: Mapping[str, ModelProfile],
    ) -> None:
        """profiles: by model; of the cells of one without, nothing is known before they are measured (`learn`)."""
        self._sweep, self._models, self._networks, self._store = sweep, models, networks, store
        every = plan.cells(sweep, models, networks)
        self.cells: dict[Condition, list[Cell]] = {}
        for cell in every:
            self.cells.setdefault(cell.condition, []).append(cell)
        self.learn(profiles)
        self.is_measuring = False
        """Whether failed trials on disk are this session's: they are not done again before the next one."""
        self._decisions: dict[Condition, Decision] = {}

    def learn(self, profiles: Mapping[str, ModelProfile]) -> None:
        """Take these models' profiles, from now on; decisions follow from them."""
        self.lacks_profiles = not self._models.keys() <= profiles.keys()
        self._prospects = {
            condition: self._foreseen(condition, cells, profiles.get(condition[0]))
            for condition, cells in self.cells.items()
        }
        grows = self._sweep.until is not None or self._sweep.budget is not None
        self._searches = {
            condition: Search(known, self._sweep.trials, grows=grows)
            for condition, known in self._prospects.items()
        }

    def update(self) -> None:
        """Decide by the rows on disk, and write what is struck off."""
        rows = self._store.rows()
        self._tables = {
            condition: Trials.of(rows, condition, cells, with_failed=self.is_measuring)
            for condition, cells in self.cells.items()
        }
        self._decisions = {condition: self._decide(condition) for condition in self.cells}
        self._store.write_struck(self.struck())

    def part(self) -> Plan | None:
        """What is measured next of the sweep's own rounds, after `update`; None when every cell is settled."""
        rounds = [decision.round for decision in self._decisions.values() if decision.round]
        if not rounds:
            return None
        due = {
            cell
            for condition, decision in self._decisions.items()
            if decision.round == min(rounds)
            for cell, is_due in zip(self.cells[condition], decision.due, strict=True)
            if is_due
        }
        return plan.some(self._sweep, self._models, self._networks, min(rounds), due)

    def further(self, conditions: Mapping[Condition, int]) -> Plan:
        """A round of what is not struck off in these conditions, each with the number of its own, after `update`."""
        due: dict[int, set[Cell]] = {}
        for condition, number in conditions.items():
            due.setdefault(number, set()).update(self.left(condition))
        return self._rounds(due)

    def unfinished(self) -> Plan | None:
        """What is left of added rounds that were interrupted, after `update`; None where they are whole.

        An added round has what was not struck off before it. A round that makes up for others is not one: `decide`
        knows what belongs to it.
        """
        due: dict[int, set[Cell]] = {}
        rounds = self._sweep.trials
        for condition, cells in self.cells.items():
            table, number = self._tables[condition], self.last(condition)
            if number <= rounds or table.tried[-1].all():
                continue
            before = self._decide(condition, number - 1)
            if before.round == 0:
                missing = (before.when == 0) & ~table.tried[-1]
                due.setdefault(number, set()).update(cells[place] for place in np.flatnonzero(missing))
        due = {number: cells for number, cells in due.items() if cells}
        return self._rounds(due) if due else None

    def _rounds(self, due: Mapping[int, set[Cell]]) -> Plan:
        """These cells of each round."""
        parts = [
            plan.some(self._sweep, self._models, self._networks, number, cells)
            for number, cells in sorted(due.items())
        ]
        return Plan(tuple(trial for part in parts for trial in part.trials), self._sweep.trials)

    def _decide(self, condition: Condition, rounds: int | None = None) -> Decision:
        """The decision after so many rounds of a condition; None: after all."""
        table = self._tables[condition]
        return self._searches[condition].decide(table.measured[:rounds], table.tried[:rounds])

    def last(self, condition: Condition) -> int:
        """The last round that any cell of the condition was in."""
        return len(self._tables[condition].tried)

    def left(self, condition: Condition) -> list[Cell]:
        """The condition's cells that are not struck off."""
        when = self._decisions[condition].when
        return [cell for cell, struck in zip(self.cells[condition], when, strict=True) if not struck]

    def hardest(self, part: Plan, left_s: float, pace: float) -> Plan | None:
        """The cells of a round whose place is least clear, as many as fit into the time; None for fewer than two."""
        clear: dict[Cell, float] = {}
        for condition, cells in self.cells.items():
            clear |= zip(cells, gaps(self._tables[condition].measured), strict=True)
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
        rows = []
        for condition, cells in self.cells.items():
            decision, measured = self._decisions[condition], self._tables[condition].measured
            at = np.where(
                (decision.strikes.how == PHYSICS)[:, None],
                self._prospects[condition].bound,
                _medians(measured),
            )
            for number in np.flatnonzero(decision.when):
                cell, by = cells[number], cells[decision.strikes.by[number]]
                rows.append(
                    {
                        "run": self._store.run,
                        "model": cell.model,
                        "point": cell.point,
                        "point_name": cell.point_name,
                        "backend": cell.backend,
                        "netem": cell.netem,
                        "batch_size": cell.batch_size,
                        "codec": cell.codec,
                        "in_flight_asked": cell.in_flight,
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
        """A line for each condition in which a cell was measured below its bound, so that no physics strikes off."""
        lines = []
        for condition, decision in self._decisions.items():
            broken = [
                f"{cell.backend} {cell.point}"
                for cell, is_below in zip(self.cells[condition], decision.strikes.below, strict=True)
                if is_below
            ]
            if broken:
                more = f" and {len(broken) - NAMED} more" if len(broken) > NAMED else ""
                lines.append(
                    f"{condition[0]} at {condition[1]}: {', '.join(broken[:NAMED])}{more} measured better than the "
                    "bound by the model profile: no cell is struck off by physics there; make the profile anew"
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
        for condition, cells in self.cells.items():
            table, how = self._tables[condition], self._decisions[condition].strikes.how
            counts = table.tried.sum(axis=0)
            tried.update(counts[counts > 0].tolist())
            physics += int((how[counts == 0] == PHYSICS).sum())
            took_s += np.nansum(table.took_s)
            for number, cell in enumerate(cells):
                for place in range(self._sweep.trials):
                    estimate_s = estimates[cell, place + 1]
                    if place < len(table.tried) and table.tried[place, number]:
                        paces.append(table.took_s[place, number] / estimate_s)
                    else:
                        open_s += estimate_s
        total = sum(map(len, self.cells.values()))
        words = [f"{count} in {number}" for number, count in sorted(tried.items(), reverse=True)]
        if words:
            words[0] += " rounds" if max(tried) > 1 else " round"
        open_ = total - tried.total() - physics
        words += [f"{count} {what}" for count, what in ((physics, "by physics"), (open_, "open")) if count]
        # The median: the first trial of a network took the time to open every connection as well.
        every_s = took_s + open_s * (float(np.median(paces)) if paces else 1.0)
        return (
            f"{total} cells: {', '.join(words)}; {duration(took_s)}, all cells would take {duration(every_s)}"
        )

    def _foreseen(
        self, condition: Condition, cells: Sequence[Cell], profile: ModelProfile | None
    ) -> Prospects:
        _, netem, batch_size, _, in_flight = condition
        result = Prospects.unknown(len(cells))
        if profile is None:
            return result
        usual, best = predicting.networks(self._networks[netem])
        slack = predicting.slack(self._sweep.link_tolerance)
        for transport in {cell.transport for cell in cells}:
            mine = [number for number, cell in enumerate(cells) if cell.transport == transport]
            splits = np.array([cells[number].cuts for number in mine])
            foreseen = forecast.of(
                profile, splits, usual, transport, batch_size, in_flight, at_best=best, slack=slack
            )
            result.expected[mine] = losses(foreseen.latency_s, foreseen.throughput_ips)
            result.error[mine] = np.stack([foreseen.latency_error, foreseen.throughput_error], axis=1)
            result.bound[mine] = losses(foreseen.least_latency_s, foreseen.most_throughput_ips)
        return result


@dataclass(frozen=True)
class Trials:
    """A condition's trials so far: `measured` and `tried` as a `Search` takes them, and what they took.

    took_s: rounds x cells, NaN without a trial.
    """

    measured: Floats
    tried: Bools
    took_s: Floats

    @classmethod
    def of(
        cls,
        rows: Sequence[Mapping[str, str]],
        condition: Condition,
        cells: Sequence[Cell],
        *,
        with_failed: bool = False,
    ) -> Trials:
        place = {(cell.point, cell.backend): number for number, cell in enumerate(cells)}
        key = tuple(map(str, condition))
        names = ("model", "netem", "batch_size", "codec", "in_flight_asked")
        mine = [
            row
            for row in rows
            if (with_failed or row["status"] != "failed")
            and tuple(row[name] for name in names) == key
            and (row["point"], row["backend"]) in place
        ]
        count = max((int(row["round"]) for row in mine), default=0)
        figures = np.full((count, len(cells), 2), np.nan)
        tried = np.zeros((count, len(cells)), dtype=bool)
        took_s = np.full((count, len(cells)), np.nan)
        for row in mine:
            at = int(row["round"]) - 1, place[row["point"], row["backend"]]
            tried[at] = True
            took_s[at] = float(row["wall_s"] or 0)
            if row["status"] == "ok":
                figures[at] = float(row["latency_s"] or "nan"), float(row["throughput_ips"] or "nan")
        return cls(losses(figures[..., 0], figures[..., 1]), tried, took_s)


def _medians(measured: Floats) -> Floats:
    """The medians over rounds, NaN without a valid trial: cells x 2."""
    medians = np.full(measured.shape[1:], np.nan)
    known = ~np.isnan(measured).all(axis=(0, 2))
    medians[known] = np.nanmedian(measured[:, known], axis=0)
    return medians

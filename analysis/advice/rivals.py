"""What a conclusion leaves out: points without a valid trial, if their bounds allow that they are better."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.advice.observed import CELL, WORK
from analysis.fronts.objectives import DEFAULT
from analysis.fronts.where import Where
from analysis.naming import condition_title
from analysis.points import CONDITION, NO_CODEC, NONE, competing, cuts, nothing_crosses
from analysis.standing import stands
from analysis.wording import duration, place

FIGURES = {
    "latency": ("latency_s", "latency_bound_s"),
    "throughput": ("throughput_ips", "throughput_bound_ips"),
}
"""What is measured of each objective, and the column of its bound."""
MOST_NAMED = 3


@dataclass(frozen=True)
class Rival:
    """A point, or one way to run it, without a valid trial. whole: no way to run the point has one.

    bound: the least seconds that a request can take there, or the most images/s; NaN where it is not known.
    """

    point: str
    place: str
    whole: bool
    bound: float


@dataclass(frozen=True)
class Tried:
    """The trials of one condition, valid or not, of several codecs or engines if they compete; columns as in
    trials.csv. where: a constraint (`analysis.fronts.where`): cells that it rules out are no rivals.
    """

    trials: pd.DataFrame
    where: str = ""

    def lost(self, objective: str = "latency") -> pd.DataFrame:
        """One row a cell that was tried and has no valid figure of an objective.

        The rows have what is the same for all trials of a cell, the best that its bounds allow, and `whole`: no cell of
        its point has a figure.
        """
        figure, _ = FIGURES[objective]
        rows = competing(self.trials)
        alone = nothing_crosses(rows)
        rows = rows.assign(
            backend=rows["backend"].astype("str").where(~alone, NONE),
            codec=rows["codec"].astype("str").where(~alone, NO_CODEC),
            engine=rows.get(WORK, ""),
        )
        bounds = [bound for _, bound in FIGURES.values()]
        rows = rows.reindex(columns=[*dict.fromkeys([*rows, *bounds])])
        has = stands(rows, objective) & rows[figure].notna()
        has_cell = has.groupby([rows[name] for name in CELL], observed=True).transform("any")
        has_point = has.groupby(rows["point"], observed=True).transform("any")
        groups = rows.assign(whole=~has_point)[~has_cell].groupby(CELL, observed=True, sort=False)
        least, most = (groups[name] for name in bounds)
        cells = (
            groups.first().assign(**dict(zip(bounds, (least.min(), most.max()), strict=True))).reset_index()
        )
        # What was measured cannot be trusted: it decides about no constraint.
        unknown = cells.assign(**{name: np.nan for name, _ in FIGURES.values()})
        return cells[~Where.parse(self.where).fails(unknown)]

    def rivals(self, best: float, objective: str = "latency") -> list[Rival]:
        """The cells without a valid figure of which it is open whether they are better than the best of the others.

        A bound that is not known leaves it open.
        """
        _, bound = FIGURES[objective]
        cells = self.lost(objective)
        worse = cells[bound] >= best if objective == "latency" else cells[bound] <= best
        return [
            Rival(str(row["point"]), place(row), bool(row["whole"]), float(row[bound]))
            for row in cells[~worse].to_dict("records")
        ]


def sentence(rivals: Sequence[Rival], objective: str = "latency") -> str:
    """`points 0, 2 and 3 have no valid latency and could be better: their bounds are from 240 ms`; or nothing."""
    if not rivals:
        return ""
    points = sorted({rival.point for rival in rivals if rival.whole}, key=cuts)
    names = [*points, *dict.fromkeys(rival.place for rival in rivals if not rival.whole)]
    named = ", ".join(names[:MOST_NAMED])
    if len(names) > MOST_NAMED:
        named += f" and {len(names) - MOST_NAMED} more"
    elif len(names) > 1:
        named = " and ".join(named.rsplit(", ", 1))
    head = ("points " if len(points) > 1 else "point ") if points else ""
    several, is_least = len(names) > 1, objective == "latency"
    text = f"{head}{named} {'have' if several else 'has'} no valid {objective} and could be better"
    known = [rival.bound for rival in rivals if not np.isnan(rival.bound)]
    if not known:
        return text
    bound = duration(min(known)) if is_least else f"{max(known):.3g} images/s"
    whose = f"their bounds are {'from' if is_least else 'up to'}" if several else "its bound is"
    return f"{text}: {whose} {bound}"


def beside(best: pd.DataFrame, trials: pd.DataFrame, where: str = "") -> list[str]:
    """`sentence` for each of these rows of a front, which has the least latency of its condition."""
    tried = dict(iter(trials.groupby(CONDITION, dropna=False, observed=True)))
    return [
        sentence(Tried(tried[key], where).rivals(latency_s)) if key in tried else ""
        for *key_, latency_s in best[[*CONDITION, "latency_s"]].itertuples(index=False, name=None)
        if (key := tuple(key_))
    ]


def lacking(
    front: pd.DataFrame, trials: pd.DataFrame, objectives: Sequence[str], where: str
) -> Iterator[str]:
    """At most a line: which cells lack a valid latency or throughput, and could be on the front of their condition.

    front: as from `analysis.fronts.front.front`. A cell could not that is dominated at its bounds by a measured one.
    Bounds are of latency and throughput: where there is another objective, they rule out nothing.
    """
    found: list[str] = []
    conditions = front[CONDITION].drop_duplicates()
    for condition, tried in trials.groupby(CONDITION, dropna=False, observed=True):
        cells = pd.concat([Tried(tried, where).lost(name) for name in FIGURES]).drop_duplicates(CELL)
        rows = front[(front[CONDITION] == pd.Series(condition, index=CONDITION)).all(axis=1)]
        measured = rows[rows["feasible"].astype(bool)][[figure for figure, _ in FIGURES.values()]].dropna()
        for cell in cells.to_dict("records") if len(measured) else ():
            (least_s, most_ips) = (cell[bound] for _, bound in FIGURES.values())
            ahead = (measured["latency_s"] <= least_s) & (measured["throughput_ips"] >= most_ips)
            if not (ahead.any() and tuple(objectives) == DEFAULT):
                where_it_is = f" ({condition_title(cell)})" if len(conditions) > 1 else ""
                found.append(f"{place(cell)}{where_it_is}")
    if found:
        points = "a point lacks" if len(found) == 1 else f"{len(found)} points lack"
        more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
        named = ", ".join(found[:MOST_NAMED])
        yield f"{points} a valid latency or throughput and could be on the front: {named}{more}"

"""A run beside published results: their figures next to ours, and whether their conclusions hold here.

Hardware, weights and inputs differ, so milliseconds do not decide anything. A conclusion is one comparison: of two
sets of cells, one has the better latency or throughput. The best cells of both are tested against each other round by
round, as what slows a whole round slows both, and corrected for the conditions of the conclusion. By how
many times it is better is a number without a unit, so that may be judged, too: by the interval of ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, nextafter
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from pydantic import AfterValidator, BaseModel, Field, PositiveFloat

from pareto.analysis.comparing.paired import Z
from pareto.analysis.fronts.cells import SPREADS, cells
from pareto.analysis.fronts.indicators import nondominated
from pareto.analysis.fronts.where import Where
from pareto.analysis.naming import cell_name, condition_title
from pareto.analysis.runs.load import Runs, load
from pareto.analysis.runs.points import CELL, CONDITION, ROUND
from pareto.analysis.runs.standing import competing, stands
from pareto.analysis.runs.treatments import in_every_codec, pooled
from pareto.analysis.statistics import significance
from pareto.analysis.statistics.noise import Floors, floor_of, floors
from pareto.analysis.statistics.samples import LEAST_VALUES
from pareto.basics.yaml_file import quantity
from pareto.remote.link.units import share

HOLDS, FAILS, UNSURE = "holds", "does not hold", "not sure"
SAME, ABSENT = "the same cell", "not measured here"
"""The verdicts on a conclusion. `SAME`: one cell is the best of both sides. `UNSURE`: the rounds do not tell."""
PIPELINING = "pipelining"
FIGURES = {measure: (column, column) for measure, column in significance.MEASURES.items()} | {
    PIPELINING: ("throughput_ips", "sequential_ips")
}
"""By what a conclusion is about, the columns of its two sides; `PIPELINING`: many requests in flight, and one."""
CLOSE = 1.25
"""A published number of times holds if the whole interval of ours is within 80 to 125 % of it, the limits that are used
for bioequivalence; it does not if none of the interval is."""


def _readable(text: str) -> str:
    Where.parse(text)
    return text


Cells = Annotated[str, AfterValidator(_readable)]
"""A choice of cells: a constraint as of `--where`, in the columns of front.csv."""


Share = Annotated[float, quantity(share), Field(gt=0)]


class _Said(BaseModel, frozen=True, extra="forbid"):
    """A statement. source: where it is published, and where it was read. where: of which cells it is said. run: the
    folder's name, where it is said of one of an artefact's runs.
    """

    says: str
    source: str = ""
    where: Cells = ""
    run: str = ""


class Figure(_Said, frozen=True):
    """A published figure. column: of front.csv, in its unit. sign: how figures here are claimed to compare with it, but
    for a share of it (`within`); without a sign nothing is claimed.
    """

    where: Cells
    column: Literal["latency_s", "throughput_ips", "sequential_ips", "payload_bytes"]
    value: float
    sign: Literal["<", "<=", ">", ">=", "~", ""] = Field("", alias="is")
    within: Share = 0.0

    def verdict(self, low: float, high: float) -> str:
        """The verdict on the claim that a figure whose interval is this makes; empty where nothing is claimed."""
        least, most = (self.value + side * self.within * abs(self.value) for side in (-1, 1))
        least = {"<": -inf, "<=": -inf, ">": nextafter(least, inf)}.get(self.sign, least)
        most = {">": inf, ">=": inf, "<": nextafter(most, -inf)}.get(self.sign, most)
        return _verdict(low, high, least, most) if self.sign else ""


class Conclusion(_Said, frozen=True):
    """A published conclusion: the best of `better` beats the best of `than` by so much, in its authors' words; or with
    `within`, the two differ by no more than this share.

    times: by how many times, if that number is judged.
    """

    better: Cells
    than: Cells
    by: Literal["latency", "throughput", "pipelining"] = "latency"
    published: str = ""
    times: PositiveFloat | None = None
    within: Share = 0.0


class Unjudged(_Said, frozen=True):
    """Published numbers that no run here can be held against. because: what is lacking."""

    because: str


class Front(_Said, frozen=True):
    """A published front of latency and throughput: the points that nothing dominates."""

    points: tuple[str, ...]


class Published(BaseModel, frozen=True, extra="forbid"):
    """The results of a publication, and the sweep that repeats them, if one does.

    differs: what is not the same there. missing: what of it could not be looked up, and is left out.
    """

    title: str
    link: str = ""
    sweep: str = ""
    differs: tuple[str, ...] = ()
    missing: str = ""
    conclusions: tuple[Conclusion, ...] = ()
    fronts: tuple[Front, ...] = ()
    figures: tuple[Figure, ...] = ()
    cannot: tuple[Unjudged, ...] = ()

    @property
    def runs(self) -> list[str]:
        """The runs that something is said of by name."""
        said = (*self.conclusions, *self.fronts, *self.figures)
        return [*dict.fromkeys(each.run for each in said if each.run)]

    def of(self, run: str) -> Published:
        """The part that is said of a run by its name, or of any."""
        kinds = {kind: getattr(self, kind) for kind in Beside._fields}
        kept = {kind: tuple(each for each in said if each.run in ("", run)) for kind, said in kinds.items()}
        return self.model_copy(update=kept)


class Beside(NamedTuple):
    """A row for each conclusion, front and figure, and each condition of the run that it can be seen in; and for each
    that cannot be judged.

    `times`: how many times better (under 1: worse), from `low` to `high` where that is judged; `wins`: in how many of
    the `rounds` that both have it is; `needed`: rounds that can make it sure. Points of fronts have `; ` between.
    """

    conclusions: pd.DataFrame
    fronts: pd.DataFrame
    figures: pd.DataFrame
    cannot: pd.DataFrame


_OF_CONCLUSIONS = [
    *("says", "source", "published", "condition", "by", "better", "than", "better_value", "than_value"),
    *("times", "low", "high", "rounds", "wins", "needed", "p_corrected"),
    *("within", "low_percent", "high_percent", "verdict"),
]
_OF_FRONTS = ["says", "source", "condition", "published", "ours", "both", "unmeasured"]
_OF_FIGURES = ["says", "source", "condition", "cell", "column", "sign", "within", "published"]
_OF_FIGURES += ["ours", "low", "high", "verdict"]


def beside(runs: Runs, published: Published) -> Beside:
    """Set some runs beside what is published. Raises UserError for folders or columns that are not there."""
    trials = load(runs)
    rounds, known = pooled(in_every_codec(competing(trials))), floors(trials)
    rows, by_cell = cells(rounds), rounds[stands(rounds)].groupby(CELL, dropna=False, observed=True)
    conclusions = [
        each.model_dump(exclude={"better", "than", "times"}) | row
        for each in published.conclusions
        for row in _judged(each, rows, by_cell, known) or [{"condition": "", "verdict": ABSENT}]
    ]
    fronts = [each.model_dump() | row for each in published.fronts for row in _fronts(each, rows)]
    figures = [
        each.model_dump() | {"published": each.value} | row
        for each in published.figures
        for row in [*_figures(each, rows)] or [{"condition": "", "cell": "", "verdict": ABSENT}]
    ]
    return Beside(
        pd.DataFrame(conclusions, columns=_OF_CONCLUSIONS),
        pd.DataFrame(fronts, columns=_OF_FRONTS),
        pd.DataFrame(figures, columns=_OF_FIGURES),
        pd.DataFrame([each.model_dump() for each in published.cannot], columns=["says", "source", "because"]),
    )


def _conditions(rows: pd.DataFrame, where: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield what is compared, with its name: the cells of each condition that satisfy the constraint."""
    chosen = rows[Where.parse(where).holds(rows)]
    for _, of_condition in chosen.groupby(CONDITION, dropna=False, observed=True):
        yield condition_title(of_condition.iloc[0]), of_condition


def _judged(conclusion: Conclusion, rows: pd.DataFrame, by_cell: Any, floors: Floors) -> list[dict[str, Any]]:
    """A row for each condition that has cells of both sides, corrected for their number."""
    columns, sign = FIGURES[conclusion.by], 1 if conclusion.by == "latency" else -1
    found: list[dict[str, Any]] = []
    for condition, known in _conditions(rows[rows[[*columns]].notna().all(axis=1)], conclusion.where):
        sides = [known[Where.parse(text).holds(known)] for text in (conclusion.better, conclusion.than)]
        if any(side.empty for side in sides):
            continue
        best, other = (side.loc[(sign * side[of]).idxmin()] for side, of in zip(sides, columns, strict=True))
        row: dict[str, Any] = {"condition": condition, "better": cell_name(best), "than": cell_name(other)}
        row |= {"better_value": best[columns[0]], "than_value": other[columns[1]]}
        row["times"] = (row["than_value"] / row["better_value"]) ** sign
        found.append(row)
        if (best[CELL] == other[CELL]).all() and conclusion.by != PIPELINING:
            row["verdict"] = SAME
            continue
        # The figures of both cells in the rounds that both have.
        own = [
            by_cell.get_group(tuple(cell[CELL])).groupby(ROUND)[of].median()
            for cell, of in zip((best, other), columns, strict=True)
        ]
        pairs = pd.concat(own, axis=1, join="inner", keys=["better", "than"]).dropna()
        differences = significance.relative(pairs["better"], pairs["than"]).to_numpy(float)
        row |= {"rounds": len(differences), "wins": int((sign * differences > 0).sum())}
        if conclusion.times and len(pairs):
            row |= _repeated(conclusion.times, (pairs["than"] / pairs["better"]) ** sign)
        elif conclusion.within:
            noise = max(float(floor_of(floors, cell).of([columns[0]])[0]) for cell in (best, other))
            row |= _alike(conclusion.within, pairs["than"] / pairs["better"], noise)
        else:
            (row["p_value"],) = significance.signed_rank(differences[None, :])
    p_values = significance.holm([row.get("p_value", np.nan) for row in found])
    needed = significance.pairs_needed(int(np.count_nonzero(~np.isnan(p_values))))
    for row, p_value in zip(found, p_values, strict=True):
        if "verdict" not in row:
            won = 2 * row["wins"] > row["rounds"]
            # The medians and the pairs may disagree: then neither is believed.
            is_sure = p_value < significance.ALPHA and won == (row["times"] > 1)
            verdict = (HOLDS if won else FAILS) if is_sure else UNSURE
            row |= {"p_corrected": p_value, "needed": needed, "verdict": verdict}
    return found


def _repeated(published: float, ours: pd.Series) -> dict[str, Any]:
    """The median over rounds of our number of times, its interval, and the verdict on the published one."""
    (low,), (high,) = significance.median_intervals(ours.to_numpy(float)[None, :])
    verdict = _verdict(low, high, published / CLOSE, published * CLOSE)
    return {"times": ours.median(), "low": low, "high": high, "needed": LEAST_VALUES, "verdict": verdict}


def _alike(within: float, ratios: pd.Series, noise: float) -> dict[str, Any]:
    """The 95 % interval of `than` less `better`, round by round, which holds the noise floor; and the verdict on
    whether they differ by no more than a share."""
    percent = 100 * (ratios - 1).to_numpy(float)[None, :]
    (middle,), ends = significance.medians(percent), significance.median_intervals(percent)
    low, high = (
        middle + side * np.hypot(end - middle, Z * np.sqrt(2) * 100 * noise)
        for (end,), side in zip(ends, (-1, 1), strict=True)
    )
    verdict = _verdict(low, high, -100 * within, 100 * within)
    return {"low_percent": low, "high_percent": high, "needed": LEAST_VALUES, "verdict": verdict}


def _verdict(low: float, high: float, least: float, most: float) -> str:
    """The verdict on whether a figure is within bounds, by its interval, which too few rounds leave NaN."""
    return HOLDS if least <= low and high <= most else FAILS if high < least or low > most else UNSURE


def _fronts(front: Front, rows: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the two fronts of each condition: ours by the medians."""
    for condition, known in _conditions(rows, front.where):
        figures = known[[*significance.MEASURES.values()]].to_numpy(float).T
        ours = [*known.loc[nondominated(*figures), "point"]]
        measured = {*known.loc[known["rounds"] > 0, "point"]}
        points = {"published": front.points, "ours": ours}
        points["both"] = [point for point in front.points if point in ours]
        points["unmeasured"] = [point for point in front.points if point not in measured]
        yield {"condition": condition} | {name: "; ".join(map(str, each)) for name, each in points.items()}


def _figures(figure: Figure, rows: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield our figure of each cell that the published one is of, with its 95 % interval: bytes are what they are, and
    of rates of single requests none is known."""
    column = figure.column if figure.column == "payload_bytes" else "unknown"
    ends = [SPREADS.get(figure.column, column).format(end) for end in ("low", "high")]
    for condition, known in _conditions(rows[rows[figure.column].notna()], figure.where):
        for row in known.to_dict("records"):
            low, high = (row.get(end, np.nan) for end in ends)
            ours = {"cell": cell_name(row), "ours": row[figure.column], "low": low, "high": high}
            yield {"condition": condition, **ours, "verdict": figure.verdict(low, high)}

"""A run beside published results: their figures next to ours, and whether their conclusions hold here.

Hardware, weights and inputs differ, so milliseconds do not decide anything. A conclusion is one comparison: of two
sets of cells, one has the better latency or throughput. The best cells of both are tested against each other round by
round, as what slows a whole round slows both, and corrected for the conditions of the conclusion.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import AfterValidator, BaseModel, ConfigDict

from pareto.analysis.fronts.cells import cells
from pareto.analysis.fronts.indicators import nondominated
from pareto.analysis.fronts.where import Where
from pareto.analysis.naming import cell_name, condition_title
from pareto.analysis.points import CELL, CONDITION, ROUND, competing, in_every_codec, pooled
from pareto.analysis.runs.load import Runs, load
from pareto.analysis.standing import stands
from pareto.analysis.statistics import significance

HOLDS, FAILS, UNSURE, SAME, ABSENT = (
    "holds",
    "does not hold",
    "not sure",
    "the same cell",
    "not measured here",
)
"""The verdicts on a conclusion. `SAME`: one cell is the best of both sides. `UNSURE`: the rounds do not tell."""


def _readable(text: str) -> str:
    Where.parse(text)
    return text


Cells = Annotated[str, AfterValidator(_readable)]
"""A choice of cells: a constraint as of `--where`, in the columns of front.csv."""


class _Keys(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Figure(_Keys):
    """A published figure. column: of front.csv, in its unit. source: where it is published, and where it was read."""

    says: str
    source: str
    where: Cells
    column: Literal["latency_s", "throughput_ips", "payload_bytes"]
    value: float


class Conclusion(_Keys):
    """A published conclusion: among the cells of `where`, the best of `better` beats the best of `than`.

    by: what is the better. published: by how much, in its authors' words.
    """

    says: str
    source: str
    better: Cells
    than: Cells
    where: Cells = ""
    by: Literal["latency", "throughput"] = "latency"
    published: str = ""


class Front(_Keys):
    """A published front of latency and throughput: the points of the cells of `where` that nothing dominates."""

    says: str
    source: str
    points: tuple[str, ...]
    where: Cells = ""


class Published(_Keys):
    """The results of a publication, and the sweep that repeats them.

    differs: what is not the same there. missing: what of it could not be looked up, and is left out.
    """

    title: str
    link: str
    sweep: str
    differs: tuple[str, ...]
    missing: str = ""
    conclusions: tuple[Conclusion, ...] = ()
    fronts: tuple[Front, ...] = ()
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True)
class Beside:
    """Frames: a row for each conclusion, front and figure, and each condition of the run that it can be seen in.

    conclusions: says, source, published, condition, by, better, than (cells), better_value, than_value, times (how many
    times better; under 1: worse), rounds (that both have), wins (in how many of them it is
    better), needed (rounds that can make it sure), p_corrected, verdict. fronts: says, source,
    condition, published, ours, both, unmeasured (points with `; ` between). figures: says, source, condition, cell,
    column, published, ours.
    """

    conclusions: pd.DataFrame
    fronts: pd.DataFrame
    figures: pd.DataFrame


def beside(runs: Runs, published: Published) -> Beside:
    """Set some runs beside what is published. Raises UserError for folders or columns that are not there."""
    rounds = pooled(in_every_codec(competing(load(runs))))
    rows = cells(rounds)
    rounds = rounds[stands(rounds)]
    judged = [row for each in published.conclusions for row in _corrected([*_judged(each, rows, rounds)])]
    return Beside(
        pd.DataFrame(judged, columns=_OF_CONCLUSIONS),
        pd.DataFrame([row for each in published.fronts for row in _fronts(each, rows)], columns=_OF_FRONTS),
        pd.DataFrame(
            [row for each in published.figures for row in _figures(each, rows)], columns=_OF_FIGURES
        ),
    )


_OF_CONCLUSIONS = [
    *("says", "source", "published", "condition", "by", "better", "than", "better_value", "than_value"),
    *("times", "rounds", "wins", "needed", "p_corrected", "verdict"),
]
_OF_FRONTS = ["says", "source", "condition", "published", "ours", "both", "unmeasured"]
_OF_FIGURES = ["says", "source", "condition", "cell", "column", "published", "ours"]
_ABSENT: dict[str, Any] = {"condition": "", "verdict": ABSENT}


def _corrected(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the rows of one conclusion with what the tests say, corrected for their number."""
    p_values = significance.holm([row.get("p_value", np.nan) for row in rows])
    needed = significance.pairs_needed(int(np.count_nonzero(~np.isnan(p_values))))
    for row, p_value in zip(rows, p_values, strict=True):
        if row["verdict"]:
            yield row
            continue
        won = 2 * row["wins"] > row["rounds"]
        # The medians and the pairs may disagree: then neither is believed.
        is_sure = p_value < significance.ALPHA and won == (row["times"] > 1)
        verdict = (HOLDS if won else FAILS) if is_sure else UNSURE
        yield row | {"p_corrected": p_value, "needed": needed, "verdict": verdict}


def _judged(conclusion: Conclusion, rows: pd.DataFrame, rounds: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield a row for each condition that has cells of both sides; one without a condition where none has."""
    said = {name: getattr(conclusion, name) for name in ("says", "source", "published", "by")}
    column = significance.MEASURES[conclusion.by]
    seen = False
    for condition, of_condition in _conditions(rows, conclusion.where):
        known = of_condition[of_condition[column].notna()]
        sides = [known[Where.parse(text).holds(known)] for text in (conclusion.better, conclusion.than)]
        if any(side.empty for side in sides):
            continue
        seen = True
        best = [_best(side, column) for side in sides]
        better, than = (row[column] for row in best)
        measured = {
            **{"condition": condition, "better": cell_name(best[0]), "than": cell_name(best[1])},
            **{"better_value": better, "than_value": than},
            "times": than / better if conclusion.by == "latency" else better / than,
        }
        if (best[0][CELL] == best[1][CELL]).all():
            yield said | measured | {"verdict": SAME}
            continue
        pairs = _pairs(best, rounds, column)
        differences = significance.relative(pairs["better"], pairs["than"])
        (p_value,) = significance.signed_rank(differences.to_numpy(float)[None, :])
        wins = differences.gt(0) if conclusion.by == "latency" else differences.lt(0)
        tested = {"rounds": len(pairs), "wins": int(wins.sum()), "p_value": p_value, "verdict": ""}
        yield said | measured | tested
    if not seen:
        yield said | _ABSENT


def _conditions(rows: pd.DataFrame, where: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield what is compared, with its name: the cells of each condition that satisfy the constraint."""
    chosen = rows[Where.parse(where).holds(rows)]
    for _, of_condition in chosen.groupby(CONDITION, dropna=False, observed=True):
        yield condition_title(of_condition.iloc[0]), of_condition


def _best(rows: pd.DataFrame, column: str) -> pd.Series:
    values = rows[column]
    return rows.loc[values.idxmax() if column == significance.MEASURES["throughput"] else values.idxmin()]


def _pairs(best: Sequence[pd.Series], rounds: pd.DataFrame, column: str) -> pd.DataFrame:
    """The figures of two cells in the rounds that both have: `better` and `than`."""
    sides = []
    for cell, name in zip(best, ("better", "than"), strict=True):
        is_of = np.logical_and.reduce([rounds[key].eq(cell[key]).to_numpy() for key in CELL])
        own = rounds.loc[is_of].groupby(ROUND)[column].median()
        sides.append(own.rename(name))
    return pd.concat(sides, axis=1, join="inner").dropna()


def _fronts(front: Front, rows: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the two fronts of each condition: ours by the medians."""
    for condition, known in _conditions(rows, front.where):
        figures = (known[column].to_numpy(float) for column in significance.MEASURES.values())
        measured = set(known.loc[known["rounds"] > 0, "point"])
        ours = [str(point) for point in known.loc[nondominated(*figures), "point"]]
        yield {
            **{"says": front.says, "source": front.source, "condition": condition},
            **{"published": "; ".join(front.points), "ours": "; ".join(ours)},
            "both": "; ".join(point for point in front.points if point in ours),
            "unmeasured": "; ".join(point for point in front.points if point not in measured),
        }


def _figures(figure: Figure, rows: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield what each cell that the figure is of has here; one row without a cell where none was measured."""
    said = {name: getattr(figure, name) for name in ("says", "source", "column")}
    said["published"] = figure.value
    cell = ""
    for condition, known in _conditions(rows[rows[figure.column].notna()], figure.where):
        for row in known.to_dict("records"):
            cell = cell_name(row)
            yield said | {"condition": condition, "cell": cell, "ours": row[figure.column]}
    if not cell:
        yield said | {"condition": "", "cell": "", "ours": np.nan}

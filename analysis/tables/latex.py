"""Tables for a paper: LaTeX by booktabs and siunitx, of the points that the terminal shows and of pairs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from pareto.analysis.figures.drawing import caption, conditions
from pareto.analysis.figures.look import PAGE
from pareto.analysis.fronts import energy
from pareto.analysis.naming import ANY_NOTE, LETTERS, NONE, USUAL, condition_title, file_stem, point_label
from pareto.analysis.tables.report import NOTES, chosen_points, points
from pareto.analysis.tables.table import UNKNOWN, Column, numbers, once, times
from pareto.basics import escaping
from pareto.protocol.errors import UserError

NARROW = ("backend", "point", "latency", "images", "sure")
"""The columns of a front's table that a column of text has room for."""
WIDE = (*NARROW[:3], "latency-eff", "images", "images-eff", "energy", "bound-by", "sure")
FRONT_COLUMNS = (*WIDE, "latency-interval", "images-interval")
"""Names of the columns of a front's table, for those who choose some."""


def check_columns(names: Sequence[str]) -> None:
    """Raises UserError for what is no column of a front's table."""
    if unknown := [name for name in names if name not in FRONT_COLUMNS]:
        raise UserError(f"--columns {unknown[0]}: no column; there are {', '.join(FRONT_COLUMNS)}")


def front_latex(
    rows: pd.DataFrame, testbed: str = "", *, width: str = PAGE, chosen: Sequence[str] = ()
) -> str:
    """The points of one condition that the terminal shows, from rows of `analysis.front`, as a `table` with caption and
    label; empty text where nothing was measured.

    A figure that was not measured at all has no column, one that is not known of a point is a dash. chosen: of
    `FRONT_COLUMNS`, in this order; without any, those that a width has room for.
    """
    check_columns(chosen)
    measured = rows[(rows["rounds"] > 0) & rows["feasible"].astype(bool)]
    if measured.empty:
        return ""
    shown, _ = chosen_points(measured)
    made, of_energy = points(shown), energy.judged_by(shown)
    named = zip(shown["point"], shown["point_name"], shown["on_front"], strict=True)
    labels = [
        f"{point if width != PAGE else point_label(point, name, limit=14)}{'*' * bool(on_front)}"
        for point, name, on_front in named
    ]
    made["point"] = Column("point", labels)
    names = [*dict.fromkeys(chosen)] or (WIDE if width == PAGE else NARROW)
    columns = {name: made[name] for name in names if made[name].says_something}
    above_idle = ", above idle" if of_energy == energy.ACTIVE else ""
    told = [
        "*: on the Pareto front.",
        conditions(rows, testbed),
        *(
            f"{note[0].upper()}{note[1:]}.".replace(" = ", ": ")
            for name, note in NOTES.items()
            if name in columns
        ),
        f"Energy of {shown['energy_of'].iloc[0]}{above_idle}, for an image." if "energy" in columns else "",
        ANY_NOTE.replace(" = ", ": ") + "." if (shown["backend"] == NONE).any() else "",
    ]
    return _table(columns.values(), told, "front", shown.iloc[0]) if columns else ""


def paired_latex(paired: pd.DataFrame, testbed: str = "", *, width: str = PAGE) -> str:
    """One backend against another at each point, under one condition, from `analysis.comparing.paired.paired`.

    The last row is of all points that cross the link. Empty text if there is no pair.
    """
    pairs = paired[paired["pairs"] > 0]
    if pairs.empty:
        return ""
    time = times(float(pairs["latency_difference_s"].abs().max()))
    stars = pairs["latency_significant"].eq(True).map({True: "*", False: ""})
    columns = [
        Column("point", [*(pairs["point"].astype("str") + stars)]),
        numbers(pairs, "latency", "latency_difference_s", *time),
        numbers(pairs, "95 %", "latency_{}_s", *time),
        numbers(pairs, "images/s", "throughput_difference_percent", "%"),
        numbers(pairs, "95 %", "throughput_{}_percent", "%"),
    ]
    if width == PAGE:
        versus = pairs["other"] + " \N{MINUS SIGN} " + pairs["first"]
        rounds = Column("rounds", [*pairs["rounds"].astype("str")])
        columns = [Column("backends", once(versus)), columns[0], rounds, *columns[1:]]
    told = [
        f"One backend against another: {condition_title(pairs.iloc[0])}.",
        "Differences at the same point in the same round, medians over rounds; positive: the one named first takes "
        "longer, or has more images/s.",
        "95 %: interval of the median.",
        "*: significant at 5 %, of the best point's latency alone." if stars.any() else "",
        caption(f"Testbed: {testbed}") if testbed else "",
    ]
    return _table([each for each in columns if each.says_something], told, "paired", pairs.iloc[0])


def escaped(text: object) -> str:
    """The text escaped for LaTeX; a character that is not ASCII and has no command becomes a question mark."""
    return escaping.latex(str(text)).replace(r" \%", r"\,\%").encode("ascii", "replace").decode("ascii")


def _table(columns: Iterable[Column], told: Sequence[str], kind: str, row: pd.Series) -> str:
    """A `table`. told: its caption's sentences. kind, row: what its label names, the usual condition left out."""
    of = dict(enumerate(columns))
    table = pd.DataFrame({place: map(_cell, column.values) for place, column in of.items()})
    heads = [(column.head.capitalize(), f"({column.unit})" * bool(column.unit)) for column in of.values()]
    table.columns = pd.MultiIndex.from_tuples(
        [tuple(f"{{{escaped(text)}}}" for text in head) for head in heads]
    )
    usual = {"batch_size": "1", **USUAL}
    known = {name: str(row.get(name) or usual[name]) for name in LETTERS}
    unusual = [f"{LETTERS[name]}{value}" for name, value in known.items() if value != usual[name]]
    texts = (any(isinstance(value, str | tuple) for value in column.values) for column in of.values())
    aligned = "".join("l" if is_text else "S" for is_text in texts)
    text: str = table.style.hide(axis="index").to_latex(
        column_format=f"@{{}}{aligned}@{{}}",
        hrules=True,
        sparse_columns=False,
        caption=escaped(" ".join(filter(None, told))),
        label=f"tab:{file_stem(kind, row['model'], row['netem'], *unusual, *filter(None, [row['setup']]))}",
        position_float="centering",
    )
    small = text.replace(r"\centering", r"\centering\footnotesize\setlength{\tabcolsep}{3pt}", 1)
    return f"% Needs \\usepackage{{booktabs,siunitx}}.\n{small}"


def _cell(value: Any) -> str:
    """A text, a number with three digits or more but never an exponent, or the ends of an interval."""
    if isinstance(value, str):
        return "{--}" if value == UNKNOWN else escaped(value)
    if isinstance(value, tuple):
        return "{--}" if any(map(math.isnan, value)) else r"\numrange{{{}}}{{{}}}".format(*map(_cell, value))
    if not math.isfinite(value):
        return "{--}"
    behind = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:.{behind}f}"

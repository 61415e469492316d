"""Tables for a paper: LaTeX that needs no package but booktabs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from analysis import files
from analysis.comparing.paired import ALL
from analysis.figures.drawing import conditions
from analysis.fronts import energy
from analysis.naming import (
    ANY_NOTE,
    backend_name,
    condition_title,
    file_stem,
    point_label,
    time_unit,
)
from analysis.points import hosts, short_step
from analysis.tables.columns import Column, by_backend, once, starts

UNKNOWN = "--"
_95 = r"95\,\%"
_ESCAPES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "µ": r"$\mu$",
    "…": r"\ldots{}",
    "\N{EN DASH}": "--",
    "→": r"$\rightarrow$",
    "←": r"$\leftarrow$",
    "\N{MULTIPLICATION SIGN}": r"$\times$",
} | {character: f"\\{character}" for character in "&%$#_{}"}


def front_latex(rows: pd.DataFrame, testbed: str = "") -> str:
    """Return the points on the front of each backend, under one condition, from rows of `analysis.front`.

    A `table` with caption and label. Units are in its head; what was not measured at all has no column, what is not
    known of one point is a dash. Empty text if there is no point on a front.
    """
    front = rows[rows["on_backend_front"]]
    if front.empty:
        return ""
    points = by_backend(front, "latency_s")
    which = energy.judged_by(rows)
    unit, scale = time_unit(float(points["latency_s"].max()))
    chain = hosts(str(points["point"].iloc[0]))
    names = [
        escaped(point_label(point, name, limit=24)) + "*" * bool(on_front)
        for point, name, on_front in zip(
            points["point"], points["point_name"], points["on_front"], strict=True
        )
    ]
    columns = [
        Column("Backend", _once(points["backend"].map(backend_name))),
        Column("Point", names),
        _number("Latency", unit, _figures(points["latency_s"] * scale)),
        _number(_95, unit, _spans(points, "latency_low_s", "latency_high_s", scale)),
        _number("of bound", r"\%", _figures(100 * points["latency_efficiency"])),
        _number("Throughput", "images/s", _figures(points["throughput_ips"])),
        _number(_95, "images/s", _spans(points, "throughput_low_ips", "throughput_high_ips", 1)),
        _number("of bound", r"\%", _figures(100 * points["throughput_efficiency"])),
        Column("Bound by", [escaped(short_step(step, len(chain))) or UNKNOWN for step in points["bound_by"]]),
        _number("Energy", "J/image", _figures(points[which])),
        _number("$p$", "", [UNKNOWN if math.isnan(p) else f"{p:.2f}" for p in points["probability"]]),
    ]
    above_idle = ", above idle" if which == energy.ACTIVE else ""
    sentences = {
        "The points on the Pareto front of each backend.": True,
        escaped(conditions(rows, testbed)): True,
        rf"{_95}: interval of the median over rounds.": points["latency_low_s"].notna().any(),
        "Of bound: the share of what physics allows that is reached.": True,
        "Bound by: the step that sets the throughput's bound.": points["bound_by"].ne("").any(),
        f"Energy of {escaped(points['energy_of'].iloc[0])}{above_idle}.": points["energy_j"].notna().any(),
        "$p$: share of the resamples of whole rounds in which the point is on its backend's front.": (
            points["probability"].notna().any()
        ),
        "*: not dominated by any backend's point.": rows.loc[rows["backend"] != "", "backend"].nunique() > 1,
        f"{ANY_NOTE.replace(' = ', ': ')}.": (points["backend"] == "").any(),
    }
    caption = " ".join(sentence for sentence, is_needed in sentences.items() if is_needed)
    return _table(columns, starts(points["backend"]), caption, file_stem("front", *_name(points.iloc[0])))


def paired_latex(paired: pd.DataFrame) -> str:
    """Return one backend against another at each point, under one condition, from `analysis.comparing.paired.paired`.

    The last row is of all points that cross the link. Empty text if there is no pair.
    """
    pairs = paired[paired["pairs"] > 0]
    if pairs.empty:
        return ""
    unit, scale = time_unit(float(pairs["latency_difference_s"].abs().max()))
    versus = pairs["other"] + " - " + pairs["first"]
    columns = [
        Column("Backends", [text.replace(" - ", " $-$ ") for text in _once(versus)]),
        Column("Point", ["all" if point == ALL else escaped(point) for point in pairs["point"]]),
        _number("Rounds", "", [str(rounds) for rounds in pairs["rounds"]]),
        _number("Latency", unit, _marked(pairs, "latency", _signed(pairs["latency_difference_s"] * scale))),
        _number(_95, unit, _spans(pairs, "latency_low_s", "latency_high_s", scale)),
        _number("Latency", r"\%", _signed(pairs["latency_difference_percent"])),
        _number(
            "Throughput", r"\%", _marked(pairs, "throughput", _signed(pairs["throughput_difference_percent"]))
        ),
        _number(_95, r"\%", _spans(pairs, "throughput_low_percent", "throughput_high_percent", 1)),
    ]
    over = " and ".join(sorted(set(pairs.loc[pairs["point"] == ALL, "interval_over"]) - {""}))
    caption = [
        f"One backend against another: {escaped(condition_title(pairs.iloc[0]))}.",
        "Differences at the same point in the same round, medians over rounds; positive: the one named first takes "
        "longer, or has more images/s.",
        rf"{_95}: interval of the median" + (f" (of all: over {over})." if over else "."),
        r"*: significant at 5\,\%, corrected for all points."
        if (pairs["latency_significant"] | pairs["throughput_significant"]).any()
        else "",
        "Only pairs of trials that are both valid count.",
    ]
    label = file_stem("paired", *_name(pairs.iloc[0]))
    return _table(columns, starts(versus), " ".join(filter(None, caption)), label)


def escaped(text: object) -> str:
    """Return the text escaped for LaTeX; a character that is not ASCII and has no command becomes a question mark."""
    shown = "".join(_ESCAPES.get(character, character) for character in str(text))
    return shown.encode("ascii", "replace").decode("ascii")


def save(kind: str, name: Sequence[str], latex: str, folder: Path) -> Path:
    """Write `<kind>-<name>.tex`."""
    return files.write(files.make(folder) / f"{file_stem(kind, *name)}.tex", latex)


def _table(columns: Sequence[Column], groups: Sequence[bool], caption: str, label: str) -> str:
    """Return a `table` without its unknown columns. groups: which rows begin a group, with room above."""
    columns = [column for column in columns if any(cell not in ("", UNKNOWN) for cell in column.cells)]
    lines = [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{caption}}}",
        rf"  \label{{tab:{label}}}",
        rf"  \begin{{tabular}}{{{''.join('l' if column.kind == 'text' else 'r' for column in columns)}}}",
        r"    \toprule",
        _row(column.head for column in columns),
        _row(f"({column.unit})" if column.unit else "" for column in columns),
        r"    \midrule",
    ]
    rows = zip(*(column.cells for column in columns), strict=True)
    for place, (cells, begins) in enumerate(zip(rows, groups, strict=True)):
        lines += [r"    \addlinespace"] if begins and place else []
        lines.append(_row(cells))
    return "\n".join([*lines, r"    \bottomrule", r"  \end{tabular}", r"\end{table}", ""])


def _row(cells: Iterable[str]) -> str:
    return rf"    {' & '.join(cells)} \\"


def _number(head: str, unit: str, cells: Sequence[str]) -> Column:
    return Column(head, cells, unit, "number")


def _name(row: pd.Series) -> list[str]:
    """Return what tells a condition apart from others, for the label; what has its usual value is left out."""
    parts = [row["model"], row["netem"], f"b{row['batch_size']}" if row["batch_size"] != 1 else ""]
    parts += [row["codec"] if row["codec"] != "none" else ""]
    parts += [f"d{row['in_flight_asked']}" if row["in_flight_asked"] != "auto" else "", row["setup"]]
    return [str(part) for part in parts if part]


def _figures(values: pd.Series) -> list[str]:
    return [_figure(value) for value in values]


def _figure(value: float) -> str:
    """Return the value with three digits or more, never with an exponent."""
    if not math.isfinite(value):
        return UNKNOWN
    if value == 0:
        return "0"
    behind = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{behind}f}".replace("-", "$-$")


def _signed(values: pd.Series) -> list[str]:
    return [f"{'$+$' if value > 0 else ''}{_figure(value)}" for value in values]


def _spans(rows: pd.DataFrame, low: str, high: str, scale: float) -> list[str]:
    """Return `1.28 to 1.40`: a dash would read as a sign."""
    return [
        UNKNOWN if math.isnan(least) else f"{_figure(least * scale)} to {_figure(most * scale)}"
        for least, most in zip(rows[low], rows[high], strict=True)
    ]


def _once(values: pd.Series) -> list[str]:
    return list(map(escaped, once(values)))


def _marked(pairs: pd.DataFrame, measure: str, cells: list[str]) -> list[str]:
    """Return the cells, with a star where the difference is significant."""
    stars = pairs[f"{measure}_significant"]
    return [f"{cell}{'*' if star else ''}" for cell, star in zip(cells, stars, strict=True)]

"""Tables for a paper: LaTeX that needs no package but booktabs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from analysis import files
from analysis.comparing.paired import ALL
from analysis.figures.drawing import conditions
from analysis.fronts import energy
from analysis.naming import (
    ANY_NOTE,
    backend_name,
    backends,
    condition_title,
    file_stem,
    point_label,
    time_unit,
)
from analysis.points import hosts, short_step

UNKNOWN = "--"
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


@dataclass(frozen=True)
class Column:
    """A head in two lines, what it is and its unit, both LaTeX, and a cell for each row; `l` aligns it left."""

    head: str
    unit: str
    cells: Sequence[str]
    align: str = "r"


def front_latex(rows: pd.DataFrame, testbed: str = "") -> str:
    """The points on the front of each backend, under one condition, from rows of `analysis.front`.

    A `table` with caption and label. Units are in its head; what was not measured at all has no column, what is not
    known of one point is a dash. Raises ValueError if there is no point on a front.
    """
    front = rows[rows["on_backend_front"]]
    if front.empty:
        raise ValueError("no point on a front: there is no valid trial")
    of_backends = [front[front["backend"] == backend].sort_values("latency_s") for backend in backends(front)]
    points, which = pd.concat(of_backends), energy.judged_by(rows)
    unit, scale = time_unit(float(points["latency_s"].max()))
    chain = hosts(str(points["point"].iloc[0]))
    steps = [escaped(short_step(step, len(chain))) or UNKNOWN for step in points["bound_by"]]
    stars = ["*" if on_front else "" for on_front in points["on_front"]]
    names = [
        escaped(point_label(*of, limit=24)) for of in zip(points["point"], points["point_name"], strict=True)
    ]
    columns = [
        Column("Backend", "", _once(points["backend"].map(backend_name)), "l"),
        Column("Point", "", [f"{name}{star}" for name, star in zip(names, stars, strict=True)], "l"),
        Column("Latency", unit, _figures(points["latency_s"] * scale)),
        Column(r"95\,\%", unit, _spans(points, "latency_low_s", "latency_high_s", scale)),
        Column("of bound", r"\%", _figures(100 * points["latency_efficiency"])),
        Column("Throughput", "images/s", _figures(points["throughput_ips"])),
        Column(r"95\,\%", "images/s", _spans(points, "throughput_low_ips", "throughput_high_ips", 1)),
        Column("of bound", r"\%", _figures(100 * points["throughput_efficiency"])),
        Column("Bound by", "", steps, "l"),
        Column("Energy", "J/image", _figures(points[which])),
        Column("$p$", "", [UNKNOWN if math.isnan(p) else f"{p:.2f}" for p in points["probability"]]),
    ]
    told = [
        "The points on the Pareto front of each backend.",
        escaped(conditions(rows, testbed)),
        r"95\,\%: interval of the median over rounds." if points["latency_low_s"].notna().any() else "",
        "Of bound: the share of what physics allows that is reached.",
        "Bound by: the step that sets the throughput's bound." if points["bound_by"].ne("").any() else "",
        f"Energy of {escaped(points['energy_of'].iloc[0])}{', above idle' if which == energy.ACTIVE else ''}."
        if points["energy_j"].notna().any()
        else "",
        "$p$: share of the resamples of whole rounds in which the point is on its backend's front."
        if points["probability"].notna().any()
        else "",
        "*: not dominated by any backend's point."
        if rows.loc[rows["backend"] != "", "backend"].nunique() > 1
        else "",
        f"{ANY_NOTE.replace(' = ', ': ')}." if (points["backend"] == "").any() else "",
    ]
    return _table(columns, _starts(points["backend"]), told, file_stem("front", *_name(points.iloc[0])))


def paired_latex(paired: pd.DataFrame) -> str:
    """One backend against another at each point, under one condition, from `analysis.comparing.paired.paired`.

    The last row is of all points that cross the link. Raises ValueError if there is no pair.
    """
    pairs = paired[paired["pairs"] > 0]
    if pairs.empty:
        raise ValueError("no pair of backends that has valid trials in the same round")
    whole = pairs["point"] == ALL
    unit, scale = time_unit(float(pairs["latency_difference_s"].abs().max()))
    versus = pairs["other"] + " - " + pairs["first"]
    columns = [
        Column("Backends", "", [text.replace(" - ", " $-$ ") for text in _once(versus)], "l"),
        Column(
            "Point",
            "",
            [
                "all" if of_all else escaped(point)
                for of_all, point in zip(whole, pairs["point"], strict=True)
            ],
            "l",
        ),
        Column("Rounds", "", [str(rounds) for rounds in pairs["rounds"]]),
        Column("Latency", unit, _marked(pairs, "latency", _signed(pairs["latency_difference_s"] * scale))),
        Column(r"95\,\%", unit, _spans(pairs, "latency_low_s", "latency_high_s", scale)),
        Column("Latency", r"\%", _signed(pairs["latency_difference_percent"])),
        Column(
            "Throughput", r"\%", _marked(pairs, "throughput", _signed(pairs["throughput_difference_percent"]))
        ),
        Column(r"95\,\%", r"\%", _spans(pairs, "throughput_low_percent", "throughput_high_percent", 1)),
    ]
    starred = any(_significant(pairs, measure).any() for measure in ("latency", "throughput"))
    told = [
        f"One backend against another: {escaped(condition_title(pairs.iloc[0]))}.",
        "Differences at the same point in the same round, medians over rounds; positive: the one named first takes "
        "longer, or has more images/s.",
        r"95\,\%: interval of the median" + (f" (of all: over {over})." if (over := _over(pairs)) else "."),
        r"*: significant at 5\,\%, corrected for all points." if starred else "",
        "Only pairs of trials that are both valid count.",
    ]
    return _table(columns, _starts(versus), told, file_stem("paired", *_name(pairs.iloc[0])))


def escaped(text: object) -> str:
    """Text as LaTeX prints it; what has no sign there becomes a question mark."""
    shown = "".join(_ESCAPES.get(character, character) for character in str(text))
    return shown.encode("ascii", "replace").decode("ascii")


def save(kind: str, name: Sequence[str], latex: str, folder: Path) -> Path:
    """Write `<kind>-<name>.tex`."""
    return files.write(files.make(folder) / f"{file_stem(kind, *name)}.tex", latex)


def _table(columns: Iterable[Column], starts: Sequence[bool], told: Iterable[str], label: str) -> str:
    """`starts`: which rows begin a group, with a little room above."""
    columns = [column for column in columns if any(cell not in ("", UNKNOWN) for cell in column.cells)]
    units = [f"({column.unit})" if column.unit else "" for column in columns]
    rows = zip(*(column.cells for column in columns), strict=True)
    lines = [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{' '.join(sentence for sentence in told if sentence)}}}",
        rf"  \label{{tab:{label}}}",
        rf"  \begin{{tabular}}{{{''.join(column.align for column in columns)}}}",
        r"    \toprule",
        f"    {_row(column.head for column in columns)}",
        f"    {_row(units)}",
        r"    \midrule",
    ]
    for number, (cells, start) in enumerate(zip(rows, starts, strict=True)):
        lines += [r"    \addlinespace"] if start and number else []
        lines.append(f"    {_row(cells)}")
    return "\n".join([*lines, r"    \bottomrule", r"  \end{tabular}", r"\end{table}", ""])


def _row(cells: Iterable[str]) -> str:
    return rf"{' & '.join(cells)} \\"


def _name(row: pd.Series) -> list[str]:
    """What tells a condition apart from the others, for the label: a letter of each that need not be the usual one."""
    parts = [row["model"], row["netem"], f"b{row['batch_size']}" if row["batch_size"] != 1 else ""]
    parts += [row["codec"] if row["codec"] != "none" else ""]
    parts += [f"d{row['in_flight_asked']}" if row["in_flight_asked"] != "auto" else "", row["setup"]]
    return [str(part) for part in parts if part]


def _figures(values: pd.Series) -> list[str]:
    return [_figure(value) for value in values]


def _figure(value: float) -> str:
    """Three digits or more, never an exponent."""
    if not math.isfinite(value):
        return UNKNOWN
    if value == 0:
        return "0"
    behind = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{behind}f}".replace("-", "$-$")


def _signed(values: pd.Series) -> list[str]:
    return [f"{'$+$' if value > 0 else ''}{_figure(value)}" for value in values]


def _spans(rows: pd.DataFrame, low: str, high: str, scale: float) -> list[str]:
    """`1.28 to 1.40`: a dash would read as a sign."""
    return [
        UNKNOWN if math.isnan(least) else f"{_figure(least * scale)} to {_figure(most * scale)}"
        for least, most in zip(rows[low], rows[high], strict=True)
    ]


def _once(values: pd.Series) -> list[str]:
    """Each value where it begins, and nothing where it goes on."""
    return [escaped(value) if start else "" for value, start in zip(values, _starts(values), strict=True)]


def _starts(values: pd.Series) -> list[bool]:
    return list(values.ne(values.shift()))


def _significant(pairs: pd.DataFrame, measure: str) -> pd.Series:
    """Of each row, where somebody tested."""
    significant: pd.Series = pairs.get(f"{measure}_significant", pd.Series(False, pairs.index)).eq(True)
    return significant


def _marked(pairs: pd.DataFrame, measure: str, cells: list[str]) -> list[str]:
    """The cells, with a star where the difference is significant."""
    stars = _significant(pairs, measure)
    return [f"{cell}{'*' if star else ''}" for cell, star in zip(cells, stars, strict=True)]


def _over(pairs: pd.DataFrame) -> str:
    """What the interval of the row of all points is over; nothing where it has none."""
    return " and ".join(sorted(set(pairs.loc[pairs["point"] == ALL, "interval_over"]) - {""}))

"""Tables for a paper: LaTeX by booktabs and siunitx, as wide as a column of text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from pareto.analysis.comparing.paired import ALL
from pareto.analysis.figures.drawing import caption, conditions
from pareto.analysis.figures.look import PAGE
from pareto.analysis.fronts import energy
from pareto.analysis.naming import ANY_NOTE, backend_name, condition_title, file_stem, point_label, time_unit
from pareto.analysis.points import hosts, short_step
from pareto.analysis.tables.columns import by_backend, once, starts
from pareto.basics import escaping
from pareto.protocol.errors import UserError

WIDTHS_PT = {"column": 229.5, PAGE: 345.0}
"""The width of a table, in pt: of a column of `article` with two columns, or of its text with one (10 pt)."""
FRONT_COLUMNS = (
    *(
        "backend",
        "point",
        "latency",
        "latency-interval",
        "latency-eff",
        "images",
        "images-interval",
        "images-eff",
    ),
    *("energy", "sure", "bound-by"),
)
"""Names of the columns of a front's table, for those who choose some."""
UNKNOWN = "--"
_95 = r"95\,\%"
_GAP_PT = 3.0
r"""\tabcolsep: half of what lies between two columns."""
_EM_PT = {"ijlIft.,:;'()[]|": 2.5, " -": 2.9, "mwMW%": 7.1, "ABCDEFGHKLNOPQRSTUVXYZ": 6.0}
r"""Widths of characters in \footnotesize (8 pt), rounded up; all others are as wide as a digit."""
_DIGIT_PT = 4.3


@dataclass(frozen=True)
class Column:
    """A head with its unit, and each row's cell, as LaTeX.

    rank: of columns that do not all fit, those with the least stay; those of rank 0 always do. number: cells are
    numbers, perhaps with a star, which siunitx aligns at their decimal points.
    """

    head: str
    cells: Sequence[str]
    unit: str = ""
    rank: int = 0
    number: bool = False


def check_columns(names: Sequence[str]) -> None:
    """Raises UserError for what is no column of a front's table."""
    if unknown := [name for name in names if name not in FRONT_COLUMNS]:
        raise UserError(f"--columns {unknown[0]}: no column; there are {', '.join(FRONT_COLUMNS)}")


def front_latex(
    rows: pd.DataFrame, testbed: str = "", *, width: str = PAGE, chosen: Sequence[str] = ()
) -> str:
    """The points on the front of each backend, under one condition, from rows of `analysis.front`.

    A `table` with caption and label, as wide as `WIDTHS_PT` says; a comment names the columns that have no room. Units
    are in its head; what was not measured at all has no column, what is not known of one point is a dash. Empty text
    if there is no point on a front. chosen: of `FRONT_COLUMNS`, in this order, however wide the table becomes.
    """
    check_columns(chosen)
    front = rows[rows["on_backend_front"]]
    if front.empty:
        return ""
    points = by_backend(front, "latency_s")
    which = energy.judged_by(rows)
    unit, scale = time_unit(float(points["latency_s"].max()))
    chain = hosts(str(points["point"].iloc[0]))
    limit = 14 if width == PAGE else 0
    names = [
        escaped(point_label(point, name, limit=limit) if limit else point) + "*" * bool(on_front)
        for point, name, on_front in zip(
            points["point"], points["point_name"], points["on_front"], strict=True
        )
    ]
    probabilities = [UNKNOWN if math.isnan(p) else f"{100 * p:.0f}" for p in points["probability"]]
    steps = [escaped(short_step(step, len(chain))) or UNKNOWN for step in points["bound_by"]]
    columns = [
        Column("Backend", _once(points["backend"].map(backend_name))),
        Column("Point", names),
        _number("Latency", unit, _figures(points["latency_s"] * scale), 0),
        Column(_95, _spans(points, "latency_low_s", "latency_high_s", scale), unit, 4),
        _number("of bound", r"\%", _figures(100 * points["latency_efficiency"]), 3),
        _number("Images", r"/s", _figures(points["throughput_ips"]), 0),
        Column(_95, _spans(points, "throughput_low_ips", "throughput_high_ips", 1), "/s", 5),
        _number("of bound", r"\%", _figures(100 * points["throughput_efficiency"]), 6),
        _number("Energy", "J/image", _figures(points[which]), 2),
        _number("Sure", r"\%", probabilities, 1),
        Column("Bound by", steps, "", 7),
    ]
    if chosen:
        by_name = dict(zip(FRONT_COLUMNS, columns, strict=True))
        columns, lacking = _known([by_name[name] for name in dict.fromkeys(chosen)]), list[Column]()
        if not columns:
            return ""
    else:
        columns, lacking = fitting(columns, WIDTHS_PT[width])
    heads = {column.head for column in columns}
    above_idle = ", above idle" if which == energy.ACTIVE else ""
    sentences = {
        "The points on the Pareto front of each backend.": True,
        escaped(conditions(rows, testbed)): True,
        rf"{_95}: interval of the median over rounds.": _95 in heads,
        "Of bound: the share of what physics allows that is reached.": "of bound" in heads,
        "Bound by: the step that sets the throughput's bound.": "Bound by" in heads,
        f"Energy of {escaped(points['energy_of'].iloc[0])}{above_idle}.": "Energy" in heads,
        "Sure: the probability that the point is on its backend's front.": "Sure" in heads,
        "*: not dominated by any backend's point.": rows.loc[rows["backend"] != "", "backend"].nunique() > 1,
        f"{ANY_NOTE.replace(' = ', ': ')}.": (points["backend"] == "").any(),
    }
    told = " ".join(sentence for sentence, is_needed in sentences.items() if is_needed)
    label = file_stem("front", *_name(points.iloc[0]))
    return _table(columns, lacking, starts(points["backend"]), told, label)


def paired_latex(paired: pd.DataFrame, testbed: str = "", *, width: str = PAGE) -> str:
    """One backend against another at each point, under one condition, from `analysis.comparing.paired.paired`.

    The last row is of all points that cross the link. As `front_latex` otherwise. Empty text if there is no pair.
    """
    pairs = paired[paired["pairs"] > 0]
    if pairs.empty:
        return ""
    unit, scale = time_unit(float(pairs["latency_difference_s"].abs().max()))
    versus = pairs["other"] + " - " + pairs["first"]
    columns = [
        Column("Backends", [text.replace(" - ", " $-$ ") for text in _once(versus)]),
        Column("Point", ["all" if point == ALL else escaped(point) for point in pairs["point"]]),
        _number("Rounds", "", [str(rounds) for rounds in pairs["rounds"]], 4),
        _number(
            "Latency", unit, _marked(pairs, "latency", _signed(pairs["latency_difference_s"] * scale)), 0
        ),
        Column(_95, _spans(pairs, "latency_low_s", "latency_high_s", scale), unit, 2),
        _number("Latency", r"\%", _signed(pairs["latency_difference_percent"]), 1),
        _number(
            "Images/s",
            r"\%",
            _marked(pairs, "throughput", _signed(pairs["throughput_difference_percent"])),
            0,
        ),
        Column(_95, _spans(pairs, "throughput_low_percent", "throughput_high_percent", 1), r"\%", 3),
    ]
    columns, lacking = fitting(columns, WIDTHS_PT[width])
    over = " and ".join(sorted(set(pairs.loc[pairs["point"] == ALL, "interval_over"]) - {""}))
    interval = rf"{_95}: interval of the median" + (f" (of all: over {over})." if over else ".")
    told = [
        f"One backend against another: {escaped(condition_title(pairs.iloc[0]))}.",
        "Differences at the same point in the same round, medians over rounds; positive: the one named first takes "
        "longer, or has more images/s.",
        interval if any(column.head == _95 for column in columns) else "",
        r"*: significant at 5\,\%, corrected for all points."
        if (pairs["latency_significant"] | pairs["throughput_significant"]).any()
        else "",
        "Only pairs of trials that are both valid count.",
        escaped(caption(f"Testbed: {testbed}")) if testbed else "",
    ]
    label = file_stem("paired", *_name(pairs.iloc[0]))
    return _table(columns, lacking, starts(versus), " ".join(filter(None, told)), label)


def fitting(columns: Sequence[Column], most_pt: float) -> tuple[list[Column], list[Column]]:
    """The known columns that fit into a width, by their rank, in their order; and those that do not."""
    known = _known(columns)
    kept: list[int] = []
    room = most_pt + 2 * _GAP_PT
    for place in sorted(range(len(known)), key=lambda place: known[place].rank):
        takes = _width_pt(known[place]) + 2 * _GAP_PT
        if not known[place].rank or takes <= room:
            room -= takes
            kept.append(place)
    return [known[place] for place in sorted(kept)], [
        column for place, column in enumerate(known) if place not in kept
    ]


def _known(columns: Sequence[Column]) -> list[Column]:
    """The columns with a known cell."""
    return [column for column in columns if any(cell not in ("", UNKNOWN) for cell in column.cells)]


def escaped(text: object) -> str:
    """The text escaped for LaTeX; a character that is not ASCII and has no command becomes a question mark."""
    return escaping.latex(str(text)).encode("ascii", "replace").decode("ascii")


def file_name(kind: str, name: Sequence[str], width: str = PAGE) -> str:
    """`<kind>-<name>.tex`; `-column` is added for that width."""
    return f"{file_stem(kind, *name)}{'' if width == PAGE else f'-{width}'}.tex"


def _table(
    columns: Sequence[Column], lacking: Sequence[Column], groups: Sequence[bool], caption: str, label: str
) -> str:
    """A `table`. groups: which rows begin a group, with room above."""
    without = ", ".join(f"{column.head} ({column.unit or '-'})" for column in lacking).replace("\\", "")
    lines = [
        r"% Needs \usepackage{booktabs,siunitx}.",
        *([f"% No room for: {without}."] if lacking else []),
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{caption}}}",
        rf"  \label{{tab:{label}}}",
        r"  \smallskip",
        rf"  \footnotesize\setlength{{\tabcolsep}}{{{_GAP_PT:g}pt}}",
        rf"  \begin{{tabular}}{{@{{}}{''.join(map(_aligned, columns))}@{{}}}}",
        r"    \toprule",
        _row(f"{{{column.head}}}" if column.number else column.head for column in columns),
        _row(_unit(column) for column in columns),
        r"    \midrule",
    ]
    rows = zip(*(column.cells for column in columns), strict=True)
    for place, (cells, begins) in enumerate(zip(rows, groups, strict=True)):
        lines += [r"    \addlinespace"] if begins and place else []
        lines.append(
            _row(
                f"{{{cell}}}" if column.number and cell == UNKNOWN else cell
                for column, cell in zip(columns, cells, strict=True)
            )
        )
    return "\n".join([*lines, r"    \bottomrule", r"  \end{tabular}", r"\end{table}", ""])


def _unit(column: Column) -> str:
    unit = f"({column.unit})" if column.unit else ""
    return f"{{{unit}}}" if column.number and unit else unit


def _aligned(column: Column) -> str:
    """The column's type: `l`, `r`, or siunitx's `S` with the digits that its numbers have."""
    if not column.number:
        return "r" if column.head == _95 else "l"
    sign, before, behind, star = _digits(column)
    options = [f"table-format={'+' if sign else ''}{before}.{behind}"]
    options += ["retain-explicit-plus"] if sign else []
    options += ["table-space-text-post={*}"] if star else []
    return f"S[{','.join(options)}]"


def _digits(column: Column) -> tuple[bool, int, int, bool]:
    """Whether any of a column's numbers has a sign, the most digits before and behind the point, and whether
    any has a star.
    """
    numbers = [re.fullmatch(r"([+-]?)(\d+)(?:\.(\d+))?(\{\*\})?", cell) for cell in column.cells]
    known = [number for number in numbers if number]
    before, behind = (max(len(number[part] or "") for number in known) for part in (2, 3))
    return any(number[1] for number in known), before, behind, any(number[4] for number in known)


def _width_pt(column: Column) -> float:
    r"""The width of a column in \footnotesize, rather too much than too little."""
    heads = max(_text_pt(column.head), _text_pt(f"({column.unit})") if column.unit else 0.0)
    if not column.number:
        return max(heads, *map(_text_pt, column.cells))
    sign, before, behind, star = _digits(column)
    digits = _DIGIT_PT * (before + behind) + (2.5 if behind else 0)
    return max(heads, digits + (6.7 if sign else 0) + (4.3 if star else 0))


def _text_pt(latex: str) -> float:
    shown = re.sub(r"\\numrange\{(.*?)\}\{(.*?)\}", r"\1 to \2", latex)
    shown = re.sub(r"\$?\\[a-z]+(\{\})?\$?", "M", shown.replace(r"\,", " "))
    shown = re.sub(r"[\\${}]", "", shown)
    return sum(
        next((width for some, width in _EM_PT.items() if character in some), _DIGIT_PT + 0.2)
        for character in shown
    )


def _row(cells: Iterable[str]) -> str:
    return rf"    {' & '.join(cells)} \\"


def _number(head: str, unit: str, cells: Sequence[str], rank: int) -> Column:
    return Column(head, cells, unit, rank, number=True)


def _name(row: pd.Series) -> list[str]:
    """The values that tell a condition apart from others, for the label; what has its usual value is left out."""
    parts = [row["model"], row["netem"], f"b{row['batch_size']}" if row["batch_size"] != 1 else ""]
    parts += [row["codec"] if row["codec"] != "none" else ""]
    parts += [f"d{row['in_flight_asked']}" if row["in_flight_asked"] != "auto" else "", row["setup"]]
    return [str(part) for part in parts if part]


def _figures(values: pd.Series) -> list[str]:
    return [_figure(value) for value in values]


def _figure(value: float) -> str:
    """The value with three digits or more, never with an exponent."""
    if not math.isfinite(value):
        return UNKNOWN
    if value == 0:
        return "0"
    behind = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{behind}f}"


def _signed(values: pd.Series) -> list[str]:
    return [f"{'+' if value > 0 else ''}{_figure(value)}" for value in values]


def _spans(rows: pd.DataFrame, low: str, high: str, scale: float) -> list[str]:
    """A range of siunitx for each row, `1.28 to 1.40`: a dash would read as a sign."""
    return [
        UNKNOWN if math.isnan(least) else rf"\numrange{{{_figure(least * scale)}}}{{{_figure(most * scale)}}}"
        for least, most in zip(rows[low], rows[high], strict=True)
    ]


def _once(values: pd.Series) -> list[str]:
    return list(map(escaped, once(values)))


def _marked(pairs: pd.DataFrame, measure: str, cells: list[str]) -> list[str]:
    """The cells, with a star where the difference is significant."""
    stars = pairs[f"{measure}_significant"]
    return [f"{cell}{'{*}' if star else ''}" for cell, star in zip(cells, stars, strict=True)]

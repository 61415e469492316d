"""Tables for a paper: LaTeX by booktabs and siunitx, of the points that the terminal shows and of pairs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import pandas as pd

from pareto.analysis.comparing.paired import ALL
from pareto.analysis.figures.drawing import caption, conditions
from pareto.analysis.figures.look import PAGE
from pareto.analysis.fronts import energy
from pareto.analysis.naming import (
    ANY_NOTE,
    LETTERS,
    NONE,
    USUAL,
    backend_name,
    condition_title,
    file_stem,
    point_label,
    time_unit,
)
from pareto.analysis.runs.points import hosts, short_step
from pareto.analysis.tables.columns import once, sureness
from pareto.analysis.tables.overview import chosen_points
from pareto.basics import escaping
from pareto.protocol.errors import UserError

NARROW = ("backend", "point", "latency", "images", "sure")
"""The columns of a front's table that a column of text has room for."""
WIDE = (*NARROW[:3], "latency-eff", "images", "images-eff", "energy", "bound-by", "sure")
FRONT_COLUMNS = (*WIDE, "latency-interval", "images-interval")
"""Names of the columns of a front's table, for those who choose some."""
Column = tuple[str, str, "pd.Series | list[str]"]
"""A head, its unit, and numbers, which siunitx aligns, or texts in LaTeX."""
_UNKNOWN = "{--}"
_95 = r"95\,\%"
_NOTES = {
    "latency-interval": rf"{_95}: interval of the median over rounds.",
    "latency-eff": "Of bound: the share of what physics allows that is reached.",
    "bound-by": "Bound by: the step that sets the throughput's bound.",
    "sure": "Sure: the probability of being on the front.",
}


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
    points, _ = chosen_points(measured)
    which = energy.judged_by(rows)
    unit, scale = time_unit(float(points["latency_s"].max()))
    chain = len(hosts(str(points["point"].iloc[0])))
    named = zip(points["point"], points["point_name"], points["on_front"], strict=True)
    columns: dict[str, Column] = {
        "backend": ("Backend", "", _texts(points["backend"].map(backend_name))),
        "point": ("Point", "", [_point(*each, short=width != PAGE) for each in named]),
        "latency": ("Latency", unit, points["latency_s"] * scale),
        "latency-interval": (_95, unit, _spans(points, "latency_{}_s", scale)),
        "latency-eff": ("of bound", r"\%", 100 * points["latency_efficiency"]),
        "images": ("Images", "/s", points["throughput_ips"]),
        "images-interval": (_95, "/s", _spans(points, "throughput_{}_ips", 1)),
        "images-eff": ("of bound", r"\%", 100 * points["throughput_efficiency"]),
        "energy": ("Energy", "J/image", points[which]),
        "bound-by": ("Bound by", "", _texts(short_step(step, chain) for step in points["bound_by"])),
        "sure": ("Sure", r"\%", _texts(map(sureness, points["probability_all"]))),
    }
    wanted = [*dict.fromkeys(chosen)] or (WIDE if width == PAGE else NARROW)
    shown = {name: columns[name] for name in wanted if _is_known(columns[name][2])}
    above_idle = ", above idle" if which == energy.ACTIVE else ""
    told = [
        "*: on the Pareto front.",
        escaped(conditions(rows, testbed)),
        *(text for name, text in _NOTES.items() if name in shown),
        f"Energy of {escaped(points['energy_of'].iloc[0])}{above_idle}." if "energy" in shown else "",
        f"{ANY_NOTE.replace(' = ', ': ')}." if (points["backend"] == NONE).any() else "",
    ]
    return _table(list(shown.values()), told, file_stem("front", *_name(points.iloc[0]))) if shown else ""


def paired_latex(paired: pd.DataFrame, testbed: str = "", *, width: str = PAGE) -> str:
    """One backend against another at each point, under one condition, from `analysis.comparing.paired.paired`.

    The last row is of all points that cross the link. Empty text if there is no pair.
    """
    pairs = paired[paired["pairs"] > 0]
    if pairs.empty:
        return ""
    unit, scale = time_unit(float(pairs["latency_difference_s"].abs().max()))
    versus = (pairs["other"] + " - " + pairs["first"]).map(escaped).str.replace(" - ", " $-$ ")
    stars = ["*" if tested else "" for tested in pairs["latency_significant"]]
    points = zip(pairs["point"], stars, strict=True)
    columns: list[Column] = [
        ("Backends", "", once(versus)),
        ("Point", "", [f"{'all' if point == ALL else escaped(point)}{star}" for point, star in points]),
        ("Rounds", "", [str(rounds) for rounds in pairs["rounds"]]),
        ("Latency", unit, pairs["latency_difference_s"] * scale),
        (_95, unit, _spans(pairs, "latency_{}_s", scale)),
        ("Images/s", r"\%", pairs["throughput_difference_percent"]),
        (_95, r"\%", _spans(pairs, "throughput_{}_percent", 1)),
    ]
    if width != PAGE:
        columns = [each for each in columns if each[0] in ("Point", "Latency", "Images/s", _95)]
    told = [
        f"One backend against another: {escaped(condition_title(pairs.iloc[0]))}.",
        "Differences at the same point in the same round, medians over rounds; positive: the one named first takes "
        "longer, or has more images/s.",
        rf"{_95}: interval of the median.",
        r"*: significant at 5\,\%, of the best point's latency alone." if any(stars) else "",
        escaped(caption(f"Testbed: {testbed}")) if testbed else "",
    ]
    known = [each for each in columns if _is_known(each[2])]
    return _table(known, told, file_stem("paired", *_name(pairs.iloc[0])))


def escaped(text: object) -> str:
    """The text escaped for LaTeX; a character that is not ASCII and has no command becomes a question mark."""
    return escaping.latex(str(text)).encode("ascii", "replace").decode("ascii")


def file_name(kind: str, name: Sequence[str], width: str = PAGE) -> str:
    """`<kind>-<name>.tex`; `-column` is added for that width."""
    return f"{file_stem(kind, *name)}{'' if width == PAGE else f'-{width}'}.tex"


def _table(columns: Sequence[Column], told: Sequence[str], label: str) -> str:
    """A `table`. told: its caption's sentences."""
    heads = [(head, f"({unit})" if unit else "") for head, unit, _ in columns]
    cells = [map(_figure, values) if isinstance(values, pd.Series) else values for _, _, values in columns]
    table = pd.DataFrame(dict(enumerate(map(list, cells))))
    table.columns = pd.MultiIndex.from_tuples([tuple(f"{{{text}}}" for text in head) for head in heads])
    kinds = ["S" if isinstance(values, pd.Series) else "l" for _, _, values in columns]
    text: str = table.style.hide(axis="index").to_latex(
        column_format=f"@{{}}{''.join(kinds)}@{{}}",
        hrules=True,
        sparse_columns=False,
        caption=" ".join(filter(None, told)),
        label=f"tab:{label}",
        position_float="centering",
    )
    small = text.replace(r"\centering", r"\centering\footnotesize\setlength{\tabcolsep}{3pt}", 1)
    return f"% Needs \\usepackage{{booktabs,siunitx}}.\n{small}"


def _figure(value: float) -> str:
    """The value with three digits or more, never with an exponent."""
    if not math.isfinite(value):
        return _UNKNOWN
    behind = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:.{behind}f}"


def _spans(rows: pd.DataFrame, pattern: str, scale: float) -> list[str]:
    """The ends of each interval; a dash where there is none."""
    ends = zip(*(rows[pattern.format(end)] * scale for end in ("low", "high")), strict=True)
    return [
        _UNKNOWN if math.isnan(low) else rf"\numrange{{{_figure(low)}}}{{{_figure(high)}}}"
        for low, high in ends
    ]


def _texts(values: Iterable[str]) -> list[str]:
    return [_UNKNOWN if text in ("", "-") else escaped(text) for text in values]


def _point(point: str, name: str, on_front: bool, *, short: bool) -> str:
    return escaped(point if short else point_label(point, name, limit=14)) + "*" * bool(on_front)


def _is_known(values: pd.Series | list[str]) -> bool:
    cells = (
        values.notna() if isinstance(values, pd.Series) else [cell not in ("", _UNKNOWN) for cell in values]
    )
    return any(cells)


def _name(row: pd.Series) -> list[str]:
    """The parts of a label: the condition, as far as it is not the usual one."""
    parts = [str(row["model"]), str(row["netem"])]
    usual = {"batch_size": "1", **USUAL}
    known = {name: str(row.get(name) or usual[name]) for name in LETTERS}
    parts += [f"{LETTERS[name]}{value}" for name, value in known.items() if value != usual[name]]
    return [*parts, *filter(None, [str(row["setup"])])]

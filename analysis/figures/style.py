"""What every figure shares: size, colours, markers, units, axes, caption, and how it is written to disk."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import matplotlib
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from matplotlib.transforms import ScaledTranslation

from analysis.naming import backends, in_flight
from analysis.points import order

T = TypeVar("T")

WIDTH_IN = 7.0
"""A page's text width, or two columns of a two-column paper."""

# The "colorblind" palette of seaborn 0.13, so that seven colours do not cost its import.
COLOURS = ("#0173b2", "#de8f05", "#029e73", "#d55e00", "#cc78bc", "#ca9161", "#949494")
STAGE_COLOURS = (COLOURS[2], COLOURS[4], COLOURS[5], "#56b4e9", "#ece133", "#fbafe4")
"""Of the hosts between edge and server, which have the first two of `COLOURS`; the rest of seaborn's palette."""
STAGE_HATCHES = ("\\\\\\\\", "oo", "++", "----", "||||", "**")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", ":")

LOG_RANGE = 20
"""An axis is logarithmic when its largest value exceeds the smallest by more than this factor."""

_RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same figure on every machine
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "0.9",
    "grid.linewidth": 0.5,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "hatch.linewidth": 0.4,
    "pdf.fonttype": 42,  # TrueType, embedded: publishers refuse type 3
    "figure.dpi": 100,
    "savefig.dpi": 200,
}


def styled() -> AbstractContextManager[None]:
    """The settings under which figures are made and saved; the caller's own come back afterwards."""
    return matplotlib.rc_context(_RC)


@dataclass(frozen=True)
class Series:
    """The points of one backend (and codec, if there are several), and how they are drawn."""

    label: str
    rows: pd.DataFrame
    colour: str
    marker: str
    line: Any


def series(rows: pd.DataFrame) -> Iterator[Series]:
    """Backend by backend, codec by codec, told apart by colour as well as by marker and line."""
    codecs = rows["codec"].nunique(dropna=False)
    groups = [
        (f"{backend} {codec!s}".strip() if codecs > 1 else str(backend), group)
        for backend in backends(rows)
        for codec, group in rows[rows["backend"] == backend].groupby("codec", dropna=False)
    ]
    for number, (label, group) in enumerate(groups):
        yield Series(
            label,
            group.sort_values("point", key=order),
            COLOURS[number % len(COLOURS)],
            MARKERS[number % len(MARKERS)],
            LINES[number % len(LINES)],
        )


def stage_look(role: str) -> tuple[str, str]:
    """Colour and hatch of a host's stage, the same in every figure."""
    if role in ("edge", "server"):
        return (COLOURS[0], "") if role == "edge" else (COLOURS[1], "....")
    number = int(role.removeprefix("middle") or 1) - 1
    return STAGE_COLOURS[number % len(STAGE_COLOURS)], STAGE_HATCHES[number % len(STAGE_HATCHES)]


def evenly(among: Sequence[T], most: int) -> list[T]:
    """At most so many of a sequence, in order: the first, the last, and others at even distances."""
    if len(among) <= most:
        return list(among)
    return [among[round(place * (len(among) - 1) / max(most - 1, 1))] for place in range(most)]


def ink(colour: str) -> tuple[float, ...]:
    """A darker shade of a colour, for small text on white."""
    return tuple(0.7 * part for part in to_rgb(colour))


def fit_axis(axes: Axes, name: Literal["x", "y"], values: pd.Series, room: float = 0.12) -> None:
    """Fix scale and limits of one axis, with `room` (a share of the range) for labels around the points."""
    axis = axes.xaxis if name == "x" else axes.yaxis
    low, high = float(values.min()), float(values.max())
    if low > 0 and high / low > LOG_RANGE:
        margin = (high / low) ** room
        axes.set(**{f"{name}scale": "log", f"{name}lim": (low / margin, high * margin)})
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    else:
        margin = room * (high - low or high or 1)
        axes.set(**{f"{name}lim": (low - margin, high + margin)})


def caption(rows: pd.DataFrame, testbed: str) -> str:
    """What a reader must know to judge a figure: conditions, rounds, testbed, trials left out."""
    first = rows.iloc[0]
    rounds = sorted({int(count) for count in rows["rounds"] if count})
    span = f"{rounds[0]}–{rounds[-1]}" if len(rounds) > 1 else str(rounds[0] if rounds else 0)  # noqa: RUF001
    excluded, trials = int(rows["excluded"].sum()), int((rows["excluded"] + rows["rounds"]).sum())
    parts = [
        f"Model {first['model']}",
        f"profile {first['netem']}",
        f"batch size {first['batch_size']}",
        in_flight(first["in_flight_asked"]),
        f"{span} round{'' if span == '1' else 's'}",
        f"testbed {testbed}" if testbed else "",
        f"{excluded} of {trials} trials excluded (invalid or failed)" if excluded else "no trial excluded",
    ]
    return "; ".join(part for part in parts if part) + "."


def add_caption(figure: Figure, text: str) -> None:
    """Set `text` under the figure, wrapped to its width."""
    figure.supxlabel(textwrap.fill(text, 136), x=0.01, ha="left", fontsize=7, color="0.25", linespacing=1.3)


def head(axes: Axes, title: str, entries: Sequence[Artist], above_pt: float = 0) -> None:
    """A title, and under it a legend: above the axes, where it can hide nothing, and what else is there (points)."""
    columns = len(entries) if len(entries) <= 5 else 4  # what fits the width
    lines = -(-len(entries) // columns)
    axes.set_title(title, loc="left", pad=6 + 14 * lines + above_pt)
    legend = axes.legend(
        handles=entries,
        loc="lower left",
        ncols=columns,
        borderaxespad=0.2,
        columnspacing=1.6,
        handletextpad=0.5,
    )
    above = ScaledTranslation(0, above_pt / 72, axes.figure.dpi_scale_trans)
    legend.set_bbox_to_anchor((-0.01, 1.0), axes.transAxes + above)


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write `<stem>.pdf` and `<stem>.png`, the same bytes for the same figure."""
    pdf, png = stem.with_name(stem.name + ".pdf"), stem.with_name(stem.name + ".png")
    with styled():
        figure.savefig(pdf, metadata={"CreationDate": None})
        figure.savefig(png)
    return [pdf, png]

"""What every figure shares: size, colours, markers, units, axes, caption, and how it is written to disk."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import matplotlib
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

WIDTH_IN = 7.0
"""A page's text width, or two columns of a two-column paper."""

# The "colorblind" palette of seaborn 0.13, so that seven colours do not cost its import.
COLOURS = ("#0173b2", "#de8f05", "#029e73", "#d55e00", "#cc78bc", "#ca9161", "#949494")
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


def backends(rows: pd.DataFrame) -> list[str]:
    """The backends in the order of every table and figure: tcp first, as the others are compared with it."""
    return sorted(map(str, rows["backend"].unique()), key=lambda backend: (backend != "tcp", backend))


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
            group.sort_values("point"),
            COLOURS[number % len(COLOURS)],
            MARKERS[number % len(MARKERS)],
            LINES[number % len(LINES)],
        )


def ink(colour: str) -> tuple[float, ...]:
    """A darker shade of a colour, for small text on white."""
    return tuple(0.7 * part for part in to_rgb(colour))


def time_unit(longest_s: float) -> tuple[str, float]:
    """The unit in which times up to `longest_s` read best, and how many of it make a second."""
    return ("ms", 1e3) if longest_s < 1 else ("s", 1.0)


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


def point_label(point: int, name: str, *, limit: int = 16) -> str:
    """`14 features.13`: the point and its name, cut to `limit` characters; the point alone without one."""
    if len(name) > limit:
        # Names share their beginning: what tells them apart is nearer to the end.
        name = f"{name[: limit // 3]}…{name[-(limit - limit // 3 - 1) :]}"
    return f"{point} {name}" if name and name != str(point) else str(point)


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
        f"{span} round{'' if span == '1' else 's'}",
        f"testbed {testbed}" if testbed else "",
        f"{excluded} of {trials} trials excluded (invalid or failed)" if excluded else "no trial excluded",
    ]
    return "; ".join(part for part in parts if part) + "."


def add_caption(figure: Figure, text: str) -> None:
    """Set `text` under the figure, wrapped to its width."""
    figure.supxlabel(textwrap.fill(text, 136), x=0.01, ha="left", fontsize=7, color="0.25", linespacing=1.3)


def head(axes: Axes, title: str, entries: Sequence[Artist]) -> None:
    """A title, and under it a legend: above the axes, where it can hide nothing."""
    columns = len(entries) if len(entries) <= 6 else 4  # what fits the width
    lines = -(-len(entries) // columns)
    axes.set_title(title, loc="left", pad=6 + 14 * lines)
    axes.legend(
        handles=entries,
        loc="lower left",
        bbox_to_anchor=(-0.01, 1.0),
        ncols=columns,
        borderaxespad=0.2,
        columnspacing=1.6,
        handletextpad=0.5,
    )


def file_stem(*parts: object) -> str:
    """`front-mobilenetv2-200ms-5mbit`, of characters that are safe in any file system and in LaTeX."""
    return re.sub(r"[^A-Za-z0-9.+-]+", "-", "-".join(str(part) for part in parts)).strip("-.")


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write `<stem>.pdf` and `<stem>.png`, the same bytes for the same figure."""
    pdf, png = stem.with_name(stem.name + ".pdf"), stem.with_name(stem.name + ".png")
    with styled():
        figure.savefig(pdf, metadata={"CreationDate": None})
        figure.savefig(png)
    return [pdf, png]

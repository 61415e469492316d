"""The layout of all figures: one unit and kind of scale for a run, panels, ticks, titles, and labels beside points."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rcParams
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from pareto.analysis.figures.look import WIDTHS_IN, chosen, left_out
from pareto.analysis.figures.marks import ends, is_logarithmic
from pareto.analysis.figures.style import SMALL_PT, Printed, Series, every_series
from pareto.analysis.naming import SIMULATED, time_unit
from pareto.analysis.runs.points import BUT_CODEC, order
from pareto.analysis.statistics.samples import Floats
from pareto.protocol.errors import UserError

On = Figure | SubFigure | Axes | Sequence[Axes]
"""The place of a figure: a figure of its own, or axes of the caller's, as many as it has panels."""
FIGURES = ("latency_s", "throughput_ips")
MOST_LABELS = 10
MANY = 60
"""With more points than this, marks are small."""
_LETTER_EM = 0.6
"""The mean width of a letter, a little more than it is."""
_STEPS = [factor * 10**power for power in range(8) for factor in (1, 2, 5)]


@dataclass(frozen=True)
class Scheme:
    """One choice for all figures of a run: the unit of times and how many make a second, which axes are logarithmic,
    how backends look, what is shown of uncertainty (`marks.UNCERTAINTIES`), and the testbed for captions.
    """

    unit: str
    per_s: float
    logarithmic: dict[str, bool]
    series: tuple[Series, ...]
    uncertainty: str = "box"
    testbed: str = ""

    @classmethod
    def of(cls, front: pd.DataFrame, uncertainty: str = "box", testbed: str = "") -> Scheme:
        """The scheme of a front: seconds only where every condition has them; logarithmic what any condition needs."""
        known = front.dropna(subset=list(FIGURES))
        by = known.groupby([name for name in BUT_CODEC if name in known], dropna=False)
        spans = by[list(FIGURES)].agg(["min", "max"])
        unit = time_unit(float(spans["latency_s", "max"].min()) if len(known) else 0.0)
        bent = {name: any(map(is_logarithmic, spans[name, "min"], spans[name, "max"])) for name in FIGURES}
        return cls(*unit, bent, every_series(front), uncertainty, testbed)

    def scale(self, name: str) -> float:
        """The factor of a figure on its axis."""
        return self.per_s if name == "latency_s" else 1.0

    def label(self, name: str) -> str:
        """The label of a figure's axis."""
        return f"latency ({self.unit})" if name == "latency_s" else "throughput (images/s)"


def panels(on: On, lines: int, columns: int, height_in: float, **more: Any) -> list[Axes]:
    """The axes to draw on, line by line: new ones of a figure, whose height is set, or the caller's. `count`: of them,
    where the last line is not full. Raises UserError.
    """
    count = more.pop("count", lines * columns)
    if isinstance(on, (Figure, SubFigure)):
        if isinstance(on, Printed):
            on.set_size_inches(on.get_size_inches()[0], height_in)
        grid = on.subplots(lines, columns, squeeze=False, **more).ravel()
        for axes in grid[count:]:
            axes.remove()
        return list(grid[:count])
    given = [on] if isinstance(on, Axes) else list(np.ravel(np.asarray(on, dtype=object)))
    if len(given) != count:
        raise UserError(f"ax: this figure has {count} panels, and takes as many axes, not {len(given)}")
    return given


def is_narrow(on: On) -> bool:
    """Whether there is a column's room, and not a page's."""
    return _width_in(on) < (WIDTHS_IN["column"] + WIDTHS_IN["page"]) / 2


def _width_in(on: On) -> float:
    if isinstance(on, (Figure, SubFigure)):
        return float(on.bbox.width / on.dpi)
    every = [on] if isinstance(on, Axes) else list(np.ravel(np.asarray(on, dtype=object)))
    span = max(axes.bbox.x1 for axes in every) - min(axes.bbox.x0 for axes in every)
    return float(span / every[0].figure.dpi)


def head(
    on: On, first: Axes, title: str, entries: Sequence[Artist], rows: pd.DataFrame | None = None
) -> None:
    """Write title and legend: above a figure of ours, which grows by their height, and under it what of the rows was
    left out or simulated; on the caller's first axes otherwise.
    """
    if not isinstance(on, (Figure, SubFigure)):
        first.set_title(title, loc="left")
        if entries:
            first.legend(handles=list(entries), loc="best", fontsize="small")
        return
    size, title_pt = float(rcParams["legend.fontsize"]), float(rcParams["axes.titlesize"])
    room_pt = 72 * _width_in(on) - 12
    title = textwrap.fill(title if chosen().titles else "", max(int(room_pt / (0.64 * title_pt)), 12))
    each_pt = size * (_LETTER_EM * max((len(str(it.get_label())) for it in entries), default=0) + 4.6)
    columns = max(min(int(room_pt / each_pt), len(entries)), 1)
    if isinstance(on, Printed):
        taken_pt = 1.25 * title_pt * len(title.splitlines()) + 1.5 * size * -(-len(entries) // columns)
        on.set_size_inches(on.get_size_inches()[0], on.get_size_inches()[1] + taken_pt / 72)
    if title or entries:
        look: dict[str, Any] = {"borderaxespad": 0.2, "columnspacing": 1.2, "handletextpad": 0.5}
        look |= {"title": title or None, "title_fontproperties": {"weight": "bold", "size": title_pt}}
        on.legend(handles=list(entries), loc="outside upper left", alignment="left", ncols=columns, **look)
    if rows is not None:
        simulated = rows["setup"].astype(str).str.startswith(SIMULATED).any()
        notes = filter(None, ("Simulated: nothing was measured" if simulated else "", left_out(rows)))
        if text := ". ".join(notes):
            on.supxlabel(f"{text}.", x=0.01, ha="left", fontsize=SMALL_PT, color="0.35")


def fit_axis(
    axes: Axes, name: str, values: Iterable[float], logarithmic: bool | None = None, room: float = 0.1
) -> None:
    """Fix scale and limits of an axis as `marks.ends` does, with room around the points."""
    known = np.asarray([*values], dtype=float)
    known = known[np.isfinite(known)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    bent = (is_logarithmic(low, high) if logarithmic is None else logarithmic) and low > 0
    axes.set(**{f"{name}lim": ends(low, high, room, bent)})
    if bent:
        limits = axes.get_xlim() if name == "x" else axes.get_ylim()
        axes.set(**{f"{name}scale": "log", f"{name}lim": limits})
        _mark_decades(axes, name)


def _mark_decades(axes: Axes, name: str) -> None:
    """Write plain numbers at 1, 2, 5, 10 of a logarithmic axis with limits; fewer where they would touch."""
    axis = axes.xaxis if name == "x" else axes.yaxis
    low, high = sorted(axis.get_view_interval())
    length_pt = (axes.bbox.width if name == "x" else axes.bbox.height) / (axes.figure.dpi / 72)
    most, decades = length_pt / (26 if name == "x" else 12), math.log10(high / low)
    subs = next((subs for subs in ((1, 2, 5), (1, 3)) if decades * len(subs) <= most), (1,))
    few = MaxNLocator(int(np.clip(most / 2, 2, 8)), steps=[1, 2, 5, 10])
    axis.set_major_locator(few if decades < 0.8 else LogLocator(subs=subs, numticks=max(int(most), 2)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def in_order(rows: pd.DataFrame) -> pd.Series:
    """The names (`point_name`) of all points of some rows, indexed by point, ordered by their cuts."""
    named = rows.groupby("point")["point_name"].max().reset_index()
    ordered: pd.Series = named.sort_values("point", key=order).set_index("point")["point_name"]
    return ordered


def places(rows: pd.DataFrame, points: pd.Series) -> pd.Series:
    """The place of each row's point along the axis."""
    return rows["point"].map({point: place for place, point in enumerate(points.index)}).astype("float64")


def label_points(axes: Axes, points: pd.Series) -> None:
    """Number the points of `in_order` under an axis, each with its name beneath where these fit side by side; where
    numbers do not fit either, every second, fifth, ... has one.
    """
    room = 0.6 + max(5 - len(points), 0) / 4  # the bars of few points need not be wide
    axes.set_xlim(-room, len(points) - 1 + room)
    axes.set_xlabel("partition point")
    each_pt = 0.94 * axes.bbox.width * 72 / axes.figure.dpi / (len(points) - 1 + 2 * room)
    size_pt = _LETTER_EM * float(rcParams["xtick.labelsize"])

    def needed_pt(texts: Iterable[object]) -> float:
        return 3 + size_pt * max((len(str(text)) for text in texts), default=0)

    if needed_pt(points) <= each_pt and needed_pt(points.index) <= each_pt:
        axes.set_xticks(range(len(points)), [f"{point}\n{name}" for point, name in points.items()])
    else:
        step = next(step for step in _STEPS if needed_pt(points.index) <= step * each_pt)
        axes.set_xticks(range(0, len(points), step), [str(point) for point in points.index[::step]])


def place_labels(
    axes: Axes,
    labels: Sequence[tuple[float, float, str, Any]],
    marks: Floats,
    reach_pt: float = 2.5,
    side: tuple[float, float] = (-1.0, 1.0),
) -> None:
    """Write each label (x, y, text, colour) at this side of its point, or elsewhere to be clear of marks (n x 2, data
    units, which reach so far) and of other labels, with a thin line to its point where it is apart. One for which there
    is no room is left out. The same input gives the same figure.
    """
    from adjustText import adjust_text  # imports pyplot

    figure = axes.get_figure(root=True)
    if not labels or figure is None:
        return
    figure.settle() if isinstance(figure, Printed) else figure.draw_without_rendering()
    box: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.2}
    look: dict[str, Any] = {"fontsize": SMALL_PT, "zorder": 3.5, "ha": "center", "va": "center", "bbox": box}
    to_pixels, reach = axes.transData, reach_pt * axes.figure.dpi / 72
    texts, at = [], []
    for x, y, words, colour in labels:
        text, point = axes.text(x, y, words, color=colour, **look), to_pixels.transform((x, y))
        text.set_in_layout(False)
        half = np.array(text.get_window_extent().size) / 2
        if (2 * half >= axes.bbox.size).any():
            text.remove()
            continue
        texts.append(text)
        at.append((x, y))
        away = (half + reach + 2) * side
        beyond = (point + away - half < axes.bbox.min) | (point + away + half > axes.bbox.max)
        text.set_position(tuple(to_pixels.inverted().transform(point + np.where(beyond, -away, away))))
    around = reach * np.array([[0, 0], [-0.7, -0.7], [-0.7, 0.7], [0.7, -0.7], [0.7, 0.7]])
    dots = (to_pixels.transform(marks[:: 1 + len(marks) // 300])[:, None] + around).reshape(-1, 2)
    around_x, around_y = to_pixels.inverted().transform(dots).T
    arrow = {"arrowstyle": "-", "color": "0.45", "linewidth": 0.4, "shrinkA": 1, "zorder": 2.2}
    before = len(axes.patches)
    # Bounded by turns, not by time: the same on a slow machine.
    bounds = {"iter_lim": 60, "expand": (1.1, 1.25), "explode_radius": 0, "min_arrow_len": 8 + reach}
    of = {"target_x": [x for x, _ in at], "target_y": [y for _, y in at], "avoid_self": False, "ax": axes}
    adjust_text(texts, x=around_x, y=around_y, arrowprops=arrow, **of, **bounds)
    leaders = {leader.patchA: leader for leader in axes.patches[before:]}  # type: ignore[attr-defined]
    kept: list[Any] = []
    every = to_pixels.transform(marks)
    for text in texts:
        extent = text.get_window_extent()
        covers = ((every > extent.min) & (every < extent.max)).all(axis=1).any()
        if covers or any(extent.overlaps(other) for other in kept):
            text.remove()
            if leader := leaders.get(text):
                leader.remove()
        else:
            kept.append(extent)

"""The layout of all figures: one unit and kind of scale for a run, panels, ticks, titles, and labels beside points."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from pareto.analysis.figures.drawing import Told
from pareto.analysis.figures.look import PAGE, WIDTHS_IN, chosen, ends, is_logarithmic
from pareto.analysis.figures.style import NEUTRAL, SMALL_PT, Printed, Series, every_series, styled
from pareto.analysis.naming import time_unit
from pareto.analysis.runs.points import BUT_CODEC, order
from pareto.analysis.statistics.samples import Floats
from pareto.protocol.errors import UserError

On = Printed | Axes | Sequence[Axes]
"""The place of a figure: a figure of its own, or axes of the caller's, as many as it has panels."""
FIGURES = ("latency_s", "throughput_ips")
MOST_LABELS = 10
MANY = 60
"""With more points than this, marks are small."""
_LETTER_EM = 0.6
"""The mean width of a letter, a little more than it is."""
_LABEL_PT = (10, 10)
"""The least room of a label beside its point."""
_STEPS = [factor * 10**power for power in range(8) for factor in (1, 2, 5)]


@dataclass(frozen=True)
class Scheme:
    """One choice for all figures of a run: the unit of times and how many make a second, which axes are logarithmic,
    how backends look, what is shown of uncertainty (`look.UNCERTAINTIES`), and the testbed for captions.
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

    def of_each(self, rows: pd.DataFrame) -> Iterator[tuple[Series, pd.DataFrame]]:
        """Yield each series that some rows have, and what it has of them; at last where nothing crosses."""
        for one in (*self.series, NEUTRAL):
            if len(own := one.of(rows)):
                yield one, own


def printed(draw: Callable[[Printed], Told], width: str = PAGE) -> tuple[Printed, Told]:
    """A whole figure of this width, and what it tells."""
    with styled(width):
        figure = Printed(width)
        told = draw(figure)
        finish(figure, told)
    return figure, told


def panels(on: On, lines: int, columns: int, height_in: float, **more: Any) -> list[Axes]:
    """The axes to draw on, line by line: new ones of a figure, whose height is set, or the caller's. `count`: of them,
    where the last line is not full. Raises UserError.
    """
    count = more.pop("count", lines * columns)
    if isinstance(on, Printed):
        on.set_figheight(height_in)
        grid = on.subplots(lines, columns, squeeze=False, **more).ravel()
        for axes in grid[count:]:
            axes.remove()
        return list(grid[:count])
    if len(given := _given(on)) != count:
        raise UserError(f"ax: this figure has {count} panels, and takes as many axes, not {len(given)}")
    return given


def _given(on: Axes | Sequence[Axes]) -> list[Axes]:
    return list(np.ravel(np.asarray(on, dtype=object)))


def is_narrow(on: On) -> bool:
    """Whether there is a column's room, and not a page's."""
    if isinstance(on, Printed):
        return on.width != PAGE
    boxes = [axes.bbox for axes in _given(on)]
    span_in = (max(box.x1 for box in boxes) - min(box.x0 for box in boxes)) / _given(on)[0].figure.dpi
    return bool(span_in < sum(WIDTHS_IN.values()) / 2)


def finish(on: On, told: Told, title: str | None = None) -> None:
    """Write title and legend, above a figure of ours, which grows by their height, or on the caller's first axes; what
    of the rows was left out or simulated, under ours; and then labels, in the layout that there is. title: in place of
    the figure's own.
    """
    title, entries = told.title if title is None else title, list(told.entries)
    if isinstance(on, Printed):
        size, title_pt = float(rcParams["legend.fontsize"]), float(rcParams["axes.titlesize"])
        room_pt = 72 * on.get_figwidth() - 12
        title = textwrap.fill(title if chosen().titles else "", int(room_pt / (0.64 * title_pt)))
        each_pt = size * (_LETTER_EM * max((len(str(it.get_label())) for it in entries), default=0) + 4.6)
        columns = max(min(int(room_pt / each_pt), len(entries)), 1)
        taken_pt = 1.25 * title_pt * len(title.splitlines()) + 1.5 * size * -(-len(entries) // columns)
        on.set_figheight(on.get_figheight() + taken_pt / 72)
        if title or entries:
            bold = {"weight": "bold", "size": title_pt}
            head = on.legend(handles=entries, loc="outside upper left", ncols=columns, alignment="left")
            head.set_title(title or None, prop=bold)  # type: ignore[arg-type]
        if note := textwrap.fill(told.footnote(), int(room_pt / (0.55 * SMALL_PT))):
            on.supxlabel(note, x=0.01, ha="left", fontsize=SMALL_PT, color="0.35")
    else:
        first = _given(on)[0]
        first.set_title(title, loc="left")
        if entries:
            first.legend(handles=entries, loc="best", fontsize="small")
    for labels in told.labels:
        place_labels(*labels)


def fit_axis(axes: Axes, name: str, values: Any, logarithmic: bool | None = None, room: float = 0.1) -> None:
    """Fix scale and limits of an axis as `look.ends` does, with room around the points."""
    known = np.asarray(values, dtype=float)
    known = known[np.isfinite(known)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    bent = low > 0 and (is_logarithmic(low, high) if logarithmic is None else logarithmic)
    axes.set(**{f"{name}scale": "log" if bent else "linear", f"{name}lim": ends(low, high, room, bent)})
    if bent:
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
    names: pd.Series = rows.groupby("point")["point_name"].max()
    return names.sort_index(key=lambda points: order(points.to_series()))


def places(rows: pd.DataFrame, points: pd.Series) -> pd.Series:
    """The place of each row's point along the axis."""
    return rows["point"].map({point: place for place, point in enumerate(points.index)}).astype("float64")


def label_points(axes: Axes, points: pd.Series) -> None:
    """Number the points of `in_order` under an axis, each with its name beneath where these fit side by side; where
    numbers do not fit either, every second, fifth, ... has one.
    """
    room = 0.6 + max(5 - len(points), 0) / 4  # the bars of few points need not be wide
    axes.set(xlim=(-room, len(points) - 1 + room), xlabel="partition point")
    each_pt = 0.94 * axes.bbox.width * 72 / axes.figure.dpi / (len(points) - 1 + 2 * room)
    letter_pt = _LETTER_EM * float(rcParams["xtick.labelsize"])
    number_pt, name_pt = (3 + letter_pt * max(map(len, map(str, texts))) for texts in (points.index, points))
    named = max(number_pt, name_pt) <= each_pt
    step = 1 if named else next(step for step in _STEPS if number_pt <= step * each_pt)
    texts = [f"{point}\n{name}" if named else str(point) for point, name in points.iloc[::step].items()]
    axes.set_xticks(range(0, len(points), step), texts)


def place_labels(
    axes: Axes,
    labels: Sequence[tuple[float, float, str, Any]],
    marks: Floats,
    reach_pt: float = 2.5,
    side: tuple[int, int] = (-1, 1),
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
    pixels, reach = axes.transData, reach_pt * axes.figure.dpi / 72
    points = np.array([label[:2] for label in labels])
    at = pixels.transform(points)
    beyond = at + np.multiply(side, _LABEL_PT) * axes.figure.dpi / 72
    sides = np.where((beyond < axes.bbox.min) | (beyond > axes.bbox.max), np.multiply(-1, side), side)
    starts = pixels.inverted().transform(at + sides * (reach + 2))
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.2}
    texts = []
    for start, (across, up), (*_, words, colour) in zip(starts, sides, labels, strict=True):
        ha, va = ("center", "left", "right")[across], ("center", "bottom", "top")[up]
        look: dict[str, Any] = {"color": colour, "fontsize": SMALL_PT, "zorder": 3.5, "bbox": box}
        texts.append(axes.text(start[0], start[1], words, ha=ha, va=va, **look))
    around = reach * np.array([[0, 0], [-0.7, -0.7], [-0.7, 0.7], [0.7, -0.7], [0.7, 0.7]])
    dots = (pixels.transform(marks[:: 1 + len(marks) // 300])[:, None] + around).reshape(-1, 2)
    x, y = pixels.inverted().transform(dots).T
    arrow = {"arrowstyle": "-", "color": "0.45", "linewidth": 0.4, "shrinkA": 1, "zorder": 2.2}
    # Bounded by turns, not by time: the same on a slow machine.
    bounds = {"iter_lim": 60, "expand": (1.1, 1.25), "explode_radius": 0, "min_arrow_len": 8 + reach}
    target = {"target_x": points[:, 0], "target_y": points[:, 1], "avoid_self": False}
    _, lines = adjust_text(texts, x=x, y=y, ax=axes, arrowprops=arrow, **target, **bounds)
    every = pixels.transform(marks)
    kept: list[Any] = []
    for text in texts:
        text.set_in_layout(False)
        extent = text.get_window_extent()
        is_inside = np.less_equal(extent.size, axes.bbox.size).all()
        covers = ((every > extent.min) & (every < extent.max)).all(axis=1).any()
        if is_inside and not covers and not any(extent.overlaps(other) for other in kept):
            kept.append(extent)
        else:
            for artist in (text, *(line for line in lines if line.patchA is text)):
                artist.remove()

"""The layout of all figures: one unit and kind of scale for a run, panels, ticks, titles, and labels beside points."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from pareto.analysis.figures.drawing import Told
from pareto.analysis.figures.look import PAGE, WIDTHS_IN, chosen, ends, is_logarithmic
from pareto.analysis.figures.style import NEUTRAL, SMALL_PT, WHITE, Printed, Series, every_series, styled
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
_SIDES = ((-1, 1), (1, -1), (1, 1), (-1, -1), (0, -1), (0, 1), (-1, 0), (1, 0))
"""Where a label may stand beside its point, across and up: first where the better corner of a front is free."""
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
    """Write title and legend, above a figure of ours, which grows by their height, or on the caller's first axes; the
    footnote under ours; and then labels, in the layout that there is. title: in place of the figure's own."""
    title, every = told.title if title is None else title, on.axes if isinstance(on, Printed) else _given(on)
    named = {
        label: handle
        for axes in every
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    } | {str(entry.get_label()): entry for entry in told.entries}
    if isinstance(on, Printed):
        size, title_pt = float(rcParams["legend.fontsize"]), float(rcParams["axes.titlesize"])
        room_pt = 72 * on.get_figwidth() - 12
        title = textwrap.fill(title if chosen().titles else "", int(room_pt / (0.64 * title_pt)))
        each_pt = size * (_LETTER_EM * max(map(len, named), default=0) + 4.6)
        columns = max(min(int(room_pt / each_pt), len(named)), 1)
        taken_pt = 1.25 * title_pt * len(title.splitlines()) + 1.5 * size * -(-len(named) // columns)
        on.set_figheight(on.get_figheight() + taken_pt / 72)
        if title or named:
            look: dict[str, Any] = {"loc": "outside upper left", "ncols": columns, "alignment": "left"}
            look["title_fontproperties"] = {"weight": "bold", "size": title_pt}
            on.legend([*named.values()], [*named], title=title or None, **look)
        if note := textwrap.fill(told.footnote(), int(room_pt / (0.55 * SMALL_PT))):
            on.supxlabel(note, x=0.01, ha="left", fontsize=SMALL_PT, color="0.35")
    else:
        every[0].set_title(title, loc="left")
        if named:
            every[0].legend([*named.values()], [*named], loc="best", fontsize="small")
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
    """Number the points of `in_order` under an axis, or some of them, with their names beneath where these fit."""
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
    axes: Axes, labels: Sequence[tuple[float, float, str, Any]], marks: Floats, reach_pt: float = 2.5
) -> None:
    """Write each label (x, y, text, colour) beside its point (beneath it first, where marks are wide), clear of marks
    (n x 2, data units, which reach so far) and of other labels; or further off, with a thin line. One for which there
    is no room is left out.
    """
    figure = axes.get_figure(root=True)
    figure.settle() if isinstance(figure, Printed) else figure.draw_without_rendering()  # type: ignore[union-attr]
    reach, dots, taken = reach_pt * axes.figure.dpi / 72, axes.transData.transform(marks), list[Any]()
    sides = _SIDES if reach_pt < 5 else _SIDES[4:] + _SIDES[:4]
    look: dict[str, Any] = {"textcoords": "offset points", "fontsize": SMALL_PT, "zorder": 3.5, "bbox": WHITE}
    line = {"arrowstyle": "-", "color": "0.45", "linewidth": 0.4, "shrinkA": 0, "shrinkB": reach_pt}
    for x, y, words, colour in labels:
        for off_pt, (across, up) in product((1, 9), sides):
            at = (off_pt + reach_pt) * across, (off_pt + reach_pt) * up
            look |= {"ha": ("center", "left", "right")[across], "va": ("center", "bottom", "top")[up]}
            text = axes.annotate(
                words, (x, y), at, arrowprops=line if off_pt > 1 else None, color=colour, **look
            )
            text.set_in_layout(False)
            text.get_window_extent()  # puts it where it is meant to be
            box = Text.get_window_extent(text)  # without its line
            is_inside = np.all([box.min >= axes.bbox.min, box.max <= axes.bbox.max])
            is_clear = ((dots + reach < box.min) | (dots - reach > box.max)).any(axis=1).all()
            if is_inside and is_clear and not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
            text.remove()

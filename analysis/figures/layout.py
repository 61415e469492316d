"""The layout of all figures: panels or the caller's axes, ticks, title, legend, labels; and how pictures are saved."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from fontTools import subset
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from pareto.analysis.figures.drawing import Told
from pareto.analysis.figures.look import PAGE, WIDTHS_IN, chosen, ends, is_logarithmic
from pareto.analysis.figures.style import SMALL_PT, WHITE, styled
from pareto.analysis.runs.points import order
from pareto.analysis.statistics.samples import Floats
from pareto.basics import files
from pareto.protocol.errors import UserError

MOST_LABELS = 10
MANY = 60
"""With more points than this, marks are small."""
_LETTER_EM = 0.6
"""The mean width of a letter, a little more than it is."""
_SIDES = ((-1, 1), (1, -1), (1, 1), (-1, -1), (0, -1), (0, 1), (-1, 0), (1, 0))
"""Where a label may stand beside its point, across and up: first where the better corner of a front is free."""
_STEPS = [factor * 10**power for power in range(8) for factor in (1, 2, 5)]
_WRITTEN: dict[str, dict[str, Any]] = {
    "pdf": {"metadata": {"CreationDate": None}},
    "svg": {"metadata": {"Date": None}},
    "png": {"pil_kwargs": {"compress_level": 3}},  # a quarter larger, in 70 % of the time
}


class Printed(Figure):
    """A figure of a width, made within its `styled`, whose settings hold also when a notebook saves it."""

    def __init__(self, width: str = PAGE) -> None:
        super().__init__(figsize=(WIDTHS_IN[width], 3), layout="constrained")
        self.width = width

    def settle(self) -> None:
        """Make the layout final: labels are placed in it, and with one each format would be drawn twice."""
        if engine := self.get_layout_engine():
            engine.execute(self)
            self.set_layout_engine(None)

    def savefig(self, fname: Any, **options: Any) -> None:
        with styled(self.width):
            super().savefig(fname, **options)

    def save(self, stem: Path, formats: Sequence[str]) -> list[Path]:
        """The paths of `<stem>.<format>`, which are written: the same bytes for the same figure, in one layout."""
        written, load = [], subset.load_font

        def plain(*args: Any, **options: Any) -> Any:
            """A font without ligatures and kerning, which a PDF has no use for and which take long to embed."""
            font = load(*args, **options)
            for table in {"GDEF", "GPOS", "GSUB", "kern"} & set(font.keys()):
                del font[table]
            return font

        with styled(self.width):
            self.settle()
        subset.load_font = plain
        try:
            for name in formats:
                made = io.BytesIO()
                self.savefig(made, format=name, **_WRITTEN.get(name, {}))
                written.append(files.write(stem.with_name(f"{stem.name}.{name}"), made.getvalue()))
        finally:
            subset.load_font = load
        return written


On = Printed | Axes | Sequence[Axes]
"""The place of a figure: a figure of its own, or axes of the caller's, as many as it has panels."""


def printed(draw: Callable[[Printed], Told], width: str = PAGE) -> tuple[Printed, Told]:
    """A whole figure of this width, and what it tells."""
    with styled(width):
        figure = Printed(width)
        told = draw(figure)
        finish(figure, told)
    return figure, told


def _every(on: On) -> list[Axes]:
    return on.axes if isinstance(on, Printed) else list(np.ravel(np.asarray(on, dtype=object)))


def is_narrow(on: On) -> bool:
    """Whether there is a column's room, and not a page's."""
    if isinstance(on, Printed):
        return on.width != PAGE
    boxes = [axes.bbox for axes in _every(on)]
    span_in = (max(box.x1 for box in boxes) - min(box.x0 for box in boxes)) / _every(on)[0].figure.dpi
    return bool(span_in < sum(WIDTHS_IN.values()) / 2)


def panels(on: On, lines: int, columns: int, height_in: float, **more: Any) -> list[Axes]:
    """The axes to draw on, line by line: new ones of a figure, whose height is set, or the caller's. `count`: of them,
    where the last line is not full. Raises UserError.
    """
    count = more.pop("count", lines * columns)
    if isinstance(on, Printed):
        on.set_figheight(height_in)
        for axes in on.subplots(lines, columns, squeeze=False, **more).flat[count:]:
            axes.remove()
    if len(every := _every(on)) != count:
        raise UserError(f"ax: this figure has {count} panels, and takes as many axes, not {len(every)}")
    return every


def entry(axes: Axes, label: str, **look: Any) -> None:
    """Make an entry of the legend, with nothing on the axes: a mark without a line, unless it has a linestyle."""
    axes.plot([], [], label=label, **{"linestyle": "", **look})


def finish(on: On, told: Told, title: str | None = None) -> None:
    """Write title and legend, above a figure of ours, which grows by their height, or on the caller's first axes; the
    footnote under ours; and then labels, in the layout that there is. title: in place of the figure's own."""
    title, every = told.title if title is None else title, _every(on)
    handles = [zip(*axes.get_legend_handles_labels(), strict=True) for axes in every]
    named = {label: handle for of_axes in handles for handle, label in of_axes}
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
    """Fix scale and limits of an axis as `look.ends` does, with room around the points. A logarithmic one has plain
    numbers at 1, 2, 5, 10, or fewer where they would touch."""
    known = np.asarray(values, dtype=float)
    known = known[np.isfinite(known)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    bent = low > 0 and (is_logarithmic(low, high) if logarithmic is None else logarithmic)
    low, high = ends(low, high, room, bent)
    axes.set(**{f"{name}scale": "log" if bent else "linear", f"{name}lim": (low, high)})
    if bent:
        axis, length, each_pt = (
            (axes.xaxis, axes.bbox.width, 26) if name == "x" else (axes.yaxis, axes.bbox.height, 12)
        )
        most, decades = length / (axes.figure.dpi / 72) / each_pt, math.log10(high / low)
        subs = next((subs for subs in ((1, 2, 5), (1, 3)) if decades * len(subs) <= most), (1,))
        few = MaxNLocator(int(np.clip(most / 2, 2, 8)), steps=[1, 2, 5, 10])
        axis.set_major_locator(few if decades < 0.8 else LogLocator(subs=subs, numticks=max(int(most), 2)))
        axis.set_major_formatter("{x:g}")
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
    axes.grid(True, axis="y")
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

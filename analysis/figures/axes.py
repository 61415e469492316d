"""Axes: fitted to what they show, logarithmic where it spans much; of a model's points, in the same order and under the
same names in every figure; of what may be nothing or without limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.ticker import FuncFormatter, Locator, LogLocator, NullFormatter

from pareto.analysis.figures import marks
from pareto.analysis.figures.style import SMALL_PT, root
from pareto.analysis.points import order
from pareto.analysis.statistics.samples import Floats

_TICK_WIDTH_PT, _TICK_HEIGHT_PT = 24.0, 12.0
"""The room that a number at an axis takes."""
_LETTER_EM = 0.62
"""The mean width of a letter, a little more than it is."""

MANY = 60
"""With more points than this, marks are small and bars become lines."""
STRIP_PT = 5.0
"""How far above the axes a strip stands: over half the topmost number beside them."""
_STEPS: list[int] = [factor * 10**power for power in range(8) for factor in (1, 2, 5)]
_ROOM_PT = {"column": 195.0, "page": 430.0}
"""About the width of axes."""

STRIP = 0.09
"""The share of the axis that a strip takes."""
BEYOND = 2.5
"""The factor by which a scale goes beyond what is on it, at both ends."""
LEAST = 100.0
"""The least factor between the ends of a scale."""


def fit_axis(
    axes: Axes, name: Literal["x", "y"], values: pd.Series, room: float = 0.12, *, shares: bool = False
) -> None:
    """Fix scale and limits of one axis as `marks.ends` does, with `room` for labels around the points.

    shares: of percentages that lie close together; the axis is linear, and begins near the least of them.
    """
    low, high = float(values.min()), float(values.max())
    if shares:
        margin = room * (high - low or high or 1)
        axes.set(**{f"{name}lim": (low - margin, high + margin)})
        return
    axes.set(**{f"{name}lim": marks.ends(low, high, room)})
    if marks.is_logarithmic(low, high):
        axes.set(**{f"{name}scale": "log"})
        mark_decades(axes, name)


def end_at_all(figure: Figure, *axes: Axis) -> None:
    """Have no tick beyond 100 % on axes of shares, where room for labels is."""
    figure.draw_without_rendering()
    for axis in axes:
        low, high = axis.get_view_interval()
        axis.set_ticks([place for place in axis.get_ticklocs() if low <= place <= min(high, 100)])


def mark_decades(axes: Axes, name: Literal["x", "y"]) -> None:
    """Ticks at 1, 2, 5, 10 on a logarithmic axis with limits; fewer where their labels would touch."""
    axis = axes.xaxis if name == "x" else axes.yaxis
    low, high = axis.get_view_interval()
    length_pt = (axes.bbox.width if name == "x" else axes.bbox.height) / (axes.figure.dpi / 72)
    most = length_pt / (_TICK_WIDTH_PT if name == "x" else _TICK_HEIGHT_PT)
    decades = math.log10(high / low)
    subs = next((subs for subs in ((1, 2, 5), (1, 3)) if decades * len(subs) <= most), (1,))
    tick_logarithmic(axis, LogLocator(subs=subs, numticks=max(int(most), 2)))


def tick_logarithmic(axis: Axis, locator: Locator) -> None:
    """Write plain numbers at these ticks of a logarithmic axis, and none between them."""
    axis.set_major_locator(locator)
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def in_order(rows: pd.DataFrame) -> pd.Series:
    """The names (`point_name`) of all points of some rows, indexed by point, ordered by their cuts."""
    named = rows.groupby("point")["point_name"].max().reset_index()
    ordered: pd.Series = named.sort_values("point", key=order).set_index("point")["point_name"]
    return ordered


def places(rows: pd.DataFrame, points: pd.Series) -> pd.Series:
    """The place of each row's point along the axis."""
    return rows["point"].map({point: place for place, point in enumerate(points.index)}).astype("float64")


def label_points(axes: Axes, points: pd.Series) -> None:
    """Number the points of `in_order` under an axis, each with its name beneath where these fit side by side.

    Where the numbers do not fit either, every second, fifth, ... point has one.
    """
    room = 0.6 + max(5 - len(points), 0) / 4  # the bars of few points need not be wide
    axes.set_xlim(-room, len(points) - 1 + room)
    axes.set_xlabel("partition point")
    size_pt = FontProperties(size=rcParams["xtick.labelsize"]).get_size_in_points()
    each_pt = axes.bbox.width * 72 / root(axes).dpi / (len(points) - 1 + 2 * room)

    def needed_pt(texts: Iterable[object]) -> float:
        return 3 + _LETTER_EM * size_pt * max(len(str(text)) for text in texts)

    if needed_pt(points) <= each_pt and needed_pt(points.index) <= each_pt:
        axes.set_xticks(range(len(points)), [f"{point}\n{name}" for point, name in points.items()])
    else:
        step = next(step for step in _STEPS if needed_pt(points.index) <= step * each_pt)
        axes.set_xticks(range(0, len(points), step), [str(point) for point in points.index[::step]])


def strip(axes: Axes, at: Sequence[float], texts: Sequence[str], points: int, width: str) -> float:
    """Write small texts above the axes, one at each place, upright where they would not fit side by side, and none
    where they would touch even so.

    Returns its height (points of print).
    """
    room_pt = _ROOM_PT[width] / max(points, 6)
    if room_pt < SMALL_PT + 2:
        return 0.0
    longest_pt = 3.6 * max(map(len, texts), default=0)
    upright = longest_pt + 2 > room_pt
    for place, text in zip(at, texts, strict=True):
        axes.annotate(
            text, (place, 1), (0, STRIP_PT), xycoords=("data", "axes fraction"), textcoords="offset points",
            ha="center", va="bottom", fontsize=SMALL_PT, rotation=90 if upright else 0, annotation_clip=False,
        )  # fmt: skip
    return STRIP_PT + 2 + (longest_pt if upright else SMALL_PT)


@dataclass(frozen=True)
class Scale:
    """A logarithmic axis from `low` to `high`, drawn from 0 to 1, with a strip at one end for what lies beyond it."""

    low: float
    high: float
    strip_low: bool = False
    strip_high: bool = False

    @classmethod
    def around(
        cls,
        values: pd.Series,
        otherwise: tuple[float, float],
        *,
        strip_low: bool = False,
        strip_high: bool = False,
    ) -> Scale:
        """A scale with room around some values (above 0, finite); from and to `otherwise` if there are none."""
        low, high = (float(values.min()) / BEYOND, float(values.max()) * BEYOND) if len(values) else otherwise
        wider = max(1.0, math.sqrt(LEAST * low / high))
        return cls(low / wider, high * wider, strip_low, strip_high)

    def at(self, values: Floats) -> Floats:
        """The places of values; 0 and inf are in the middle of their strips."""
        start, end = self._ends()
        with np.errstate(divide="ignore"):
            share = np.log(np.asarray(values, dtype=float) / self.low) / math.log(self.high / self.low)
        places: Floats = np.clip(start + share * (end - start), start, end)
        places = np.where(np.asarray(values) == 0, start / 2, places)
        return np.where(np.isinf(values), (1 + end) / 2, places)

    def values(self, count: int) -> Floats:
        """The value at each of `count` even steps of the axis; in the strips it is 0 or inf."""
        start, end = self._ends()
        places = (np.arange(count) + 0.5) / count
        values = self.low * (self.high / self.low) ** ((places - start) / (end - start))
        return np.where(places < start, 0.0, np.where(places > end, np.inf, values))

    def ticks(self) -> list[float]:
        """1, 10, 100, ...; with 2, 5, ... where these are few."""
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        factors = (1,) if self.high / self.low > 300 else (1, 3) if self.high / self.low > 30 else (1, 2, 5)
        every = [factor * 10.0**decade for decade in decades for factor in factors]
        return [value for value in every if self.low <= value <= self.high * (1 + 1e-9)]

    def show(self, axes: Axes, name: Literal["x", "y"], unit: float, strips: Mapping[float, str]) -> None:
        """Draw ticks in `unit`, a tick for each strip, and a dashed line where a strip begins."""
        ticks = self.ticks()
        texts = {tick: f"{tick / unit:g}" for tick in ticks}
        shown = {0.0: self.strip_low, math.inf: self.strip_high}
        texts |= {value: text for value, text in strips.items() if shown[value]}
        axis = axes.xaxis if name == "x" else axes.yaxis
        axis.set_ticks(list(self.at(np.array(list(texts)))), list(texts.values()))
        line = axes.axvline if name == "x" else axes.axhline
        for end in (end for end in self._ends() if 0 < end < 1):
            line(end, color="white", linewidth=2.5, zorder=1.5)
            line(end, color="0.5", linewidth=0.6, linestyle=(0, (2, 2)), zorder=1.6)

    def _ends(self) -> tuple[float, float]:
        return STRIP * self.strip_low, 1 - STRIP * self.strip_high

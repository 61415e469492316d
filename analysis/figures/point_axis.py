"""The points of a model along the horizontal axis, in order: the same places and names in every figure that has one."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes

from analysis.figures.style import SMALL_PT
from analysis.naming import point_label
from analysis.points import order

NAMED = {"column": 22, "page": 32}
"""Up to this many points are named; if there are more, some are numbered."""
MANY = 60
"""With more points than this, marks are small and bars become lines."""
STRIP_PT = 5.0
"""How far above the axes a strip stands: over half the topmost number beside them."""
_STEPS: list[int] = [factor * 10**power for power in range(8) for factor in (1, 2, 5)]
_NUMBERS = {"column": 12, "page": 30}
_CHAIN_NUMBERS = {"column": 9, "page": 22}
"""Names of a chain's points are longer."""
_ROOM_PT = {"column": 195.0, "page": 430.0}
"""About the width of axes."""


def in_order(rows: pd.DataFrame) -> pd.Series:
    """Return the names (`point_name`, or "") of all points of some rows, indexed by point, ordered by their cuts."""
    points = rows[["point"]].assign(point_name=rows.get("point_name", ""))
    named = points.groupby("point")["point_name"].max().reset_index()
    ordered: pd.Series = named.sort_values("point", key=order).set_index("point")["point_name"]
    return ordered


def places(rows: pd.DataFrame, points: pd.Series) -> pd.Series:
    """Return where each row's point is along the axis."""
    return rows["point"].map({point: place for place, point in enumerate(points.index)}).astype("float64")


def label_points(axes: Axes, points: pd.Series, width: str) -> None:
    """Name the points of `in_order` under an axis, or number some of them where there are too many."""
    is_chain = "+" in points.index[0]
    numbers = (_CHAIN_NUMBERS if is_chain else _NUMBERS)[width]
    # A chain's points have a name for each cut, for which a column has no room.
    bare = is_chain and width == "column"
    name_points(
        axes, points.map(lambda name: "" if bare else name), NAMED[width], round_step(len(points), numbers)
    )


def name_points(axes: Axes, points: pd.Series, named: int, step: int) -> None:
    """Name up to `named` points under an axis; if there are more, number every `step`-th of them."""
    axes.set_xlim(-0.6, max(len(points), 6) - 0.4)  # few points need not be wide
    axes.set_xlabel("partition point")
    if len(points) <= named:
        labels = [point_label(point, name) for point, name in points.items()]
        axes.set_xticks(range(len(points)), labels, rotation=55, ha="right", rotation_mode="anchor")
    else:
        axes.set_xticks(range(0, len(points), step), [str(point) for point in points.index[::step]])


def round_step(points: int, most: int) -> int:
    """Return the least of 1, 2, 5, 10, ... by which at most `most` points are numbered."""
    return next(step for step in _STEPS if points / step <= most)


def strip(axes: Axes, at: Sequence[float], texts: Sequence[str], points: int, width: str) -> float:
    """Write small texts above the axes, one at each place, upright where they would not fit side by side.

    Returns its height (points of print).
    """
    room_pt = _ROOM_PT[width] / max(points, 6)
    longest_pt = 3.6 * max(map(len, texts), default=0)
    upright = longest_pt + 2 > room_pt
    for place, text in zip(at, texts, strict=True):
        axes.annotate(
            text, (place, 1), (0, STRIP_PT), xycoords=("data", "axes fraction"), textcoords="offset points",
            ha="center", va="bottom", fontsize=SMALL_PT, rotation=90 if upright else 0, annotation_clip=False,
        )  # fmt: skip
    return STRIP_PT + 2 + (longest_pt if upright else SMALL_PT)

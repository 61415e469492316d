"""The points of one condition on axes of latency and throughput, with the fronts of its backends."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Polygon, Rectangle

from pareto.analysis.figures.axes import fit_axis
from pareto.analysis.figures.labels import DOWN_RIGHT, UP_LEFT, Label, place_labels
from pareto.analysis.figures.marks import FILLS, STATE_WORDS, states
from pareto.analysis.figures.style import NEUTRAL, SMALL_PT, Series, entry, evenly, faded, scattered, series
from pareto.analysis.fronts.indicators import staircase
from pareto.analysis.fronts.quality import SAME_OUTPUT, WORDS, is_none, span
from pareto.analysis.naming import point_label, time_unit
from pareto.analysis.points import CONDITION, NONE, cuts, undivided
from pareto.analysis.statistics.samples import Floats

MARKER_PT = 5.0
NAMED_LABELS = 16
"""Up to this many labels carry the point's name; with more, or with a chain's cuts, only numbers are legible."""
MOST_CORNERS = 300
"""How many corners a band's edge has: many rounds give thousands, closer together than a printed line is wide."""
OBJECTIVES: tuple[tuple[Literal["x", "y"], str, str], ...] = (
    ("x", "latency", "s"),
    ("y", "throughput", "ips"),
)
"""For each axis, what it shows and the unit in the names of its columns."""


def in_plane(rows: pd.DataFrame) -> bool:
    """Whether the front is of latency and throughput: another front is no staircase in this plane.

    `rows` may tell its `objectives`, as `analysis.figures.kinds` does; without the column they are these two.
    """
    return "objectives" not in rows or set(rows["objectives"]) <= {"latency+throughput", "throughput+latency"}


class Plane:
    """The points of one condition on axes of latency and throughput."""

    def __init__(
        self,
        axes: Axes,
        measured: pd.DataFrame,
        among: pd.DataFrame | None = None,
        unit: tuple[str, float] | None = None,
    ) -> None:
        """`measured`: rows with both figures, one or more. For one of several panels, `among`: the rows of all, and
        `unit`: of time, and how many make a second.
        """
        every = measured if among is None else among
        self._is_panel = among is not None
        self.axes = axes
        self.unit, self.scale = unit or time_unit(float(every["latency_s"].max()))
        self._drawn = list(series(measured, every))
        self._marked = list(scattered(measured, every))
        self._rows = measured

    def draw(
        self,
        attainment: pd.DataFrame | None = None,
        uncertainty: str = "none",
        *,
        marker_pt: float = MARKER_PT,
    ) -> None:
        """Draw all but labels. One of several panels has its scales and limits; else they are set for these points.

        uncertainty: of `marks.UNCERTAINTIES`; `attainment` is for the band.
        """
        axes = self.axes
        axes.grid(True)
        if not self._is_panel:  # before the staircases are drawn, which end at the limits
            for name, words, of in OBJECTIVES:
                reached = extent(self._rows, words, of, uncertainty)
                fit_axis(axes, name, reached * (self.scale if name == "x" else 1))
        for one in self._drawn:
            if not in_plane(self._rows):
                continue
            if (
                uncertainty == "band"
                and attainment is not None
                and banded(attainment)
                and one.label != NEUTRAL
            ):
                self._band(one, attainment)
            axes.plot(*self._steps(one), linestyle=one.line, color=one.colour, linewidth=1.2, zorder=2)
        for one in self._marked:
            if uncertainty == "box":
                self._spread(one)
            self._points(one, marker_pt)

    def _points(self, one: Series, marker_pt: float) -> None:
        for state, rows in one.rows.groupby(states(one.rows)):
            self.axes.plot(
                rows["latency_s"] * self.scale,
                rows["throughput_ips"],
                **_look(one, str(state), marker_pt),
                zorder=3 if state == "dominated" else 4,
            )

    def _spread(self, one: Series) -> None:
        """Draw a box or a cross around each point that may be on the front."""
        for row in one.rows[contending(one.rows)].to_dict("records"):
            low_s, high_s, low, high = _ends(row, "low", "high")
            if np.isfinite([low_s, high_s, low, high]).all():
                box = (low_s * self.scale, low), (high_s - low_s) * self.scale, high - low
                look: dict[str, Any] = {"color": one.colour, "linestyle": one.line, "zorder": 1.8}
                self.axes.add_patch(Rectangle(*box, **look, alpha=0.14, linewidth=0))
                self.axes.add_patch(Rectangle(*box, **look, alpha=0.6, linewidth=0.5, fill=False))
                continue
            least_s, most_s, least, most = _ends(row, "least", "most")
            x, y = row["latency_s"] * self.scale, row["throughput_ips"]
            thin: dict[str, Any] = {"color": one.colour, "linewidth": 0.6, "zorder": 2.6}
            self.axes.plot([least_s * self.scale, most_s * self.scale], [y, y], **thin)
            self.axes.plot([x, x], [least, most], **thin)

    def _band(self, one: Series, attainment: pd.DataFrame) -> None:
        same = [*CONDITION, "backend"]
        key = one.rows[one.rows["backend"] != NONE].iloc[0][same]
        own = attainment[attainment["netem"] == key["netem"]]  # most of all that is not its own, at once
        own = own[own[same].eq(key).all(axis=1)]
        ends = [own[own["percent"] == percent] for percent in (5, 95)]
        ends = [corners.iloc[evenly(range(len(corners)), MOST_CORNERS)] for corners in ends]
        if any(corners.empty for corners in ends):
            return
        best, worst = (
            np.column_stack(self._stairs(corners["latency_s"], corners["throughput_ips"])) for corners in ends
        )
        outline = np.vstack([best, worst[::-1]])
        self.axes.add_patch(Polygon(outline, color=one.colour, alpha=0.13, linewidth=0, zorder=1.5))

    def _stairs(self, latency_s: pd.Series, throughput_ips: pd.Series) -> tuple[Floats, Floats]:
        return staircase(
            latency_s.to_numpy() * self.scale,
            throughput_ips.to_numpy(),
            right=self.axes.get_xlim()[1],
            bottom=self.axes.get_ylim()[0],
        )

    def _steps(self, one: Series) -> tuple[Floats, Floats]:
        # Not of all points: of those that meet the conditions set, in the objectives chosen.
        front = one.rows[one.rows["on_backend_front"].astype(bool)]
        return self._stairs(front["latency_s"], front["throughput_ips"])

    def legend(self) -> list[Line2D]:
        """A line for each backend, a mark for what is of none, and an entry for each kind of mark drawn."""
        is_plane = in_plane(self._rows)
        entries = [
            entry(
                f"{one.label} front{_cost(one)}",
                **_look(one, "front") | {"linestyle": one.line if is_plane else ""},
            )
            for one in self._drawn
            if one.label != NEUTRAL
        ]
        neutral = [one for one in self._marked if one.label == NEUTRAL]
        entries += [entry(NEUTRAL, **_look(one, "front")) for one in neutral]
        present = set(states(self._rows))
        grey = replace(self._drawn[0], colour="0.3")
        entries += [
            entry(STATE_WORDS[state], **_look(grey, state))
            for state in ("unsure", "dominated")
            if state in present
        ]
        return entries

    def label(self, most: int | None = None) -> None:
        """Label the points on a front, and those that leave the model to one host; call it with the layout settled.

        With `most`: only so many, of those that no other backend's point beats, by their number.
        """
        whole = set(self._rows.loc[undivided(self._rows), "point"])
        labelled = []
        for one in self._marked:
            for _, row in one.rows.iterrows():
                # Of several codecs all but one of these are beside the fronts, where many labels tell no more.
                is_first = one.codec in ("", self._drawn[0].codec)
                if row["on_backend_front"] or (row["point"] in whole and is_first):
                    labelled.append((one, row))
        if most is not None and len(labelled) > most:
            best = [(one, row) for one, row in labelled if row["on_front"]]
            best.sort(key=lambda pair: float(pair[1]["latency_s"]))
            labelled = evenly(best or labelled, most)
        named = most is None and len(labelled) <= NAMED_LABELS and len(cuts(labelled[0][1]["point"])) == 1
        # Up and left of a front lies nothing of its backend; the second's labels keep to the other side.
        first = self._drawn[0].backend
        labels = [
            Label(
                row["latency_s"] * self.scale,
                row["throughput_ips"],
                point_label(row["point"], str(row["point_name"]) if named else ""),
                one.colour,
                UP_LEFT if one.backend == first else DOWN_RIGHT,
            )
            for one, row in labelled
        ]
        place_labels(
            self.axes,
            labels,
            markers=self._rows[["latency_s", "throughput_ips"]].to_numpy(dtype=float) * [self.scale, 1],
            marker_pt=MARKER_PT,
            lines=[self._steps(one) for one in self._drawn],
            size_pt=6.5 if most is None else SMALL_PT,
        )


def _cost(one: Series) -> str:
    """` (agreement 97 to 98.5 %)` of a lossy codec, whose front is never shown without what it costs."""
    own = one.rows[(one.rows["backend"] != NONE) & ~is_none(one.rows["codec"])]
    if own.empty or "accuracy" not in own:
        return ""
    kinds = [WORDS[kind] for kind in own["accuracy_of"].unique() if kind in WORDS]
    if own["accuracy"].isna().all() or not kinds:
        return " (accuracy not measured)"
    return "" if own["output_error"].le(SAME_OUTPUT).all() else f" ({kinds[0]} {span(own['accuracy'])})"


def extent(rows: pd.DataFrame, figure: str, unit: str, uncertainty: str = "none") -> pd.Series:
    """The medians of `figure`, and with boxes their ends."""
    medians = rows[f"{figure}_{unit}"]
    if uncertainty != "box":
        return medians.dropna()
    around = rows[contending(rows)]
    low, high, least, most = (around[f"{figure}_{end}_{unit}"] for end in ("low", "high", "least", "most"))
    # Of a point with an interval the range is not drawn.
    return pd.concat([medians, low.fillna(least), high.fillna(most)]).dropna()


def _look(one: Series, state: str, marker_pt: float = MARKER_PT) -> dict[str, Any]:
    """The look of a backend's points of one state: full, pale, hollow; and small where dominated."""
    look = one.mark(marker_pt, markerfacecolor=faded(one.colour, FILLS[state]))
    return look if state != "dominated" else look | {"markersize": 0.8 * marker_pt, "alpha": 0.5}


def _ends(row: Mapping[Hashable, Any], first: str, last: str) -> list[float]:
    """Both ends of the latency, then of the throughput."""
    return [row[f"{figure}_{end}_{unit}"] for _, figure, unit in OBJECTIVES for end in (first, last)]


def contending(rows: pd.DataFrame) -> pd.Series:
    """The points on their backend's front, or perhaps on it, as a mask."""
    return states(rows) != "dominated"


def known(rows: pd.DataFrame, column: str) -> pd.Series:
    """The points on a front, or perhaps on one, of which a column is known, as a mask."""
    known: pd.Series = contending(rows) & rows[column].notna()
    return known


def banded(attainment: pd.DataFrame | None) -> bool:
    """Whether there are surfaces of latency and throughput, and not of other objectives."""
    return attainment is not None and len(attainment) > 0 and {"latency_s", "throughput_ips"} <= {*attainment}

"""The front: latency against throughput, every point, the front of each backend as a staircase, and how sure both are;
of one condition, and across profiles in small multiples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pareto.analysis.figures import heads, style
from pareto.analysis.figures.axes import fit_axis
from pareto.analysis.figures.drawing import POINT, Drawing, caption
from pareto.analysis.figures.labels import settle
from pareto.analysis.figures.look import WIDTHS_IN
from pareto.analysis.figures.marks import SURE, is_logarithmic, states
from pareto.analysis.figures.plane import OBJECTIVES, Plane, banded, extent, in_plane, known
from pareto.analysis.figures.style import entry
from pareto.analysis.fronts.quality import in_words
from pareto.analysis.naming import cell_name, in_flight, subject, time_unit
from pareto.analysis.points import NONE

COLUMN_LABELS = 10
"""How many labels a figure has room for at column width."""
TIES_NAMED = 8
COLUMNS = {"column": 2, "page": 3}
"""How many panels stand side by side."""
LABELS = {"column": 3, "page": 5}
"""How many points are numbered in a panel."""
LEAST_SHARE = 0.3
"""Axes are shared where the points of every panel take up at least this share of them."""

_HEIGHT_IN = {"column": 2.35, "page": 3.75}
_PANEL_IN = {"column": 1.45, "page": 1.95}
_BOUND_PT = 5.0
_OF_SEARCH = ("settled", "least_latency_s", "most_throughput_ips")
_MARKER_PT = {"column": 3.0, "page": 4.0}
_SPREAD = [
    f"{figure}_{end}_{unit}" for _, figure, unit in OBJECTIVES for end in ("low", "high", "least", "most")
]
DATA = [
    *(*POINT, "latency_s", "throughput_ips", "loaded_latency_s", *_SPREAD),
    *("on_backend_front", "on_fronts_of", "on_front", "probability", "ties"),
]


def front_figure(
    rows: pd.DataFrame,
    *,
    attainment: pd.DataFrame | None = None,
    uncertainty: str = "none",
    width: str = "page",
) -> Figure:
    """Draw the points of one model, profile and batch size, from rows of `analysis.front`, as `draw_front` does."""
    with style.blank(width, _HEIGHT_IN[width], rows) as figure:
        plane, head_in = _draw(figure.add_subplot(), rows, attainment, uncertainty)
        heads.grow(figure, head_in)
        settle(figure)
        plane.label(COLUMN_LABELS if width == "column" else None)
    return figure


def draw_front(
    axes: Axes, rows: pd.DataFrame, attainment: pd.DataFrame | None = None, uncertainty: str = "none"
) -> None:
    """Draw latency (ms or s) to the right, throughput (images/s) upwards: the best corner is the upper left.

    Points on the front of their backend are filled and labelled; those that are on it in some resamples only (`SURE`)
    are pale, the others hollow. Labelled are also those that leave the whole model to one host (all on the server, all
    on the edge), which a split has to beat. uncertainty: of `marks.UNCERTAINTIES`. `box`: the 95 % intervals of both
    medians of the filled and pale points, or a thin cross, the range of the rounds, where they are too few for an
    interval. `band`: what 5 % and 95 % of the resamples attain, by `attainment` of
    `analysis.fronts.indicators.attainment`. Axes too narrow for all labels have only `COLUMN_LABELS` of them, which are
    numbers.
    """
    plane, _ = _draw(axes, rows, attainment, uncertainty)
    style.root(axes).draw_without_rendering()
    narrow = axes.bbox.width / style.root(axes).dpi < WIDTHS_IN["column"]
    plane.label(COLUMN_LABELS if narrow else None)


def _draw(
    axes: Axes, rows: pd.DataFrame, attainment: pd.DataFrame | None, uncertainty: str
) -> tuple[Plane, float]:
    """Draw all but the labels. Returns the plane, and the height of the head (inches)."""
    plane = Plane(axes, _measured(rows))
    plane.draw(attainment, uncertainty)
    entries = plane.legend()
    if len(bounds := _bounds(rows)):
        tick: dict[str, Any] = {"linestyle": "none", "marker": "|", "markersize": _BOUND_PT, "color": "0.5"}
        x, y = bounds["least_latency_s"] * plane.scale, bounds["most_throughput_ips"]
        axes.plot(x, y, **tick, zorder=1.5, scalex=False, scaley=False)
        entries.append(entry("bound of one struck off", **tick))
    axes.set_xlabel(f"latency ({plane.unit})")
    axes.set_ylabel("throughput (images/s)")
    return plane, heads.head(axes, f"Latency and throughput: {subject(rows.iloc[0])}", entries)


def front_drawing(
    rows: pd.DataFrame, conditions: str, attainment: pd.DataFrame | None = None, uncertainty: str = "none"
) -> Drawing:
    """`front_figure` with its data and caption; `conditions` as of `drawing.conditions`."""
    text = "Latency against throughput of every partition point"
    return Drawing(
        "front",
        lambda width: front_figure(rows, attainment=attainment, uncertainty=uncertainty, width=width),
        rows[_data(rows)],
        caption(text, conditions, *key(rows, attainment, uncertainty)),
    )


def fronts_figure(
    rows: pd.DataFrame,
    *,
    attainment: pd.DataFrame | None = None,
    uncertainty: str = "none",
    width: str = "page",
) -> Figure:
    """Draw a panel for each profile (and batch size, and depth), from rows of `analysis.front` of one model.

    Panels are in order of their points' median latency. They are drawn as `front_figure` is, and numbered are a few
    points that no backend's point dominates. Latency, and throughput, have the same axis in all panels if every
    panel's points fill enough of it (`LEAST_SHARE`), else an axis for each. A condition without a valid trial has an
    empty panel that says so.
    """
    groups = panels(rows)
    measured = _measured(rows)
    columns = min(COLUMNS[width], len(groups))
    lines = -(-len(groups) // columns)
    with style.blank(width, 0.35 + _PANEL_IN[width] * lines, rows) as figure:
        grid = figure.subplots(lines, columns, squeeze=False)
        # Of the quickest panel: seconds would make nothing but zeros of it.
        unit = time_unit(min(float(group["latency_s"].max()) for _, group in groups if len(_measured(group))))
        whole, planes = Plane(grid[0, 0], measured, unit=unit), []
        common = {name: shared(rows, words, of) for name, words, of in OBJECTIVES}
        for axes, (title, group) in zip(grid.ravel(), groups, strict=False):
            axes.set_title(title, loc="left", fontsize="medium", fontweight="bold", pad=3)
            own = _measured(group)
            if own.empty:
                axes.text(0.5, 0.5, "no valid trial", transform=axes.transAxes, ha="center", color="0.4")
                axes.set(xticks=[], yticks=[])
                continue
            plane = Plane(axes, own, measured, unit)
            for name, words, of in OBJECTIVES:
                scale = plane.scale if name == "x" else 1
                reached = extent(measured if common[name] else own, words, of, uncertainty)
                fit_axis(axes, name, reached * scale)
            plane.draw(attainment, uncertainty, marker_pt=_MARKER_PT[width])
            planes.append(plane)
        _frame(grid, len(groups), len(planes), common)
        figure.supylabel("throughput (images/s)", fontsize="medium")
        for axes in grid.ravel()[max(len(planes) - columns, 0) : len(planes)]:
            axes.set_xlabel(f"latency ({whole.unit})")
        title = f"Fronts of {rows['model'].iloc[0]} across profiles"
        heads.grow(figure, heads.figure_head(figure, title, whole.legend()))
        settle(figure)
        for plane in planes:
            plane.label(LABELS[width])
    return figure


def fronts_drawing(
    rows: pd.DataFrame, conditions: str, attainment: pd.DataFrame | None = None, uncertainty: str = "none"
) -> Drawing:
    """`fronts_figure` with its data and caption; `conditions` as of `drawing.conditions`."""
    free = [words for axis, words, of in OBJECTIVES if not shared(rows, words, of)]
    mind = f"Mind the axes: each panel has its own for {' and '.join(free)}"
    scales = mind if free else "All panels share their axes"
    return Drawing(
        "fronts",
        lambda width: fronts_figure(rows, attainment=attainment, uncertainty=uncertainty, width=width),
        rows[_data(rows)],
        caption(
            "The fronts across profiles, a panel for each",
            conditions,
            scales,
            *key(rows, attainment, uncertainty),
        ),
    )


def key(
    rows: pd.DataFrame, attainment: pd.DataFrame | None = None, uncertainty: str = "none"
) -> Iterator[str]:
    """Yield what the marks in the figure mean."""
    is_plane = in_plane(rows)
    yield "Up and left is better"
    if is_plane:
        yield "A staircase bounds what the points of its backend attain; those on it are filled, dominated ones hollow"
    else:
        objectives = in_words(rows["objectives"].iloc[0].split("+"), rows)
        yield (
            f"The front is that of {objectives}, which is no line here; points on it are filled, dominated ones hollow"
        )
    if (rows["backend"] == NONE).any():
        yield "Where nothing crosses, all backends are the same: one point, and a corner of each staircase"
    ruled_out = ~rows["feasible"].astype(bool) & (rows["rounds"] > 0)
    if ruled_out.any():
        yield f"{ruled_out.sum()} points do not meet the condition that was set; they are drawn as dominated"
    if rows["probability"].isna().all():
        yield "There are too few rounds to tell how sure a place on the front is"
    if (states(_measured(rows)) == "unsure").any():
        span = f"{100 * (1 - SURE):.0f} to {100 * SURE:.0f} %"
        yield f"Pale: on its backend's front in {span} of the resamples of whole rounds"
    if uncertainty == "box" and known(rows, "latency_low_s").any():
        yield "Boxes are 95 % intervals of both medians, of the filled and pale points"
    few = known(rows, "latency_least_s") & ~known(rows, "latency_low_s") & (rows["rounds"] > 1)
    if uncertainty == "box" and few.any():
        yield "A thin cross is the range over the rounds: they are too few for an interval"
    if rows["loaded_latency_s"].notna().any():
        yield (
            "Latency is of one request alone, throughput of many in flight: nobody gets both at once, and the figure "
            "of the tail has the latency under load"
        )
    if "settled" in rows and (struck := int(rows["settled"].eq("physics").sum())):
        yield f"{struck} points were struck off without a trial: the ticks are those of their bounds that lie here"
    if uncertainty == "band" and banded(attainment) and is_plane:
        yield "The band is what between 5 % and 95 % of the resamples of whole rounds attain"
    yield _ties(rows)


def _ties(rows: pd.DataFrame) -> str:
    """The pairs of points that the data do not tell apart; with their profile, where there are several."""
    tied = rows[rows["on_backend_front"] & rows["ties"].fillna("").ne("")]
    several = rows["netem"].nunique() > 1
    pairs: dict[tuple[str, frozenset[str]], str] = {}
    for row in tied.to_dict("records"):
        own = cell_name(row)
        for other in str(row["ties"]).split("; "):
            text = f"{own} and {other}" + (f" at {row['netem']}" if several else "")
            pairs.setdefault((row["netem"], frozenset((own, other))), text)
    named = "; ".join(list(pairs.values())[:TIES_NAMED])
    more = f"; and {len(pairs) - TIES_NAMED} more pairs" if len(pairs) > TIES_NAMED else ""
    return f"Not to be told apart: {named}{more}" if pairs else ""


def panels(rows: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Title and rows of each panel, from the quickest profile to the slowest."""
    more = ("batch_size", "in_flight_asked", "setup")
    by = ["netem", *(column for column in more if rows[column].nunique() > 1)]
    groups = [group for _, group in rows.groupby(by, dropna=False, sort=True)]
    # Stable, and NaN (nothing measured) last.
    medians = pd.Series([group["latency_s"].median() for group in groups])
    ordered = [groups[place] for place in medians.sort_values(kind="stable").index]
    return [(_title(group.iloc[0], by), group) for group in ordered]


def shared(rows: pd.DataFrame, figure: str, unit: str) -> bool:
    """Whether all panels may have the same axis for `figure`."""
    measured = _measured(rows)
    values = measured[f"{figure}_{unit}"]
    bent = is_logarithmic(values.min(), values.max())
    placed = measured.assign(place=np.log(values) if bent else values)
    spans = [float(np.ptp(group["place"])) for _, group in panels(placed)]
    return min(filter(None, spans), default=math.inf) >= LEAST_SHARE * float(np.ptp(placed["place"]))


def _title(first: pd.Series, by: list[str]) -> str:
    """`wifi`, or `wifi, batch size 8, 4 in flight` where profiles alone do not tell the panels apart."""
    parts = [str(first["netem"])]
    parts += [f"batch size {first['batch_size']}"] if "batch_size" in by else []
    parts += [in_flight(first["in_flight_asked"]) or "auto in flight"] if "in_flight_asked" in by else []
    parts += [str(first["setup"])] if "setup" in by else []
    return ", ".join(part for part in parts if part)


def _data(rows: pd.DataFrame) -> list[str]:
    """The columns of the figure's data; those of a search only where there was one."""
    return [*DATA, *(column for column in _OF_SEARCH if column in rows)]


def _bounds(rows: pd.DataFrame) -> pd.DataFrame:
    """The bounds of cells that a search struck off without a trial, each pair once."""
    known: pd.DataFrame = (
        rows.reindex(columns=["least_latency_s", "most_throughput_ips"]).astype(float).dropna()
    )
    return known.drop_duplicates()


def _measured(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.dropna(subset=["latency_s", "throughput_ips"])


def _frame(grid: npt.NDArray[Any], count: int, drawn: int, common: dict[Literal["x", "y"], bool]) -> None:
    """Remove the panels that are not needed, and the inner labels of shared axes. The drawn panels come first."""
    columns = grid.shape[1]
    for number, axes in enumerate(grid.ravel()):
        if number >= count:
            axes.remove()
            continue
        if common["y"] and number % columns:
            axes.tick_params(labelleft=False)
        if common["x"] and number + columns < drawn:
            axes.tick_params(labelbottom=False)

"""Latency against throughput: every point, the front of each backend as a staircase, and how sure both are."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures.drawing import Drawing
from analysis.figures.labels import lay_out, settle
from analysis.figures.plane import OBJECTIVES, SURE, Plane, banded, in_plane, known, states, under_load
from analysis.figures.style import WIDTHS_IN, blank, footnote, grow, head, root, styled
from analysis.naming import cell_name, subject
from analysis.points import CELL, NONE

COLUMN_LABELS = 10
"""What a column has room for."""
TIES_NAMED = 8

_HEIGHT_IN = {"column": 2.35, "page": 3.75}
_SPREAD = [
    f"{figure}_{end}_{unit}" for _, figure, unit in OBJECTIVES for end in ("low", "high", "least", "most")
]
DATA = [
    *CELL,
    "point_name",
    "rounds",
    "excluded",
    "latency_s",
    "throughput_ips",
    "loaded_latency_s",
    *_SPREAD,
    "on_backend_front",
    "on_fronts_of",
]
DATA += ["on_front", "probability", "ties"]


def front_figure(
    rows: pd.DataFrame, *, attainment: pd.DataFrame | None = None, width: str = "page"
) -> Figure:
    """The points of one model, profile and batch size, from rows of `analysis.front`, as `draw_front` draws them.

    `attainment`: of `analysis.fronts.indicators.attainment`, for the band behind each staircase.
    """
    with styled(width):
        figure = blank(width, _HEIGHT_IN[width])
        footnote(figure, rows)
        plane, head_in = _draw(figure.add_subplot(), rows, attainment, "")
        grow(figure, head_in)
        settle(figure)
        plane.label(COLUMN_LABELS if width == "column" else None)
    return figure


def draw_front(
    axes: Axes, rows: pd.DataFrame, attainment: pd.DataFrame | None = None, title: str = ""
) -> None:
    """Latency (ms or s) to the right, throughput (images/s) upwards: the best corner is the upper left.

    Points on the front of their backend are filled and labelled; so are, without being filled, those that leave the
    whole model to one host (all on the server, all on the edge), which a split has to beat. Half-filled: on the front
    in some resamples only (`SURE`). Boxes are 95 % intervals of both medians, of these points; a thin cross is the
    range of the rounds, where they are too few for an interval. A dotted line leads from each point on a front to its
    latency under load. Axes too narrow for all labels have but
    `COLUMN_LABELS`, numbers.
    """
    plane, _ = _draw(axes, rows, attainment, title)
    lay_out(axes)
    narrow = axes.bbox.width / root(axes).dpi < WIDTHS_IN["column"]
    plane.label(COLUMN_LABELS if narrow else None)


def _draw(axes: Axes, rows: pd.DataFrame, attainment: pd.DataFrame | None, title: str) -> tuple[Plane, float]:
    """All but the labels; and the height of the head (inches)."""
    plane = Plane(axes, rows.dropna(subset=["latency_s", "throughput_ips"]))
    plane.draw(attainment, loaded=True)
    axes.set_xlabel(f"latency ({plane.unit})")
    axes.set_ylabel("throughput (images/s)")
    first = rows.iloc[0]
    told = title or f"Latency and throughput: {subject(first)}"
    return plane, head(axes, told, plane.legend())


def front_drawing(
    rows: pd.DataFrame, name: tuple[str, ...], conditions: str, attainment: pd.DataFrame | None = None
) -> Drawing:
    """`front_figure` with its data and caption; `conditions` as of `drawing.conditions`."""
    return Drawing(
        "front",
        name,
        lambda width: front_figure(rows, attainment=attainment, width=width),
        rows[[column for column in DATA if column in rows]],
        f"Latency against throughput of every partition point. {conditions} {key(rows, attainment, loaded=True)}",
    )


def key(rows: pd.DataFrame, attainment: pd.DataFrame | None = None, *, loaded: bool = False) -> str:
    """What the marks mean, of those that there are, in sentences. `loaded`: as of `Plane.draw`."""
    told = ["Up and left is better."]
    if in_plane(rows):
        told.append(
            "A staircase bounds what the points of its backend attain; those on it are filled, dominated ones hollow."
        )
    else:
        objectives = rows["objectives"].iloc[0].replace("+", ", ")
        told.append(
            f"The front is that of {objectives}, which is no line here; points on it are filled, dominated ones hollow."
        )
    if (rows["backend"] == NONE).any():
        told.append(
            "Where nothing crosses, all backends are the same: one point, and a corner of each staircase."
        )
    if "feasible" in rows and (
        excluded := int((~rows["feasible"].astype(bool) & (rows["rounds"] > 0)).sum())
    ):
        told.append(f"{excluded} points do not meet the condition that was set; they are drawn as dominated.")
    if rows["probability"].isna().all():
        told.append("There are too few rounds to tell how sure a place on the front is.")
    if (states(rows.dropna(subset=["latency_s", "throughput_ips"])) == "unsure").any():
        told.append(
            f"Half-filled: on its backend's front in {100 * (1 - SURE):.0f} to {100 * SURE:.0f} % of the resamples of "
            "whole rounds."
        )
    if known(rows, "latency_low_s").any():
        told.append("Boxes are 95 % intervals of both medians, of the filled and half-filled points.")
    ranged = known(rows, "latency_least_s") & ~known(rows, "latency_low_s") & (rows["rounds"] > 1)
    if ranged.any():
        told.append("A thin cross is the range over the rounds: they are too few for an interval.")
    if loaded and len(under_load(rows)):
        told.append(
            "Latency is of one request alone, throughput of many in flight: the stroke at the end of a dotted line is "
            "the point's median latency while that throughput was measured."
        )
    if banded(attainment) and in_plane(rows):
        told.append("The band is what between 5 % and 95 % of the resamples of whole rounds attain.")
    return " ".join([*told, *_ties(rows)])


def _ties(rows: pd.DataFrame) -> list[str]:
    """Which points the data do not tell apart, each two once; under which profile, where there are several."""
    if "ties" not in rows:
        return []
    tied = rows[rows["on_backend_front"] & rows["ties"].fillna("").ne("")]
    several = rows["netem"].nunique() > 1
    pairs: dict[tuple[str, frozenset[str]], str] = {}
    for row in tied.to_dict("records"):
        own = cell_name(row)
        for other in str(row["ties"]).split("; "):
            told = f"{own} and {other}" + (f" at {row['netem']}" if several else "")
            pairs.setdefault((row["netem"], frozenset((own, other))), told)
    if not pairs:
        return []
    named = "; ".join(list(pairs.values())[:TIES_NAMED])
    more = f"; and {len(pairs) - TIES_NAMED} more pairs" if len(pairs) > TIES_NAMED else ""
    return [f"Not to be told apart: {named}{more}."]

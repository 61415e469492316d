"""How busy each host and link is at the points on the front, and which of them sets the throughput's bound."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from pareto.analysis.costs import steps
from pareto.analysis.figures import heads, style
from pareto.analysis.figures.drawing import Drawing, caption
from pareto.analysis.figures.look import PAGE
from pareto.analysis.figures.style import SMALL_PT, Series
from pareto.analysis.naming import subject
from pareto.analysis.points import CELL, NONE, each_once

MOST_POINTS = {"column": 2, "page": 7}
"""How many points fit side by side with figures in their bars."""
LINE = {"column": 20, "page": 56}
"""How many characters of points' names fit side by side above the bars."""
USED = 0.02
"""A link's way back that is busier than this somewhere has a line of its own."""
_LINK_COLOUR, _IDLE_COLOUR = "0.78", "0.96"
_LENGTH, _HEIGHT = 0.56, 0.76
"""The length and height of a bar, as shares of a column and of a line: the rest is for its figures."""


def utilization_figure(rows: pd.DataFrame, stages: pd.DataFrame, *, width: str = "page") -> Figure:
    """Draw a bar for each step of the chain, at the points of one model, profile and batch size on a front.

    `rows`: of `analysis.front`; `stages`: of `costs.stages.medians`. The front is a backend's; of several codecs it is
    that over all backends and codecs, as one of each would fill a page. One panel a backend and codec, one column a
    point in order of latency, one line a host or way on a link. A bar is filled for the share of the time in which
    the step is busy with many requests in flight; the rest of a host's is bubble, given in time a request. The
    step that sets the throughput's bound is outlined. More than `MOST_POINTS` points are thinned out evenly.
    """
    every_one = _series(rows)
    shown = {one.label: _shown(one, width) for one in every_one}
    drawn = [one for one in every_one if len(shown[one.label])]
    every = steps(pd.concat(shown.values()).drop_duplicates(CELL), stages)
    lines = _lines(every)
    with style.blank(width, (0.235 * len(lines) + 0.5) * len(drawn) - 0.35, rows) as figure:
        panels = figure.subplots(len(drawn), squeeze=False)[:, 0]
        most = max(len(shown[one.label]) for one in drawn)
        for axes, one in zip(panels, drawn, strict=True):
            _draw(axes, one, shown[one.label], every, lines)
            axes.set_xlim(0, max(most, 1 if width == "column" else 2))
        title = f"Busy and idle along the chain: {subject(rows.iloc[0])}"
        heads.grow(figure, heads.head(panels[0], title, _legend(), 28))
    return figure


def utilization_drawing(rows: pd.DataFrame, stages: pd.DataFrame, conditions: str) -> Drawing | None:
    """`utilization_figure` with its data and caption; `conditions` as of `drawing.conditions`. None where it is not
    known of any point how busy its hosts are.
    """
    front = _on_front(rows)
    every = steps(front, stages)
    if every.loc[~every["step"].str.contains("-"), "share"].isna().all():
        return None
    if all(_shown(one, PAGE).empty for one in _series(rows)):  # what is on the front crosses no link
        return None
    text = caption(
        "How busy each host and link is with many requests in flight",
        conditions,
        _selection(rows),
        "A bar is filled for the share of the time in which the step is busy: a host as it measured it, a link by "
        "what its profile's rate needs for these images/s. Beside it, of a host, the time a request for which it "
        "waits. Medians over rounds, without intervals. Outlined: the step "
        "that sets the bound of the throughput, which need not be the busiest",
    )
    data = every.merge(front[[*CELL, "throughput_ips", "bound_by"]], how="left", on=CELL)
    return Drawing("utilization", lambda width: utilization_figure(rows, stages, width=width), data, text)


def _selection(rows: pd.DataFrame) -> str:
    """The selection of points, at page width and at column width."""
    page, column = (
        sum(len(one.rows) - len(_shown(one, width)) for one in _series(rows)) for width in ("page", "column")
    )
    front = "their backend's front" if rows["codec"].nunique() == 1 else "the front over all codecs"
    text = f"Points on {front}, by latency"
    if page:
        return f"{text}; {page} between them left out ({column} at column width)"
    return f"{text}; {column} between them left out at column width" if column else text


def _on_front(rows: pd.DataFrame, column: str = "") -> pd.DataFrame:
    column = column or ("on_backend_front" if rows["codec"].nunique() == 1 else "on_codec_front")
    front: pd.DataFrame = rows[rows[column].astype(bool)]
    return front


def _series(rows: pd.DataFrame) -> list[Series]:
    """The backends and codecs with their points on the front; of several codecs those alone that have a point of
    their own there, or the first if none has.
    """
    if rows["codec"].nunique() == 1:
        return [replace(one, rows=_on_front(one.rows)) for one in style.series(rows)]
    every = [
        replace(one, rows=_on_front(one.rows, "on_codec_front")) for one in style.series(each_once(rows))
    ]
    own = [one for one in every if (one.rows["backend"] != NONE).any()]
    return own or every[:1]


def _shown(one: Series, width: str) -> pd.DataFrame:
    """The points of a backend on the front that are drawn: by latency, thinned out."""
    front = one.rows.sort_values("latency_s")
    fit = min(MOST_POINTS[width], LINE[width] // max(map(len, front["point"]), default=1))
    return front.iloc[style.evenly(range(len(front)), max(fit, 1))]


def _lines(every: pd.DataFrame) -> list[str]:
    """The steps to draw, in the chain's order: all but ways back that are hardly used."""
    back = every["step"].str.endswith(" back")
    used = every.loc[back & (every["share"] > USED), "step"]
    kept = every[~back | every["step"].isin(used)]
    return list(kept.sort_values("place")["step"].unique())


def _draw(axes: Axes, one: Series, points: pd.DataFrame, every: pd.DataFrame, lines: list[str]) -> None:
    for column, (_, row) in enumerate(points.iterrows()):
        of_point = every[every[CELL].eq(row[CELL]).all(axis=1)].set_index("step")
        for line, step in enumerate(lines):
            if step in of_point.index:
                _bar(axes, column, line, of_point.loc[step], bounds=step == row["bound_by"])
    texts = [
        f"point {row['point']}\n{_figure(row['throughput_ips'])} images/s" for _, row in points.iterrows()
    ]
    axes.xaxis.tick_top()
    axes.set_xticks([column + _LENGTH / 2 for column in range(len(texts))], texts)
    axes.set_yticks(range(len(lines)), [_named(step) for step in lines])
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.tick_params(length=0)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.set_ylabel(one.label, fontweight="bold")


def _bar(axes: Axes, left: float, line: int, step: Any, *, bounds: bool) -> None:
    host = "-" not in step.name
    colour, hatch = style.stage_look(step.name) if host else (_LINK_COLOUR, "////")
    look: dict[str, Any] = {"height": _HEIGHT, "left": left}
    axes.barh(line, _LENGTH, color=_IDLE_COLOUR, edgecolor="0.75", linewidth=0.4, **look)
    share = step["share"]
    if pd.isna(share):
        text = "not\nmeasured"
    else:
        axes.barh(
            line, _LENGTH * min(share, 1), color=colour, hatch=hatch, edgecolor="0.15", linewidth=0.4, **look
        )
        text = f"{100 * share:.0f} %" + (f"\n{_duration(step['idle_s'])}" if host else "")
    if bounds:
        axes.barh(line, _LENGTH, fill=False, edgecolor="black", linewidth=1.6, zorder=3, **look)
    axes.text(
        left + _LENGTH + 0.03, line, text, ha="left", va="center", fontsize=SMALL_PT, linespacing=1.0,
        fontweight="bold" if bounds else "normal",
    )  # fmt: skip


def _legend() -> list[Patch]:
    thin: dict[str, Any] = {"linewidth": 0.4}
    return [
        Patch(facecolor=_LINK_COLOUR, hatch="////", edgecolor="0.15", label="link busy", **thin),
        Patch(facecolor=_IDLE_COLOUR, edgecolor="0.75", label="idle, under the share: ms a request", **thin),
        Patch(fill=False, edgecolor="black", linewidth=1.6, label="sets the bound"),
    ]


def _named(step: str) -> str:
    """`edge → middle1` or `edge ← middle1`; a host as it is."""
    hosts, _, way = step.rpartition(" ")
    return step if not hosts else hosts.replace("-", " → " if way == "out" else " ← ")


def _duration(seconds: float) -> str:
    return "-" if pd.isna(seconds) else f"{_figure(1e3 * seconds)} ms"


def _figure(value: float) -> str:
    """The value with three digits, at most two of them decimals, without an exponent."""
    return f"{round(value, 2):.3g}" if value < 1000 else f"{value:.0f}"

"""The cost of an answer: how much of the front was known over the time that trials took, a line for each run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from pareto.analysis.figures import heads, style
from pareto.analysis.figures.axes import fit_axis
from pareto.analysis.figures.drawing import Drawing, caption
from pareto.analysis.figures.style import CodecLook, entry
from pareto.analysis.fronts.answer import KNOWN, known_after
from pareto.analysis.naming import count, subject
from pareto.remote.link.units import percent

MARKER_PT = 4.5
LEAST_TRIALS = 3
"""With fewer in each run there is nothing to see."""
MINUTES = 180.0
"""Longer times are in minutes."""


@dataclass(frozen=True)
class Line(CodecLook):
    """One run's line in the figure, with its look and its name there."""

    label: str
    rows: pd.DataFrame

    @property
    def known_s(self) -> float:
        """After which time the front was known; NaN if it never was."""
        return known_after(self.rows["hypervolume_share"].to_numpy(), self.rows["took_s"].to_numpy())


def answer_drawing(rows: pd.DataFrame, conditions: str) -> Drawing | None:
    """`answer_figure` with its data and caption; None where hardly anything was measured. rows: of one figure.

    conditions: of `drawing.conditions`.
    """
    drawn = list(lines(rows))
    if max((len(one.rows) for one in drawn), default=0) < LEAST_TRIALS:
        return None
    text = caption(
        "How much of the front was known over the time that trials took, probes and invalid trials included, and a "
        "search's model profiles before them: what the front by the medians so far is worth at the final medians, as "
        "a share of the final front's hypervolume",
        conditions,
        f"Filled mark: from here on {percent(KNOWN)} are known. Hollow mark: the run's last trial",
        *map(_in_words, drawn),
    )
    return Drawing("answer", lambda width: answer_figure(rows, width=width), rows, text)


def lines(rows: pd.DataFrame) -> Iterator[Line]:
    """A line for each run, and codec if there are several: `search` or `all cells`, with a number if several are."""
    codecs = rows["codec"].nunique()
    groups = [group for _, group in rows.groupby(["run", "codec"], dropna=False, sort=False)]
    names = [
        ("search" if group["search"].iloc[0] else "all cells")
        + (f", codec {group['codec'].iloc[0]}" if codecs > 1 else "")
        for group in groups
    ]
    for place, (name, group) in enumerate(zip(names, groups, strict=True)):
        number = f" {names[: place + 1].count(name)}" if names.count(name) > 1 else ""
        yield Line(place, name + number, group)


def answer_figure(rows: pd.DataFrame, *, width: str = "page") -> Figure:
    """Steps of the share of the front's hypervolume over the time that trials took; rows: `analysis.fronts.answer`."""
    drawn = list(lines(rows))
    longest_s = float(rows["took_s"].max())
    unit, scale = ("min", 60.0) if longest_s > MINUTES else ("s", 1.0)
    with style.blank(width, 2.6 if width == "page" else 2.3) as figure:
        axes = figure.subplots()
        fit_axis(axes, "x", rows["took_s"] / scale, 0.04)
        axes.set_ylim(0, 104)
        axes.axhline(100, color="0.6", linewidth=0.6, zorder=1)
        axes.grid(True)
        for one in drawn:
            x, y = one.rows["took_s"] / scale, 100 * one.rows["hypervolume_share"]
            look: dict[str, Any] = {"color": one.colour, "zorder": 2 + one.place / 10}
            mark: dict[str, Any] = {**look, "marker": one.marker, "markersize": MARKER_PT, "linestyle": ""}
            axes.plot(x, y, linestyle=one.line, drawstyle="steps-post", linewidth=1.2, **look)
            axes.plot(x.iloc[-1:], y.iloc[-1:], markerfacecolor="white", **mark)
            known = x >= one.known_s / scale
            axes.plot(x[known][:1], y[known][:1], **mark)
        axes.set_xlabel(f"time that trials took ({unit})")
        axes.set_ylabel("front known so far\n(% of final hypervolume)")
        entries = [
            entry(one.label, color=one.colour, linestyle=one.line, marker=one.marker, markersize=MARKER_PT)
            for one in drawn
        ]
        heads.head(axes, f"Cost of an answer: {subject(rows.iloc[0])}", entries)
    return figure


def _in_words(one: Line) -> str:
    """`search (RUN): 20 trials in 72 s, known after 28 s`."""
    last, known_s = one.rows.iloc[-1], one.known_s
    known = "not known at its end" if math.isnan(known_s) else f"known after {known_s:.0f} s"
    trials = count(int(last["trials"]), "trial")
    return f"{one.label} ({last['run']}): {trials} in {last['took_s']:.0f} s, {known}"

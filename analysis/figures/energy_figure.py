"""Latency, throughput and energy: each against each, in panels that share their axes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from pareto.analysis.figures import heads, style
from pareto.analysis.figures.drawing import POINT, Drawing, caption
from pareto.analysis.figures.labels import DOWN_LEFT, UP_LEFT, settle
from pareto.analysis.figures.style import entry
from pareto.analysis.figures.three import COLUMN_LABELS, MARKER_PT, Panel, fills, grid
from pareto.analysis.fronts import energy
from pareto.analysis.naming import subject, time_unit
from pareto.analysis.statistics.samples import Floats

FRONT = "on_energy_front"
SMALLEST_PT, LARGEST_PT = 2.5, 7.5
"""Marker diameters of the least and the most energy, in the panel that has no axis for it."""


def energy_figure(rows: pd.DataFrame, *, width: str = "page") -> Figure:
    """The points of one model, profile and batch size whose energy is known, from rows of `analysis.front`: the energy
    above idle if that is known of all.

    Latency (ms or s, less is better), throughput (images/s, more is better) and energy (J per image, less is
    better). Points that no other dominates in all three are filled and numbered; the others are hollow. In
    the panel of latency and throughput, the size of a marker shows its energy.
    """
    which = energy.judged_by(rows)
    measured = rows.assign(energy_j=rows[which]).dropna(subset=["latency_s", "throughput_ips", "energy_j"])
    energies = "energy (J per image)" if which == energy.WHOLE else "energy (J above idle)"
    unit, scale = time_unit(float(measured["latency_s"].max()))
    measured = measured.assign(latency=measured["latency_s"] * scale)
    drawn = list(style.scattered(measured))
    with style.blank(width, 4.6 if width == "page" else 3.3, rows) as figure:
        plane, by_throughput, by_latency, free = grid(figure, measured, "energy_j", energies, unit)
        logarithmic = by_latency.get_yscale() == "log"
        diameter, shown = _diameters(measured["energy_j"], logarithmic=logarithmic)
        panels = [
            Panel(
                plane, "latency", "throughput_ips", UP_LEFT, FRONT, lambda rows: diameter(rows["energy_j"])
            ),
            Panel(by_throughput, "energy_j", "throughput_ips", UP_LEFT, FRONT),
            Panel(by_latency, "latency", "energy_j", DOWN_LEFT, FRONT),
        ]
        for panel in panels:
            panel.draw(drawn)
        _sizes(free, shown, diameter(shown))
        entries = [entry(one.label, **one.mark(MARKER_PT)) for one in drawn]
        entries += fills(measured[FRONT], "on the three-way front")
        title = f"Latency, throughput and energy: {subject(rows.iloc[0])}"
        heads.grow(figure, heads.figure_head(figure, title, entries))
        settle(figure)
        for panel in panels:
            panel.number(drawn, COLUMN_LABELS if width == "column" else None)
    return figure


def energy_drawing(rows: pd.DataFrame, conditions: str, energies: str) -> Drawing:
    """`energy_figure` with its data and caption; `conditions` as of `drawing.conditions`.

    `energies`: whose energy it is and what it holds, as of `analysis.fronts.energy.note`.
    """
    text = caption(
        "Latency, throughput and energy of every partition point, each against each",
        conditions,
        "Filled and numbered: no other point is better in one of the three and as good in the others; hollow: some is",
        "In the panel of latency and throughput, a larger marker is more energy",
        "Medians over rounds, without intervals",
        energies,
    )
    figures = ["latency_s", "throughput_ips", energy.WHOLE, energy.ACTIVE, "energy_of", "on_energy_front"]
    return Drawing("energy", lambda width: energy_figure(rows, width=width), rows[[*POINT, *figures]], text)


def _diameters(energy_j: pd.Series, *, logarithmic: bool) -> tuple[Callable[[pd.Series], Floats], pd.Series]:
    """A function from energies (J) to marker diameters (points), and three energies for its legend."""
    share = (LogNorm if logarithmic else Normalize)(energy_j.min(), energy_j.max())

    def diameter(values: pd.Series) -> Floats:
        return np.asarray(SMALLEST_PT + (LARGEST_PT - SMALLEST_PT) * share(values))

    return diameter, pd.Series(share.inverse(np.array([0, 0.5, 1]))).drop_duplicates()


def _sizes(axes: Axes, energies: pd.Series, diameters: Floats) -> None:
    """Draw the legend of the markers' sizes."""
    axes.set_axis_off()
    entries = [
        entry(
            f"{energy_j:.2g} J per image", marker="o", color="0.35", markerfacecolor="none", markersize=size
        )
        for energy_j, size in zip(energies, diameters, strict=True)
    ]
    title = {"title": "Marker size, upper left", "title_fontsize": rcParams["legend.fontsize"]}
    axes.legend(handles=entries, loc="center left", alignment="left", **title)

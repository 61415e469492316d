"""A model profile: the time of each unit on each device, and how near its rates come to what the device reaches."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pareto.analysis.figures import heads, style
from pareto.analysis.figures.axes import label_points, mark_decades
from pareto.analysis.figures.marks import is_logarithmic
from pareto.analysis.figures.style import MARKERS, stage_look
from pareto.analysis.model_profile import ModelProfile, UnitTimes
from pareto.analysis.statistics.samples import Floats

WIDTH = 0.8
"""The share of a unit's place that its bars take together."""


def units_figure(profile: ModelProfile, *, width: str = "page") -> Figure:
    """Bars of each unit's median time (ms), with its 95 % interval: a bar a device, a panel a batch size."""
    sizes = profile.batch_sizes
    with style.blank(width, 0.7 + 2.2 * len(sizes)) as figure:
        panels = figure.subplots(len(sizes), sharex=True, squeeze=False).ravel()
        for axes, batch_size in zip(panels, sizes, strict=True):
            devices = [times for times in profile.times if times.batch_size == batch_size]
            _bars(axes, devices)
            axes.set_ylabel("ms a batch" if batch_size > 1 else "ms")
            if len(sizes) > 1:
                axes.set_title(f"batch size {batch_size}", loc="left", fontsize=8)
        units = pd.Series(list(profile.units), index=range(1, len(profile.units) + 1))
        label_points(panels[-1], units)
        panels[-1].set_xlabel("unit")
        heads.figure_head(
            figure, f"Time of each unit: {profile.model}", panels[0].get_legend_handles_labels()[0]
        )
    return figure


def roofline_figure(profile: ModelProfile, *, width: str = "page") -> Figure:
    """Each unit's GFLOP/s over its FLOPs a byte that it moves at least, under the device's roof: a panel a device.

    The roof is the lesser of what a product of matrices reaches, and of a copy's bytes a second times that ratio
    (Williams, Waterman & Patterson, "Roofline", Communications of the ACM 52, 2009). Units without FLOPs have no place.
    """
    roles = [role for role in profile.roles if profile.hosts.get(role, {}).get("peak_flops")]
    columns = min(len(roles), 2) if width == "page" else 1
    rows = -(-len(roles) // columns)
    with style.blank(width, 0.6 + 2.6 * rows) as figure:
        panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
        for axes, role in zip(panels, roles, strict=False):
            _roof(axes, profile, role)
        for axes in panels[len(roles) :]:
            axes.set_axis_off()
        heads.figure_head(
            figure,
            f"Units under the roof of each device: {profile.model}",
            panels[0].get_legend_handles_labels()[0],
        )
    return figure


def _bars(axes: Axes, devices: list[UnitTimes]) -> None:
    each = WIDTH / len(devices)
    for number, times in enumerate(devices):
        x = np.arange(len(times.median_s)) + (number - (len(devices) - 1) / 2) * each
        colour, hatch = stage_look(times.role)
        axes.bar(
            x, 1e3 * times.median_s, each, color=colour, hatch=hatch, edgecolor="white", linewidth=0.3,
            label=times.role,
        )  # fmt: skip
        spread = [times.median_s - times.low_s, times.high_s - times.median_s]
        axes.errorbar(
            x, 1e3 * times.median_s, 1e3 * np.maximum(spread, 0), fmt="none", ecolor="0.2", elinewidth=0.6
        )
    positive = np.concatenate([times.median_s[times.median_s > 0] for times in devices])
    if len(positive) and is_logarithmic(positive.min(), positive.max()):
        axes.set_yscale("log")
        axes.set_ylim(1e3 * positive.min() / 2, 1e3 * positive.max() * 2)
        mark_decades(axes, "y")


def _roof(axes: Axes, profile: ModelProfile, role: str) -> None:
    facts = profile.hosts[role]
    peak_flops, peak_bytes_s = float(facts["peak_flops"]), float(facts["peak_bytes_s"])
    drawn: list[tuple[Floats, Floats]] = []
    colour, _ = stage_look(role)
    for number, times in enumerate(times for times in profile.times if times.role == role):
        flops = times.batch_size * profile.flops
        shown = (flops > 0) & (times.median_s > 0)
        moved = profile.moved_bytes(times.batch_size)
        x, y = flops[shown] / moved[shown], flops[shown] / times.median_s[shown] / 1e9
        drawn.append((x, y))
        label = f"units, batch size {times.batch_size}"
        axes.plot(x, y, MARKERS[number % len(MARKERS)], color=colour, markersize=4, label=label, zorder=3)
    ridge = peak_flops / peak_bytes_s
    xs = np.concatenate([x for x, _ in drawn])
    ends = np.array([min(xs.min(initial=ridge), ridge) / 2, ridge, max(xs.max(initial=ridge), ridge) * 2])
    roof = np.minimum(peak_flops, peak_bytes_s * ends) / 1e9
    axes.plot(ends, roof, color="black", linewidth=1.1, label="roof", zorder=2)
    axes.set_title(
        f"{role}: {peak_flops / 1e9:.3g} GFLOP/s, {peak_bytes_s / 1e9:.3g} GB/s", loc="left", fontsize=8
    )
    heights = np.concatenate([roof, *(y for _, y in drawn)])
    axes.set(xscale="log", yscale="log", xlim=(ends[0], ends[-1]))
    axes.set_ylim(heights.min() / 1.5, heights.max() * 1.5)
    mark_decades(axes, "x")
    mark_decades(axes, "y")
    axes.set(xlabel="FLOP a byte moved", ylabel="GFLOP/s")
    axes.grid(visible=True)
    axes.label_outer()

"""Three hosts: the throughput of every pair of cuts, and which step of the chain sets its bound there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.path import Path
from matplotlib.patheffects import withStroke
from matplotlib.textpath import TextPath

from pareto.analysis.figures import heads, style
from pareto.analysis.figures.axes import mark_decades
from pareto.analysis.figures.drawing import POINT, Drawing, caption
from pareto.analysis.figures.look import WIDTHS_IN
from pareto.analysis.figures.marks import is_logarithmic
from pareto.analysis.figures.style import SMALL_PT, Series
from pareto.analysis.naming import subject
from pareto.analysis.points import cuts, hosts, link_number

COLOUR_MAP = "cividis"
"""Readable without colours and by the colour-blind: only lightness and blue against yellow."""
LETTER_SHARE = 0.68
"""The size of a cell's letter as a share of the cell's side. A letter smaller than `SMALL_PT` is left out."""
FRONT_COLOUR = "black"


def cuts_figure(rows: pd.DataFrame, *, width: str = "page") -> Figure:
    """A heat map of one model, profile and batch size on three hosts, one panel a backend; rows of the front.

    First cut downwards, second to the right; colour: throughput (images/s). A letter names the step that sets the
    split's bound: a host's initial, or the number of a link, with an arrow back for its way back; without room for it
    there is none. Splits on their backend's front are framed; a cross is one without any valid trial.
    """
    drawn = list(style.series(rows))
    first_cuts, second_cuts = _axes_cuts(rows)
    columns = min(len(drawn), 2) if width == "page" else 1
    lines = -(-len(drawn) // columns)
    cell_in = _cell_in(rows, width)
    height_in = 0.1 + (0.45 if width == "column" else 0) + (cell_in * len(first_cuts) + 0.55) * lines
    with style.blank(width, height_in, rows) as figure:
        panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).ravel()
        measured = rows["throughput_ips"].dropna()
        norm = _norm(float(measured.min()), float(measured.max()))
        for axes, one in zip(panels, drawn, strict=False):
            _draw(axes, one, first_cuts, second_cuts, norm, 72 * cell_in)
        for axes in panels[len(drawn) :]:
            axes.set_axis_off()
        _bar(figure, list(panels), norm, beside=width == "page")
        title = f"Throughput, and what bounds it, by cuts: {subject(rows.iloc[0])}"
        entries = [_entry(*meaning) for meaning in _meanings(rows, lettered=_lettered(72 * cell_in))]
        heads.grow(figure, heads.figure_head(figure, title, entries))
    return figure


def cuts_drawing(rows: pd.DataFrame, conditions: str) -> Drawing:
    """`cuts_figure` with its data and caption; `conditions` as of `drawing.conditions`."""
    text = caption(
        "Throughput of every pair of cuts, and the step of the chain that sets its bound there",
        conditions,
        *(
            f"{mark or 'Framed'}: {meaning}"
            for mark, meaning in _meanings(
                rows, lettered=any(_lettered(72 * _cell_in(rows, width)) for width in WIDTHS_IN)
            )
        ),
    )
    data = rows[[*POINT, "throughput_ips", "bound_by", "on_backend_front"]]
    return Drawing("cuts", lambda width: cuts_figure(rows, width=width), data, text)


def _axes_cuts(rows: pd.DataFrame) -> tuple[list[int], list[int]]:
    """The first cuts and the second cuts that occur, in order."""
    first, second = (sorted({cuts(point)[link] for point in rows["point"]}) for link in (0, 1))
    return first, second


def _cell_in(rows: pd.DataFrame, width: str) -> float:
    """The side of a cell (inches)."""
    of_many = max(len(_axes_cuts(rows)[1]), 8)
    return (WIDTHS_IN[width] - 1.4) / (2 * of_many) if width == "page" else (WIDTHS_IN[width] - 0.5) / of_many


def _bar(figure: Figure, panels: list[Axes], norm: Normalize, *, beside: bool) -> None:
    """Draw the bar that says what the colours mean, beside the panels or under them."""
    look: dict[str, Any] = (
        {"fraction": 0.04, "pad": 0.01} if beside else {"fraction": 0.05, "pad": 0.02, "aspect": 30}
    )
    where = "right" if beside else "bottom"
    bar = figure.colorbar(ScalarMappable(norm, COLOUR_MAP), ax=panels, location=where, **look)
    bar.set_label("throughput (images/s)")
    if bar.solids is not None:  # neither is this an image
        bar.solids.set_rasterized(False)
    if isinstance(norm, LogNorm):
        mark_decades(bar.ax, "y" if beside else "x")


def _norm(low: float, high: float) -> Normalize:
    return LogNorm(low, high) if is_logarithmic(low, high) else Normalize(low, high)


def _lettered(cell_pt: float) -> bool:
    return LETTER_SHARE * cell_pt >= SMALL_PT


def _draw(
    axes: Axes, one: Series, first_cuts: list[int], second_cuts: list[int], norm: Normalize, cell_pt: float
) -> None:
    down, right = ({cut: place for place, cut in enumerate(some)} for some in (first_cuts, second_cuts))
    grid = np.full((len(first_cuts), len(second_cuts)), np.nan)
    written: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for row in one.rows.to_dict("records"):
        y, x = (places[cut] for places, cut in zip((down, right), cuts(row["point"]), strict=True))
        grid[y, x] = row["throughput_ips"]
        missing = np.isnan(grid[y, x])
        text = "\N{MULTIPLICATION SIGN}" if missing else _letter(row["bound_by"])
        if _lettered(cell_pt) or missing:
            dark = not missing and float(norm(grid[y, x])) < 0.55
            written.setdefault((text, "white" if dark else "black"), []).append((x, y))
        if row["on_backend_front"]:
            # White around it: it shows on dark cells, too.
            frame = Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, edgecolor=FRONT_COLOUR, linewidth=1.4)
            frame.set(zorder=3, clip_on=False, path_effects=[withStroke(linewidth=2.8, foreground="white")])
            axes.add_patch(frame)
    for (text, colour), places in written.items():
        _write(axes, text, places, colour, min(LETTER_SHARE * cell_pt, 7.5))
    # Not an image: lines stay sharp at any size.
    edges = np.arange(len(second_cuts) + 1) - 0.5, np.arange(len(first_cuts) + 1) - 0.5
    axes.pcolormesh(
        *edges, np.ma.masked_invalid(grid), cmap=COLOUR_MAP, norm=norm, edgecolor="face", linewidth=0.1
    )
    axes.set(aspect="equal", ylim=(len(first_cuts) - 0.5, -0.5))
    axes.set_title(one.label, loc="left", fontsize=8)
    for axis, numbers in ((axes.xaxis, second_cuts), (axes.yaxis, first_cuts)):
        step = -(-len(numbers) // 22)
        axis.set_ticks(range(0, len(numbers), step), [str(cut) for cut in numbers[::step]], fontsize=6)
    axes.set_xlabel("second cut")
    axes.set_ylabel("first cut")
    axes.label_outer()


def _write(axes: Axes, text: str, places: list[tuple[int, int]], colour: str, size_pt: float) -> None:
    """Draw the same letter at many places, as a marker: hundreds of texts would take seconds."""
    path = _centred(text, size_pt)
    x, y = zip(*places, strict=True)
    axes.plot(
        x, y, linestyle="", marker=path, markersize=2 * np.abs(path.vertices).max(), color=colour,
        markeredgewidth=0, label=text,
    )  # fmt: skip


def _letter(step: str) -> str:
    """`E`, `M` or `S` for a host; for a link its number, with an arrow for its way back."""
    near, _, rest = step.partition("-")
    if not rest:
        return near[:1].upper()
    return f"{link_number(near)}{'←' if rest.endswith('back') else ''}"


def _meanings(rows: pd.DataFrame, *, lettered: bool) -> Iterator[tuple[str, str]]:
    """Yield each mark in the figure, and what it means; the frame's mark is empty text."""
    yield "", "on the backend's front"
    bounds = set(rows.loc[rows["rounds"] > 0, "bound_by"]) - {""}
    if lettered and bounds:
        steps = [role for role in hosts(rows["point"].iloc[0]) if role in bounds]
        steps += sorted(step for step in bounds if "-" in step)
        yield from ((_letter(step), f"bound by {step}") for step in steps)
    if rows["throughput_ips"].isna().any():
        yield "\N{MULTIPLICATION SIGN}", "no valid trial"


def _entry(mark: str, meaning: str) -> Artist:
    """A legend's entry."""
    if not mark:
        return Patch(fill=False, edgecolor=FRONT_COLOUR, linewidth=1.4, label=meaning)
    path = _centred(mark, 7)
    return style.entry(meaning, marker=path, markersize=2 * np.abs(path.vertices).max(), color="black", mew=0)


def _centred(text: str, size_pt: float) -> Path:
    path = TextPath((0, 0), text, size=size_pt)
    return Path(path.vertices - (path.vertices.min(axis=0) + path.vertices.max(axis=0)) / 2, path.codes)

"""Titles and legends, above a figure and within its width."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.transforms import ScaledTranslation

from pareto.analysis.figures.look import chosen
from pareto.analysis.figures.style import root

_PAD_PT = 16.0
"""The margins left and right of a figure, together."""
_PRINTED = 1.04
"""How much wider letters may be in print than on the screen's grid, on which they are measured."""
_LETTER_EM = 0.64
"""The mean width of a bold letter."""
_WORDS = re.compile(r"(?<=\s)(?=\S)")
_PARTS = re.compile(r"(?<=[_+:.-])(?=\S)")
"""Where a line may end within a word that is longer than a line: names of models and profiles have no spaces."""


def head(axes: Axes, title: str, entries: Sequence[Artist], above_pt: float = 0) -> float:
    """Write a title and under it a legend, above the axes and what stands there (`above_pt`), where they hide nothing.

    Both are folded to the width of the axes; in a figure with one column of axes, to what is right of their left edge.
    Returns their height (inches), for `grow`.
    """
    figure, spec = root(axes), axes.get_subplotspec()
    room = axes.bbox.width
    if spec is not None and spec.get_gridspec().ncols == 1:
        taken = axes.yaxis.get_tightbbox()
        room = figure.bbox.width - (taken.width if taken else 0) - _PAD_PT * figure.dpi / 72
    above = ScaledTranslation(0, above_pt / 72, figure.dpi_scale_trans)
    corner = {"bbox_to_anchor": (-0.01, 1.0), "bbox_transform": axes.transAxes + above}
    legend_pt = 0.0
    if entries:
        make = functools.partial(axes.legend, handles=entries, loc="lower left", **corner)
        legend = _folded(make, len(entries), room)
        legend_pt = legend.get_window_extent().height * 72 / figure.dpi
        # The title above it reserves its height; its width would be taken from the axes, though there is room.
        legend.set_in_layout(False)
    if not chosen().titles:
        # The legend is above the layout: an empty title keeps its height free.
        axes.set_title(" ", loc="left", fontsize=1, pad=2 + legend_pt + above_pt)
        return (2 + legend_pt + above_pt) / 72
    shown = axes.set_title(wrapped(title, room * 72 / figure.dpi), loc="left", pad=4 + legend_pt + above_pt)
    return shown.get_window_extent().height / figure.dpi + (4 + legend_pt + above_pt) / 72


def figure_head(figure: Figure, title: str, entries: Sequence[Artist]) -> float:
    """Write title and legend above a figure with several columns of axes. Returns their height (inches)."""
    if not chosen().titles:
        title = ""
        if not entries:
            return 0.0
    room = figure.bbox.width - _PAD_PT * figure.dpi / 72
    make = functools.partial(
        figure.legend,
        handles=entries,
        loc="outside upper left",
        title=wrapped(title, room * 72 / figure.dpi) or None,
        title_fontproperties={"weight": "bold", "size": matplotlib.rcParams["axes.titlesize"]},
        alignment="left",
    )
    return _folded(make, len(entries), room, figure.legends).get_window_extent().height / figure.dpi


def grow(figure: Figure, height_in: float) -> None:
    """Make room for a head, so that it takes nothing from the axes."""
    width_in, before_in = figure.get_size_inches()
    figure.set_size_inches(width_in, before_in + height_in)


def wrapped(text: str, room_pt: float, size_pt: float | None = None) -> str:
    """A text, bold and of the titles' size by default, in lines of at most `room_pt`."""
    letter_pt = _LETTER_EM * (size_pt or float(matplotlib.rcParams["axes.titlesize"]))
    most = max(int(room_pt / letter_pt), 12)
    lines = [""]
    for word in _WORDS.split(text):
        for part in [word] if len(word.rstrip()) <= most else _PARTS.split(word):
            if len((lines[-1] + part).rstrip()) > most and lines[-1]:
                lines.append("")
            lines[-1] += part
    return "\n".join(line.rstrip() for line in lines)


def _folded(
    make: Callable[..., Legend], entries: int, room: float, made: list[Legend] | None = None
) -> Legend:
    """A legend of as many columns as fit the room (pixels). Those that did not fit are removed from `made`."""
    for columns in range(max(entries, 1), 0, -1):
        legend = make(ncols=columns, borderaxespad=0.2, columnspacing=1.4, handletextpad=0.5)
        if columns == 1 or _PRINTED * legend.get_window_extent().width <= room:
            break
        if made is not None:
            made.remove(legend)
    return legend

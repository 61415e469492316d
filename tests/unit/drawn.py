"""What a figure shows, for the tests of figures: drawn without a screen, its texts and marks looked at."""

from __future__ import annotations

import re
from io import BytesIO
from itertools import combinations

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox


def rendered(figure: Figure) -> Figure:
    """Its layout made: each artist where it is drawn, and no pixels."""
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    return figure


def pdf(figure: Figure) -> bytes:
    """Every line, mark and letter at its place; no fonts, which take most of the time."""
    made = BytesIO()
    with rc_context({"pdf.use14corefonts": True}):
        figure.savefig(made, format="pdf", metadata={"CreationDate": None})
    return made.getvalue()


def texts(figure: Figure) -> list[str]:
    return [text.get_text().strip() for text in _shown(figure)]


def sentences(caption: str) -> list[str]:
    """One a line, as a snapshot is read."""
    return re.split(r"(?<=\.) +", caption)


def legend(figure: Figure) -> list[str]:
    """The entries of all legends of the figure and its axes."""
    found = [*figure.legends, *(it for axes in figure.axes if (it := axes.get_legend()) is not None)]
    return [text.get_text() for one in found for text in one.get_texts()]


def marks(axes: Axes, *, filled: bool | None = None, marker: str = "") -> np.ndarray:
    """The places (data units) of the markers of axes' lines, n x 2, from left to right."""
    found = [np.empty((0, 2))]
    for line in axes.get_lines():
        if line.get_marker() in ("", "None", None) or (marker and line.get_marker() != marker):
            continue
        if filled is None or filled == (line.get_markerfacecolor() != "white"):
            found.append(np.column_stack([line.get_xdata(), line.get_ydata()]).astype(float))
    every = np.vstack(found)
    return every[np.argsort(every[:, 0], kind="stable")]


def outside(figure: Figure) -> list[str]:
    """The texts that are not wholly in the picture, which has been rendered."""
    left, bottom, right, top = figure.bbox.extents
    boxes = [(text.get_text(), Text.get_window_extent(text).extents) for text in _shown(figure)]
    return [
        text
        for text, (x0, y0, x1, y1) in boxes
        if x0 < left - 1 or y0 < bottom - 1 or x1 > right + 1 or y1 > top + 1
    ]


def overlapping(figure: Figure) -> list[tuple[str, str]]:
    """Pairs of upright or level texts that cover each other; slanted ones have boxes that do, and no letters.

    An empty first line covers nothing.
    """
    straight = [text for text in _shown(figure) if text.get_rotation() % 90 == 0]
    boxes = [(text.get_text().strip(), _letters(text)) for text in straight]
    return [(one, other) for (one, a), (other, b) in combinations(boxes, 2) if a.overlaps(b)]


def _letters(text: Text) -> Bbox:
    left, bottom, right, top = Text.get_window_extent(text).extents  # a label without its line
    lines = text.get_text().split("\n")
    return Bbox([[left, bottom], [right, (bottom + top) / 2 if lines[0] == "" and len(lines) == 2 else top]])


def _shown(figure: Figure) -> list[Text]:
    """All texts but those of ticks beyond their axis, which stay where they last were and are not drawn."""
    beyond = {
        id(label)
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks())
        if not min(axis.get_view_interval()) - 1e-9 <= tick.get_loc() <= max(axis.get_view_interval()) + 1e-9
        for label in (tick.label1, tick.label2)
    }
    visible = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    return [text for text in visible if id(text) not in beyond]

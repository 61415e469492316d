"""The look of figures as far as it needs no matplotlib: a user's choices, and the rules for drawing a front, which a
notebook and the page follow, too: how full a mark is, and which axes start at 0 or are logarithmic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd

from pareto.protocol.errors import UserError

T = TypeVar("T")
FORMATS = ("pdf", "png", "svg")
TITLES = ("auto", "none")
PAGE = "page"
WIDTHS_IN = {"column": 3.4, "page": 7.0}
"""The widths of a figure as printed: one column of a two-column paper, or a page's text width. A figure of another
width is not the same one made smaller: it has its own font sizes (6 pt or more), labels and arrangement of panels.
"""
SURE = 0.95
"""A point on its backend's front in a share of the resamples between 1 - SURE and SURE is drawn as unsure."""
FILLS = {"front": 1.0, "unsure": 0.3, "dominated": 0.0}
"""The share of its backend's colour, the rest white, that fills a mark of each state."""
STATE_WORDS = {"front": "on the front", "unsure": "perhaps on the front", "dominated": "dominated"}
UNCERTAINTIES = ("none", "box", "band")
"""The drawings of uncertainty beside how full marks are: none, intervals (95 %) of points, a front's band."""
LOG_RANGE = 8
"""An axis is logarithmic from this factor on between the largest value and the smallest; else it starts at 0."""


@dataclass(frozen=True)
class Look:
    """The look that a user chooses. formats: of the files of each picture. titles: whether a picture has one. font: an
    installed family, or empty for matplotlib's own. style: a file of matplotlib's settings. columns: of the LaTeX
    tables of fronts; none: those that have room.
    """

    formats: tuple[str, ...] = ("pdf", "png")
    titles: bool = True
    font: str = ""
    style: Path | None = None
    columns: tuple[str, ...] = ()

    @classmethod
    def checked(cls, formats: str, title: str, font: str, style: Path | None, columns: str = "") -> Look:
        """The look of the command line's texts; font, settings and columns may be wrong yet. Raises UserError."""
        wanted, heads = (
            tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
            for names in (formats, columns)
        )
        if not wanted or not set(wanted) <= set(FORMATS):
            raise UserError(f"--format {formats}: with commas, of {', '.join(FORMATS)}")
        if title not in TITLES:
            raise UserError(f"--title {title}: one of {', '.join(TITLES)}")
        return cls(wanted, title == "auto", font.strip(), style, heads)


USUAL = Look()
_CHOSEN: ContextVar[Look] = ContextVar("look", default=USUAL)
chosen = _CHOSEN.get
"""Returns the look of the figures that are being drawn."""


@contextmanager
def drawn_as(look: Look) -> Iterator[None]:
    """Draw figures with this look in this context."""
    before = _CHOSEN.set(look)
    try:
        yield
    finally:
        _CHOSEN.reset(before)


def evenly(among: Iterable[T], most: int) -> list[T]:
    """At most so many items, in order: the first, the last, and others at even distances."""
    every = list(among)
    return [every[at] for at in np.linspace(0, len(every) - 1, min(most, len(every))).round().astype(int)]


def states(rows: pd.DataFrame) -> pd.Series:
    """A key of `FILLS` for each row of a front. Without a probability the medians decide."""
    on_front, probability = rows["on_backend_front"].astype(bool), rows["probability"]
    unsure = (on_front & (probability < SURE)) | (~on_front & (probability > 1 - SURE))
    found = np.where(unsure, "unsure", np.where(on_front, "front", "dominated"))
    return pd.Series(found, index=rows.index)


def is_logarithmic(low: float, high: float) -> bool:
    """Whether an axis of values from `low` to `high` is logarithmic."""
    return low > 0 and high / low >= LOG_RANGE


def ends(low: float, high: float, room: float, logarithmic: bool | None = None) -> tuple[float, float]:
    """The ends of an axis of values from `low` to `high`, with `room` (a share of what is shown) beyond them. A linear
    axis starts at 0, or below it only where a value does. logarithmic: where that is decided already."""
    if is_logarithmic(low, high) if logarithmic is None else logarithmic:
        margin = max((high / low) ** room, 1.1)
        return low / margin, high * margin
    start, end = min(low, 0.0), max(high, 0.0)
    margin = room * (end - start) or 1.0
    return start - margin * (low < 0), end + margin

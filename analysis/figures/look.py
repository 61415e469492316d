"""The choices that a user has for the look of pictures and tables for a paper. Without matplotlib."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pareto.protocol.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("pdf", "png", "svg")
TITLES = ("auto", "none")
PAGE = "page"
WIDTHS_IN = {"column": 3.4, "page": 7.0}
"""The widths of a figure as it is printed, without scaling: one column of a two-column paper, or a page's text width.

A figure of another width is not the same one made smaller: it has its own font sizes (6 pt or more when printed), fewer
labels, and panels where they find room. Every figure function takes the name as its argument `width`.
"""


@dataclass(frozen=True)
class Look:
    """formats: of the files of each picture. titles: whether a picture has one; a paper has its caption. font: the name
    of an installed family; empty: the one that comes with matplotlib. style: a file of matplotlib's settings. columns:
    of the LaTeX tables of fronts; none: those that have room.
    """

    formats: tuple[str, ...] = ("pdf", "png")
    titles: bool = True
    font: str = ""
    style: Path | None = None
    columns: tuple[str, ...] = ()

    @classmethod
    def checked(cls, formats: str, title: str, font: str, style: Path | None, columns: str = "") -> Look:
        """The look that the texts of the command line name; whether there are such a font, settings and columns is not
        known yet. Raises UserError.
        """
        wanted = tuple(dict.fromkeys(name.strip() for name in formats.split(",") if name.strip()))
        if not wanted or not set(wanted) <= set(FORMATS):
            raise UserError(f"--format {formats}: with commas, of {', '.join(FORMATS)}")
        if title not in TITLES:
            raise UserError(f"--title {title}: one of {', '.join(TITLES)}")
        heads = tuple(name.strip() for name in columns.split(",") if name.strip())
        return cls(wanted, title == "auto", font.strip(), style, heads)


USUAL = Look()
_CHOSEN: ContextVar[Look] = ContextVar("look", default=USUAL)


def chosen() -> Look:
    """The look of the figures that are being drawn."""
    return _CHOSEN.get()


@contextmanager
def drawn_as(look: Look) -> Iterator[None]:
    """Draw figures with this look in this context."""
    before = _CHOSEN.set(look)
    try:
        yield
    finally:
        _CHOSEN.reset(before)


def left_out(rows: pd.DataFrame) -> str:
    """`5 of 60 trials left out (invalid or failed)`; empty text if all counted. `rows`: of the front."""
    number, trials = (int(rows[column].sum()) for column in ("left_out", "trials"))
    return f"{number} of {trials} trials left out (invalid or failed)" if number else ""

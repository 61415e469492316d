"""What a user may choose of the look of pictures and tables for a paper. Without matplotlib."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from pareto.errors import UserError

FORMATS = ("pdf", "png", "svg")
TITLES = ("auto", "none")


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
        """The look that the texts of the command line name. Raises UserError."""
        wanted = tuple(dict.fromkeys(name.strip() for name in formats.split(",") if name.strip()))
        if not wanted or not set(wanted) <= set(FORMATS):
            raise UserError(f"--format {formats}: with commas, of {', '.join(FORMATS)}")
        if title not in TITLES:
            raise UserError(f"--title {title}: one of {', '.join(TITLES)}")
        heads = tuple(name.strip() for name in columns.split(",") if name.strip())
        if heads:
            from analysis.tables.latex import check_columns

            check_columns(heads)
        look = cls(wanted, title == "auto", font.strip(), style, heads)
        if look.font or look.style:
            from analysis.figures.style import check_look  # imports matplotlib, which takes a second

            check_look(look)
        return look


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

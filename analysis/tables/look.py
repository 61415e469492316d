"""What the tables in the terminal share."""

from __future__ import annotations

import math

from rich import box
from rich.table import Table
from rich.text import Text


def framed(title: str, caption: str | None = None) -> Table:
    """A table without columns yet, as all of a report's look."""
    return Table(
        title=Text(title, "bold"),
        caption=Text(caption) if caption else None,
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=0,
    )


def figure(value: float, digits: int) -> str:
    """So many digits behind the point; a dash for what was not measured."""
    return "-" if math.isnan(value) else f"{value:.{digits}f}"

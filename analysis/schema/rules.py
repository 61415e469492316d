"""The rules of each column of a run's CSV files, cell by cell: a run writes nothing that a report would refuse.

Needs nothing but the standard library.
"""

from __future__ import annotations

from pareto.analysis.schema import FORMS, KINDS, STATUSES, Kind
from pareto.basics.escaping import short

LONGEST = 1000
"""Characters that a name may have. The longest are those of points in a chain."""
LEAST, MOST = 1e-12, 1e15
"""The bounds of numbers that others are divided by, in whatever unit: a picosecond, 30 million years. Nobody waits as
long, and beyond them ratios of figures are no numbers any more."""
MOST_WHOLE = 1_000_000
RANGES = {
    Kind.WHOLE: (0, MOST_WHOLE),
    Kind.NUMBER: (-MOST, MOST),
    Kind.POSITIVE: (LEAST, MOST),
    Kind.NOT_NEGATIVE: (0, MOST),
}
OWN_RANGES = {"batch_size": (1, MOST_WHOLE), "link_seed": (-MOST, 1e20)}
"""The numbers that can have been measured, by their kind or by their column."""


def span(column: str) -> tuple[float, float]:
    """The least and the greatest number that can have been measured."""
    return OWN_RANGES.get(column, RANGES[KINDS[column]])


def may_be_empty(column: str) -> bool:
    """Whether a cell of the column may say nothing."""
    try:
        check(column, "")
    except ValueError:
        return False
    return True


def check(column: str, text: str) -> None:
    """Raises ValueError for a cell that cannot be."""
    kind = KINDS[column]
    if kind is Kind.FREE:
        return
    if kind is Kind.NAME:
        if len(text) > LONGEST:
            raise ValueError(f"a name of {len(text)} characters is too long: {LONGEST} at most")
        if not text.isprintable():
            raise ValueError(f"{short(text, 80)!r} has characters that cannot be seen")
        if column == "status" and text not in STATUSES:
            raise ValueError(f"{short(text, 80)!r} is not one of {', '.join(STATUSES)}")
        if column in FORMS and not FORMS[column].fullmatch(text):
            raise ValueError(f"{short(text, 80)!r} has the wrong form")
    elif text or kind is Kind.WHOLE:
        try:
            if not text.isascii() or "_" in text:  # Python reads what nobody else does
                raise ValueError
            value = float(text)
            if kind is Kind.WHOLE and not text.lstrip("+-").isdecimal():
                raise ValueError
        except ValueError:
            raise ValueError(f"{short(text, 80)!r} is not a number") from None
        least, most = span(column)
        if value < least or value > most:
            raise ValueError(f"{short(text, 80)} cannot have been measured")

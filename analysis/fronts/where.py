"""Constraints as a user writes them: `latency_s < 0.5 and not backend == rpc`. Parsed, never run as code."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.points import CONDITION, NONE
from analysis.statistics.samples import Bools, Floats
from pareto.errors import UserError

Columns = Mapping[str, npt.NDArray[Any]]
Verdict = tuple[Bools, Bools]
"""Where a condition holds, and where it fails: neither where a figure is missing (Kleene's three values)."""
Check = Callable[[Columns], Verdict]
Compare = Callable[[Any, Any], Any]

COMPARISONS: dict[str, Compare] = {
    **{"<=": operator.le, ">=": operator.ge, "==": operator.eq},
    **{"!=": operator.ne, "<": operator.lt, ">": operator.gt},
}
MIRRORED = str.maketrans("<>", "><")
UNITS = {
    "_s": {"s": "1", "ms": "1e-3", "us": "1e-6"},
    "_bytes": {"kb": "1e3", "mb": "1e6", "gb": "1e9", "kib": "1024", "mib": "1048576", "gib": "1073741824"},
    "_j": {"j": "1"},
}
"""What a unit is worth, by the end of the columns that it may be compared with. `%` goes with any other. In decimals,
so that 50000 us is 0.05 s to the last bit."""
MEASURED = (*UNITS, "_ips", "_gain", "_efficiency")
"""The ends of the names of measurements: `latency_bound_s` is a column; `tcp` and `3+7` are texts."""
TOKEN = re.compile(
    r"""\s*(?:
      (?P<text>"[^"]*"|'[^']*')
    | (?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)\s*(?P<unit>%|(?:us|ms|s|kb|mb|gb|kib|mib|gib|j)\b)?(?![\w.+-])
    | (?P<word>[A-Za-z0-9_][\w.:+-]*)
    | (?P<sign><=|>=|==|!=|<|>|\(|\))
    )""",
    re.VERBOSE | re.IGNORECASE,
)
Token = re.Match[str]
SHARED = ("edge_s", "middle_s", "server_s", "edge_rss_bytes", "edge_peak_rss_bytes")
"""What does not depend on the backend. Two backends differ here by noise alone, which must not decide for one only."""
MOST_TOKENS = 400
"""Each bracket is a step deeper, and Python goes down a thousand."""


@dataclass(frozen=True)
class Where:
    """A constraint on cells, in the columns of the front's frame. Without one (empty text) every cell satisfies it."""

    text: str
    columns: frozenset[str]
    check: Check

    @classmethod
    def parse(cls, text: str) -> Where:
        """Read comparisons (`<` `<=` `>` `>=` `==` `!=`) of a column with a number, another column or a text,
        joined by `and`, `or`, `not` and parentheses; `not` binds closest, then `and`.

        Numbers are in the column's unit (s, bytes, J, images/s, a share of 1), or carry one: `50ms`, `300kib`, `2j`,
        `70%`. A text is compared for equality only: `backend == tcp`, `point == "3+7"`. Raises `UserError` for
        whatever it can't read.
        """
        if not text.strip():
            return cls("", frozenset(), lambda _: (np.ones((), dtype=bool), np.zeros((), dtype=bool)))
        parser = _Parser(text)
        check = parser.joined()
        if (left := parser.take()) is not None:
            raise parser.error(f"nothing expected at {_written(left)!r}")
        return cls(text.strip(), frozenset(parser.columns), check)

    def holds(self, frame: pd.DataFrame) -> pd.Series:
        """Which rows satisfy it. A row without a figure that decides does not: not measured is not fulfilled.

        What is `SHARED` counts as the mean of the backends at the same point. A row without a backend, as nothing
        crosses there, satisfies what is asked of any. Raises `UserError` if the frame lacks a column.
        """
        for name in sorted(self.columns - set(frame)):
            near = get_close_matches(name, frame, n=1)
            raise UserError(f"where: no column {name!r}{f'; is it {near[0]!r}?' if near else ''}")
        columns = self.over_backends(frame, {name: frame[name].to_numpy() for name in self.columns})
        return pd.Series(np.broadcast_to(self.within(columns), len(frame)), index=frame.index, dtype=bool)

    def fails(self, frame: pd.DataFrame) -> pd.Series:
        """Which rows do not satisfy it, whatever the figures and columns are that they lack."""
        missing = np.full(len(frame), np.nan)
        columns = {name: frame[name].to_numpy() if name in frame else missing for name in self.columns}
        try:
            fails = self.check(columns)[1]
        except UserError:  # a text that these rows lack decides
            fails = np.zeros((), dtype=bool)
        return pd.Series(np.broadcast_to(fails, len(frame)), index=frame.index, dtype=bool)

    def over_backends(self, frame: pd.DataFrame, columns: Columns) -> Columns:
        """The columns, of arrays that end in an axis of the frame's rows; what is `SHARED` of each point pooled."""
        same = [name for name in (*CONDITION, "point") if name in frame]
        if not (shared := [name for name in SHARED if name in columns]) or "point" not in same:
            return columns
        pooled = {**columns, **{name: columns[name].astype(float) for name in shared}}
        for members in frame.groupby(same, dropna=False, observed=True).indices.values():
            for name in shared:
                pooled[name][..., members] = _mean(pooled[name][..., members])
        return pooled

    def within(self, columns: Columns) -> Bools:
        """The same over arrays of any shapes that go together, one for each of `columns`."""
        return np.asarray(self.check(columns)[0])


def _mean(values: Floats) -> Floats:
    """The mean of what is known along the last axis, which stays with a length of 1."""
    known = ~np.isnan(values)
    sums = np.where(known, values, 0.0).sum(axis=-1, keepdims=True)
    counts = known.sum(axis=-1, keepdims=True)
    return np.asarray(np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0))


class _Parser:
    """Recursive descent, one method a level of the grammar, loosest first. `columns`: those that were named."""

    def __init__(self, text: str) -> None:
        self.text, self.columns = text, set[str]()
        tokens, at, end = list[Token](), 0, len(text.rstrip())
        while at < end:
            if (token := TOKEN.match(text, at)) is None:
                raise self.error(f"can't read {text[at:].strip()!r}")
            tokens.append(token)
            at = token.end()
        if len(tokens) > MOST_TOKENS:
            raise UserError(f"where: more than {MOST_TOKENS} words and signs are too many")
        self.left = tokens[::-1]

    def error(self, what: str) -> UserError:
        return UserError(f"where {self.text!r}: {what}")

    def take(self, *wanted: str) -> Token | None:
        """The next token, if it is one of these words (any without them)."""
        if self.left and (not wanted or _written(self.left[-1]).lower() in wanted):
            return self.left.pop()
        return None

    def joined(self, word: str = "or") -> Check:
        """What this word joins; `and` binds closer than `or`."""
        inner = partial(self.joined, "and") if word == "or" else self.single
        join = _either if word == "or" else _both
        check = inner()
        while self.take(word):
            check = partial(join, check, inner())
        return check

    def single(self) -> Check:
        if self.take("not"):
            return partial(_not, self.single())
        if self.take("("):
            check = self.joined()
            if not self.take(")"):
                raise self.error("a ) is missing")
            return check
        return self.comparison()

    def comparison(self) -> Check:
        left, signed, right = self.take(), self.take(*COMPARISONS), self.take()
        if left is None or right is None or signed is None:
            raise self.error("a comparison is missing, such as latency_s < 0.5")
        sign = signed["sign"]
        if not left["word"]:
            left, right, sign = right, left, sign.translate(MIRRORED)
        column, compare = left["word"], COMPARISONS[sign]
        if not column:
            raise self.error(f"{_written(left)} and {_written(right)}: one must be a column")
        self.columns.add(column)
        if right["number"]:
            return partial(_with_number, column, compare, self.quantity(column, right), _written(right))
        if sign in ("==", "!=") and (right["text"] or not _written(right).endswith(MEASURED)):
            return partial(_with_text, column, compare, _written(right).strip("\"'"))
        if not right["word"]:
            raise self.error(f"{_written(right)} can't be compared by {sign}")
        self.columns.add(right["word"])
        return partial(_with_column, column, compare, right["word"])

    def quantity(self, column: str, number: Token) -> float:
        """The number in the unit of the column."""
        unit = (number["unit"] or "").lower()
        if not unit:
            return float(number["number"])
        units = next((units for end, units in UNITS.items() if column.endswith(end)), {"%": "0.01"})
        if unit not in units:
            raise self.error(f"{column} is not given in {unit}; use {', '.join(units)}, or none")
        return float(Decimal(number["number"]) * Decimal(units[unit]))


def _written(token: Token) -> str:
    return token[0].strip()


def _both(one: Check, other: Check, columns: Columns) -> Verdict:
    (holds, fails), (also_holds, also_fails) = one(columns), other(columns)
    return holds & also_holds, fails | also_fails


def _either(one: Check, other: Check, columns: Columns) -> Verdict:
    (holds, fails), (also_holds, also_fails) = one(columns), other(columns)
    return holds | also_holds, fails & also_fails


def _not(one: Check, columns: Columns) -> Verdict:
    holds, fails = one(columns)
    return fails, holds


def _with_number(column: str, compare: Compare, value: float, text: str, columns: Columns) -> Verdict:
    figures = columns[column]
    if figures.dtype == object:  # a point that is written like a number
        return _with_text(column, compare, text, columns)
    return _known(compare(figures, value), ~np.isnan(figures.astype(float)))


def _with_text(column: str, compare: Compare, text: str, columns: Columns) -> Verdict:
    if columns[column].dtype != object or compare not in (operator.eq, operator.ne):
        raise UserError(f"where: {column} can't be compared with {text!r} in this way")
    written = columns[column].astype(str)
    if column == "backend":
        # Where nothing crosses there is none: whichever is asked for, it is and it is not.
        of_none = written == NONE
        holds, fails = _known(compare(written, text), ~of_none)
        return holds | of_none, fails | of_none
    return _known(compare(written, text), np.asarray(written != ""))


def _with_column(column: str, compare: Compare, other: str, columns: Columns) -> Verdict:
    one, two = columns[column], columns[other]
    if object in (one.dtype, two.dtype):
        raise UserError(f"where: {column} can't be compared with {other}")
    return _known(compare(one, two), ~np.isnan(one.astype(float)) & ~np.isnan(two.astype(float)))


def _known(holds: Any, known: Bools) -> Verdict:
    return np.asarray(holds & known), np.asarray(~holds & known)

"""Constraints as a user writes them: `latency_s < 0.5 and not backend == rpc`. Parsed, never run as code."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.keys import CONDITION
from analysis.neutral import NONE
from pareto.errors import UserError

Bools = npt.NDArray[np.bool_]
Columns = Mapping[str, npt.NDArray[Any]]
Verdict = tuple[Bools, Bools]
"""Where a condition holds, and where it fails: neither where a figure is missing (Kleene's three values)."""
Check = Callable[[Columns], Verdict]

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
UNITS = {
    "_s": {"s": "1", "ms": "1e-3", "us": "1e-6"},
    "_bytes": {"kb": "1e3", "mb": "1e6", "gb": "1e9", "kib": "1024", "mib": "1048576", "gib": "1073741824"},
    "_j": {"j": "1"},
}
"""What a unit is worth, by the end of the columns that it may be compared with. `%` goes with any other. In decimals,
so that 50000 us is 0.05 s to the last bit."""
TOKEN = re.compile(
    r"""\s*(?:
      (?P<text>"[^"]*"|'[^']*')
    | (?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)\s*(?P<unit>%|(?:us|ms|s|kb|mb|gb|kib|mib|gib|j)\b)?(?![\w.+-])
    | (?P<word>[A-Za-z0-9_][\w.:+-]*)
    | (?P<sign><=|>=|==|!=|<|>|\(|\))
    )""",
    re.VERBOSE | re.IGNORECASE,
)


SHARED = ("edge_s", "middle_s", "server_s", "edge_rss_bytes", "edge_peak_rss_bytes")
"""What does not depend on the backend. Two of them differ here by noise alone, which must not decide for one only."""
MOST_TOKENS = 400
"""Each bracket is a step deeper, and Python goes down a thousand."""


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    number: str = ""
    unit: str = ""


@dataclass(frozen=True)
class Where:
    """A constraint on cells, in the columns of the front's frame. Without one (empty text) every cell satisfies it."""

    text: str
    columns: frozenset[str]
    check: Check

    @classmethod
    def parse(cls, text: str) -> Where:
        """Reads comparisons (`<` `<=` `>` `>=` `==` `!=`) of a column with a number, another column or a text,
        joined by `and`, `or`, `not` and parentheses; `not` binds closest, then `and`.

        Numbers are in the column's unit (s, bytes, J, images/s, a share of 1), or carry one: `50ms`, `300kib`, `2j`,
        `70%`. A text is compared for equality only: `backend == tcp`, `point == "3+7"`. Raises `UserError` for
        whatever it can't read.
        """
        if not text.strip():
            return cls("", frozenset(), _always)
        reader = _Reader(text)
        check = reader.either()
        if (left := reader.take()) is not None:
            raise reader.error(f"nothing expected at {left.text!r}")
        return cls(text.strip(), frozenset(reader.columns), check)

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

    def over_backends(self, frame: pd.DataFrame, columns: Columns) -> Columns:
        """The columns, of arrays that end in an axis of the frame's rows; what is `SHARED` of each point pooled."""
        same = [name for name in (*CONDITION, "point") if name in frame]
        if not (shared := [name for name in SHARED if name in columns]) or "point" not in same:
            return columns
        found = {**columns, **{name: columns[name].astype(float) for name in shared}}
        for members in frame.groupby(same, dropna=False, observed=True).indices.values():
            for name in shared:
                found[name][..., members] = _mean(found[name][..., members])
        return found

    def within(self, columns: Columns) -> Bools:
        """The same over arrays of any shapes that go together, one for each of `columns`."""
        return np.asarray(self.check(columns)[0])


def _mean(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Along the last axis, which stays with a length of 1; of those that are known."""
    known = ~np.isnan(values)
    sums = np.where(known, values, 0.0).sum(axis=-1, keepdims=True)
    counts = known.sum(axis=-1, keepdims=True)
    return np.asarray(np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0))


def _always(columns: Columns) -> Verdict:
    return np.ones((), dtype=bool), np.zeros((), dtype=bool)


def _all(one: Check, other: Check) -> Check:
    def check(columns: Columns) -> Verdict:
        (holds, fails), (also, not_also) = one(columns), other(columns)
        return holds & also, fails | not_also

    return check


def _not(one: Check) -> Check:
    def check(columns: Columns) -> Verdict:
        holds, fails = one(columns)
        return fails, holds

    return check


def _any(one: Check, other: Check) -> Check:
    return _not(_all(_not(one), _not(other)))


class _Reader:
    """Recursive descent, one method a level of the grammar, loosest first."""

    def __init__(self, text: str) -> None:
        self.text, self.columns = text, set[str]()
        self.tokens = list(self.split())
        if len(self.tokens) > MOST_TOKENS:
            raise UserError(f"where: more than {MOST_TOKENS} words and signs are too many")
        self.tokens.reverse()

    def error(self, what: str) -> UserError:
        return UserError(f"where {self.text!r}: {what}")

    def split(self) -> Iterator[Token]:
        at, end = 0, len(self.text.rstrip())
        while at < end:
            if (found := TOKEN.match(self.text, at)) is None:
                raise self.error(f"can't read {self.text[at:].strip()!r}")
            at = found.end()
            kind, unit = str(found.lastgroup), (found["unit"] or "").lower()
            kind = "number" if found["number"] else kind
            yield Token(kind, found[0].strip(), found["number"] or "", unit)

    def take(self, *wanted: str) -> Token | None:
        """The next token, if it is one of the words (any without them)."""
        if self.tokens and (not wanted or self.tokens[-1].text.lower() in wanted):
            return self.tokens.pop()
        return None

    def either(self) -> Check:
        check = self.both()
        while self.take("or"):
            check = _any(check, self.both())
        return check

    def both(self) -> Check:
        check = self.one()
        while self.take("and"):
            check = _all(check, self.one())
        return check

    def one(self) -> Check:
        if self.take("not"):
            return _not(self.one())
        if self.take("("):
            check = self.either()
            if not self.take(")"):
                raise self.error("a ) is missing")
            return check
        return self.comparison()

    def comparison(self) -> Check:
        left, sign, right = self.take(), self.take(*COMPARISONS), self.take()
        if left is None or right is None or sign is None:
            raise self.error("a comparison is missing, such as latency_s < 0.5")
        if left.kind != "word":
            left, right, sign = right, left, Token("sign", sign.text.translate(MIRRORED))
        if left.kind != "word":
            raise self.error(f"{left.text} and {right.text}: one must be a column")
        self.columns.add(left.text)
        compare = COMPARISONS[sign.text]
        if right.kind == "number":
            return _numbers(left.text, compare, self.quantity(left.text, right), right.text)
        if sign.text in ("==", "!=") and (right.kind == "text" or not self.is_column(right.text)):
            return _texts(left.text, compare, right.text.strip("\"'"))
        if right.kind != "word":
            raise self.error(f"{right.text} can't be compared by {sign.text}")
        self.columns.add(right.text)
        return _columns(left.text, compare, right.text)

    @staticmethod
    def is_column(word: str) -> bool:
        """`latency_bound_s` is, `tcp` and `3+7` are not: a bare word is a text unless it ends as a measurement does."""
        return word.endswith((*UNITS, "_ips", "_gain", "_efficiency"))

    def quantity(self, column: str, number: Token) -> float:
        """The number in the unit of the column."""
        if not number.unit:
            return float(number.number)
        units = next((units for end, units in UNITS.items() if column.endswith(end)), {"%": "0.01"})
        if number.unit not in units:
            raise self.error(f"{column} is not given in {number.unit}; use {', '.join(units)}, or none")
        return float(Decimal(number.number) * Decimal(units[number.unit]))


MIRRORED = str.maketrans("<>", "><")


def _numbers(column: str, compare: Callable[[Any, Any], Any], value: float, text: str) -> Check:
    def check(columns: Columns) -> Verdict:
        figures = columns[column]
        if figures.dtype == object:  # a point that is written like a number
            return _texts(column, compare, text)(columns)
        return _known(compare(figures, value), ~np.isnan(figures.astype(float)))

    return check


def _texts(column: str, compare: Callable[[Any, Any], Any], text: str) -> Check:
    def check(columns: Columns) -> Verdict:
        written = columns[column]
        if column == "backend" and written.dtype == object and compare in (operator.eq, operator.ne):
            # Where nothing crosses there is none: whichever is asked for, it is and it is not.
            of_none = written.astype(str) == NONE
            holds, fails = _known(compare(written.astype(str), text), ~of_none)
            return holds | of_none, fails | of_none
        if written.dtype != object or compare not in (operator.eq, operator.ne):
            raise UserError(f"where: {column} can't be compared with {text!r} in this way")
        return _known(compare(written.astype(str), text), np.asarray(written.astype(str) != ""))

    return check


def _columns(column: str, compare: Callable[[Any, Any], Any], other: str) -> Check:
    def check(columns: Columns) -> Verdict:
        one, two = columns[column], columns[other]
        if object in (one.dtype, two.dtype):
            raise UserError(f"where: {column} can't be compared with {other}")
        return _known(compare(one, two), ~np.isnan(one.astype(float)) & ~np.isnan(two.astype(float)))

    return check


def _known(holds: Any, known: Bools) -> Verdict:
    return np.asarray(holds & known), np.asarray(~holds & known)

"""Constraints as a user writes them: `latency_s < 0.5 and not backend == rpc`. They compare columns, and do no more."""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from pareto.analysis.points import CONDITION, NONE
from pareto.analysis.statistics.samples import Bools, Floats
from pareto.protocol.errors import UserError

Columns = Mapping[str, npt.NDArray[Any]]

SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    **{"<=": operator.le, ">=": operator.ge, "==": operator.eq},
    **{"!=": operator.ne, "<": operator.lt, ">": operator.gt},
}
MIRRORED = str.maketrans("<>", "><")
UNITS = {
    "_s": {"s": "1", "ms": "1e-3", "us": "1e-6"},
    "_bytes": {"kb": "1e3", "mb": "1e6", "gb": "1e9", "kib": "1024", "mib": "1048576", "gib": "1073741824"},
    "_j": {"j": "1"},
}
"""The worth of each unit, by the end of the columns that it may be compared with. `%` goes with any other. In
decimals, so that 50000 us is 0.05 s to the last bit.
"""
MEASURED = (*UNITS, "_ips", "_gain", "_efficiency")
"""The ends of the names of measurements: `latency_bound_s` is a column; `tcp` and `3+7` are texts."""
_NUMBER, _UNIT = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?", r"(?:%|(?:us|ms|s|kb|mb|gb|kib|mib|gib|j)\b)"
NUMBER = re.compile(rf"({_NUMBER})\s*({_UNIT})?", re.IGNORECASE)
_OPERAND = rf"""(?:"[^"]*"|'[^']*'|{_NUMBER}\s*{_UNIT}?(?![\w.+-])|[A-Za-z0-9_][\w.:+-]*)"""
COMPARISON = re.compile(rf"({_OPERAND})\s*(<=|>=|==|!=|<|>)\s*({_OPERAND})", re.IGNORECASE)
JOIN = re.compile(r"\b(?:and|or|not)\b|[()]", re.IGNORECASE)
"""All that may stand between comparisons."""
SHARED = ("edge_s", "middle_s", "server_s", "edge_rss_bytes", "edge_peak_rss_bytes")
"""Columns that do not depend on the backend. Two backends differ here by noise alone, which must not decide
for one only.
"""
MOST_LETTERS = 500


@dataclass(frozen=True)
class Comparison:
    """A column that is compared with a number, a text or another column. written: the other side, as it was typed."""

    column: str
    sign: str
    written: str
    number: float | None = None
    other: str = ""

    def of(self, columns: Columns) -> pd.Series:
        """A truth value for each row, NA where a figure is missing. Raises `UserError` where the two do not fit."""
        figures, compare = columns[self.column], SIGNS[self.sign]
        if self.other:
            if object in (figures.dtype, columns[self.other].dtype):
                raise UserError(f"where: {self.column} can't be compared with {self.other}")
            return pd.Series(compare(_numbers(figures), _numbers(columns[self.other])))
        # A point is a text that is written like a number.
        if self.number is not None and figures.dtype != object:
            return pd.Series(compare(_numbers(figures), self.number))
        if figures.dtype != object or self.sign not in ("==", "!="):
            raise UserError(f"where: {self.column} can't be compared with {self.text!r} in this way")
        texts = pd.Series(figures).astype("string").replace("", pd.NA)
        return pd.Series(compare(texts, self.text)).astype("boolean")

    @property
    def text(self) -> str:
        return self.written.strip("\"'")


@dataclass(frozen=True)
class Where:
    """A constraint on cells, in the columns of the front's frame. Without one (empty text) every cell satisfies it.

    joined: the text with `c0`, `c1`, ... in place of its comparisons.
    """

    text: str
    joined: str = ""
    comparisons: tuple[Comparison, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Where:
        """The constraint in a text: comparisons (`<` `<=` `>` `>=` `==` `!=`) of a column with a number, another
        column or a text, joined by `and`, `or`, `not` and parentheses; `not` binds closest, then `and`.

        Numbers are in the column's unit (s, bytes, J, images/s, a share of 1), or carry one: `50ms`, `300kib`, `2j`,
        `70%`. A text is compared for equality only: `backend == tcp`, `point == "3+7"`. Raises `UserError` for
        whatever it can't read.
        """
        if not (text := text.strip()):
            return cls("")
        if len(text) > MOST_LETTERS:
            raise UserError(f"where: more than {MOST_LETTERS} letters are too many")
        made = tuple(
            _comparison(text, *map(str.strip, match.groups())) for match in COMPARISON.finditer(text)
        )
        left = JOIN.sub(" ", COMPARISON.sub(" ", text)).strip()
        if left or not made:
            raise UserError(
                f"where {text!r}: can't read {left or text!r}; a comparison is such as latency_s < 0.5"
            )
        numbers = itertools.count()
        joined = JOIN.sub(lambda word: word[0].lower(), COMPARISON.sub(lambda _: f" c{next(numbers)} ", text))
        try:
            compile(joined.strip(), "where", "eval")
        except SyntaxError:
            raise UserError(f"where {text!r}: and, or, not or brackets are missing, or too many") from None
        return cls(text, joined.strip(), made)

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(
            filter(None, (name for each in self.comparisons for name in (each.column, each.other)))
        )

    def holds(self, frame: pd.DataFrame) -> pd.Series:
        """Mask of the rows that satisfy it; none without a figure that decides: not measured is not fulfilled.

        A `SHARED` column counts as the mean of the backends at the same point. A row without a backend, as nothing
        crosses there, satisfies what is asked of any. Raises `UserError` if the frame lacks a column.
        """
        for name in sorted(self.columns - set(frame)):
            near = get_close_matches(name, frame, n=1)
            raise UserError(f"where: no column {name!r}{f'; is it {near[0]!r}?' if near else ''}")
        columns = self.over_backends(frame, {name: frame[name].to_numpy() for name in self.columns})
        return pd.Series(np.broadcast_to(self.within(columns), len(frame)), index=frame.index, dtype=bool)

    def fails(self, frame: pd.DataFrame) -> pd.Series:
        """Mask of the rows that do not satisfy it, whatever the figures and columns are that they lack."""
        if not self.comparisons:
            return pd.Series(False, index=frame.index)
        missing = np.full(len(frame), np.nan)
        columns = {name: frame[name].to_numpy() if name in frame else missing for name in self.columns}
        try:
            fails = (~self._result(columns)).fillna(False).to_numpy(dtype=bool)
        except UserError:  # a text that these rows lack decides
            fails = np.zeros(len(frame), dtype=bool)
        return pd.Series(fails, index=frame.index, dtype=bool)

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
        """Mask of what satisfies it in arrays of any shapes that go together, one for each of `columns`."""
        if not self.comparisons:
            return np.ones((), dtype=bool)
        shape = np.broadcast_shapes(*(values.shape for values in columns.values()))
        flat = {name: np.broadcast_to(values, shape).ravel() for name, values in columns.items()}
        holds = np.zeros(int(np.prod(shape)), dtype=bool)
        # Where nothing crosses there is no backend: whichever is named, or another one, may be meant.
        for name in {each.text for each in self.comparisons if each.column == "backend"} | {"any other"}:
            meant = dict(flat)
            if "backend" in flat:
                backend = flat["backend"].astype(str)
                meant["backend"] = np.where(backend == NONE, name, backend).astype(object)
            holds |= self._result(meant).fillna(False).to_numpy(dtype=bool)
        return holds.reshape(shape)

    def _result(self, columns: Columns) -> pd.Series:
        """A truth value for each row, NA where figures are missing that decide (Kleene's three values)."""
        frame = pd.DataFrame({f"c{number}": each.of(columns) for number, each in enumerate(self.comparisons)})
        return frame.eval(self.joined, engine="python")


def _comparison(text: str, left: str, sign: str, right: str) -> Comparison:
    """The comparison as one of a column with something."""

    def error(what: str) -> UserError:
        return UserError(f"where {text!r}: {what}")

    if _is_no_name(left):
        left, right, sign = right, left, sign.translate(MIRRORED)
    if _is_no_name(left):
        raise error(f"{left} and {right}: one must be a column")
    if number := NUMBER.fullmatch(right):
        return Comparison(left, sign, right, _quantity(left, number[1], (number[2] or "").lower(), error))
    if sign in ("==", "!=") and (right[0] in "\"'" or not right.endswith(MEASURED)):
        return Comparison(left, sign, right)
    if right[0] in "\"'":
        raise error(f"{right} can't be compared by {sign}")
    return Comparison(left, sign, right, other=right)


def _is_no_name(operand: str) -> bool:
    return operand[0] in "\"'" or NUMBER.fullmatch(operand) is not None


def _quantity(column: str, number: str, unit: str, error: Callable[[str], UserError]) -> float:
    """The number in the unit of the column."""
    if not unit:
        return float(number)
    units = next((units for end, units in UNITS.items() if column.endswith(end)), {"%": "0.01"})
    if unit not in units:
        raise error(f"{column} is not given in {unit}; use {', '.join(units)}, or none")
    return float(Decimal(number) * Decimal(units[unit]))


def _numbers(values: npt.NDArray[Any]) -> pd.Series:
    """The values with NA for what is missing."""
    return pd.Series(pd.array(values.astype(float), dtype="Float64"))


def _mean(values: Floats) -> Floats:
    """The mean of what is known along the last axis, which stays with a length of 1."""
    known = ~np.isnan(values)
    sums = np.where(known, values, 0.0).sum(axis=-1, keepdims=True)
    counts = known.sum(axis=-1, keepdims=True)
    return np.asarray(np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0))

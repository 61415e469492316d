"""Constraints as a user writes them: `latency_s < 0.5 and not backend == rpc`. They compare columns, and do no more."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from pareto.analysis.runs.points import CONDITION, NONE
from pareto.analysis.statistics.samples import Bools
from pareto.protocol.errors import UserError

Columns = Mapping[str, npt.NDArray[Any]]

SIGNS = {"<=": "le", ">=": "ge", "==": "eq", "!=": "ne", "<": "lt", ">": "gt"}
"""By sign the method of a series."""
UNITS = {
    "_s": {"s": "1", "ms": "1e-3", "us": "1e-6"},
    "_bytes": {"kb": "1e3", "mb": "1e6", "gb": "1e9", "kib": "1024", "mib": "1048576", "gib": "1073741824"},
    "_j": {"j": "1"},
}
"""The worth of each unit, by the end of the columns that it may be compared with. `%` goes with any other. In
decimals, so that 50000 us is 0.05 s to the last bit."""
MEASURED = (*UNITS, "_ips", "_gain", "_efficiency")
"""The ends of the names of measurements: `latency_bound_s` is a column; `tcp` and `3+7` are texts."""
_NUMBER, _UNIT = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?", r"(?:%|(?:us|ms|s|kb|mb|gb|kib|mib|gib|j)\b)"
NUMBER = re.compile(rf"({_NUMBER})\s*({_UNIT})?", re.IGNORECASE)
_OPERAND = rf"""(?:"[^"]*"|'[^']*'|{_NUMBER}\s*{_UNIT}?(?![\w.+-])|[A-Za-z0-9_][\w.:+-]*)"""
COMPARISON = re.compile(rf"({_OPERAND})\s*(<=|>=|==|!=|<|>)\s*({_OPERAND})", re.IGNORECASE)
JOIN = re.compile(r"\b(?:and|or|not)\b|[()]", re.IGNORECASE)
"""All that may stand between comparisons."""
SHARED = ("edge_s", "middle_s", "server_s", "edge_rss_bytes", "edge_peak_rss_bytes")
"""Columns that no backend changes: two differ here by noise alone, which must not decide for one only."""
MOST_LETTERS = 500


class Comparison(NamedTuple):
    """A column that is compared with a number, with the `other` column, or else with the text."""

    column: str
    sign: str
    text: str
    number: float | None = None
    other: str = ""

    def holds(self, frame: pd.DataFrame) -> pd.Series:
        """A truth value for each row, NA where a figure is missing. Raises `UserError` where the two do not fit."""
        is_text = any(frame[name].dtype == "string" for name in (self.column, self.other) if name)
        # A point is a text that is written like a number.
        value = frame[self.other] if self.other else self.text if is_text else self.number
        if value is None or (is_text and (self.other or self.sign not in ("==", "!="))):
            other = self.other or f"{self.text!r} in this way"
            raise UserError(f"where: {self.column} can't be compared with {other}")
        return pd.Series(getattr(frame[self.column], SIGNS[self.sign])(value))


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
        """The constraint in a text: comparisons of columns with numbers, columns or texts, with and, or, not and ().

        Numbers are in the column's unit, or carry one: `50ms`, `300kib`, `70%`. A text is compared for equality only:
        `point == "3+7"`. Raises `UserError` for whatever it can't read.
        """
        if not (text := text.strip()):
            return cls("")
        if len(text) > MOST_LETTERS:
            raise UserError(f"where: more than {MOST_LETTERS} letters are too many")
        made = tuple(_comparison(text, *map(str.strip, each.groups())) for each in COMPARISON.finditer(text))
        if (left := JOIN.sub(" ", COMPARISON.sub(" ", text)).strip()) or not made:
            such = "a comparison is such as latency_s < 0.5"
            raise UserError(f"where {text!r}: can't read {left or text!r}; {such}")
        numbers = itertools.count()
        joined = JOIN.sub(lambda word: word[0].lower(), COMPARISON.sub(lambda _: f" c{next(numbers)} ", text))
        try:
            compile(joined.strip(), "where", "eval")
        except SyntaxError:
            raise UserError(f"where {text!r}: and, or, not or brackets are missing, or too many") from None
        return cls(text, joined.strip(), made)

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(name for each in self.comparisons for name in (each.column, each.other) if name)

    def holds(self, frame: pd.DataFrame) -> pd.Series:
        """Mask of the rows that satisfy it; none without a figure that decides: not measured is not fulfilled.

        A row of no backend satisfies what is asked of any. Raises `UserError` for a column that the frame lacks.
        """
        for name in sorted(self.columns - set(frame)):
            near = get_close_matches(name, frame, n=1)
            raise UserError(f"where: no column {name!r}{f'; is it {near[0]!r}?' if near else ''}")
        columns = self.over_backends(frame, {name: frame[name].to_numpy() for name in self.columns})
        return pd.Series(np.broadcast_to(self.within(columns), len(frame)), index=frame.index, dtype=bool)

    def fails(self, frame: pd.DataFrame) -> pd.Series:
        """Mask of the rows that do not satisfy it, whatever the figures and columns are that they lack."""
        known = frame.reindex(columns=sorted(self.columns))
        try:
            fails = ~self._result({name: known[name].to_numpy() for name in known}) if self.text else False
        except UserError:  # a text that these rows lack decides
            fails = False
        return pd.Series(fails, index=frame.index, dtype="boolean").fillna(False).astype(bool)

    def over_backends(self, frame: pd.DataFrame, columns: Columns) -> Columns:
        """The columns, of arrays that end in an axis of the frame's rows; what is `SHARED` is the mean of its point."""
        same = [name for name in (*CONDITION, "point") if name in frame]
        shared = [name for name in SHARED if name in columns]
        if not shared or "point" not in same:
            return columns
        number = frame.groupby(same, dropna=False, observed=True).ngroup().to_numpy()
        of = {name: pd.DataFrame(np.atleast_2d(columns[name]).T.astype(float)) for name in shared}
        means = {name: rows.groupby(number).transform("mean").to_numpy().T for name, rows in of.items()}
        return {**columns, **{name: each.reshape(columns[name].shape) for name, each in means.items()}}

    def within(self, columns: Columns) -> Bools:
        """Mask of what satisfies it in arrays of any shapes that go together, one for each of `columns`."""
        if not self.text:
            return np.ones((), dtype=bool)
        shape = np.broadcast_shapes(*(values.shape for values in columns.values()))
        flat = {name: np.broadcast_to(values, shape).ravel() for name, values in columns.items()}
        holds = np.zeros(int(np.prod(shape)), dtype=bool)
        backend = flat.get("backend", np.empty(0)).astype(str)
        # Where nothing crosses there is no backend: whichever is named, or another one, may be meant.
        for name in {each.text for each in self.comparisons if each.column == "backend"} | {"any other"}:
            if "backend" in flat:
                flat["backend"] = np.where(backend == NONE, name, backend).astype(object)
            holds |= self._result(flat).fillna(False).to_numpy(dtype=bool)
        return holds.reshape(shape)

    def _result(self, columns: Columns) -> pd.Series:
        """A truth value for each row, NA where figures are missing that decide (Kleene's three values)."""
        frame = pd.DataFrame({name: _known(values) for name, values in columns.items()})
        holds = {f"c{place}": each.holds(frame) for place, each in enumerate(self.comparisons)}
        return pd.DataFrame(holds).eval(self.joined, engine="python")


def _comparison(where: str, left: str, sign: str, right: str) -> Comparison:
    """The comparison as one of a column with something."""
    if not left.isidentifier():
        left, right, sign = right, left, sign.translate(str.maketrans("<>", "><"))
    text = right.strip("\"'")
    if not left.isidentifier():
        problem = f"{left} and {right}: one must be a column"
    elif number := NUMBER.fullmatch(right):
        # Without a unit it is in the column's own.
        own = next((units for end, units in UNITS.items() if left.endswith(end)), {"%": "0.01"})
        if (unit := (number[2] or "").lower()) in ("", *own):
            worth = Decimal(number[1]) * Decimal(own[unit]) if unit else number[1]
            return Comparison(left, sign, text, float(worth))
        problem = f"{left} is not given in {unit}; use {', '.join(own)}, or none"
    elif sign in ("==", "!=") and (right[0] in "\"'" or not right.endswith(MEASURED)):
        return Comparison(left, sign, text)
    elif right[0] in "\"'":
        problem = f"{right} can't be compared by {sign}"
    else:
        return Comparison(left, sign, text, other=right)
    raise UserError(f"where {where!r}: {problem}")


def _known(values: npt.NDArray[Any]) -> pd.Series:
    """The values with NA for what is missing: texts, or numbers."""
    if values.dtype == object:
        return pd.Series(values).astype("string").replace("", pd.NA)
    return pd.Series(pd.array(values.astype(float), dtype="Float64"))

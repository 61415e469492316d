"""A front's chart: places in percent of its plane, which the template draws."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pareto.analysis.figures.marks import FILLS, STATE_WORDS, ends, is_logarithmic
from pareto.analysis.naming import ANY
from pareto.analysis.points import NONE

SHAPES = 7
"""How many shapes and colours of backends the page has."""
PLANES_PX = {"wide": (640, 330), "narrow": (300, 250)}
"""About the size of a plane in a wide window and in a narrow one: which names have room in it."""
_SPOTS = ((-10, -7, "end"), (10, 17, "start"), (10, -7, "start"), (-10, 17, "end"))
"""The places of a name beside its mark: pixels to the right and down, and which end of the name is there."""
_LETTER_PX, _LINE_PX, _MARK_PX = 7.5, 12, 7
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Axis:
    """An axis from `low` to `high`."""

    low: float
    high: float
    log: bool

    @classmethod
    def of(cls, marks: pd.DataFrame, name: str) -> Axis:
        """An axis that holds the marks, and the intervals of those that have them drawn, by the rule of all figures."""
        drawn = marks.loc[marks["state"] != "dominated", [f"{name}_low", f"{name}_high"]]
        values = [*marks[name], *drawn.stack().dropna()]
        return cls(*ends(min(values), max(values), 0.06), is_logarithmic(min(values), max(values)))

    def at(self, values: Any) -> Any:
        """The values' places, in percent of the axis."""
        low, high, values = (
            map(np.log, (self.low, self.high, values)) if self.log else (self.low, self.high, values)
        )
        return 100 * (values - low) / (high - low)

    def ticks(self, most: int = 7) -> list[tuple[float, str]]:
        """The places of round numbers, about `most` of them, and their text."""
        if self.log:
            powers = 10.0 ** np.arange(math.floor(math.log10(self.low)), math.log10(self.high))
            each = [np.outer(powers, steps).ravel() for steps in ([1, 2, 5], [1, 3], [1])]
            several = [values[(values >= self.low) & (values <= self.high)] for values in each]
            values = next((few for few in several if len(few) <= most), several[-1])
        else:
            rough = (self.high - self.low) / most
            power = 10 ** math.floor(math.log10(rough))
            step = next(step * power for step in (1, 2, 5, 10) if step * power >= 0.8 * rough)
            values = step * np.arange(max(0, math.ceil(self.low / step)), math.floor(self.high / step) + 1)
        texts = [np.format_float_positional(value, 6, fractional=False, trim="-") for value in values]
        return list(zip(self.at(values).round(2).tolist(), texts, strict=True))


def planes(marks: pd.DataFrame) -> tuple[Axis, Axis]:
    """The axes of marks as `chart` has them."""
    shown = marks.dropna(subset=["x", "y"])
    return Axis.of(shown, "x"), Axis.of(shown, "y")


def chart(
    marks: pd.DataFrame, names: Sequence[str], stairs: str = "", axes: tuple[Axis, Axis] | None = None
) -> dict[str, Any]:
    """A chart of latency and throughput; empty without a point that has both.

    marks: a row a point: backend, point, x (in `unit`) and y with their ends x_low, ..., state (a key of `FILLS`), on
    (whether a staircase goes through it), fit (feasible), title, row (of its table). names: of all backends. stairs:
    `each` backend has one, or `all` have one together.
    """
    shown = marks.dropna(subset=["x", "y"])
    if shown.empty:
        return {}
    across, up = axes or planes(marks)
    tones = {name: "sn" if name == NONE else f"s{place % SHAPES}" for place, name in enumerate(names)}
    placed = shown.assign(
        **{name: across.at(shown[name]) for name in ("x", "x_low", "x_high")},
        **{name: 100 - up.at(shown[name]) for name in ("y", "y_low", "y_high")},
        tone=shown["backend"].map(tones),
        fill=shown["state"].map(FILLS),
    ).round(2)
    lines = {}
    if stairs == "each":
        several = [name for name in names if name != NONE and (shown["backend"] == name).any()] or [NONE]
        lines = {name: placed[placed["backend"].isin([name, NONE])] for name in several}
    elif stairs:
        lines = {NONE: placed}
    named = placed[placed["on"]].to_dict("records")
    return {
        "x": (f"latency ({shown['unit'].iloc[0]}{', log' * across.log})", across.ticks()),
        "y": (f"throughput (images/s{', log' * up.log})", up.ticks()),
        "stairs": [
            (tones.get(name, "sn"), _stairs(rows)) for name, rows in lines.items() if rows["on"].any()
        ],
        "marks": placed.sort_values("fill", kind="stable").to_dict("records"),
        "names": [
            (size, *name)
            for size, plane in PLANES_PX.items()
            for name in _names(named, placed[["x", "y"]], *plane)
        ],
        "key": [(tones[name], name or ANY) for name in names if (shown["backend"] == name).any()],
        "states": [
            (fill, STATE_WORDS[state]) for state, fill in FILLS.items() if (shown["state"] == state).any()
        ],
    }


def _stairs(rows: pd.DataFrame) -> str:
    """The staircase through what is on a front: what it gives at the least."""
    on = rows[rows["on"]].sort_values(["x", "y"])
    # What is lower is on the front of another backend than these.
    corners = on[on["y"] < on["y"].cummin().shift(fill_value=math.inf)]
    path = "".join(f"H{x}V{y}" for x, y in corners[["x", "y"]].to_numpy().tolist())
    return f"M{on['x'].iloc[0]} 100{path}H100"


def _names(
    marks: Sequence[dict[Any, Any]], every: pd.DataFrame, wide: int, high: int
) -> Iterator[tuple[Any, ...]]:
    """Yield the names that cover neither each other nor a mark: the mark, pixels to the right and down, which end."""
    places = (every.to_numpy() * [wide / 100, high / 100]).tolist()
    taken: list[Box] = [(x - _MARK_PX, y - _MARK_PX, x + _MARK_PX, y + _MARK_PX) for x, y in places]
    for mark in marks:
        length = _LETTER_PX * len(mark["point"])
        for right, down, end in _SPOTS:
            left, bottom = (
                mark["x"] * wide / 100 + right - length * (end == "end"),
                mark["y"] * high / 100 + down,
            )
            box = (left, bottom - _LINE_PX, left + length, bottom + 2)
            is_inside = box[0] > 0 and box[2] < wide and box[1] > 0 and box[3] < high
            if is_inside and all(
                box[2] < x or x2 < box[0] or box[3] < y or y2 < box[1] for x, y, x2, y2 in taken
            ):
                taken.append(box)
                yield mark, right, down, end
                break

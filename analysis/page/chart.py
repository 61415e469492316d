"""A front's chart: places in percent of its plane, which the template draws."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pareto.analysis.figures.marks import FILLS, STATE_WORDS, ends, is_logarithmic
from pareto.analysis.naming import ANY, cell_names, time_unit
from pareto.analysis.runs.points import NONE
from pareto.analysis.tables.columns import UNKNOWN, sureness

LATENCY = ("latency_s", "latency_low_s", "latency_high_s")
THROUGHPUT = ("throughput_ips", "throughput_low_ips", "throughput_high_ips")
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
    def of(cls, values: pd.Series) -> Axis:
        """An axis that holds the values, by the rule of all figures."""
        low, high = float(values.min()), float(values.max())
        return cls(*ends(low, high, 0.06), is_logarithmic(low, high))

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


@dataclass(frozen=True)
class Plane:
    """The plane of a chart. unit: of latency, and how many of it make a second."""

    unit: tuple[str, float]
    across: Axis
    up: Axis

    @classmethod
    def of(cls, rows: pd.DataFrame) -> Plane:
        """A plane that holds the points, and the intervals of those that have them drawn."""
        rows = rows.dropna(subset=[LATENCY[0], THROUGHPUT[0]])
        unit = time_unit(float(rows[LATENCY[0]].min()))
        drawn = rows[rows["state"] != "dominated"]
        latency, throughput = (
            pd.concat([rows[names[0]], *(drawn[name] for name in names[1:])]).dropna()
            for names in (LATENCY, THROUGHPUT)
        )
        return cls(unit, Axis.of(latency * unit[1]), Axis.of(throughput))


def chart(
    rows: pd.DataFrame, names: Sequence[str], first: int, stairs: str = "", plane: Plane | None = None
) -> dict[str, Any]:
    """A chart of latency and throughput; empty without a point that has both.

    rows: like a front's, with `state` (a key of `FILLS`) and `on` (whether a staircase goes through the point). names:
    of all backends. first: the number of the rows' first one on the page. stairs: `each` backend has one, or `all`
    have one together.
    """
    numbered = rows.assign(row=range(first, first + len(rows)))
    shown = numbered.dropna(subset=[LATENCY[0], THROUGHPUT[0]])
    if shown.empty:
        return {}
    plane = plane or Plane.of(shown)
    tones = {name: "sn" if name == NONE else f"s{place % SHAPES}" for place, name in enumerate(names)}
    latency, throughput = shown[[*LATENCY]] * plane.unit[1], shown[[*THROUGHPUT]]
    marks = shown[["backend", "point_name", "state", "on", "feasible", "row"]].assign(
        **dict(zip(("x", "x_low", "x_high"), plane.across.at(latency).to_numpy().T, strict=True)),
        **dict(zip(("y", "y_low", "y_high"), 100 - plane.up.at(throughput).to_numpy().T, strict=True)),
        point=shown["point"].astype("str"),
        cell=cell_names(shown),
        figures=[*zip(latency.to_numpy().tolist(), throughput.to_numpy().tolist(), strict=True)],
        sure=list(map(sureness, shown["probability"])) if "probability" in shown else UNKNOWN,
        tone=shown["backend"].map(tones),
        fill=shown["state"].map(FILLS),
    )
    marks, is_there = marks.round(2), set(marks["backend"])
    lines = {NONE: marks} if stairs == "all" else {}
    if stairs == "each":
        several = [name for name in names if name != NONE and name in is_there] or [NONE]
        lines = {name: marks[marks["backend"].isin([name, NONE])] for name in several}
    named = marks[marks["on"]].to_dict("records")
    return {
        "unit": plane.unit[0],
        "x": (f"latency ({plane.unit[0]}{', log' * plane.across.log})", plane.across.ticks()),
        "y": (f"throughput (images/s{', log' * plane.up.log})", plane.up.ticks()),
        "stairs": [(tones.get(name, "sn"), _stairs(of)) for name, of in lines.items() if of["on"].any()],
        "marks": marks.sort_values("fill", kind="stable").to_dict("records"),
        "names": [
            (size, *name) for size, px in PLANES_PX.items() for name in _names(named, marks[["x", "y"]], *px)
        ],
        "key": [(tones[name], name or ANY) for name in names if name in is_there],
        "states": [
            (FILLS[state], words) for state, words in STATE_WORDS.items() if (marks["state"] == state).any()
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

"""A front's chart: places in percent of its plane, which the template draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pareto.analysis.figures.look import FILLS, STATE_WORDS, ends, is_logarithmic
from pareto.analysis.naming import backend_name, cell_names, time_unit
from pareto.analysis.runs.points import NONE
from pareto.analysis.statistics.samples import Floats
from pareto.analysis.tables.table import UNKNOWN, sureness

LATENCY = ["latency_s", "latency_low_s", "latency_high_s"]
THROUGHPUT = ["throughput_ips", "throughput_low_ips", "throughput_high_ips"]
SHAPES = 7
"""How many shapes and colours of backends the page has."""
MOST_TICKS = 8
PLANES_PX = {"wide": (640, 330), "narrow": (300, 250)}
"""About the size of a plane in a wide window and in a narrow one: which names have room in it."""
_SPOTS = ((-10, -7, "end"), (10, 17, "start"), (10, -7, "start"), (-10, 17, "end"))
"""The places of a name beside its mark: pixels to the right and down, and which end of the name is there."""
_LETTER_PX, _LINE_PX, _MARK_PX = 7.5, 12, 7


def chart(
    rows: pd.DataFrame, names: Sequence[str], first: int, stairs: str = "", among: pd.DataFrame | None = None
) -> dict[str, Any]:
    """A chart of latency and throughput; empty without a point that has both.

    rows: like a front's, with `state` (a key of `FILLS`) and `on` (whether a staircase goes through the point). names:
    of all backends. first: the number of the rows' first one on the page. stairs: `each` backend has one, or `all`
    have one together. among: the rows that its axes hold, if these are more.
    """
    key = [LATENCY[0], THROUGHPUT[0]]
    shown = rows.assign(row=range(first, first + len(rows))).dropna(subset=key)
    if shown.empty:
        return {}
    among = shown if among is None else among.dropna(subset=key)
    unit, scale = time_unit(float(among[LATENCY[0]].min()))
    tones = {name: "sn" if name == NONE else f"s{place % SHAPES}" for place, name in enumerate(names)}
    marks = shown[["backend", "point_name", "state", "on", "feasible", "row"]].assign(
        point=shown["point"].astype("str"),
        cell=cell_names(shown),
        sure=[*map(sureness, shown["probability"])] if "probability" in shown else UNKNOWN,
        tone=shown["backend"].map(tones),
        fill=shown["state"].map(FILLS),
    )
    titles = {"x": (f"latency ({unit}", LATENCY, scale), "y": ("throughput (images/s", THROUGHPUT, 1.0)}
    axes: dict[str, Any] = {}
    for axis, (title, of, factor) in titles.items():
        # Only of what is, or may be, on a front the interval is drawn.
        held = pd.concat([among[of[:1]], among.loc[among["state"] != "dominated", of[1:]]])
        place, ticks, log = _axis(factor * held)
        axes[axis] = f"{title}{', log' * log})", ticks
        marks[f"{axis}_figure"] = [*(factor * shown[of]).itertuples(index=False, name=None)]
        places = place(factor * shown[of]) if axis == "x" else 100 - place(factor * shown[of])
        marks[[axis, f"{axis}_low", f"{axis}_high"]] = places.round(2)
    there = set(marks["backend"])
    of_each = [name for name in names if name != NONE and name in there] or [NONE]
    lines: dict[str, Sequence[str]] = {name: [name, NONE] for name in of_each if stairs == "each"}
    lines |= {NONE: names} if stairs == "all" else {}
    parts = [(tones.get(name, "sn"), marks[marks["backend"].isin(of)]) for name, of in lines.items()]
    named = marks[marks["on"]].to_dict("records")
    return {
        "unit": unit,
        **axes,
        "stairs": [(tone, _stairs(part[part["on"]])) for tone, part in parts if part["on"].any()],
        "marks": marks.sort_values("fill", kind="stable").to_dict("records"),
        "names": [
            (size, *name)
            for size, px in PLANES_PX.items()
            for name in _names(named, marks[["x", "y"]].to_numpy(), np.array(px))
        ],
        "key": [(tones[name], backend_name(name)) for name in names if name in there],
        "states": [
            (FILLS[state], words) for state, words in STATE_WORDS.items() if state in {*marks["state"]}
        ],
    }


def _axis(values: pd.DataFrame) -> tuple[Callable[[Any], Any], list[tuple[float, str]], bool]:
    """The places of values on an axis that holds these, in percent; round numbers with theirs; is it logarithmic?"""
    least, most = float(values.min(axis=None)), float(values.max(axis=None))
    (low, high), log = ends(least, most, 0.06), is_logarithmic(least, most)
    scaled = np.log if log else np.positive
    powers = 10.0 ** np.arange(-15, 16)

    def place(value: Any) -> Any:
        return 100 * (scaled(value) - scaled(low)) / (scaled(high) - scaled(low))

    if log:
        several = [np.outer(powers, steps).ravel() for steps in ([1, 2, 5], [1, 3], [1])]
        several = [values[(values >= low) & (values <= high)] for values in several]
        ticks = next((few for few in several if len(few) <= MOST_TICKS), several[-1])
    else:
        step = next(step for step in np.outer(powers, [1, 2, 5]).ravel() if high - low <= MOST_TICKS * step)
        ticks = step * np.arange(math.ceil(low / step), math.floor(high / step) + 1)
    texts = [np.format_float_positional(value, 6, fractional=False, trim="-") for value in ticks]
    return place, list(zip(place(ticks).round(2).tolist(), texts, strict=True)), log


def _stairs(on: pd.DataFrame) -> str:
    """The staircase through what is on a front: what it gives at the least."""
    on = on.sort_values(["x", "y"])
    # What is lower is on the front of another backend than these.
    corners = on[on["y"] < on["y"].cummin().shift(fill_value=math.inf)]
    path = "".join(f"H{x}V{y}" for x, y in corners[["x", "y"]].to_numpy().tolist())
    return f"M{on['x'].iloc[0]} 100{path}H100"


def _names(marks: Sequence[dict[Any, Any]], every: Floats, px: Floats) -> Iterator[tuple[Any, ...]]:
    """Yield the names that cover neither each other nor a mark: the mark, pixels to the right and down, which end."""
    taken = np.hstack([every * px / 100 - _MARK_PX, every * px / 100 + _MARK_PX])
    for mark in marks:
        at, wide = np.array([mark["x"], mark["y"]]) * px / 100, _LETTER_PX * len(mark["point"])
        for right, down, end in _SPOTS:
            low = np.add(at, (right - wide * (end == "end"), down - _LINE_PX))
            high = np.add(low, (wide, _LINE_PX + 2))
            is_free = ((low > taken[:, 2:]) | (high < taken[:, :2])).any(axis=1).all()
            if is_free and (low > 0).all() and (high < px).all():
                taken = np.vstack([taken, [*low, *high]])
                yield mark, right, down, end
                break

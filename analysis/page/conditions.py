"""The page's conditions, each with its chart and its table of every point."""

from __future__ import annotations

from typing import Any

import pandas as pd

from pareto.analysis.advice.observed import WORKLOAD
from pareto.analysis.figures.marks import states
from pareto.analysis.findings import Findings, figure_name
from pareto.analysis.naming import backend_name, backends, condition_title, time_unit
from pareto.analysis.page.chart import chart
from pareto.analysis.page.tables import plain
from pareto.analysis.runs.points import CONDITION, struck_off
from pareto.analysis.tables.columns import UNKNOWN, Column, by_backend, number, sureness

MOST_CELLS = 4000
"""How many points the page has: with more, no telephone opens it."""
PLANE = {"latency", "throughput"}
"""The objectives whose front is a staircase in the chart."""
_SURE = {"probability": "sure", "probability_all": "sure, all"}
_USUAL = {
    *("backend", "point", "point_order", "point_name", "on_front"),
    *("latency_s", "latency_bound_s", "latency_efficiency", "throughput_ips", "throughput_efficiency"),
}


def conditions(findings: Findings) -> list[dict[str, Any]]:
    """Each condition that there is room for, in the order of all tables."""
    every = shown(findings.front)
    names, stairs = backends(every), "each" if set(findings.objectives) == PLANE else ""
    made: list[dict[str, Any]] = []
    first = 0
    for _, group in every.groupby(CONDITION, dropna=False, observed=True):
        rows = by_backend(group, "point")
        on, off = rows["on_backend_front"].astype(bool), struck_off(rows)
        made.append(
            {
                "key": tuple(str(rows.iloc[0][name]) for name in CONDITION),
                "workload": tuple(str(rows.iloc[0][name]) for name in WORKLOAD),
                "name": ", ".join(figure_name(rows, every)),
                "title": condition_title(rows.iloc[0]),
                "rounds": sorted({int(rounds) for rounds in rows.loc[~off, "rounds"] if rounds}),
                "points": len(rows) - int(off.sum()),
                "struck": int(off.sum()),
                "left_out": int(rows["left_out"].sum()),
                "intervals": bool(rows["latency_low_s"].notna().any()),
                "charts": [("", chart(rows.assign(on=on, state=states(rows)), names, first, stairs))],
                "columns": _columns(rows),
                "first": first,
                "bold": on.tolist(),
            }
        )
        first += len(rows)
    return made


def shown(front: pd.DataFrame) -> pd.DataFrame:
    """The rows that there is room for: all, or those that are, or may be, on a front, of as many conditions as fit."""
    if len(front) <= MOST_CELLS:
        return front
    likely = front[front["on_backend_front"] | (front["probability"] > 0)]
    groups = likely.groupby(CONDITION, dropna=False, observed=True)
    return likely[groups.ngroup() < (groups.size().cumsum() <= MOST_CELLS).sum()]


def _columns(rows: pd.DataFrame) -> list[Column]:
    """Every figure of a condition's points: first the columns of the terminal's table, then each other column of
    front.csv in which the points differ, under its own name.
    """
    unit, scale = time_unit(float(rows["latency_s"].min()))
    after = 4 if unit == "s" else 2
    stars = rows["on_front"].astype(bool).map({True: "*", False: ""})
    more = [name for name in rows if name not in {*CONDITION, *_USUAL, *_SURE} and rows[name].nunique() > 1]
    return [
        Column("backend", [backend_name(backend) for backend in rows["backend"]]),
        Column("point", list(rows["point"].astype("str") + stars), kind="point"),
        Column("name", [str(name) or UNKNOWN for name in rows["point_name"]]),
        number("latency", rows["latency_s"] * scale, after, unit),
        number("bound", rows["latency_bound_s"] * scale, after, unit),
        number("eff", rows["latency_efficiency"] * 100, 0, "%"),
        number("img", rows["throughput_ips"], 2, "/s"),
        number("eff", rows["throughput_efficiency"] * 100, 0, "%"),
        *(Column(head, list(map(sureness, rows[name])), "%", "number") for name, head in _SURE.items()),
        *plain(rows, more, (unit, scale)),
    ]

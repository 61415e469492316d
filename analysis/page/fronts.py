"""The front as tables, one a condition, and what the chart needs beyond them: where each row's point lies."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.naming import backend_name, backends, condition_title, count, time_unit
from analysis.page.grid import UNKNOWN, Column, figures, intervals, places, table
from analysis.page.markup import Html, element, joined
from analysis.points import CONDITION, NONE, hosts, order, short_step

MOST_CELLS = 4000
"""Rows of all tables together: more would make a page that no telephone opens."""
MOST_TIES = 6
KEYS = {
    "model": "model",
    "netem": "profile",
    "batch_size": "batch size",
    "codec": "codec",
    "in_flight_asked": "in flight",
    "setup": "setup",
}
"""What the keys of a condition are called on the page."""
ALL, OWN, DOMINATED, INFEASIBLE = "all", "own", UNKNOWN, "ruled out"
LATENCY, THROUGHPUT, ROWS = "latency", "throughput", "point"
"""Under which heads a point's figures stand beside it in the chart."""
PLANE = {"latency", "throughput"}
"""The objectives whose front is a staircase in the chart."""
Chart = dict[str, Any]


@dataclass(frozen=True)
class Shown:
    """`markup`: a section for each condition. `charts`: in the same order. `backends`: of all of them.
    Of a point where nothing crosses it is the last, `any`. `notes`: what had to be left out."""

    markup: Html
    backends: list[str]
    charts: list[Chart]
    notes: list[str]


def fronts(front: pd.DataFrame, objectives: Sequence[str]) -> Shown:
    """A section with chart and table for each condition, from the frame of `analysis.fronts.front.front`.

    With more than `MOST_CELLS` cells only those on a front, or that may be, get a row; if these are still too many,
    the last conditions have none. Notes say so.
    """
    rows, notes = _fewer(front)
    names = backends(rows)
    sections, charts = [], []
    for number, of_condition in enumerate(_conditions(rows)):
        ordered = _ordered(of_condition)
        charts.append(_chart(ordered, names, objectives))
        sections.append(_section(number, ordered))
    return Shown(joined(sections), list(map(backend_name, names)), charts, notes)


def _fewer(front: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    if len(front) <= MOST_CELLS:
        return front, []
    likely = front[front["on_backend_front"] | (front["probability"] > 0)]
    kept = [group for _, group in likely.groupby(CONDITION, dropna=False, observed=True)]
    several = len(kept)
    while kept and sum(map(len, kept)) > MOST_CELLS:
        kept.pop()
    rows = pd.concat(kept) if kept else front.iloc[:0]
    note = f"{len(rows)} of {len(front)} points are shown here: those that are, or may be, on a front"
    if len(kept) < several:
        note += f", of the first {len(kept)} of {several} conditions"
    return rows, [f"{note}. All are in front.csv."]


def _conditions(rows: pd.DataFrame) -> Iterator[pd.DataFrame]:
    for _, group in rows.groupby(CONDITION, dropna=False, observed=True):
        yield group


def _ordered(rows: pd.DataFrame) -> pd.DataFrame:
    """By backend as everywhere, then by point."""
    places_of = {backend: place for place, backend in enumerate(backends(rows))}
    keys = rows.assign(backend=rows["backend"].map(places_of), point=order(rows["point"]))
    return rows.loc[keys.sort_values(["backend", "point"]).index]


def _section(number: int, rows: pd.DataFrame) -> Html:
    title = condition_title(rows.iloc[0])
    setup = str(rows.iloc[0].get("setup", ""))
    measured = int((rows["rounds"] > 0).sum())
    return element(
        "section",
        element("h3", title),
        element("p", _about(rows) + (f" Setup: {setup}." if setup else ""), class_="about"),
        element("figure", class_="chart") if measured else Html(),
        table(columns(rows), f"{title}: every point", class_="points"),
        class_="condition",
        id=f"condition-{number}",
    )


def _about(rows: pd.DataFrame) -> str:
    """Rounds, and what was left out."""
    counts = sorted({int(number) for number in rows["rounds"] if number})
    excluded = int(rows["left_out"].sum())
    if not counts:
        return f"No valid trial: {count(excluded, 'trial')} left out, so there is nothing to draw."
    span = f"{counts[0]} to {counts[-1]} rounds" if len(counts) > 1 else f"{counts[0]} rounds"
    parts = [f"{'One round' if counts == [1] else f'Medians over {span}'}; {len(rows)} points."]
    parts += [f"{count(excluded, 'trial')} left out, as invalid or failed."] if excluded else []
    if rows["latency_low_s"].isna().all():
        parts.append("Too few rounds for 95 % intervals.")
    return " ".join(parts)


def columns(rows: pd.DataFrame) -> list[Column]:
    """Every figure of some rows of one condition. What none of them has gets no column."""
    unit, scale = _time_unit(rows)
    digits = 4 if unit == "s" else 2
    chain = len(hosts(str(rows["point"].iloc[0])))
    ips = places(rows["throughput_ips"])

    def number(
        head: str,
        column: str,
        unit: str = "",
        by: float = 1,
        digits: int = 0,
        detail: str = "",
        group: str = ROWS,
    ) -> Iterator[Column]:
        if column in rows and rows[column].notna().any():
            yield Column(
                head, figures(rows[column].astype(float) * by, digits), unit, "number", detail or head, group
            )

    def interval(low: str, high: str, unit: str, by: float, digits: int, group: str) -> Iterator[Column]:
        if low in rows and rows[low].notna().any():
            cells = intervals(rows[low] * by, rows[high] * by, digits)
            yield Column("95 %", cells, unit, "number", "95 %", group)

    def words(
        head: str, column: str, cells: Sequence[str], detail: str, group: str = ROWS
    ) -> Iterator[Column]:
        if column in rows and any(cell not in ("", UNKNOWN) for cell in cells):
            yield Column(
                head, [cell or UNKNOWN for cell in cells], detail=detail, group=group if detail else ""
            )

    def time(head: str, column: str, detail: str = "") -> Iterator[Column]:
        yield from number(head, column, unit, scale, digits, detail, LATENCY)

    def per_second(head: str, column: str, detail: str = "") -> Iterator[Column]:
        yield from number(head, column, "images/s", 1, ips, detail, THROUGHPUT)

    bound_by, busiest = (
        [_step(step, chain) for step in rows.get(column, ())] for column in ("bound_by", "busiest")
    )
    return [
        Column("backend", [backend_name(backend) for backend in rows["backend"]]),
        Column("point", [str(point) for point in rows["point"]], kind="point"),
        *words("name", "point_name", [str(name) for name in rows["point_name"]], ""),
        Column("front", _places(rows), detail="front", group=ROWS),
        *time("latency", "latency_s", "median"),
        *interval("latency_low_s", "latency_high_s", unit, scale, digits, LATENCY),
        *time("bound", "latency_bound_s"),
        *number("eff.", "latency_efficiency", "%", 100, 1, "efficiency", LATENCY),
        *per_second("throughput", "throughput_ips", "median"),
        *interval("throughput_low_ips", "throughput_high_ips", "images/s", 1, ips, THROUGHPUT),
        *per_second("bound", "throughput_bound_ips"),
        *number("eff.", "throughput_efficiency", "%", 100, 1, "efficiency", THROUGHPUT),
        *number("gain", "pipeline_gain", "x", 1, 2, group=THROUGHPUT),
        *words("bound by", "bound_by", bound_by, "bound by", THROUGHPUT),
        *words("busiest", "busiest", busiest, "busiest", THROUGHPUT),
        *number("busy", "busiest_utilization", "%", 100, 0, "busiest step's share", THROUGHPUT),
        *time("under load", "loaded_latency_s", "median at full throughput"),
        *time("edge", "edge_s"),
        *time("serialize", "serialize_s"),
        *time("network", "network_s"),
        *time("middle", "middle_s"),
        *time("server", "server_s"),
        *time("p95", "latency_p95_s", "95th percentile"),
        *number("payload", "payload_bytes", "kB", 1e-3, 1),
        *number("energy", "energy_j", f"J, {_energy_of(rows)}", 1, 3),
        *number("above idle", "active_energy_j", f"J, {_energy_of(rows)}", 1, 3, "energy above idle"),
        *number("edge memory", "edge_peak_rss_bytes", "MB", 1e-6, 0),
        *number("top-1", "top1", "%", 100, 1),
        *number("rounds", "rounds"),
        *number("left out", "left_out", detail="trials left out"),
        *number("outliers", "outliers"),
        *number("p", "probability", digits=2, detail="p, own front"),
        *number("p, all", "probability_all", digits=2, detail="p, front of all"),
        *words("ties", "ties", [_few(str(ties)) for ties in rows.get("ties", ())], "ties"),
    ]


def _places(rows: pd.DataFrame) -> list[str]:
    """Whose front each point is on."""
    feasible = rows["feasible"] if "feasible" in rows else [True] * len(rows)
    return [
        (ALL if overall else OWN if own else DOMINATED) if allowed else INFEASIBLE
        for allowed, overall, own in zip(feasible, rows["on_front"], rows["on_backend_front"], strict=True)
    ]


def _step(step: str, chain: int) -> str:
    return short_step(str(step), chain) if step else ""


def _energy_of(rows: pd.DataFrame) -> str:
    return next((str(devices) for devices in rows.get("energy_of", ()) if devices), "")


def _few(ties: str) -> str:
    each = ties.split("; ")
    return ties if len(each) <= MOST_TIES else f"{'; '.join(each[:MOST_TIES])}; {len(each) - MOST_TIES} more"


def _chart(rows: pd.DataFrame, names: Sequence[str], objectives: Sequence[str]) -> Chart:
    """Where the points of a table lie, row by row: x and y with their intervals, the backend's place, which front."""
    unit, scale = _time_unit(rows)
    scales = {
        "latency_s": scale,
        "throughput_ips": 1.0,
        "latency_low_s": scale,
        "latency_high_s": scale,
        "throughput_low_ips": 1.0,
        "throughput_high_ips": 1.0,
    }
    lying = [[_short(value * by) for value in rows[column]] for column, by in scales.items()]
    backend = [names.index(str(name)) for name in rows["backend"]]
    fronts = [{ALL: 2, OWN: 1, INFEASIBLE: -1}.get(place, 0) for place in _places(rows)]
    first = rows.iloc[0]
    return {
        "keys": {name: str(first.get(key, "")) for key, name in KEYS.items()},
        "unit": unit,
        "stairs": set(objectives) == PLANE,
        "any": names.index(NONE) if NONE in names else None,
        "points": [list(point) for point in zip(*lying, backend, fronts, strict=True)],
    }


def _time_unit(rows: pd.DataFrame) -> tuple[str, float]:
    """By the least latency: its parts are smaller still."""
    return time_unit(float(rows["latency_s"].min()))


def _short(value: float) -> float | None:
    """Six digits: more than any screen has."""
    return None if math.isnan(value) else float(f"{value:.6g}")

"""A predicted front in the terminal and in a log: legible at 80 columns and without colour."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pandas as pd

from pareto.analysis.advice.advise import title as workload_title
from pareto.analysis.naming import ANY_NOTE, backend_name, time_unit
from pareto.analysis.prediction.predicted import FRONT, RULES, behind
from pareto.analysis.runs.points import NONE
from pareto.analysis.tables.columns import Column, Framed, framed, number
from pareto.analysis.wording import EDGE, SERVER, more, order
from pareto.remote.link.units import duration, percent

MOST = 12
"""Splits of the front that are shown: of more, these at even distances."""


def predicted_table(rows: pd.DataFrame) -> Framed:
    """A row for each split of the front, least latency first, and for each rule's; ± is a standard deviation.

    rows: of one case, as `analysis.prediction.predicted.predicted` makes them.
    """
    first = rows.iloc[0]
    front = rows[rows["chosen_by"] == FRONT]
    step = max(1.0, (len(front) - 1) / (MOST - 1))
    few = front.iloc[sorted({round(place * step) for place in range(min(MOST, len(front)))})]
    shown = pd.concat([few, rows[rows["chosen_by"] != FRONT]])
    unit, scale = time_unit(float(shown["latency_s"].max()))
    digits = 3 if unit == "s" else 2
    columns = [
        Column("split", [str(by) for by in shown["chosen_by"]], look={"no_wrap": True}),
        Column("backend", [backend_name(backend) for backend in shown["backend"]]),
        Column("point", [str(point) for point in shown["point"]], kind="point"),
        Column("name", [str(name) for name in shown["point_name"]], look={"min_width": 8}),
        number("latency", shown["latency_s"] * scale, digits, unit),
        number("±", shown["latency_s"] * shown["latency_error"] * scale, digits, unit),
        number("images", shown["throughput_ips"], 2, "/s"),
        number("±", shown["throughput_ips"] * shown["throughput_error"], 2, "/s"),
    ]
    notes = [
        "front = no split is better in latency and images/s",
        "greedy = cuts move from even places as long as that balances the stages",
        "even = as many units on each host",
        "± = a standard deviation",
        ANY_NOTE if shown["backend"].eq(NONE).any() else "",
        f"{len(few)} of the front's {len(front)} are shown" if len(few) < len(front) else "",
    ]
    starts = [place == len(few) for place in range(len(shown))]
    return framed(columns, f"Predicted: {title(first)}", notes, starts)


def advice(rows: pd.DataFrame, objective: str) -> str:
    """A sentence of advice for `latency` or `throughput`, with its worth beside the whole model on one host.

    A difference that is less than the standard deviation of both figures together is too close to tell.
    """
    of_latency = objective == "latency"
    front = rows[rows["chosen_by"] == FRONT]
    best = front.iloc[0 if of_latency else -1]
    column = "latency_s" if of_latency else "throughput_ips"
    value = float(best[column])
    spread = value * float(best[f"{objective}_error"])
    gains, close = [], []
    for end in (EDGE, SERVER):
        row = rows[rows["chosen_by"] == end].iloc[0]
        whole = float(row[column])
        if row["point"] == best["point"] or not (value < whole if of_latency else value > whole):
            continue
        if abs(value - whole) < math.hypot(spread, whole * float(row[f"{objective}_error"])):
            close.append(f"too close to {end} to tell")
        elif of_latency:
            gains.append(f"{percent(1 - value / whole)} less than {end}")
        else:
            gains.append(more(value / whole - 1, f"more than {end}", f"as much as {end}"))
    figure = (
        f"{duration(value)} ± {duration(spread)}" if of_latency else f"{value:.3g} ± {spread:.2g} images/s"
    )
    worth = f", {' and '.join([*gains, *close])}" if gains or close else ""
    return f"{title(best)}: {order(best.to_dict())}: {figure}{worth} (predicted)"


def answers(rows: pd.DataFrame) -> list[str]:
    """`advice` for the latency, and for the throughput where that is another split."""
    points = rows.loc[rows["chosen_by"] == FRONT, ["point", "backend"]].to_numpy().tolist()
    return [advice(rows, "latency"), *([advice(rows, "throughput")] if points[0] != points[-1] else [])]


def title(row: pd.Series) -> str:
    """`mobilenet_v2 at lte, batch size 8, int8`: what is the same for all splits of a case."""
    return workload_title({**row, "setup": ""}, row["netem"])


def sentences(rows: pd.DataFrame, splits: int, hosts: int) -> Iterator[str]:
    """How many of all splits are on the front, and how far each rule is behind it."""
    front = rows[rows["chosen_by"] == FRONT]
    are = "is" if len(front) == 1 else "are"
    among = " of those that satisfy the constraint" if "feasible" in rows else ""
    yield f"{len(front)} of the {splits} splits over {hosts} hosts {are} on the predicted front{among}."
    for rule in RULES:
        of_rule = rows[rows["chosen_by"] == rule]
        if of_rule.empty:
            continue
        row = of_rule.iloc[0].to_dict()
        longer, fewer = behind(row, front)
        parts = [f"takes {more(longer, 'longer', 'as long')}"] if longer else []
        parts += [f"gives {percent(fewer)} fewer images/s"] if fewer else []
        said = f"beside a split of the front it {' and '.join(parts)}" if parts else "on the front"
        if not row.get("feasible", True):
            said = "does not satisfy the constraint"
        at = "" if rule in (EDGE, SERVER) else f" ({row['point']})"
        yield f"{rule}{at}: {said}."

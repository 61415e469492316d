"""The tables of points under requests that arrive by themselves."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from pareto.analysis.naming import ANY_NOTE, backend_name
from pareto.analysis.runs.points import CONDITION, NONE
from pareto.analysis.tables.report import condition_columns, fitting, sameness
from pareto.analysis.tables.table import ELLIPSIS, Column, Table, numbers, starts, times

MOST_ROWS = 24
"""The most points that a table shows: beyond it, those of each condition that miss least."""


def load_tables(loads: pd.DataFrame, rates: pd.DataFrame, most: int = MOST_ROWS) -> list[Table]:
    """The tables of `analysis.fronts.load.loads` and `sustained`, of each that has rows: of each condition the points
    that miss least, or bear most, first."""
    return [table(rows, most) for table, rows in ((_loads, loads), (_rates, rates)) if len(rows)]


def _chosen(rows: pd.DataFrame, most: int, **by: bool) -> pd.DataFrame:
    """The rows, of each condition in this order, and of too many the first ones; `at`: a number of the condition."""
    placed = rows.assign(at=rows.groupby([*CONDITION, "slo"], dropna=False, sort=False).ngroup())
    ordered = placed.sort_values(["at", *by], ascending=[True, *by.values()], kind="stable")
    each = max(1, most // ordered["at"].nunique()) if len(ordered) > most else most
    return ordered.groupby("at").head(each)


def _heads(shown: pd.DataFrame, apart: Sequence[str]) -> dict[str, Column]:
    """The columns that say of which point a row is."""
    return {
        **condition_columns(shown, apart),
        "slo": Column("SLO", [*shown["slo"].astype("str")] if shown["slo"].nunique() > 1 else []),
        "backend": Column("backend", [*shown["backend"].map(backend_name)]),
        "point": Column("point", [*shown["point"].astype("str")], kind="point"),
    }


def _rates(rows: pd.DataFrame, most: int) -> Table:
    shown = _chosen(rows, most, sustained_ips=False)
    title, apart = sameness(shown)
    columns = {
        **_heads(shown, apart),
        "name": Column("name", [*shown["point_name"]], look=ELLIPSIS),
        "held": numbers(shown, "holds to", "sustained_ips", "/s"),
        "refused": numbers(shown, "not at", "refused_ips", "/s"),
        "closed": numbers(shown, "closed loop", "closed_ips", "/s"),
        "rounds": numbers(shown, "rates", "rounds", "tried", 0),
    }
    notes = {
        f"{len(shown)} of {len(rows)} points are shown: those that bear most": len(shown) < len(rows),
        f"holds to = the highest rate at which {shown['slo'].iloc[0]} held, sure with 95 %": True,
        "not at = the lowest above it at which it did not, or was not sure to": True,
        ANY_NOTE: (shown["backend"] == NONE).any(),
    }
    known = fitting(columns, ["name"])
    return Table(f"Highest rate: {title}", known.values(), notes, starts(shown["at"]) if apart else [])


def _loads(rows: pd.DataFrame, most: int) -> Table:
    shown = _chosen(rows, most, missed_share=True, load_latency_s=True)
    title, apart = sameness(shown)
    time = times(float(shown["load_latency_s"].max()))
    columns = {
        **_heads(shown, apart),
        "latency": numbers(shown, "p50", "load_latency_s", *time),
        "p95": numbers(shown, "p95", "load_latency_p95_s", *time),
        "p99": numbers(shown, "p99", "load_latency_p99_s", *time),
        "served": numbers(shown, "served", "completed_ips", "/s"),
        "goodput": numbers(shown, "goodput", "goodput_ips", "/s"),
        "missed": numbers(shown, "missed", "missed_share", "%", 1, 100),
        "ends": numbers(shown, "95 %", "missed_{}", "%", 1, 100),
        "holds": Column("holds", [*shown["holds"].astype("str")]),
    }
    known = fitting(columns, ["p95" if "p99" in shown["slo"].iloc[0] else "p99", "served"])
    notes = {
        f"{len(shown)} of {len(rows)} points are shown: those that miss least": len(shown) < len(rows),
        f"holds = whether {shown['slo'].iloc[0]}, sure with 95 %": shown["slo"].nunique() == 1
        and bool(shown["slo"].iloc[0]),
        "missed = took longer, or found the queue full; 95 % = its interval": "missed" in known,
        "served = images/s in the last half": "served" in known,
        "goodput = images/s in time": "goodput" in known,
        ANY_NOTE: (shown["backend"] == NONE).any(),
    }
    return Table(f"Under load: {title}", known.values(), notes, starts(shown["at"]) if apart else [])

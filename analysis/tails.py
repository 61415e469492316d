"""The slowest requests at the best point of each condition, of all its rounds together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from pareto.analysis.naming import cell_title
from pareto.analysis.runs.points import CONDITION, NONE
from pareto.analysis.runs.requests import COLUMNS, request_latencies
from pareto.analysis.wording import interval
from pareto.protocol.errors import UserError
from pareto.remote.link.units import duration

MOST = 12
"""Conditions whose requests are read: each is as many files as it has rounds."""


def tails(front: pd.DataFrame, trials: pd.DataFrame, runs: Sequence[Path]) -> pd.DataFrame:
    """The latencies of requests (`runs.requests.request_latencies`) of the point of least latency of each condition;
    where nothing crosses, a row a backend that it was measured under. Empty with many conditions, or without requests.
    """
    allowed = front[front["feasible"].astype(bool) & front["latency_s"].notna()]
    best = allowed.loc[allowed.groupby(CONDITION, dropna=False)["latency_s"].idxmin()]
    if len(best) > MOST:
        return pd.DataFrame(columns=COLUMNS)
    both = trials.merge(
        best[[*CONDITION, "point", "backend"]], on=[*CONDITION, "point"], suffixes=("", "_best")
    )
    mine = both[both["backend_best"].isin([NONE]) | (both["backend_best"] == both["backend"].astype("str"))]
    try:
        found = request_latencies(runs, mine.drop(columns="backend_best"))
    except UserError:  # a file of requests that cannot be read spoils no report
        return pd.DataFrame(columns=COLUMNS)
    return found[found["requests"] > 0]


def sentences(rows: pd.DataFrame) -> Iterator[str]:
    """A line for each row with as many requests as its 95th percentile needs."""
    for row in rows.to_dict("records"):
        said = []
        for percent, share in ((95, "5 %"), (99, "1 %")):
            value, low, high = (row[f"latency_p{percent}{end}_s"] for end in ("", "_low", "_high"))
            if not math.isnan(value):
                said.append(f"{share} take over {duration(value)}{interval(low, high, duration)}")
        if said:
            of = f"{row['requests']} requests of {row['trials']} rounds as these were"
            yield f"slowest requests at {cell_title(row)}: {', '.join(said)}; {of}"

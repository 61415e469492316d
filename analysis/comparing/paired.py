"""Backends of one run against each other: at the same point, in the same round."""

from __future__ import annotations

import math
from collections.abc import Hashable
from itertools import combinations
from typing import Any

import pandas as pd

from analysis.keys import CONDITION
from analysis.naming import backends
from analysis.points import cuts
from analysis.statistics import median

COLUMNS = [
    *CONDITION,
    *("first", "other", "point", "points", "rounds", "pairs"),
    *("latency_difference_s", "latency_low_s", "latency_high_s", "latency_difference_percent"),
    *("overhead_difference_s", "overhead_low_s", "overhead_high_s"),
    *("throughput_difference_percent", "throughput_low_percent", "throughput_high_percent"),
    *("first_faster", "other_faster", "interval_over", "note"),
]
ALL = "all"
MIN_BLOCKS = 6
"""With five values, even the least and the greatest hold the median between them in 94 % of all cases only."""
TOO_FEW = "too few rounds"
_PAIR = ["run", "round", "repeat", "point"]
_MEASURES = {
    "latency_s": ("latency_difference_s", "latency_low_s", "latency_high_s"),
    "overhead_s": ("overhead_difference_s", "overhead_low_s", "overhead_high_s"),
    "throughput_percent": (
        "throughput_difference_percent",
        "throughput_low_percent",
        "throughput_high_percent",
    ),
}
"""Of each pair: where its median goes, and the ends of the interval."""


def paired(trials: pd.DataFrame) -> pd.DataFrame:
    """Rows for each condition and pair of backends: one a point, and one (`point` is `ALL`) over all that cross.

    Takes the frame of `analysis.load`. Differences are other - first, of two trials that are `ok`, at the same
    point and in the same round, so that what slows a whole round slows both. Positive: the other takes longer, or
    has more images/s. tcp is the first.

    - points, rounds, pairs: how many points, how many rounds the point that has most, how many pairs in all.
    - latency_difference_s, latency_difference_percent, throughput_difference_percent: of a point, the median
      over its rounds. Of all, the median of the medians of rounds, or of points (`interval_over`).
      overhead_difference_s: of latency - latency bound, without what the stages' own times differed by.
    - latency_low_s and so on: the median's 95 % interval from order statistics, which assume nothing about the
      distribution and hold for few values too. Of all: over whole rounds, or with fewer than `MIN_BLOCKS` of them over
      points. Empty, and `note` says so, with too few of both.
    - first_faster, other_faster: at how many points the median latency says so.
    """
    rows: list[dict[Hashable, Any]] = []
    for _, of_condition in trials.groupby(CONDITION, dropna=False):
        condition = of_condition.iloc[0][CONDITION].to_dict()
        for first, other in combinations(backends(of_condition), 2):
            found = _pairs(_valid(of_condition, first), _valid(of_condition, other))
            named = condition | {"first": first, "other": other}
            for point in sorted(found["point"].unique(), key=cuts):
                rows += [named | {"point": point} | _figures(found[found["point"] == point], "rounds")]
            crossing = found[found["payload_bytes"] > 0]
            rows += [named | {"point": ALL} | _figures(crossing, _blocks(crossing))]
    return pd.DataFrame(rows, columns=COLUMNS)


def median_interval(values: pd.Series) -> tuple[float, float]:
    """95 % interval of the median from order statistics (sign test); NaN with fewer than 6 values."""
    return median.interval(values.dropna().tolist()) or (math.nan, math.nan)


def _valid(trials: pd.DataFrame, backend: str) -> pd.DataFrame:
    ok = trials[(trials["status"] == "ok") & (trials["backend"] == backend)].dropna(subset=["latency_s"])
    # A trial repeated within its round is paired with the other's repetition.
    return ok.assign(
        repeat=ok.groupby(["run", "round", "point"]).cumcount(),
        overhead_s=ok["latency_s"] - ok["latency_bound_s"],
    )


def _pairs(first: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    both = first.merge(other, on=_PAIR, suffixes=("", "_other"))
    return both[[*_PAIR, "payload_bytes"]].assign(
        latency_s=both["latency_s_other"] - both["latency_s"],
        latency_percent=100 * (both["latency_s_other"] / both["latency_s"] - 1),
        overhead_s=both["overhead_s_other"] - both["overhead_s"],
        throughput_percent=100 * (both["throughput_ips_other"] / both["throughput_ips"] - 1),
    )


def _figures(pairs: pd.DataFrame, over: str) -> dict[Hashable, Any]:
    blocks = pairs.groupby(["run", "round"] if over == "rounds" else "point")
    by_point = pairs.groupby("point")["latency_s"]
    medians = by_point.median()
    row: dict[Hashable, Any] = {
        "points": len(medians),
        "rounds": int(by_point.size().max()) if len(medians) else 0,
        "pairs": len(pairs),
        "latency_difference_percent": blocks["latency_percent"].median().median(),
        "first_faster": int((medians > 0).sum()),
        "other_faster": int((medians < 0).sum()),
    }
    for measure, (middle, low, high) in _MEASURES.items():
        values = blocks[measure].median()
        row[middle] = values.median()
        row[low], row[high] = median_interval(values)
    has_interval = not math.isnan(row["latency_low_s"])
    return row | {"interval_over": over if has_interval else "", "note": "" if has_interval else TOO_FEW}


def _blocks(pairs: pd.DataFrame) -> str:
    """Rounds where there are enough, as then the points are those that they are; else the points."""
    return "rounds" if len(pairs[["run", "round"]].drop_duplicates()) >= MIN_BLOCKS else "points"

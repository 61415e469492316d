"""Backends of one run against each other: at the same point, in the same round."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from itertools import combinations
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd

from analysis.naming import backends
from analysis.points import CONDITION, NONE, controls, cuts
from analysis.statistics import samples, significance
from analysis.statistics.noise import OF, Floors, floor_of, floors

COLUMNS = [
    *CONDITION,
    *("first", "other", "point", "points", "rounds", "pairs"),
    *("latency_difference_s", "latency_low_s", "latency_high_s", "latency_difference_percent"),
    *("overhead_difference_s", "overhead_low_s", "overhead_high_s"),
    *("throughput_difference_percent", "throughput_low_percent", "throughput_high_percent"),
    *("first_faster", "other_faster", "interval_over", "note"),
    *("latency_p_value", "latency_p_corrected", "latency_significant"),
    *("throughput_p_value", "throughput_p_corrected", "throughput_significant"),
    *("first_surely_faster", "other_surely_faster", "first_surely_more", "other_surely_more"),
    *("tests", "rounds_needed", "latency_floor_percent", "throughput_floor_percent"),
]
ALL = "all"
MIN_BLOCKS = samples.LEAST_VALUES
TOO_FEW = "too few rounds"
Z = NormalDist().inv_cdf(0.975)
_PAIR = ["run", "round", "repeat", "point"]
_MEASURES = {
    "latency_s": ("latency_difference_s", "latency_low_s", "latency_high_s"),
    "overhead_s": ("overhead_difference_s", "overhead_low_s", "overhead_high_s"),
    "throughput_percent": tuple(f"throughput_{end}_percent" for end in ("difference", "low", "high")),
}
"""The columns of the median and of the ends of its interval, by the measure of each pair."""
_TESTED = {"latency_s": "latency_relative", "throughput_ips": "throughput_relative"}
"""The column of the pairs' differences that the test ranks, by the measure."""
_DIFFERENCES = [*_MEASURES, "latency_percent", "first_latency_s", *_TESTED.values()]
_ROUND = ["run", "round"]
_NEEDED = ["crosses", "status", "latency_s", "latency_bound_s", "throughput_ips", "run", "round", "point"]


def paired(trials: pd.DataFrame) -> pd.DataFrame:
    """Rows for each condition and pair of backends: one a point that crosses, and one (`point` is `ALL`) over them all.

    Where nothing crosses there is no pair: both are the same. Takes the frame of `analysis.load`. Differences are
    other - first, of two trials that are `ok`, at the same point and in the same round, so that what slows a whole
    round slows both. Positive: the other takes longer, or has more images/s. tcp is the first.

    - points, rounds, pairs: how many points, how many rounds the point that has most, how many pairs in all.
    - latency_difference_s, latency_difference_percent, throughput_difference_percent: of a point, the median
      over its rounds. Of all, the median of the medians of rounds, or of points (`interval_over`).
      overhead_difference_s: of latency - latency bound, without what the stages' own times differed by.
    - latency_low_s and so on: the median's 95 % interval (`analysis.statistics.samples`), which assumes nothing about
      the distribution and holds for few values too. Of all: over whole rounds, or with fewer than `MIN_BLOCKS` of them
      over points. Empty, and `note` says so, with too few of both.
    - first_faster, other_faster: at how many points the median latency says so.
    - latency_p_value, throughput_p_value: whether a point's pairs may differ by chance
      (`analysis.statistics.significance.signed_rank`). _p_corrected: corrected by Holm for all `tests` of the frame:
      every point, both measures, each condition and pair of backends. Of all: the least of its points, which tests
      whether the two differ anywhere. _significant: that is 0.05 or less.
    - first_surely_faster, other_surely_faster, first_surely_more (images/s), other_surely_more: at how many points
      the difference is significant and goes that way.
    - latency_floor_percent, throughput_floor_percent: what identical treatments differ by that rounds do not show
      (`analysis.statistics.noise`), one standard deviation of a difference; 0 where it is not known. Intervals hold it,
      and no difference is significant that it may make.
    - rounds_needed: with fewer, no point can be significant among so many tests, whatever it shows.
    """
    of_all = [_of_pair(*of_two) for of_two in compared(trials)]
    if not of_all:
        return pd.DataFrame(columns=COLUMNS)
    rows: pd.DataFrame = pd.concat(of_all, ignore_index=True).reindex(columns=[*COLUMNS, "first_latency_s"])
    _add_floor(rows, floors(trials))
    _judge(rows)
    return rows.reindex(columns=COLUMNS)


def median_interval(values: pd.Series) -> tuple[float, float]:
    """The median's 95 % interval (`analysis.statistics.samples`); NaN with fewer than 6 values."""
    return samples.interval(values.dropna().tolist()) or (math.nan, math.nan)


def compared(trials: pd.DataFrame) -> Iterator[tuple[dict[Hashable, Any], pd.DataFrame]]:
    """Every condition with every two of its backends (`first`, `other`), and their pairs: one row a point and round.

    latency_s, throughput_percent, ...: the other's less the first's, as in `paired`.
    """
    crosses = ~controls(trials) & (trials["backend"] != NONE)
    counted = trials.assign(crosses=crosses)[[*CONDITION, "backend", *_NEEDED]]
    for _, of_condition in counted.groupby(CONDITION, dropna=False, observed=True):
        condition = of_condition.iloc[0][CONDITION].to_dict()
        named = filter(None, backends(of_condition))
        valid = {backend: _valid(of_condition, backend) for backend in named}
        for first, other in combinations(valid, 2):
            yield condition | {"first": first, "other": other}, _pairs(valid[first], valid[other])


def _valid(trials: pd.DataFrame, backend: str) -> pd.DataFrame:
    counts = (trials["status"] == "ok") & trials["crosses"] & (trials["backend"] == backend)
    ok = trials[counts].dropna(subset=["latency_s"])
    # A trial repeated within its round is paired with the other's repetition.
    return ok[_NEEDED].assign(
        repeat=ok.groupby(["run", "round", "point"]).cumcount(),
        overhead_s=ok["latency_s"] - ok["latency_bound_s"],
    )


def _pairs(first: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    both = first.merge(other, on=_PAIR, suffixes=("", "_other"))
    result = both[_PAIR].assign(
        latency_s=both["latency_s_other"] - both["latency_s"],
        latency_percent=100 * (both["latency_s_other"] / both["latency_s"] - 1),
        overhead_s=both["overhead_s_other"] - both["overhead_s"],
        first_latency_s=both["latency_s"],
        throughput_percent=100 * (both["throughput_ips_other"] / both["throughput_ips"] - 1),
    )
    for measure, column in _TESTED.items():
        result[column] = significance.relative(both[measure], both[f"{measure}_other"])
    return result


def _of_pair(named: dict[Hashable, Any], pairs: pd.DataFrame) -> pd.DataFrame:
    of_all = pd.DataFrame([{"point": ALL} | _figures(pairs, _blocks(pairs))])
    rows = pd.concat([_points(pairs), of_all], ignore_index=True) if len(pairs) else of_all
    return rows.assign(**{str(key): value for key, value in named.items()})


def _points(pairs: pd.DataFrame) -> pd.DataFrame:
    """The rows of all points at once, as there may be many with many rounds each."""
    points = sorted(pairs["point"].unique(), key=cuts)
    block = [*_ROUND, "point"]
    # Trials repeated within a round are no rounds more.
    blocks = pairs.groupby(block, as_index=False)[_DIFFERENCES].median() if pairs["repeat"].any() else pairs
    places = blocks["point"].map({point: place for place, point in enumerate(points)}).to_numpy()
    tables = {
        column: significance.padded(blocks[column].to_numpy(), places, len(points)) for column in _DIFFERENCES
    }
    sizes = pairs.groupby("point").size().reindex(points).to_numpy()
    medians = significance.medians(tables["latency_s"])
    rows = pd.DataFrame({"point": points, "points": 1, "rounds": sizes, "pairs": sizes})
    rows["latency_difference_percent"] = significance.medians(tables["latency_percent"])
    rows["first_latency_s"] = significance.medians(tables["first_latency_s"])
    rows["first_faster"], rows["other_faster"] = (medians > 0).astype(int), (medians < 0).astype(int)
    for measure, (middle, low, high) in _MEASURES.items():
        rows[middle] = significance.medians(tables[measure])
        rows[low], rows[high] = significance.median_intervals(tables[measure])
    for measure, column in _TESTED.items():
        rows[f"{measure.partition('_')[0]}_p_value"] = significance.signed_rank(tables[column])
    has_interval = rows["latency_low_s"].notna()
    return rows.assign(
        interval_over=np.where(has_interval, "rounds", ""), note=np.where(has_interval, "", TOO_FEW)
    )


def _figures(pairs: pd.DataFrame, over: str) -> dict[Hashable, Any]:
    """The row of all points together."""
    blocks = pairs.groupby(_ROUND if over == "rounds" else "point")[[*_MEASURES, "latency_percent"]].median()
    by_point = pairs.groupby("point")["latency_s"]
    medians = by_point.median()
    row: dict[Hashable, Any] = {
        "points": len(medians),
        "rounds": int(by_point.size().max()) if len(medians) else 0,
        "pairs": len(pairs),
        "latency_difference_percent": blocks["latency_percent"].median(),
        "first_latency_s": pairs["first_latency_s"].median(),
        "first_faster": int((medians > 0).sum()),
        "other_faster": int((medians < 0).sum()),
    }
    for measure, (middle, low, high) in _MEASURES.items():
        row[middle] = blocks[measure].median()
        row[low], row[high] = median_interval(blocks[measure])
    has_interval = not math.isnan(row["latency_low_s"])
    return row | {"interval_over": over if has_interval else "", "note": "" if has_interval else TOO_FEW}


def _blocks(pairs: pd.DataFrame) -> str:
    """What the interval of all points is over: rounds where there are enough, else the points."""
    return "rounds" if len(pairs[_ROUND].drop_duplicates()) >= MIN_BLOCKS else "points"


def _add_floor(rows: pd.DataFrame, known: Floors) -> None:
    """Add what identical treatments differ by, and widen the intervals by it: both spreads as variances."""
    for measure, column in (("latency", "latency_s"), ("throughput", "throughput_ips")):
        shares = [floor_of(known, row).shares.get(column, 0.0) for row in rows[OF].to_dict("records")]
        rows[f"{measure}_floor_percent"] = 100 * math.sqrt(2) * np.array(shares)
    seconds = rows["latency_floor_percent"] / 100 * rows["first_latency_s"]
    for spread, (middle, low, high) in zip(
        (seconds, seconds, rows["throughput_floor_percent"]), _MEASURES.values(), strict=True
    ):
        for end, sign in ((low, -1), (high, 1)):
            rows[end] = rows[middle] + sign * np.hypot(rows[end] - rows[middle], Z * spread)


def _judge(rows: pd.DataFrame) -> None:
    """Correct the p-values of all points for how many there are, and count what is left."""
    tests = significance.correct(rows)
    rows["rounds_needed"] = significance.pairs_needed(tests)
    # As far out as one of so many differences that nothing but the floor makes seldom is.
    beyond = NormalDist().inv_cdf(1 - significance.ALPHA / (2 * max(1, tests)))
    counts = ["first_surely_faster", "other_surely_faster", "first_surely_more", "other_surely_more"]
    shown = ["latency_difference_s"] * 2 + ["throughput_difference_percent"] * 2
    for column, measure, sign in zip(counts, shown, (1, -1, -1, 1), strict=True):
        of = measure.partition("_")[0]
        is_sure = rows[f"{of}_p_corrected"] <= significance.ALPHA
        is_sure &= rows[f"{of}_difference_percent"].abs() > beyond * rows[f"{of}_floor_percent"]
        rows[column] = (is_sure & (rows[measure] * sign > 0)).astype(int)
    of_two = rows.groupby([*CONDITION, "first", "other"], dropna=False, observed=True, sort=False)
    p_values = ["latency_p_corrected", "throughput_p_corrected"]
    for column, of_points in (*((name, "min") for name in p_values), *((name, "sum") for name in counts)):
        rows[column] = rows[column].where(rows["point"] != ALL, of_two[column].transform(of_points))
    for measure, more in (("latency", "faster"), ("throughput", "more")):
        rows[f"{measure}_significant"] = (rows[f"first_surely_{more}"] + rows[f"other_surely_{more}"]) > 0

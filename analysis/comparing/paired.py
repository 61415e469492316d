"""Backends of one run, or its codecs, against each other: at the same point, in the same round."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from itertools import combinations
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
import pandas as pd

from analysis.naming import backends
from analysis.points import BUT_CODEC, CONDITION, NO_CODEC, NONE, controls, cuts
from analysis.statistics import significance
from analysis.statistics.noise import OF, Floors, floor_of, floors
from analysis.statistics.samples import LEAST_VALUES, Floats, Ints

What = Literal["backend", "codec"]
KEYS: dict[What, list[str]] = {"backend": CONDITION, "codec": [*BUT_CODEC, "backend"]}
"""What is the same for both of a pair, by what they differ in."""
_FIGURES = [
    *("first", "other", "point", "points", "rounds", "pairs"),
    *("latency_difference_s", "latency_low_s", "latency_high_s"),
    *("latency_difference_percent", "latency_low_percent", "latency_high_percent"),
    *("overhead_difference_s", "overhead_low_s", "overhead_high_s"),
    *("throughput_difference_percent", "throughput_low_percent", "throughput_high_percent"),
    *("first_faster", "other_faster", "interval_over", "note"),
    *("latency_p_value", "latency_p_corrected", "latency_significant"),
    *("throughput_p_value", "throughput_p_corrected", "throughput_significant"),
    *("first_surely_faster", "other_surely_faster", "first_surely_more", "other_surely_more"),
    *("tests", "rounds_needed", "latency_floor_percent", "throughput_floor_percent"),
]
COLUMNS = {what: [*keys, *_FIGURES] for what, keys in KEYS.items()}
ALL = "all"
MIN_BLOCKS = LEAST_VALUES
TOO_FEW = "too few rounds"
Z = NormalDist().inv_cdf(0.975)
_PAIR = ["run", "round", "repeat", "point"]
_MEASURES = {
    "latency_s": ("latency_difference_s", "latency_low_s", "latency_high_s"),
    "latency_percent": tuple(f"latency_{end}_percent" for end in ("difference", "low", "high")),
    "overhead_s": ("overhead_difference_s", "overhead_low_s", "overhead_high_s"),
    "throughput_percent": tuple(f"throughput_{end}_percent" for end in ("difference", "low", "high")),
}
"""The columns of the median and of the ends of its interval, by the measure of each pair."""
_TESTED = {"latency_s": "latency_relative", "throughput_ips": "throughput_relative"}
"""The column of the pairs' differences that the test ranks, by the measure."""
_DIFFERENCES = [*_MEASURES, "first_latency_s", *_TESTED.values()]
_ROUND = ["run", "round"]
_NEEDED = ["crosses", "status", "latency_s", "latency_bound_s", "throughput_ips", "run", "round", "point"]


def paired(trials: pd.DataFrame, what: What = "backend") -> pd.DataFrame:
    """Rows for each condition and pair of backends: one a point that crosses, and one (`point` is `ALL`) over them all.

    Where nothing crosses there is no pair: both are the same. Takes the frame of `analysis.load`. Differences are
    other - first, of two trials that are `ok`, at the same point and in the same round, so that what slows a whole
    round slows both. Positive: the other takes longer, or has more images/s. tcp is the first.

    what: `codec` for rows of each codec against none (or the first by name, where all are codecs), of each condition
    and backend. At a point where codecs come to the same there is no pair.

    results/README.md has the columns, under paired.csv. Of a point, figures are over its rounds. Of all points they are
    over the medians of rounds, or with fewer than `MIN_BLOCKS` of them over those of points (`interval_over`); rounds
    are those of the point that has most, and corrected p-values the least of its points, which tests whether the two
    differ anywhere. Medians have the intervals of `analysis.statistics.samples`, which assume nothing about the
    distribution and hold for few values too. p-values are of `analysis.statistics.significance.signed_rank`; one family
    are both measures of every point, each condition and pair of backends. Intervals hold the noise floor
    (`analysis.statistics.noise`, one standard deviation of a difference), and no difference is significant that it may
    make.
    """
    of_all = [_of_pair(*of_two) for of_two in compared(trials, what)]
    if not of_all:
        return pd.DataFrame(columns=COLUMNS[what])
    rows: pd.DataFrame = pd.concat(of_all, ignore_index=True).reindex(
        columns=[*COLUMNS[what], "first_latency_s"]
    )
    _add_floor(rows, floors(trials))
    _judge(rows, KEYS[what])
    return rows.reindex(columns=COLUMNS[what])


def compared(
    trials: pd.DataFrame, what: What = "backend"
) -> Iterator[tuple[dict[Hashable, Any], pd.DataFrame]]:
    """Every condition with every two of its backends (`first`, `other`), and their pairs: one row a point and round.

    latency_s, throughput_percent, ...: the other's less the first's, as in `paired`, which has `what`.
    """
    keys = KEYS[what]
    crosses = ~controls(trials) & (trials["backend"] != NONE)
    counted = trials.assign(crosses=crosses)[[*CONDITION, "backend", *_NEEDED]]
    if what == "codec":
        counted = (
            counted[counted["backend"] != NONE].fillna({"codec": NO_CODEC}).replace({"codec": {"": NO_CODEC}})
        )
    for _, of_condition in counted.groupby(keys, dropna=False, observed=True):
        condition = of_condition.iloc[0][keys].to_dict()
        names = _codecs(of_condition) if what == "codec" else [*filter(None, backends(of_condition))]
        valid = {name: _valid(of_condition[of_condition[what] == name]) for name in names}
        for first, other in combinations(valid, 2):
            if what == "backend" or first == names[0]:
                yield condition | {"first": first, "other": other}, _pairs(valid[first], valid[other])


def _codecs(trials: pd.DataFrame) -> list[str]:
    return sorted(trials["codec"].astype("str").unique(), key=lambda codec: (codec != NO_CODEC, codec))


def _valid(trials: pd.DataFrame) -> pd.DataFrame:
    counts = (trials["status"] == "ok") & trials["crosses"]
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
    """The rows of all points, and the one over them all."""
    # Trials repeated within a round are no rounds more.
    blocks = pairs.groupby([*_ROUND, "point"], as_index=False)[_DIFFERENCES].median()
    points = sorted(pairs["point"].unique(), key=cuts)
    places = (
        blocks["point"].map({point: place for place, point in enumerate(points)}).to_numpy(dtype=np.int64)
    )
    rows, tables = _summaries(blocks, places, len(points), "rounds")
    sizes = pairs.groupby("point").size().reindex(points).to_numpy()
    rows = rows.assign(point=points, points=1, rounds=sizes, pairs=sizes)
    rows["first_faster"] = (rows["latency_difference_s"] > 0).astype(int)
    rows["other_faster"] = (rows["latency_difference_s"] < 0).astype(int)
    for measure, column in _TESTED.items():
        rows[f"{measure.partition('_')[0]}_p_value"] = significance.signed_rank(tables[column])

    over = "rounds" if len(pairs[_ROUND].drop_duplicates()) >= MIN_BLOCKS else "points"
    by_block = pairs.groupby(_ROUND if over == "rounds" else "point")[_DIFFERENCES].median()
    of_all, _ = _summaries(by_block, np.zeros(len(by_block), dtype=np.int64), 1, over)
    of_all = of_all.assign(
        point=ALL,
        points=len(points),
        rounds=sizes.max(initial=0),
        pairs=len(pairs),
        first_latency_s=pairs["first_latency_s"].median(),
        first_faster=rows["first_faster"].sum(),
        other_faster=rows["other_faster"].sum(),
    )
    both = pd.concat([rows, of_all], ignore_index=True) if points else of_all
    return both.assign(**{str(key): value for key, value in named.items()})


def _summaries(
    blocks: pd.DataFrame, places: Ints, count: int, over: str
) -> tuple[pd.DataFrame, dict[str, Floats]]:
    """Medians and intervals of so many rows at once, as there may be many with many rounds each; and the rows' values.

    places: of which row each block is. over: what the blocks are.
    """
    tables = {
        column: significance.padded(blocks[column].to_numpy(), places, count) for column in _DIFFERENCES
    }
    rows = pd.DataFrame(index=range(count))
    rows["first_latency_s"] = significance.medians(tables["first_latency_s"])
    for measure, (middle, low, high) in _MEASURES.items():
        rows[middle] = significance.medians(tables[measure])
        rows[low], rows[high] = significance.median_intervals(tables[measure])
    has_interval = rows["latency_low_s"].notna()
    rows["interval_over"] = np.where(has_interval, over, "")
    rows["note"] = np.where(has_interval, "", TOO_FEW)
    return rows, tables


def _add_floor(rows: pd.DataFrame, known: Floors) -> None:
    """Add what identical treatments differ by, and widen the intervals by it: both spreads as variances."""
    shares = [floor_of(known, row).of(["latency_s", "throughput_ips"]) for row in rows[OF].to_dict("records")]
    rows[["latency_floor_percent", "throughput_floor_percent"]] = 100 * math.sqrt(2) * np.array(shares)
    seconds = rows["latency_floor_percent"] / 100 * rows["first_latency_s"]
    spreads = (seconds, rows["latency_floor_percent"], seconds, rows["throughput_floor_percent"])
    for spread, (middle, low, high) in zip(spreads, _MEASURES.values(), strict=True):
        for end, sign in ((low, -1), (high, 1)):
            rows[end] = rows[middle] + sign * np.hypot(rows[end] - rows[middle], Z * spread)


def _judge(rows: pd.DataFrame, keys: list[str]) -> None:
    """Correct the p-values of all points for how many there are, and count what is left."""
    tests = significance.correct(rows)
    rows["rounds_needed"] = significance.pairs_needed(tests)
    # In standard deviations: if the floor makes all of these differences, the largest seldom exceeds it.
    beyond = NormalDist().inv_cdf(1 - significance.ALPHA / (2 * max(1, tests)))
    counts = ["first_surely_faster", "other_surely_faster", "first_surely_more", "other_surely_more"]
    shown = ["latency_difference_s"] * 2 + ["throughput_difference_percent"] * 2
    for column, measure, sign in zip(counts, shown, (1, -1, -1, 1), strict=True):
        of = measure.partition("_")[0]
        is_sure = rows[f"{of}_p_corrected"] <= significance.ALPHA
        is_sure &= rows[f"{of}_difference_percent"].abs() > beyond * rows[f"{of}_floor_percent"]
        rows[column] = (is_sure & (rows[measure] * sign > 0)).astype(int)
    of_two = rows.groupby([*keys, "first", "other"], dropna=False, observed=True, sort=False)
    p_values = ["latency_p_corrected", "throughput_p_corrected"]
    for column, of_points in (*((name, "min") for name in p_values), *((name, "sum") for name in counts)):
        rows[column] = rows[column].where(rows["point"] != ALL, of_two[column].transform(of_points))
    for measure, more in (("latency", "faster"), ("throughput", "more")):
        rows[f"{measure}_significant"] = (rows[f"first_surely_{more}"] + rows[f"other_surely_{more}"]) > 0

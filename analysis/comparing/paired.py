"""Backends of one run, its codecs or its engines, against each other: at the same point, in the same round."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from itertools import combinations
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
import pandas as pd

from pareto.analysis.naming import transports
from pareto.analysis.runs.points import (
    BUT_CODEC,
    CONDITION,
    EAGER,
    NO_CODEC,
    NONE,
    ROUND,
    at_work,
    controls,
    cuts,
)
from pareto.analysis.runs.standing import stands
from pareto.analysis.statistics import significance
from pareto.analysis.statistics.noise import Floors, floor_of, floors
from pareto.analysis.statistics.samples import LEAST_VALUES, OUTSIDE, Floats, Ints

What = Literal["backend", "codec", "engine"]
KEYS: dict[What, list[str]] = {
    "backend": CONDITION,
    "codec": [*BUT_CODEC, "backend"],
    "engine": [*(name for name in CONDITION if name != "engine"), "backend"],
}
"""The columns that both of a pair share, by what they differ in."""
BASES: dict[What, str] = {"codec": NO_CODEC, "engine": EAGER}
"""The base of comparisons, or without it the first by name. Backends have none: every two are compared."""
SIDES = ("edge", "server")
"""The hosts of whose stages engines are compared, too."""
_OF_SIDES = [f"{side}_percent" for side in SIDES]
_MEASURES = {
    name: [name.replace("_", f"_{end}_") for end in ("difference", "low", "high")]
    for name in ("latency_s", "latency_percent", "overhead_s", "throughput_percent", *_OF_SIDES)
}
"""The columns of the median and of the ends of its interval, by the measure of each pair."""
_FIGURES = [
    *("first", "other", "point", "points", "rounds", "pairs", "throughput_pairs"),
    *(column for name in _MEASURES if name not in _OF_SIDES for column in _MEASURES[name]),
    *("first_faster", "other_faster", "interval_over", "note"),
    *("tested", "latency_p_value", "latency_p_corrected", "latency_significant"),
    *("tests", "rounds_needed", "latency_floor_percent", "throughput_floor_percent"),
]
COLUMNS = {
    what: [
        *keys,
        *_FIGURES,
        *(column for side in _OF_SIDES for column in _MEASURES[side] if what == "engine"),
    ]
    for what, keys in KEYS.items()
}
ALL = "all"
MIN_BLOCKS = LEAST_VALUES
TOO_FEW = "too few rounds"
Z = NormalDist().inv_cdf(1 - OUTSIDE)
_DIFFERENCES = [*_MEASURES, "first_latency_s", "level_s", "relative"]
"""level_s: the mean of both latencies, which no exchange of the two changes. relative: what the test ranks."""
_STAGES = [f"{side}_s" for side in SIDES]
_NEEDED = ["treatment", "status", "latency_s", "latency_bound_s", "throughput_ips", *_STAGES, *ROUND, "point"]


def paired(trials: pd.DataFrame, what: What = "backend") -> pd.DataFrame:
    """Rows for each condition and pair of backends: one a point that crosses, and one (`point` is `ALL`) over them all.

    Differences are other - first, of two trials that can be trusted in it, at the same point and in the same round on
    the same testbed, so that what slows a whole round slows both. Where nothing crosses both are the same, so there is
    no pair. tcp is the first. results/README.md has the columns, under paired.csv.

    what: `codec` for rows of each codec against none, `engine` for each engine against eager (or against the first by
    name, where there is no such trial), of each condition and backend. Engines differ where nothing crosses, too; their
    rows have the differences of the stages' times of both `SIDES` as well.

    A point's figures are over its rounds; those of all points over the medians of rounds, or with fewer than
    `MIN_BLOCKS` of them over those of points. Intervals (`analysis.statistics.samples`) hold each by itself, and the
    noise floor (`analysis.statistics.noise`, one standard deviation of a difference).

    One latency of each condition and pair is tested, that of the point where both together take least: with a test at
    every point none could ever find anything in a usual number of rounds. So chosen, the point does not favour a side,
    and the test (`signed_rank`, corrected for all that are made) holds as if it had been named before. No difference is
    significant that the noise floor may make.
    """
    of_all = [_of_pair(*of_two) for of_two in compared(trials, what)]
    if not of_all:
        return pd.DataFrame(columns=COLUMNS[what])
    rows: pd.DataFrame = pd.concat(of_all, ignore_index=True)
    _add_floor(rows, floors(trials), what)
    rows["tests"] = tests = int(rows["latency_p_value"].notna().sum())
    rows["rounds_needed"] = significance.pairs_needed(tests)
    rows["latency_p_corrected"] = significance.holm(rows["latency_p_value"])
    # In standard deviations: if the floor makes all of these differences, the largest seldom exceeds it.
    beyond = NormalDist().inv_cdf(1 - significance.ALPHA / (2 * max(1, tests)))
    is_large = rows["latency_difference_percent"].abs() > beyond * rows["latency_floor_percent"]
    rows["latency_significant"] = is_large & (rows["latency_p_corrected"] <= significance.ALPHA)
    return rows.reindex(columns=COLUMNS[what])


def compared(
    trials: pd.DataFrame, what: What = "backend"
) -> Iterator[tuple[dict[Hashable, Any], pd.DataFrame]]:
    """Every condition with every two of its backends (`first`, `other`), and their pairs: one row a point and round.

    latency_s, throughput_percent, ...: the other's less the first's, as in `paired`, which has `what`.
    """
    if trials[what].nunique() < 2:
        return
    for _, of_condition in _counted(trials, what).groupby(KEYS[what], dropna=False, observed=True):
        names = transports(of_condition)
        if base := BASES.get(what):
            names = sorted(of_condition[what].astype("str").unique(), key=lambda name: (name != base, name))
        if len(names) < 2:
            continue
        condition = of_condition.iloc[0][KEYS[what]].to_dict()
        valid = {name: _valid(of_condition[of_condition[what] == name]) for name in names}
        for first, other in combinations(names, 2):
            if not base or first == names[0]:
                yield condition | {"first": first, "other": other}, _pairs(valid[first], valid[other])


def _counted(trials: pd.DataFrame, what: What) -> pd.DataFrame:
    """The columns that are needed, with the `treatment` of each trial: those of one point with the same are no pair."""
    if what == "engine":
        work = at_work(trials)
        counted = trials.assign(treatment=work)
        for side in SIDES:  # what a host does without units is no engine's
            counted[f"{side}_s"] = counted[f"{side}_s"].where(work.str.contains(f"{side}="))
    else:
        codec = trials["codec"].astype(object).fillna("").astype("str")
        counted = trials.assign(codec=codec.where((codec != "") | (what == "backend"), NO_CODEC))
        crosses = ~controls(trials) & (trials["backend"] != NONE)
        counted["treatment"] = counted[what].astype("str").where(crosses, "")
    if what in BASES:
        counted = counted[counted["backend"] != NONE]
    return counted.reindex(columns=[*dict.fromkeys([*CONDITION, "backend", what, *_NEEDED])])


def _valid(trials: pd.DataFrame) -> pd.DataFrame:
    """The trials that count; one repeated within its round is paired with the other's repetition."""
    ok = trials.loc[stands(trials), _NEEDED]
    repeat = ok.groupby([*ROUND, "point"], dropna=False).cumcount()
    return ok.assign(repeat=repeat, overhead_s=ok["latency_s"] - ok["latency_bound_s"])


def _pairs(first: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    key = [*ROUND, "repeat", "point"]
    both = first.merge(other, on=key, suffixes=("", "_other"))
    both = both[both["treatment"] != both["treatment_other"]]

    def more(column: str) -> pd.Series:
        return 100 * (both[f"{column}_other"] / both[column].where(both[column] > 0) - 1)

    one_s, other_s = both["latency_s"], both["latency_s_other"]
    return both[key].assign(
        latency_s=other_s - one_s,
        latency_percent=more("latency_s"),
        overhead_s=both["overhead_s_other"] - both["overhead_s"],
        throughput_percent=more("throughput_ips"),
        **{f"{side}_percent": more(f"{side}_s") for side in SIDES},
        first_latency_s=one_s,
        level_s=(one_s + other_s) / 2,
        relative=significance.relative(one_s, other_s),
    )


def _of_pair(named: dict[Hashable, Any], pairs: pd.DataFrame) -> pd.DataFrame:
    """The rows of all points, and the one over them all."""
    # Trials repeated within a round are no rounds more.
    blocks = pairs.groupby([*ROUND, "point"], as_index=False, dropna=False)[_DIFFERENCES].median()
    points = sorted(pairs["point"].unique(), key=cuts)
    places = (
        blocks["point"].map({point: place for place, point in enumerate(points)}).to_numpy(dtype=np.int64)
    )
    rows, tables = _summaries(blocks, places, len(points), "rounds")
    known = pairs.groupby("point")[["latency_s", "throughput_percent"]].count().reindex(points)
    sizes, others = known.to_numpy().T
    rows = rows.assign(point=points, points=1, rounds=sizes, pairs=sizes, throughput_pairs=others)
    rows["first_faster"] = (rows["latency_difference_s"] > 0).astype(int)
    rows["other_faster"] = (rows["latency_difference_s"] < 0).astype(int)
    levels = significance.medians(tables["level_s"])
    rows["tested"] = rows.index == (np.nanargmin(levels) if np.isfinite(levels).any() else -1)
    p_values = significance.signed_rank(tables["relative"])
    rows["latency_p_value"] = np.where(rows["tested"], p_values, np.nan)

    over = "rounds" if len(pairs[ROUND].drop_duplicates()) >= MIN_BLOCKS else "points"
    by_block = pairs.groupby(ROUND if over == "rounds" else "point", dropna=False)[_DIFFERENCES].median()
    of_all, _ = _summaries(by_block, np.zeros(len(by_block), dtype=np.int64), 1, over)
    of_all = of_all.assign(
        point=ALL,
        points=len(points),
        rounds=sizes.max(initial=0),
        pairs=sizes.sum(),
        throughput_pairs=others.sum(),
        tested=False,
        latency_p_value=np.nan,
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
    tables = {name: significance.padded(blocks[name].to_numpy(), places, count) for name in _DIFFERENCES}
    rows = pd.DataFrame({"first_latency_s": significance.medians(tables["first_latency_s"])})
    for measure, (middle, low, high) in _MEASURES.items():
        rows[middle] = significance.medians(tables[measure])
        rows[low], rows[high] = significance.median_intervals(tables[measure])
    has_interval = rows["latency_low_s"].notna()
    rows["interval_over"] = np.where(has_interval, over, "")
    rows["note"] = np.where(has_interval, "", TOO_FEW)
    return rows, tables


def _add_floor(rows: pd.DataFrame, known: Floors, what: What) -> None:
    """Add what identical treatments differ by, and widen the intervals by it: both spreads as variances."""
    shares = [_floor(known, row, what) for row in rows.to_dict("records")]
    rows[["latency_floor_percent", "throughput_floor_percent"]] = 100 * math.sqrt(2) * np.array(shares)
    percent = rows["latency_floor_percent"]
    seconds = percent / 100 * rows["first_latency_s"]
    # A stage's time has no floor of its own.
    spreads = (seconds, percent, seconds, rows["throughput_floor_percent"], percent, percent)
    for spread, (middle, low, high) in zip(spreads, _MEASURES.values(), strict=True):
        for end, sign in ((low, -1), (high, 1)):
            rows[end] = rows[middle] + sign * np.hypot(rows[end] - rows[middle], Z * spread)


def _floor(known: Floors, row: Mapping[Hashable, Any], what: What) -> Floats:
    """The floor's shares of latency and throughput; of two engines the greater."""
    engines = [row[of] for of in ("first", "other")] if what == "engine" else [row["engine"]]
    of_each = [floor_of(known, {**row, "engine": engine}) for engine in engines]
    return np.asarray(np.max([floor.of(["latency_s", "throughput_ips"]) for floor in of_each], axis=0))

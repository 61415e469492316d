"""Backends of one run, its codecs or its engines, against each other: at the same point, in the same round."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from itertools import combinations
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
import pandas as pd

from pareto.analysis.engines import EAGER, at_work, engines, setup_of, without_engine
from pareto.analysis.naming import backends
from pareto.analysis.points import BUT_CODEC, CONDITION, NO_CODEC, NONE, ROUND, controls, cuts
from pareto.analysis.standing import stands
from pareto.analysis.statistics import significance
from pareto.analysis.statistics.noise import OF, Floors, floor_of, floors
from pareto.analysis.statistics.samples import LEAST_VALUES, Floats, Ints

What = Literal["backend", "codec", "engine"]
KEYS: dict[What, list[str]] = {
    "backend": CONDITION,
    "codec": [*BUT_CODEC, "backend"],
    "engine": [*CONDITION, "backend"],
}
"""The columns that both of a pair share, by what they differ in. For engines, `setup` is the one without them."""
BASES: dict[What, str] = {"codec": NO_CODEC, "engine": EAGER}
"""The base of comparisons, or without it the first by name. Backends have none: every two are compared."""
SIDES = ("edge", "server")
"""The hosts of whose stages engines are compared, too."""
_FIGURES = [
    *("first", "other", "point", "points", "rounds", "pairs", "throughput_pairs"),
    *("latency_difference_s", "latency_low_s", "latency_high_s"),
    *("latency_difference_percent", "latency_low_percent", "latency_high_percent"),
    *("overhead_difference_s", "overhead_low_s", "overhead_high_s"),
    *("throughput_difference_percent", "throughput_low_percent", "throughput_high_percent"),
    *("first_faster", "other_faster", "interval_over", "note"),
    *("tested", "latency_p_value", "latency_p_corrected", "latency_significant"),
    *("tests", "rounds_needed", "latency_floor_percent", "throughput_floor_percent"),
]
_OF_SIDES = [f"{side}_{end}_percent" for side in SIDES for end in ("difference", "low", "high")]
COLUMNS = {what: [*keys, *_FIGURES, *(_OF_SIDES if what == "engine" else [])] for what, keys in KEYS.items()}
ALL = "all"
MIN_BLOCKS = LEAST_VALUES
TOO_FEW = "too few rounds"
Z = NormalDist().inv_cdf(0.975)
_PAIR = [*ROUND, "repeat", "point"]
_MEASURES = {
    "latency_s": ("latency_difference_s", "latency_low_s", "latency_high_s"),
    "latency_percent": tuple(f"latency_{end}_percent" for end in ("difference", "low", "high")),
    "overhead_s": ("overhead_difference_s", "overhead_low_s", "overhead_high_s"),
    "throughput_percent": tuple(f"throughput_{end}_percent" for end in ("difference", "low", "high")),
    **{
        f"{side}_percent": tuple(f"{side}_{end}_percent" for end in ("difference", "low", "high"))
        for side in SIDES
    },
}
"""The columns of the median and of the ends of its interval, by the measure of each pair."""
_DIFFERENCES = [*_MEASURES, "first_latency_s", "level_s", "relative"]
"""level_s: the mean of both latencies, which no exchange of the two changes. relative: what the test ranks."""
_STAGES = [f"{side}_s" for side in SIDES]
_NEEDED = [
    *("treatment", "status", "latency_s", "latency_bound_s", "throughput_ips", *_STAGES),
    *(*ROUND, "point"),
]


def paired(trials: pd.DataFrame, what: What = "backend") -> pd.DataFrame:
    """Rows for each condition and pair of backends: one a point that crosses, and one (`point` is `ALL`) over them all.

    Where nothing crosses there is no pair: both are the same. Takes the frame of `analysis.load`. Differences are
    other - first, of two trials that can be trusted in it, at the same point and in the same round on the same testbed,
    so that what slows a whole round slows both. Positive: the other takes longer, or has more images/s. tcp is the
    first. `rounds` and `pairs` are those of the latency.

    what: `codec` for rows of each codec against none, `engine` for each engine against eager (or against the first by
    name, where there is no such trial), of each condition and backend. At a point where two come to the same there is
    no pair. Engines differ where nothing crosses, too. Their rows have the differences of the stages' times of both
    `SIDES` as well (%), of those that have units.

    results/README.md has the columns, under paired.csv. A point's figures are over its rounds. Those of all points
    are over the medians of rounds, or with fewer than `MIN_BLOCKS` of them over those of points (`interval_over`);
    rounds are those of the point that has most. Medians have the intervals of `analysis.statistics.samples`, which
    assume nothing about the distribution and hold for few values too, each by itself. Intervals hold the noise floor
    (`analysis.statistics.noise`, one standard deviation of a difference).

    One latency of each condition and pair is tested, that of the point where both together take least: with a test at
    every point none could ever find anything in a usual number of rounds. So chosen, the point does not favour a side,
    and the test (`analysis.statistics.significance.signed_rank`, corrected for all that are made) holds as if it had
    been named before. No difference is significant that the noise floor may make.
    """
    of_all = [_of_pair(*of_two) for of_two in compared(trials, what)]
    if not of_all:
        return pd.DataFrame(columns=COLUMNS[what])
    rows: pd.DataFrame = pd.concat(of_all, ignore_index=True).reindex(
        columns=[*dict.fromkeys([*COLUMNS[what], *_OF_SIDES]), "first_latency_s"]
    )
    _add_floor(rows, floors(trials), what)
    _judge(rows)
    return rows.reindex(columns=COLUMNS[what])


def compared(
    trials: pd.DataFrame, what: What = "backend"
) -> Iterator[tuple[dict[Hashable, Any], pd.DataFrame]]:
    """Every condition with every two of its backends (`first`, `other`), and their pairs: one row a point and round.

    latency_s, throughput_percent, ...: the other's less the first's, as in `paired`, which has `what`.
    """
    if (engines(trials) if what == "engine" else trials[what]).nunique() < 2:
        return
    for _, of_condition in _counted(trials, what).groupby(KEYS[what], dropna=False, observed=True):
        names = _levels(of_condition, what)
        if len(names) < 2:
            continue
        condition = of_condition.iloc[0][KEYS[what]].to_dict()
        valid = {name: _valid(of_condition[of_condition[what] == name]) for name in names}
        base = next(iter(valid), "")
        for first, other in combinations(valid, 2):
            if what not in BASES or first == base:
                yield condition | {"first": first, "other": other}, _pairs(valid[first], valid[other])


def _counted(trials: pd.DataFrame, what: What) -> pd.DataFrame:
    """The columns that are needed, with the `treatment` of each trial: those of one point with the same are no pair."""
    if what == "engine":
        work = at_work(trials)
        counted = trials.assign(engine=engines(trials), setup=without_engine(trials), treatment=work)
        for side in SIDES:  # what a host does without units is no engine's
            counted[f"{side}_s"] = counted[f"{side}_s"].where(work.str.contains(f"{side}="))
    else:
        crosses = ~controls(trials) & (trials["backend"] != NONE)
        codec = trials["codec"].astype(object).fillna("").astype("str")
        counted = trials.assign(codec=codec.where((codec != "") | (what == "backend"), NO_CODEC))
        counted["treatment"] = counted[what].astype("str").where(crosses, "")
    if what in BASES:
        counted = counted[counted["backend"] != NONE]
    return counted.reindex(columns=[*dict.fromkeys([*CONDITION, "backend", what, *_NEEDED])])


def _levels(trials: pd.DataFrame, what: What) -> list[str]:
    """The backends, codecs or engines, in the order in which they are compared."""
    if what not in BASES:
        return [*filter(None, backends(trials))]
    return sorted(trials[what].astype("str").unique(), key=lambda name: (name != BASES[what], name))


def _valid(trials: pd.DataFrame) -> pd.DataFrame:
    ok = trials[stands(trials)]
    # A trial repeated within its round is paired with the other's repetition.
    return ok[_NEEDED].assign(
        repeat=ok.groupby([*ROUND, "point"], dropna=False).cumcount(),
        overhead_s=ok["latency_s"] - ok["latency_bound_s"],
    )


def _pairs(first: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    both = first.merge(other, on=_PAIR, suffixes=("", "_other"))
    both = both[both["treatment"] != both["treatment_other"]]
    result = both[_PAIR].assign(
        latency_s=both["latency_s_other"] - both["latency_s"],
        latency_percent=100 * (both["latency_s_other"] / both["latency_s"] - 1),
        overhead_s=both["overhead_s_other"] - both["overhead_s"],
        first_latency_s=both["latency_s"],
        throughput_percent=100 * (both["throughput_ips_other"] / both["throughput_ips"] - 1),
        **{
            f"{side}_percent": 100
            * (both[f"{side}_s_other"] / both[f"{side}_s"].where(both[f"{side}_s"] > 0) - 1)
            for side in SIDES
        },
    )
    return result.assign(
        level_s=(both["latency_s"] + both["latency_s_other"]) / 2,
        relative=significance.relative(both["latency_s"], both["latency_s_other"]),
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


def _add_floor(rows: pd.DataFrame, known: Floors, what: What) -> None:
    """Add what identical treatments differ by, and widen the intervals by it: both spreads as variances."""
    each = rows[[*OF, "first", "other"]].to_dict("records")
    shares = [_floor(known, row, what) for row in each]
    rows[["latency_floor_percent", "throughput_floor_percent"]] = 100 * math.sqrt(2) * np.array(shares)
    percent = rows["latency_floor_percent"]
    seconds = percent / 100 * rows["first_latency_s"]
    # A stage's time has no floor of its own.
    spreads = (seconds, percent, seconds, rows["throughput_floor_percent"], *(percent for _ in SIDES))
    for spread, (middle, low, high) in zip(spreads, _MEASURES.values(), strict=True):
        for end, sign in ((low, -1), (high, 1)):
            rows[end] = rows[middle] + sign * np.hypot(rows[end] - rows[middle], Z * spread)


def _floor(known: Floors, row: Mapping[Hashable, Any], what: What) -> Floats:
    """The floor's shares of latency and throughput; of two engines, which are setups, the greater."""
    setups = [row["setup"]]
    if what == "engine":
        setups = [setup_of(row["setup"], row[name]) for name in ("first", "other")]
    of_setups = [floor_of(known, {"model": row["model"], "setup": setup}) for setup in setups]
    return np.asarray(np.max([floor.of(["latency_s", "throughput_ips"]) for floor in of_setups], axis=0))


def _judge(rows: pd.DataFrame) -> None:
    """Correct the p-values for how many there are, and say which differences are significant."""
    tests = int(rows["latency_p_value"].notna().sum())
    rows["tests"], rows["rounds_needed"] = tests, significance.pairs_needed(tests)
    rows["latency_p_corrected"] = significance.holm(rows["latency_p_value"])
    # In standard deviations: if the floor makes all of these differences, the largest seldom exceeds it.
    beyond = NormalDist().inv_cdf(1 - significance.ALPHA / (2 * max(1, tests)))
    is_large = rows["latency_difference_percent"].abs() > beyond * rows["latency_floor_percent"]
    rows["latency_significant"] = is_large & (rows["latency_p_corrected"] <= significance.ALPHA)

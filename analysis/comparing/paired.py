"""Backends of one run, its codecs or its engines, against each other: at the same point, in the same round."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from itertools import combinations
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
import pandas as pd

from pareto.analysis.naming import USUAL, levels, transports
from pareto.analysis.runs.points import BUT_CODEC, CONDITION, NONE, ROUND, cuts, round_of
from pareto.analysis.runs.standing import stands
from pareto.analysis.runs.treatments import at_work, backend_of
from pareto.analysis.statistics import significance
from pareto.analysis.statistics.noise import floor_of, floors
from pareto.analysis.statistics.samples import LEAST_VALUES, OUTSIDE

What = Literal["backend", "codec", "engine"]
KEYS: dict[What, list[str]] = {
    "backend": CONDITION,
    "codec": [*BUT_CODEC, "backend"],
    "engine": [*(name for name in CONDITION if name != "engine"), "backend"],
}
"""The columns that both of a pair share, by what they differ in."""
BASES: dict[What, str] = {"codec": USUAL["codec"], "engine": USUAL["engine"]}
"""The base of comparisons, or without it the first by name. Backends have none: every two are compared."""
SIDES = ("edge", "server")
"""The hosts of whose stages engines are compared, too."""
_MEASURES = {
    name: [name.replace("_", f"_{end}_") for end in ("difference", "low", "high")]
    for name in (
        *("latency_s", "latency_percent", "overhead_s", "throughput_percent"),
        *(f"{side}_percent" for side in SIDES),
    )
}
"""The columns of the median and of the ends of its interval, by the measure of each pair."""
*_COMPARED, _EDGE, _SERVER = _MEASURES.values()
_COUNTS = {"points": "sum", "rounds": "max", "pairs": "sum", "throughput_pairs": "sum"}
_COUNTS |= {"first_faster": "sum", "other_faster": "sum"}
"""The counts at each point, and what each becomes over all points."""
_FLOORS = ["latency_floor_percent", "throughput_floor_percent"]
_FIGURES = [
    *("first", "other", "point", "points", "rounds", "pairs", "throughput_pairs"),
    *(column for columns in _COMPARED for column in columns),
    *("first_faster", "other_faster", "interval_over", "note"),
    *("tested", "latency_p_value", "latency_p_corrected", "latency_significant"),
    *("tests", "rounds_needed", *_FLOORS),
]
COLUMNS = {what: [*keys, *_FIGURES] for what, keys in KEYS.items()}
COLUMNS["engine"] += [*_EDGE, *_SERVER]
ALL = "all"
MIN_BLOCKS = LEAST_VALUES
TOO_FEW = "too few rounds"
Z = NormalDist().inv_cdf(1 - OUTSIDE)
_PAIR = [*ROUND, "point"]
_OF_TRIAL = ["latency_s", "overhead_s", "throughput_ips", *(f"{side}_s" for side in SIDES)]
_VALUES = [*_MEASURES, "first_latency_s", "level_s", "relative"]
"""level_s: the mean of both latencies, which no exchange of the two changes. relative: what the test ranks."""


def paired(trials: pd.DataFrame, what: What = "backend") -> pd.DataFrame:
    """Rows for each condition and pair of backends: one a point that crosses, and one (`point` is `ALL`) over them all;
    results/README.md has the columns, under paired.csv. what: `codec` for each codec against none, `engine` for each
    engine against eager (or the first by name), of each condition and backend.

    Differences are other - first, in the same round on the same testbed, so that what slows a whole round slows both.
    Those of all points are over the medians of rounds, or with fewer than `MIN_BLOCKS` of them over those of points.
    Intervals hold the noise floor (`analysis.statistics.noise`, one standard deviation of a difference).

    One latency of each condition and pair is tested, that of the point where both together take least: with a test at
    every point none could ever find anything in a usual number of rounds. So chosen, the point does not favour a side,
    and the test (`signed_rank`, corrected for all that are made) holds as if it had been named before.
    """
    if not (each := [*compared(trials, what)]):
        return pd.DataFrame(columns=COLUMNS[what])
    named, known = pd.DataFrame([of for of, _ in each]), floors(trials)
    of_both = ("first", "other") if what == "engine" else ("engine",)  # of two engines the greater floor
    shares = [
        [floor_of(known, {**row, "engine": row[of]}).of(["latency_s", "throughput_ips"]) for of in of_both]
        for row in named.to_dict("records")
    ]
    named[_FLOORS] = 100 * math.sqrt(2) * np.max(shares, axis=1)
    rows = _summed(named, pd.concat([pairs.assign(pair=number) for number, (_, pairs) in enumerate(each)]))
    rows["tests"] = tests = int(rows["latency_p_value"].notna().sum())
    rows["rounds_needed"] = significance.pairs_needed(tests)
    rows["latency_p_corrected"] = significance.holm(rows["latency_p_value"])
    # In standard deviations: if the floor makes all of these differences, the largest seldom exceeds it.
    beyond = NormalDist().inv_cdf(1 - significance.ALPHA / (2 * max(1, tests)))
    is_large = rows["latency_difference_percent"].abs() > beyond * rows["latency_floor_percent"]
    rows["latency_significant"] = is_large & (rows["latency_p_corrected"] <= significance.ALPHA)
    return rows.reindex(columns=COLUMNS[what])


def _summed(named: pd.DataFrame, pairs: pd.DataFrame) -> pd.DataFrame:
    """The rows of all that was compared, with the p-value of the point that is tested.

    named: condition, both names and floors of each comparison; pairs: of `compared`, with its place there as `pair`.
    """
    points = [*sorted(pairs["point"].unique(), key=cuts), ALL]
    places, last = {point: place for place, point in enumerate(points)}, len(points) - 1
    pairs = pairs.assign(place=pairs["point"].map(places).astype("int64"), block=round_of(pairs))
    by_rounds = pairs.groupby("pair")["block"].nunique().reindex(named.index, fill_value=0) >= MIN_BLOCKS
    block = pairs["block"].where(pairs["pair"].map(by_rounds), pairs["place"])
    of_all = pairs.groupby(["pair", block])[_VALUES].median().reset_index("pair").assign(place=last)
    every = pd.DataFrame({"pair": named.index, "place": last})  # also of what has no pair
    values = pd.concat([pairs[["pair", "place", *_VALUES]], of_all, every])
    by_row = values.groupby(["pair", "place"])
    row, rows = by_row.ngroup().to_numpy(), by_row.size().index.to_frame(index=False).join(named, on="pair")
    tables = {name: significance.padded(values[name], row, len(rows)) for name in _VALUES}
    rows["point"], is_all = rows["place"].map(dict(enumerate(points))), rows["place"] == last

    first_s, level_s = (pd.Series(significance.medians(tables[of])) for of in ("first_latency_s", "level_s"))
    first_s[is_all] = pairs.groupby("pair")["first_latency_s"].median().reindex(named.index).to_numpy()
    floor = rows["latency_floor_percent"]  # but a stage's time has no floor of its own
    spreads = dict.fromkeys(("latency_s", "overhead_s"), floor / 100 * first_s)
    spreads["throughput_percent"] = rows["throughput_floor_percent"]
    for measure, (middle, *ends) in _MEASURES.items():
        rows[middle] = significance.medians(tables[measure])
        inner = significance.median_intervals(tables[measure])
        for end, value, sign in zip(ends, inner, (-1, 1), strict=True):
            rows[end] = rows[middle] + sign * np.hypot(value - rows[middle], Z * spreads.get(measure, floor))
    has_interval, over = rows["latency_low_s"].notna(), rows["pair"].map(by_rounds) | ~is_all
    rows["interval_over"] = np.where(has_interval, np.where(over, "rounds", "points"), "")
    rows["note"] = np.where(has_interval, "", TOO_FEW)
    rows["pairs"] = rows["rounds"] = significance.rounds(tables["latency_s"])
    rows["throughput_pairs"], rows["points"] = significance.rounds(tables["throughput_percent"]), 1
    rows["first_faster"], rows["other_faster"] = (sign * rows["latency_difference_s"] > 0 for sign in (1, -1))
    totals = rows[~is_all].groupby("pair").agg(_COUNTS).reindex(rows["pair"], fill_value=0).to_numpy()
    rows[[*_COUNTS]] = rows[[*_COUNTS]].mask(is_all, totals).astype(int)
    rows["tested"] = rows.index.isin(level_s[~is_all].dropna().groupby(rows["pair"]).idxmin())
    rows.loc[rows["tested"], "latency_p_value"] = significance.signed_rank(tables["relative"][rows["tested"]])
    return rows


def compared(
    trials: pd.DataFrame, what: What = "backend"
) -> Iterator[tuple[dict[Hashable, Any], pd.DataFrame]]:
    """Every condition with every two of its backends (`first`, `other`), and their pairs: one row a point and round.

    latency_s, throughput_percent, ...: the other's less the first's, as in `paired`, which has `what`.
    """
    if trials[what].nunique() < 2:
        return
    columns = [*KEYS[what], "backend", what, "status", *_PAIR, "latency_bound_s", *_OF_TRIAL]
    rows = trials.reindex(columns=[*dict.fromkeys(columns)])
    rows["overhead_s"] = rows["latency_s"] - rows["latency_bound_s"]
    if what == "engine":
        rows["treatment"] = work = at_work(trials)
        for side in SIDES:  # what a host does without units is no engine's
            rows[f"{side}_s"] = rows[f"{side}_s"].where(work.str.contains(f"{side}="))
    else:
        rows["treatment"] = rows[what].astype("str").where(backend_of(trials) != NONE, "")
    base = BASES.get(what)
    rows = rows[(rows["backend"] != NONE) | (base is None)]
    for _, of in rows.groupby(KEYS[what], dropna=False, observed=True):
        names = levels(of[what].unique(), (base,)) if base else transports(of)
        ok = of.loc[stands(of), [what, *_PAIR, "treatment", *_OF_TRIAL]]
        for first, other in combinations(names, 2):
            if first == names[0] or not base:
                one, two = (ok[ok[what] == name] for name in (first, other))
                both = one.merge(two, on=_PAIR, suffixes=("", "_other"))
                named = of.iloc[0][KEYS[what]].to_dict() | {"first": first, "other": other}
                # The same treatment under two names is no pair.
                yield named, _pairs(both[both["treatment"] != both["treatment_other"]])


def _pairs(both: pd.DataFrame) -> pd.DataFrame:
    pairs, one_s, other_s = both[_PAIR].copy(), both["latency_s"], both["latency_s_other"]
    for name in _OF_TRIAL:
        one, other = both[name], both[f"{name}_other"]
        if name in ("latency_s", "overhead_s"):
            pairs[name] = other - one
        if name != "overhead_s":
            pairs[f"{name.rpartition('_')[0]}_percent"] = 100 * (other / one.where(one > 0) - 1)
    relative = significance.relative(one_s, other_s)
    return pairs.assign(first_latency_s=one_s, level_s=(one_s + other_s) / 2, relative=relative)

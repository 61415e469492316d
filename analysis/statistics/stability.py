"""The steadiness of figures: whether they drift while a run goes on, as a machine that warms up does, a line with
advice for each doubt, as in pyperf, and which points need more rounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import kendalltau, theilslopes

from pareto.analysis.naming import cell_name, cell_title, condition_title, count
from pareto.analysis.points import CONDITION, TRIAL
from pareto.analysis.standing import stands
from pareto.analysis.statistics import significance
from pareto.analysis.statistics.doubt import AGAIN, GOVERNOR, PROGRAMS, THROTTLE, Doubt
from pareto.analysis.statistics.samples import LEAST_VALUES, Floats
from pareto.protocol.constants import MOST_ROUNDS

UNSTEADY = 0.05
"""A figure is steady if half of its interval is no more of it."""
OUTLYING = 0.1
"""Chance flags fewer, also with 6 rounds and two figures of each: 6 %."""
WORTH_REPORTING = 1.0
"""A drift of less, in percent over a run, changes no conclusion."""
RESUME = f"--resume it with --until {UNSTEADY:.0%}"

CHANCE = 0.02
"""A point is left aside once it was on the front in no more than this share of the resamples."""
FAIR_TRIAL = 2 * LEAST_VALUES
"""After this many rounds, a point that is valid in every other one has an interval."""
MEASURES = {"latency": "s", "throughput": "ips"}
"""The figures that are watched, and the endings of their columns."""
LEAST_ROUNDS = 5
"""With n rounds the smallest p-value is 2 / n!: 0.08 with four of them."""
MOST_IN_PAIRS = 300
"""45 000 slopes: a line through more rounds costs seconds over many conditions, and is the same to a few percent."""
KEY = ["run", *CONDITION, "backend"]
COLUMNS = [*KEY, "measure", "rounds", *("change_percent", "p_value", "p_corrected", "drifts", "note")]


def drifts(trials: pd.DataFrame) -> pd.DataFrame:
    """One row per run, condition, backend and measure (`latency`, `throughput`), with columns `COLUMNS`.

    Run by run: between two of them lies more than time, and a step from one to the other is no drift.

    A round's level is the median, over its cells, of log(value / the cell's median over the rounds of its testbed):
    how much slower or faster all of it was than usual there. It is tested against the order of the rounds in time by
    Kendall's tau (exact where nothing is tied; Kendall, "Rank Correlation Methods", 1948), and change_percent is what
    the Theil-Sen line through it makes from the first round to the last (Sen, Journal of the American Statistical
    Association 63, 1968).
    p_corrected: Holm's over all tests of the frame; drifts: it is 0.05 at most. A trend is found that goes one way
    on the whole; one that comes and goes is not. A drift says that rounds are not alike, not what made them differ.

    Only figures that can be trusted count. With fewer than `LEAST_ROUNDS` rounds there is no test: p_value and
    p_corrected are NaN, drifts is false and `note` says so; it also says where there are too many tests for so few
    rounds.
    """
    needed = [*TRIAL, "testbed", *significance.MEASURES.values()]
    ok = trials.reindex(columns=needed)[stands(trials).to_numpy()]
    # Numbers instead of texts: a million rows are grouped by them several times.
    numbers = {name: pd.factorize(ok[name])[0] for name in ("point", "testbed")}
    ok = ok.assign(of=ok.groupby(KEY, dropna=False, observed=True).ngroup(), **numbers)
    by_round = {measure: _rounds(ok, column) for measure, column in significance.MEASURES.items()}
    rows = [
        {name: row[name] for name in KEY} | {"measure": measure} | _trend(rounds.get(row["of"], np.empty(0)))
        for row in ok.drop_duplicates("of").sort_values("of").to_dict("records")
        for measure, rounds in by_round.items()
    ]
    result: pd.DataFrame = pd.DataFrame(rows, columns=COLUMNS)
    result["p_corrected"] = significance.holm(result["p_value"].to_numpy(dtype=float))
    result["drifts"] = result["p_corrected"] <= significance.ALPHA
    tests = int(result["p_value"].notna().sum())
    result["note"] = [_why_not(rounds, tests) for rounds in result["rounds"]]
    return result


def _rounds(trials: pd.DataFrame, column: str) -> dict[int, Floats]:
    """The rounds' figures in order, by the number of run, condition and backend."""
    measured = trials.loc[trials[column] > 0, ["of", "point", "testbed", "round", column]]
    usual = measured.groupby(["of", "point", "testbed"])[column].transform("median")
    by_round = np.log(measured[column] / usual).groupby([measured["of"], measured["round"]]).median()
    return {of: np.asarray(rounds, dtype=float) for of, rounds in by_round.groupby("of")}


def _trend(rounds: Floats) -> dict[str, float]:
    """A straight line's change over all rounds, and how likely chance is to order them as much."""
    n = len(rounds)
    change = 100 * math.expm1(_slope(rounds)) if n > 1 else math.nan
    p_value = math.nan
    if n >= LEAST_ROUNDS:
        # No order among equals is a trend.
        p_value = 1.0 if np.ptp(rounds) == 0 else float(kendalltau(np.arange(n), rounds).pvalue)
    return {"rounds": n, "change_percent": change, "p_value": p_value}


def _slope(rounds: Floats) -> float:
    """The rise of the Theil-Sen line over all rounds: of every pair, or of very many rounds of neighbours' medians."""
    if len(rounds) > MOST_IN_PAIRS:
        neighbours = np.arange(len(rounds)) * MOST_IN_PAIRS // len(rounds)
        rounds = pd.Series(rounds).groupby(neighbours).median().to_numpy()
    return float(theilslopes(rounds, np.linspace(0, 1, len(rounds))).slope)


def _why_not(rounds: int, tests: int) -> str:
    """The reason why no drift could be found, whatever the figures are; empty text where one could."""
    if rounds < LEAST_ROUNDS:
        return f"{rounds} of the {LEAST_ROUNDS} rounds that a test needs"
    if 2 / math.factorial(min(rounds, 20)) * tests > significance.ALPHA:
        return f"{tests} tests are too many for {rounds} rounds: none can say that it drifts"
    return ""


def doubts(front: pd.DataFrame, drifting: pd.DataFrame) -> Iterator[Doubt]:
    """At most one doubt of each kind, with how many points it is about and the worst; none if all is steady.

    front: as from `analysis.fronts.front.front`; drifting: as from `drifts`. A figure is
    unsteady if half of its 95 % interval is over `UNSTEADY` of its median; with too few rounds for an interval, if half
    of the range of its rounds is, which says less.
    """
    measured = front[front["rounds"] > 0]
    once = measured[measured["rounds"] == 1]
    if not once.empty:
        worst = once.loc[once["excluded"].idxmax()]
        left_out = f", and at {cell_title(worst)} {_lacking(worst)}" if worst["excluded"] else ""
        head = f"{_points(len(once), len(measured))} measured in one round{left_out}"
        unknown = "so that how steady the figures are is not known"
        yield Doubt(head, unknown, (_rounds_for_interval(worst),))
    yield from _unsteady(measured)
    yield from _outliers(measured)
    yield from _drifting(drifting)


def halves(rows: pd.DataFrame, measure: str, low: str = "low", high: str = "high") -> pd.Series:
    """The share of its median by which each row's measure may be off: the longer half of its interval.

    NaN where it has none. low, high: which columns are its ends; `least` and `most` are those of the rounds' range.
    """
    unit = MEASURES[measure]
    median = rows[f"{measure}_{unit}"]
    below, above = median - rows[f"{measure}_{low}_{unit}"], rows[f"{measure}_{high}_{unit}"] - median
    share: pd.Series = np.maximum(below, above) / median
    return share


def widest(off: pd.DataFrame) -> tuple[Any, str, float]:
    """The largest of these shares, with its index and measure. One of them must be known."""
    sizes = off.to_numpy(dtype=float)
    row, column = np.unravel_index(np.nanargmax(sizes), sizes.shape)
    return off.index[row], str(off.columns[column]), float(sizes[row, column])


def _unsteady(measured: pd.DataFrame) -> Iterator[Doubt]:
    """A doubt for the figures with an interval, and one for those with the rounds' range alone: they are not mixed."""
    has = pd.DataFrame({measure: halves(measured, measure).notna() for measure in MEASURES})
    for known, ends, which, words in (
        (
            has,
            ("low", "high"),
            "" if has.any(axis=1).all() else " with an interval",
            "of its median at 95 %,",
        ),
        (
            ~has[measured["rounds"] > 1],
            ("least", "most"),
            " with too few rounds for an interval",
            "between its",
        ),
    ):
        rows = measured.loc[known.index[known.any(axis=1)]]
        off = pd.DataFrame(
            {measure: halves(rows, measure, *ends).where(known[measure]) for measure in MEASURES}
        )
        unsteady = off[(off > UNSTEADY).any(axis=1)]
        if unsteady.empty:
            continue
        index, measure, size = widest(unsteady)
        worst = rows.loc[index]
        rounds = count(int(worst["rounds"]), "round")
        if worst["excluded"]:
            # This figure may well count in those others.
            rounds += f"{' with both figures' if ends[0] == 'low' else ''} ({_lacking(worst)})"
        remedy = _rounds_for_interval(worst) if ends[0] == "least" else _rounds_for_steadiness(worst, size)
        yield Doubt(
            f"{_points(len(unsteady), len(rows), which)} unsteady",
            f"most of all the {measure} of {cell_title(worst)}: ±{100 * size:.0f} % {words} {rounds}",
            (remedy, PROGRAMS, GOVERNOR, THROTTLE),
        )


def _rounds_for_interval(row: pd.Series) -> str:
    """The remedy for a missing interval; a run that had rounds enough and lost some is not helped by as many again."""
    if row["rounds"] + row["excluded"] >= LEAST_VALUES:
        return RESUME
    return f"--trials {LEAST_VALUES}, or {RESUME}"


def _rounds_for_steadiness(row: pd.Series, size: float) -> str:
    """The remedy for a long interval: it shrinks as the root of the rounds, and as many as before will be lost."""
    more = math.ceil((row["rounds"] + row["excluded"]) * (size / UNSTEADY) ** 2)
    return (
        f"--trials {more}, or {RESUME}"
        if more <= MOST_ROUNDS
        else f"steady figures of {cell_name(row)} would take over {MOST_ROUNDS} rounds"
    )


def _outliers(measured: pd.DataFrame) -> Iterator[Doubt]:
    known = measured[measured["outliers"].notna()]
    outliers, trials = known["outliers"].sum(), known["rounds"].sum()
    if outliers <= OUTLYING * trials:
        return
    worst = known.loc[known["outliers"].idxmax()]
    yield Doubt(
        f"{outliers:.0f} of {trials:.0f} trials are outliers, and count as all others do",
        f"most at {cell_title(worst)}: {worst['outliers']:.0f} of {count(int(worst['rounds']), 'round')}",
        (PROGRAMS,),
    )


def _drifting(drifts: pd.DataFrame) -> Iterator[Doubt]:
    drifting = drifts[drifts["drifts"].astype(bool) & (drifts["change_percent"].abs() >= WORTH_REPORTING)]
    if drifting.empty:
        return
    worst = drifting.loc[drifting["change_percent"].abs().idxmax()]
    also = f" (and {len(drifting) - 1} more of {len(drifts)})" if len(drifting) > 1 else ""
    yield Doubt(
        f"drift: {worst['measure']} of {condition_title(worst)} over {worst['backend']} went "
        f"{worst['change_percent']:+.1f} % from the first round to the last of {worst['rounds']}{also}",
        cures=("let the devices warm up", THROTTLE, AGAIN),
    )


def _points(some: int, of: int, such: str = "") -> str:
    """`2 of 4 points with an interval are`."""
    every = {1: "the only point", 2: "both points"}.get(of, f"all {of} points")
    which = f"{some} of {of} points" if some < of else every
    return f"{which}{such} {'is' if some == 1 else 'are'}"


def _lacking(row: pd.Series) -> str:
    """`2 more lack a valid latency or throughput`: rounds of which not both figures count; one of them may."""
    return f"{row['excluded']:.0f} more {'lacks' if row['excluded'] == 1 else 'lack'} a valid latency or throughput"


@dataclass(frozen=True)
class Certainty:
    """The certainty of a front's figures after some rounds.

    rounds: of the condition that has most. points: how many may be on a front. unsure: how many of these are not known
    as well as is wanted; widest: the worst of them in words, empty without intervals. conditions: those they belong to,
    as `CONDITION`, but the engine before the requests in flight, and no setup. lost: points
    without any valid trial in `LEAST_VALUES` rounds or more, in words.
    mostly_invalid: points that are not known and were valid in fewer than half of `FAIR_TRIAL` rounds or more.
    """

    rounds: int
    points: int
    unsure: int
    widest: str
    conditions: frozenset[tuple[str, str, int, str, str, str, int, str]]
    lost: tuple[str, ...]
    mostly_invalid: tuple[str, ...] = ()


def certainty(front: pd.DataFrame, within: float, factors: Mapping[str, tuple[str, int, str]]) -> Certainty:
    """The certainty of all that may be on a front: are latency and throughput known within a share of their medians?

    front: as from `analysis.fronts.front.front`, over one run; factors: those of its trials (`analysis.runs.setups`). A
    point may be on the front of its condition if it is feasible and was on that of all backends in more than `CHANCE`
    of the resamples, or too few rounds tell. It is known if neither end of either 95 % interval is farther from its
    median than `within` (0.05: 5 %), which needs `LEAST_VALUES` rounds. A point that has as many rounds and lacks
    latency or throughput is lost, and so is one that is not known and mostly invalid: neither counts as unsure, as
    what it lacks is not rounds.
    """
    tried = front["rounds"] + front["excluded"]
    has_both = front[["latency_s", "throughput_ips"]].notna().all(axis=1)
    lost = front[~has_both & (tried >= LEAST_VALUES)]
    may_be = ~(front["probability_all"] <= CHANCE) | front["on_front"].astype(bool)
    chosen = front[front["feasible"].astype(bool) & may_be & ~front.index.isin(lost.index)]
    off = pd.DataFrame({measure: halves(chosen, measure) for measure in MEASURES}, index=chosen.index)
    unknown = chosen[~(off <= within).all(axis=1)]
    is_invalid = (tried[unknown.index] >= FAIR_TRIAL) & (2 * unknown["rounds"] < tried[unknown.index])
    unsure, mostly_invalid = unknown[~is_invalid], unknown[is_invalid]
    keys = unsure[CONDITION].itertuples(index=False, name=None)
    return Certainty(
        rounds=int(tried.max()) if len(front) else 0,
        points=len(chosen) - len(mostly_invalid),
        unsure=len(unsure),
        widest=_widest(front, off.loc[unsure.index]),
        conditions=frozenset(
            (model, netem, int(batch), codec, (by := factors[str(setup)])[0], depth, *by[1:])
            for model, netem, batch, codec, depth, setup in keys
        ),
        lost=tuple(_named_in(front, row) for _, row in lost.iterrows()),
        mostly_invalid=tuple(_named_in(front, row) for _, row in mostly_invalid.iterrows()),
    )


def _widest(front: pd.DataFrame, off: pd.DataFrame) -> str:
    if not off.notna().to_numpy().any():
        return ""
    index, measure, size = widest(off)
    return f"{_named_in(front, front.loc[index])} {measure} ±{100 * size:.1f} %"


def _named_in(front: pd.DataFrame, row: pd.Series) -> str:
    """The row's cell, with its condition where there are several."""
    where = f" ({condition_title(row)})" if len(front[CONDITION].drop_duplicates()) > 1 else ""
    return f"{cell_name(row)}{where}"

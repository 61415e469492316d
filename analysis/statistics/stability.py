"""The steadiness of figures: whether they drift while a run goes on, doubts with advice, and who needs more rounds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import kendalltau, theilslopes

from pareto.analysis.naming import cell_name, cell_title, condition_title, count
from pareto.analysis.runs.points import CONDITION, TRIAL
from pareto.analysis.runs.standing import stands
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
"""A point is left aside once it was on the front in no more than this share of the draws."""
FAIR_TRIAL = 2 * LEAST_VALUES
"""After this many rounds, a point that is valid in every other one has an interval."""
LEAST_ROUNDS = 5
"""With n rounds the smallest p-value is 2 / n!: 0.08 with four of them."""
MOST_IN_PAIRS = 300
"""45 000 slopes: a line through more rounds costs seconds over many conditions, and is the same to a few percent."""
KEY = ["run", *CONDITION, "backend"]
COLUMNS = [*KEY, "measure", "rounds", *("change_percent", "p_value", "p_corrected", "drifts", "note")]


def drifts(trials: pd.DataFrame) -> pd.DataFrame:
    """One row per run, condition, backend and measure (`latency`, `throughput`), with columns `COLUMNS`.

    A round's level is the median, over its cells, of log(value / the cell's median over the rounds of its testbed). It
    is tested against the order of the rounds in time by Kendall's tau ("Rank Correlation Methods", 1948), and
    change_percent is what the Theil-Sen line through it makes from the first round to the last (Sen, Journal of the
    American Statistical Association 63, 1968). p_corrected: Holm's over all tests of the frame; drifts: it is 0.05 at
    most; note: why no test could find one.
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
    tests, rounds = int(result["p_value"].notna().sum()), result["rounds"].astype("int64")
    least = rounds.clip(upper=20).map(lambda n: 2 * tests / math.factorial(n))
    few = rounds.astype("str") + f" of the {LEAST_ROUNDS} rounds that a test needs"
    many = f"{tests} tests are too many for " + rounds.astype("str") + " rounds: none can say that it drifts"
    result["note"] = few.where(rounds < LEAST_ROUNDS, many.where(least > significance.ALPHA, ""))
    return result


def _rounds(trials: pd.DataFrame, column: str) -> dict[int, Floats]:
    """The rounds' figures in order, by the number of run, condition and backend."""
    measured = trials.loc[trials[column] > 0, ["of", "point", "testbed", "round", column]]
    usual = measured.groupby(["of", "point", "testbed"])[column].transform("median")
    by_round = np.log(measured[column] / usual).groupby([measured["of"], measured["round"]]).median()
    return {of: np.asarray(rounds, dtype=float) for of, rounds in by_round.groupby("of")}


def _trend(rounds: Floats) -> dict[str, float]:
    """A straight line's change over all rounds, and how likely chance is to order them as much."""
    n, p_value, slope = len(rounds), math.nan, math.nan
    if n >= LEAST_ROUNDS:
        # No order among equals is a trend.
        p_value = 1.0 if np.ptp(rounds) == 0 else float(kendalltau(np.arange(n), rounds).pvalue)
    if n > MOST_IN_PAIRS:
        rounds = pd.Series(rounds).groupby(np.arange(n) * MOST_IN_PAIRS // n).median().to_numpy()
    if n > 1:
        slope = float(theilslopes(rounds, np.linspace(0, 1, len(rounds))).slope)
    return {"rounds": n, "change_percent": 100 * math.expm1(slope), "p_value": p_value}


def doubts(front: pd.DataFrame, drifting: pd.DataFrame) -> Iterator[Doubt]:
    """At most one doubt of each kind, with how many points it is about and the worst; none if all is steady.

    A figure is unsteady if half of its 95 % interval is over `UNSTEADY` of its median; with too few rounds for an
    interval, if half of the range of its rounds is, which says less. drifting: as from `drifts`.
    """
    measured = front[front["rounds"] > 0]
    once = measured[measured["rounds"] == 1]
    if len(once):
        worst = once.loc[once["excluded"].idxmax()]
        at = f", and at {cell_title(worst)} {_lacking(worst)}" if worst["excluded"] else ""
        head = f"measured in one round: {len(once)} of {count(len(measured), 'point')}{at}"
        yield Doubt(head, "so that how steady the figures are is not known", (_more_rounds(worst),))
    # Figures with an interval, and those with the rounds' range alone, are not mixed.
    has = halves(measured).notna()
    few = ~has[measured["rounds"] > 1]
    with_one = "" if has.any(axis=1).all() else " with an interval"
    for known, such, ends, of, also in (
        (has, with_one, ("low", "high"), "of its median at 95 %,", " with both figures"),
        (few, " with too few rounds for an interval", ("least", "most"), "between its", ""),
    ):
        rows = measured.loc[known.index[known.any(axis=1)]]
        off = halves(rows, *ends).where(known)
        if (off > UNSTEADY).any(axis=None):
            index, measure = off.stack().idxmax()
            worst, size = rows.loc[index], float(off.loc[index, measure])
            rounds = count(int(worst["rounds"]), "round")
            # This figure may well count in those others.
            rounds += f"{also} ({_lacking(worst)})" if worst["excluded"] else ""
            more = _more_rounds(worst, size if ends[0] == "low" else math.nan)
            yield Doubt(
                f"unsteady: {(off > UNSTEADY).any(axis=1).sum()} of {count(len(rows), 'point')}{such}",
                f"most of all the {measure} of {cell_title(worst)}: ±{100 * size:.0f} % {of} {rounds}",
                (more, PROGRAMS, GOVERNOR, THROTTLE),
            )
    known = measured[measured["outliers"].notna()]
    outliers, trials = known["outliers"].sum(), known["rounds"].sum()
    if outliers > OUTLYING * trials:
        worst = known.loc[known["outliers"].idxmax()]
        yield Doubt(
            f"{outliers:.0f} of {trials:.0f} trials are outliers, and count as all others do",
            f"most at {cell_title(worst)}: {worst['outliers']:.0f} of {count(int(worst['rounds']), 'round')}",
            (PROGRAMS,),
        )
    found = drifting[drifting["drifts"].astype(bool) & (drifting["change_percent"].abs() >= WORTH_REPORTING)]
    if len(found):
        worst = found.loc[found["change_percent"].abs().idxmax()]
        yield Doubt(
            f"drift: {worst['measure']} of {condition_title(worst)} over {worst['backend']} went "
            f"{worst['change_percent']:+.1f} % from the first round to the last of {worst['rounds']}"
            f"{f' (and {len(found) - 1} more of {len(drifting)})' if len(found) > 1 else ''}",
            cures=("let the devices warm up", THROTTLE, AGAIN),
        )


def halves(rows: pd.DataFrame, low: str = "low", high: str = "high") -> pd.DataFrame:
    """The shares of its median by which each row's latency and throughput may be off: the longer half of its interval;
    NaN where it has none. low, high: which columns are its ends; `least` and `most` are those of the rounds' range.
    """
    shares = {}
    for measure, column in significance.MEASURES.items():
        median, unit = rows[column], column.removeprefix(f"{measure}_")
        below, above = median - rows[f"{measure}_{low}_{unit}"], rows[f"{measure}_{high}_{unit}"] - median
        shares[measure] = np.maximum(below, above) / median
    return pd.DataFrame(shares)


def _more_rounds(row: pd.Series, size: float = math.nan) -> str:
    """The remedy for an interval that is missing, or too long by its size: it shrinks as the root of the rounds.

    A run that lost rounds is not helped by as many again, and as many as before will be lost.
    """
    tried = row["rounds"] + row["excluded"]
    if math.isnan(size):
        return RESUME if tried >= LEAST_VALUES else f"--trials {LEAST_VALUES}, or {RESUME}"
    more = math.ceil(tried * (size / UNSTEADY) ** 2)
    too_many = f"steady figures of {cell_name(row)} would take over {MOST_ROUNDS} rounds"
    return f"--trials {more}, or {RESUME}" if more <= MOST_ROUNDS else too_many


def _lacking(row: pd.Series) -> str:
    """`2 more without a valid latency or throughput`: rounds of which not both figures count; one of them may."""
    return f"{row['excluded']:.0f} more without a valid latency or throughput"


class Certainty(NamedTuple):
    """The certainty of a front's figures after some rounds: how many points may be on a front, how many of these are
    unsure, in which conditions (as `CONDITION` without the setup), and in words the widest of them (empty without
    intervals) and those that are lost or mostly invalid.
    """

    rounds: int
    points: int
    unsure: int
    widest: str
    conditions: frozenset[tuple[str, str, int, str, str, str, int, str]]
    lost: tuple[str, ...]
    mostly_invalid: tuple[str, ...] = ()


def certainty(front: pd.DataFrame, within: float) -> Certainty:
    """The certainty of all that may be on a front: are latency and throughput known within a share of their medians?

    front: as from `analysis.fronts.front.front`, over one run. A point may be on the front of its condition if it is
    feasible and was on that of all backends in more than `CHANCE` of the draws, or too few rounds tell. It is known if
    neither end of either 95 % interval is farther from its median than `within` (0.05: 5 %), which needs `LEAST_VALUES`
    rounds. A point that has as many and lacks latency or throughput is lost; one that is not known and was valid in
    fewer than half of `FAIR_TRIAL` rounds is mostly invalid: neither is unsure, as it is not rounds that it lacks.
    """
    tried, off = front["rounds"] + front["excluded"], halves(front)
    name = cell_title if len(front[CONDITION].drop_duplicates()) > 1 else cell_name
    is_lost = front[["latency_s", "throughput_ips"]].isna().any(axis=1) & (tried >= LEAST_VALUES)
    may_be = ~(front["probability_all"] <= CHANCE) | front["on_front"].astype(bool)
    chosen = front["feasible"].astype(bool) & may_be & ~is_lost
    unknown = chosen & ~(off <= within).all(axis=1)
    is_invalid = unknown & (tried >= FAIR_TRIAL) & (2 * front["rounds"] < tried)
    unsure = unknown & ~is_invalid
    widest = ""
    if off[unsure].notna().any(axis=None):
        index, measure = off[unsure].stack().idxmax()
        widest = f"{name(front.loc[index])} {measure} ±{100 * off.loc[index, measure]:.1f} %"
    keys = front.loc[unsure, CONDITION[:-1]].astype({"prefetch_asked": int})
    return Certainty(
        rounds=int(tried.max()) if len(front) else 0,
        points=int((chosen & ~is_invalid).sum()),
        unsure=int(unsure.sum()),
        widest=widest,
        conditions=frozenset(keys.itertuples(index=False, name=None)),
        lost=tuple(map(name, front[is_lost].to_dict("records"))),
        mostly_invalid=tuple(map(name, front[is_invalid].to_dict("records"))),
    )

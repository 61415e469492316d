"""Whether figures wander while a run goes on: a machine that warms up, something else that begins."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from scipy.stats import kendalltau, theilslopes

from analysis.points import CONDITION, TRIAL
from analysis.statistics.samples import Floats
from analysis.statistics.significance import holm

MEASURES = {"latency": "latency_s", "throughput": "throughput_ips"}
LEVEL = 0.05
LEAST_ROUNDS = 5
"""With n rounds the smallest p-value is 2 / n!: 0.08 with four of them."""
MOST_IN_PAIRS = 300
"""45 000 slopes: a line through more rounds costs seconds over many conditions, and is the same to a few percent."""
NONE = np.empty(0)
KEY = ["run", *CONDITION, "backend"]
COLUMNS = [*KEY, "measure", "rounds", *("change_percent", "p_value", "p_corrected", "drifts", "note")]


def drifts(trials: pd.DataFrame) -> pd.DataFrame:
    """One row per run, condition, backend and measure (`latency`, `throughput`), with columns `COLUMNS`.

    Run by run: between two of them lies more than time, and a step from one to the other is no drift.

    What a round says is the median, over its cells, of log(value / the cell's median over rounds): how much slower or
    faster all of it was than usual. That is tested against the order of the rounds in time by Kendall's tau (exact
    where nothing is tied; Kendall, "Rank Correlation Methods", 1948), and change_percent is what the Theil-Sen line
    through it makes from the first round to the last (Sen, Journal of the American Statistical Association 63, 1968).
    p_corrected: Holm's over all tests of the frame; drifts: it is 0.05 at most. A trend is found that goes one way
    on the whole; one that comes and goes is not. A drift says that rounds are not alike, not what made them differ.

    Only trials with status `ok` count. With fewer than `LEAST_ROUNDS` rounds there is no test: p_value and
    p_corrected are NaN, drifts is false and `note` says so; it also says where there are too many tests for so few
    rounds.
    """
    ok = trials.loc[trials["status"] == "ok", [*TRIAL, *MEASURES.values()]]
    # Numbers instead of texts: a million rows are grouped by them several times.
    ok = ok.assign(
        of=ok.groupby(KEY, dropna=False, observed=True).ngroup(), point=pd.factorize(ok["point"])[0]
    )
    by_round = {measure: _rounds(ok, column) for measure, column in MEASURES.items()}
    rows = [
        {name: row[name] for name in KEY} | {"measure": measure} | _trend(rounds.get(row["of"], NONE))
        for row in ok.drop_duplicates("of").sort_values("of").to_dict("records")
        for measure, rounds in by_round.items()
    ]
    result: pd.DataFrame = pd.DataFrame(rows, columns=COLUMNS)
    result["p_corrected"] = holm(result["p_value"].to_numpy(dtype=float))
    result["drifts"] = result["p_corrected"] <= LEVEL
    tests = int(result["p_value"].notna().sum())
    result["note"] = [_note(rounds, tests) for rounds in result["rounds"]]
    return result


def _rounds(trials: pd.DataFrame, column: str) -> dict[int, Floats]:
    """The rounds' figures in order, by the number of run, condition and backend."""
    measured = trials.loc[trials[column] > 0, ["of", "point", "round", column]]
    usual = measured.groupby(["of", "point"])[column].transform("median")
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


def _note(rounds: int, tests: int) -> str:
    """Why no drift could be found, whatever the figures are."""
    if rounds < LEAST_ROUNDS:
        return f"{rounds} of the {LEAST_ROUNDS} rounds that a test needs"
    if 2 / math.factorial(min(rounds, 20)) * tests > LEVEL:
        return f"{tests} tests are too many for {rounds} rounds: none can say that it drifts"
    return ""

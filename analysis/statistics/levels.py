"""Where the spread of the latency comes from: between runs, between starts of the workers, between rounds, between
requests. More repetition helps at the level that varies, and at no other.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.keys import CELL
from analysis.runs.folders import Runs
from analysis.runs.requests import spread_within
from analysis.statistics.floor import OF
from analysis.statistics.median import Floats

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Level:
    """variance: of the logarithm of a request's latency, between the units of this level; NaN if it can't be told.

    why: why not.
    """

    name: str
    variance: float
    why: str = ""


def levels(trials: pd.DataFrame, request_variance: float, requests: float) -> list[Level]:
    """Of one model in one setup: runs, starts, rounds, requests.

    trials: as `analysis.runs.trials.load` gives them. request_variance: of the logarithms of the latencies in a trial;
    requests: how many a trial has; NaN without files of requests.

    Nested analysis of variance by moments: each level's mean square less that of the level below, over how many of
    those below a unit has (Searle, Casella & McCulloch, "Variance Components", 1992, ch. 3). Of each cell its own mean
    is taken out first. A component that comes out below 0 is 0.
    """
    ok = trials[(trials["status"] == "ok") & (trials["latency_s"] > 0)]
    if "restart" not in ok:
        ok = ok.assign(restart=np.nan)
    ok = ok.assign(log=np.log(ok["latency_s"]), start=ok["restart"].fillna(0))
    nested = [[*CELL], [*CELL, "run"], [*CELL, "run", "start"]]
    squares = [
        (ok["log"] - ok.groupby(by, observed=True)["log"].transform("mean")).pow(2).sum() for by in nested
    ]
    groups = [ok.groupby(by, observed=True).ngroups for by in nested]
    within, free = squares[2], len(ok) - groups[2]
    of_round = within / free if free > 0 else np.nan
    starts_ms = _mean_square(squares[1] - squares[2], groups[2] - groups[1])
    runs_ms = _mean_square(squares[0] - squares[1], groups[1] - groups[0])
    found = []
    below = of_round if np.isnan(starts_ms) else starts_ms
    for name, square, inner, units, only in (
        ("runs", runs_ms, below, groups[1], "there is one run"),
        (
            "starts of the workers",
            starts_ms,
            of_round,
            groups[2],
            "in each run the workers were started once",
        ),
    ):
        if np.isnan(square):
            found.append(Level(name, np.nan, only))
        elif np.isnan(inner):
            found.append(Level(name, np.nan, "each has one round, so that rounds and they are one"))
        else:
            found.append(Level(name, max(0.0, (square - inner) * units / len(ok))))
    if np.isnan(of_round):
        found.append(Level("rounds", np.nan, "no cell was measured twice by the same workers"))
    else:
        # A trial's median of so many requests varies by itself.
        own = np.pi / 2 * request_variance / requests if requests > 0 else 0.0
        found.append(Level("rounds", max(0.0, of_round - (own if np.isfinite(own) else 0.0))))
    why = "" if np.isfinite(request_variance) else "no requests were kept"
    found.append(Level("requests", request_variance, why))
    return found


def sentences(trials: pd.DataFrame, runs: Runs) -> Iterator[str]:
    """A line for each model and setup that has two rounds or more."""
    for key, of_model in trials.groupby(OF, observed=True):
        found = levels(of_model, *spread_within(runs, of_model))
        known = [level for level in found if np.isfinite(level.variance)]
        total = sum(level.variance for level in known)
        if len(known) < 2 or not total:
            continue
        model, setup = map(str, key)
        yield f"spread of the latency of {f'{model}, {setup}' if setup else model}: {_shares(found, total)}"


def _shares(found: Sequence[Level], total: float) -> str:
    told = [
        f"{100 * level.variance / total:.0f} % between {level.name} (a standard deviation of "
        f"{100 * np.sqrt(level.variance):.2g} %)"
        for level in found
        if np.isfinite(level.variance)
    ]
    unknown = [f"between {level.name} it is not known, for {level.why}" for level in found if level.why]
    return "; ".join([", ".join(told), *unknown])


def _mean_square(squares: float, freedom: int) -> float:
    return squares / freedom if freedom > 0 else np.nan


def of_runs(logs: Floats, run: Ints) -> Floats:
    """Of each objective, the standard deviation that a cell's figure has as its runs differ, and rounds do not show.

    logs: rounds x cells x objectives; run: of which each round is. Between the runs' means of a cell, what rounds share
    taken out, less what their rounds explain; over the number of runs. 0 with one run.
    """
    numbers, sizes = np.unique(run, return_counts=True)
    if len(numbers) < 2 or sizes.min() < 2:
        return np.zeros(logs.shape[2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a cell that a run lacks has no mean there
        away = logs - np.nanmean(logs, axis=1, keepdims=True)
        means = np.stack([np.nanmean(away[run == number], axis=0) for number in numbers])
        inner = [
            np.nanvar(away[run == number], axis=0, ddof=1) / size
            for number, size in zip(numbers, sizes, strict=True)
        ]
        between = np.nanmean(np.nanvar(means, axis=0, ddof=1), axis=0)
        beyond = between - np.nanmean(np.stack(inner), axis=(0, 1))
    return np.asarray(np.sqrt(np.maximum(0.0, np.nan_to_num(beyond)) / len(numbers)))

"""Noise that more rounds do not show: the floor under every comparison, and the levels at which the latency varies.

Each cell of a run has its own connections and place in memory, the same in all of its rounds. Where one treatment is
measured under several names (a point where nothing crosses, under each backend; `tcp:a` and `tcp:b`), what they differ
by beyond their rounds' spread is the noise floor.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pareto.analysis.naming import count, model_title, transport
from pareto.analysis.runs.points import CELL, CONDITION, ROUND, round_of
from pareto.analysis.runs.requests import request_files, spread_within
from pareto.analysis.runs.standing import stands
from pareto.analysis.statistics.samples import Floats, Ints

OF = ["model", "engine", "prefetch_asked", "allocator", "setup"]
"""The columns that are the same for all that has one noise floor."""
_SAME = ["run", *CONDITION, "point", "treatment"]
MEASURES = {"latency_s": "latency", "throughput_ips": "throughput"}


class Floor(NamedTuple):
    """The noise floor of one model, set up in one way. shares: by column, the standard deviation of a cell's figure as
    a share of it. comparisons: how many identical treatments were compared with another.
    """

    shares: Mapping[str, float] = {}
    comparisons: int = 0

    def of(self, columns: Sequence[str]) -> Floats:
        """The shares of these columns; 0 where one is not known."""
        return np.array([self.shares.get(column, 0.0) for column in columns])


Floors = Mapping[tuple[str, ...], Floor]
"""By the values of `OF`."""


def floor_of(floors: Floors, row: Mapping[Any, Any] | pd.Series) -> Floor:
    """The floor of a row, by its values of `OF`; one without shares where none is known. A row of no engine (empty
    text) is of any: it has the greatest share of any engine.
    """
    key = [str(row[name]) for name in OF]
    same = [
        floor.shares
        for of, floor in floors.items()
        if all(own in (each, "") for own, each in zip(key[:2], of[:2], strict=True)) and key[2:] == [*of[2:]]
    ]
    names = {name for shares in same for name in shares}
    return Floor({name: max(shares.get(name, 0.0) for shares in same) for name in names})


def floors(trials: pd.DataFrame, columns: Sequence[str] = tuple(MEASURES)) -> Floors:
    """The noise floors, from trials as they were measured: points must not be pooled already.

    The variance between the means over rounds of what is identical, less what the rounds' own spread makes of it; both
    of logarithms, and without what a round's trials share (a random effect in an analysis of variance; Searle, Casella
    & McCulloch, "Variance Components", 1992). Nothing where no treatment was measured twice.
    """
    wanted = [column for column in columns if column in trials]
    needed = dict.fromkeys([*CONDITION, *ROUND, "backend", "point", "payload_bytes", *wanted])
    ok = trials.loc[stands(trials), [name for name in needed if name in trials]]
    crosses = ok["payload_bytes"] > 0 if "payload_bytes" in ok else pd.Series(True, index=ok.index)
    kinds = {name: transport(str(name)) for name in ok["backend"].unique()}
    ok = ok.assign(treatment=ok["backend"].astype(object).map(kinds).where(crosses, "")).dropna(subset=_SAME)
    treatment = ok.groupby(_SAME, observed=True).ngroup()
    name = pd.Series(pd.factorize(ok["backend"], sort=True)[0], ok.index)
    several = name.groupby(treatment).transform("nunique") > 1
    ok = ok.assign(number=treatment, name=name)[several]
    ok["in_round"] = round_of(ok)
    result = {}
    for key, of_model in ok.groupby(OF, observed=True):
        each = [(rows["name"].nunique() - 1, _excess(rows, wanted)) for _, rows in of_model.groupby("number")]
        pairs = [(names, excess) for names, excess in each if np.isfinite(excess).any()]
        if freedom := sum(names for names, _ in pairs):
            beyond = np.nan_to_num(sum(names * excess for names, excess in pairs) / freedom)
            shares = dict(zip(wanted, np.sqrt(np.maximum(0.0, beyond)), strict=True))
            result[tuple(map(str, key))] = Floor(shares, int(freedom))
    return result


def _excess(rows: pd.DataFrame, columns: Sequence[str]) -> Floats:
    """The variance between the means of one treatment's names less what rounds explain, for each column; NaN with fewer
    than 2 rounds that all names have that have any.
    """
    (_, rounds), (_, names) = (np.unique(rows[name], return_inverse=True) for name in ("in_round", "name"))
    result = np.full(len(columns), np.nan)
    for number, column in enumerate(columns):
        table = np.full((rounds.max() + 1, names.max() + 1), np.nan)
        table[rounds, names] = rows[column].to_numpy(dtype=float)
        table = table[:, ~np.isnan(table).all(axis=0)]
        table = table[~np.isnan(table).any(axis=1)]
        if min(table.shape) < 2 or not (table > 0).all():
            continue
        logs = np.log(table)
        logs -= logs.mean(axis=1, keepdims=True)
        means, freedom = logs.mean(axis=0), table.shape[1] - 1
        between = float((means**2).sum()) / freedom
        within = float(((logs - means) ** 2).sum()) / ((len(table) - 1) * freedom)
        result[number] = between - within / len(table)
    return result


def floor_sentences(known: Floors) -> Iterator[str]:
    """A line for each model, set up in one way, that has identical treatments."""
    for key, floor in known.items():
        shares = {word: floor.shares[column] for column, word in MEASURES.items() if column in floor.shares}
        each = ", ".join(f"{100 * share:.2g} % in {word}" for word, share in shares.items())
        again = f"({count(floor.comparisons, 'comparison')})"
        said = f"identical treatments differ by no more than their rounds explain {again}"
        if any(share >= 0.0005 for share in shares.values()):
            said = (
                f"{each}: identical treatments differ by this much beyond what their rounds explain {again}; every "
                "probability includes it, and no difference that it can explain is called significant"
            )
        title = model_title(dict(zip(OF, key, strict=True)))
        yield f"noise floor of {title}: {said}"


class Level(NamedTuple):
    """`variance`: of the logarithms of requests' latencies, between units of this level; NaN where `why` says why."""

    name: str
    variance: float
    why: str = ""


def levels(trials: pd.DataFrame, request_variance: float, requests: float) -> list[Level]:
    """The levels of the spread of one model's latency, set up in one way: runs, testbeds where a run has several,
    starts of the workers, rounds, requests. More repetition helps at the level that varies, and at no other.

    request_variance: of the logarithms of the latencies in a trial; requests: how many it has; NaN without their files.

    Nested analysis of variance by moments: each level's mean square less that of the level below, over how many of
    those below a unit has (Searle, Casella & McCulloch, "Variance Components", 1992, ch. 3); 0 if that is less.
    """
    is_ok = stands(trials, "latency") & (trials["latency_s"] > 0)
    ok = trials.reindex(columns=[*CELL, "run", "testbed", "restart", "latency_s"])[is_ok.to_numpy()]
    ok = ok.assign(log=np.log(ok["latency_s"]), start=ok["restart"].fillna(0))
    several = ok.groupby("run")["testbed"].nunique().gt(1).any()
    within = [
        ("runs", "run", "there is one run"),
        *([("testbeds", "testbed", "each run has one")] if several else []),
        ("starts of the workers", "start", "in each run the workers were started once"),
        ("rounds", "", "no cell was measured twice by the same workers"),
    ]
    columns = [column for _, column, _ in within if column]
    nested = [ok.groupby([*CELL, *columns[:depth]], observed=True) for depth in range(len(columns) + 1)]
    squares = [(ok["log"] - groups["log"].transform("mean")).pow(2).sum() for groups in nested] + [0.0]
    sizes = [groups.ngroups for groups in nested] + [len(ok)]
    # A trial's median varies by itself, as its requests do.
    below = float(np.nan_to_num(np.pi / 2 * request_variance / requests))
    found = [Level("requests", request_variance, "" if request_variance >= 0 else "no requests were kept")]
    for place, (name, _, only) in reversed([*enumerate(within)]):
        freedom = sizes[place + 1] - sizes[place]
        square = (squares[place] - squares[place + 1]) / freedom if freedom > 0 else np.nan
        variance = (square - below) * sizes[place + 1] / max(1, len(ok))
        both = "each has one round, so that rounds and they are one"
        why = only if np.isnan(square) else both if np.isnan(below) else ""
        found.append(Level(name, variance if why else max(0.0, variance), why))
        below = below if np.isnan(square) and name != "rounds" else square
    return found[::-1]


def spread_sentences(trials: pd.DataFrame, runs: Sequence[Path]) -> Iterator[str]:
    """A line for each model, set up in one way, that has two rounds or more; runs: the folders of the trials."""
    files = request_files(runs)
    for key, of_model in trials.groupby(OF, observed=True):
        every = levels(of_model, *spread_within(files, of_model))
        known = {level.name: level.variance for level in every if not level.why}
        if len(known) > 1 and (total := sum(known.values())):
            told = [
                f"{100 * variance / total:.0f} % between {name} (a standard deviation of {100 * variance**0.5:.2g} %)"
                for name, variance in known.items()
            ]
            unknown = [f"between {each.name} it is not known, for {each.why}" for each in every if each.why]
            title = model_title(dict(zip(OF, key, strict=True)))
            yield f"spread of the latency of {title}: {'; '.join([', '.join(told), *unknown])}"


def spread_of(logs: Floats, whole: Ints) -> Floats:
    """The standard deviation, by objective, that a cell's figure has as whole runs, or testbeds, differ: of the means
    of a cell there, what rounds share taken out, less what their rounds explain. 0 unless two have two rounds or more.

    logs: rounds x cells x objectives; whole: of which run or testbed each round is.
    """
    numbers, sizes = np.unique(whole, return_counts=True)
    numbers = numbers[sizes > 1]
    if len(numbers) < 2:
        return np.zeros(logs.shape[2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a cell that a run lacks has no mean there
        away = logs - np.nanmean(logs, axis=1, keepdims=True)
        parts = [away[whole == number] for number in numbers]
        means = np.stack([np.nanmean(rounds, axis=0) for rounds in parts])
        inner = np.stack([np.nanvar(rounds, axis=0, ddof=1) / len(rounds) for rounds in parts])
        beyond = np.nanmean(np.nanvar(means, axis=0, ddof=1), axis=0) - np.nanmean(inner, axis=(0, 1))
    return np.asarray(np.sqrt(np.maximum(0.0, np.nan_to_num(beyond)) / len(numbers)))

"""The engine of each row, and those at work on its hosts. Each engine of a run is a setup of its own."""

from __future__ import annotations

import pandas as pd

from pareto.analysis.points import cuts, hosts, nothing_crosses

EAGER = "eager"
"""The engine of a trial for which nothing was built: the base that others are compared with."""
BUT_ENGINE, BUT_FACTORS = "setup_but_engine", "setup_but_factors"
"""Columns that trials have where `setup` names a factor, such as an engine: the setup without it, and without any."""
_JOINS, _IS = "+", "="


def engines(rows: pd.DataFrame) -> pd.Series:
    """The engine of each row; runs from before there were engines do not say it."""
    return told(rows, "engine", EAGER)


def told(rows: pd.DataFrame, column: str, usual: str) -> pd.Series:
    """Each row's value in a column, in text; the usual one where that is not recorded."""
    if column not in rows:
        return pd.Series(usual, index=rows.index, dtype="str")
    values = rows[column].astype(object).fillna("").astype("str")
    return values.where(values != "", usual)


def setup_of(setup: str, engine: str) -> str:
    """The setup of trials of an engine, where several were measured: `edge_cpu=0.25 onnx`, or `onnx`."""
    return f"{setup} {engine}" if setup else engine


def without_engine(rows: pd.DataFrame) -> pd.Series:
    """The setup of each row without its engine: what is the same for trials that differ by their engines alone."""
    return _part(rows, BUT_ENGINE)


def without_factors(rows: pd.DataFrame) -> pd.Series:
    """The setup of each row without what a trial may differ by: what hosts and settings have in common."""
    return _part(rows, BUT_FACTORS)


def _part(rows: pd.DataFrame, column: str) -> pd.Series:
    setup = rows["setup"].astype("str")
    return setup if column not in rows else rows[column].astype(object).fillna(setup).astype("str")


def of_role(named: str, role: str, usual: str = EAGER) -> str:
    """The engine of a host: `onnx` of `edge=onnx` at the edge, `eager` at the server; or its allocator, by `usual`."""
    if _IS not in named:
        return named
    parted = (part.partition(_IS) for part in named.split(_JOINS))
    return next((name for which, _, name in parted if which == role), usual)


def at_work(rows: pd.DataFrame) -> pd.Series:
    """The engines that run the units of each trial: `edge=onnx+server=onnx`, of the hosts that have any.

    Trials of one point that have the same here are the same treatment.
    """
    alone = nothing_crosses(rows)
    last = {str(model): cuts(str(point))[0] for model, point in _once(rows[alone], "model", "point")}
    named = {
        (model, engine, point): _at_work(engine, point, last.get(model))
        for model, engine, point in _once(rows.assign(engine=engines(rows)), "model", "engine", "point")
    }
    keys = zip(rows["model"].astype("str"), engines(rows), rows["point"].astype("str"), strict=True)
    return pd.Series([named[key] for key in keys], index=rows.index, dtype="str")


def work_names(rows: pd.DataFrame) -> pd.Series:
    """`at_work` in short: `onnx` where all working hosts have it, `edge=onnx` where the others are eager."""
    works = at_work(rows)
    return works.map({work: _short(work) for work in works.unique()})


def _short(work: str) -> str:
    named = dict(part.split(_IS) for part in work.split(_JOINS) if part)
    if len(set(named.values())) <= 1:
        return next(iter(named.values()), EAGER)
    return _JOINS.join(f"{role}{_IS}{name}" for role, name in named.items() if name != EAGER)


def _once(rows: pd.DataFrame, *columns: str) -> list[tuple[str, ...]]:
    return list(rows[[*columns]].astype("str").drop_duplicates().itertuples(index=False, name=None))


def _at_work(engine: str, point: str, last: int | None) -> str:
    ends = [0, *cuts(point), last]
    working = [
        f"{role}{_IS}{of_role(engine, role)}"
        for role, first, end in zip(hosts(point), ends, ends[1:], strict=False)
        if first != end
    ]
    return _JOINS.join(working)

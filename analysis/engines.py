"""The engine of each row, and those at work on its hosts. Each engine of a run is a setup of its own."""

from __future__ import annotations

import pandas as pd

from pareto.analysis.points import cuts, hosts, nothing_crosses

EAGER = "eager"
"""The engine of a trial for which nothing was built: the base that others are compared with."""
BUT_ENGINE, BUT_FACTORS = "setup_but_engine", "setup_but_factors"
"""Columns that trials have where `setup` names a factor, such as an engine: the setup without it, and without any."""


def engines(rows: pd.DataFrame) -> pd.Series:
    """The engine of each row."""
    return told(rows, "engine", EAGER)


def told(rows: pd.DataFrame, column: str, usual: str) -> pd.Series:
    """Each row's value in a column, in text; the usual one where that is not recorded."""
    values = rows.get(column, pd.Series("", index=rows.index)).astype("str")
    return values.replace("", usual)


def setup_of(setup: str, engine: str) -> str:
    """The setup of trials of an engine, where several were measured: `edge_cpu=0.25 onnx`, or `onnx`."""
    return f"{setup} {engine}".strip()


def without_engine(rows: pd.DataFrame, part: str = BUT_ENGINE) -> pd.Series:
    """The setup of each row without its engine: what is the same for trials that differ by their engines alone."""
    setup = rows["setup"].astype("str")
    return rows.get(part, setup).astype(object).fillna(setup).astype("str")


def without_factors(rows: pd.DataFrame) -> pd.Series:
    """The setup of each row without what a trial may differ by: what hosts and settings have in common."""
    return without_engine(rows, BUT_FACTORS)


def of_role(named: str, role: str, usual: str = EAGER) -> str:
    """The engine of a host: `onnx` of `edge=onnx` at the edge, `eager` at the server; or its allocator, by `usual`."""
    return _by_role(named).get(role, usual) if "=" in named else named


def at_work(rows: pd.DataFrame) -> pd.Series:
    """The engines that run the units of each trial: `edge=onnx+server=onnx`, of the hosts that have any.

    Trials of one point that have the same here are the same treatment.
    """
    named = rows[["model", "point"]].astype("str").assign(engine=engines(rows))
    alone = named[nothing_crosses(rows)].drop_duplicates("model", keep="last")
    last = {model: cuts(point)[0] for model, point in zip(alone["model"], alone["point"], strict=True)}
    works = named.drop_duplicates()
    each = zip(works["model"], works["point"], works["engine"], strict=True)
    works = works.assign(work=[_at_work(engine, point, last.get(model)) for model, point, engine in each])
    return named.merge(works, how="left")["work"].set_axis(rows.index)


def work_names(rows: pd.DataFrame) -> pd.Series:
    """`at_work` in short: `onnx` where all working hosts have it, `edge=onnx` where the others are eager."""
    works = at_work(rows)
    return works.map({work: _short(work) for work in works.unique()})


def _by_role(work: str) -> dict[str, str]:
    return dict(part.split("=") for part in work.split("+") if part)


def _short(work: str) -> str:
    named = _by_role(work)
    if len(set(named.values())) <= 1:
        return next(iter(named.values()), EAGER)
    return "+".join(f"{role}={name}" for role, name in named.items() if name != EAGER)


def _at_work(engine: str, point: str, last: int | None) -> str:
    ends = [0, *cuts(point), last]
    working = [
        f"{role}={of_role(engine, role)}"
        for role, first, end in zip(hosts(point), ends, ends[1:], strict=False)
        if first != end
    ]
    return "+".join(working)

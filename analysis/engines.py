"""The engines at work on the hosts of each row."""

from __future__ import annotations

import pandas as pd

from pareto.analysis.naming import USUAL
from pareto.analysis.points import cuts, hosts, nothing_crosses

EAGER = USUAL["engine"]
"""The engine of a trial for which nothing was built: the base that others are compared with."""


def of_role(named: str, role: str, usual: str = EAGER) -> str:
    """The engine of a host: `onnx` of `edge=onnx` at the edge, `eager` at the server; or its allocator, by `usual`."""
    return _by_role(named).get(role, usual) if "=" in named else named


def at_work(rows: pd.DataFrame) -> pd.Series:
    """The engines that run the units of each trial: `edge=onnx+server=onnx`, of the hosts that have any.

    Trials of one point that have the same here are the same treatment.
    """
    named = rows[["model", "point", "engine"]].astype("str")
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

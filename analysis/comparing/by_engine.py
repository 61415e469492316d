"""Engines in plain words: which one computes a host's stages fastest, and how long each takes to build them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pandas as pd

from pareto.analysis.comparing.paired import ALL, SIDES
from pareto.analysis.naming import unusual
from pareto.analysis.runs.points import CONDITION, EAGER, of_role
from pareto.analysis.statistics.samples import interval
from pareto.analysis.wording import percentage
from pareto.remote.link.units import duration

_OF = [name for name in CONDITION if name not in ("netem", "codec", "engine")]
"""The columns that the stages of one sentence have in common: neither network nor codec is in their times."""
_SAME = 0.2
"""Two times to build a stage that differ by less than this share are one."""


class _Against(NamedTuple):
    """How much longer a host's stages take by an engine than by the base (%, 95 % interval; NaN: too few values)."""

    middle: float
    low: float
    high: float
    engine: str

    def __str__(self) -> str:
        size, way = percentage(abs(self.middle)), "less" if self.middle < 0 else "more"
        if math.isnan(self.low):
            return f"{size} % {way} (too few values for an interval) by {self.engine}"
        if self.low <= 0 <= self.high:
            span = f"{percentage(self.low, '+')} to {percentage(self.high, '+')} %: no difference seen"
        else:
            span = " to ".join(percentage(end) for end in sorted((abs(self.low), abs(self.high)))) + " %"
        return f"{size} % {way} (95 %: {span}) by {self.engine}"


def sides(rows: pd.DataFrame) -> Iterator[str]:
    """Yield a line for each model (batch size, requests in flight, setup) and host: by which engine its stages take
    least time, against the base; and whether that is sure. Nothing with one engine.

    rows: of `paired`, of engines: each value is a point's in one network; a host without units counts for no
    engine. An engine is the best if its interval is below 0 and below all others'.
    """
    for _, of in rows[rows["point"] != ALL].groupby(_OF, dropna=False, observed=True, sort=False):
        row = of.iloc[0]
        batch = f"batch size {row['batch_size']}" if row["batch_size"] != 1 else ""
        parts = (str(row["model"]), batch, *unusual(row, "codec", "engine"), str(row["setup"]))
        for side in SIDES:
            base, column = of_role(str(row["first"]), side), f"{side}_difference_percent"
            own = of.assign(engine=[of_role(str(other), side) for other in of["other"]])
            own = own[own["engine"] != base].dropna(subset=[column])
            found = [
                _Against(float(values.median()), *(interval([*values]) or (math.nan, math.nan)), str(name))
                for name, values in own.groupby("engine")[column]
            ]
            if found:
                yield f"{', '.join(filter(None, parts))}: on the {side} {_best(base, found)}"


def _best(base: str, found: Sequence[_Against]) -> str:
    """`onnx is fastest: against eager its stages take 34 % less (95 %: ...) by onnx, 12 % less (...) by compile`."""
    best, *others = sorted(found)
    close = [each.engine for each in others if each.low <= best.high]
    if any(math.isnan(each.low) for each in found):
        told = "the trials do not decide which engine is fastest"
    elif best.high >= 0:
        is_base = all(each.low > 0 for each in found)
        told = f"{base} is fastest" if is_base else f"no engine is surely faster than {base}"
    elif close:
        told = f"no difference is seen between {best.engine} and {' or '.join(close)}"
    else:
        told = f"{best.engine} is fastest"
    return f"{told}: against {base} its stages take {', '.join(map(str, (best, *others)))}"


def start_up(stages: pd.DataFrame) -> Iterator[str]:
    """Yield a line for each model and engine: how long its hosts took to build a stage, before anything was timed: for
    the first time in a run, and when the stage came back, where that differs. From the frame of `analysis.stages`.
    """
    if "engine_s" not in stages:
        return
    built = stages[stages["engine_s"].notna()]
    pairs = zip(built["engine"].astype("str"), built["host"].astype("str"), strict=True)
    built = built.assign(engine=[of_role(engine, host) for engine, host in pairs])
    built = built[built["engine"] != EAGER]
    stage = ["run", "model", "batch_size", "point", "host", "engine"]
    built = built.assign(is_again=built.duplicated(stage))
    for (model, engine), rows in built.groupby(["model", "engine"], observed=True):
        told = []
        for host, of_host in rows.groupby("host", observed=True):
            first, again = (of_host.loc[of_host["is_again"] == which, "engine_s"] for which in (False, True))
            text = f"{duration(first.median())} on the {host}"
            text += f" (at most {duration(first.max())})" if first.max() > first.median() else ""
            if len(again):
                as_long = abs(again.median() / first.median() - 1) < _SAME
                text += ", and as long again" if as_long else f", and again in {duration(again.median())}"
            told.append(text)
        yield f"{model}: {engine} builds a stage in {'; '.join(told)}"

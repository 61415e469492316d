"""Engines in plain words: which one computes a host's stages fastest, and how long each takes to build them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pareto.analysis.comparing.paired import SIDES, compared
from pareto.analysis.engines import EAGER, engines, of_role
from pareto.analysis.naming import in_flight
from pareto.analysis.points import CONDITION
from pareto.analysis.statistics.samples import LEAST_VALUES, Floats, interval
from pareto.analysis.wording import percentage
from pareto.remote.link.units import duration

_OF = [name for name in CONDITION if name not in ("netem", "codec")]
"""The columns that the stages of one sentence have in common: neither network nor codec is in their times."""
_SAME = 0.2
"""Two times to build a stage that differ by less than this share are one."""


@dataclass(frozen=True)
class Against:
    """How much longer the stages of a host take by an engine than by the base, in percent: the median, with its 95 %
    interval, NaN where there are too few values.
    """

    engine: str
    middle: float
    low: float
    high: float

    @property
    def is_known(self) -> bool:
        return not math.isnan(self.low)

    @property
    def is_less(self) -> bool:
        return self.high < 0

    def words(self) -> str:
        """`34 % less (95 % interval 30 to 38 %)`."""
        size, way = percentage(abs(self.middle)), "less" if self.middle < 0 else "more"
        if not self.is_known:
            return f"{size} % {way} (too few values for an interval)"
        if self.low <= 0 <= self.high:
            span = f"{percentage(self.low, '+')} to {percentage(self.high, '+')} %"
            return f"{size} % {way} (95 % interval {span}: no difference seen)"
        near, far = sorted((abs(self.low), abs(self.high)))
        return f"{size} % {way} (95 % interval {percentage(near)} to {percentage(far)} %)"


def sides(trials: pd.DataFrame) -> Iterator[str]:
    """Yield a line for each model (batch size, requests in flight, setup) and host: by which engine its stages take
    least time, against the base; and whether that is sure. Nothing with one engine.

    Each value is the median of a point and network over its rounds, of ratios of two trials of one round; what a host
    takes without units counts for no engine. An engine is the best if its interval is below 0 and below all others'.
    """
    pairs = [
        pair.assign(**{str(key): value for key, value in named.items()})
        for named, pair in compared(trials, "engine")
    ]
    if not pairs:
        return
    every: pd.DataFrame = pd.concat(pairs, ignore_index=True)
    for _, rows in every.groupby(_OF, dropna=False, observed=True, sort=False):
        for side in SIDES:
            base = of_role(str(rows["first"].iloc[0]), side)
            own = rows.assign(engine=[of_role(str(other), side) for other in rows["other"]])
            own = own[own["engine"] != base].dropna(subset=[f"{side}_percent"])
            found = [_against(str(name), of, f"{side}_percent") for name, of in own.groupby("engine")]
            if found:
                yield f"{_titled(rows)}: {_side(side, base, found)}"


def _against(engine: str, pairs: pd.DataFrame, column: str) -> Against:
    values: Floats = (
        pairs.groupby(["netem", "codec", "backend", "point"], observed=True)[column].median().to_numpy()
    )
    ends = interval(values) if len(values) >= LEAST_VALUES else None
    low, high = ends or (math.nan, math.nan)
    return Against(engine, float(np.median(values)), low, high)


def _side(side: str, base: str, found: Sequence[Against]) -> str:
    """`on the edge onnx is fastest: against eager its stages take 34 % less by onnx, 12 % less by compile`."""
    ordered = sorted(found, key=lambda each: each.middle)
    best, others = ordered[0], ordered[1:]
    rest = "".join(f", {each.words()} by {each.engine}" for each in others)
    details = f"against {base} its stages take {best.words()} by {best.engine}{rest}"
    if not all(each.is_known for each in found):
        return f"on the {side} the trials do not decide which engine is fastest: {details}"
    if not best.is_less:
        is_base = all(each.low > 0 for each in found)
        text = f"{base} is fastest" if is_base else f"no engine is surely faster than {base}"
        return f"on the {side} {text}: {details}"
    close = [each.engine for each in others if each.low <= best.high]
    if close:
        return (
            f"on the {side} no difference is seen between {best.engine} and {' or '.join(close)}: {details}"
        )
    return f"on the {side} {best.engine} is fastest: {details}"


def start_up(stages: pd.DataFrame) -> Iterator[str]:
    """Yield a line for each model and engine: how long its hosts took to build a stage, before anything was timed: for
    the first time in a run, and when the stage came back, where that differs. From the frame of `analysis.stages`.
    """
    if "engine_s" not in stages:
        return
    built = stages[stages["engine_s"].notna()]
    pairs = zip(engines(built), built["host"].astype("str"), strict=True)
    built = built.assign(engine=[of_role(engine, host) for engine, host in pairs])
    built = built[built["engine"] != EAGER]
    stage = [*("run", "model", "batch_size", "point", "host", "engine")]
    built = built.assign(is_first=~built.duplicated(stage))
    for (model, engine), rows in built.groupby(["model", "engine"], observed=True):
        of_hosts = [_built(str(host), of_host) for host, of_host in rows.groupby("host", observed=True)]
        yield f"{model}: {engine} builds a stage in {'; '.join(of_hosts)}"


def _built(host: str, rows: pd.DataFrame) -> str:
    first, again = (rows.loc[rows["is_first"] == which, "engine_s"] for which in (True, False))
    middle, most = float(first.median()), float(first.max())
    text = f"{duration(middle)} on the {host}" + (f" (at most {duration(most)})" if most > middle else "")
    if again.empty:
        return text
    again_s = float(again.median())
    if abs(again_s / middle - 1) < _SAME:
        return f"{text}, and as long again"
    return f"{text}, and again in {duration(again_s)}"


def _titled(rows: pd.DataFrame) -> str:
    row = rows.iloc[0]
    batch = f"batch size {row['batch_size']}" if row["batch_size"] != 1 else ""
    return ", ".join(
        filter(None, (str(row["model"]), batch, in_flight(str(row["in_flight_asked"])), str(row["setup"])))
    )

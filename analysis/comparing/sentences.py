"""The results of comparing backends, codecs, engines or runs, in the words of `sentences.txt`: a line each."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, StrictUndefined
from jinja2.environment import TemplateModule

from pareto.analysis.comparing.paired import ALL, SIDES
from pareto.analysis.fronts.quality import WORDS, codec_name
from pareto.analysis.naming import condition_title, count, model_title, transport
from pareto.analysis.runs.points import CONDITION, EAGER, of_role
from pareto.analysis.statistics import significance
from pareto.analysis.statistics.samples import interval
from pareto.analysis.wording import ms, percentage
from pareto.remote.link.units import duration

_OF_SIDES = [name for name in CONDITION if name not in ("netem", "codec", "engine")]
"""The columns that the stages of one sentence have in common: neither network nor codec is in their times."""


def ends(low: float, high: float, say: Callable[[float], str]) -> str:
    """`1.20 to 3.40`: the ends of an interval, without their sign where it is without 0."""
    return " to ".join(map(say, (low, high) if low <= 0 <= high else sorted((abs(low), abs(high)))))


@cache
def _words() -> TemplateModule:
    environment = Environment(undefined=StrictUndefined)  # noqa: S701  (plain text)
    environment.tests["nan"] = math.isnan
    environment.globals |= {"count": count, "duration": duration, "ends": ends, "isnan": math.isnan, "ms": ms}
    environment.globals |= {"percentage": percentage, "title": condition_title, "transport": transport}
    return environment.from_string(Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")).module


def _said(macro: str, **values: Any) -> str:
    return re.sub(r"\s+([;:,)]|$)", r"\1", " ".join(getattr(_words(), macro)(**values).split()))


def verdicts(rows: pd.DataFrame, struck_off: pd.DataFrame | None = None) -> Iterator[str]:
    """A line for each condition and pair, from the frame of `paired`. struck_off: the cells that a search struck off
    (`runs.load.struck`), whose trials are in no pair.
    """
    of_backends = "backend" not in rows
    searched = [] if struck_off is None else [*struck_off[CONDITION].itertuples(index=False, name=None)]
    pairs = [*rows.columns.intersection([*CONDITION, "backend"]), "first", "other"]
    for _, of_pair in rows.groupby(pairs, dropna=False, observed=True, sort=False):
        *_, row = of_pair.to_dict("records")
        row |= {name: codec_name(row[name]) for name in ("first", "other")} | {"of_backends": of_backends}
        if of_backends or row["pairs"] or row["throughput_pairs"]:
            row["searched"] = of_backends and tuple(row[name] for name in CONDITION) in searched
            over = f" over {row['backend']}" if not of_backends and rows["backend"].nunique() > 1 else ""
            yield _said("pair", row=row, over=over, points=_points(of_pair[of_pair["point"] != ALL]))


def _points(points: pd.DataFrame) -> str:
    """At how many points the interval is without 0, the most of these, and what the test at the best point says."""
    points = points[points["latency_low_s"].notna()]
    apart = points[(points["latency_low_s"] > 0) | (points["latency_high_s"] < 0)]
    differences = apart["latency_difference_s"]
    most = apart.loc[differences.abs().idxmax()].to_dict() if len(apart) else {}
    same = (np.sign(differences) == np.sign(most.get("latency_difference_s", 0))).sum()
    by_chance = round(significance.ALPHA * len(points))
    numbers = {"known": len(points), "apart": len(apart), "same": same, "by_chance": by_chance}
    return _said("points", most=most, tested=points[points["tested"]].to_dict("records"), **numbers)


def sides(rows: pd.DataFrame) -> Iterator[str]:
    """Yield a line for each model (batch size, requests in flight, setup) and host: by which engine its stages take
    least time, against the base; and whether that is sure: its interval is below 0 and below all others'.

    rows: of `paired`, of engines: each value is a point's in one network.
    """
    of_points = rows[rows["point"] != ALL].groupby(_OF_SIDES, dropna=False, observed=True, sort=False)
    for (_, of), side in product(of_points, SIDES):
        row, base = of.iloc[0], of_role(str(of["first"].iloc[0]), side)
        engines = of["other"].map(lambda name, side=side: of_role(str(name), side))
        found = [
            (float(values.median()), *(interval(values.to_numpy()) or (math.nan, math.nan)), str(engine))
            for engine, values in of[f"{side}_difference_percent"].dropna().groupby(engines)
            if engine != base
        ]
        if found:
            names = ("middle", "low", "high", "engine")
            named = [dict(zip(names, each, strict=True)) for each in sorted(found)]
            batch = f"batch size {row['batch_size']}" if row["batch_size"] != 1 else ""
            subject = model_title(row, "codec", "engine", batch=batch)
            yield _said("engines", subject=subject, side=side, base=base, found=named)


def start_up(stages: pd.DataFrame) -> Iterator[str]:
    """Yield a line for each model and engine, from the frame of `analysis.stages`: how long its hosts took to build a
    stage for the first time in a run, and when the stage came back, where that differs.
    """
    built = stages[stages["engine_s"].notna()]
    pairs = zip(built["engine"].astype("str"), built["host"].astype("str"), strict=True)
    built = built.assign(engine=[of_role(engine, host) for engine, host in pairs])
    again = built.duplicated(["run", "model", "batch_size", "point", "host", "engine"])
    for (model, engine), rows in built[built["engine"] != EAGER].groupby(["model", "engine"], observed=True):
        hosts = [
            (host, each[~again].median(), each[~again].max(), each[again].median())
            for host, each in rows.groupby("host", observed=True)["engine_s"]
        ]
        yield _said("built", model=model, engine=engine, hosts=hosts)


def rates(delta_rates: pd.DataFrame) -> Iterator[str]:
    """Yield a line for each pair of codecs, from the frame of `analysis.comparing.bjontegaard.delta_rates`."""
    for row in delta_rates.to_dict("records"):
        first, other = (codec_name(row[name]) for name in ("first", "other"))
        quality = WORDS.get(str(row["accuracy_of"]), "accuracy")
        yield _said("rate", row=row, first=first, other=other, quality=quality)


def conclusions(points: pd.DataFrame, fronts: pd.DataFrame) -> Iterator[str]:
    """A line for each condition, from the frames of `analysis.comparing.between_runs`."""
    of_fronts = {tuple(row[key] for key in CONDITION): row for row in fronts.to_dict("records")}
    measures = (
        ("latency", "latency", "s", "faster", "slower"),
        ("images/s", "throughput", "percent", "fewer", "more"),
    )
    for key, rows in points.groupby(CONDITION, dropna=False, observed=True, sort=False):
        medians = []
        for what, measure, unit, less, more in measures:
            column, share = f"{measure}_difference_{unit}", rows[f"{measure}_difference_percent"].median()
            known, sure = rows[rows[column].notna()], rows.loc[rows[f"{measure}_significant"], column]
            counts = {less: (sure < 0).sum(), more: (sure > 0).sum()}
            ways = [f"{way} at {number}" for way, number in counts.items() if number]
            told = known["note"].eq("").any()
            medians.append((what, known[column].median(), share, len(known), ways, told))
        few, front = rows["note"].ne("").sum(), of_fronts.get(key, {})
        yield _said("runs", row=rows.iloc[0].to_dict(), medians=medians, few=few, front=front)

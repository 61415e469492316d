"""The latency of requests that arrive by themselves, over how many arrive."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from pareto.analysis.figures import layout
from pareto.analysis.figures.drawing import Nothing, Told
from pareto.analysis.figures.layout import On
from pareto.analysis.figures.style import ALARM, LINE, Scheme
from pareto.analysis.naming import place, subject
from pareto.analysis.runs.points import CELL
from pareto.analysis.runs.treatments import backend_of
from pareto.sweep import load
from pareto.sweep.load import UNSTABLE

MOST_POINTS = 3
"""The most points of a backend that have a line: those that bear most."""
_MEDIAN = "load_latency_s", "median"
_QUANTILE = {0.05: ("load_latency_p95_s", "95th percentile"), 0.01: ("load_latency_p99_s", "99th percentile")}
"""By the share that may miss the SLO, the column that is drawn, and its name."""


def under_load(on: On, rows: pd.DataFrame, trials: pd.DataFrame, scheme: Scheme) -> Told:
    """The latency over the images/s that arrive, a line a point: the quantile of the SLO, else the median; the
    SLO as a line, and a cross where the backlog grew. rows: of the front. trials: of the same condition, whatever
    their load. Raises `Nothing`.
    """
    data, limit_s, words = load_data(trials)
    if data.empty:
        raise Nothing("load: no trial has figures under load")
    (axes,) = layout.panels(on, 1, 1, 2.6)
    for look, own in scheme.of_lines(data):
        axes.plot(own["offered_ips"], own["latency_s"] * scheme.per_s, **look)
    grown = data[data["unstable"] > 0]
    if len(grown):
        look = {"linestyle": "", "marker": "x", "color": ALARM, "markersize": 7, "zorder": 4}
        axes.plot(grown["offered_ips"], grown["latency_s"] * scheme.per_s, label="backlog grew", **look)
    if limit_s is not None:
        axes.axhline(limit_s * scheme.per_s, color=ALARM, linestyle=":", linewidth=1, label="SLO")
    axes.grid(True)
    layout.fit_axis(axes, "x", data["offered_ips"], logarithmic=False, room=0.06)
    layout.fit_axis(axes, "y", scheme.per_s * np.append(data["latency_s"], limit_s or math.nan))
    axes.set(xlabel="images/s that arrive", ylabel=f"latency, {words} ({scheme.unit})")
    shown = "Latency from when a request arrives, over the images/s that arrive: medians over the rounds of each load"
    about = (shown, f"Lines: at most {MOST_POINTS} points a backend, those that are in time for most")
    return Told(f"Under load: {subject(rows.iloc[0])}", about, data, rows, scheme.testbed)


def load_data(trials: pd.DataFrame) -> tuple[pd.DataFrame, float | None, str]:
    """The places of each line, in order; the SLO's limit in seconds, if all have one; and the quantile's name."""
    if "load_requests" not in trials or not (told := trials[trials["completed_ips"].notna()]).size:
        return pd.DataFrame(), None, ""
    texts = [*told["slo"].dropna().astype("str").unique()]
    slo = load.slo(texts[0]) if len(texts) == 1 and texts[0] else None
    column, words = _QUANTILE.get(slo.share, _MEDIAN) if slo else _MEDIAN
    rows = told.astype({"load": "str"}).assign(
        backend=backend_of(told),
        latency_s=told[column],
        in_time_ips=told["goodput_ips"].fillna(told["completed_ips"]),
        unstable=told["stability"].eq(UNSTABLE).astype(float),
        # One load is one place, though arrivals by chance differ; where the rate is looked for each has its own.
        place=lambda each: each["load"].mask(
            each["load"].isin(load.FOUND), each["offered_ips"].astype("str")
        ),
    )
    keys = [name for name in CELL if name != "load"]
    by = rows.groupby([*keys, "point_name", "place"], observed=True, sort=False)
    data = by[["offered_ips", "latency_s", "in_time_ips", "unstable"]].median().reset_index()
    data = data[data["latency_s"].notna()]
    best = data.groupby(LINE, observed=True)["in_time_ips"].max().sort_values(ascending=False, kind="stable")
    chosen = best.groupby(LINE[:2], observed=True).head(MOST_POINTS)
    data = data[data[LINE].apply(tuple, axis=1).isin(chosen.index)] if len(data) else data
    by_place = [*LINE, "offered_ips"]
    data = data.sort_values(by_place, key=lambda of: of.map(place) if of.name == "backend" else of)
    return data.drop(columns="place").reset_index(drop=True), slo.limit_s if slo else None, words

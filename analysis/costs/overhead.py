"""What a backend itself costs: the latency beyond what physics asks for, as a + b x bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.fronts.dominance import Floats
from analysis.keys import CONDITION, TRIAL
from analysis.points import cuts

GOODPUT = 1448 / 1514
"""TCP payload in each byte on the wire, as in `pareto.link.probe`: Ethernet, IPv4, TCP with timestamps, MTU 1500."""
MIN_PAYLOADS = 4
"""Through fewer different payloads a line can always be laid, and says nothing."""
MIN_POINTS = 5
"""With fewer points a bootstrap's 95 % interval holds the true b in less than nine of ten cases (simulated)."""
KEY = [*CONDITION, "backend"]
COLUMNS = [
    *KEY,
    *("points", "payloads"),
    *("a_s", "a_low_s", "a_high_s"),
    *("b_s_per_byte", "b_low_s_per_byte", "b_high_s_per_byte", "headers_s_per_byte"),
    *("residual_s", "latency_efficiency", "goodput_efficiency", "note"),
]
TOO_FEW = "too few payloads"


@dataclass(frozen=True)
class Line:
    """overhead = a_s + b_s_per_byte x bytes, with 95 % intervals (NaN: none); residual_s: median distance from it."""

    a_s: float
    b_s_per_byte: float
    a_low_s: float
    a_high_s: float
    b_low_s_per_byte: float
    b_high_s_per_byte: float
    residual_s: float


def overhead(trials: pd.DataFrame, stages: pd.DataFrame, manifest: Mapping[str, Any]) -> pd.DataFrame:
    """One row for each condition and backend that has a valid trial that crosses; columns `COLUMNS`.

    Takes the frames of `analysis.runs.trials` and the run's manifest. A point's overhead is the median over rounds of
    latency - latency bound. Only trials that are `ok` and cross every link count.

    - points, payloads: how many points, and how many different sums of bytes: payload and result, on all links.
    - a_s, b_s_per_byte, residual_s: see `fit`. Empty, and `note` says why, with fewer than `MIN_PAYLOADS` payloads.
    - headers_s_per_byte: what TCP's headers add to b at the profile's rate from edge to server, on one link.
    - latency_efficiency: bound / latency, median over the points. goodput_efficiency: the same with the bound at TCP's
      goodput, which no TCP connection can beat. Both this and the headers are empty where the rate is not one number:
      in a chain, with a trace or a token bucket or reordering, or where none is asked.
    """
    crossing = _crossing(trials, stages)
    crossing["overhead_s"] = crossing["latency_s"] - crossing["latency_bound_s"]
    crossing["latency_efficiency"] = crossing["latency_bound_s"] / crossing["latency_s"]
    headers_s = _headers_s(crossing, manifest)
    crossing["headers_s_per_byte"] = headers_s["out"]
    added_s = headers_s["out"] * crossing["payload_bytes"] + headers_s["back"] * crossing["result_bytes"]
    crossing["goodput_efficiency"] = (crossing["latency_bound_s"] + added_s) / crossing["latency_s"]
    measures = ["overhead_s", "bytes", "latency_efficiency", "goodput_efficiency", "headers_s_per_byte"]
    points = crossing.groupby([*KEY, "point"], dropna=False)[measures].median().reset_index()
    rows = []
    for _, of_backend in points.groupby(KEY, dropna=False):
        known = of_backend.dropna(subset=["overhead_s", "bytes"])
        row = of_backend.iloc[0][KEY].to_dict() | {
            "points": len(of_backend),
            "payloads": known["bytes"].nunique(),
        }
        row |= (
            of_backend[["latency_efficiency", "goodput_efficiency", "headers_s_per_byte"]].median().to_dict()
        )
        if row["payloads"] < MIN_PAYLOADS:
            row["note"] = TOO_FEW
        else:
            row |= vars(fit(known["bytes"].to_numpy(), known["overhead_s"].to_numpy()))
        rows.append(row)
    return pd.DataFrame(rows, columns=COLUMNS)


def fit(nbytes: Floats, overhead_s: Floats, resamples: int = 1000, seed: int = 0) -> Line:
    """The line through points (bytes, seconds) of two different sizes or more, by Theil and Sen.

    b is the median slope of all pairs, a the median of what remains (Sen, "Estimates of the regression coefficient
    based on Kendall's tau", 1968). Not least squares: noise grows with the bytes and errs upwards, and squares would
    let the largest payload, ten times the others, decide a. Intervals are percentile bootstraps over points, which
    need nothing to be normal nor of equal spread; none with fewer than `MIN_POINTS` points. The same input, the
    same result.
    """
    a_s, b = _line(nbytes, overhead_s)
    residual_s = float(np.median(np.abs(overhead_s - a_s - b * nbytes)))
    ends = np.full((2, 2), math.nan)
    if len(nbytes) >= MIN_POINTS:
        draws = np.random.default_rng(seed).integers(len(nbytes), size=(resamples, len(nbytes)))
        # A draw of one size alone has no slope.
        lines = [_line(nbytes[draw], overhead_s[draw]) for draw in draws if np.ptp(nbytes[draw]) > 0]
        ends = np.quantile(lines, [0.025, 0.975], axis=0)
    (a_low_s, b_low), (a_high_s, b_high) = ends
    return Line(a_s, b, a_low_s, a_high_s, b_low, b_high, residual_s)


def _line(x: Floats, y: Floats) -> tuple[float, float]:
    one, other = np.triu_indices(len(x), 1)
    run, rise = x[other] - x[one], y[other] - y[one]
    b = float(np.median(rise[run != 0] / run[run != 0]))
    return float(np.median(y - b * x)), b


def _crossing(trials: pd.DataFrame, stages: pd.DataFrame) -> pd.DataFrame:
    """The valid trials that cross every link, with the `bytes` that a request and its result put on all of them."""
    ok = trials[(trials["status"] == "ok") & (trials["payload_bytes"] > 0)]
    sent = stages.groupby(TRIAL, dropna=False)["payload_bytes"].agg(sent="sum", crossed="count")
    ok = ok.merge(sent.reset_index(), how="left", on=TRIAL)
    links = ok["point"].map(lambda point: len(cuts(point))).astype("int64")
    # Two hosts: known without stages.csv, which older runs lack.
    payload_bytes = ok["sent"].where(links > 1, ok["payload_bytes"])
    ok["bytes"] = payload_bytes + links * ok["result_bytes"]
    return ok[(links == 1) | (ok["crossed"] == links)].copy()


def _headers_s(trials: pd.DataFrame, manifest: Mapping[str, Any]) -> pd.DataFrame:
    """Seconds that headers add to a byte of payload each way; NaN where the rate is not one number."""
    by_netem = {netem: _headers_of(netem, manifest) for netem in trials["netem"].unique()}
    one_link = ~trials["point"].str.contains("+", regex=False)
    found = [by_netem[netem] for netem in trials["netem"]]
    return pd.DataFrame(found, columns=["out", "back"], index=trials.index, dtype="float64").where(
        one_link, axis=0
    )


def _headers_of(netem: str, manifest: Mapping[str, Any]) -> tuple[float, float]:
    profiles = manifest.get("profiles")
    profile = profiles.get(netem) if isinstance(profiles, Mapping) else None
    if not isinstance(profile, Mapping) or profile.get("bucket"):
        return math.nan, math.nan
    ways = [profile.get(way) or {} for way in ("edge_to_server", "server_to_edge")]
    rates_bps = [way.get("rate_bps") or math.inf for way in ways]
    if any(way.get("trace") or way.get("reorder") for way in ways) or min(rates_bps) == math.inf:
        return math.nan, math.nan
    out, back = (8 / rate_bps * (1 / GOODPUT - 1) for rate_bps in rates_bps)
    return out, back

"""The costs of a request: on each host, on each link, in each backend; the slowest, and memory that hosts do not keep.

`overhead` is the latency beyond the bound, as a + b x bytes: what a backend costs, with all else that the bound leaves
out, such as waiting for a processor. `steps`: how busy each stage and link of a chain is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pareto.analysis.naming import SIMULATED, USUAL, cell_title
from pareto.analysis.runs import requests
from pareto.analysis.runs.manifest import directions, section, sessions, within
from pareto.analysis.runs.points import CELL, CONDITION, NONE, TRIAL, hosts
from pareto.analysis.runs.standing import stands
from pareto.analysis.runs.treatments import AT_WORK, pooled
from pareto.analysis.statistics.samples import OUTSIDE, Floats
from pareto.analysis.wording import interval
from pareto.protocol.constants import GOODPUT, KEPT_BYTES
from pareto.protocol.errors import UserError
from pareto.remote.link.units import duration

MIN_PAYLOADS = 4
"""Through fewer different payloads a line can always be laid, and says nothing."""
MIN_POINTS = 5
"""With fewer points a bootstrap's 95 % interval holds the true b in less than nine of ten cases (simulated)."""
MOST_PAIRS = 2_000_000
"""Slopes at a time: 16 MB."""
KEY = [*CONDITION, "backend"]
COLUMNS = [
    *(*KEY, "points", "payloads", "a_s", "a_low_s", "a_high_s"),
    *("b_s_per_byte", "b_low_s_per_byte", "b_high_s_per_byte", "headers_s_per_byte"),
    *("residual_s", "latency_efficiency", "goodput_efficiency", "note"),
]
TOO_FEW = "too few payloads"
NOISE = {"a_s": "a within noise", "b_s_per_byte": "b within noise"}
"""Each cost, and the note where the rounds' noise hides it: on the line through the medians it is less than 0."""
_OF_LINE = [name.replace("_s", f"{end}_s", 1) for end in ("", "_low", "_high") for name in NOISE]
FIGURES = ["compute_s", "utilization", "bubble_s", "payload_bytes", "transfer_s", "return_s"]
STEPS = [*CELL, "place", "step", "share", "idle_s"]
DATAGRAM_SHARE = 1472 / 1514
"""Payload in each byte on the wire where rates are taken by datagrams: MTU 1500, IPv4, UDP."""
MOST = 12
"""Conditions whose requests are read: each is as many files as it has rounds."""
_KEEPS = (
    "keeps freed memory for later runs, as a deployed program does with "
    f"MALLOC_MMAP_THRESHOLD_={KEPT_BYTES} MALLOC_TRIM_THRESHOLD_={KEPT_BYTES} MALLOC_ARENA_MAX=1 in its environment"
)


def overhead(trials: pd.DataFrame, stages: pd.DataFrame, manifest: Mapping[str, Any]) -> pd.DataFrame:
    """One row for each condition and backend that has a valid trial that crosses; columns as in results/README.md.

    A point's overhead is the median over rounds of latency - latency bound. A cost that comes out as nothing was not
    found, so it is empty: its interval says how large it may be. The cost of headers is empty where the rate is not one
    number, as in a chain or with a trace.
    """
    crossing = _crossing(trials, stages)
    one_link = ~crossing["point"].str.contains("+", regex=False)
    headers = {netem: _headers_s(netem, manifest) for netem in crossing["netem"].unique()}
    ways = ({netem: each[way] for netem, each in headers.items()} for way in (0, 1))
    out, back = (crossing["netem"].map(way).astype(float).where(one_link) for way in ways)
    latency_s, bound_s = crossing["latency_s"], crossing["latency_bound_s"]
    added_s = out * crossing["payload_bytes"] + back * crossing["result_bytes"]
    measures = {"overhead_s": latency_s - bound_s, "bytes": crossing["bytes"], "headers_s_per_byte": out}
    measures["latency_efficiency"] = bound_s / latency_s
    measures["goodput_efficiency"] = (bound_s + added_s) / latency_s
    by_point = crossing.assign(**measures).groupby([*KEY, "point"], dropna=False, observed=True)
    points, rows = by_point[[*measures]].median().reset_index(), []
    for _, of_backend in points.groupby(KEY, dropna=False, observed=True):
        known = of_backend.dropna(subset=["overhead_s", "bytes"])
        row = of_backend.iloc[0][KEY].to_dict() | of_backend[[*measures]].median().to_dict()
        row |= {"points": len(of_backend), "payloads": known["bytes"].nunique(), "note": TOO_FEW}
        if row["payloads"] >= MIN_PAYLOADS:
            row |= fit(known["bytes"].to_numpy(), known["overhead_s"].to_numpy())
            hidden = [name for name in NOISE if row[name] == 0]
            row["note"] = "; ".join(NOISE[name] for name in hidden)
            for name in hidden:
                own = [each for each in _OF_LINE if each[0] == name[0]]
                # An interval that holds nothing but 0 was not found either.
                row |= dict.fromkeys(own if row[own[2]] == 0 else own[:1], math.nan)
        rows.append(row)
    return pd.DataFrame(rows, columns=COLUMNS)


def fit(nbytes: Floats, overhead_s: Floats, resamples: int = 1000, seed: int = 0) -> dict[str, float]:
    """The line overhead = a_s + b_s_per_byte x bytes through points of two different sizes or more, by Theil and Sen,
    with no cost under 0; 95 % intervals (NaN: none), and residual_s: the median distance from it.

    b is the median slope of all pairs, a the median of what remains (Sen, "Estimates of the regression coefficient
    based on Kendall's tau", 1968). Not least squares: noise grows with the bytes and errs upwards, and squares would
    let the largest payload, ten times the others, decide a. Intervals are percentile bootstraps over points, which
    need nothing to be normal nor of equal spread. No request and no byte costs less than nothing: in place of a line
    that falls a level one is taken, and a is at least 0; in each resample too. The same input, the same result.
    """
    (middle,) = _lines(nbytes[None], overhead_s[None])
    ends = np.full((2, 2), math.nan)
    if len(nbytes) >= MIN_POINTS:
        draws = np.random.default_rng(seed).integers(len(nbytes), size=(resamples, len(nbytes)))
        # A draw of one size alone has no slope.
        draws = draws[np.ptp(nbytes[draws], axis=1) > 0]
        parts = np.array_split(draws, math.ceil(draws.size * len(nbytes) / MOST_PAIRS))
        lines = np.concatenate([_lines(nbytes[part], overhead_s[part]) for part in parts])
        ends = np.quantile(lines, [OUTSIDE, 1 - OUTSIDE], axis=0)
    residual_s = float(np.median(np.abs(overhead_s - middle[0] - middle[1] * nbytes)))
    return dict(zip(_OF_LINE, np.ravel([middle, *ends]).tolist(), strict=True)) | {"residual_s": residual_s}


def slope(x: Floats, y: Floats) -> Floats:
    """b of y = a + b x by Theil and Sen, for the points on the last axis, of which two have different x."""
    one, other = np.triu_indices(x.shape[-1], 1)
    run, rise = x[..., other] - x[..., one], y[..., other] - y[..., one]
    slopes = np.divide(rise, run, where=run != 0, out=np.full_like(rise, np.nan))
    return np.asarray(np.nanmedian(slopes, axis=-1))


def _lines(x: Floats, y: Floats) -> Floats:
    """a and b for many sets of points (sets x points): as `fit` has them."""
    b = np.maximum(slope(x, y), 0.0)
    return np.column_stack([np.maximum(np.median(y - b[:, None] * x, axis=1), 0.0), b])


def _crossing(trials: pd.DataFrame, stages: pd.DataFrame) -> pd.DataFrame:
    """The valid trials that cross every link, with the `bytes` that a request and its result put on all of them;
    `payload_bytes` is what is sent of it, after the codec.
    """
    ok = trials[stands(trials, "latency") & (trials["payload_bytes"] > 0)]
    measured = ["latency_s", "latency_bound_s", "payload_bytes", "result_bytes", "wire_bytes"]
    ok = ok.reindex(columns=[*TRIAL, *measured])
    # Runs from before there were codecs do not say it.
    ok["payload_bytes"] = ok.pop("wire_bytes").fillna(ok["payload_bytes"])
    ok["bytes"] = ok["payload_bytes"] + ok["result_bytes"]
    if not (chain := ok["point"].str.contains("+", regex=False)).any():
        return ok
    of_trial = stages.groupby(TRIAL, dropna=False, observed=True)["payload_bytes"].agg(["sum", "count"])
    sent, crossed = ok.join(of_trial, on=TRIAL)[["sum", "count"]].to_numpy().T
    links = ok["point"].str.count(r"\+") + 1
    ok["bytes"] = ok["bytes"].where(~chain, sent + links * ok["result_bytes"])
    return ok[~chain | (crossed == links)]


def _headers_s(netem: str, manifest: Mapping[str, Any]) -> tuple[float, float]:
    """Seconds that headers add to a byte of payload each way; NaN where the rate is not one number."""
    both = directions(manifest, netem)
    rates_bps = [way.get("rate_bps") or math.inf for way in both]
    changing = any(way.get("trace") or way.get("reorder") for way in both)
    if changing or within(manifest, "profiles", netem, "bucket") or min(rates_bps) == math.inf:
        return math.nan, math.nan
    out, back = (8 / rate_bps * (1 / GOODPUT - 1) for rate_bps in rates_bps)
    return out, back


def stage_medians(stages: pd.DataFrame, trials: pd.DataFrame) -> pd.DataFrame:
    """One row for each cell and host that took part in it: medians of `FIGURES` over the trials that count."""
    ok = pooled(stages.merge(trials.loc[stands(trials), TRIAL], on=TRIAL), trials)
    return ok.groupby([*CELL, "position", "host"], dropna=False)[FIGURES].median().reset_index()


def stage_times(rows: pd.DataFrame, stages: pd.DataFrame) -> pd.DataFrame:
    """Rows of the front with a column for each host between edge and server: `middle1_s`, ..., its compute time."""
    between = stages[stages["host"].str.startswith("middle")]
    if between.empty:
        return rows
    times: pd.DataFrame = between.pivot_table(index=CELL, columns="host", values="compute_s", dropna=False)
    # Stages are of the codec that was measured.
    timed = rows.assign(codec=rows[AT_WORK]).merge(times.add_suffix("_s").reset_index(), how="left", on=CELL)
    return timed.assign(codec=rows["codec"].to_numpy())


def steps(rows: pd.DataFrame, stages: pd.DataFrame) -> pd.DataFrame:
    """Every step of some rows of the front, by `stage_medians`: a row for each cell and step, in the chain's order.

    `step` is named as in the column `bound_by`. `share`: of the time in which it is busy with many requests in flight;
    a stage's as measured, a link's from what the profile's rate needs for one request. `idle_s`: a stage's bubble.
    """
    measured = rows[[*CELL, "throughput_ips"]].assign(codec=rows[AT_WORK], shown=rows["codec"])
    table = stages.merge(measured, on=CELL).assign(codec=lambda known: known.pop("shown"))
    after = {point: dict(pairwise(hosts(point))) for point in table["point"].unique()}
    host, point = table["host"].astype("str"), table["point"]
    names = [after[at].get(of, "") for of, at in zip(host, point, strict=True)]
    to = pd.Series(names, table.index, dtype="str")
    table = table.assign(place=3 * table["position"], step=host)
    table = table.rename(columns={"utilization": "share", "bubble_s": "idle_s"})
    links = table.assign(idle_s=math.nan)[(to != "") & (table["transfer_s"] >= 0)]
    requests_per_s, parts = links["throughput_ips"] / links["batch_size"], [table]
    for later, way, column in ((1, "out", "transfer_s"), (2, "back", "return_s")):
        part = links.assign(place=links["place"] + later, share=links[column] * requests_per_s)
        parts.append(part.assign(step=links["step"] + "-" + to[links.index] + f" {way}"))
    return pd.concat(parts)[STEPS].sort_index(kind="stable").reset_index(drop=True)


def bands(links: pd.DataFrame, manifest: Mapping[str, Any]) -> pd.DataFrame:
    """The probes of one run with what the verdict allows, as `pareto.remote.link.probe` judges it.

    New columns: rtt_least_s and rtt_most_s (asked +- jitter +- tolerance); for `rate` and `rate_back` also payload_bps
    (asked, as payload), least_bps and most_bps. NaN where nothing was asked, no tolerance is told, or a trace plays.
    """
    told = map(section(manifest, "sweep").get, ("tolerance", "rtt_tolerance", "rtt_floor"))
    share, rtt_share, floor_s = np.array([*told], dtype=float)
    still, netems = links["position_s"].isna(), links["netem"].unique()
    jitters_s = {name: sum(way.get("jitter_s", 0.0) for way in directions(manifest, name)) for name in netems}
    shares = {name: payload_share(manifest, name) for name in netems}
    jitter_s, of_payload = (links["netem"].map(each).astype(float) for each in (jitters_s, shares))
    asked_s = links["asked_rtt_s"].where(still)
    allowed_s = np.maximum(rtt_share * asked_s, floor_s) + jitter_s
    made = links.assign(rtt_least_s=(asked_s - allowed_s).clip(lower=0), rtt_most_s=asked_s + allowed_s)
    for name in ("rate", "rate_back"):
        made[f"{name}_payload_bps"] = payload_bps = links[f"asked_{name}_bps"] * of_payload
        made[f"{name}_least_bps"] = (payload_bps * (1 - share)).where(still)
        made[f"{name}_most_bps"] = (payload_bps * (1 + share)).where(still)
    return made


def payload_share(manifest: Mapping[str, Any], netem: str) -> float:
    """The share of a profile's rate that a run's probes read: they count payload, without its headers."""
    impaired = ("loss", "duplicate", "reorder", "corrupt", "limit_bytes")
    falls_short = any(way.get(what) for way in directions(manifest, netem) for what in impaired)
    by_datagrams = bool(section(manifest, "sweep").get("slow_start_after_idle")) or falls_short
    return DATAGRAM_SHARE if by_datagrams else GOODPUT


def allocators(trials: pd.DataFrame, manifests: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Sentences on what the hosts' allocators were told; if any was tuned, on the cost of leaving that out."""
    known = [each for each in manifests if within(each, "sweep", "allocators") and not each.get(SIMULATED)]
    if not known:
        return
    values, tuned = [str(value) for value in trials["allocator"].unique()], USUAL["allocator"]
    default = "" if values == [tuned] else "; default leaves it to the C library"
    yield f"The allocator was {' and '.join(values)}; {tuned} {_KEEPS}{default}."
    if tuned not in values:
        return
    costs = "; ".join(
        f"{', '.join(f'{times:.2f} times as long on the {role}' for role, times in each.items())} ({of.get('model')}, "
        f"point {of.get('point')}, batch size {of.get('batch_size', 0):g})"
        for manifest in known
        for session in sessions(manifest)
        for of in session.get("allocator_cost") or ()
        if (each := section(of, "times"))
    )
    told = f"a stage by itself took {costs}: the shortest of a few short measurements of each host"
    yield f"Without them {told}." if costs else "The cost of leaving them out was not measured."


def tails(front: pd.DataFrame, trials: pd.DataFrame, runs: Sequence[Path]) -> pd.DataFrame:
    """The latencies of requests (`runs.requests.request_latencies`) of the point of least latency of each condition;
    where nothing crosses, a row a backend that it was measured under. Empty with many conditions, or without requests.
    """
    allowed = front[front["feasible"].astype(bool) & front["latency_s"].notna()]
    best = allowed.loc[allowed.groupby(CONDITION, dropna=False)["latency_s"].idxmin()]
    if len(best) <= MOST:
        key = [*CONDITION, "point"]
        both = trials.merge(best[[*key, "backend"]], on=key, suffixes=("", "_best"))
        mine = both[both["backend_best"].eq(NONE) | (both["backend_best"] == both["backend"].astype("str"))]
        with suppress(UserError):  # a file of requests that cannot be read spoils no report
            found = requests.request_latencies(runs, mine.drop(columns="backend_best"))
            return found[found["requests"] > 0]
    return pd.DataFrame(columns=requests.COLUMNS)


def tail_sentences(rows: pd.DataFrame) -> Iterator[str]:
    """A line for each row with as many requests as its 95th percentile needs."""
    for row in rows.to_dict("records"):
        said = []
        for percent, share in ((95, "5 %"), (99, "1 %")):
            value, low, high = (row[f"latency_p{percent}{end}_s"] for end in ("", "_low", "_high"))
            if not math.isnan(value):
                said.append(f"{share} take over {duration(value)}{interval(low, high, duration)}")
        if said:
            of = f"{row['requests']} requests of {row['trials']} rounds as these were"
            yield f"slowest requests at {cell_title(row)}: {', '.join(said)}; {of}"

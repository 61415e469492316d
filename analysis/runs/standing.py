"""The figures of a trial that can be trusted: those of its latency phase, of its throughput phase, or both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from pareto.analysis.runs.manifest import sessions, within
from pareto.analysis.schema import LATENCY_ONLY, ROUNDING, STANDS, STATUSES, THROUGHPUT_ONLY
from pareto.analysis.statistics.samples import Ints
from pareto.basics.escaping import short

OF_LATENCY = (
    *("latency_s", "latency_p95_s", "edge_s", "encode_s", "decode_s", "serialize_s", "network_s", "middle_s"),
    *("server_s", "edge_slowdown", "server_slowdown", "probed_latency_bound_s"),
    *("edge_gpu_s", "server_gpu_s", "loaded_rate_bps", "sequential_ips"),
    *("compute_s", "slowdown"),
)
OF_THROUGHPUT = (
    *("throughput_ips", "probed_throughput_bound_ips", "bound_by", "busiest"),
    *("busiest_utilization", "loaded_latency_s", "loaded_latency_p95_s", "full_cores"),
    *("edge_core_percent", "server_core_percent"),
    *("utilization", "bubble_s", "core_percent"),
)
OF_BOTH = (
    "pipeline_gain",
    *(f"{host}{kind}energy_j" for host in ("edge_", "server_", "") for kind in ("", "active_")),
)
"""Energy is of the throughput phase, and whose it is follows from the hosts' times in the latency phase."""
UNTRUSTED = {"latency": (*OF_LATENCY, *OF_BOTH), "throughput": (*OF_THROUGHPUT, *OF_BOTH)}
"""The columns of trials and stages that must not be trusted where a figure is not: no bounds, which hold anyway."""
_BOUNDS = {
    "latency": ("latency_s", "latency_bound_s", np.fmin),
    "throughput": ("throughput_ips", "throughput_bound_ips", np.fmax),
}
"""The column of a figure, that of its bound, and the better one of two."""
SETTLED = "settled"
"""A column that runs with a search have: how a cell was struck off; of one that was not, `MEASURED` beside the front,
and empty text among trials. Trials of runs without a search, beside those of one, have `MEASURED`."""
MEASURED = "measured"
LISTED = 20
"""Trials that were measured again that are listed."""


def stands(trials: pd.DataFrame, figure: str = "") -> pd.Series:
    """Whether each trial has a `latency`, or a `throughput`, that can be trusted; without a name, one of them.

    The other one is empty in what `analysis.runs.load` gives.
    """
    return trials["status"].isin(STANDS[figure] if figure else {*STANDS["latency"], *STANDS["throughput"]})


def bounded(trials: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The trials, of which none counts with a figure beyond its bound, and a line if the status of some so changes:
    older versions let a latency be 1 % beyond it, and a throughput 3 % and more.

    Where a figure is between the bound and that of the link as probed, the link was so fast: the bound is the figure.
    """
    counts, bounds = {}, {}
    for figure, (column, bound, better) in _BOUNDS.items():
        most = better(trials[bound], trials[f"probed_{bound}"])
        beyond = (better(trials[column], most) - most).abs() > ROUNDING * most
        counts[figure] = stands(trials, figure) & ~beyond
        bounds[bound] = better(trials[bound], trials[column].where(counts[figure] & trials[bound].notna()))
    # A link on which a latency cannot be was not the link of the throughput either.
    counts["throughput"] &= counts["latency"] | ~stands(trials, "latency")
    status = statuses(**counts).where(stands(trials), trials["status"])
    if not (changed := status.ne(trials["status"])).any():
        return trials.assign(**bounds), []
    reason = trials["reason"].mask(changed, "beyond its bound")
    return trials.assign(**bounds, status=status, reason=reason), [
        f"{changed.sum()} trials have a figure beyond its bound, which is not trusted though their run did"
    ]


def trusted(rows: pd.DataFrame, status: pd.Series | None = None) -> pd.DataFrame:
    """The rows, with the figures empty that must not be trusted although their trial counts for others.

    rows: trials, or stages with the `status` of the trial of each.
    """
    known = rows[["status"]] if status is None else status.to_frame()
    for figure, columns in UNTRUSTED.items():
        spoiled = (stands(known) & ~stands(known, figure)).to_numpy()
        if spoiled.any():
            own = (rows[name] for name in columns if name in rows)
            kept = {of.name: of.mask(spoiled, np.nan if of.dtype.kind == "f" else "") for of in own}
            rows = rows.assign(**kept)
    return rows


def competing(trials: pd.DataFrame) -> pd.DataFrame:
    """The trials of cells that no search struck off: what was measured fewer times than the others is not compared."""
    return trials[~is_struck(trials)] if SETTLED in trials else trials


def is_struck(trials: pd.DataFrame) -> pd.Series:
    """Whether each of these trials, with the column `SETTLED`, is of a cell that a search struck off."""
    return ~trials[SETTLED].isin(["", MEASURED])


def struck_off(rows: pd.DataFrame) -> pd.Series:
    """Whether each row beside a front is of a cell that a search struck off; without a search, none is."""
    return rows.get(SETTLED, pd.Series(MEASURED, index=rows.index)).ne(MEASURED)


def fewest(latency: Ints, throughput: Ints) -> Ints:
    """How many rounds both figures have, by how many each has; where one has none, those of the other."""
    return np.where((latency > 0) & (throughput > 0), np.minimum(latency, throughput), latency + throughput)


def statuses(latency: pd.Series, throughput: pd.Series) -> pd.Series:
    """The status by whether each of the two figures can be trusted."""
    named = np.array(["invalid", THROUGHPUT_ONLY, LATENCY_ONLY, "ok"], dtype=object)
    return pd.Series(
        named[2 * latency.to_numpy(dtype=int) + throughput.to_numpy()], latency.index, dtype="str"
    )


def status_words(trials: pd.DataFrame) -> str:
    """`60 ok, 2 latency only, 1 invalid, 0 failed`; what counts for one figure alone is named where there is any."""
    numbers = trials["status"].value_counts()
    named = [status for status in STATUSES if status in ("ok", "invalid", "failed") or status in numbers]
    return ", ".join(f"{numbers.get(status, 0)} {status}" for status in named)


def measured_again(manifests: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A line on the trials that something spoilt and that were measured again, and what each had before."""
    every = (session for manifest in manifests for session in sessions(manifest))
    again = [each for session in every for each in within(session, "again") or ()]
    if again:
        told = [short(f"{each.get('trial')}: {each.get('reason')}") for each in again[:LISTED]]
        more = f"; and {len(again) - LISTED} more, in manifest.json" if len(again) > LISTED else ""
        yield f"measured again, as these trials had been spoilt: {'; '.join(told)}{more}"


def sentences(trials: pd.DataFrame) -> Iterator[str]:
    """A line on the trials that count for their latency alone, and one on those that do for their throughput alone."""
    for figure, other in (("latency", "throughput"), ("throughput", "latency")):
        if number := (stands(trials, figure) & ~stands(trials, other)).sum():
            verb, whose = ("counts", "its") if number == 1 else ("count", "their")
            yield (
                f"{number} of {len(trials)} trials {verb} for {figure} alone, as {whose} {other} cannot be "
                "trusted: trials.csv says why"
            )

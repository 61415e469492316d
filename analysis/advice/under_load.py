"""The points that hold an SLO under a load, as predicted: a queue before the slowest step of each."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pareto.analysis.naming import cell_name, count, some
from pareto.analysis.statistics.samples import Floats
from pareto.remote.link.units import duration, percent
from pareto.sweep.load import Load, Slo


def latency_s(latency: Floats, step: Floats, load: Load, share: float) -> Floats:
    """The latency that a share of the requests exceeds, from their arrival; infinite for a step that cannot keep up.

    latency: of a request alone. step: of the slowest step for a request, in seconds. Random arrivals wait for it as in
    a queue of one server whose work never varies: in the mean by Pollaczek and Khinchine, with the exponential tail of
    heavy traffic (Kingman, "On queues in heavy traffic", 1962), which is a little long where there is little. Those of
    a period do not wait.
    """
    busy = load.rate * step
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_s = busy * step / (2 * (1 - busy))
        tail_s = np.maximum(0.0, mean_s / busy * np.log(busy / max(share, 1e-6)))
    return np.asarray(np.where(busy < 1, latency + (tail_s if load.by_chance else 0.0), np.inf))


def sentence(points: pd.DataFrame, load: Load, slo: Slo, spreads: tuple[float, float]) -> str:
    """A line on the points that hold it, and that may. points: with latency_s, throughput_ips, batch_size and names.
    spreads: how far predictions of both are off, a standard deviation as a share; NaN where that is not known."""
    alone = points["latency_s"].to_numpy()
    step = (points["batch_size"] / points["throughput_ips"]).to_numpy()
    limit_s, known = slo.of(load), np.nan_to_num(spreads)
    middle, worse, better = (
        latency_s(alone * np.exp(sign * known[0]), step * np.exp(sign * known[1]), load, slo.share)
        for sign in (0, 1, -1)
    )
    order = np.argsort(middle, kind="stable")
    holding = [each for each in order if worse[each] <= limit_s]
    may = [each for each in order if worse[each] > limit_s >= better[each]]
    names = [
        f"{cell_name(row)} ({duration(at) if np.isfinite(at) else 'at its limit'})"
        for row, at in zip(points.to_dict("records"), middle, strict=True)
    ]
    words = "would hold" if np.isnan(spreads).any() else "holds"
    at = some([names[each] for each in holding]) or "no point for sure"
    told = f"{words} at {at}" + (f"; may hold at {some([names[each] for each in may])}" if may else "")
    off = f"{percent(spreads[0])} (latency) and {percent(spreads[1])} (images/s)"
    err = f"these predictions err by {off}" if min(spreads) > 0 else "measured here but for the waits"
    err = "how far that is off is not known" if np.isnan(spreads).any() else err
    of = f"of {count(len(points), 'point')} (latency from arrival, with waits predicted: {err})"
    return f"under {load.text}, {slo.text} {told}, {of}"

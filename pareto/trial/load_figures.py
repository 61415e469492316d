"""The figures of a load phase: what requests that arrived by themselves took, how many missed, and whether it keeps up.

A request's latency counts from when it should have arrived. One that was dropped has none: it is beyond every limit.
"""

from __future__ import annotations

import math

import numpy as np

from pareto.analysis.statistics.samples import Floats
from pareto.protocol.trial_messages import Offered
from pareto.sweep.load import LATE, NEEDED, STABLE, UNSTABLE, Slo
from pareto.trial.store import Row

LATE_SHARE, LATE_S = 0.01, 0.001
"""The generator may be late by this share of the SLO's limit, without one by this, in 99 % of all arrivals."""
BLOCKS, RISES = 10, 19
"""Parts of a phase by whose backlogs a trend is seen, and the surplus of rising over falling pairs of them that chance
reaches in less than 5 % (Kendall's S). It sees a backlog grow as the root of time, at capacity, as well as a line."""
KEEPS_UP, BY_CHANCE = 0.97, 0.67
"""The share of what was offered in the last half that is completed there where the backlog does not grow; and how many
standard deviations of the number of arrivals fewer, as a backlog that comes and goes does not grow either."""
LEAST = 2 * BLOCKS
"""Fewer requests tell nothing of a trend."""


def load_columns(
    offered: Offered, batch_size: int, slo: Slo | None, trial: str, *, confined: bool = False
) -> Row:
    """The columns of trials.csv. trial: the status that the trial has; only with one that is ok they are trusted.
    confined: whether a quota holds the edge back: what it then knows late it could not have done earlier either."""
    at_s, latencies_s = arrived(offered)
    gap_s = (at_s[-1] - at_s[0]) / max(1, len(at_s) - 1)
    limit_s = None if slo is None else slo.limit_s or gap_s
    late_s = float(np.quantile(offered.late_s, 0.99, method="higher"))
    row: Row = {"offered_ips": batch_size / gap_s, "load_requests": len(at_s), "lateness_s": late_s}
    allowed_s = LATE_S if limit_s is None else LATE_SHARE * limit_s
    if late_s > allowed_s and not confined:
        return row | {
            "load_fault": f"{LATE}1 % of the requests arrived over {1e3 * late_s:.2g} ms after their time, "
            f"allowed {1e3 * allowed_s:.2g}: the edge had no time to make them"
        }
    if trial != "ok":
        return row | {"load_fault": f"the trial is {trial}"}
    row |= {
        "completed_ips": completed_share(at_s, latencies_s) * batch_size / gap_s,
        "dropped_requests": len(offered.dropped_s),
        "stability": stability(at_s, latencies_s),
    }
    for q, name in ((0.5, "load_latency_s"), (0.95, "load_latency_p95_s"), (0.99, "load_latency_p99_s")):
        value = float(np.quantile(latencies_s, q, method="higher"))
        row[name] = value if len(at_s) >= (2 if q == 0.5 else NEEDED[q]) and math.isfinite(value) else None
    if slo is not None and limit_s is not None:
        within = int(np.count_nonzero(latencies_s <= limit_s))
        row |= {"slo": slo.text, "independent_requests": independent(latencies_s)}
        row |= {"missed_requests": len(at_s) - within, "goodput_ips": within / len(at_s) * batch_size / gap_s}
    return row


def arrived(offered: Offered) -> tuple[Floats, Floats]:
    """When each request should have arrived, in order, and its latency in seconds; infinite where it was dropped."""
    served = offered.requests
    at_s = np.array([*served.scheduled_s, *offered.dropped_s])
    passed_s = np.array(served.finished_s) - np.array(served.scheduled_s)
    latencies_s = np.append(passed_s, np.full(len(offered.dropped_s), np.inf))
    order = np.argsort(at_s, kind="stable")
    return at_s[order], latencies_s[order]


def independent(latencies_s: Floats) -> float:
    """The number of independent requests that are worth as much as these: requests that wait in one queue are alike.

    By the autocorrelation of their ranks, summed in pairs while these are positive (Geyer, "Practical Markov chain
    Monte Carlo", Statistical Science 7, 1992).
    """
    ranks = np.unique(latencies_s.round(6), return_inverse=True)[1].astype(float)
    ranks -= ranks.mean()
    number = len(ranks)
    if not ranks.any():
        return float(number)
    spectrum = np.fft.rfft(ranks, 2 * number)
    correlation = np.fft.irfft(np.abs(spectrum) ** 2)[:number]
    pairs = (correlation[: number // 2 * 2] / correlation[0]).reshape(-1, 2).sum(axis=1)
    ends = np.flatnonzero(pairs <= 0)
    return number / max(1.0, 2 * float(pairs[: ends[0] if len(ends) else None].sum()) - 1)


def completed_share(at_s: Floats, latencies_s: Floats) -> float:
    """Requests completed in the last half of the phase, as a share of those offered there."""
    half, end = at_s[0] + (at_s[-1] - at_s[0]) / 2, at_s[-1]
    done_s = at_s + latencies_s
    return float(
        np.count_nonzero((done_s > half) & (done_s <= end)) / np.count_nonzero((at_s > half) & (at_s <= end))
    )


def stability(at_s: Floats, latencies_s: Floats) -> str:
    """Whether completions keep up with arrivals: `stable`, `unstable`, or empty text where too few requests tell."""
    if len(at_s) < LEAST:
        return ""
    # What is dropped never leaves: so a backlog grows also where the queue is full.
    done_s = np.sort(at_s + latencies_s)
    backlog = np.arange(1, len(at_s) + 1) - np.searchsorted(done_s, at_s, side="right")
    means = [float(part.mean()) for part in np.array_split(backlog, BLOCKS)]
    rises = sum(np.sign(after - before) for place, before in enumerate(means) for after in means[place + 1 :])
    gaps_s = np.diff(at_s)
    by_chance = BY_CHANCE * float(gaps_s.std() / gaps_s.mean()) / math.sqrt(len(at_s) / 2)
    return (
        UNSTABLE if rises >= RISES and completed_share(at_s, latencies_s) < KEEPS_UP - by_chance else STABLE
    )

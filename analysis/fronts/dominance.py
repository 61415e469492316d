"""Pareto dominance in any objectives, and the staircase in the plane of latency and throughput."""

from __future__ import annotations

from collections.abc import Sequence

import moocore
import numpy as np

from analysis.statistics.samples import Bools, Floats

AT_ONCE = 4_000_000
"""Pairs of points compared at once: some 10 MB."""


def nondominated(*figures: Floats, maximise: Sequence[bool] = (False, True)) -> Bools:
    """Which points no other point dominates; one array an objective, by default latency and throughput.

    A point dominates another if it is no worse in every objective and better in at least one; so points with
    equal figures are on the front together. A point with NaN in any is on no front.
    """
    points = np.column_stack(figures)
    on_front = np.zeros(len(points), dtype=bool)
    # moocore takes NaN for better than anything: such rows must never reach it.
    measured = ~np.isnan(points).any(axis=1)
    on_front[measured] = moocore.is_nondominated(points[measured], maximise=list(maximise), keep_weakly=True)
    return on_front


def nondominated_in_each(sets: Floats, maximise: Sequence[bool], among: Bools | None = None) -> Bools:
    """The same for many sets of the same points at once: sets x points x objectives to sets x points.

    `among` (points x points) says which points are compared with which: all by default. For thousands of small
    sets this takes a tenth of the time of as many calls of moocore.
    """
    losses = np.where(np.asarray(maximise), -sets, sets)
    count = sets.shape[1]
    on_front = np.empty(sets.shape[:2], dtype=bool)
    step = max(1, AT_ONCE // max(1, count**2))
    for start in range(0, len(sets), step):
        part = losses[start : start + step]
        # [s, i, j]: point i of the set s is no worse than j, and better somewhere. NaN is neither.
        no_worse = np.ones((len(part), count, count), dtype=bool)
        better = np.zeros_like(no_worse)
        for loss in np.moveaxis(part, 2, 0):
            no_worse &= loss[:, :, None] <= loss[:, None, :]
            better |= loss[:, :, None] < loss[:, None, :]
        no_worse &= better
        if among is not None:
            no_worse &= among
        on_front[start : start + step] = ~no_worse.any(axis=1) & ~np.isnan(part).any(axis=2)
    return on_front


def staircase(
    latency: Sequence[float] | Floats, throughput: Sequence[float] | Floats, *, right: float, bottom: float
) -> tuple[Floats, Floats]:
    """The vertices of the boundary of the region that the points attain, from `bottom` to `right`.

    Attained is what some point equals or beats: everything to the right of a point and below it. Between two
    neighbours of the front the boundary therefore keeps the throughput of the faster one (in latency) until
    the latency of the next is reached. Dominated points do not change it. All in the units of the arguments.

    Source: the attainment surface of Fonseca & Fleming, "On the performance assessment and comparison of
    stochastic multiobjective optimizers", PPSN IV, 1996.
    """
    x, y = np.asarray(latency, dtype=float), np.asarray(throughput, dtype=float)
    front = nondominated(x, y)
    corners = np.unique(np.column_stack([x[front], y[front]]), axis=0)
    if not len(corners):
        return np.empty(0), np.empty(0)
    x, y = corners.T
    return np.append(np.repeat(x, 2), right), np.append(bottom, np.repeat(y, 2))

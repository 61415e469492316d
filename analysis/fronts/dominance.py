"""Pareto dominance in latency (less is better), throughput (more is better) and, if asked for, energy (less)."""

from __future__ import annotations

from collections.abc import Sequence

import moocore
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def nondominated(latency: Floats, throughput: Floats, energy: Floats | None = None) -> Bools:
    """Which points no other point dominates.

    A point dominates another if it is no worse in every objective and better in at least one; so points with
    equal figures are on the front together. A point with NaN in any is on no front.
    """
    figures = np.column_stack([latency, throughput] if energy is None else [latency, throughput, energy])
    on_front = np.zeros(len(figures), dtype=bool)
    # moocore takes NaN for better than anything: such rows must never reach it.
    measured = ~np.isnan(figures).any(axis=1)
    on_front[measured] = moocore.is_nondominated(
        figures[measured], maximise=[False, True, False][: figures.shape[1]], keep_weakly=True
    )
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

"""Figures of a benchmark: medians with intervals that assume no distribution, and a line through round trips."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95
LEAST_POINTS = 3
"""A line goes through any two points: only from the third on there is an error to state."""


@dataclass(frozen=True)
class Figure:
    """A median, and between which values it lies at 95 % confidence; None where too few samples can tell."""

    median: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Line:
    """Time = a_s + b_s * bytes, with standard errors; worst: a point's largest deviation, as a share of the line."""

    a_s: float
    b_s: float
    a_error_s: float
    b_error_s: float
    worst: float


def figure(values: Sequence[float]) -> Figure:
    """The median, and the order statistics around it that hold it with at least 95 % probability.

    The number of samples below the true median is binomial with p = 1/2, whatever the distribution (Conover,
    "Practical Nonparametric Statistics", section 3.2): six samples are the fewest that suffice.
    """
    rank = _rank(len(values))
    ordered = sorted(values)
    low, high = (ordered[rank - 1], ordered[-rank]) if rank else (None, None)
    return Figure(statistics.median(ordered), low, high)


def ratio(values: Sequence[float], floor: Sequence[float]) -> Figure:
    """How many times the floor's: paired, sample i was taken next to the floor's sample i."""
    return figure([value / least for value, least in zip(values, floor, strict=True)])


def line(nbytes: Sequence[int], seconds: Sequence[float]) -> Line | None:
    """Least squares on the relative deviation (weights 1 / seconds²); None for fewer than three points.

    Absolute deviations would fit the largest payload alone.
    """
    if len(nbytes) < LEAST_POINTS:
        return None
    took = np.asarray(seconds)
    sizes = np.asarray(nbytes, dtype=float)
    scale = sizes.max()  # else the two columns are eight orders of magnitude apart
    columns = np.column_stack([1 / took, sizes / scale / took])
    (a, b), *_ = np.linalg.lstsq(columns, np.ones(len(took)), rcond=None)
    left = 1 - columns @ [a, b]
    variance = left @ left / (len(took) - 2)
    a_error, b_error = np.sqrt(variance * np.diag(np.linalg.inv(columns.T @ columns)))
    fitted = a + b * sizes / scale
    return Line(
        float(a),
        float(b / scale),
        float(a_error),
        float(b_error / scale),
        float(np.abs(took / fitted - 1).max()),
    )


def _rank(count: int) -> int:
    """The largest k for which the k-th smallest and the k-th largest hold the median; 0 if there is none."""
    outside, rank = 0.0, 0
    for below in range(count // 2):
        outside += 2 * math.comb(count, below) / 2**count
        if outside > 1 - CONFIDENCE:
            break
        rank = below + 1
    return rank

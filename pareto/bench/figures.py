"""Figures of a benchmark: medians with intervals that assume no distribution, and a line through round trips."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.statistics.median import interval

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
    """The median, and its interval by order statistics: six samples are the fewest that suffice."""
    low, high = interval(values) or (None, None)
    return Figure(statistics.median(values), low, high)


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

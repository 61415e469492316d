"""How many more bytes one codec sends than another for the same accuracy: Bjontegaard's delta rate, codec by codec."""

from __future__ import annotations

import math
import re
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy.interpolate import PchipInterpolator

from pareto.analysis.fronts.indicators import nondominated
from pareto.analysis.fronts.quality import GROUP, is_none
from pareto.analysis.runs.points import NONE
from pareto.analysis.runs.treatments import AT_WORK
from pareto.analysis.statistics.samples import OUTSIDE, Floats

LEAST_POINTS = 4
"""As in the original; a curve through fewer says little."""
DRAWN = 1000
LEAST_DRAWN = 0.95
"""Without as many of the draws in which both curves have enough points and meet, there is no interval."""
COLUMNS = [
    *(*GROUP, "first", "other", "accuracy_of", "first_points", "other_points"),
    *("accuracy_from", "accuracy_to", "rate_percent", "rate_low_percent", "rate_high_percent", "note"),
]
_LEVEL = re.compile(r":[0-9]+(?=[:+]|$)")


def family(codec: str) -> str:
    """The codec without its levels: `jpeg` of `jpeg:90`, `int8+zstd` of `int8+zstd:3`, `int8:channel` as it is."""
    return _LEVEL.sub("", codec)


def best(wire: Floats, accuracy: Floats) -> tuple[Floats, Floats]:
    """Logarithms of bytes over rising accuracy, of the cells that no other one beats in both: the curve."""
    known = np.isfinite(wire) & np.isfinite(accuracy) & (wire > 0)
    figures = np.column_stack([accuracy, wire])[known]
    pairs = np.unique(figures[nondominated(wire[known], accuracy[known])], axis=0)
    return np.log(pairs[:, 1]), pairs[:, 0]


def delta_rate(first: Floats, other: Floats) -> tuple[float, float, float]:
    """By how much more bytes (a share; below 0: fewer) the other sends than the first for the same accuracy, on
    average, and from which accuracy to which. NaN for a curve of fewer than `LEAST_POINTS`, or where they do not meet.
    Each has a row of the bytes per image and one of the accuracy of a codec's cells, of all its levels and points.

    The difference of the areas under both curves, the logarithm of the rate over the quality, between the qualities
    that both reach (Bjontegaard, "Calculation of average PSNR differences between RD-curves", ITU-T VCEG-M33, 2001).
    Its cubic polynomials swing between points that are not evenly spread; piecewise cubic Hermite interpolation, as in
    the common test conditions of video coding since (JCTVC-L1100, 2013), does not.
    """
    curves = [best(*cells) for cells in (first, other)]
    if all(len(accuracy) >= LEAST_POINTS for _, accuracy in curves):
        low = max(float(accuracy[0]) for _, accuracy in curves)
        high = min(float(accuracy[-1]) for _, accuracy in curves)
        if high > low:
            areas = [PchipInterpolator(accuracy, logs).integrate(low, high) for logs, accuracy in curves]
            return math.expm1((areas[1] - areas[0]) / (high - low)), low, high
    return math.nan, math.nan, math.nan


def delta_rates(front: pd.DataFrame) -> pd.DataFrame:
    """One row for each pair of codecs of a model that has curves (`best`, by `family`); columns `COLUMNS`.

    The 95 % interval is that of curves whose accuracies are drawn by their numbers of images, as if each point had
    images of its own: as they share them, it is rather too wide. A codec without a curve of `LEAST_POINTS` points has
    no row: one that is lossless has a single accuracy.
    """
    crossing = front[(front["rounds"] > 0) & (front["backend"] != NONE) & ~is_none(front["codec"])]
    cells = crossing[crossing["codec"] == crossing[AT_WORK]].drop_duplicates([*GROUP, "codec", "point"])
    rows = []
    for key, of_model in cells.groupby(GROUP, dropna=False, observed=True):
        figures = of_model[["wire_bytes_per_image", "accuracy", "accuracy_images"]].astype(float)
        families = of_model["codec"].astype("str").map(family)
        curves = {name: of.to_numpy().T for name, of in figures.groupby(families)}
        points = {name: len(best(*curve[:2])[0]) for name, curve in curves.items()}
        for first, other in combinations((name for name in curves if points[name] >= LEAST_POINTS), 2):
            row = dict(zip(GROUP, key, strict=True)) | {"first": first, "other": other}
            row |= {"first_points": points[first], "other_points": points[other]}
            row["accuracy_of"] = str(of_model["accuracy_of"].iloc[0])
            rows.append(row | _compared([curves[first], curves[other]]))
    return pd.DataFrame(rows, columns=COLUMNS)


def _compared(curves: list[Floats]) -> dict[str, Any]:
    """The delta rate of two curves (bytes per image, accuracy, of how many images), with its interval or why not."""
    share, low, high = delta_rate(curves[0][:2], curves[1][:2])
    row = {"accuracy_from": low, "accuracy_to": high, "rate_percent": 100 * share, "note": ""}
    if math.isnan(share):
        return row | {"note": "curves do not overlap"}
    if not all(np.isfinite(images).all() for _, _, images in curves):
        return row | {"note": "no interval: of how many images is not known"}
    wire, accuracy, images = np.hstack(curves)
    images = np.where(np.isnan(accuracy), 0, images).astype(np.int64)
    chances, size = np.clip(np.nan_to_num(accuracy), 0, 1), (DRAWN, len(wire))
    hits = np.random.default_rng(0).binomial(images, chances, size)
    shares = np.where(images > 0, hits / np.maximum(images, 1), accuracy)
    of_both = np.split(np.stack([np.broadcast_to(wire, size), shares], axis=1), [curves[0].shape[1]], axis=2)
    drawn = np.array([delta_rate(*each)[0] for each in zip(*of_both, strict=True)])
    drawn = drawn[~np.isnan(drawn)]
    if len(drawn) < LEAST_DRAWN * DRAWN:
        return row | {"note": "no interval: too few images"}
    ends = np.quantile(100 * drawn, [OUTSIDE, 1 - OUTSIDE])
    return row | dict(zip(("rate_low_percent", "rate_high_percent"), ends, strict=True))

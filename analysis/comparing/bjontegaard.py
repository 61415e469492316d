"""How many more bytes one codec sends than another for the same accuracy: Bjontegaard's delta rate, codec by codec."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.interpolate import PchipInterpolator

from pareto.analysis.fronts.indicators import nondominated
from pareto.analysis.fronts.quality import GROUP, WORDS, codec_name, is_none
from pareto.analysis.runs.points import AT_WORK, NONE
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


class Curve(NamedTuple):
    """The cells of a codec, of all its levels and points: bytes per image and accuracy, and of how many images."""

    wire: Floats
    accuracy: Floats
    images: Floats

    def best(self) -> tuple[Floats, Floats]:
        """Logarithms of bytes over rising accuracy, of the cells that no other one beats in both: the curve."""
        known = np.isfinite(self.wire) & np.isfinite(self.accuracy) & (self.wire > 0)
        wire, accuracy = self.wire[known], self.accuracy[known]
        pairs = np.unique(np.column_stack([accuracy, wire])[nondominated(wire, accuracy)], axis=0)
        return np.log(pairs[:, 1]), pairs[:, 0]

    def drawn(self, rng: np.random.Generator) -> Curve:
        """The curve as other images might have shown it; the bytes stay."""
        known = np.isfinite(self.images) & np.isfinite(self.accuracy)
        images = np.where(known, self.images, 0).astype(np.int64)
        hits = rng.binomial(images, np.clip(np.nan_to_num(self.accuracy), 0, 1))
        return self._replace(accuracy=np.where(images > 0, hits / np.maximum(images, 1), self.accuracy))


def family(codec: str) -> str:
    """The codec without its levels: `jpeg` of `jpeg:90`, `int8+zstd` of `int8+zstd:3`, `int8:channel` as it is."""
    return _LEVEL.sub("", codec)


def delta_rate(first: Curve, other: Curve) -> tuple[float, float, float]:
    """By how much more bytes (a share; below 0: fewer) the other sends than the first for the same accuracy, on
    average, and from which accuracy to which. NaN for a curve of fewer than `LEAST_POINTS`, or where they do not meet.

    The difference of the areas under both curves, the logarithm of the rate over the quality, between the qualities
    that both reach (Bjontegaard, "Calculation of average PSNR differences between RD-curves", ITU-T VCEG-M33, 2001).
    Its cubic polynomials swing between points that are not evenly spread; piecewise cubic Hermite interpolation, as in
    the common test conditions of video coding since (JCTVC-L1100, 2013), does not.
    """
    curves = [curve.best() for curve in (first, other)]
    if any(len(accuracy) < LEAST_POINTS for _, accuracy in curves):
        return math.nan, math.nan, math.nan
    low = max(float(accuracy[0]) for _, accuracy in curves)
    high = min(float(accuracy[-1]) for _, accuracy in curves)
    if not high > low:
        return math.nan, math.nan, math.nan
    areas = [float(PchipInterpolator(accuracy, logs).integrate(low, high)) for logs, accuracy in curves]
    return math.expm1((areas[1] - areas[0]) / (high - low)), low, high


def delta_rates(front: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """One row for each pair of codecs of a model that has curves (`Curve`, by `family`); columns `COLUMNS`.

    The 95 % interval is that of curves whose accuracies are drawn by their numbers of images, as if each point had
    images of its own: as they share them, it is rather too wide. A codec without a curve of `LEAST_POINTS` points has
    no row: one that is lossless has a single accuracy.
    """
    rows = []
    crossing = front[(front["rounds"] > 0) & (front["backend"] != NONE) & ~is_none(front["codec"])]
    crossing = crossing[crossing["codec"] == crossing[AT_WORK]]
    cells = crossing.drop_duplicates([*GROUP, "codec", "point"])
    for key, of_model in cells.groupby(GROUP, dropna=False, observed=True):
        curves = {}
        for name, of_family in of_model.groupby(of_model["codec"].astype("str").map(family)):
            columns = of_family[["wire_bytes_per_image", "accuracy", "accuracy_images"]]
            curves[str(name)] = Curve(*columns.to_numpy(dtype=float).T)
        long = {name: curve for name, curve in curves.items() if len(curve.best()[0]) >= LEAST_POINTS}
        for (name, first), (other_name, other) in itertools.combinations(long.items(), 2):
            named = {"first": name, "other": other_name, "accuracy_of": str(of_model["accuracy_of"].iloc[0])}
            rows.append(dict(zip(GROUP, key, strict=True)) | named | _compared(first, other, seed))
    return pd.DataFrame(rows, columns=COLUMNS)


def _compared(first: Curve, other: Curve, seed: int) -> dict[str, Any]:
    share, low, high = delta_rate(first, other)
    row = {"first_points": len(first.best()[0]), "other_points": len(other.best()[0]), "note": ""}
    row |= {"accuracy_from": low, "accuracy_to": high, "rate_percent": 100 * share}
    if math.isnan(share):
        return row | {"note": "curves do not overlap"}
    if not np.isfinite([*first.images, *other.images]).all():
        return row | {"note": "no interval: of how many images is not known"}
    rng = np.random.default_rng(seed)
    drawn = np.array([delta_rate(first.drawn(rng), other.drawn(rng))[0] for _ in range(DRAWN)])
    drawn = drawn[~np.isnan(drawn)]
    if len(drawn) < LEAST_DRAWN * DRAWN:
        return row | {"note": "no interval: too few images"}
    ends = np.quantile(100 * drawn, [OUTSIDE, 1 - OUTSIDE])
    return row | dict(zip(("rate_low_percent", "rate_high_percent"), ends, strict=True))


def sentences(rates: pd.DataFrame) -> Iterator[str]:
    """Yield a line for each pair of codecs."""
    for row in rates.to_dict("records"):
        pair = f"{row['model']}, {codec_name(row['other'])} against {codec_name(row['first'])}"
        quality = WORDS.get(str(row["accuracy_of"]), "accuracy")
        if math.isnan(row["rate_percent"]):
            yield f"{pair}: no delta rate, as their {quality} does not overlap"
            continue
        sure = f" ({row['note']})" if row["note"] else ""
        if not math.isnan(row["rate_low_percent"]):
            sure = f" (95 %: {row['rate_low_percent']:+.0f} to {row['rate_high_percent']:+.0f} %)"
        more = f"{abs(row['rate_percent']):.0f} % {'more' if row['rate_percent'] > 0 else 'fewer'} bytes"
        ends = f"from {100 * row['accuracy_from']:.1f} to {100 * row['accuracy_to']:.1f} %"
        yield f"{pair}: {more} for the same {quality}{sure}, {ends} (Bjontegaard's delta rate)"

"""How many more bytes one codec sends than another for the same accuracy: Bjontegaard's delta rate, codec by codec."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.interpolate import PchipInterpolator

from pareto.analysis.fronts.indicators import nondominated
from pareto.analysis.fronts.quality import GROUP, WORDS, codec_name, is_none
from pareto.analysis.points import AT_WORK
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


@dataclass(frozen=True)
class Curve:
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
        accuracy = np.where(images > 0, hits / np.maximum(images, 1), self.accuracy)
        return Curve(self.wire, accuracy, self.images)


def family(codec: str) -> str:
    """The codec without its levels: `jpeg` of `jpeg:90`, `int8+zstd` of `int8+zstd:3`, `int8:channel` as it is."""
    return _LEVEL.sub("", codec)


def delta_rate(first: Curve, other: Curve) -> tuple[float, float, float]:
    """By how much more bytes (a share; below 0: fewer) the other sends than the first for the same accuracy, on
    average, and from which accuracy to which. NaN where a curve has fewer than `LEAST_POINTS` points or they do not
    overlap.

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
        return math.nan, low, high
    areas = [float(PchipInterpolator(accuracy, logs).integrate(low, high)) for logs, accuracy in curves]
    return math.expm1((areas[1] - areas[0]) / (high - low)), low, high


def delta_rates(front: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """One row for each pair of codecs of a model that has curves (`Curve`, by `family`); columns `COLUMNS`.

    front: of `analysis.fronts.front.front`. rate_percent: how many more bytes the other sends for the same accuracy;
    its 95 % interval is that of curves whose accuracies are drawn by their numbers of images, as if each point had
    images of its own: as they share them, it is rather too wide. note: why there is no figure. A codec without a
    curve of `LEAST_POINTS` points has no row: one that is lossless has a single accuracy.
    """
    rows = []
    crossing = front[(front["rounds"] > 0) & (front["backend"] != "") & ~is_none(front["codec"])]
    crossing = crossing[crossing["codec"] == crossing[AT_WORK]]
    cells = crossing.drop_duplicates([*GROUP, "codec", "point"])
    for key, of_model in cells.groupby(GROUP, dropna=False, observed=True):
        curves = {
            str(name): _curve(of_family)
            for name, of_family in of_model.groupby(of_model["codec"].astype("str").map(family))
        }
        long = {name: curve for name, curve in curves.items() if len(curve.best()[0]) >= LEAST_POINTS}
        for (name, first), (other_name, other) in itertools.combinations(long.items(), 2):
            row: dict[str, Any] = dict(zip(GROUP, key, strict=True)) | {"first": name, "other": other_name}
            row["accuracy_of"] = str(of_model["accuracy_of"].iloc[0])
            rows.append(row | _compared(first, other, seed))
    return pd.DataFrame(rows, columns=COLUMNS)


def _curve(rows: pd.DataFrame) -> Curve:
    columns = ("wire_bytes_per_image", "accuracy", "accuracy_images")
    return Curve(*(rows[name].to_numpy(dtype=float) for name in columns))


def _compared(first: Curve, other: Curve, seed: int) -> dict[str, Any]:
    share, low, high = delta_rate(first, other)
    row: dict[str, Any] = {
        "first_points": len(first.best()[0]),
        "other_points": len(other.best()[0]),
        "accuracy_from": low,
        "accuracy_to": high,
        "rate_percent": 100 * share,
        "rate_low_percent": math.nan,
        "rate_high_percent": math.nan,
        "note": "",
    }
    if math.isnan(share):
        return row | {"accuracy_from": math.nan, "accuracy_to": math.nan, "note": "curves do not overlap"}
    rng = np.random.default_rng(seed)
    if not all(np.isfinite(curve.images).all() for curve in (first, other)):
        return row | {"note": "no interval: of how many images is not known"}
    drawn = np.array([delta_rate(first.drawn(rng), other.drawn(rng))[0] for _ in range(DRAWN)])
    drawn = drawn[~np.isnan(drawn)]
    if len(drawn) < LEAST_DRAWN * DRAWN:
        return row | {"note": "no interval: too few images"}
    ends = np.quantile(100 * drawn, [OUTSIDE, 1 - OUTSIDE])
    return row | {"rate_low_percent": float(ends[0]), "rate_high_percent": float(ends[1])}


def sentences(rates: pd.DataFrame) -> Iterator[str]:
    """Yield a line for each pair of codecs."""
    for row in rates.to_dict("records"):
        pair = f"{row['model']}, {codec_name(row['other'])} against {codec_name(row['first'])}"
        if math.isnan(row["rate_percent"]):
            yield f"{pair}: no delta rate, as their {_word(row)} does not overlap"
            continue
        more = "more" if row["rate_percent"] > 0 else "fewer"
        text = f"{pair}: {abs(row['rate_percent']):.0f} % {more} bytes for the same {_word(row)}"
        if not math.isnan(row["rate_low_percent"]):
            text += f" (95 %: {row['rate_low_percent']:+.0f} to {row['rate_high_percent']:+.0f} %)"
        elif row["note"]:
            text += f" ({row['note']})"
        ends = f"from {100 * row['accuracy_from']:.1f} to {100 * row['accuracy_to']:.1f} %"
        yield f"{text}, {ends} (Bjontegaard's delta rate)"


def _word(row: Mapping[Hashable, Any]) -> str:
    return WORDS.get(str(row["accuracy_of"]), "accuracy")

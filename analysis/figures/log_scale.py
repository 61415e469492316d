"""A logarithmic scale with a strip at an end, for what has no place on it: no delay at all, no limit of the rate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from analysis.statistics.samples import Floats

STRIP = 0.09
"""The share of the axis that a strip takes."""
BEYOND = 2.5
"""The factor by which a scale goes beyond what is on it, at both ends."""
LEAST = 100.0
"""The least factor between the ends of a scale."""


@dataclass(frozen=True)
class Scale:
    """A logarithmic axis from `low` to `high`, drawn from 0 to 1, with a strip at one end for what lies beyond it."""

    low: float
    high: float
    strip_low: bool = False
    strip_high: bool = False

    @classmethod
    def around(
        cls,
        values: pd.Series,
        otherwise: tuple[float, float],
        *,
        strip_low: bool = False,
        strip_high: bool = False,
    ) -> Scale:
        """Return a scale with room around some values (above 0, finite); from and to `otherwise` if there are none."""
        low, high = (float(values.min()) / BEYOND, float(values.max()) * BEYOND) if len(values) else otherwise
        wider = max(1.0, math.sqrt(LEAST * low / high))
        return cls(low / wider, high * wider, strip_low, strip_high)

    def at(self, values: Floats) -> Floats:
        """Return the places of values; 0 and inf are in the middle of their strips."""
        start, end = self._ends()
        with np.errstate(divide="ignore"):
            share = np.log(np.asarray(values, dtype=float) / self.low) / math.log(self.high / self.low)
        places: Floats = np.clip(start + share * (end - start), start, end)
        places = np.where(np.asarray(values) == 0, start / 2, places)
        return np.where(np.isinf(values), (1 + end) / 2, places)

    def values(self, count: int) -> Floats:
        """Return the value at each of `count` even steps of the axis; in the strips it is 0 or inf."""
        start, end = self._ends()
        places = (np.arange(count) + 0.5) / count
        values = self.low * (self.high / self.low) ** ((places - start) / (end - start))
        return np.where(places < start, 0.0, np.where(places > end, np.inf, values))

    def ticks(self) -> list[float]:
        """Return 1, 10, 100, ...; with 2, 5, ... where these are few."""
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        factors = (1,) if self.high / self.low > 300 else (1, 3) if self.high / self.low > 30 else (1, 2, 5)
        every = [factor * 10.0**decade for decade in decades for factor in factors]
        return [value for value in every if self.low <= value <= self.high * (1 + 1e-9)]

    def show(self, axes: Axes, name: Literal["x", "y"], unit: float, strips: Mapping[float, str]) -> None:
        """Draw ticks in `unit`, a tick for each strip, and a dashed line where a strip begins."""
        ticks = self.ticks()
        texts = {tick: f"{tick / unit:g}" for tick in ticks}
        shown = {0.0: self.strip_low, math.inf: self.strip_high}
        texts |= {value: text for value, text in strips.items() if shown[value]}
        axis = axes.xaxis if name == "x" else axes.yaxis
        axis.set_ticks(list(self.at(np.array(list(texts)))), list(texts.values()))
        line = axes.axvline if name == "x" else axes.axhline
        for end in (end for end in self._ends() if 0 < end < 1):
            line(end, color="white", linewidth=2.5, zorder=1.5)
            line(end, color="0.5", linewidth=0.6, linestyle=(0, (2, 2)), zorder=1.6)

    def _ends(self) -> tuple[float, float]:
        return STRIP * self.strip_low, 1 - STRIP * self.strip_high

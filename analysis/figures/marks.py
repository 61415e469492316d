"""The rules for drawing a front, in a picture, a notebook and the page: how full a mark is, by how sure its
place is, and which axes start at 0 or are logarithmic. Without matplotlib.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

SURE = 0.95
"""A point on its backend's front in a share of the resamples between 1 - SURE and SURE is drawn as unsure."""
FILLS = {"front": 1.0, "unsure": 0.3, "dominated": 0.0}
"""The share of its backend's colour, the rest white, that fills a mark of each state."""
STATE_WORDS = {"front": "on the front", "unsure": "perhaps on the front", "dominated": "dominated"}
UNCERTAINTIES = ("none", "box", "band")
"""The drawings of uncertainty beside how full marks are: none, intervals (95 %) of points, a front's band."""
LOG_RANGE = 8
"""An axis is logarithmic from this factor on between the largest value and the smallest; else it starts at 0."""


def states(rows: pd.DataFrame) -> pd.Series:
    """A key of `FILLS` for each row of a front. Without a probability the medians decide."""
    on_front, probability = rows["on_backend_front"].astype(bool), rows["probability"]
    unsure = (on_front & (probability < SURE)) | (~on_front & (probability > 1 - SURE))
    found = np.where(unsure, "unsure", np.where(on_front, "front", "dominated"))
    return pd.Series(found, index=rows.index)


def is_logarithmic(low: float, high: float) -> bool:
    """Whether an axis of values from `low` to `high` is logarithmic."""
    return low > 0 and high / low >= LOG_RANGE


def ends(low: float, high: float, room: float, logarithmic: bool | None = None) -> tuple[float, float]:
    """The ends of an axis of values from `low` to `high`, with `room` (a share of what is shown) beyond them.

    A linear axis starts at 0, or below it only where a value does. logarithmic: where that is decided already.
    """
    if is_logarithmic(low, high) if logarithmic is None else logarithmic:
        margin = max((high / low) ** room, 1.1)
        return low / margin, high * margin
    start, end = min(low, 0.0), max(high, 0.0)
    margin = room * (end - start) or 1.0
    return start - margin * (low < 0), end + margin

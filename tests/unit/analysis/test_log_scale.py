"""A logarithmic scale with places for nothing and no limit."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from analysis.figures.log_scale import Scale


def test_a_scale_has_strips_for_what_has_no_place_on_it() -> None:
    scale = Scale(1.0, 100.0, strip_low=True, strip_high=True)
    assert scale.at(np.array([1.0, 10.0, 100.0])) == pytest.approx([0.09, 0.5, 0.91])
    assert scale.at(np.array([0.0, math.inf])) == pytest.approx([0.045, 0.955])
    values = scale.values(100)
    assert (values[0], values[-1]) == (0, math.inf)
    assert scale.at(values[10:90]) == pytest.approx((np.arange(10, 90) + 0.5) / 100)
    around = Scale.around(pd.Series([5.0]), (1.0, 2.0))
    assert around.high / around.low == pytest.approx(100)
    assert math.sqrt(around.high * around.low) == pytest.approx(5)
    assert Scale.around(pd.Series(dtype=float), (1.0, 1000.0)) == Scale(1.0, 1000.0)

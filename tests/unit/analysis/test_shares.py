"""Intervals of shares, and when two shares of the same images differ, against published and hand-made figures."""

from __future__ import annotations

import numpy as np
import pytest
from pareto.analysis.statistics.shares import differ, interval


@pytest.mark.parametrize(
    ("hits", "images", "low", "high"),
    [
        # Newcombe, Statistics in Medicine 17, 1998, table I, method 3 (score without continuity correction).
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_s_interval_is_the_published_one(hits: int, images: int, low: float, high: float) -> None:
    ends = interval(np.array([hits / images]), np.array([images]))
    assert [float(end[0]) for end in ends] == pytest.approx([low, high], abs=5e-5)


def test_no_interval_without_images() -> None:
    low, high = interval(np.array([0.5, 0.5, np.nan, 1.0]), np.array([0, np.nan, 200, 200]))
    assert np.isnan(low).tolist() == np.isnan(high).tolist() == [True, True, True, False]
    assert (low[3], high[3]) == pytest.approx((0.98116, 1.0), abs=1e-5)


@pytest.mark.parametrize(
    ("lead", "apart", "expected"),
    [
        (5, 5, False),  # all five for one: 2 / 2^5 = 0.0625
        (6, 6, True),  # 2 / 2^6 = 0.031
        (6, 8, False),  # 7 of 8: 2 x 9 / 2^8 = 0.070
        (9, 13, True),  # 11 of 13: 2 x 92 / 2^13 = 0.022
        (0, 0, False),
        (10, 0, True),  # at least the difference is discordant
        (-50, 100, False),  # the first is to be the greater
    ],
)
def test_shares_differ_by_the_sign_test_of_their_discordant_images(
    lead: int, apart: int, expected: bool
) -> None:
    assert differ(0.9, 0.9 - lead / 1000, 1000, apart / 1000) is expected

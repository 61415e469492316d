"""Holm's correction for many tests."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analysis.statistics.significance import holm


def test_holms_example() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, math.nan, 0.02]) == pytest.approx([0.9, math.nan, 0.04], nan_ok=True)
    assert len(holm([])) == 0


def test_holm_is_wrong_in_no_more_families_than_it_says() -> None:
    p_values = np.random.default_rng(0).random((2000, 7))
    assert np.mean([(holm(row) <= 0.05).any() for row in p_values]) == pytest.approx(0.05, abs=0.015)

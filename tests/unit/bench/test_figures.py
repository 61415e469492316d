"""The benchmark's statistics against values that others computed."""

from __future__ import annotations

import numpy as np
import pytest

from pareto.bench.figures import Figure, figure, line, ratio

# Round trips of a reused buffer on loopback: 4 kB, 197 kB, 3.2 MB, 25.7 MB.
NBYTES = [4_000, 197_000, 3_200_000, 25_700_000]
SECONDS = [26e-6, 49e-6, 0.86e-3, 8.3e-3]


@pytest.mark.parametrize(
    ("count", "rank"), [(6, 1), (8, 1), (9, 2), (10, 2), (15, 4), (20, 6), (25, 8), (30, 10), (100, 40)]
)
def test_the_interval_of_a_median_is_between_those_of_the_tables(count: int, rank: int) -> None:
    """Conover, table of the confidence interval for a median, 95 %: the tabled ranks hold it more often than that."""
    values = list(range(1, count + 1))
    shuffled = values[1::2] + values[::2]
    found = figure(shuffled)
    assert found.median == (count + 1) / 2
    assert found.low is not None and found.high is not None
    assert rank <= found.low < rank + 1
    assert found.low + found.high == pytest.approx(count + 1)


@pytest.mark.parametrize("count", range(1, 6))
def test_fewer_than_six_samples_have_no_interval(count: int) -> None:
    found = figure([3.0] * count)
    assert found == Figure(3.0, None, None)


def test_a_ratio_is_paired_by_round() -> None:
    """A machine that is ten times slower in every second round changes no ratio."""
    floor = [1.0, 10.0] * 4
    found = ratio([1.5, 15.0] * 4, floor)
    assert found == Figure(1.5, 1.5, 1.5)
    with pytest.raises(ValueError, match="zip"):
        ratio([1.0], floor)


def test_a_line_is_found_again() -> None:
    sizes = [4_000, 200_000, 3_000_000, 32_000_000]
    found = line(sizes, [600e-6 + 0.4e-9 * size for size in sizes])
    assert found is not None
    assert (found.a_s, found.b_s) == pytest.approx((600e-6, 0.4e-9))
    assert found.a_error_s < 1e-12
    assert found.worst < 1e-9


def test_a_line_through_measured_points_is_numpys() -> None:
    """Weights 1 / t², errors scaled by what the line leaves: an independent implementation."""
    (b, a), covariance = np.polyfit(NBYTES, SECONDS, 1, w=1 / np.array(SECONDS), cov=True)
    found = line(NBYTES, SECONDS)
    assert found is not None
    assert (found.a_s, found.b_s) == pytest.approx((a, b))
    assert (found.b_error_s, found.a_error_s) == pytest.approx(np.sqrt(np.diag(covariance)))
    fitted = a + b * np.array(NBYTES)
    assert found.worst == pytest.approx(max(abs(np.array(SECONDS) / fitted - 1)))
    assert 15e-6 < found.a_s < 40e-6  # the smallest payload's time, not swamped by the largest one's


def test_two_points_make_no_line() -> None:
    assert line(NBYTES[:2], SECONDS[:2]) is None

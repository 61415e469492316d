"""Fronts of cells that have other rounds than each other."""

from __future__ import annotations

import numpy as np
import pytest

from pareto.analysis.fronts import indicators
from pareto.analysis.fronts.shared_rounds import least_excess, nondominated

NAN = np.nan


def test_with_the_same_rounds_it_is_the_front_of_the_medians() -> None:
    draws = np.random.default_rng(5)
    for rounds in (1, 2, 5, 6):
        measured = draws.integers(1, 6, (rounds, 12, 2)).astype(float)
        measured[:, 3] = NAN
        medians = np.median(measured, axis=0)
        for maximise in ([False, True], [False, False]):
            expected = indicators.nondominated(*medians.T, maximise=maximise)
            assert nondominated(measured, maximise).tolist() == expected.tolist()


def test_what_a_round_does_to_all_its_cells_decides_nothing() -> None:
    """The machine becomes slower; the better cell has the later rounds."""
    slower = np.array([1.0, 1.2, 1.4, 1.6, 1.8, 2.0])[:, None, None]
    measured = slower * np.array([[1.0, 1.0], [1.1, 1.1], [1.0, 1.0]])
    measured[:3, 0] = measured[4:, 1] = NAN
    assert nondominated(measured[:, :2], [False, False]).tolist() == [True, False]
    assert nondominated(measured, [False, False]).tolist() == [True, False, True]


def test_cells_without_a_common_round_are_compared_by_all_that_each_has() -> None:
    measured = np.array([[[1.0, 1.0], [NAN, NAN]], [[NAN, NAN], [2.0, 2.0]]])
    assert nondominated(measured, [False, False]).tolist() == [True, False]
    assert nondominated(measured, [True, True]).tolist() == [False, True]


def test_cells_that_dominate_each_other_in_a_circle_keep_nobody_off_but_others() -> None:
    a, b, c = [1.0, 2.0, NAN], [NAN, 1.0, 2.0], [2.0, NAN, 1.0]  # b beats a, c beats b, a beats c
    worse, better = [9.0, 9.0, 9.0], [0.5, 0.5, 0.5]
    for others, expected in (([worse], [True, True, True, False]), ([better], [False] * 3 + [True])):
        measured = np.repeat(np.array([a, b, c, *others]).T[..., None], 2, axis=2)
        assert nondominated(measured, [False, False]).tolist() == expected


def test_what_is_off_the_front_keeps_nothing_off_it() -> None:
    """The second cell was lucky beside the third in the one round that both have, and is behind the first."""
    first, second, third = [1.0, 1.0, 1.0], [1.5, NAN, NAN], [2.0, 0.9, 0.9]
    measured = np.repeat(np.array([first, second, third]).T[..., None], 2, axis=2)
    measured[1:, 2, 1] = 1.1
    assert nondominated(measured[:, 1:], [False, False]).tolist() == [True, False]
    assert nondominated(measured, [False, False]).tolist() == [True, False, True]


def test_how_far_two_cells_are_apart_is_by_the_rounds_that_both_have() -> None:
    slower = np.array([1.0, 1.2, 5.0])[:, None, None]
    measured = slower * np.array([[1.0, 4.0], [2.0, 5.0], [NAN, NAN]])
    measured[2, 0] = NAN
    excess = least_excess(measured)
    assert excess[:2, :2] == pytest.approx(np.array([[0, -1.1], [1.1, 0]]))
    assert (excess[2] == -np.inf).all()
    assert (excess[:, 2] == -np.inf).all()


@pytest.mark.parametrize("shape", [(0, 0, 2), (0, 3, 2), (2, 3, 2)])
def test_nothing_measured_is_on_no_front(shape: tuple[int, ...]) -> None:
    assert not nondominated(np.full(shape, NAN)).any()

"""How many requests there are, in flight and in a phase."""

from __future__ import annotations

import pytest

from pareto.protocol import pace


@pytest.mark.parametrize(
    ("latency_s", "slowest_s", "depth"),
    [(2.92, 2.68, 2), (0.4, 0.168, 3), (0.23, 0.015, 20), (0.02, 0.02, 2), (10.0, 0.001, 64)],
)
def test_in_flight_covers_the_round_trip(latency_s: float, slowest_s: float, depth: int) -> None:
    assert pace.in_flight(latency_s, slowest_s) == depth
    assert depth == 64 or depth * slowest_s >= latency_s


@pytest.mark.parametrize(
    ("length", "pace_s", "depth", "made"),
    [
        ((1, 0.5), 0.1, 2, (2 + 3, 6 + 3)),
        ((1, 0.5), 2.0, 3, (3 + 4, 3 + 4)),
        ((4, 0.0), 0.1, 3, (6 + 4, 6 + 4)),
        ((662, 0.0), 0.1, 3, (663 + 4, 663 + 4)),
        ((1, 10.0), 1e-4, 2, (2 + 3, 10_000 + 3)),
        ((10_000, 0.0), 1e-4, 64, (10_048 + 65, 10_048 + 65)),
    ],
)
def test_steady_state_is_whole_bursts_beside_those_that_fill_the_steps(
    length: tuple[int, float], pace_s: float, depth: int, made: tuple[int, int]
) -> None:
    assert pace.in_bursts(*length, pace_s, depth) == made


@pytest.mark.parametrize(
    ("length", "latency_s", "made"),
    [((1, 0.6), 0.1, 6), ((1, 0.6), 2.0, 1), ((662, 0.0), 2.0, 662), ((1, 10.0), 1e-4, 10_000)],
)
def test_one_after_another_both_requests_and_seconds_are_there_and_never_more_than_a_phase_has(
    length: tuple[int, float], latency_s: float, made: int
) -> None:
    assert pace.one_by_one(*length, latency_s) == made


@pytest.mark.parametrize(
    ("stages_s", "alone_s"),
    [
        ((0.2, 0.001), 0.2 + 0.2 + 2 * (2 * 0.2 + 0.03)),
        ((0.001, 0.2), 0.2 + 0.001 + 2 * (0.03 + 2 * 0.2)),
        ((0.6, 0.0), 0.6 + 0.6 + 2 * 0.6),
    ],
)
def test_what_a_trial_takes_for_stages_by_themselves(stages_s: tuple[float, ...], alone_s: float) -> None:
    assert pace.alone_s(stages_s) == pytest.approx(alone_s)


@pytest.mark.parametrize(
    ("ips", "best_s", "shown"),
    [(99.0, 0.01, 99.0), (101.0, 0.01, 98.0), (101.0, None, 101.0), (250.0, 0.01, 98.0)],
)
def test_a_first_reply_that_comes_late_makes_no_step_quicker_than_it_is(
    ips: float, best_s: float | None, shown: float
) -> None:
    assert pace.paced(ips, 1, best_s, 98.0) == shown
    assert pace.paced(8 * ips, 8, best_s, 98.0) == 8 * shown

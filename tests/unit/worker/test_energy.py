"""Energy since the first sample, from counters and from present power."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pareto.worker.sensors.energy import CounterMeter, Metered, PowerMeter


def answers(*values: float | None) -> Callable[[], float | None]:
    return iter(values).__next__


def test_a_counter_is_taken_as_it_is_from_its_first_reading_on() -> None:
    meter = CounterMeter("x", answers(1000.0, 1003.0, 1004.0))
    assert meter.sample(10.0) == Metered(0.0, None)  # no quotient yet: not 0 W
    assert meter.sample(11.0) == Metered(3.0, 3.0)
    assert meter.sample(13.0) == Metered(4.0, 0.5)


def test_a_counter_that_misses_a_reading_has_lost_nothing() -> None:
    meter = CounterMeter("x", answers(1000.0, None, 1004.0))
    meter.sample(0.0)
    assert meter.sample(1.0) == Metered(None, None)
    assert meter.sample(2.0) == Metered(4.0, 2.0)


def test_present_power_is_not_derived_where_it_is_read() -> None:
    meter = CounterMeter("x", answers(0.0, 3.0), answers(20.0, None))
    assert meter.sample(0.0) == Metered(0.0, 20.0)
    assert meter.sample(1.0) == Metered(3.0, None)


def test_power_is_integrated_by_the_trapezoid_rule_over_the_real_times() -> None:
    meter = PowerMeter("x", answers(2.0, 4.0, 4.0))
    assert meter.sample(10.0) == Metered(0.0, 2.0)
    assert meter.sample(10.5) == Metered(1.5, 4.0)
    assert meter.sample(13.5) == Metered(13.5, 4.0)


def test_a_missing_power_reading_is_a_sample_without_energy() -> None:
    meter = PowerMeter("x", answers(2.0, None, 4.0))
    meter.sample(0.0)
    assert meter.sample(1.0) == Metered(None, None)
    after = meter.sample(2.0)
    assert after.energy_j == pytest.approx(6.0)

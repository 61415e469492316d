"""A link that changes: what it carries, when, and how long a transfer takes at best."""

from __future__ import annotations

import random
from math import inf, nan

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.remote.link.trace import MAX_STEPS, Step, Trace
from tests.unit.gating import gating

# 1 s at 8 kbit/s, an outage of 1 s, 2 s at 16 kbit/s: 40 kbit in 4 s.
HOLE = Trace("hole", 4.0, (Step(0.0, 0.1, 8e3), Step(1.0, 0.2, 0.0), Step(2.0, 0.4, 16e3)))
UNLIMITED = Trace("delays", 4.0, (Step(0.0, 0.1, None), Step(1.0, 0.3, None)))


def randomly(seed: int) -> Trace:
    """A trace with an outage here and there, the first or last step included; no times that floats have exactly."""
    rng = random.Random(seed)  # noqa: S311
    times = [0, *sorted(rng.sample(range(1, 60), rng.randint(1, 8)))]
    rates = [rng.choice([0.0, 0.0, 3e5, 1e6, 7e6, 2.5e7]) for _ in times[1:]]
    rates[rng.randrange(len(rates))] = 2e6
    steps = (Step(at / 10, rng.random() / 10, rate) for at, rate in zip(times, rates, strict=False))
    return Trace(f"seed {seed}", times[-1] / 10, tuple(steps))


def starts(trace: Trace, laps: int) -> list[tuple[float, Step, Step]]:
    """Where each step begins in some laps, with the step before it."""
    order = [(lap, index) for lap in range(laps) for index in range(len(trace.steps))]
    return [
        (lap * trace.period_s + trace.steps[index].at_s, trace.steps[index], trace.steps[index - 1])
        for lap, index in order
    ]


SEEDS = range(60)


@pytest.mark.parametrize(
    ("position", "bits"),
    [(0, 0), (0.5, 4e3), (1, 8e3), (1.7, 8e3), (2, 8e3), (3, 24e3), (4, 40e3), (9.5, 88e3)],
)
def test_what_is_carried_by_a_position(position: float, bits: float) -> None:
    assert HOLE.carried_bits(position) == bits


@pytest.mark.parametrize(
    ("bits", "position"),
    [(0, 0), (4e3, 0.5), (8e3, 1), (8001, 2 + 1 / 16e3), (40e3, 4), (48e3, 5), (88e3, 9)],
)
def test_when_so_much_is_carried_at_the_earliest(bits: float, position: float) -> None:
    assert HOLE.when_carried(bits) == pytest.approx(position, abs=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_two_are_inverse(seed: int) -> None:
    trace, rng = randomly(seed), random.Random(seed)  # noqa: S311
    for position in (rng.uniform(0, 20 * trace.period_s) for _ in range(200)):
        bits = trace.carried_bits(position)
        earliest = trace.when_carried(bits)
        assert earliest <= position + 1e-9
        assert trace.carried_bits(earliest) == pytest.approx(bits, rel=1e-9)
        if trace.step(position).rate_bps:
            assert earliest == pytest.approx(position, abs=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_ends_where_an_outage_begins_does_not_wait_for_its_end(seed: int) -> None:
    """Of whatever lap, however floats round."""
    trace = randomly(seed)
    for where, step, before in starts(trace, 30)[1:]:
        if before.rate_bps and not step.rate_bps:
            assert trace.when_carried(trace.carried_bits(where)) == pytest.approx(where, abs=1e-9)
            start = where - 1e-3
            nbytes = before.rate_bps * 1e-3 / 8
            assert trace.transfer_s(nbytes, start) == pytest.approx(1e-3, abs=1e-9)


@pytest.mark.parametrize(
    ("nbytes", "start", "seconds"),
    [
        (1000, 0, 1),  # to the very beginning of the outage
        (1000, 0.5, 0.5 + 1 + 0.25),  # across it
        (1000, 1.5, 0.5 + 0.5),  # begun within it
        (2000, 3.5, 0.5 + 1),  # past the end of the period
        (50_000, 0, 40),  # ten periods
        (0, 1.5, 0),
    ],
)
def test_how_long_a_transfer_takes(nbytes: float, start: float, seconds: float) -> None:
    assert HOLE.transfer_s(nbytes, start) == pytest.approx(seconds, abs=1e-9)


def test_without_a_rate_transfers_take_no_time() -> None:
    assert not UNLIMITED.limited
    assert UNLIMITED.transfer_s(1e9, 2.0) == UNLIMITED.least_transfer_s(1e9, 0.0, 9.0) == 0.0


@pytest.mark.parametrize(
    ("nbytes", "from_s", "to_s", "seconds"),
    [
        (1000, 0, 4, 0.5),  # begun and ended at the higher rate
        (1000, 0, 1, 1),  # the start at 0 alone ends before the outage
        (1000, 0.2, 1, 1.5),  # the later the better: the rest of the outage, then the higher rate
        (5000, 0, 8, 3),  # both halves of the higher rate would leave the outage in: begun at its end
        (6000, 1, 2, 4.5),
        (1000, 1.2, 1.2, 1.3),  # one start
    ],
)
def test_the_least_that_a_transfer_can_take(
    nbytes: float, from_s: float, to_s: float, seconds: float
) -> None:
    assert HOLE.least_transfer_s(nbytes, from_s, to_s) == pytest.approx(seconds, abs=1e-9)


@pytest.mark.parametrize("seed", gating(SEEDS, *SEEDS[:15]))
def test_no_start_does_better_than_the_least(seed: int) -> None:
    trace, rng = randomly(seed), random.Random(seed)  # noqa: S311
    for _ in range(5):
        nbytes = trace._carried[-1] / 8 * 10 ** rng.uniform(-2, 0.5)
        from_s = rng.choice([0.0, rng.uniform(0, 30 * trace.period_s)])
        to_s = from_s + trace.period_s * rng.choice([0.0, 0.1, rng.random(), 1.7])
        least = trace.least_transfer_s(nbytes, from_s, to_s)
        count = 4000
        tried = [trace.transfer_s(nbytes, from_s + (to_s - from_s) * i / count) for i in range(count + 1)]
        assert least <= min(tried) + 1e-9
        # Some start does that well: none is further from a tried one than this, and a later start by so much ends
        # earlier by less.
        assert least >= min(tried) - (to_s - from_s) / count * steepest(trace)


def steepest(trace: Trace) -> float:
    """How much a transfer's duration can change for a start later by a second, jumps aside."""
    rates = [step.rate_bps for step in trace.steps if step.rate_bps]
    return 1 + max(rates) / min(rates)


def test_edges_are_the_ends_and_what_begins_between() -> None:
    assert list(HOLE.edges(0.5, 5.0)) == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    assert list(HOLE.edges(1.0, 1.5)) == [1.0, 1.5]
    assert list(HOLE.edges(41.5, 42.5)) == [41.5, 42.0, 42.5]


def test_the_step_in_force() -> None:
    assert [HOLE.step(at) for at in (0.0, 0.99, 1.0, 3.9, 4.0, 9.0)] == [
        HOLE.steps[index] for index in (0, 0, 1, 2, 0, 1)
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_at_an_edge_of_any_lap_the_new_step_is_in_force(seed: int) -> None:
    trace = randomly(seed)
    for where, step, _ in starts(trace, 30):
        assert trace.step(where) == step
        assert trace.step(where + 1e-6) == step


def test_the_steps_of_a_span() -> None:
    first, hole, last = HOLE.steps
    assert HOLE.steps_between(0.2, 0.3) == (first,)
    assert HOLE.steps_between(0.2, 1.0) == (first, hole)
    assert HOLE.steps_between(3.0, 4.5) == (last, first)
    assert HOLE.steps_between(43.0, 44.5) == (last, first)
    assert HOLE.steps_between(3.0, 6.5) == (last, first, hole)
    assert set(HOLE.steps_between(3.0, 7.0)) == set(HOLE.steps)
    assert HOLE.steps_between(1.0, 99.0) == HOLE.steps


@pytest.mark.parametrize("seed", SEEDS)
def test_no_step_of_a_span_is_missed(seed: int) -> None:
    trace = randomly(seed)
    for where, step, before in starts(trace, 30)[1:]:
        assert set(trace.steps_between(where - 0.01, where + 0.01)) == {before, step}


def test_means_are_by_time() -> None:
    assert HOLE.mean_rate_bps == 10e3
    assert HOLE.mean_delay_s == pytest.approx((0.1 + 0.2 + 2 * 0.4) / 4)
    assert UNLIMITED.mean_rate_bps is None
    assert UNLIMITED.mean_delay_s == pytest.approx(0.25)


ON = Step(0.0, 0.0, 1e6)


def test_what_is_no_trace(snapshot: SnapshotAssertion) -> None:
    messages = []
    for period_s, steps, fault in [
        (1.0, (), "time 0"),
        (1.0, (Step(0.1, 0.0, 1e6),), "time 0"),
        (1.0, (ON, Step(0.5, 0.0, 1e6), Step(0.5, 0.0, 2e6)), "times"),
        (1.0, (ON, Step(1.0, 0.0, 2e6)), "period"),
        (0.0, (ON,), "period"),
        (inf, (ON,), "period"),
        (nan, (ON,), "period"),
        (1e8, (ON,), "period"),
        (1e-9, (ON,), "too short"),
        (1.0, (ON, Step(0.9995, 0.0, 1e6)), "too short"),
        (1.0, (ON, Step(0.0005, 0.0, 1e6)), "too short"),
        (1.0, (ON, Step(nan, 0.0, 1e6)), "at nan"),
        (1.0, (Step(0.0, -1.0, 1e6),), "delay -1 s"),
        (1.0, (Step(0.0, nan, 1e6),), "delay nan s"),
        (1.0, (ON, Step(0.5, 0.0, -1e6)), "rate"),
        (1.0, (ON, Step(0.5, 0.0, inf)), "rate"),
        (1.0, (ON, Step(0.5, 0.0, None)), "a rate in every step"),
        (1.0, (Step(0.0, 0.0, 0.0), Step(0.5, 0.1, 0.0)), "nothing"),
        (
            1.0,
            tuple(Step(i / (MAX_STEPS + 1), 0.0, 1e6) for i in range(MAX_STEPS + 1)),
            f"{MAX_STEPS + 1} steps",
        ),
    ]:
        with pytest.raises(ValueError, match=fault) as refused:
            Trace("wrong", period_s, steps)
        messages.append(str(refused.value))
    assert messages == snapshot


def test_the_longest_transfer_has_just_missed_an_outage() -> None:
    trace = Trace("t", 4.0, (Step(0, 0, 8_000), Step(1, 0, 0), Step(2, 0, 16_000)))
    assert trace.most_transfer_s(1000, 0.0, 0.5) == pytest.approx(2.0, abs=1e-4)
    assert trace.most_transfer_s(1000, 2.0, 3.0) == pytest.approx(0.5)
    brute = max(trace.transfer_s(3000, i / 1000) for i in range(4001))
    assert trace.most_transfer_s(3000, 0.0, 4.0) == pytest.approx(brute, abs=2e-3)

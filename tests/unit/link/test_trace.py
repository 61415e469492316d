"""A link that changes: what it carries, when, how long a transfer takes at best; what netem and tbf make of it."""

from __future__ import annotations

import random
from math import inf, nan

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.remote.link import player
from pareto.remote.link.netem import Netem, Tbf
from pareto.remote.link.player import Rates, delay_at
from pareto.remote.link.profile import Direction, Gilbert
from pareto.remote.link.trace import MAX_STEPS, Step, Trace
from tests.unit.gating import gating
from tests.unit.refusals import refusal

# 1 s at 8 kbit/s, an outage of 1 s, 2 s at 16 kbit/s: 40 kbit in 4 s.
HOLE = Trace("hole", 4.0, (Step(0.0, 0.1, 8e3), Step(1.0, 0.2, 0.0), Step(2.0, 0.4, 16e3)))
UNLIMITED = Trace("delays", 4.0, (Step(0.0, 0.1, None), Step(1.0, 0.3, None)))
SEEDS = range(60)


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


def test_what_is_carried_by_a_position_and_when_so_much_is_at_the_earliest(
    snapshot: SnapshotAssertion,
) -> None:
    """And how long transfers take, at least within a span; its edges, and its steps, none of them twice."""
    said = [f"{HOLE.carried_bits(at):g} bits by {at} s" for at in (0, 0.5, 1, 1.7, 2, 3, 4, 9.5)]
    carried = (0, 4e3, 8e3, 8001, 40e3, 48e3, 88e3)
    said += [f"{bits:g} bits by {HOLE.when_carried(bits):.9g} s at the earliest" for bits in carried]
    for nbytes, at in ((1000, 0), (1000, 0.5), (1000, 1.5), (2000, 3.5), (50_000, 0), (0, 1.5)):
        said.append(f"{nbytes} bytes from {at} s on take {HOLE.transfer_s(nbytes, at):.9g} s")
    for each in ((1000, 0, 4), (1000, 0, 1), (1000, 0.2, 1), (5000, 0, 8), (6000, 1, 2), (1000, 1.2, 1.2)):
        said.append(f"of bytes and a span {each}: {HOLE.least_transfer_s(*each):.9g} s at least")
    for span in ((0.2, 0.3), (0.5, 5.0), (1.0, 1.5), (0.2, 1.0), (3.0, 4.5), (3.0, 6.5), (41.5, 42.5)):
        steps = list(dict.fromkeys(HOLE.step(at).at_s for at in HOLE.edges(*span)))
        said.append(f"in {span}: the steps of {steps}, edges at {list(HOLE.edges(*span))}")
    said.append(f"in force: {[HOLE.step(at).at_s for at in (0.0, 0.99, 1.0, 3.9, 4.0, 9.0)]}")
    assert said == snapshot
    assert {HOLE.step(at) for at in HOLE.edges(1.0, 99.0)} == set(HOLE.steps)
    assert not UNLIMITED.limited
    assert UNLIMITED.transfer_s(1e9, 2.0) == UNLIMITED.least_transfer_s(1e9, 0.0, 9.0) == 0.0
    # The longest transfer has just missed an outage.
    assert HOLE.most_transfer_s(1000, 0.0, 0.5) == pytest.approx(2.0, abs=1e-4)
    assert HOLE.most_transfer_s(1000, 2.0, 3.0) == pytest.approx(0.5)
    brute = max(HOLE.transfer_s(3000, i / 1000) for i in range(4001))
    assert HOLE.most_transfer_s(3000, 0.0, 4.0) == pytest.approx(brute, abs=2e-3)
    # Means are by time.
    assert (HOLE.mean_rate_bps, UNLIMITED.mean_rate_bps) == (10e3, None)
    assert HOLE.mean_delay_s == pytest.approx((0.1 + 0.2 + 2 * 0.4) / 4)
    assert UNLIMITED.mean_delay_s == pytest.approx(0.25)


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
    # At an edge of any lap however floats round. The new step is in force, and a span misses none; what ends
    # where an outage begins does not wait for its end.
    trace = randomly(seed)
    for where, step, before in starts(trace, 30):
        assert trace.step(where) == trace.step(where + 1e-6) == step
        if where == 0:
            continue
        assert {trace.step(at) for at in trace.edges(where - 0.01, where + 0.01)} == {before, step}
        if before.rate_bps and not step.rate_bps:
            assert trace.when_carried(trace.carried_bits(where)) == pytest.approx(where, abs=1e-9)
            nbytes = before.rate_bps * 1e-3 / 8
            assert trace.transfer_s(nbytes, where - 1e-3) == pytest.approx(1e-3, abs=1e-9)


@pytest.mark.parametrize("seed", gating(SEEDS, *SEEDS[:15]))
def test_no_start_does_better_than_the_least(seed: int) -> None:
    trace, rng = randomly(seed), random.Random(seed)  # noqa: S311
    rates = [step.rate_bps for step in trace.steps if step.rate_bps]
    steepest = 1 + max(rates) / min(rates)  # a duration's change for a start later by a second, jumps aside
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
        assert least >= min(tried) - (to_s - from_s) / count * steepest


ON = Step(0.0, 0.0, 1e6)


def test_what_is_no_trace(snapshot: SnapshotAssertion) -> None:
    messages = []
    many = tuple(Step(i / (MAX_STEPS + 1), 0.0, 1e6) for i in range(MAX_STEPS + 1))
    for period_s, steps, fault in [
        (1.0, (), "time 0"),
        (1.0, (Step(0.1, 0.0, 1e6),), "time 0"),
        (1.0, (ON, Step(0.5, 0.0, 1e6), Step(0.5, 0.0, 2e6)), "times"),
        (1.0, (ON, Step(1.0, 0.0, 2e6)), "period"),
        *((period_s, (ON,), "period") for period_s in (0.0, inf, nan, 1e8)),
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
        (1.0, many, f"{MAX_STEPS + 1} steps"),
    ]:
        messages.append(refusal(ValueError, Trace, "wrong", period_s, steps))
        assert fault in messages[-1]
    assert messages == snapshot


# What a trace makes of netem and tbf at a moment.

PACKET_BITS = 1514 * 8


def way(*steps: tuple[float, float, float | None], period_s: float = 4.0, **others: object) -> Direction:
    trace = Trace("test", period_s, tuple(Step(*step) for step in steps))
    return Direction(trace=trace, **others)  # type: ignore[arg-type]


def passes(tbf: Tbf, seconds: float) -> float:
    """Bits that a busy tbf lets pass from a change on: its bucket lacked half a packet, then its rate."""
    burst = tbf.burst_ticks * 64e-9 * 8 * tbf.rate_bytes
    return burst - PACKET_BITS / 2 + 8 * tbf.rate_bytes * seconds


def test_a_steps_delay_holds_until_the_next_and_short_ones_are_merged_into_their_mean() -> None:
    changing = way((0, 0.02, None), (0.5, 0.03, None))
    short = way((0, 0.02, None), (0.005, 0.04, None), (0.3, 0.1, None))
    for direction, at_s, delay_s, ends_s in (
        (changing, 0.1, 0.02, 0.5),
        (changing, 0.5, 0.03, 4.0),
        (changing, 4.2, 0.02, 4.5),
        (short, 0.0, (0.02 * 5 + 0.04 * 15) / 20, 0.02),
    ):
        netem, until_s = delay_at(direction, at_s)
        assert (netem.direction.delay_s, until_s) == (pytest.approx(delay_s), pytest.approx(ends_s))
        assert netem.rate_bytes == 0
    # A step carries what the trace says and short ones their mean.
    rates = Rates(way((0, 0.0, 2e6), (0.5, 0.0, 8e6)))
    for at_s, bits in ((0.0, 1e6), (0.5, 3.5 * 8e6)):
        tbf, until_s = rates.at(at_s)
        assert passes(tbf, until_s - at_s) == pytest.approx(bits, rel=1e-4)
    tbf, until_s = Rates(way((0, 0.0, 2e6), (0.005, 0.0, 6e6), (0.3, 0.0, 1e6))).at(0.0)
    assert until_s == pytest.approx(0.02)
    assert passes(tbf, 0.02) == pytest.approx(2e6 * 0.005 + 6e6 * 0.015, rel=1e-3)
    # The rate comes as much later as the packets.
    rates = Rates(way((0, 0.1, 2e6), (1, 0.1, 8e6)))
    tbf, until_s = rates.at(1.05)  # what comes to tbf now was sent at 0.95
    assert until_s == pytest.approx(1.1)
    assert 8 * tbf.rate_bytes < 2e6
    assert 8 * rates.at(1.1)[0].rate_bytes > 7e6
    # An outage passes one packet by its end which is taken off later.
    tbf, until_s = Rates(way((0, 0.0, 2e6), (1, 0.0, 0.0), (2, 0.0, 8e6))).at(1.0)
    assert until_s == pytest.approx(2.0)
    assert 8 * tbf.rate_bytes == pytest.approx(PACKET_BITS, rel=1e-3)
    brief = way((0, 0.0, 2e6), (1, 0.0, 0.0), (1.1, 0.0, 8e6), (1.2, 0.0, 0.0))
    rates, fresh = Rates(brief), Rates(brief).at(1.1)[0]
    rates.at(1.0)
    assert passes(fresh, 0.1) - passes(rates.at(1.1)[0], 0.1) == pytest.approx(PACKET_BITS / 2, rel=0.01)


def test_the_chain_and_the_buffer_which_is_tbfs() -> None:
    assert [type(layer) for layer in player.chain(way((0, 0.02, None)), 0.0)] == [Netem]
    assert [type(layer) for layer in player.chain(way((0, 0.02, 2e6)), 0.0)] == [Netem, Tbf]
    limited = way((0, 0.02, 2e6), limit_bytes=30_000)
    assert Rates(limited).at(0.0)[0].limit_bytes == 30_000
    assert Rates(way((0, 0.02, 2e6))).at(0.0)[0].limit_bytes >= 10_000_000
    assert delay_at(limited, 0.0)[0].limit_packets > 10_000
    # Bursts of loss have a netem that the trace does not change.
    first, second, _ = player.chain(way((0, 0.1, 1e6), loss=Gilbert(0.1, 0.5), duplicate=0.1), 0.0)
    assert isinstance(first, Netem) and isinstance(second, Netem)
    assert (bool(first.gilbert), bool(first.delay_ticks)) == (True, False)
    assert (bool(second.gilbert), bool(second.duplicate)) == (False, True)

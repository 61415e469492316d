"""What chance does to a packet in the relay. Seeds are fixed; intervals are four standard deviations wide."""

from __future__ import annotations

from collections import Counter
from itertools import groupby, pairwise
from random import Random
from typing import Any

import pytest

from pareto.remote.link import relay_path
from pareto.remote.link.profile import Direction, Gilbert

COUNT = 40_000


def losses_of(**fields: Any) -> relay_path.Losses:
    return relay_path.Losses(Direction(delay_s=0.1, **fields), Random(7))  # noqa: S311


def within(share: float) -> Any:
    return pytest.approx(share, abs=4 * (share * (1 - share) / COUNT) ** 0.5)


def test_each_impairment_has_its_own_probability() -> None:
    """An unimpaired packet passes once; every bit can be the damaged one."""
    losses = losses_of()
    assert {losses.copies() for _ in range(100)} == {(1, 0)}
    assert not any(losses.strikes(losses.direction.corrupt) for _ in range(100))
    losses = losses_of(corrupt=0.05, reorder=0.25)
    for share in (losses.direction.corrupt, losses.direction.reorder):
        assert sum(losses.strikes(share) for _ in range(COUNT)) / COUNT == within(share)
    assert {losses.bit(4) for _ in range(1000)} == set(range(32))
    # Losses are independent and cancel duplicates as in netem. 1 + duplicate - lost, and a copy that is made is
    # a packet of its own.
    losses = losses_of(loss=0.1)
    lost = [losses.copies() == (0, 1) for _ in range(COUNT)]
    assert sum(lost) / COUNT == within(0.1)
    assert sum(a and b for a, b in pairwise(lost)) / COUNT == within(0.01)
    losses = losses_of(loss=0.2, duplicate=0.3)
    outcomes = Counter(losses.copies() for _ in range(COUNT))
    assert {outcome: count / COUNT for outcome, count in outcomes.items()} == {
        (0, 1): within(0.7 * 0.2),
        (1, 0): within(0.7 * 0.8),
        (1, 1): within(0.3 * (0.2 + 0.8 * 0.2)),
        (2, 0): within(0.3 * 0.8 * 0.8),
    }


def losses_in_bursts(model: Gilbert, count: int = 10 * COUNT) -> list[bool]:
    loses = relay_path.Losses(Direction(loss=model), Random(5)).loses  # noqa: S311
    return [loses() for _ in range(count)]


def test_the_state_before_the_transition_decides() -> None:
    assert losses_in_bursts(Gilbert(1.0, 1.0), 6) == [False, True, False, True, False, True]
    # Gilbert loses its mean in bursts.
    model = Gilbert(good_to_bad=0.02, bad_to_good=0.25)
    lost = losses_in_bursts(model)
    assert sum(lost) / len(lost) == pytest.approx(model.mean, rel=0.05)
    runs = [(bad, len(list(run))) for bad, run in groupby(lost)]
    for which, mean in ((True, 1 / 0.25), (False, 1 / 0.02)):
        lengths = [length for bad, length in runs if bad is which]
        assert sum(lengths) / len(lengths) == pytest.approx(mean, rel=0.05)
    elliott = Gilbert(0.02, 0.1, in_bad=0.5, in_good=0.01)  # loses in both states
    assert sum(losses_in_bursts(elliott)) / (10 * COUNT) == pytest.approx(elliott.mean, rel=0.05)

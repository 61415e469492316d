"""The points that hold an SLO, as predicted: the waits of a queue of one server, and what is said of them."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

import pareto
from pareto.analysis.advice.under_load import latency_s, sentence
from pareto.sweep.load import Load, parse, slo
from tests import REPOSITORY
from tests.program import command, well

STEP_S, ALONE_S = 0.02, 0.05
ADVISE = ("advise", str(REPOSITORY / "results/example"), "--latency", "20ms", "--rate", "30mbit")


def quantile(load: Load, share: float) -> float:
    """The latency that a share exceeds, of 50 ms alone, by Lindley's recursion over 200 000 random arrivals."""
    gaps_s = np.random.default_rng(7).exponential(1 / load.rate, 200_000)
    waited_s = np.zeros(len(gaps_s))
    for place, gap_s in enumerate(gaps_s[1:], 1):
        waited_s[place] = max(0.0, waited_s[place - 1] + STEP_S - gap_s)
    return ALONE_S + float(np.quantile(waited_s, 1 - share))


@pytest.mark.parametrize("share", [0.05, 0.01])
@pytest.mark.parametrize("rate", [10, 25, 40, 45])
def test_random_arrivals_wait_about_as_long_as_they_do(rate: int, share: float) -> None:
    """A little longer rather than shorter: an SLO that is said to hold does."""
    load = Load("poisson", rate, by_chance=True)
    (found,) = latency_s(np.array([ALONE_S]), np.array([STEP_S]), load, share)
    assert -0.03 <= found / quantile(load, share) - 1 <= 0.15


def test_what_comes_at_a_period_waits_for_nothing_and_what_cannot_keep_up_for_ever() -> None:
    alone, step = np.full(2, ALONE_S), np.array([0.0199, 0.0201])
    assert latency_s(alone, step, Load("50/s", 50), 0.05).tolist() == [ALONE_S, math.inf]


def test_said_which_points_hold_it_and_which_may(snapshot: SnapshotAssertion) -> None:
    points = pd.DataFrame(
        [
            ("tcp", "0", 0.05, 60.0),
            ("rpc", "0", 0.095, 40.0),
            ("tcp", "7", 0.03, 15.5),
            ("none", "9", 0.3, 90.0),
        ],
        columns=["backend", "point", "latency_s", "throughput_ips"],
    ).assign(batch_size=1)
    load = parse("15/s")
    assert load is not None
    said = [
        sentence(points, load, slo("p95 < 100ms"), spreads)
        for spreads in ((0.1, 0.1), (math.nan, math.nan), (0, 0))
    ]
    assert [*said, sentence(points, load, slo("p95 < 1ms"), (0.1, 0.05))] == snapshot


def test_advise_under_a_load(snapshot: SnapshotAssertion) -> None:
    done = well(*ADVISE, "--load", "poisson:10/s", "--slo", "p95 < 150ms")
    assert " ".join(done.out[done.out.index("under poisson") :].split()) == snapshot
    found = pareto.advise(ADVISE[1], "20ms", "30mbit", load="poisson:10/s", slo="p95 < 150ms")
    assert any("under poisson:10/s" in str(part) for part in found.parts)
    for asked in (
        ("--load", "9/s"),
        ("--load", "trace:x", "--slo", "max < 1s"),
        ("--load", "9/s", "--slo", "p7 < 1s"),
    ):
        refused = command(*ADVISE, *asked)
        assert (refused.code, refused.out) == (2, "") and refused.err.count("\n") == 1
        assert refused.err == snapshot(name=" ".join(asked))

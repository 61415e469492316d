"""What identical treatments differ by, and what follows for conclusions: two names of one thing are not told apart."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from analysis.comparing.paired import ALL, paired
from analysis.fronts.front import front
from analysis.statistics.noise import floor_sentences, floors
from tests.unit.simulated_rounds import trials

AA = ("tcp:a", "tcp:b")


def run(
    seed: int,
    *,
    offset: float,
    noise: float = 0.02,
    rounds: int = 6,
    points: int = 8,
    names: tuple[str, ...] = AA,
) -> pd.DataFrame:
    """Points that trade latency for throughput, under two names: an offset of its own for each cell in all rounds."""
    rng = np.random.default_rng(seed)
    along = np.repeat(np.linspace(0, 1, points), 2)
    measured = []
    for _ in range(2):
        lasting = offset * rng.standard_normal((1, 1, 2 * points))
        common = 0.05 * rng.standard_normal((1, rounds, 1))
        measured.append(
            np.exp(along + lasting + common + noise * rng.standard_normal((1, rounds, 2 * points)))
        )
    data = trials(*measured, names)
    return data.assign(payload_bytes=1000.0, latency_bound_s=0.1)


@pytest.mark.parametrize("offset", [0.0, 0.01, 0.05])
def test_the_floor_is_what_was_put_in(offset: float) -> None:
    found = [floors(run(seed, offset=offset))["m", ""] for seed in range(30)]
    assert {floor.comparisons for floor in found} == {8}
    shares = np.array([list(floor.shares.values()) for floor in found])
    assert np.sqrt((shares**2).mean(axis=0)) == pytest.approx([offset, offset], abs=0.005)


def test_where_nothing_crosses_every_backend_is_a_control_and_elsewhere_none() -> None:
    data = run(0, offset=0.03, names=("tcp", "rpc"))
    assert floors(data) == {}
    data.loc[data["point"] == "7", "payload_bytes"] = 0
    assert floors(data)["m", ""].comparisons == 1
    assert floors(data.iloc[:0]) == {}


def test_two_names_of_one_thing_are_not_told_apart_on_a_front() -> None:
    """The issue's run had p 0.95 and 0.13 of one point under two names."""
    apart = []
    for seed in range(20):
        rows = front(run(seed, offset=0.03), resamples=1).pivot(
            index="point", columns="backend", values="probability_all"
        )
        apart.append((rows["tcp:a"] - rows["tcp:b"]).abs().max())
    assert np.nanmax(apart) < 0.75
    assert np.nanmedian(apart) < 0.5


def test_no_verdict_on_what_identical_treatments_differ_by() -> None:
    """An offset of 3 % is significant in 12 rounds of 1 % noise at point after point, and means nothing."""
    seen = 0
    for seed in range(10):
        rows = paired(run(seed, offset=0.03, noise=0.01, rounds=12))
        assert (rows.loc[rows["point"] != ALL, "latency_p_corrected"] <= 0.05).any(), (
            "which rounds alone would say"
        )
        seen += int(rows["latency_significant"].sum())
        of_all = rows[rows["point"] == ALL].iloc[0]
        assert of_all["latency_low_s"] < 0 < of_all["latency_high_s"]
    assert seen <= 2
    data = run(0, offset=0.03, noise=0.01, rounds=12, names=("tcp", "rpc"))
    data.loc[data["point"] == "7", "payload_bytes"] = 0
    data.loc[(data["backend"] == "rpc") & (data["payload_bytes"] > 0), "latency_s"] *= 1.5
    assert paired(data)["latency_significant"].any(), "what is far beyond the floor is told"


def test_the_floor_is_told(snapshot: SnapshotAssertion) -> None:
    texts = [list(floor_sentences(floors(run(1, offset=offset)))) for offset in (0.05, 0.0)]
    assert texts == snapshot

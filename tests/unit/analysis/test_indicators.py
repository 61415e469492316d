"""Who dominates whom, against the definition; hypervolumes and attainment surfaces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.fronts import draws, indicators
from pareto.analysis.fronts.indicators import (
    COLUMNS,
    PERCENT,
    attainment,
    hypervolumes,
    nondominated,
    nondominated_in_each,
    staircase,
    volume,
    volumes_of_each,
)
from pareto.analysis.fronts.objectives import chosen
from pareto.analysis.runs.points import CONDITION
from pareto.analysis.statistics.samples import Bools, Floats
from pareto.protocol.errors import UserError
from tests.unit.simulated_rounds import tradeoffs, trials


def brute_force(*figures: Floats, maximise: Sequence[bool] = (False, True, False)) -> Bools:
    """By the definition, pair by pair."""
    # All to be minimised. NaN compares as false, so that such a point dominates nothing.
    losses = [-values if more else values for values, more in zip(figures, maximise, strict=False)]
    no_worse = np.all([loss[:, None] <= loss for loss in losses], axis=0)
    better = np.any([loss[:, None] < loss for loss in losses], axis=0)
    return ~(no_worse & better).any(axis=0) & ~np.isnan(losses).any(axis=0)


def random_sets(count: int, objectives: int = 2) -> list[tuple[Floats, ...]]:
    """Few distinct values, so that ties and duplicates abound; some NaN."""
    rng = np.random.default_rng(0)
    sets = []
    for _ in range(count):
        space = rng.integers(1, 8, size=(objectives, rng.integers(0, 15))).astype(float)
        space[rng.random(space.shape) < 0.1] = np.nan
        sets.append(tuple(space))
    return sets


@pytest.mark.parametrize(
    "maximise", [(False, True), (True, True), (False, True, False), (True, False, False)]
)
def test_dominance_against_brute_force(maximise: tuple[bool, ...]) -> None:
    """Over the four, 4000 sets; the oracle compares every pair."""
    sets = random_sets(1000, len(maximise))
    for figures in sets:
        expected = brute_force(*figures, maximise=maximise)
        assert nondominated(*figures, maximise=maximise).tolist() == expected.tolist()


@pytest.mark.parametrize("objectives", [2, 3])
def test_dominance_in_many_sets_at_once(objectives: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same as set by set, also in parts, and where few points dominate most and tie with the best."""
    monkeypatch.setattr(indicators, "AT_ONCE", 5000)
    rng = np.random.default_rng(1)
    usual = rng.integers(1, 30, size=(80, objectives)).astype(float)
    for sets, lost in (
        (rng.integers(1, 8, size=(500, 12, objectives)).astype(float), 0.05),
        (usual + rng.integers(-1, 2, size=(200, 80, objectives)), 0.01),
    ):
        sets[rng.random(sets.shape) < lost] = np.nan
        maximise = (True, False, True)[:objectives]
        for figures, on_front in zip(sets, nondominated_in_each(sets, maximise), strict=True):
            assert on_front.tolist() == brute_force(*figures.T, maximise=maximise).tolist()
    assert nondominated_in_each(sets[:0], maximise).shape == (0, 80)


def test_staircase_is_the_boundary_of_what_is_attained() -> None:
    for latency, throughput in random_sets(300):
        x, y = staircase(latency, throughput, right=10, bottom=0)
        on_front = brute_force(latency, throughput)
        if not on_front.any():
            assert len(x) == len(y) == 0
            continue
        steps = np.diff([x, y])
        assert (steps >= 0).all() and ((steps == 0).sum(axis=0) == 1).all(), "each is horizontal or vertical"
        assert (x[-1], y[0]) == (10, 0)
        assert {*zip(x, y, strict=True)} >= {*zip(latency[on_front], throughput[on_front], strict=True)}
        # Beside the vertices, at any latency, the boundary is the best throughput attained by then.
        for at in np.arange(0.5, 10):
            attained = np.max(throughput[on_front & (latency <= at)], initial=0)
            assert np.max(y[x <= at], initial=0) == attained
        assert not any((throughput > np.interp(latency, x, y)) & ~on_front & ~np.isin(latency, x))


CORNERS = ["latency_s", "throughput_ips"]
PLANE = chosen(("latency", "throughput"))


def by_counting(points: Floats, reference: Floats) -> float:
    """Of the unit cells of a grid, those between the reference and a point: less of the first, more of the others."""
    sides = [np.arange(0, 10) for _ in reference]
    corners = np.stack(np.meshgrid(*sides, indexing="ij"), axis=-1).reshape(-1, len(reference))
    inside = np.zeros(len(corners), dtype=bool)
    for point in points[~np.isnan(points).any(axis=1)]:
        first = (corners[:, 0] >= point[0]) & (corners[:, 0] < reference[0])
        inside |= first & ((corners[:, 1:] < point[1:]) & (corners[:, 1:] >= reference[1:])).all(axis=1)
    return float(inside.sum())


def test_volumes_against_counting() -> None:
    rng = np.random.default_rng(0)
    for _ in range(150):
        points = rng.integers(0, 11, (rng.integers(0, 7), 2)).astype(float)
        points[rng.random(points.shape) < 0.1] = np.nan
        reference = rng.integers(0, 11, 2).astype(float)
        expected = by_counting(points, reference)
        assert volume(points, reference, PLANE) == expected
        if len(points):
            both = np.stack([points, points[::-1]])
            assert volumes_of_each(both, reference, PLANE).tolist() == [expected] * 2


def volumes(
    latency: list[float], throughput: list[float], backends: tuple[str, ...], /, **of: Any
) -> pd.DataFrame:
    """The hypervolumes of points of one round, by backend; of: `edge_s`, and what `hypervolumes` takes."""
    data = trials(np.array([[latency]]), np.array([[throughput]]), backends)
    data = data.assign(edge_s=of.pop("edge_s", np.nan))
    rows = hypervolumes(data, **of)
    assert list(rows[COLUMNS].columns) == COLUMNS
    return rows.set_index("backend")


FOUR = [1.0, 2.0, 4.0, 9.0]
NAN = float("nan")
# rpc has (1 s, 2) and (4, 5), tcp (2, 1) and (3, 6); the worst latency is 4 s.
TWO = [1.0, 2.0, 4.0, 3.0], [2.0, 1.0, 5.0, 6.0], ("rpc", "tcp")
ONE, BOTH = ("tcp",), ("tcp", "rpc")
VOLUMES: dict[str, tuple[Callable[[], pd.DataFrame], dict[str, float]]] = {
    "each backend and all": (
        partial(volumes, *TWO), {"tcp": 1 * 1 + 1.4 * 6, "rpc": 3 * 2 + 0.4 * 5, "all": 2 * 2 + 1.4 * 6},
    ),
    "a reference that is given": (
        partial(volumes, [1, 2], [2, 4], ONE, reference={"latency": 3, "throughput": 1}), {"tcp": 1 + 3, "all": 4},
    ),
    "all are worse than it": (partial(volumes, [1, 2], [2, 4], ONE, reference={"latency": 0.5}), {"tcp": 0, "all": 0}),
    "only feasible points count and bound": (
        partial(volumes, FOUR, FOUR, BOTH, where="latency_s <= 4"),
        {"tcp": 3 * 1 + 0.4 * 4, "rpc": 2.4 * 2, "all": 1 * 1 + 2 * 2 + 0.4 * 4},
    ),
    "one backend is feasible": (
        partial(volumes, FOUR, FOUR, BOTH, where="backend == tcp", reference={"latency": 5}),
        {"tcp": 3 * 1 + 4, "rpc": 0, "all": 3 * 1 + 4},
    ),
    "nothing is feasible": (partial(volumes, FOUR, FOUR, ONE, where="latency_s > 10"), {"tcp": NAN, "all": NAN}),
    "not measured is not zero": (
        partial(volumes, [1, 2, 3, 4], [1, NAN, 3, NAN], BOTH), {"tcp": 2.3 + 0.3 * 2, "rpc": NAN, "all": 2.9},
    ),
    "three objectives": (  # 1 x 2 x 1 and 3 x 1 x 2, of which 1 x 1 x 1 is both
        partial(
            volumes, [1, 2], [1, 2], ONE, objectives=("edge-time", "latency", "throughput"), edge_s=[3.0, 1.0],
            reference={"latency": 3, "edge-time": 4},
        ),
        {"tcp": 2 + 6 - 1, "all": 2 + 6 - 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("made", "expected"), VOLUMES.values(), ids=VOLUMES)
def test_hypervolumes_of_few_points_by_hand(
    made: Callable[[], pd.DataFrame], expected: dict[str, float]
) -> None:
    rows = made()
    assert rows["hypervolume"].to_dict() == pytest.approx(expected, nan_ok=True)
    assert rows[["hypervolume_low", "hypervolume_high"]].isna().all(axis=None)


def test_the_reference_is_said(snapshot: SnapshotAssertion) -> None:
    found = {name: made() for name, (made, _) in VOLUMES.items()}
    assert {name: rows["reference"].unique().tolist() for name, rows in found.items()} == snapshot
    assert found["each backend and all"]["reference_latency_s"].to_numpy() == pytest.approx(4.4)
    assert found["nothing is feasible"]["reference_latency_s"].isna().all()
    with pytest.raises(UserError, match="'energy'"):
        volumes(*TWO, reference={"energy": 3})
    assert hypervolumes(trials(*np.ones((2, 1, 1, 2))).assign(status="failed")).empty


def test_an_interval_needs_six_rounds_of_every_point_on_the_front_and_so_does_a_band() -> None:
    *_, latency, throughput = tradeoffs(1, 6, 6, noise=0.01, common=0.0, seed=1)
    data = trials(latency, throughput)
    enough = hypervolumes(data)
    assert enough["rounds"].tolist() == [6, 6]
    assert (enough["hypervolume_low"] < enough["hypervolume"]).all()
    assert (enough["hypervolume_high"] > enough["hypervolume"]).all()
    assert not attainment(data).empty
    quickest = str(np.argmin(np.median(latency[0], axis=0)))
    for few in (data[data["round"] < 5], data[~((data["point"] == quickest) & (data["round"] == 2))]):
        missing = hypervolumes(few)
        assert missing["rounds"].tolist() == [5, 5]
        assert missing[["hypervolume_low", "hypervolume_high"]].isna().all(axis=None)
        assert missing["hypervolume"].notna().all()
        assert attainment(few).empty
    for none in (data.assign(status="failed"), data.iloc[:0]):
        assert list(attainment(none)) == [*CONDITION, "backend", "percent", *CORNERS]
    assert attainment(data, where="latency_s < 0").empty


def test_the_interval_holds_the_true_hypervolume() -> None:
    """In about 95 of 100 cases."""
    *true, latency, throughput = tradeoffs(20, 6, 10, 0.05, common=0.5, seed=6)
    reference = {"latency": 3.0, "throughput": 0.5}
    found = hypervolumes(trials(latency, throughput), reference=reference, resamples=200)
    found = found[found["backend"] == "all"]
    truth = [volume(points, np.array([3.0, 0.5]), PLANE) for points in np.stack(true, axis=2)]
    holds = found["hypervolume_low"].to_numpy() <= truth
    holds &= found["hypervolume_high"].to_numpy() >= truth
    assert holds.mean() >= 0.9, holds.mean()
    assert (found["hypervolume"] / truth).mean() > 1, "noisy medians make too large a hypervolume"
    widths = found["hypervolume_high"] - found["hypervolume_low"]
    assert widths.mean() < 0.5 * np.mean(truth), "not so wide that it holds anything"


def attained(corners: Floats, at: Floats) -> bool:
    """Whether one of some (latency, throughput) equals or beats a place. NaN does not."""
    return bool(((corners[:, 0] <= at[0]) & (corners[:, 1] >= at[1])).any())


@pytest.mark.parametrize("limited", [False, True], ids=["", "not always feasible"])
def test_surfaces_are_what_so_many_of_the_resampled_fronts_attain(limited: bool) -> None:
    *_, latency, throughput = tradeoffs(1, 7, 6, noise=0.1, common=1.0, seed=4)
    data = trials(latency, throughput, ["tcp", "rpc"])
    # The quickest point alone, in about half of the resamples.
    where = f"latency_s <= {np.median(latency[0], axis=0).min()}" if limited else ""
    band = attainment(data, where=where).set_index(["backend", "percent"])[CORNERS]
    drawn = next(draws.prepared(data, ("latency", "throughput"), where, 400)[1])
    rng = np.random.default_rng(0)
    decided = []
    for backend, members in drawn.groups():
        sets = drawn.admitted[:, members]
        for at in np.exp(rng.uniform(-0.2, 1.2, (15, 2))):
            share = 100 * np.mean([attained(corners, at) for corners in sets])
            for percent in PERCENT:
                surface = band[band.index == (backend, percent)].to_numpy()
                decided.append(share >= percent)
                assert attained(surface, at) == decided[-1], (backend, percent, share)
    assert 0.05 < np.mean(decided) < 0.9
    # Where it is limited, in some resamples nothing is feasible.
    assert np.isnan(drawn.admitted).all(axis=(1, 2)).any() == limited


def test_corners_are_in_order_none_is_dominated_and_without_noise_they_are_the_front() -> None:
    *_, latency, throughput = tradeoffs(2, 8, 8, noise=0.05, common=1.0, seed=5)
    band = attainment(trials(latency, throughput))
    assert band.groupby(["netem", "backend"])["percent"].unique().map(list).tolist() == [[5, 50, 95]] * 4
    for _, surface in band.groupby(["netem", "backend", "percent"]):
        assert (np.diff(surface[CORNERS].to_numpy(), axis=0) > 0).all()
    still = np.ones((1, 6, 1))
    for _, surface in attainment(trials(still * [1, 2, 3, 4], still * [2, 5, 4, 6])).groupby(
        ["backend", "percent"]
    ):
        assert surface[CORNERS].to_numpy().tolist() == [[1, 2], [2, 5], [4, 6]]


def test_the_band_holds_the_true_front_in_nine_of_ten_cases() -> None:
    """In a given direction; over so many sets and five directions."""
    *true, latency, throughput = tradeoffs(12, 10, 12, noise=0.03, common=0.5, seed=6)
    band = attainment(trials(latency, throughput), resamples=200)
    band = band[band["backend"] == "all"]
    holds = []
    for (_, of_set), points in zip(band.groupby("netem"), np.stack(true, axis=2), strict=True):
        corners = {percent: rows[CORNERS].to_numpy() for percent, rows in of_set.groupby("percent")}
        for at in np.quantile(points[:, 0], [0.2, 0.4, 0.6, 0.8, 1]) * 1.02:
            least, most, really = (_best(each, at) for each in (corners[95], corners[5], points))
            holds.append(least <= really <= most)
    assert 0.86 < np.mean(holds) < 0.98, np.mean(holds)


def _best(corners: Floats, latency_s: float) -> float:
    """The throughput attained at a latency."""
    return float(corners[corners[:, 0] <= latency_s, 1].max(initial=0))

"""Who dominates whom, against the definition; hypervolumes and attainment surfaces."""

from __future__ import annotations

from collections.abc import Sequence

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
    """The same as set by set, also in parts."""
    monkeypatch.setattr(indicators, "AT_ONCE", 5000)
    rng = np.random.default_rng(1)
    sets = rng.integers(1, 8, size=(500, 12, objectives)).astype(float)
    sets[rng.random(sets.shape) < 0.05] = np.nan
    maximise = (True, False, True)[:objectives]
    for figures, on_front in zip(sets, nondominated_in_each(sets, maximise), strict=True):
        assert on_front.tolist() == brute_force(*figures.T, maximise=maximise).tolist()


def test_dominance_where_few_points_dominate_most() -> None:
    """The same as set by set where most points are left out of the comparison, with points that tie with the best."""
    rng = np.random.default_rng(2)
    usual = rng.integers(1, 30, size=(80, 2)).astype(float)
    sets = usual + rng.integers(-1, 2, size=(300, 80, 2))
    sets[rng.random(sets.shape) < 0.01] = np.nan
    for figures, on_front in zip(sets, nondominated_in_each(sets, (False, True)), strict=True):
        assert on_front.tolist() == nondominated(*figures.T, maximise=(False, True)).tolist()
    assert nondominated_in_each(sets[:0], (False, True)).shape == (0, 80)


def test_staircase_is_the_boundary_of_what_is_attained() -> None:
    for latency, throughput in random_sets(300):
        x, y = staircase(latency, throughput, right=10, bottom=0)
        on_front = brute_force(latency, throughput)
        if not on_front.any():
            assert len(x) == len(y) == 0
            continue
        assert (np.diff(x) >= 0).all()
        assert (np.diff(y) >= 0).all()
        assert ((np.diff(x) == 0) ^ (np.diff(y) == 0)).all(), "every edge is horizontal or vertical"
        assert (x[-1], y[0]) == (10, 0)
        corners = set(zip(x, y, strict=True))
        assert corners >= set(zip(latency[on_front], throughput[on_front], strict=True))
        # Beside the vertices, at any latency, the boundary is the best throughput attained by then.
        for at in np.arange(0.5, 10):
            attained = np.max(throughput[on_front & (latency <= at)], initial=0)
            drawn = np.max(y[x <= at], initial=0)
            assert drawn == attained
        assert not any((throughput > np.interp(latency, x, y)) & ~on_front & ~np.isin(latency, x))


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
            assert (
                volumes_of_each(np.stack([points, points[::-1]]), reference, PLANE).tolist() == [expected] * 2
            )


def test_each_backend_and_all_against_one_reference(snapshot: SnapshotAssertion) -> None:
    latency = np.array([[[1, 2, 4, 3]]], dtype=float)
    throughput = np.array([[[2, 1, 5, 6]]], dtype=float)
    rows = hypervolumes(trials(latency, throughput, ["rpc", "tcp"])).set_index("backend")
    assert list(rows.reset_index()[COLUMNS].columns) == COLUMNS
    # rpc has (1 s, 2) and (4, 5), tcp (2, 1) and (3, 6); the worst latency is 4 s.
    expected = {"tcp": 1 * 1 + 1.4 * 6, "rpc": 3 * 2 + 0.4 * 5, "all": 2 * 2 + 1.4 * 6}
    assert rows["hypervolume"].to_dict() == pytest.approx(expected)
    assert rows["reference"].unique().tolist() == snapshot
    assert rows["reference_latency_s"].to_numpy() == pytest.approx(4.4)
    assert rows[["hypervolume_low", "hypervolume_high"]].isna().all(axis=None)


def test_a_reference_that_is_given(snapshot: SnapshotAssertion) -> None:
    latency, throughput = np.array([[[1.0, 2.0]]]), np.array([[[2.0, 4.0]]])
    data = trials(latency, throughput)
    found = hypervolumes(data, reference={"latency": 3, "throughput": 1}).iloc[0]
    assert found["hypervolume"] == 1 * 1 + 1 * 3
    assert found["reference"] == snapshot
    assert hypervolumes(data, reference={"latency": 0.5})["hypervolume"].tolist() == [0, 0], "all are worse"
    with pytest.raises(UserError, match="'energy'"):
        hypervolumes(data, reference={"energy": 3})


def test_only_feasible_points_count_and_bound() -> None:
    latency = np.array([[[1.0, 2.0, 4.0, 9.0]]])
    data = trials(latency, latency, ["tcp", "rpc"])
    found = hypervolumes(data, where="latency_s <= 4").set_index("backend")
    assert found["reference_latency_s"].to_numpy() == pytest.approx(4.4)
    expected = {"tcp": 3 * 1 + 0.4 * 4, "rpc": 2.4 * 2, "all": 1 * 1 + 2 * 2 + 0.4 * 4}
    assert found["hypervolume"].to_dict() == pytest.approx(expected)
    one = hypervolumes(data, where="backend == tcp", reference={"latency": 5}).set_index("backend")
    assert one["hypervolume"].to_dict() == {"tcp": 3 * 1 + 4, "rpc": 0, "all": 3 * 1 + 4}
    none = hypervolumes(data, where="latency_s > 10")
    assert none[["hypervolume", "rounds", "reference_latency_s"]].isna().all(axis=None)


def test_not_measured_is_not_zero() -> None:
    latency = np.array([[[1.0, 2.0, 3.0, 4.0]]])
    data = trials(latency, latency, ["tcp", "rpc"])
    data.loc[data["backend"] == "rpc", "throughput_ips"] = np.nan
    assert hypervolumes(data).set_index("backend")["hypervolume"].isna().to_dict() == {
        "tcp": False, "rpc": True, "all": False,
    }  # fmt: skip
    assert hypervolumes(data.assign(status="failed")).empty


def test_three_objectives(snapshot: SnapshotAssertion) -> None:
    latency = np.array([[[1.0, 2.0]]])
    data = trials(latency, latency).assign(edge_s=[3.0, 1.0])
    found = hypervolumes(
        data, ("edge-time", "latency", "throughput"), reference={"latency": 3, "edge-time": 4}
    ).iloc[0]
    # 1 x 2 x 1 and 3 x 1 x 2, of which 1 x 1 x 1 is both.
    assert found["hypervolume"] == 2 + 6 - 1
    assert found["reference"] == snapshot


def test_an_interval_needs_six_rounds_of_every_point_on_the_front() -> None:
    *_, latency, throughput = tradeoffs(1, 6, 6, noise=0.01, common=0.0, seed=1)
    data = trials(latency, throughput)
    enough = hypervolumes(data)
    assert enough["rounds"].tolist() == [6, 6]
    assert (enough["hypervolume_low"] < enough["hypervolume"]).all()
    assert (enough["hypervolume_high"] > enough["hypervolume"]).all()
    quickest = str(np.argmin(np.median(latency[0], axis=0)))
    missing = hypervolumes(data[~((data["point"] == quickest) & (data["round"] == 2))])
    assert missing["rounds"].tolist() == [5, 5]
    assert missing[["hypervolume_low", "hypervolume_high"]].isna().all(axis=None)
    assert missing["hypervolume"].notna().all()


@pytest.mark.parametrize(
    ("rounds", "noise", "cases"),
    [(6, 0.05, 20), *(pytest.param(*of, 120, marks=pytest.mark.deep) for of in ((6, 0.05), (12, 0.03)))],
)
def test_the_interval_holds_the_true_hypervolume(rounds: int, noise: float, cases: int) -> None:
    """In about 95 of 100 cases."""
    *true, latency, throughput = tradeoffs(cases, rounds, 10, noise, common=0.5, seed=rounds)
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


CORNERS = ["latency_s", "throughput_ips"]


def attained(corners: Floats, at: Floats) -> bool:
    """Whether one of some (latency, throughput) equals or beats a place. NaN does not."""
    return bool(((corners[:, 0] <= at[0]) & (corners[:, 1] >= at[1])).any())


@pytest.mark.parametrize("limited", [False, True], ids=["", "not always feasible"])
def test_surfaces_are_what_so_many_of_the_resampled_fronts_attain(limited: bool) -> None:
    *_, latency, throughput = tradeoffs(1, 7, 6, noise=0.1, common=1.0, seed=4)
    data = trials(latency, throughput, ["tcp", "rpc"])
    # The quickest point alone, in about half of the resamples.
    where = f"latency_s <= {np.median(latency[0], axis=0).min()}" if limited else ""
    band = attainment(data, where=where)
    assert list(band.columns) == [*CONDITION, "backend", "percent", *CORNERS]
    drawn = next(draws.prepared(data, ("latency", "throughput"), where, 400).draws)
    rng = np.random.default_rng(0)
    decided = []
    for backend, members in drawn.groups():
        sets = drawn.admitted[:, members]
        for at in np.exp(rng.uniform(-0.2, 1.2, (15, 2))):
            share = 100 * np.mean([attained(corners, at) for corners in sets])
            for percent in PERCENT:
                surface = band[(band["backend"] == backend) & (band["percent"] == percent)]
                decided.append(share >= percent)
                assert attained(surface[CORNERS].to_numpy(), at) == decided[-1], (
                    backend,
                    percent,
                    share,
                )
    assert 0.05 < np.mean(decided) < 0.9
    if limited:
        assert np.isnan(drawn.admitted).all(axis=(1, 2)).any(), "in some resamples nothing is feasible"


def test_corners_are_in_order_and_none_is_dominated() -> None:
    *_, latency, throughput = tradeoffs(2, 8, 8, noise=0.05, common=1.0, seed=5)
    band = attainment(trials(latency, throughput))
    assert band.groupby(["netem", "backend"])["percent"].unique().map(list).tolist() == [[5, 50, 95]] * 4
    for _, surface in band.groupby(["netem", "backend", "percent"]):
        assert (np.diff(surface["latency_s"]) > 0).all()
        assert (np.diff(surface["throughput_ips"]) > 0).all()


def test_without_noise_the_surfaces_are_the_front() -> None:
    latency = np.ones((1, 6, 1)) * [1, 2, 3, 4]
    throughput = np.ones((1, 6, 1)) * [2, 5, 4, 6]
    band = attainment(trials(latency, throughput))
    for _, surface in band.groupby(["backend", "percent"]):
        assert surface[CORNERS].to_numpy().tolist() == [[1, 2], [2, 5], [4, 6]]


@pytest.mark.parametrize("sets", [12, pytest.param(80, marks=pytest.mark.deep)])
def test_the_band_holds_the_true_front_in_nine_of_ten_cases(sets: int) -> None:
    """In a given direction; over so many sets and five directions."""
    *true, latency, throughput = tradeoffs(sets, 10, 12, noise=0.03, common=0.5, seed=6)
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


def test_too_few_rounds_have_no_band() -> None:
    *_, latency, throughput = tradeoffs(1, 6, 5, noise=0.02, common=1.0, seed=7)
    data = trials(latency, throughput)
    assert not attainment(data).empty
    assert attainment(data[data["round"] < 5]).empty
    quickest = str(np.argmin(np.median(latency[0], axis=0)))
    assert attainment(data[~((data["point"] == quickest) & (data["round"] == 1))]).empty
    assert attainment(data.assign(status="failed")).empty
    assert attainment(data, where="latency_s < 0").empty
    assert list(attainment(data.iloc[:0]).columns) == [*CONDITION, "backend", "percent", *CORNERS]


def test_the_same_seed_gives_the_same_result() -> None:
    *_, latency, throughput = tradeoffs(2, 7, 5, noise=0.05, common=0.0, seed=3)
    data = trials(latency, throughput)
    mixed = data.sample(frac=1, random_state=1)
    for figures in (hypervolumes, attainment):
        first = figures(data, resamples=100)
        pd.testing.assert_frame_equal(first, figures(mixed, resamples=100))
        assert not first.equals(figures(data, resamples=100, seed=1))

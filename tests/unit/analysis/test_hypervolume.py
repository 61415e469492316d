from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from analysis.fronts.dominance import Floats
from analysis.fronts.indicators import COLUMNS, hypervolumes, volume, volumes_of_each
from analysis.fronts.objectives import chosen
from pareto.errors import UserError
from tests.unit.simulated_rounds import tradeoffs, trials

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


@pytest.mark.parametrize(("rounds", "noise"), [(6, 0.05), (12, 0.03)])
def test_the_interval_holds_the_true_hypervolume(rounds: int, noise: float) -> None:
    """In about 95 of 100 cases."""
    *true, latency, throughput = tradeoffs(120, rounds, 10, noise, common=0.5, seed=rounds)
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


def test_the_same_seed_gives_the_same_result() -> None:
    *_, latency, throughput = tradeoffs(2, 7, 5, noise=0.05, common=0.0, seed=3)
    data = trials(latency, throughput)
    first = hypervolumes(data, resamples=100)
    pd.testing.assert_frame_equal(first, hypervolumes(data.sample(frac=1, random_state=1), resamples=100))
    assert not first.equals(hypervolumes(data, resamples=100, seed=1))

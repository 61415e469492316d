from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from analysis.fronts import draws
from analysis.fronts.cells import cells
from analysis.fronts.dominance import Floats
from analysis.fronts.indicators import PERCENT, attainment
from analysis.fronts.objectives import chosen
from analysis.fronts.where import Where
from analysis.points import CONDITION
from pareto.errors import UserError
from tests.unit.simulated_rounds import tradeoffs, trials

PLANE = ["latency_s", "throughput_ips"]


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
    assert list(band.columns) == [*CONDITION, "backend", "percent", *PLANE]
    drawn = next(
        draws.conditions(data, cells(data), chosen(("latency", "throughput")), Where.parse(where), 400, 0)
    )
    rng = np.random.default_rng(0)
    decided = []
    for backend, members in drawn.groups():
        sets = drawn.admitted[:, members]
        for at in np.exp(rng.uniform(-0.2, 1.2, (40, 2))):
            share = 100 * np.mean([attained(corners, at) for corners in sets])
            for percent in PERCENT:
                surface = band[(band["backend"] == backend) & (band["percent"] == percent)]
                decided.append(share >= percent)
                assert attained(surface[PLANE].to_numpy(), at) == decided[-1], (backend, percent, share)
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
        assert surface[PLANE].to_numpy().tolist() == [[1, 2], [2, 5], [4, 6]]


def test_the_band_holds_the_true_front_in_nine_of_ten_cases() -> None:
    """In a given direction; over 80 sets and five directions."""
    *true, latency, throughput = tradeoffs(80, 10, 12, noise=0.03, common=0.5, seed=6)
    band = attainment(trials(latency, throughput), resamples=200)
    band = band[band["backend"] == "all"]
    holds = []
    for (_, of_set), points in zip(band.groupby("netem"), np.stack(true, axis=2), strict=True):
        corners = {percent: rows[PLANE].to_numpy() for percent, rows in of_set.groupby("percent")}
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
    assert list(attainment(data.iloc[:0]).columns) == [*CONDITION, "backend", "percent", *PLANE]


def test_other_objectives_but_two_of_them() -> None:
    *_, latency, throughput = tradeoffs(1, 6, 5, noise=0.02, common=1.0, seed=7)
    data = trials(latency, throughput).assign(edge_s=latency.ravel(), payload_bytes=throughput.ravel())
    band = attainment(data, objectives=("payload", "edge-time"))
    assert list(band.columns[-2:]) == ["payload_bytes", "edge_s"]
    assert (band.groupby(["backend", "percent"])["edge_s"].diff().dropna() < 0).all()
    with pytest.raises(UserError, match=r"two .* 3"):
        attainment(data, objectives=("payload", "edge-time", "latency"))


def test_the_same_seed_gives_the_same_result() -> None:
    *_, latency, throughput = tradeoffs(1, 6, 5, noise=0.02, common=1.0, seed=7)
    data = trials(latency, throughput)
    pd.testing.assert_frame_equal(attainment(data), attainment(data.sample(frac=1, random_state=2)))

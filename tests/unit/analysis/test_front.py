"""Who is on the front, how sure that is and which points tie; test_posterior holds probabilities against the truth."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pareto.analysis.fronts.front import COLUMNS, front, fronts
from pareto.analysis.fronts.indicators import attainment, hypervolumes, nondominated
from pareto.analysis.fronts.objectives import OBJECTIVES, chosen
from pareto.analysis.naming import USUAL
from pareto.analysis.runs.load import load
from pareto.analysis.statistics.samples import Floats, interval
from pareto.protocol.errors import UserError
from tests.unit import example_chain
from tests.unit.analysis.test_indicators import brute_force
from tests.unit.example_run import trials, write
from tests.unit.simulated_rounds import tradeoffs
from tests.unit.simulated_rounds import trials as simulated

NAN = float("nan")
NUMBER = re.compile(r".*(_s|_bytes|_j|_ips|_gain|_utilization|top1|_images|agreement|mean_iou|map50|_error)")
"""What is a number, by its name."""


def frame(latency: dict[int, list[float]], throughput: dict[int, list[float]], **fixed: Any) -> pd.DataFrame:
    """Trials of points, a value a round; fixed: columns, a value for all or one for each row."""
    first = trials(rounds=1, backends=("tcp",), noise=0)[0]
    unknown = {name: NAN for name in first if first[name] == "" and NUMBER.fullmatch(name)}
    rows = [
        first | unknown | USUAL | {"setup": "", "point": str(point), "round": number, "latency_s": seconds}
        | {"throughput_ips": throughput[point][number]}
        for point, values in latency.items()
        for number, seconds in enumerate(values)
    ]  # fmt: skip
    return pd.DataFrame(rows).assign(**fixed)


TWO = frame({0: [1] * 3, 1: [2] * 3}, {0: [5] * 3, 1: [4] * 3})
STEADY = [1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 1.01, 1.0]
SLOW = [*STEADY[:2], 9.0, *STEADY[3:]]
THREE = frame({0: [1] * 3, 1: [2] * 3, 2: [3] * 3}, {0: [9] * 3, 1: [8] * 3, 2: [7] * 3})
CASES: dict[str, tuple[pd.DataFrame, dict[str, Any], dict[str, list[Any]]]] = {
    "medians, ranges and efficiency; three rounds of two cells tell nothing of the noise": (
        frame({0: [1, 2, 9], 1: [4, 8]}, {0: [5, 4, 6], 1: [1, 2]}, latency_bound_s=1.0, throughput_bound_ips=10.0),
        {},
        {
            "latency_s": [2, 6], "throughput_ips": [5, 1.5], "rounds": [3, 2], "probability": [NAN, NAN],
            "latency_efficiency": [1 / 2, 1 / 6], "throughput_efficiency": [0.5, 0.15],
            "latency_least_s": [1, 4], "latency_most_s": [9, 8], "throughput_least_ips": [4, 1],
        },
    ),
    "a point without a valid trial stays visible and off the front": (
        frame({0: [1] * 3, 1: [0.1] * 3}, {0: [5] * 3, 1: [9] * 3}, status=["ok"] * 3 + ["failed"] * 3),
        {},
        {
            "rounds": [3, 0], "excluded": [0, 3], "on_front": [True, False], "on_backend_front": [True, False],
            "latency_s": [1, NAN], "latency_low_s": [NAN, NAN], "probability": [1, NAN], "feasible": [True, True],
        },
    ),
    "no figure in a valid trial keeps its point off the front": (
        frame({0: [1] * 3, 1: [2] * 3}, {0: [5] * 3, 1: [NAN] * 3}),
        {},
        {"on_front": [True, False], "probability": [1, NAN]},
    ),
    "a bound counts only where its figure does": (
        frame(
            {0: [1, NAN, NAN]}, {0: [5] * 3}, throughput_bound_ips=10.0, latency_bound_s=[0.5, 9.0, 9.0],
            status=["ok", *["throughput only"] * 2],
        ),
        {},
        {"latency_bound_s": [0.5], "latency_efficiency": [0.5]},
    ),
    "an interval needs six rounds, and so does an outlier": (
        frame({0: [1, 2, 3, 4, 5], 1: [1, 2, 3, 4, 5, 6]}, {0: [1] * 5, 1: [1] * 6}),
        {},
        {"outliers": [NAN, 0], "throughput_low_ips": [NAN, 1], "throughput_high_ips": [NAN, 1]},
    ),
    "outliers are rounds that are one in latency or throughput": (
        frame({0: STEADY, 1: SLOW, 2: SLOW}, {0: STEADY, 1: SLOW[::-1], 2: SLOW}), {}, {"outliers": [0, 2, 1]},
    ),
    "columns that trials lack are empty, and not measured is on no front": (
        TWO.drop(columns=["edge_peak_rss_bytes", "latency_p95_s", "top1"]),
        {"objectives": ("latency", "edge-memory")},
        {
            "edge_peak_rss_bytes": [NAN, NAN], "top1": [NAN, NAN],
            "probability": [NAN, NAN], "on_front": [False, False],
        },
    ),
    "a single point": (
        frame({0: [1] * 3}, {0: [5] * 3}),
        {},
        {"on_front": [True], "probability": [1], "probability_all": [1], "ties": [""]},
    ),
    "everything failed": (
        frame({0: [1] * 3}, {0: [5] * 3}, status="failed"),
        {"where": "latency_s < 9"},
        {
            "rounds": [0], "excluded": [3], "feasible": [False], "on_front": [False], "ties": [""],
            "probability": [NAN], "probability_all": [NAN], "outliers": [NAN],
        },
    ),
    "duplicates are on the front together, and ties": (
        frame({0: [1] * 6, 1: [1] * 6, 2: [2] * 6}, {0: [5] * 6, 1: [5] * 6, 2: [4] * 6}),
        {},
        {"on_front": [True, True, False], "probability_all": [1, 1, 0], "ties": ["tcp 1", "tcp 0", ""]},
    ),
    "only what satisfies the constraint is compared": (
        THREE.assign(payload_bytes=THREE["point"].map({"0": 900.0, "1": 100.0, "2": NAN})),
        {"where": "payload_bytes < 0.5kb"},
        {
            "feasible": [False, True, False], "on_front": [False, True, False], "probability_all": [0, 1, 0],
        },
    ),
    "the steps are those of most rounds, the first by the alphabet of several; top-1 is of all images": (
        frame(
            {0: [1, 2, 3], 1: [1, 2, 3]}, {0: [1] * 3, 1: [1] * 3},
            bound_by=["edge", "server", "edge", "server", "server", "edge"],
            busiest=["server", "edge", "", "", "", ""],
            top1=[0.5, 0.75, 1.0, *[NAN] * 3], top1_images=[2, 4, 2, *[NAN] * 3],
        ),
        {},
        {
            "bound_by": ["edge", "server"], "busiest": ["edge", ""],
            "top1": [6 / 8, NAN], "top1_images": [4, NAN],
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize(("data", "asked", "expected"), CASES.values(), ids=CASES)
def test_a_front_of_few_points(
    data: pd.DataFrame, asked: dict[str, Any], expected: dict[str, list[Any]]
) -> None:
    rows = front(data, **asked)
    assert list(rows.columns) == COLUMNS
    for column, values in expected.items():
        found = rows[column].tolist()
        assert found == (values if isinstance(values[0], str) else pytest.approx(values, nan_ok=True)), column


def test_excluded_trials_are_counted_and_never_averaged_in(tmp_path: Path) -> None:
    rows = trials()
    kept = [row for row in rows if row["round"] or row["point"] != 3]
    clean = front(load([write(tmp_path / "clean", kept)]))
    for row in rows:
        if row["round"] == 0 and row["point"] == 3:
            row |= {"status": "invalid", "latency_s": 1e-9, "throughput_ips": 1e9, "reason": "no"}
    marked = front(load([write(tmp_path / "marked", rows)]))
    counts = ["excluded", "trials", "left_out"]
    third = marked[marked["point"] == "3"]
    assert third[["rounds", *counts]].to_numpy().tolist() == [[2, 1, 3, 1]] * 2
    pd.testing.assert_frame_equal(marked.drop(columns=counts), clean.drop(columns=counts))


def test_fronts_are_per_backend_and_over_all_of_them() -> None:
    rpc = frame({0: [1.5] * 3, 1: [2] * 3}, {0: [3] * 3, 1: [9] * 3}, backend="rpc")
    other = frame({0: [7] * 3}, {0: [1] * 3}, netem="other")
    rows = front(pd.concat([TWO, rpc, other])).set_index(["netem", "backend", "point"])
    found = rows.loc["200ms-5mbit", ["on_backend_front", "on_front", "on_fronts_of"]]
    assert dict(zip(found.index, found.to_numpy().tolist(), strict=True)) == {
        ("rpc", "0"): [True, False, "rpc"], ("rpc", "1"): [True, True, "rpc"],
        ("tcp", "0"): [True, True, "tcp"], ("tcp", "1"): [False, False, ""],
    }  # fmt: skip
    assert rows.loc["other", "on_front"].all()


def test_probability_of_clear_and_of_indistinguishable_points() -> None:
    rng = np.random.default_rng(5)
    noise = {point: rng.normal(1, 0.05, 20).tolist() for point in range(2)}
    # Point 0 beats both by far. Without it, 1 and 2 have the same distribution and equal throughput.
    alike = {1: noise[0], 2: noise[0][::-1]}
    clear = front(frame({0: [0.1] * 20} | alike, {0: [50.0] * 20, 1: [5.0] * 20, 2: [5.0] * 20}))
    assert clear["probability"].tolist() == [1, 0, 0]
    shared = front(frame(alike, {1: [5.0] * 20, 2: [5.0] * 20}))["probability"]
    assert shared.sum() == pytest.approx(1, abs=0.1), "one or the other, or a tie of both"
    assert (shared.between(0.3, 0.7)).all()
    drift = np.linspace(1, 3, 9)
    common = frame({0: (0.10 * drift).tolist(), 1: (0.11 * drift).tolist()}, {0: [5.0] * 9, 1: [5.0] * 9})
    assert front(common)["probability"].tolist() == [1, 0], "a drift of all points blurs nothing"


def test_intervals_are_those_of_the_median_and_stay_with_their_points() -> None:
    """Text puts 10 before 2, and both before 3. One round was not measured: 6 are left."""
    rng = np.random.default_rng(2)
    values = {point: rng.lognormal(point, 0.1, 7).tolist() for point in (10, 3, 2)}
    data = frame(values, values)
    data.loc[data["round"] == 4, "latency_s"] = np.nan
    rows = front(data).set_index("point")
    for point, of_point in values.items():
        row = rows.loc[str(point)]
        six = [value for number, value in enumerate(of_point) if number != 4]
        assert (row["latency_low_s"], row["latency_high_s"]) == interval(six)
        assert (row["throughput_low_ips"], row["throughput_high_ips"]) == interval(of_point)
        assert (row["latency_least_s"], row["latency_most_s"]) == (min(six), max(six))


def test_the_same_seed_gives_the_same_result_whatever_else_is_there() -> None:
    *_, latency, throughput = tradeoffs(2, 9, 4, noise=0.05, common=0.0, seed=9)
    data = simulated(latency, throughput)
    first, again, other = (
        fronts(rows, seed=seed)
        for rows, seed in ((data, 1), (data.sample(frac=1, random_state=1), 1), (data, 2))
    )
    for one, same, seeded in zip(first, again, other, strict=True):
        pd.testing.assert_frame_equal(one, same)
        assert not one.equals(seeded)
    alone = front(data[data["netem"] == "n0001"], seed=1)
    pd.testing.assert_frame_equal(alone, first[0].iloc[4:].reset_index(drop=True))


@pytest.mark.parametrize(
    "objectives",
    [("payload", "edge-time"), ("p95", "throughput", "edge-memory"), ("energy", "latency"), tuple(OBJECTIVES)[:-1]],
)  # fmt: skip
def test_the_front_in_any_objectives_against_brute_force(objectives: tuple[str, ...]) -> None:
    rng = np.random.default_rng(3)
    wanted = chosen(objectives)
    data = frame({point: [1.0] for point in range(12)}, {point: [1.0] for point in range(12)})
    measured = {"edge_energy_j", "edge_active_energy_j", *(each.column for each in wanted)}
    for column in sorted(measured - {"energy_j", "active_energy_j"}):
        data[column] = rng.integers(1, 9, len(data)).astype(float)
    rows = front(data, objectives=objectives)
    figures = (rows[each.column].to_numpy() for each in wanted)
    expected = brute_force(*figures, maximise=[each.maximise for each in wanted])
    assert rows["on_front"].tolist() == expected.tolist()
    assert expected.any()


def test_the_constraint_is_asked_of_each_draw() -> None:
    """A fast point whose latency is under the limit in about half of what might have been measured."""
    fast = np.random.default_rng(4).normal(1, 0.1, 30)
    data = frame({0: fast.tolist(), 1: [0.8] * 30}, {0: [9.0] * 30, 1: [5.0] * 30})
    rows = front(data, where=f"latency_s <= {np.median(fast) + 1e-9}")
    assert rows["feasible"].all()
    assert rows["probability_all"].tolist() == [pytest.approx(0.5, abs=0.1), 1]


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"objectives": ("latency", "speed")}, "'speed'"),
        ({"where": "latensy_s < 1"}, "'latensy_s'"),
        ({"where": "on_front == 1"}, "'on_front'"),
        ({"where": "nonsense <"}, "nonsense"),
    ],
)
def test_what_cannot_be_asked_is_told(asked: dict[str, Any], named: str) -> None:
    for function in (front, fronts):
        with pytest.raises(UserError, match=named):
            function(TWO, **asked)


def test_points_are_in_the_order_of_their_cuts(tmp_path: Path) -> None:
    wanted = ["2+2", "2+10", "3+7", "3+10", "4+4", "10+11"]
    chain, staged = example_chain.trials([tuple(map(int, point.split("+"))) for point in reversed(wanted)])
    rows = front(load([example_chain.write(tmp_path / "chain", chain, staged)]))
    assert rows.groupby("backend")["point"].agg(list).tolist() == [wanted, wanted]
    of_tcp = front(load([write(tmp_path / "two", trials(rounds=1))])).query("backend == 'tcp'")
    names = ["input", *(f"features.{point - 1}" for point in range(1, 21))]
    assert list(zip(of_tcp["point"], of_tcp["point_name"], strict=True)) == list(
        zip(map(str, range(21)), names, strict=True)
    )


def test_together_they_say_what_each_says_alone() -> None:
    *_, latency, throughput = tradeoffs(2, 7, 8, noise=0.04, common=1.0, seed=4)
    data = simulated(latency, throughput, ["tcp", "rpc"])
    asked: dict[str, Any] = {"objectives": ("throughput", "latency"), "where": "latency_s < 2"}
    made = fronts(data, **asked)
    alone = (front(data, **asked), hypervolumes(data, **asked), attainment(data, where=asked["where"]))
    for one, other in zip(made, alone, strict=True):
        pd.testing.assert_frame_equal(one, other, rtol=1e-12, atol=0)
    assert made[0]["probability"].between(0.01, 0.99).any()
    assert not made[2].empty
    cells, volumes, corners = fronts(data.assign(status="failed"))
    assert cells["probability"].isna().all()
    assert volumes.empty and corners.empty


def test_of_a_backend_and_of_all() -> None:
    """rpc's points are tcp's, half as good: on rpc's own front as tcp's are, on none with tcp's."""
    rng = np.random.default_rng(1)
    latency = rng.lognormal(0, 0.03, (1, 9, 5)) * [1, 2, 3, 4, 5]
    throughput = rng.lognormal(0, 0.03, (1, 9, 5)) * [1, 2, 3, 2.95, 6]
    both = [simulated(latency, throughput), simulated(latency * 2, throughput / 2, ["rpc"])]
    rows = front(pd.concat(both)).set_index(["backend", "point"])
    np.testing.assert_allclose(rows.loc["rpc", "probability"], rows.loc["tcp", "probability"], atol=0.1)
    assert rows.loc["tcp", "probability_all"].tolist() == rows.loc["tcp", "probability"].tolist()
    assert rows.loc["rpc", "probability_all"].tolist() == [0] * 5
    assert rows.loc["tcp", "probability"].between(0.01, 0.99).any()


@pytest.mark.parametrize("rounds", [1, 2, 6])
def test_too_few_rounds_have_no_probability(rounds: int) -> None:
    noise = np.random.default_rng(2).lognormal(0, 0.01, (2, 1, rounds, 20))
    rows = front(simulated(*(noise * np.geomspace(1, 3, 20))))
    assert rows["probability"].isna().all() == rows["probability_all"].isna().all() == (rounds < 3)
    expected = nondominated(rows["latency_s"].to_numpy(), rows["throughput_ips"].to_numpy())
    assert rows["on_front"].tolist() == expected.tolist()
    none = front(load([]))
    assert none.empty and list(none.columns) == COLUMNS


def test_a_device_that_a_point_does_not_use_costs_it_nothing_in_any_draw() -> None:
    *_, latency, throughput = tradeoffs(1, 6, 2, noise=0.0, common=0.0, seed=3)
    data = simulated(latency, throughput)
    asked = data["point"] == "0"
    data = data.assign(edge_energy_j=1.0, edge_s=0.1, server_energy_j=np.where(asked, 0.5, np.nan))
    data["server_s"] = np.where(asked, 0.1, np.nan)
    rows = front(data, objectives=("energy", "edge-time"))
    assert rows["energy_j"].tolist() == [1.5, 1.0]
    assert rows["probability"].tolist() == [0, 1]


def noisy(*medians: float, noise: float = 0.05, seed: int = 0, rounds: int = 10) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.array(medians) * rng.lognormal(0, noise, (1, rounds, len(medians)))


def alike(latency: Floats, throughput: Floats, backends: tuple[str, ...] = ("tcp",)) -> dict[str, str]:
    """The cells that each one ties with, by name, of those that tie."""
    rows = front(simulated(latency, throughput, backends))
    ties = dict(zip(rows["backend"] + " " + rows["point"], rows["ties"], strict=True))
    return {name: others for name, others in ties.items() if others}


def test_points_alike_in_every_objective_are_named_over_both_backends() -> None:
    # tcp 0 and rpc 0 are alike; so are tcp 1 and rpc 1, but in latency only; tcp 2 and rpc 2 are alike far behind.
    latency, throughput = noisy(1, 1, 2, 2, 9, 9), noisy(1, 1, 5, 7, 0.1, 0.1, seed=1)
    for figures in (latency, throughput):
        figures[:, :, 5] = figures[:, :, 4]
    assert alike(latency, throughput, ("tcp", "rpc")) == {"tcp 0": "rpc 0", "rpc 0": "tcp 0"}
    four = alike(noisy(1, 1, 1, 1), noisy(1, 1, 1, 1, seed=1), ("tcp", "rpc"))
    assert four["rpc 1"] == "rpc 0; tcp 0; tcp 1", "in the order of the table"
    missing = np.ones((1, 6, 3))
    missing[:, :, 2] = np.nan
    assert alike(np.ones((1, 6, 3)), missing) == {"tcp 0": "tcp 1", "tcp 1": "tcp 0"}


def test_what_ties_are_not_made_of() -> None:
    shared = np.random.default_rng(3).lognormal(0, 0.5, (1, 10, 1)) * [1, 1.05]
    assert alike(shared, shared) == {}, "what all points of a round share tells nobody apart or alike"
    for rounds in (5, 6):
        few = alike(noisy(1, 1, rounds=rounds), noisy(1, 1, seed=1, rounds=rounds))
        assert bool(few) == (rounds >= 6)


def test_of_a_point_without_a_figure_it_is_not_said_that_it_is_surely_off_the_front() -> None:
    """The fastest of all, but of none of its trials a throughput counts; infeasible points are surely off."""
    data = simulated(noisy(1, 2, 3, 4, noise=0.01), noisy(4, 2, 3, 4, noise=0.01, seed=1))
    data.loc[data["point"] == "0", ["status", "throughput_ips"]] = ["latency only", np.nan]
    rows = front(data, where="latency_s < 3.5")
    assert not rows["on_front"].iloc[0]
    assert rows["probability_all"].isna().tolist() == [True, False, False, False]
    assert rows["probability"].iloc[1:].tolist() == [1, 1, 0]


def test_equal_points_are_hardly_ever_told_apart_and_different_ones_are() -> None:
    """95 % intervals of two objectives: at least 0.95^2, about, of so many pairs."""
    rounds, pairs = 6, 15
    rng = np.random.default_rng(rounds)
    latency, throughput = (np.exp(0.05 * rng.standard_t(3, (pairs, rounds, 2))) for _ in range(2))
    rows = front(simulated(latency, throughput))
    behind = rows["probability_all"].to_numpy().reshape(pairs, 2).min(axis=1) < 0.05
    tied = rows["ties"].ne("").to_numpy().reshape(pairs, 2).all(axis=1)
    assert behind.mean() < 0.05
    assert tied[~behind].mean() > 0.86
    apart = front(simulated(latency * [1, 1.5], throughput * [1, 1.5]))
    assert apart["ties"].eq("").mean() > 0.95

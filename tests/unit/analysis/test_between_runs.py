"""Two runs against each other: over what both have, by how much, how sure, and what else differs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.comparing.between_runs import APART, Comparison, compare, differences
from analysis.comparing.front_changes import changes
from analysis.comparing.shared import numbers
from analysis.errors import AnalysisError
from analysis.runs.trials import load
from tests.unit.example_run import PAYLOAD_KIB, trials, with_energy, write

Rows = list[dict[str, Any]]
POINTS = len(PAYLOAD_KIB)


def measured(run: str, *, rounds: int = 8, backends: tuple[str, ...] = ("tcp",), seed: int = 0) -> Rows:
    return trials(rounds=rounds, backends=backends, seed=seed, noise=0.02, run=run)


def compared(folder: Path, a: Rows, b: Rows, **options: Any) -> Comparison:
    return compare(write(folder / "a", a), write(folder / "b", b), **options)


def scaled(rows: Rows, **factors: float) -> Rows:
    return [row | {column: row[column] * factor for column, factor in factors.items()} for row in rows]


def at(rows: Rows, *points: int) -> Rows:
    return [row for row in rows if row["point"] in points]


def test_a_tenth_less_is_found_at_every_point(tmp_path: Path) -> None:
    a, b = measured("a", seed=1), scaled(measured("b", seed=2), latency_s=0.9)
    found = compared(tmp_path, a, b)
    rows = found.differences
    assert len(rows) == POINTS
    assert rows["point"].tolist() == list(map(str, range(POINTS)))
    assert rows["tests"].eq(2 * POINTS).all()
    assert rows["latency_significant"].mean() > 0.9
    assert not rows["throughput_significant"].any()
    assert rows["latency_low_percent"].lt(-10).mean() > 0.85
    assert rows["latency_high_percent"].gt(-10).mean() > 0.85
    assert np.allclose(rows["latency_difference_s"] / rows["first_latency_s"], -0.1, atol=0.03)
    (sentence,) = found.sentences
    assert sentence.startswith("mobilenetv2 at 200ms-5mbit, batch size 1: B is faster: median -")
    assert f" over {POINTS} points, {rows['latency_significant'].sum()} significantly; images/s " in sentence
    assert "none significantly; front: hypervolume x " in sentence
    (back,) = compared(tmp_path / "back", b, a).sentences
    assert ": B is slower: median +" in back


def test_few_points_are_no_headline(tmp_path: Path) -> None:
    b = measured("b", seed=2)
    b = [row | {"latency_s": row["latency_s"] * (1.5 if row["point"] == 3 else 1)} for row in b]
    (sentence,) = compared(tmp_path, measured("a", seed=1), b).sentences
    assert ": B is slower at 1 point significantly: median " in sentence


def test_a_run_against_itself_shows_no_difference(tmp_path: Path) -> None:
    run = write(tmp_path / "a", measured("a"))
    found = compare(run, Path(shutil.copytree(run, tmp_path / "copy")))
    rows = found.differences
    assert rows["latency_difference_s"].eq(0).all()
    assert rows["throughput_difference_percent"].eq(0).all()
    assert rows["latency_low_s"].lt(0).all()
    assert rows["latency_high_s"].gt(0).all()
    assert rows["latency_p_value"].eq(1).all()
    assert not rows[["latency_significant", "throughput_significant"]].any(axis=None)
    (front,) = found.fronts.to_dict("records")
    assert front["hypervolume_ratio"] == 1
    assert front["ratio_low"] < 1 < front["ratio_high"]
    assert [front[name] for name in ("enter", "may_enter", "leave", "may_leave")] == [""] * 4
    assert "no significant difference in latency: median 0" in found.sentences[0].replace("+", "")
    assert found.settings == ["A and B: nothing told of the hosts"]
    assert found.notes == [f"{8 * POINTS} trials of A are in B too: that these agree shows nothing"]


def test_rounds_of_two_runs_are_not_pairs(tmp_path: Path) -> None:
    """In another order of rounds, the result is the same."""
    a, b = measured("a", seed=1), measured("b", seed=2)
    turned = [row | {"round": 7 - row["round"]} for row in b]
    frames = [
        load([write(tmp_path / name, rows)]) for name, rows in (("a", a), ("b", b), ("c", turned[::-1]))
    ]
    straight, shuffled = (differences(frames[0], frame) for frame in frames[1:])
    pd.testing.assert_frame_equal(straight, shuffled)


def test_few_rounds_are_told(tmp_path: Path) -> None:
    found = compared(tmp_path, measured("a", rounds=3), scaled(measured("b", rounds=3, seed=2), latency_s=2))
    assert found.differences["note"].eq("too few rounds: needs 7 in each run").all()
    assert found.differences["latency_low_s"].isna().all()
    assert found.sentences[0].split(": ", 1)[1].startswith("too few rounds to tell, it needs 7 in each run: ")
    assert "(too few rounds for an interval: 3, it needs 6)" in found.sentences[0]
    assert np.isnan(found.fronts["ratio_low"]).all()
    enough = compared(tmp_path / "7", measured("a", rounds=7), scaled(measured("b", rounds=7), latency_s=2))
    assert enough.differences["latency_significant"].all()


def test_many_rounds_of_one_run_make_up_for_few_of_the_other(tmp_path: Path) -> None:
    a, b = measured("a", rounds=5), scaled(measured("b", rounds=12), latency_s=2)
    rows = compared(tmp_path, a, b).differences
    assert rows["rounds_needed"].eq(7).all()
    assert rows["note"].eq("").all()
    assert rows["latency_significant"].all()


def test_what_is_not_valid_has_no_say_and_is_counted(tmp_path: Path) -> None:
    a, b = measured("a", seed=1), measured("b", seed=2)
    clean = compared(tmp_path / "clean", a, [row for row in b if (row["point"], row["round"]) != (3, 2)])
    for row in b:
        if (row["point"], row["round"]) == (3, 2):
            row |= {"status": "invalid", "latency_s": 99.0, "throughput_ips": 1e9, "reason": "link off"}
    marked = compared(tmp_path / "marked", a, b)
    pd.testing.assert_frame_equal(marked.differences, clean.differences)
    assert marked.differences.set_index("point").loc["3", "other_rounds"] == 7
    assert marked.notes == [f"B: 1 of {8 * POINTS} trials are not valid and have no say", APART]


def test_throughput_that_was_not_measured(tmp_path: Path) -> None:
    rows = [row | {"throughput_ips": ""} for row in measured("a")]
    found = compared(tmp_path, rows, measured("b"))
    assert found.differences["tests"].eq(POINTS).all()
    assert found.differences["throughput_p_corrected"].isna().all()
    assert "images/s" not in found.sentences[0]
    assert found.sentences[0].endswith("; front: no point on the front of A")


# The fronts


def test_a_point_enters_and_another_leaves(tmp_path: Path) -> None:
    a, b = at(measured("a", seed=1), 3, 13, 21), at(measured("b", seed=2), 3, 13, 21)
    for rows, best in ((a, 3), (b, 13)):
        for row in rows:
            row["throughput_ips"] = row["throughput_ips"] / 10 if row["point"] != best else 50
    front = compared(tmp_path, a, b).fronts.iloc[0]
    assert (front["enter"], front["leave"], front["stay"]) == ("tcp 13", "tcp 3", "tcp 21")
    assert front["reference"].startswith("latency ")
    assert "throughput 0 images/s" in front["reference"]
    (sentence,) = compared(tmp_path / "again", a, b).sentences
    assert sentence.endswith("); tcp 13 enters; tcp 3 leaves")


def test_what_may_be_chance_is_said_to_be(tmp_path: Path) -> None:
    """Two points alike: which of them is the better one, either run's luck decides."""
    rng, seen = np.random.default_rng(0), set()
    for number in range(6):
        a, b = (
            [row | {"point": point} for point in (3, 4) for row in at(measured(name), 13)]
            for name in ("a", "b")
        )
        for row in (*a, *b):
            row |= {"latency_s": rng.normal(0.2, 0.01), "throughput_ips": rng.normal(10, 0.5)}
        front = compared(tmp_path / str(number), a, b).fronts.iloc[0]
        assert front["enter"] == front["leave"] == ""
        seen |= {column for column in ("may_enter", "may_leave") if front[column]}
    assert seen == {"may_enter", "may_leave"}


def test_one_reference_for_both_and_a_ratio_that_follows_from_it(tmp_path: Path) -> None:
    a, b = at(measured("a", seed=1), 13), at(scaled(measured("b", seed=2), throughput_ips=2), 13)
    front = compared(tmp_path, a, b).fronts.iloc[0]
    medians = [
        np.median([[row["latency_s"], row["throughput_ips"]] for row in rows], axis=0) for rows in (a, b)
    ]
    bound = 1.1 * max(latency for latency, _ in medians)
    volumes = [(bound - latency) * throughput for latency, throughput in medians]
    assert front["first_hypervolume"] == pytest.approx(volumes[0], rel=1e-6)
    assert front["hypervolume_ratio"] == pytest.approx(volumes[1] / volumes[0], rel=1e-6)
    assert front["ratio_low"] < 2 < front["ratio_high"]


def test_ratios_of_runs_alike_hold_one(tmp_path: Path) -> None:
    """Of runs of 6 and of 20 rounds, so that one has more luck in its front than the other."""
    frames = []
    for rounds in (6, 20):
        rows = []
        for number in range(40):
            made = measured("run", rounds=rounds, seed=1000 * rounds + number)
            rows += [row | {"netem": str(number)} for row in at(made, 10, 12, 14, 20)]
        frames.append(load([write(tmp_path / str(rounds), rows)]))
    fronts = changes(*frames, resamples=400)
    assert ((fronts["ratio_low"] <= 1) & (fronts["ratio_high"] >= 1)).mean() >= 0.85
    assert (fronts["ratio_high"] / fronts["ratio_low"]).median() < 1.2


def test_resamples_without_a_feasible_point_leave_no_interval(tmp_path: Path) -> None:
    """A constraint that the best point meets by its median only: as a number, the ratio to nothing is infinite."""
    a, b = at(measured("a"), 21), at(measured("b", seed=2), 21)
    limit_s = max(np.median([row["latency_s"] for row in rows]) for rows in (a, b))
    with np.errstate(all="raise"):
        found = compared(tmp_path, a, b, where=f"latency_s <= {limit_s * 1.0001:.9f}")
    front = found.fronts.iloc[0]
    assert front["hypervolume_ratio"] > 0
    assert np.isnan([front["ratio_low"], front["ratio_high"]]).all()
    assert front["note"] == "some resamples have no feasible point"
    assert "(some resamples have no feasible point)" in found.sentences[0]
    always = compared(tmp_path / "always", a, b, where=f"latency_s < {10 * limit_s}").fronts.iloc[0]
    assert always["ratio_low"] < always["ratio_high"]


def test_objectives_and_constraint(tmp_path: Path) -> None:
    a, b = measured("a"), measured("b", seed=2)
    found = compared(tmp_path, a, b, objectives=("latency", "payload"), where="payload_bytes > 0")
    assert found.fronts["objectives"].eq("latency, payload").all()
    assert "tcp 21" not in "; ".join(found.fronts.iloc[0][["stay", "may_stay", "may_leave", "leave"]])
    energy = [with_energy(rows, server=False) for rows in (a, b)]
    joules = compared(tmp_path / "energy", *energy, objectives=("latency", "energy")).fronts.iloc[0]
    assert "energy per image" in joules["reference"]
    assert 0.5 < joules["ratio_low"] < 1 < joules["ratio_high"] < 2
    devices = compared(
        tmp_path / "devices", with_energy(a), energy[1], objectives=("latency", "energy")
    ).fronts
    assert devices["note"].eq("energy is of other devices: edge + server in A, edge in B").all()
    assert devices["hypervolume_ratio"].isna().all()
    nothing = compared(tmp_path / "none", a, b, where="latency_s < 1us")
    assert nothing.fronts["note"].eq("no point on the front of A or B").all()
    edge_only = compared(tmp_path / "zero", at(a, 21), at(b, 21), objectives=("latency", "payload"))
    assert edge_only.fronts["note"].eq("no volume: an objective is 0 everywhere").all()
    for wrong in ({"objectives": ("latency", "speed")}, {"where": "latency_s <"}):
        with pytest.raises(AnalysisError):
            compared(tmp_path / "wrong", a, b, **wrong)


# What both have


def test_only_what_both_have_is_compared_and_the_rest_is_named(tmp_path: Path) -> None:
    a = measured("a", backends=("tcp", "rpc")) + [row | {"netem": "wifi"} for row in measured("a")]
    b = at(measured("b"), *range(3, POINTS)) + [
        row | {"netem": "lte", "batch_size": 8} for row in measured("b")
    ]
    for row in b:
        if (row["point"], row["netem"]) == (5, "200ms-5mbit"):
            row |= {"status": "failed", "reason": "out of memory"}
    found = compared(tmp_path, a, b)
    assert found.differences["point"].tolist() == ["3", "4", *map(str, range(6, POINTS))]
    title = "mobilenetv2 at 200ms-5mbit, batch size 1"
    assert found.only_first == [
        "profile wifi",
        "backend rpc",
        f"points 0 to 2 over tcp: {title}",
        f"point 5 over tcp without a valid trial in the other run: {title}",
    ]
    assert found.only_second == ["profile lte", "batch size 8"]


def test_a_combination_that_one_lacks(tmp_path: Path) -> None:
    a = [row | {"netem": netem} for netem in ("wifi", "lte") for row in at(measured("a"), 1, 2)]
    a += [row | {"batch_size": 8} for row in a if row["netem"] == "wifi"]
    b = [row for row in a if not (row["netem"] == "wifi" and row["batch_size"] == 1)]
    found = compared(tmp_path, a, b)
    assert found.only_first == ["mobilenetv2 at wifi, batch size 1"]
    assert found.only_second == []


def test_runs_without_anything_in_common(tmp_path: Path) -> None:
    a = measured("a")
    with pytest.raises(AnalysisError, match="no profile in common: 200ms-5mbit in A, wifi in B") as refused:
        compared(tmp_path, a, [row | {"netem": "wifi"} for row in a])
    assert "\n" not in str(refused.value)
    failed = [row | {"status": "failed"} for row in a]
    with pytest.raises(AnalysisError, match="no point in common that has a valid trial in both"):
        compared(tmp_path / "failed", a, failed)


def test_setups_are_no_obstacle(tmp_path: Path) -> None:
    frames = [load([write(tmp_path / name, measured(name))]) for name in ("a", "b")]
    assert [frame["setup"].unique().tolist() for frame in frames] == [[""], [""]]
    assert len(compare(tmp_path / "a", tmp_path / "b").differences) == POINTS


@pytest.mark.parametrize(
    ("points", "text"),
    [
        (["10", "2", "3", "4"], "2 to 4, 10"),
        (["7", "8"], "7, 8"),
        (["3+10", "3+7"], "3+7, 3+10"),
        (["0"], "0"),
    ],
)
def test_points_in_words(points: list[str], text: str) -> None:
    assert numbers(points) == text

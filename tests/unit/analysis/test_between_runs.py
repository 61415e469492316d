"""Two runs against each other: over what both have, by how much, how sure, what became of the front, and what else
differs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.comparing import between_runs
from pareto.analysis.comparing.between_runs import DOUBTFUL, Comparison, changes, compare, differences
from pareto.analysis.runs import reading
from pareto.analysis.runs.load import load
from pareto.analysis.statistics.significance import holm
from pareto.protocol.errors import UserError
from tests.unit.example_manifest import HOST, MANIFEST, MODEL, SESSION, SWEEP, changed
from tests.unit.example_run import PAYLOAD_KIB, trials, with_energy, write
from tests.unit.refusals import refusal

Rows = list[dict[str, Any]]
POINTS = len(PAYLOAD_KIB)


def measured(run: str, *, rounds: int = 8, backends: tuple[str, ...] = ("tcp",), seed: int = 0) -> Rows:
    return trials(rounds=rounds, backends=backends, seed=seed, noise=0.02, run=run)


def compared(folder: Path, a: Rows, b: Rows, **options: Any) -> Comparison:
    return compare(write(folder / "a", a), write(folder / "b", b), **options)


def loaded(folder: Path, a: Rows, b: Rows) -> tuple[pd.DataFrame, pd.DataFrame]:
    return load([write(folder / "a", a)]), load([write(folder / "b", b)])


def scaled(rows: Rows, **factors: float) -> Rows:
    return [row | {column: row[column] * factor for column, factor in factors.items()} for row in rows]


def at(rows: Rows, *points: int) -> Rows:
    return [row for row in rows if row["point"] in points]


def test_a_tenth_less_is_found_at_every_point(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    a, b = measured("a", seed=1), scaled(measured("b", seed=2), latency_s=0.9)
    found = compared(tmp_path, a, b)
    rows = found.differences
    assert rows["point"].tolist() == list(map(str, range(POINTS)))
    assert rows["tests"].eq(2 * POINTS).all()
    assert rows["latency_significant"].mean() > 0.9
    assert not rows["throughput_significant"].any()
    assert rows["latency_low_percent"].lt(-10).mean() > 0.85
    assert rows["latency_high_percent"].gt(-10).mean() > 0.85
    assert np.allclose(rows["latency_difference_s"] / rows["first_latency_s"], -0.1, atol=0.03)
    # Rounds of two runs are no pairs: in another order of them, the result is the same.
    first, other = loaded(tmp_path / "frames", a, b)
    turned = other.assign(round=7 - other["round"])[::-1].reset_index(drop=True)
    pd.testing.assert_frame_equal(differences(first, other), differences(first, turned))
    one = [
        row | {"latency_s": row["latency_s"] * 1.5} if row["point"] == 3 else row
        for row in measured("b", seed=2)
    ]
    few = compared(tmp_path / "few", a, one, where="latency_s < 1ms")
    assert len(few.differences) == POINTS, "a constraint is of the fronts alone"
    assert [
        *found.sentences,
        *compared(tmp_path / "back", b, a).sentences,
        *few.sentences,
        few.notes[0],
    ] == snapshot


def test_a_run_against_itself_shows_no_difference(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    run = write(tmp_path / "a", measured("a"))
    found = compare(run, Path(shutil.copytree(run, tmp_path / "copy")))
    rows = found.differences
    assert rows[["latency_difference_s", "throughput_difference_percent"]].eq(0).all(axis=None)
    assert rows["latency_low_s"].lt(0).all() and rows["latency_high_s"].gt(0).all()
    assert rows["latency_p_value"].eq(1).all()
    assert not rows[["latency_significant", "throughput_significant"]].any(axis=None)
    (front,) = found.fronts.to_dict("records")
    assert front["ratio_low"] < front["hypervolume_ratio"] == 1 < front["ratio_high"]
    assert [front[name] for name in ("enter", "may_enter", "leave", "may_leave")] == [""] * 4
    assert [*found.sentences, *found.settings, *found.notes] == snapshot


def test_many_rows_are_compared_as_few_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of large runs are categories, which take no new value, as that of no backend is."""
    a, b = measured("a", seed=1), measured("b", seed=2)
    few = compared(tmp_path / "few", a, b)
    monkeypatch.setattr(reading, "LARGE", 0)
    many = compared(tmp_path / "many", a, b)
    assert many.differences.astype("str").equals(few.differences.astype("str"))
    assert many.sentences == few.sentences


def test_few_rounds_are_told(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    found = compared(tmp_path, measured("a", rounds=3), scaled(measured("b", rounds=3, seed=2), latency_s=2))
    assert found.differences["rounds_needed"].eq(7).all()
    assert found.differences["latency_low_s"].isna().all() and found.fronts["ratio_low"].isna().all()
    assert [found.differences["note"].unique().tolist(), found.sentences] == snapshot
    # Many rounds of one run make up for few of the other.
    for one, two in ((7, 7), (5, 12)):
        a, b = measured("a", rounds=one), scaled(measured("b", rounds=two), latency_s=2)
        enough = differences(*loaded(tmp_path / str(one), a, b))
        assert enough["rounds_needed"].eq(7).all() and enough["note"].eq("").all()
        assert enough["latency_significant"].all()


def test_what_is_not_valid_has_no_say_and_is_counted(tmp_path: Path) -> None:
    a, b = measured("a", seed=1), measured("b", seed=2)
    spoilt = {"status": "invalid", "latency_s": 99.0, "throughput_ips": 1e9, "reason": "link off"}
    is_off = [(row["point"], row["round"]) == (3, 2) for row in b]
    clean = differences(
        *loaded(tmp_path / "clean", a, [row for row, off in zip(b, is_off, strict=True) if not off])
    )
    marked = compared(tmp_path, a, [row | spoilt if off else row for row, off in zip(b, is_off, strict=True)])
    pd.testing.assert_frame_equal(marked.differences, clean)
    p_values, corrected = (clean.filter(like=f"_p_{of}").to_numpy().ravel() for of in ("value", "corrected"))
    assert corrected == pytest.approx(holm(p_values)), "both measures are one family"
    assert clean["tests"].eq(2 * POINTS).all()
    assert marked.differences.set_index("point").loc["3", "other_rounds"] == 7
    assert marked.notes == [f"B: 1 of {8 * POINTS} trials are not valid and do not count", between_runs.APART]


def test_a_figure_that_one_run_lacks_is_in_no_sentence(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """No throughput; no latency of one point, and of all."""
    a, b = measured("a", seed=1), measured("b", seed=2)
    unmeasured = compared(tmp_path / "ips", [row | {"throughput_ips": ""} for row in a], b)
    assert unmeasured.differences["tests"].eq(POINTS).all()
    assert unmeasured.differences["throughput_p_corrected"].isna().all()
    some = [row | {"status": "throughput only"} if row["point"] == 3 else row for row in b]
    found = compared(tmp_path / "some", a, some)
    assert found.differences["note"].eq("").all(), "there are throughputs enough"
    none = compared(tmp_path / "none", a, [row | {"status": "throughput only"} for row in b])
    assert [*unmeasured.sentences, *found.sentences, *none.sentences] == snapshot


def test_only_what_both_have_is_compared_and_the_rest_is_named(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    a = measured("a", backends=("tcp", "rpc")) + [row | {"netem": "wifi"} for row in measured("a")]
    failed = [row | {"status": "failed", "reason": "out of memory"} for row in at(measured("b"), 5)]
    b = at(measured("b"), 3, 4, *range(6, POINTS)) + failed
    found = compared(tmp_path, a, b + [row | {"netem": "lte", "batch_size": 8} for row in measured("b")])
    assert found.differences["point"].tolist() == ["3", "4", *map(str, range(6, POINTS))]
    a = [row | {"netem": netem} for netem in ("wifi", "lte") for row in at(measured("a"), 1, 2)]
    a += [row | {"batch_size": 8} for row in a if row["netem"] == "wifi"]
    b = [row for row in a if not (row["netem"] == "wifi" and row["batch_size"] == 1)]
    combination = compared(tmp_path / "combination", a, b)
    assert combination.only_second == []
    assert {
        "A": found.only_first,
        "B": found.only_second,
        "a combination": combination.only_first,
    } == snapshot


def test_runs_without_anything_in_common(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    a, rpc = measured("a"), measured("b", backends=("rpc",))
    others = {
        "profile": (a, [row | {"netem": "wifi"} for row in a]),
        "point": (a, [row | {"status": "failed"} for row in a]),
        "backend": (at(a, 3, 4), at(rpc, *range(3, POINTS))),
    }
    each = others.items()
    assert {name: refusal(UserError, compared, tmp_path / name, *both) for name, both in each} == snapshot
    found = compared(tmp_path / "edge", a, rpc)
    assert found.differences[["backend", "point"]].to_numpy().tolist() == [["none", str(POINTS - 1)]]
    assert (found.only_first, found.only_second) == (["backend tcp"], ["backend rpc"])


def test_engines_are_compared_each_with_itself_or_one_of_each_run_which_is_said(tmp_path: Path) -> None:
    def of(run: str, **latency: float) -> Path:
        """Trials of these engines; their latency is a multiple of what it was."""
        rows = at(measured(run), 3, 9)
        named = [row | {"engine": name} for name, by in latency.items() for row in scaled(rows, latency_s=by)]
        return write(tmp_path / run, named, sweep={} if run == "old" else {"engines": [*latency]})

    found = compare(of("a", eager=2.0, onnx=1.0), of("b", onnx=1.0, compile=3.0))
    assert found.differences["engine"].tolist() == ["onnx"] * 2
    assert found.differences["latency_difference_s"].tolist() == [0, 0], "no trial of eager is in it"
    assert (found.only_first, found.only_second) == (["engine eager"], ["engine compile"])
    eager = of("eager", eager=2.0)
    found = compare(eager, of("onnx", onnx=1.0))
    assert found.differences["latency_difference_percent"].lt(-40).all()
    assert "engine: eager in A; onnx in B" in found.settings
    before = compare(of("old", eager=2.0), eager).settings
    assert not any("engine" in line for line in before), "before engines all was eager"


def test_a_point_enters_and_another_leaves(tmp_path: Path) -> None:
    a, b = at(measured("a", seed=1), 3, 13, 21), at(measured("b", seed=2), 3, 13, 21)
    for rows, best in ((a, 3), (b, 13)):
        for row in rows:
            row["throughput_ips"] = row["throughput_ips"] / 10 if row["point"] != best else 50
    found = compared(tmp_path, a, b)
    front = found.fronts.iloc[0]
    assert (front["enter"], front["leave"], front["stay"]) == ("tcp 13", "tcp 3", "any 21")
    assert re.fullmatch(r"latency [\d.]+ .*, throughput 0 .*", front["reference"])
    assert found.sentences[0].endswith("; tcp 13 enters it; tcp 3 leaves it")


def test_a_cell_that_stands_for_a_codec_of_one_run_alone_is_on_no_front_of_it(tmp_path: Path) -> None:
    """The bytes of an image are not quantised: at point 0, which runs one and the other way share, int8 is none."""
    a, b = at(measured("a", seed=1), 0, 21), at(measured("b", seed=2), 0, 3, 21)
    for row in b:
        row |= {"codec": "int8"} if row["point"] == 3 else {"stands_for": "none; int8"}
    for sides in ((a, b), (b, a)):
        found = compared(tmp_path / str(len(sides[0])), *sides)
        assert found.fronts["codec"].tolist() == ["none"]
        assert found.fronts["points"].tolist() == [2]


def test_what_may_be_chance_is_said_to_be(tmp_path: Path) -> None:
    """Two points alike: which of them is the better one, either run's luck decides."""
    rng, seen = np.random.default_rng(0), set()
    for number in range(6):
        alike = [row | {"point": point} for point in (3, 4) for row in at(measured("a"), 13)]
        a, b = (
            [
                row | {"latency_s": rng.normal(0.2, 0.01), "throughput_ips": rng.normal(10, 0.5)}
                for row in alike
            ]
            for _ in "ab"
        )
        front = changes(*loaded(tmp_path / str(number), a, b)).iloc[0]
        assert front["enter"] == front["leave"] == ""
        seen |= {column for column in ("may_enter", "may_leave") if front[column]}
    assert seen == {"may_enter", "may_leave"}


def test_one_reference_for_both_and_a_ratio_that_follows_from_it(tmp_path: Path) -> None:
    a, b = at(measured("a", seed=1), 13), at(scaled(measured("b", seed=2), throughput_ips=2), 13)
    front = changes(*loaded(tmp_path, a, b)).iloc[0]
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
    rows: dict[int, Rows] = {6: [], 20: []}
    for rounds, seed in ((rounds, seed) for rounds in rows for seed in range(6)):
        made = at(measured("run", rounds=rounds, seed=1000 * rounds + seed), 10, 12, 14, 20)
        rows[rounds] += [row | {"netem": str(seed)} for row in made]
    fronts = changes(*loaded(tmp_path, *rows.values()))
    assert ((fronts["ratio_low"] <= 1) & (fronts["ratio_high"] >= 1)).mean() >= 0.83
    assert (fronts["ratio_high"] / fronts["ratio_low"]).median() < 1.2


def test_why_a_front_has_no_interval_and_its_objectives(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    a, b = (at(rows, 0, 3, 8, 14, 20, 21) for rows in (measured("a"), measured("b", seed=2)))
    both, edge, few = loaded(tmp_path, a, b), (at(a, 21), at(b, 21)), (at(a, 3, 21), at(b, 3, 21))
    (payload,) = changes(*both, ("latency", "payload"), "payload_bytes > 0").to_dict("records")
    assert payload["objectives"] == "latency, payload"
    assert "any 21" not in "; ".join(payload[name] for name in ("stay", "may_stay", "may_leave", "leave"))
    energy = loaded(tmp_path / "energy", *(with_energy(rows, server=False) for rows in (a, b)))
    (joules,) = changes(*energy, ("latency", "energy")).to_dict("records")
    assert "energy" in joules["reference"] and 0.5 < joules["ratio_low"] < 1 < joules["ratio_high"] < 2
    # A constraint that the best point meets by its median only: as a number, the ratio to nothing is infinite.
    limit_s = max(np.median([row["latency_s"] for row in rows]) for rows in edge)
    with np.errstate(all="raise"):
        found = compared(tmp_path / "edge", *edge, where=f"latency_s <= {limit_s * 1.0001:.9f}")
    assert found.fronts["hypervolume_ratio"].item() > 0 and found.fronts["ratio_high"].isna().all()
    alone = loaded(tmp_path / "alone", *edge)
    (always,) = changes(*alone, where=f"latency_s < {10 * limit_s}").to_dict("records")
    assert always["ratio_low"] < always["ratio_high"] and always["note"] == ""
    devices = loaded(tmp_path / "devices", with_energy(few[0]), with_energy(few[1], server=False))
    fronts = {
        "resamples": found.fronts,
        "devices": changes(*devices, ("latency", "energy")),
        "nothing": changes(*both, where="latency_s < 1us"),
        "no volume": changes(*alone, ("latency", "payload")),
    }
    assert {name: front["note"].unique().tolist() for name, front in fronts.items()} == snapshot
    assert f"({found.fronts['note'].item()})" in found.sentences[0]
    for wrong in ({"objectives": ("latency", "speed")}, {"where": "latency_s <"}):
        with pytest.raises(UserError):
            changes(*both, **wrong)


REAL = {"models__net__weights": "imagenet", "models__net__dataset__name": "cifar10"}
OTHER_POINT = [MODEL["points"][0], {"name": "relu", "payload_bytes": 4}]
NEWER = dict.fromkeys(("edge", "server"), HOST | {"kernel": "6.9"})
SECOND = {**SESSION, "hosts": {"edge": HOST | {"kernel": "6.2"}, "server": HOST}}


def told(other: dict[str, Any], first: dict[str, Any] | None = None) -> list[str]:
    return between_runs.settings(changed(**REAL) if first is None else first, other, {"net"}, {"wifi"})


DIFFERENCES: dict[str, dict[str, Any]] = {
    "weights": {"models__net__weights_digest": "d" * 64},
    "graph": {"models__net__graph_digest": "d" * 64},
    "another point": {"models__net__points": OTHER_POINT},
    "profile": {"profiles__wifi__edge_to_server": {"rate_bps": 4e7, "loss": 0.01}},
    "testbed": {"testbed": "two hosts"},
    "shaper": {"sessions__0__testbed__shaper": "netem"},
    "cpu": {"sessions__0__hosts__edge__cpu": "EPYC"},
    "governor": {"sessions__0__hosts__edge__governor": "powersave"},
    "driver": {"sessions__0__driver__kernel": "6.2"},
    "congestion": {"sessions__0__testbed__congestion_control": "bbr"},
    "share of a core": {"sweep__edge_cpu": 0.25},
    "codecs": {"sweep__codecs": ["none", "int8"]},
    "version": {"pareto": "0.2.0"},
    "of several sessions": {"sessions": [SESSION, SECOND]},
    "an option that an older version did not have": {"sweep__until": "5%"},
    "several": {"sessions__0__hosts": NEWER, "testbed": "two hosts", "sweep__trials": 20},
}
ALIKE: tuple[dict[str, Any], ...] = (
    *({}, {"sessions__0__hosts__edge__pid": 99}, {"sweep__points": ["1", "2"]}),
    {"models__other__weights_digest": "e"},
    {"sweep__codecs": ["none"]},  # as before there were codecs
)


def test_each_setting_that_differs_is_told_doubts_first_and_no_other(snapshot: SnapshotAssertion) -> None:
    lines = {name: told(changed(**REAL, **other)) for name, other in DIFFERENCES.items()}
    older = {"testbed": MANIFEST["testbed"], "sweep": SWEEP}
    assert lines | {"an older version": told(older), "no manifest": told({})} == snapshot
    assert [line.startswith(DOUBTFUL) for line in lines["several"]] == [True, False, False]
    assert [told(changed(**REAL, **other)) for other in ALIKE] == [[]] * len(ALIKE)


def test_another_seed_is_no_doubt(snapshot: SnapshotAssertion) -> None:
    first, other = (changed(models__net__weights_digest=digit * 64, sweep__seed=int(digit)) for digit in "01")
    lines = told(other, first)
    assert not any(line.startswith(DOUBTFUL) for line in lines)
    assert lines == snapshot

"""Runs of other settings are not pooled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.fronts.front import front
from pareto.analysis.naming import USUAL
from pareto.analysis.runs.comparable import KEY, setups, with_setup
from pareto.analysis.runs.load import joined, load
from tests.unit.example_manifest import HOST, MANIFEST, MODEL, SESSION, changed
from tests.unit.example_run import trials, write

KINDS = [(model, netem, 1) for model in ("net", "other") for netem in ("wifi", "lan")]


def labelled(manifests: dict[str, Any], *each: tuple[str, str, str, str, int]) -> tuple[list[str], list[str]]:
    """The setups of trials of these kinds, and the notes."""
    rows = pd.DataFrame(each, columns=KEY).assign(**USUAL)
    found, notes = setups(manifests, rows)
    return with_setup(rows, found)["setup"].tolist(), notes


def apart(*manifests: dict[str, Any]) -> tuple[list[list[str]], list[str]]:
    """For each run, the setup of its trials: net at wifi, net at lan, other at wifi, other at lan. And the notes."""
    runs = {f"run{number}": manifest for number, manifest in enumerate(manifests)}
    labels, notes = labelled(runs, *((run, "local", *kind) for run in runs for kind in KINDS))
    return [labels[start : start + len(KINDS)] for start in range(0, len(labels), len(KINDS))], notes


@pytest.mark.parametrize(
    "same",
    [
        {},
        {"sweep__seed": 1, "models__net__weights_digest": "d" * 64},
        {"models__net__dataset__inputs__1__digest": "e" * 64},
        {"sweep__trials": 20, "created_at": "later", "pareto": "0.2.0", "sweep__netems": ["wifi"]},
        {"sweep__congestion": "cubic"}, {"sweep__initial_window": 100}, {"sweep__threads": 1},
        {"sweep__requests": None, "sweep__phase": None}, {"sweep__granularity": "op"},
        {"sessions": [*MANIFEST["sessions"], *MANIFEST["sessions"]]}, {"profiles__wifi__name": "renamed"},
    ],
    ids=lambda same: " ".join(same) or "nothing",
)  # fmt: skip
def test_what_changes_no_measurement_makes_no_setup(same: dict[str, Any]) -> None:
    assert apart(MANIFEST, changed(**same)) == ([[""] * 4, [""] * 4], [])


@pytest.mark.parametrize(
    ("other", "first_label", "other_label"),
    [
        ({"sweep__edge_cpu": 0.25}, "edge_cpu=1", "edge_cpu=0.25"),
        ({"sweep__threads": 2}, "threads=1", "threads=2"),
        ({"sweep__quick": True}, "quick=False", "quick=True"),
        ({"sweep__requests": 662}, "requests=not set", "requests=662"),
        ({"sweep__phase": 10.0}, "phase=not set", "phase=10"),
        ({"sweep__prefetch": 2}, "prefetch=0", "prefetch=2"),
        ({"sweep__shape_at": "edge"}, "shape_at=both", "shape_at=edge"),
        ({"sweep__slow_start_after_idle": True}, "a", "b"),
        ({"sessions__0__testbed__congestion_control": "bbr"}, "congestion=cubic", "congestion=bbr"),
        ({"sessions__0__testbed__initial_window_segments": 10}, "initial_window=100", "initial_window=10"),
        ({"sessions__0__hosts__middle1": HOST}, "hosts=2", "hosts=3"),
        ({"sessions__0__testbed__shaper": "netem"}, "shaper=relay", "shaper=netem"),
        ({"sessions__0__hosts__edge__cpu": "Cortex-A72"}, "edge cpu=Cortex-A76", "edge cpu=Cortex-A72"),
        ({"sessions__0__hosts__server__torch": "2.12.0"}, "server torch=2.13.0", "server torch=2.12.0"),
        ({"testbed": "edge pi (cpu)"}, "a", "b"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_settings_of_the_run_tell_all_its_trials_apart(
    other: dict[str, Any], first_label: str, other_label: str, snapshot: SnapshotAssertion
) -> None:
    labels, notes = apart(MANIFEST, changed(**other))
    assert labels == [[first_label] * 4, [other_label] * 4]
    assert notes[0].endswith(f": {first_label}: run0; {other_label}: run1")
    assert notes == snapshot


REAL = {"models__net__weights": "default", "models__net__dataset__name": "cifar10"}


@pytest.mark.parametrize(
    ("of", "other"),
    [
        ({}, {"models__net__graph_digest": "f" * 64}), ({}, {"models__net__input": "uint8"}),
        ({}, {"models__net__points": MODEL["points"][:1]}), ({}, {"models__net__dataset__inputs__1__images": 8}),
        ({}, {"models__net__weights": "default"}), ({}, {"models__net__dataset__name": "cifar10"}),
        ({}, {"models__net__source_digest": "f" * 64}),
        # Digests matter of what is not drawn by a seed.
        (REAL, {"models__net__weights_digest": "9" * 64}),
        (REAL, {"models__net__dataset__inputs__1__digest": "9" * 64}),
    ],
    ids=lambda of: " ".join(of),
)  # fmt: skip
def test_a_model_s_settings_tell_only_its_own_trials_apart(of: dict[str, Any], other: dict[str, Any]) -> None:
    labels, notes = apart(changed(**of), changed(**of, **other))
    assert labels[0][:2] != labels[1][:2]
    assert "" not in (*labels[0][:2], *labels[1][:2])
    assert labels[0][2:] == labels[1][2:] == ["", ""]
    assert all("\n" not in note for note in notes)


def test_another_profile_of_the_same_name_tells_its_trials_apart(snapshot: SnapshotAssertion) -> None:
    faster = changed(profiles__wifi__edge_to_server__rate_bps=1e7)
    labels, notes = apart(MANIFEST, faster)
    assert labels == [["a", "", "a", ""], ["b", "", "b", ""]]
    chain = [changed(networks__wifi=["lan", "wifi"]), changed(networks__wifi=["lan", "wifi"])]
    chain[1]["profiles"]["wifi"]["edge_to_server"]["delay_s"] = 0.2
    _, of_chain = apart(*chain)
    assert [*notes, *of_chain] == snapshot


def test_what_differs_together_is_named_once_and_told_each(snapshot: SnapshotAssertion) -> None:
    quarter = changed(sweep__edge_cpu=0.25, testbed="local: edge at 25% of a core")
    labels, notes = apart(MANIFEST, quarter, MANIFEST)
    assert [of_run[0] for of_run in labels] == ["edge_cpu=1", "edge_cpu=0.25", "edge_cpu=1"]
    assert notes == snapshot


def test_settings_that_no_single_one_tells_apart_get_letters() -> None:
    labels, _ = apart(MANIFEST, changed(sweep__edge_cpu=0.25), MANIFEST, changed(sweep__quick=True))
    assert [of_run[0] for of_run in labels] == ["a", "b", "a", "c"]
    many = [changed(sweep__edge_cpu=number / 100, sweep__quick=number % 2 == 0) for number in range(30)]
    for number, manifest in enumerate(many):
        manifest["sweep"]["edge_cpu"] = number // 2
    assert [of_run[0] for of_run in apart(*many)[0]][-5:] == ["z", "aa", "ab", "ac", "ad"]


def test_a_run_without_a_manifest_is_a_setup_of_its_own(snapshot: SnapshotAssertion) -> None:
    labels, notes = apart(MANIFEST, {}, MANIFEST, {})
    assert [of_run[0] for of_run in labels] == ["", "a", "", "b"]
    assert notes == snapshot
    assert apart({}) == ([[""] * 4], [])


def test_runs_of_other_settings_have_fronts_of_their_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for cpu in (0.25, 1):
        write(tmp_path / "apart" / f"{cpu}", trials(rounds=2, run=f"run{cpu}"), sweep={"edge_cpu": cpu})
    found = joined(tmp_path / "apart")
    (note,) = found.notes
    labels = ("edge_cpu=0.25", "edge_cpu=1")
    assert load(tmp_path / "apart")["setup"].value_counts().to_dict() == dict.fromkeys(labels, 88)
    assert note in caplog.text
    rounds = front(found.trials).groupby("setup")["rounds"].agg(["size", "max"])
    assert rounds.T.to_dict("list") == {label: [43, 2] for label in labels}
    alike = [write(tmp_path / name, trials(rounds=2, run=name), sweep={"edge_cpu": 1}) for name in "ab"]
    assert front(joined(alike).trials)["rounds"].eq(4).all()


def test_another_codec_of_the_users_own_with_the_same_name_tells_runs_apart() -> None:
    def with_codecs(**source: str) -> dict[str, Any]:
        codecs = {name: {"source_digest": each, "weights_digest": "w"} for name, each in source.items()}
        return changed(models__net__own_codecs=codecs)

    labels, notes = apart(with_codecs(B="1" * 64), with_codecs(B="2" * 64))
    assert labels[0][:2] != labels[1][:2] and labels[0][2:] == ["", ""]
    assert notes[1:] == ["net codec B source: 11111111 in a; 22222222 in b"]
    for other in (MANIFEST, with_codecs(B="1" * 64), with_codecs(C="3" * 64)):
        assert apart(with_codecs(B="1" * 64), other) == ([[""] * 4, [""] * 4], [])


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("engine", ("eager", "edge=onnx")),
        ("prefetch_asked", ("0", "2")),
        ("allocator", ("tuned", "default", "edge=default")),
    ],
)
def test_a_factor_is_a_condition_of_one_run(tmp_path: Path, column: str, values: tuple[str, ...]) -> None:
    rows = [{**row, column: value} for row in trials() for value in values]
    loaded = load(write(tmp_path / "all", rows))
    assert len(loaded) == len(rows), "they are no repetitions of one trial"
    assert set(loaded["setup"]) == {""}
    fronts = front(loaded)
    assert set(fronts[column]) == set(values), "each has a front of its own"
    assert fronts.groupby(column).size().nunique() == 1
    usual = [row for row in rows if row[column] == values[0]]
    old = [{name: row[name] for name in row if name not in USUAL} for row in usual]
    for name, same in (("usual", usual), ("written by an earlier version", old)):
        loaded = load(write(tmp_path / name, same))
        assert loaded[[*USUAL]].drop_duplicates().to_dict("records") == [USUAL]


def of_testbeds(**cpus: str) -> dict[str, Any]:
    """The manifest of one run on several testbeds, by the processor of each one's edge."""
    return changed(
        sessions=[
            {**SESSION, "testbed_name": name, "hosts": {"edge": {**HOST, "cpu": cpu}, "server": HOST}}
            for name, cpu in cpus.items()
        ]
    )


def on_testbeds(manifest: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The setup of each testbed's trials of one kind, and the notes."""
    names = [session["testbed_name"] for session in manifest["sessions"]]
    return labelled({"run": manifest}, *(("run", name, *KINDS[0]) for name in names))


def test_testbeds_of_equal_hardware_are_pooled_and_others_have_their_names(
    snapshot: SnapshotAssertion,
) -> None:
    assert on_testbeds(of_testbeds(lab1="A76", lab2="A76")) == (["", ""], [])
    labels, notes = on_testbeds(of_testbeds(lab1="A76", lab2="A72", lab3="A76"))
    assert labels == ["testbed=lab1+lab3", "testbed=lab2", "testbed=lab1+lab3"]
    assert notes == snapshot
    many = {f"raspberry-{number}": "A76" for number in range(9)}
    labels, _ = on_testbeds(of_testbeds(**many, other="A72"))
    assert set(labels) == {"a", "b"}, "names that are too long"


def test_a_run_on_several_testbeds_is_pooled_with_another_of_the_same_hardware() -> None:
    manifests = {"fleet": of_testbeds(lab1="A76", lab2="A72"), "alone": of_testbeds(lab1="A76")}
    kinds = [(run, bed, *KINDS[0]) for run, bed in (("fleet", "lab1"), ("fleet", "lab2"), ("alone", "lab1"))]
    assert labelled(manifests, *kinds)[0] == ["edge cpu=A76", "edge cpu=A72", "edge cpu=A76"]

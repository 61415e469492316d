"""Points without a valid trial that could be better than the answer."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from analysis import as_json
from analysis.advice.advise import advise, answers
from analysis.advice.rivals import Rival, Tried, sentence
from analysis.findings import Options, find
from analysis.prediction.network import Network
from tests.unit import simulated_network as world
from tests.unit.example_run import trials, write

LOST = ["0", "2", "3"]


def measured(
    bound_s: float, lost: list[str] = LOST, backends: tuple[str, ...] = ("tcp", "rpc")
) -> pd.DataFrame:
    """At `slow` all trials of these points are invalid, with these bounds."""
    rows = world.trials(noise=0.001).assign(latency_bound_s=1e-3, throughput_bound_ips=1e3)
    spoiled = rows["point"].isin(lost) & rows["backend"].isin(backends) & rows["netem"].eq("slow")
    rows.loc[spoiled, ["status", "latency_bound_s"]] = ["invalid", bound_s]
    return rows


def told(rows: pd.DataFrame, **options: str) -> str:
    slow, *_ = answers(rows, world.stages(rows), [world.manifest()], **options)
    return slow


def test_an_answer_names_what_could_beat_it(snapshot: SnapshotAssertion) -> None:
    assert told(measured(0.05)) == snapshot(name="their bound is lower")
    assert "valid trial" not in told(measured(0.5)), "it takes longer than the answer, whatever they measured"
    assert "could be better" not in told(
        measured(0.05), where="payload_bytes < 200kB and payload_bytes > 120kB"
    ), "point 1 alone is allowed"
    assert "could be better" in told(measured(0.05), where="latency_s < 1"), "it is not known to take longer"
    assert told(measured(0.05, backends=("rpc",))) == snapshot(name="by one backend")
    assert "could be better" in told(measured(math.nan)), "no bound rules them out"


def test_advice_names_what_could_beat_it(snapshot: SnapshotAssertion) -> None:
    rows = measured(0.05)
    stages, manifests = world.stages(rows), [world.manifest()]
    here = advise(rows, stages, manifests, world.PROFILES["slow"])
    assert str(here) == snapshot(name="measured there")
    assert as_json.of_advice(here, str(here), [])["unsure"] == here.ranking.unsure
    assert all(math.isnan(choice.probability) for choice in here.ranking.choices)
    everywhere = rows[rows["netem"].eq("slow")].assign(netem="fast", run="other")
    only_fast = pd.concat([everywhere, rows[rows["netem"].eq("middle") & ~rows["point"].isin(LOST)]])
    at = {"objective": "throughput"}
    assert str(advise(only_fast, stages, manifests, Network(0.02, 40e6))) == snapshot(name="predicted")
    assert "could be better" in str(advise(only_fast, stages, manifests, Network(0.02, 40e6), **at))
    slow = str(advise(only_fast, stages, manifests, Network(0.05, 1e6)))
    assert "could be better" not in slow, "their bytes alone take longer there"


@pytest.mark.parametrize(
    ("rivals", "objective"),
    [
        ([], "latency"),
        ([Rival("2", "2 over tcp", True, 0.24)], "latency"),
        ([Rival("2", "2 over tcp", True, 0.3), Rival("10", "10 over rpc", True, 0.24)], "latency"),
        ([Rival("0", "all on the server over rpc", False, math.nan)], "latency"),
        ([Rival(str(point), "", True, 20.0) for point in (3, 12, 1, 2, 4)], "throughput"),
    ],
)
def test_in_words(rivals: list[Rival], objective: str, snapshot: SnapshotAssertion) -> None:
    assert sentence(rivals, objective) == snapshot


def test_a_report_says_that_the_front_may_lack_points(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    rows = trials(rounds=3)
    for row in rows:
        if row["point"] == 0 and row["backend"] == "tcp":
            row |= {
                "status": "invalid",
                "reason": "link off",
                "latency_bound_s": 0.001,
                "throughput_bound_ips": 500,
            }
    run = write(tmp_path / "run", rows)
    found = find([run])
    assert [line for line in found.warnings if "could be on the front" in line] == snapshot
    made = json.loads(as_json.text(as_json.of_report(found, run)))
    assert [row["could_be_better"] for row in made["fastest"]] == snapshot
    ruled_out = find([run], Options(where="payload_bytes < 1kB"))
    assert not any("could be on the front" in line for line in ruled_out.warnings)


def test_a_point_whose_bounds_are_dominated_is_not_lacking() -> None:
    rows = world.trials(noise=0.001).query("netem == 'slow'")
    rows = rows.assign(latency_bound_s=0.5, throughput_bound_ips=1e-3)
    rows.loc[rows["point"] == "0", "status"] = "failed"
    assert {*Tried(rows).lost()["point"]} == {"0"}
    assert Tried(rows).rivals(0.06) == []
    assert Tried(rows).rivals(1.0, "throughput") == []

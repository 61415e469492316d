"""Points without a valid trial that could be better than the answer."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from syrupy.assertion import SnapshotAssertion

from pareto.analysis import as_json
from pareto.analysis.advice.rivals import FIGURES, lacking, lost, rivals, sentence
from pareto.analysis.figures.map_figure import known_of
from pareto.analysis.findings import find
from pareto.analysis.fronts.front import front
from pareto.analysis.page.best_map import maps
from pareto.analysis.prediction.network import Network
from pareto.analysis.runs.load import load
from tests.unit import simulated_network as world
from tests.unit.analysis.test_best import findings
from tests.unit.example_run import trials, write

LOST = ["0", "2", "3"]
COULD = "could be better"


def measured(
    bound_s: float, lost: list[str] = LOST, backends: tuple[str, ...] = ("tcp", "rpc")
) -> pd.DataFrame:
    """At `slow` all trials of these points are invalid, with these bounds."""
    rows = world.trials(noise=0.001).assign(latency_bound_s=1e-3, throughput_bound_ips=1e3)
    spoiled = rows["point"].isin(lost) & rows["backend"].isin(backends) & rows["netem"].eq("slow")
    rows.loc[spoiled, ["status", "latency_bound_s"]] = ["invalid", bound_s]
    return rows


def told(rows: pd.DataFrame, **options: str) -> str:
    return world.told(rows, **options)[0]


def test_an_answer_names_what_could_beat_it(snapshot: SnapshotAssertion) -> None:
    assert told(measured(0.05)) == snapshot(name="their bound is lower")
    assert told(measured(0.05, backends=("rpc",))) == snapshot(name="by one backend")
    at_slow = measured(0.05).query("netem == 'slow'")
    assert "valid trial" not in told(measured(0.5).query("netem == 'slow'")), "it is slower in any case"
    only_1 = "payload_bytes < 200kB and payload_bytes > 120kB"
    assert COULD not in told(at_slow, where=only_1), "point 1 alone is allowed"
    assert COULD in told(at_slow, where="latency_s < 1"), "it is not known to take longer"
    nobody_knows = measured(math.nan)
    nobody_knows.loc[nobody_knows["point"].isin(LOST), "payload_bytes"] = math.nan
    assert COULD in told(nobody_knows.query("netem == 'slow'")), "no bound rules them out"


def test_advice_names_what_could_beat_it(snapshot: SnapshotAssertion) -> None:
    rows = measured(0.05)
    here = world.advised(world.PROFILES["slow"], rows)
    assert str(here) == snapshot(name="measured there")
    assert as_json.of_advice(here, [])["unsure"] == here.ranking.unsure
    assert here.ranking.choices["probability"].isna().all()
    everywhere = rows[rows["netem"].eq("slow")].assign(netem="fast", run="other")
    only_fast = pd.concat([everywhere, rows[rows["netem"].eq("middle") & ~rows["point"].isin(LOST)]])
    near = Network(0.02, 40e6)
    assert str(world.advised(near, only_fast)) == snapshot(name="predicted")
    assert COULD in str(world.advised(near, only_fast, objective="throughput"))
    slow = str(world.advised(Network(0.05, 1e6), only_fast))
    assert COULD not in slow, "their bytes alone take longer there"


def test_in_words(snapshot: SnapshotAssertion) -> None:
    both = [("2", "2 over tcp", True, 0.3), ("10", "10 over rpc", True, 0.24)]
    many = [(str(point), "", True, 20.0) for point in (3, 12, 1, 2, 4)]
    unknown = [("0", "all on the server over rpc", False, math.nan)]
    of = [("latency", each) for each in ([], both[1:], both, unknown)] + [("throughput", many)]
    columns = ["point", "place", "whole", "bound"]
    each = [(pd.DataFrame(could, columns=columns).astype({"whole": bool}), name) for name, could in of]
    assert [sentence(*rows_and_objective) for rows_and_objective in each] == snapshot


def test_a_report_says_that_the_front_may_lack_points(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    rows = [row for row in trials(rounds=3) if row["point"] in (0, 7, 20, 21)]
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
    fastest = json.loads(as_json.text(as_json.of_report(found, run)))["fastest"]
    said = [line for line in found.warnings if "could be on the front" in line]
    assert said == snapshot
    assert [row["could_be_better"] for row in fastest] == snapshot
    where = "payload_bytes < 1kB"
    _, ruled_out = lacking(front(found.trials, where=where), found.trials, [*FIGURES], where)
    assert not ruled_out


def test_a_point_whose_bounds_are_dominated_is_not_lacking() -> None:
    rows = world.trials(noise=0.001).query("netem == 'slow'")
    rows = rows.assign(latency_bound_s=0.5, throughput_bound_ips=1e-3)
    rows.loc[rows["point"] == "0", "status"] = "failed"
    for objective, best in (("latency", 0.06), ("throughput", 1.0)):
        cells = lost(rows, objective)
        assert {*cells["point"]} == {"0"}
        assert rivals(cells, best, objective).empty


def lacked(rows: list[dict[str, Any]], folder: Path, *objectives: str) -> tuple[pd.DataFrame, list[str]]:
    """The front of a run of these trials without the probabilities that do not hold, by point; and the line."""
    loaded = load([write(folder, rows)])
    made, lines = lacking(front(loaded, objectives), loaded, objectives, "")
    return made.set_index("point"), list(map(str, lines))


def test_no_probability_is_stated_of_what_a_point_without_a_figure_could_dominate(tmp_path: Path) -> None:
    """Latency and throughput of point 20 are better than those of 0 and 17; all on the edge could be better still."""
    rows = [row for row in trials(rounds=6, backends=("tcp",)) if row["point"] in (0, 17, 20, 21)]
    stated = ["probability", "probability_all", "codec_probability"]
    whole, lines = lacked(rows, tmp_path / "whole", *FIGURES)
    assert whole[stated].notna().all(axis=None) and not lines
    lost = [row | {"status": "invalid"} if row["point"] == 21 else row for row in rows]
    found, lines = lacked(lost, tmp_path / "lost", *FIGURES)
    assert found.loc["20", stated].isna().all() and len(lines) == 1
    assert (found.loc[["0", "17"], "probability_all"] < 0.05).all(), "a rival more makes it no likelier"
    for row in lost:
        if row["point"] == 21:
            row |= {"latency_bound_s": 5.0, "throughput_bound_ips": 0.01}
    settled, lines = lacked(lost, tmp_path / "settled", *FIGURES)
    assert settled.loc["20", stated].notna().all() and not lines, "it could be better in nothing"


def test_a_point_without_the_figure_of_another_objective_could_be_on_the_front(tmp_path: Path) -> None:
    rows = [row for row in trials(rounds=3, backends=("tcp",)) if row["point"] in (0, 17, 20, 21)]
    rows = [row | {"latency_p95_s": 1.1 * row["latency_s"]} for row in rows]
    assert not lacked(rows, tmp_path / "all", "p95", "edge-time")[1]
    slow = [row | {"latency_p95_s": ""} if row["point"] == 17 else row for row in rows]
    _, (line,) = lacked(slow, tmp_path / "slow", "p95", "edge-time")
    assert "17 (features.16) over tcp" in line and "p95" in line


def test_trials_that_failed_before_they_knew_any_bound_have_one_all_the_same() -> None:
    """That of their point over another backend; else of the link and the bytes, as other networks show them."""
    spoiled = ["status", "latency_s", "latency_bound_s", "payload_bytes", "result_bytes"]
    rows = world.trials(noise=0.001).assign(latency_bound_s=0.5)
    of_1 = rows["point"].eq("1")
    at_slow = rows["netem"].eq("slow") & of_1
    for gone, could, why in (
        (at_slow & rows["backend"].eq("rpc"), False, "another backend's bound"),
        (at_slow, False, "150 kB take 240 ms there"),
        (of_1, True, "nobody knows what crosses there"),
    ):
        rows.loc[gone, spoiled] = ["failed", *[math.nan] * 4]
        assert (COULD in told(rows)) == could, why


def test_elsewhere_says_what_it_is_among_where_another_point_could_be_best() -> None:
    """All on the edge has no trial that counts under `fast`, nor is it needed there: on a slower link it would be."""
    rows = world.trials(noise=0.001).assign(latency_bound_s=1e-3)
    whole, network = rows["point"].eq("4"), world.PROFILES["fast"]
    lost = rows.assign(status=rows["status"].mask(whole, "invalid"))
    lost.loc[whole, "latency_bound_s"] = 0.06
    left, off = rows[~whole], rows[whole].drop_duplicates("backend")
    off = off.assign(netem="fast", how="physics", latency_s=0.06)
    hopeless = off.assign(point="5", payload_bytes=1e9, latency_s=10.0)
    for trials_, struck, among, why in (
        (rows, None, False, "all have trials"),
        (lost, None, True, "its trials do not count"),
        (left, None, False, "nobody asked for it"),
        (left, off, True, "it was struck off"),
        (rows, hopeless, False, "it sends more than all"),
    ):
        (text,) = world.told(trials_[trials_["netem"].eq("fast")], struck=struck)
        assert ("among the points measured here" in text) == among, why
    here = world.advised(network, lost)
    assert here.ranking.unsure_along == {"rate", "delay"}
    assert as_json.of_advice(here, [])["better_elsewhere_unsure"] == ["delay", "rate"]


def test_the_map_of_networks_says_which_points_it_knows_nothing_of() -> None:
    rows = world.trials(noise=0.001)
    rows.loc[rows["point"].eq("3"), "status"] = "invalid"
    found = findings(rows, struck=rows.head(1).assign(point="5", how="physics"))
    ((_, made),) = maps(found)
    for text in (made["none"], known_of(found, found.front)["about"]):
        assert "Points 3 and 5 have no valid trial in any network" in text
    all_known = replace(found, trials=rows[rows["point"].ne("3")], struck=found.struck.head(0))
    ((_, made),) = maps(all_known)
    assert made["none"] == ""

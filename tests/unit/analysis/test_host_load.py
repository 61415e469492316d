"""What is said of other work on the hosts, and when nothing is."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.runs.load import Joined, Run, joined
from pareto.analysis.statistics import host_load
from pareto.sweep.options import SLOWED
from pareto.trial.faults import MATTERS
from tests.unit import example_chain

QUIET = {
    **{
        f"{host}_{what}_percent": 2.0
        for host in host_load.HOSTS
        for what in ("others", "steal", "wait", "core")
    },
    **{"edge_slowdown": 1.1, "server_slowdown": 1.05, "full_cores": "", "strangers_percent": 2.0},
}


def run(folder: Path) -> Joined:
    """Three rounds of a chain's trials at three of its splits."""
    return joined(
        example_chain.write(folder / "run", *example_chain.trials([(0, 3), (3, 7), (7, 9)], rounds=3))
    )


@pytest.fixture
def frames(tmp_path: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Trials and stages of a chain, on hosts that have nothing else to do."""
    known = run(tmp_path)
    stages = known.stages.assign(baseline_s=known.stages["compute_s"])
    return known.trials.assign(**QUIET), stages


def some(trials: pd.DataFrame, count: int, **columns: Any) -> pd.DataFrame:
    """With these columns in the first trials that are ok."""
    changed = trials.copy()
    for name, value in columns.items():
        changed.loc[changed.index[changed["status"] == "ok"][:count], name] = value
    return changed


def test_of_quiet_hosts_nothing_is_said(frames: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    for shared in (True, False):
        assert list(host_load.doubts(*frames, shared=shared)) == []
        assert list(host_load.full_cores(frames[0], shared=shared)) == []


def test_nor_of_a_run_that_did_not_measure_it(tmp_path: Path) -> None:
    known = run(tmp_path)
    assert list(host_load.doubts(known.trials, known.stages, shared=False)) == []
    assert list(host_load.full_cores(known.trials, shared=False)) == []


def test_a_stage_that_was_slower_than_alone_is_told(
    frames: tuple[pd.DataFrame, pd.DataFrame], snapshot: SnapshotAssertion
) -> None:
    trials, stages = frames
    slow = some(some(trials, 2, edge_slowdown=1.3, edge_s=0.04, latency_s=0.1), 1, edge_slowdown=1.4)
    assert list(map(str, host_load.doubts(slow, stages, shared=True))) == snapshot
    small = some(trials, 2, edge_slowdown=1.4, edge_s=0.004, latency_s=0.1)
    assert list(host_load.doubts(small, stages, shared=True)) == []


def test_what_is_told_here_is_less_than_what_makes_a_trial_invalid() -> None:
    assert host_load.SLOWER < SLOWED
    assert host_load.MATTERS == MATTERS


def test_a_host_that_changed_its_speed_within_a_run_is_told(
    frames: tuple[pd.DataFrame, pd.DataFrame], snapshot: SnapshotAssertion
) -> None:
    """Where its baselines were slow as well, no trial's own figures could tell."""
    trials, stages = frames
    later = (stages["round"] == stages["round"].max()) & (stages["host"] == "edge")
    stages.loc[later, "baseline_s"] *= 2
    assert list(map(str, host_load.doubts(trials, stages, shared=True))) == snapshot


@pytest.mark.parametrize(
    ("column", "usual", "other", "host", "lines"),
    [
        ("engine", "eager", "onnx", "server", 0),
        ("engine", "eager", "edge=onnx", "edge", 0),
        ("engine", "eager", "edge=onnx", "server", 1),
        ("allocator", "tuned", "default", "edge", 0),
        ("allocator", "tuned", "edge=default", "edge", 0),
        ("allocator", "tuned", "edge=default", "server", 1),
    ],
)
def test_another_engine_or_allocator_is_no_host_that_changed(
    frames: tuple[pd.DataFrame, pd.DataFrame], column: str, usual: str, other: str, host: str, lines: int
) -> None:
    trials, stages = frames
    later = stages["round"] == stages["round"].max()
    stages.loc[later, "baseline_s"] /= 2
    told = stages.assign(**{column: later.map({True: other, False: usual})})
    of_host = told[told["host"] == host]
    assert len(list(map(str, host_load.doubts(trials, of_host, shared=True)))) == lines


def test_what_others_took_is_told_but_where_the_harness_is_one_of_them(
    frames: tuple[pd.DataFrame, pd.DataFrame], snapshot: SnapshotAssertion
) -> None:
    trials, stages = frames
    loaded = some(trials, 3, server_others_percent=47.0)
    assert list(map(str, host_load.doubts(loaded, stages, shared=False))) == snapshot
    assert list(host_load.doubts(loaded, stages, shared=True)) == []
    strangers = some(trials, 3, strangers_percent=35.0)
    assert list(map(str, host_load.doubts(strangers, stages, shared=True))) == snapshot


def test_stolen_time_is_told_everywhere(
    frames: tuple[pd.DataFrame, pd.DataFrame], snapshot: SnapshotAssertion
) -> None:
    trials, stages = frames
    assert (
        list(map(str, host_load.doubts(some(trials, 1, edge_steal_percent=30.0), stages, shared=True)))
        == snapshot
    )


def test_cells_that_the_cores_hold_back_are_counted(
    frames: tuple[pd.DataFrame, pd.DataFrame], snapshot: SnapshotAssertion
) -> None:
    trials, _ = frames
    of_point = trials["point"] == trials.loc[trials["status"] == "ok", "point"].iloc[0]
    trials.loc[of_point, "full_cores"] = "edge, server"
    trials.loc[of_point, "throughput_ips"] = 0.6 * trials["throughput_bound_ips"]
    for shared in (True, False):
        assert list(host_load.full_cores(trials, shared=shared)) == snapshot
    trials["strangers_percent"] = 40.0
    assert list(host_load.full_cores(trials, shared=True)) == snapshot


def test_a_cell_that_is_held_back_in_few_rounds_is_not_counted(
    frames: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    assert list(host_load.full_cores(some(frames[0], 1, full_cores="edge"), shared=True)) == []


def test_a_cell_without_a_bound_is_held_below_none(frames: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    trials = frames[0].assign(full_cores="edge", throughput_bound_ips=math.nan)
    assert list(host_load.full_cores(trials, shared=True)) == []


MANIFEST = {
    "networks": {"wifi": ["wifi"], "lossy": ["wifi", "lossy"]},
    "profiles": {
        "wifi": {"edge_to_server": {"delay_s": 0.01}, "bucket": None},
        "lossy": {"edge_to_server": {"loss": 0.01}},
    },
}


def points(**columns: Any) -> pd.DataFrame:
    """Two points that cross the link and one that does not."""
    same = {
        "model": "m",
        "batch_size": 1,
        "codec": "none",
        "in_flight_asked": "auto",
        "setup": "",
        "backend": "tcp",
    }
    return pd.DataFrame(
        {
            **same,
            **{
                "point": ["0", "3", "7"],
                "payload_bytes": [600_000, 1000, 0],
                "latency_bound_s": [0.05, 0.05, 0.05],
            },
            **{"latency_s": [0.055, 0.06, 0.09], "netem": "wifi", **columns},
        }
    )


def test_what_neither_stages_nor_link_take_is_told(snapshot: SnapshotAssertion) -> None:
    """As by a server that waits before it answers."""
    assert list(map(str, host_load.beyond(points(latency_s=[0.08, 0.09, 0.1]), [MANIFEST]))) == snapshot


def test_a_transports_usual_share_is_not(snapshot: SnapshotAssertion) -> None:
    assert list(host_load.beyond(points(), [MANIFEST])) == []
    quick = points(latency_s=[0.004, 0.005, 0.1], latency_bound_s=[0.001] * 3)
    assert list(host_load.beyond(quick, [MANIFEST])) == []


def test_a_link_that_loses_packets_has_a_reason_of_its_own() -> None:
    late = points(latency_s=[0.08, 0.09, 0.1], netem="lossy")
    assert list(host_load.beyond(late, [MANIFEST])) == list(host_load.beyond(late, [{}])) == []


def test_hosts_on_one_core_are_told_once(snapshot: SnapshotAssertion) -> None:
    session = {"testbed": {"kind": "local", "on_one_core": [["edge", "server"]]}}
    assert list(map(str, host_load.on_one_core([{"sessions": [session, session]}]))) == snapshot
    assert list(host_load.on_one_core([{}, {"sessions": [{"testbed": {"on_one_core": []}}, {}]}])) == []


def test_only_the_local_testbed_is_one_machine_with_the_harness() -> None:
    from pareto.analysis.findings import Findings

    empty = [pd.DataFrame() for _ in range(9)]
    for testbed, one in (("local", True), ("lab.yaml", False)):
        found = Findings([Run(Path(), {"sweep": {"testbed": testbed}})], *empty, objectives=())
        assert found.on_one_machine is one

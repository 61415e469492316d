"""What is said of other work on the hosts, and when nothing is."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.findings import on_one_machine
from pareto.analysis.naming import USUAL
from pareto.analysis.runs.load import Joined, joined
from pareto.analysis.statistics import host_load
from pareto.sweep.options import SLOWED
from pareto.trial.faults import MATTERS
from tests.unit import example_chain

Frames = tuple[pd.DataFrame, pd.DataFrame]
PERCENT = [
    f"{host}_{what}_percent" for host in host_load.HOSTS for what in ("others", "steal", "wait", "core")
]
QUIET = dict.fromkeys([*PERCENT, "strangers_percent"], 2.0)
QUIET |= {"edge_slowdown": 1.1, "server_slowdown": 1.05, "full_cores": ""}


def run(folder: Path) -> Joined:
    """Three rounds of a chain's trials at three of its splits."""
    rows = example_chain.trials([(0, 3), (3, 7), (7, 9)], rounds=3)
    return joined(example_chain.write(folder / "run", *rows))


@pytest.fixture
def frames(tmp_path: Path) -> Frames:
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


def doubts(trials: pd.DataFrame, stages: pd.DataFrame, *, shared: bool = True) -> list[str]:
    return [str(doubt) for doubt in host_load.doubts(trials, stages, shared=shared)]


def test_of_quiet_hosts_nothing_is_said_nor_of_a_run_that_did_not_measure_it(
    frames: Frames, tmp_path: Path
) -> None:
    unmeasured = run(tmp_path / "other")
    for trials, stages in (frames, (unmeasured.trials, unmeasured.stages)):
        for shared in (True, False):
            assert doubts(trials, stages, shared=shared) == []
            assert list(host_load.full_cores(trials, shared=shared)) == []
    assert host_load.SLOWER < SLOWED, "what is told here is less than what makes a trial invalid"
    assert host_load.MATTERS == MATTERS


def test_each_kind_of_load_is_told(frames: Frames, snapshot: SnapshotAssertion) -> None:
    trials, stages = frames
    slow = some(some(trials, 2, edge_slowdown=1.3, edge_s=0.04, latency_s=0.1), 1, edge_slowdown=1.4)
    assert doubts(some(trials, 2, edge_slowdown=1.4, edge_s=0.004, latency_s=0.1), stages) == [], (
        "a small stage"
    )
    others, strangers = some(trials, 3, server_others_percent=47.0), some(trials, 3, strangers_percent=35.0)
    assert doubts(others, stages) == [], "the harness is one of them"
    # Where its baselines were slow as well, no trial's own figures could tell.
    later = (stages["round"] == stages["round"].max()) & (stages["host"] == "edge")
    assert {
        "slower than alone": doubts(slow, stages),
        "another speed": doubts(trials, stages.assign(baseline_s=stages["baseline_s"] * (1 + later))),
        "others": doubts(others, stages, shared=False),
        "strangers": doubts(strangers, stages),
        "stolen": doubts(some(trials, 1, edge_steal_percent=30.0), stages),
    } == snapshot


@pytest.mark.parametrize(
    ("column", "usual", "other"), [("engine", "eager", "onnx"), ("allocator", "tuned", "default")]
)
def test_another_engine_or_allocator_is_no_host_that_changed(
    frames: Frames, column: str, usual: str, other: str
) -> None:
    trials, stages = frames
    later, last = (each["round"] == each["round"].max() for each in (stages, trials))
    stages.loc[later, "baseline_s"] /= 2
    edge = f"edge={other}"
    for name, host, lines in ((other, "server", 0), (edge, "edge", 0), (edge, "server", 1)):
        of_stages, of_trials = (each.map({True: name, False: usual}) for each in (later, last))
        told = stages[stages["host"] == host].assign(**{column: of_stages})
        assert len(doubts(trials.assign(**{column: of_trials}), told)) == lines


def test_cells_that_the_cores_hold_back_are_counted(frames: Frames, snapshot: SnapshotAssertion) -> None:
    trials, _ = frames
    few = some(trials, 1, full_cores="edge"), trials.assign(full_cores="edge", throughput_bound_ips=math.nan)
    assert [list(host_load.full_cores(each, shared=True)) for each in few] == [[], []], (
        "few rounds, and no bound"
    )
    of_point = trials["point"] == trials.loc[trials["status"] == "ok", "point"].iloc[0]
    trials.loc[of_point, "full_cores"] = "edge, server"
    trials.loc[of_point, "throughput_ips"] = 0.6 * trials["throughput_bound_ips"]
    every = (trials, True), (trials, False), (trials.assign(strangers_percent=40.0), True)
    assert [list(host_load.full_cores(each, shared=shared)) for each, shared in every] == snapshot


LOSSY = {"edge_to_server": {"loss": 0.01}}
MANIFEST = {
    "networks": {"wifi": ["wifi"], "lossy": ["wifi", "lossy"]},
    "profiles": {"wifi": {"edge_to_server": {"delay_s": 0.01}, "bucket": None}, "lossy": LOSSY},
}


def beyond(*latencies_s: float, bound_s: float = 0.05, netem: str = "wifi", **manifest: Any) -> list[str]:
    """What is said of two points that cross the link and one that does not."""
    same = {"model": "m", "batch_size": 1, **USUAL, "setup": "", "backend": "tcp"}
    own = {"point": ["0", "3", "7"], "payload_bytes": [600_000, 1000, 0], "latency_s": latencies_s}
    rows = pd.DataFrame({**same, **own, "latency_bound_s": bound_s, "netem": netem})
    return [str(doubt) for doubt in host_load.beyond(rows, [manifest or MANIFEST])]


def test_what_neither_stages_nor_link_take_is_told(snapshot: SnapshotAssertion) -> None:
    """As by a server that waits before it answers."""
    assert beyond(0.08, 0.09, 0.1) == snapshot
    usual = beyond(0.055, 0.06, 0.09), beyond(0.004, 0.005, 0.1, bound_s=0.001)
    assert usual == ([], []), "a transport's usual share"
    unknown = beyond(0.08, 0.09, 0.1, netem="lossy"), beyond(0.08, 0.09, 0.1, models={})
    assert unknown == ([], []), "a link that loses packets, or that is not known"


def test_hosts_on_one_core_are_told_once(snapshot: SnapshotAssertion) -> None:
    session = {"testbed": {"kind": "local", "on_one_core": [["edge", "server"]]}}
    assert list(map(str, host_load.on_one_core([{"sessions": [session, session]}]))) == snapshot
    assert list(host_load.on_one_core([{}, {"sessions": [{"testbed": {"on_one_core": []}}, {}]}])) == []
    for testbed, one in (("local", True), ("lab.yaml", False)):
        assert on_one_machine([{"sweep": {"testbed": testbed}}]) is one, "the local one alone is this machine"

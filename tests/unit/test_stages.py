"""What each host of a chain did in a trial, from what it said of itself."""

from __future__ import annotations

from typing import Any

import pytest

from pareto import stages
from pareto.bounds import Crossing
from pareto.link.profile import Direction, Profile
from pareto.stages import TrialResult
from pareto.sweep import Cell
from tests.unit.reported import result_of

CELL = Cell("m", (3, 7), "a+b", "tcp", "x", 2)
CROSSINGS = [
    Crossing("edge-middle1", Profile("x", Direction(0.1, 8e6), Direction(0.0, 4e6)), 1_000_000, 500_000),
    Crossing("middle1-server", Profile("y"), 2000, 500_000),
]


def told(**edge: Any) -> TrialResult:
    steady = {"throughput_window": [10.0, 14.0], "throughput_window_requests": 8}
    columns = {"started_s": [0.0, 1.0], "stages_s": [[0.2, 0.3], [0.25, 0.35]]}
    report = {
        **{"edge_s": 0.1, "stages_s": [0.2, 0.3], "work_s": 0.6, "baseline_s": 0.09},
        "requests": {"latency": columns, "throughput": columns},
        **edge,
    }
    usage = {**steady, "throughput_busy_s": 1.0, "weights_bytes": 5}
    return result_of(
        {
            "edge": {**report, **usage},
            "middle1": {**usage, "throughput_busy_s": 4.5, "baseline_s": 0.21, "steady_s": 0.19},
            "server": {"rss_bytes": 6},
        }
    )


def test_each_host_has_its_units_its_time_and_its_link() -> None:
    edge, middle, server = stages.rows(CELL, CROSSINGS, told(), {})
    assert [(r["host"], r["first_unit"], r["last_unit"]) for r in (edge, middle, server)] == [
        ("edge", 0, 3),
        ("middle1", 3, 7),
        ("server", 7, None),
    ]
    assert [(r["compute_s"], r["best_s"]) for r in (edge, middle, server)] == [
        (0.1, 0.09),
        (0.2, 0.19),
        (0.3, 0.3),  # it told of neither
    ]
    assert [r["slowdown"] for r in (edge, middle, server)] == [0.1 / 0.09, 0.2 / 0.21, None]
    assert (edge["payload_bytes"], edge["transfer_s"], edge["return_s"]) == (1_000_000, 1.0, 1.0)
    assert (middle["payload_bytes"], middle["transfer_s"], middle["return_s"]) == (2000, 0.0, 0.0)
    assert server["payload_bytes"] is server["transfer_s"] is server["utilization"] is None
    assert server["rss_bytes"] == 6


def test_what_is_not_computing_is_a_bubble() -> None:
    edge, middle, _ = stages.rows(CELL, CROSSINGS, told(), {})
    assert (edge["utilization"], edge["bubble_s"]) == (0.25, pytest.approx(3.0 / 8))
    assert (middle["utilization"], middle["bubble_s"]) == (
        1.0,
        0.0,
    )  # two clocks of one host may differ by a hair


def test_a_host_without_work_has_no_row() -> None:
    alone = {"stages_s": [[], []]}
    (edge,) = stages.rows(CELL, [], told(stages_s=[], requests={"latency": alone}), {})
    assert edge["host"] == "edge"


def test_requests_have_the_servers_time_apart() -> None:
    phase = stages.requests(told())["throughput"]
    assert phase["started_s"] == [0.0, 1.0]
    assert (phase["middle_s"], phase["server_s"]) == ([[0.2], [0.25]], [0.3, 0.35])
    assert "stages_s" not in phase


def test_requests_that_end_before_the_server() -> None:
    columns = {"stages_s": [[0.2], [0.25]]}
    phase = stages.requests(told(stages_s=[0.2], requests={"latency": columns}))["latency"]
    assert (phase["middle_s"], phase["server_s"]) == ([[0.2], [0.25]], [None, None])


def test_steady_work_that_waits_for_another_step_is_no_measure_of_a_stage_without_units() -> None:
    """All on the server: the edge passes an input on each 50 ms, as fast as the link takes them."""
    assert stages.best_s(told(edge_s=1e-5, baseline_s=None, steady_s=0.05))["edge"] == 1e-5


def test_the_bound_has_what_stages_take_alone_where_that_is_less() -> None:
    assert stages.work_s(told()) == pytest.approx(0.09 + 0.21 + 0.3)
    assert stages.work_s(told(work_s=0.5)) == 0.5

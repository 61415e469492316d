"""Forecasts beside what was measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.naming import USUAL
from pareto.analysis.prediction import forecast
from pareto.analysis.prediction.compared import (
    COLUMNS,
    Errors,
    compared,
    faults,
    in_run,
    sentences,
    unfit,
    unused,
)
from pareto.analysis.prediction.network import Network
from tests.unit.analysis.test_forecast import FAR, UNITS, profile, unit_times

WAY = {"delay_s": 0.05, "rate_bps": 5e6}
FAST = {"delay_s": 0.001, "rate_bps": 1e9}


def manifest(**sweep: Any) -> dict[str, Any]:
    both = {"far": WAY, "fast": FAST, "lossy": WAY | {"loss": 0.1}, "jittery": WAY | {"jitter_s": 0.04}}
    return {
        "sweep": {"edge_cpu": 1.0, **sweep},
        "models": {"net": {"graph_digest": "digest"}},
        "profiles": {name: {"edge_to_server": way, "server_to_edge": way} for name, way in both.items()},
        "networks": {"fast+far": ["fast", "far"], "far": ["far"]},
    }


def measured(points: list[str], netem: str = "far", *, off: float = 1.0, **changed: Any) -> pd.DataFrame:
    """Rows of a front, whose figures are the forecasts' times `off`."""
    networks = [{"fast": Network(0.001, 1e9, 0.001, 1e9)}.get(name, FAR) for name in netem.split("+")]
    splits = np.array([[int(cut) for cut in point.split("+")] for point in points])
    networks = networks * splits.shape[1] if len(networks) == 1 else networks
    said = forecast.of(profile(1 + splits.shape[1]), splits, networks, "tcp")
    rows = pd.DataFrame(
        {
            "model": "net", "netem": netem, "batch_size": 1, **USUAL, "setup": "",
            "backend": ["none" if int(point.split("+")[0]) == UNITS else "tcp" for point in points], "point": points,
            "point_name": "", "latency_s": said.latency_s * off, "throughput_ips": said.throughput_ips / off,
        }
    )  # fmt: skip
    for name in ("latency_low_s", "latency_high_s", "throughput_low_ips", "throughput_high_ips"):
        rows[name] = np.nan
    return rows.assign(**changed)


@pytest.mark.parametrize(
    ("points", "netem"), [(["0", "2", "6"], "far"), (["1+2", "0+6", "6+6"], "far"), (["1+3"], "fast+far")]
)
def test_what_was_measured_as_predicted_is_not_off(points: list[str], netem: str) -> None:
    hosts = 2 + points[0].count("+")
    frame = compared(measured(points, netem), [profile(hosts)], [manifest()])
    assert tuple(frame.columns) == COLUMNS
    assert frame["point"].tolist() == points
    assert frame["latency_off"].tolist() == pytest.approx([0] * len(points), abs=1e-12)
    assert frame["throughput_off"].tolist() == pytest.approx([0] * len(points), abs=1e-12)
    assert set(frame["expected"]) == {"latency,throughput"}
    assert set(frame["beyond_bound"]) == {""}


def test_a_figure_far_off_is_not_expected_unless_its_interval_is_wide() -> None:
    rows = measured(["6"], off=1.5)
    (row,) = compared(rows, [profile()], [manifest()]).to_dict("records")
    assert row["latency_off"] == pytest.approx(1 / 1.5 - 1)
    assert row["expected"] == ""
    wide = rows.assign(latency_low_s=0.8 * rows["latency_s"], latency_high_s=1.2 * rows["latency_s"])
    (row,) = compared(wide, [profile()], [manifest()]).to_dict("records")
    assert row["expected"] == "latency"


def test_better_than_the_bound_is_a_fault(snapshot: SnapshotAssertion) -> None:
    frame = compared(measured(["0", "2", "4", "5", "6"], off=0.7), [profile()], [manifest()])
    assert set(frame["beyond_bound"]) == {"latency,throughput"}
    assert list(faults(frame)) == snapshot
    assert not list(faults(compared(measured(["2"]), [profile()], [manifest()])))


@pytest.mark.parametrize(
    ("netem", "sweep", "beyond"),
    [
        ("jittery", {}, "throughput"),
        ("far", {}, "latency,throughput"),
        ("far", {"tolerance": 0.2}, "latency"),
    ],
)
def test_jitter_lets_a_request_be_quicker_and_a_wider_tolerance_is_counted_with(
    netem: str, sweep: dict[str, Any], beyond: str
) -> None:
    rows = measured(["0"], netem)
    rows["latency_s"], rows["throughput_ips"] = rows["latency_s"] - 0.07, rows["throughput_ips"] * 1.1
    assert compared(rows, [profile()], [manifest(**sweep)])["beyond_bound"].tolist() == [beyond]


@pytest.mark.parametrize(
    ("changed", "netem"),
    [
        ({}, "lossy"),
        ({"backend": "rpc"}, "far"),
        ({"batch_size": 8}, "far"),
        ({"codec": "int8"}, "far"),
        ({"latency_s": np.nan, "throughput_ips": np.nan}, "far"),
    ],
)
def test_what_no_forecast_is_for_has_no_row(changed: dict[str, Any], netem: str) -> None:
    rows = measured(["2"]).assign(netem=netem, **changed)
    assert compared(rows, [profile()], [manifest()]).empty
    assert not list(sentences(compared(rows, [profile()], [manifest()])))


def test_a_figure_that_cannot_be_trusted_is_not_compared_and_the_other_is() -> None:
    rows = measured(["0", "2"])
    rows["throughput_ips"] = [np.nan, rows["throughput_ips"].iloc[1]]
    frame = compared(rows, [profile()], [manifest()])
    assert frame["expected"].tolist() == ["latency", "latency,throughput"]
    (line,) = sentences(frame)
    assert "3 of 3 figures" in line
    (nothing,) = sentences(compared(rows.assign(throughput_ips=np.nan), [profile()], [manifest()]))
    assert "throughput" not in nothing


def test_a_profile_whose_units_take_no_time_is_compared_with_nothing() -> None:
    of = profile()
    nothing = replace(of, times=tuple(unit_times(role, np.zeros(UNITS)) for role in of.roles))
    frame = compared(measured(["0", "2", "6"]), [nothing], [manifest()])
    assert "6" not in set(frame["point"])
    assert all(line for line in sentences(frame))


@pytest.mark.parametrize(
    "other",
    [
        {"models": {}},
        {"models": {"net": {"graph_digest": "another"}}},
        {"simulated": True},
        {"sweep": {"edge_cpu": 0.25}},
    ],
)
def test_a_profile_of_something_else_is_left_out_and_that_is_said(
    other: dict[str, Any], snapshot: SnapshotAssertion
) -> None:
    assert unfit(profile(), [manifest()]) == ""
    another = manifest() | other
    assert compared(measured(["2"]), [profile()], [another]).empty
    assert list(unused([profile()], [another])) == snapshot


def test_errors_are_said_for_each_condition(snapshot: SnapshotAssertion) -> None:
    rows = pd.concat([measured(["0", "2", "6"]), measured(["2", "6"], "fast", off=1.5)])
    assert list(sentences(compared(rows, [profile()], [manifest()]))) == snapshot


def test_errors_of_nothing_are_not_known() -> None:
    assert np.isnan(Errors.of(np.array([np.nan]))).all()


def test_profiles_in_a_runs_folder_are_found_and_links_are_not_followed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert list(in_run(run)) == []
    (run / "profiles" / "one").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (run / "profiles" / "two").symlink_to(tmp_path / "elsewhere")
    assert list(in_run(run)) == [run / "profiles" / "one"]


def test_points_of_engines_are_not_compared_with_a_profile_in_eager() -> None:
    rows = pd.concat([measured(["6"]), measured(["6"], engine="onnx", off=0.1)])
    frame = compared(rows, [profile()], [manifest()])
    assert frame["engine"].tolist() == ["eager"]
    assert list(faults(frame)) == [], "what onnx measured better than eager's bound is no fault"
    (line,) = unused([profile()], [manifest(engines=["eager", "onnx", "compile"])])
    assert "onnx, compile are not compared" in line
    assert list(unused([profile()], [manifest(engines=["eager"])])) == []

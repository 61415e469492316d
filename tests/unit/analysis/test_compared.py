"""Forecasts beside what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.naming import USUAL
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
from tests.unit.analysis.test_forecast import FAR, NEAR, NOTHING, UNITS, foreseen, profile

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
    splits = [[int(cut) for cut in point.split("+")] for point in points]
    links = [NEAR if name == "fast" else FAR for name in netem.split("+")]
    links = links * len(splits[0]) if len(links) == 1 else links
    said = foreseen(profile(1 + len(links)), splits, *links)
    unknown = ("latency_low_s", "latency_high_s", "throughput_low_ips", "throughput_high_ips")
    rows = pd.DataFrame(
        {
            "model": "net", "netem": netem, "batch_size": 1, **USUAL, "setup": "",
            "backend": ["none" if split[0] == UNITS else "tcp" for split in splits], "point": points,
            "point_name": "", "latency_s": said.latency_s * off, "throughput_ips": said.throughput_ips / off,
            **dict.fromkeys(unknown, np.nan),
        }
    )  # fmt: skip
    return rows.assign(**changed)


@pytest.mark.parametrize(
    ("points", "netem"), [(["0", "2", "6"], "far"), (["1+2", "0+6", "6+6"], "far"), (["1+3"], "fast+far")]
)
def test_what_was_measured_as_predicted_is_not_off(points: list[str], netem: str) -> None:
    frame = compared(measured(points, netem), [profile(2 + points[0].count("+"))], [manifest()])
    assert tuple(frame.columns) == COLUMNS
    assert frame["point"].tolist() == points
    assert frame[["latency_off", "throughput_off"]].to_numpy() == pytest.approx(0, abs=1e-12)
    assert set(frame["expected"]) == {"latency,throughput"}
    assert set(frame["beyond_bound"]) == {""}


BOTH = "latency,throughput"
SLOW = measured(["6"], off=1.5)
QUICK = measured(["0"]).transform(
    {"latency_s": lambda each: each - 0.07, "throughput_ips": lambda each: each * 1.1}
)


@pytest.mark.parametrize(
    ("rows", "sweep", "expected", "beyond"),
    [
        (SLOW, {}, [""], [""]),
        (
            SLOW.assign(latency_low_s=0.8 * SLOW["latency_s"], latency_high_s=1.2 * SLOW["latency_s"]),
            {},
            ["latency"],
            [""],
        ),
        (measured(["0", "2"], throughput_ips=[np.nan, 1.0]), {}, ["latency"] * 2, [""] * 2),
        # Jitter lets a request be quicker, and a wider tolerance is counted with.
        (measured(["0"]).assign(**QUICK), {}, ["throughput"], [BOTH]),
        (measured(["0"]).assign(netem="jittery", **QUICK), {}, ["throughput"], ["throughput"]),
        (measured(["0"]).assign(**QUICK), {"tolerance": 0.2}, ["throughput"], ["latency"]),
        # Points of engines are not compared with a profile in eager.
        (pd.concat([measured(["6"]), measured(["6"], engine="onnx", off=0.1)]), {}, [BOTH], [""]),
    ],
)
def test_what_is_expected_and_what_no_bound_allows(
    rows: pd.DataFrame, sweep: dict[str, Any], expected: list[str], beyond: list[str]
) -> None:
    frame = compared(rows, [profile()], [manifest(**sweep)])
    assert frame["expected"].tolist() == expected
    assert frame["beyond_bound"].tolist() == beyond
    known = frame[["latency_s", "throughput_ips"]].notna().sum().sum()
    assert f" of {known} figures" in " ".join(sentences(frame))


def test_better_than_the_bound_is_a_fault(snapshot: SnapshotAssertion) -> None:
    frame = compared(measured(["0", "2", "4", "5", "6"], off=0.7), [profile()], [manifest()])
    assert set(frame["beyond_bound"]) == {BOTH}
    assert list(faults(frame)) == snapshot
    assert not list(faults(compared(measured(["2"]), [profile()], [manifest()])))


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


def test_a_profile_whose_units_take_no_time_is_compared_with_nothing() -> None:
    frame = compared(measured(["0", "2", "6"]), [NOTHING], [manifest()])
    assert "6" not in set(frame["point"])
    assert all(line for line in sentences(frame))
    assert np.isnan(Errors.of(np.array([np.nan]))).all()


@pytest.mark.parametrize(
    "other",
    [{"models": {}}, {"models": {"net": {"graph_digest": "x"}}}, {"simulated": True}, {"sweep": {"edge_cpu": 0.25}}],
)  # fmt: skip
def test_a_profile_of_something_else_is_left_out_and_that_is_said(
    other: dict[str, Any], snapshot: SnapshotAssertion
) -> None:
    assert unfit(profile(), [manifest()]) == ""
    another = manifest() | other
    assert compared(measured(["2"]), [profile()], [another]).empty
    assert list(unused([profile()], [another])) == snapshot
    engines = [manifest(engines=["eager", *others]) for others in ([], ["onnx", "compile"])]
    none, (line,) = (list(unused([profile()], [each])) for each in engines)
    assert not none and "onnx, compile are not compared" in line


def test_errors_are_said_for_each_condition(snapshot: SnapshotAssertion) -> None:
    rows = pd.concat([measured(["0", "2", "6"]), measured(["2", "6"], "fast", off=1.5)])
    assert list(sentences(compared(rows, [profile()], [manifest()]))) == snapshot


def test_profiles_in_a_runs_folder_are_found_and_links_are_not_followed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert list(in_run(run)) == []
    (run / "profiles" / "one").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (run / "profiles" / "two").symlink_to(tmp_path / "elsewhere")
    assert list(in_run(run)) == [run / "profiles" / "one"]

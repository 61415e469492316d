"""The stages of a chain: as they are read, their stage_medians, and how busy each step is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from syrupy.assertion import SnapshotAssertion

from analysis.costs import stage_medians, steps
from analysis.runs.load import load, stages
from analysis.schema import STAGES
from pareto.errors import UserError
from tests.unit import example_chain
from tests.unit.example_run import trials, write


def test_medians_are_of_valid_trials_alone(tmp_path: Path) -> None:
    rows, staged = example_chain.trials([(3, 5)], rounds=3, backends=["tcp"])
    for number, stage in enumerate(staged):
        stage["utilization"] = 0.1 * (number // 3 + 1)
    rows[2]["status"] = "invalid"
    run = example_chain.write(tmp_path, rows, staged)
    found = stage_medians(stages(run), load([run]))
    assert found["host"].tolist() == ["edge", "middle1", "server"]
    assert found["utilization"].tolist() == pytest.approx([0.15] * 3)


def test_steps_of_a_chain() -> None:
    """The bottleneck is busy all the time, and the next host's bubble is the rest of it."""
    rows, staged = example_chain.analysed([(3, 12), (3, 21), (5, 5)])
    found = steps(rows[rows["backend"] == "tcp"], staged).sort_values(["point", "place"])
    by_point = {point: group.set_index("step") for point, group in found.groupby("point")}
    assert list(by_point["3+12"].index) == [
        "edge",
        *(f"edge-middle1 {way}" for way in ("out", "back")),
        "middle1",
        *(f"middle1-server {way}" for way in ("out", "back")),
        "server",
    ]
    assert list(by_point["3+21"].index)[-1] == "middle1", "no more hosts take part"
    for _, row in rows[rows["backend"] == "tcp"].iterrows():
        of_point = by_point[row["point"]]
        assert of_point["share"].idxmax() == row["bound_by"]
        assert of_point.loc[row["bound_by"], "share"] == pytest.approx(1, abs=0.03)
        hosts = of_point[of_point["idle_s"].notna()]
        np.testing.assert_allclose(hosts["idle_s"], (1 - hosts["share"]) / row["throughput_ips"], atol=1e-6)


def test_links_share_counts_requests_not_images() -> None:
    rows, staged = example_chain.analysed([(3, 12)])
    batch = {"batch_size": 8}
    link = (
        steps(rows.assign(**batch), staged.assign(**batch)).set_index("step").loc["edge-middle1 out", "share"]
    )
    single = steps(rows, staged).set_index("step").loc["edge-middle1 out", "share"]
    np.testing.assert_allclose(link, single / 8)


def test_the_stages_of_a_chain(tmp_path: Path) -> None:
    rows, staged = example_chain.trials([(3, 10), (3, 21)], backends=["tcp"])
    staged[0]["throttled"] = "0x4"
    frame = stages(example_chain.write(tmp_path, rows, staged))
    assert list(frame.columns) == [*STAGES.columns, "setup"]
    assert frame["point"].tolist() == ["3+10"] * 3 + ["3+21"] * 2
    assert frame["host"].tolist() == ["edge", "middle1", "server", "edge", "middle1"]
    assert frame["position"].dtype == np.int64
    assert frame["throttled"][0] == "0x4"
    assert frame["payload_bytes"].isna().tolist() == [False, False, True, False, True], (
        "the last sends nothing"
    )
    assert frame["utilization"].between(0, 1).all()


def test_a_run_without_stages_has_none(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    assert stages(write(tmp_path, trials(rounds=1))).empty
    (tmp_path / "stages.csv").write_text("run,model\n")
    with pytest.raises(UserError) as refused:
        stages(tmp_path)
    assert str(refused.value) == snapshot

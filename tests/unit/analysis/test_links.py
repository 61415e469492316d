"""`link.csv` read back."""

from __future__ import annotations

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from analysis.runs import load
from analysis.schema import LINKS
from pareto.errors import UserError

HEADER = (
    "at,model,netem,link,trial,when,verdict,reason,asked_rtt_s,asked_rate_bps,asked_rate_back_bps,rtt_s,rate_bps,"
    "rate_back_bps,asked_loss,asked_loss_back,datagrams,loss,loss_back,position_s\n"
)
OK = "2026-11-21T17:54:54.170+00:00,net,wifi,edge-server,net-k00,before,ok,,0.2,5e+06,,0.200763,4.8e+06,,,,,,,\n"
OFF = (
    "2026-11-21T17:55:54.170+00:00,net,wifi,edge-server,net-k00,after,off,"
    '"RTT 0.3 s, asked 0.2 s",0.2,5e+06,,0.3,,,,,,,,\n'
)


def written(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "link.csv").write_text(text)
    return folder


def test_probes_are_typed_and_empty_is_not_zero(tmp_path: Path) -> None:
    frame = load.links([written(tmp_path / "one", HEADER + OK + OFF)])
    assert list(frame) == ["run", *LINKS.columns]
    assert frame["run"].tolist() == ["one", "one"]
    assert frame["verdict"].tolist() == ["ok", "off"]
    assert frame["reason"].tolist() == ["", "RTT 0.3 s, asked 0.2 s"]
    assert frame["rtt_s"].tolist() == [0.200763, 0.3]
    assert frame["rate_bps"].isna().tolist() == [False, True]
    assert frame[["asked_rate_back_bps", "loss", "position_s"]].isna().all(axis=None)
    assert frame["rtt_s"].dtype == frame["position_s"].dtype == "float64"


def test_runs_follow_each_other_and_one_without_the_file_has_no_rows(tmp_path: Path) -> None:
    one, other = written(tmp_path / "b", HEADER + OK), written(tmp_path / "a", HEADER + OFF + OK)
    missing = tmp_path / "missing"
    missing.mkdir()
    frame = load.links([one, missing, other])
    assert frame["run"].tolist() == ["b", "a", "a"]
    assert frame.index.tolist() == [0, 1, 2]
    empty = load.links([missing])
    assert empty.empty
    assert list(empty) == ["run", *LINKS.columns]
    assert empty["rtt_s"].dtype == "float64"
    assert load.links([]).empty
    assert load.links([written(tmp_path / "begun", HEADER)]).empty


def test_an_older_file_has_only_the_one_link(tmp_path: Path) -> None:
    text = (
        "at,model,netem,trial,verdict,reason,asked_rtt_s,asked_rate_bps,asked_rate_back_bps,rtt_s,rate_bps,rate_back_bps\n"
        "2026,net,wifi,net-k00,ok,,0.2,,,0.21,,\n"
    )
    (row,) = load.links([written(tmp_path, text)]).to_dict("records")
    assert row["link"] == "edge-server"
    assert row["when"] == ""
    assert row["rtt_s"] == 0.21
    assert row["rate_bps"] != row["rate_bps"]


@pytest.mark.parametrize(
    "torn", [OFF[:-9], OFF.rstrip("\n"), OFF.replace("0.3 s, asked", "0.3 s,\nasked")[:80]]
)
def test_a_last_line_that_was_not_finished_is_left_out(tmp_path: Path, torn: str) -> None:
    assert len(load.links([written(tmp_path, HEADER + OK + torn)])) == 1


@pytest.mark.parametrize(
    "text",
    [
        HEADER + OK + "2026,net\n" + OK,
        HEADER + OK.replace("0.200763", "fast"),
        "at,verdict\n2026,ok\n",
    ],
    ids=["fields missing", "no number", "columns missing"],
)
def test_what_is_malformed_is_said_in_a_line(tmp_path: Path, text: str, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(UserError) as caught:
        load.links([written(tmp_path, text)])
    assert "link.csv" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(caught.value) == snapshot

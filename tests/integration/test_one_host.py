"""The whole model on one host, without a link: on the local testbed, and on the only host of a testbed file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.integration.short import command, measured
from tests.integration.test_sweep import exit_code, only_run, rows_in, sound
from tests.less_than_root import needs_networks
from tests.program import LENIENT

pytestmark = pytest.mark.integration

NET = Path(__file__).parents[1] / "faults" / "net.py"
BOTH = "tuned,default"
SWEEP = ("--model", f"{NET}:build", "--quick", "--figures", "none", *LENIENT)


@needs_networks
@pytest.mark.usefixtures("nothing_left")
def test_the_edge_of_the_local_testbed(tmp_path: Path) -> None:
    done = measured(*SWEEP, "--edge-only", "--batch-size", "1,8", "--allocator", BOTH, "--out", str(tmp_path))
    rows = rows_in(tmp_path)
    assert done.code == exit_code(rows), done
    assert {
        (row["point"], row["netem"], row["batch_size"], row["allocator"], row["restart"]) for row in rows
    } == {
        ("3", "edge-only", size, *allocator)
        for size in ("1", "8")
        for allocator in (("tuned", "1"), ("default", "2"))
    }
    for row in rows:
        assert sound(row), row["reason"]
        assert float(row["edge_s"]) > 0
        assert {row[name] for name in ("server_s", "network_s", "rtt_s", "rate_bps", "dropped_packets")} == {
            ""
        }
        assert float(row["payload_bytes"]) == 0
    manifest = json.loads((only_run(tmp_path) / "manifest.json").read_text())
    session = manifest["sessions"][0]
    assert list(session["hosts"]) == ["edge"]
    assert session["hosts"]["edge"]["allocator"] == "tuned", "as it said itself, which each start is held to"
    assert [(of["batch_size"], list(of["times"])) for of in session["allocator_cost"]] == [
        (size, ["edge"]) for size in (1, 8)
    ]
    model = ("--model", f"{NET}:build")
    again = measured("--resume", str(only_run(tmp_path)), *model, "--edge-only", "--figures", "none")
    assert again.code == exit_code(rows), again
    assert len(rows_in(tmp_path)) == 4


def test_the_only_host_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home := tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(home))
    file, out = tmp_path / "one.yaml", tmp_path / "out"
    here = f"ssh: local, data_address: 192.0.2.1, python: {sys.executable}"
    file.write_text(f"hosts:\n  box: {{role: server, {here}}}\n")
    done = command(*SWEEP, "--server-only", "--testbed", str(file), "--out", str(out))
    rows = rows_in(out)
    assert done.code == exit_code(rows), done
    assert [(row["point"], row["netem"]) for row in rows] == [("3", "server-only")]
    assert all(map(sound, rows)), done
    assert "the server alone" in " ".join(done.out.split())
    assert "all on the edge" not in " ".join(done.out.split())
    manifest = json.loads((only_run(out) / "manifest.json").read_text())
    assert manifest["testbed"] == "the server alone, box (cpu)"
    refused = measured(*SWEEP, "--edge-only", "--testbed", str(file), "--out", str(out))
    assert refused.code == 2
    assert "no host has the role edge" in refused.err

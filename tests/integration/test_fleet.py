"""A fleet of real testbeds: this machine's own, and the hosts of a file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("distributed")

from tests.integration import short
from tests.integration.test_sweep import rows_in, sound
from tests.lab import open_lab
from tests.less_than_root import needs_networks
from tests.program import LENIENT, wait_until
from tests.unit.simulated.worlds import MODEL

pytestmark = [
    pytest.mark.deep,
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.timeout(900),
    needs_networks,
    pytest.mark.usefixtures("nothing_left"),
]


def test_a_local_testbed_and_hosts_of_a_file_measure_one_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until both have measured something: then it is interrupted."""
    out = tmp_path / "results"
    sweep = ("--model", MODEL, "--netem", "none", "--points", "3,5", "--only", "--backend", "tcp", "--quick")
    with open_lab(tmp_path / "lab") as lab:
        monkeypatch.setenv("HOME", str(lab.home))
        monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
        where = ("--testbed", f"local,{lab.testbed()}", "--trials", "1000", "--out", str(out))
        process = short.pareto(*sweep, *where, *LENIENT, "--figures", "none")
        both = {"local", "testbed"}
        wait_until(
            lambda: {row["testbed"] for row in rows_in(out)} == both or process.poll() is not None, 240
        )
        process.terminate()
        said = "".join(process.communicate(timeout=240))
    assert process.returncode == 130, said
    rows = rows_in(out)
    assert all(map(sound, rows)), said
    assert set(Counter((row["point"], row["round"]) for row in rows).values()) == {1}
    others = {
        (row["testbed"], row["strangers_percent"] != "", row["edge_others_percent"] != "") for row in rows
    }
    assert others == {("local", True, True), ("testbed", False, True)}

"""A fleet of real testbeds: this machine's own, and the hosts of a file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("distributed")

from tests.integration.test_sweep import exit_code, rows_in, sound
from tests.lab import open_lab
from tests.less_than_root import needs_networks
from tests.program import LENIENT, command
from tests.unit.simulated.worlds import MODEL

pytestmark = [
    pytest.mark.integration,
    needs_networks,
    pytest.mark.usefixtures("nothing_left"),
]


def test_a_local_testbed_and_hosts_of_a_file_measure_one_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "results"
    sweep = ("--model", MODEL, "--netem", "none", "--points", "3,5", "--only", "--backend", "tcp", "--quick")
    with open_lab(tmp_path / "lab") as lab:
        monkeypatch.setenv("HOME", str(lab.home))
        monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
        where = ("--testbed", f"local,{lab.testbed()}", "--trials", "3", "--out", str(out))
        done = command(*sweep, *where, *LENIENT, "--figures", "none")
    rows = rows_in(out)
    assert done.code == exit_code(rows), done
    assert all(map(sound, rows)), done
    measured = Counter((row["point"], row["round"]) for row in rows)
    assert measured == {(point, str(number)): 1 for point in "35" for number in range(1, 4)}
    others = {
        (row["testbed"], row["strangers_percent"] != "", row["edge_others_percent"] != "") for row in rows
    }
    assert others == {("local", True, True), ("testbed", False, True)}

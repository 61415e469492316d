"""The trained model on a real testbed: a run says how many of its images are right."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests import digits
from tests.less_than_root import needs_networks
from tests.program import LENIENT, command

pytestmark = [pytest.mark.integration, needs_networks, digits.needs_digits]


def test_a_run_says_how_many_images_are_right(tmp_path: Path) -> None:
    right = digits.train(tmp_path)
    network = ("--netem", "none", "--edge-cpu", "1", "--codec", "none")
    options = ("--points", "0,3,6", "--only", "--trials", "1", "--images", "360")
    named = ("--model", f"{digits.MODEL}:Net", "--out", str(tmp_path / "out"), "--figures", "none")
    done = command("run", str(digits.SWEEP), *named, *network, *options, *LENIENT, where=tmp_path)
    assert done.code == 0, done.err
    (table,) = (tmp_path / "out").glob("*/trials.csv")
    with table.open(newline="") as file:
        rows = [*csv.DictReader(file)]
    assert {row["status"] for row in rows} == {"ok"}
    assert {row["point"] for row in rows} == {"0", "3", "6"}
    for row in rows:
        assert int(row["top1_images"]) == 360
        assert float(row["top1"]) == pytest.approx(right, abs=0.01)
        assert float(row["top1"]) > 0.2

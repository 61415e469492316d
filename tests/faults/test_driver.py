"""What happens to the command itself: a whole run on the local testbed, gone on with. Disks: tests/unit."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from pareto.trial.store import REDONE
from tests.faults.harness import MEASURED, NET, now_s
from tests.faults.table import DRIVER, Fault
from tests.integration.own_machine import left_behind
from tests.integration.test_sweep import only_run, rows_in
from tests.less_than_root import needs_networks
from tests.program import LENIENT, descendants, ended, pareto, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.long, needs_networks]
FAULTS = DRIVER
ROUNDS = "1234"
MODEL = ("--model", f"{NET}:build", "--figures", "none")
CELLS = "--points 1 --only --backend tcp --netem none --quick --trials"
START_S = 200.0


def test_fault(tmp_path: Path, fault: Fault, note: Callable[[Fault, str, float | None], None]) -> None:
    out = tmp_path / "out"
    process = pareto(*MODEL, *CELLS.split(), str(len(ROUNDS)), *LENIENT, "--out", str(out))
    assert wait_until(lambda: len(rows(out)) >= 2, START_S), process.communicate()
    family, kept, began_s = descendants(process.pid), rows(out), now_s()
    process.send_signal(signal.Signals[fault.what])
    said = "".join(process.communicate(timeout=START_S))
    noticed_s = now_s() - began_s
    assert "Traceback" not in said
    assert fault.reason in said
    assert process.returncode != 0
    assert ended(family), family
    assert wait_until(lambda: not left_behind()), left_behind()
    again = pareto("--resume", str(only_run(out)), *MODEL)
    said_then = "".join(again.communicate(timeout=START_S))
    assert "Traceback" not in said_then
    found, sound = rows(out), [row for row in kept if row["status"] not in REDONE]
    assert found[: len(sound)] == sound
    assert Counter(row["round"] for row in found) == Counter(ROUNDS)
    assert {row["status"] for row in found} <= set(MEASURED), said_then
    note(fault, next((line for line in said.splitlines() if fault.reason in line), ""), noticed_s)


def rows(out: Path) -> list[dict[str, str]]:
    """Those that are whole."""
    return [row for row in rows_in(out) if row["restart"]]

"""How fast a simulated testbed is. It prints figures and judges none.

Run by `./pareto.sh test --deep tests/measure/test_simulated.py`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from pareto.commands import run
from pareto.simulated.world import World
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.sweep import Sweep
from tests.measure.conftest import Printed
from tests.unit.simulated.worlds import rows

pytestmark = pytest.mark.deep


def sweep(rounds: int) -> Sweep:
    return make_sweep(
        {"model": "mobilenetv2", "netem": "10ms-100mbit", "testbed": "simulated", "trials": rounds}
    )


def test_trials_a_minute_in_memory(printed: Printed) -> None:
    rows(sweep(1), World())  # traces the model
    began = time.perf_counter()
    found = rows(sweep(200), World())
    seconds = time.perf_counter() - began
    printed(f"{len(found)} trials in {seconds:.2f} s: {60 * len(found) / seconds:,.0f} a minute")


def test_the_main_job_on_disk(printed: Printed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows(sweep(1), World())
    took: list[float] = []
    measure = run.measure

    def timed(*arguments: Any) -> None:
        began = time.perf_counter()
        measure(*arguments)
        took.append(time.perf_counter() - began)

    monkeypatch.setattr(run, "measure", timed)
    run.run(sweep(3), tmp_path, None, dry_run=False, began=0.0, figures="none")
    printed(f"44 cells x 3 rounds: {took[0]:.2f} s")

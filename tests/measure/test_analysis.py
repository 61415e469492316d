"""How quickly many runs are read, and in how much memory.

With `--deep` 1 000 000 trials and 10 000 000 requests, which need a minute to be made up and 1 GB of disk:

    ./pareto.sh test --deep tests/measure/test_analysis.py

Times of one run are figures to read, for none is stated; those of twenty have the aims of docs/analysis.md.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import REPOSITORY
from tests.measure import many_runs

from .conftest import Figures

MOST_S = {"load": 9, "front": 5, "requests": 8, "report, figures none": 20, "report, figures auto": 40}
MOST_GIB = 1.7
"""Of twenty runs, on two cores."""
CODE = """
import json, resource, sys, time
from pathlib import Path
from pareto import analysis
runs, out, figures = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]

def all_of_it(figures):
    from pareto.analysis.findings import Options
    from pareto.analysis.reporting import report
    from pareto.analysis.runs.load import folders
    return report(folders(runs), out, Options(figures=figures)).front

def timed(what, function):
    began = time.perf_counter()
    found = function()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps([what, time.perf_counter() - began, peak, len(found)]), flush=True)
    return found

for shown in figures:  # in a process of its own: a peak does not go down again
    timed(f"report, figures {shown}", lambda: all_of_it(shown))
    sys.exit()
trials = timed("load", lambda: analysis.load(runs))
timed("front", lambda: analysis.front(trials))
timed("hypervolumes", lambda: analysis.hypervolumes(trials))
timed("paired", lambda: analysis.paired(trials))
timed("requests", lambda: analysis.requests(runs, trials))
"""


@pytest.mark.parametrize("runs", [1, pytest.param(20, marks=pytest.mark.deep)])
def test_many_runs(tmp_path: Path, figures: Figures, runs: int) -> None:
    many_runs.write(tmp_path / "runs", runs, 500_000 if runs > 1 else 50_000)
    code = [sys.executable, "-c", CODE, str(tmp_path / "runs"), str(tmp_path / "out")]
    rows = {}
    for shown in ((), ("none",), ("auto",)):
        done = subprocess.run([*code, *shown], check=True, cwd=REPOSITORY, capture_output=True, text=True)
        for line in done.stdout.splitlines():
            what, took_s, peak_gib, rows[what] = json.loads(line)
            asked = runs > 1
            figures.state(
                f"analysis of {runs}: {what}", took_s, "s", most=MOST_S.get(what) if asked else None
            )
            figures.state(f"its peak after {what}", peak_gib, "GiB", most=MOST_GIB if asked else None)
    assert rows["load"] == runs * 50_000
    assert all(rows[f"report, figures {shown}"] for shown in ("none", "auto"))

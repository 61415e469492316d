"""How quickly many runs are read, and in how much memory: figures to read, for no absolute time holds everywhere.

`PARETO_PERF_RUNS=20` for 1 000 000 trials and 10 000 000 requests, which need a minute to be made up and 1 GB of disk.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import REPOSITORY
from tests.perf import many_runs

pytestmark = pytest.mark.perf

RUNS = int(os.environ.get("PARETO_PERF_RUNS", "1"))
REQUESTS = 500_000 if RUNS > 2 else 50_000
CODE = """
import resource, sys, time
from pathlib import Path
import analysis
runs, out, figures = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]

def all_of_it(figures):
    from analysis.findings import Options
    from analysis.reporting import report
    from analysis.runs.load import folders
    return report(folders(runs), out, Options(figures=figures)).front

def timed(what, function):
    began, cpu = time.perf_counter(), time.process_time()
    found = function()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    took = f"{time.perf_counter() - began:6.2f} s, {time.process_time() - cpu:6.2f} s of CPU"
    print(f"{what:20} {took}, peak {peak:.2f} GiB so far, {len(found)} rows", flush=True)
    return found

for shown in figures:  # in a process of its own: a peak does not go down again
    timed(f"report, figures {shown}", lambda: all_of_it(shown))
    sys.exit()
trials = timed("load", lambda: analysis.load(runs))
timed("front", lambda: analysis.front(trials))
timed("hypervolumes", lambda: analysis.hypervolumes(trials))
timed("paired", lambda: analysis.paired(trials))
found = timed("requests", lambda: analysis.requests(runs, trials))
print(f"{len(trials)} trials, {found['requests'].sum()} requests in the latency phases of {len(found)} cells")
"""


def test_many_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = tmp_path / "runs"
    many_runs.write(runs, RUNS, REQUESTS)
    code = [sys.executable, "-c", CODE, str(runs), str(tmp_path / "out")]
    printed = "".join(
        subprocess.run([*code, *figures], check=True, cwd=REPOSITORY, capture_output=True, text=True).stdout
        for figures in ((), ("none",), ("auto",))
    )
    assert f"{RUNS * 50_000} trials" in printed
    for figures in ("none", "auto"):
        assert f"report, figures {figures}" in printed
    with capsys.disabled():
        print(f"\n{printed}", end="")

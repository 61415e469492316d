"""The local testbed on real netem."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.conftest import REPOSITORY, left_behind

pytestmark = [pytest.mark.vm, pytest.mark.timeout(400)]

# The guest's processor is emulated, twenty times slower than the machine's own: a round trip costs it milliseconds.
SLOW = ("--rtt-floor", "25ms", "--tolerance", "20%")


def pareto(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pareto", *arguments, *SLOW],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )


def test_both_directions_can_be_shaped_on_the_edge_alone(tmp_path: Path) -> None:
    profile = tmp_path / "both.yaml"
    profile.write_text(
        "edge_to_server: {delay: 30ms, rate: 5mbit}\nserver_to_edge: {delay: 60ms, rate: 8mbit}\n"
    )
    asked = (str(profile), "--shape-at", "edge", "--duration", "2s", "--out", str(tmp_path))
    done = pareto("netem", "check", *asked)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rate back" in done.stdout
    assert left_behind() == set()

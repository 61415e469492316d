"""Members, schedulers and drivers of fleets killed at random moments: each (cell, round) once, none lost."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest

pytest.importorskip("distributed")

from pareto.trial.store import REDONE
from tests import program
from tests.certificates import certificates
from tests.integration.test_sweep import rows_in
from tests.program import descendants, ended, pareto, wait_until
from tests.unit.simulated.worlds import MODEL

pytestmark = [pytest.mark.deep, pytest.mark.timeout(3600)]
SWEEP = ("--model", MODEL, "--figures", "none")
CELLS = "--points 3,5 --only --backend tcp --netem wifi"
WORLD = """
hosts: {edge: {gflops: 0.02}, server: {gflops: 0.2}}
requests: 20
real_time: 20%
"""
TESTBEDS = 2
KILLS = 25
ROUNDS_A_KILL = 5
START_S = 200.0
SEED = 7


class Runs:
    """A sweep that is killed now and then, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.out, self.temporary = folder / "out", folder / "tmp"
        self.temporary.mkdir()
        self.environment = {**os.environ, "TMPDIR": str(self.temporary)}
        self.world = f"simulated:{folder}/w.yaml"
        (folder / "w.yaml").write_text(WORLD)
        self._draws = random.Random(SEED)  # noqa: S311
        self._rounds = ROUNDS_A_KILL * KILLS

    def driver(self, *where: str) -> subprocess.Popen[str]:
        """It begins, or goes on."""
        if runs := [*self.out.iterdir()] if self.out.is_dir() else []:
            how = ["--resume", str(runs[0])]
        else:
            how = [*CELLS.split(), "--trials", str(self._rounds), "--out", str(self.out)]
        return pareto(*SWEEP, *how, *where, environment=self.environment)

    def victims(self, kinds: Sequence[str]) -> list[str]:
        """Whom each kill is of: of all kinds."""
        return [*kinds, *self._draws.choices(kinds, k=KILLS - len(kinds))]

    def rows(self) -> list[dict[str, str]]:
        return [row for row in rows_in(self.out) if row["started_at"]]

    def goes_on(self) -> bool:
        """Whether some more trials come."""
        enough = min(len(self.rows()) + self._draws.randint(1, 4), 2 * self._rounds)
        return wait_until(lambda: len(self.rows()) >= enough, START_S)

    def check(self, driver: subprocess.Popen[str]) -> None:
        said = "".join(driver.communicate(timeout=START_S * 5))
        assert driver.returncode == 0, said
        assert "Traceback" not in said
        found = Counter((row["point"], int(row["round"])) for row in self.rows())
        assert found == {(point, number): 1 for point in "35" for number in range(1, self._rounds + 1)}


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def test_a_driver_and_its_own_members_are_killed(runs: Runs) -> None:
    testbeds = ("--testbed", f"{runs.world}*{TESTBEDS}")
    driver = runs.driver(*testbeds)
    for victim in runs.victims(("member", "driver")):  # the scheduler is a part of the driver
        assert runs.goes_on(), driver.communicate()
        kept = runs.rows()
        members = descendants(driver.pid, "fleet join")
        if victim == "member":
            of = [each for each in members if each.cmdline()[-1] == kept[-1]["testbed"]]
            (of or members)[0].kill()
            continue
        driver.kill()
        driver.communicate()
        assert ended(members)
        driver = runs.driver(*testbeds)
        sound = [row for row in kept if row["status"] not in REDONE]
        assert runs.rows()[: len(sound)] == sound
    runs.check(driver)
    assert not list(runs.temporary.iterdir())


def test_a_scheduler_and_those_that_joined_it_are_killed(runs: Runs, tmp_path: Path) -> None:
    files = certificates(tmp_path / "lab")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tls://127.0.0.1:{server.getsockname()[1]}"
    http = ("--no-dashboard", "--dashboard-address", "127.0.0.1:0")
    join = ("-m", "pareto", "fleet", "join", "--scheduler", address, "--testbed", runs.world, *files)
    commands = {
        "scheduler": ("-m", "dask", "scheduler", "--host", address, *files, *http),
        **{name: (*join, "--name", name) for name in ("member", "other")},
    }

    def start(name: str) -> subprocess.Popen[str]:
        process = program.started(sys.executable, *commands[name], environment=runs.environment)
        if name != "scheduler":
            assert process.stdout is not None
            assert process.stdout.readline().endswith(f"as {name}\n")
        return process

    ignore = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)
    with patch.object(program, "_heed_ctrl_c", ignore):  # as what a script starts in the background
        running = {name: start(name) for name in commands}
    at = ("--cluster", address, "--testbed", "simulated", *files)
    driver = runs.driver(*at)
    for victim in runs.victims(("scheduler", "member", "driver")):
        assert runs.goes_on(), driver.communicate()
        process = driver if victim == "driver" else running[victim]
        process.kill()
        process.communicate()
        if victim == "scheduler":  # all end with it
            assert driver.wait(START_S) == 1
            assert [running[name].wait(START_S) for name in ("member", "other")] == [2, 2]
            running = {name: start(name) for name in commands}
        elif victim == "member":
            running[victim] = start(victim)
        if driver.poll() is not None:
            driver = runs.driver(*at)
    runs.check(driver)
    for process in running.values():
        process.terminate()
        said = "".join(process.communicate(timeout=START_S))
        assert "Traceback" not in said
    assert not [path for path in runs.temporary.iterdir() if path.name != "dask-scratch-space"]

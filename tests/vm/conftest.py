"""Tests in this folder run in a guest whose kernel has sch_netem: on the host all that are selected are one test."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.vm.kernel import UnavailableError
from tests.vm.machine import run

_IN_GUEST = "PARETO_GUEST" in os.environ


class Guest(pytest.Item):
    """Stands for the tests of this folder, of which nothing is set up or run here."""

    tests: list[str]

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"{self.name}: {len(self.tests)} tests"

    def runtest(self) -> None:
        options = self.config.option
        # Plugins that these tests do not need take an emulated processor ten seconds.
        command = ["env", "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1", sys.executable, "-m", "pytest", "-rA"]
        command += ["-p", "pytest_timeout", "-p", "no:cacheprovider", f"--tb={options.tbstyle}"]
        command += ["--deep"] * bool(options.deep) + ["-s"] * (options.capture == "no")
        command += ["-x"] * bool(options.maxfail)
        command += [] if options.timeout is None else [f"--timeout={options.timeout}"]
        try:
            status = run([*command, f"--rootdir={self.config.rootpath}", *self.tests], echo=sys.stdout.buffer)
        except UnavailableError as error:
            pytest.skip(str(error))
        assert status == 0, f"pytest in the guest ended with status {status}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    mine = [] if _IN_GUEST else [item for item in items if here in item.path.parents]
    if mine:
        guest: Guest = Guest.from_parent(session, name="guest", nodeid="tests/vm::guest")
        guest.tests = [item.nodeid for item in mine]
        items[:] = [*(item for item in items if item not in set(mine)), guest]


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item) -> bool | None:
    """None here: each test has its own in the guest."""
    return True if isinstance(item, Guest) else None

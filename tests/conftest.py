"""What all tests share: wording in snapshots, seeded chance, and which tests a run takes."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from tests import REPOSITORY

# Two workers whose torch has two threads each spin in each other's way. Set before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

CASES, DEEP_CASES = 2_000, 1_000_000


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Torch computes with one thread: several would wait for each other where other programs run."""
    import torch  # not for the tests that need none of it

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def heeds_hangups() -> Iterator[None]:
    """A hangup ends what a test starts: also where the tests run under `nohup`, which every child inherits."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def snapshot(snapshot: SnapshotAssertion, tmp_path: Path) -> SnapshotAssertion:
    """Text as it was when it was last looked at; `./pareto.sh test --snapshot-update` renews it.

    Folders that differ from run to run are named in it: TMP is the test's own, REPOSITORY this checkout.
    """

    def portable(data: Any, path: Any) -> Any:
        if not isinstance(data, str):
            return data
        return data.replace(str(tmp_path), "TMP").replace(str(REPOSITORY), "REPOSITORY")

    return snapshot.with_defaults(matcher=portable)


def pytest_configure() -> None:
    """An interruption ends what a test starts, also where a shell runs the tests in its background.

    Nothing is freed until all is imported: little of it is garbage.
    """
    gc.disable()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    add = parser.addoption
    add("--deep", action="store_true", help="what the gate leaves out: tests marked deep, and long fuzzing")
    tries = f"how many cases each fuzzer tries ({CASES}; with --deep {DEEP_CASES})"
    add("--cases", type=int, metavar="N", help=tries)


@pytest.fixture
def cases(request: pytest.FixtureRequest) -> int:
    """How many cases a fuzzer tries: few enough for every run of the gate, or as many as `--cases` says."""
    chosen = request.config.getoption("--cases")
    return int(chosen or (DEEP_CASES if request.config.getoption("--deep") else CASES))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The gate's tests, or with `--deep` what it leaves out; those marked `long` first: the last ones are short."""
    deep = config.getoption("--deep")

    def is_deep(item: pytest.Item) -> bool:
        return item.get_closest_marker("deep") is not None or "cases" in getattr(item, "fixturenames", ())

    chosen = [item for item in items if (is_deep(item) if deep else not item.get_closest_marker("deep"))]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    for item in chosen if deep else ():
        if "cases" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(0))
    items[:] = sorted(chosen, key=lambda item: item.get_closest_marker("long") is None)


def pytest_collection_finish() -> None:
    """What is imported by now, and the tests themselves, stay: no collection of garbage need look through them."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Each test that draws from torch's own generator draws the same, whichever tests were run before it."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tests that were run again, and why: each is mended, or moved to those that measure."""
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.line(f"FLAKY {report.nodeid}")
        terminalreporter.line(report.longreprtext)

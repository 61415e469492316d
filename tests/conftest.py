"""What all tests share: wording in snapshots, and tests that run while no other does."""

from __future__ import annotations

import fcntl
import gc
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from tests import REPOSITORY

# Two workers whose torch has two threads each spin in each other's way. Set before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

_ALONE = pytest.StashKey[Path]()
_ROOM = pytest.StashKey[ExitStack]()
"""The locks that this process holds, from the first test that runs alone to the last in a row."""


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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cases", type=int, default=5_000, metavar="N", help="how many cases each fuzzer tries (5000)"
    )


@pytest.fixture
def cases(request: pytest.FixtureRequest) -> int:
    """How many cases a fuzzer tries: few enough for every run of the suite, or as many as `--cases` says."""
    return int(request.config.getoption("--cases"))


def pytest_configure(config: pytest.Config) -> None:
    # The processes of one run share a folder, through the environment that they inherit.
    folder = os.environ.get("PARETO_TEST_LOCKS") or tempfile.mkdtemp(prefix="pytest-locks-")
    os.environ["PARETO_TEST_LOCKS"] = folder
    config.stash[_ALONE] = Path(folder)


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the process that made it, not one of pytest-xdist's workers
        folder = config.stash[_ALONE]
        for lock in folder.iterdir():
            lock.unlink()
        folder.rmdir()
        del os.environ["PARETO_TEST_LOCKS"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those marked `long` come first: the last ones that a worker has left are short."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_collection_finish() -> None:
    """What is imported by now, and the tests themselves, stay: no collection of garbage need look through them."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """A test marked `alone` waits until no other test runs, and lets none begin meanwhile.

    Those that follow one another share the wait: else each would wait for a test of another process.
    """
    stash = item.config.stash
    folder = stash[_ALONE]
    if not _is_alone(item):
        with _locked(folder / "door", fcntl.LOCK_EX) as door, _locked(folder / "room", fcntl.LOCK_SH):
            fcntl.flock(door, fcntl.LOCK_UN)
            return (yield)
    if _ROOM not in stash:
        stash[_ROOM] = ExitStack()
        for name in ("door", "room"):
            stash[_ROOM].enter_context(_locked(folder / name, fcntl.LOCK_EX))
    try:
        return (yield)
    finally:
        if nextitem is None or not _is_alone(nextitem):
            stash[_ROOM].close()
            del stash[_ROOM]


def _is_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None


@contextmanager
def _locked(file: Path, how: int) -> Iterator[int]:
    descriptor = os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, how)
        yield descriptor
    finally:
        os.close(descriptor)

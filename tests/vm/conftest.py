"""Tests in this folder run in a guest whose kernel has sch_netem. On the host they are collected, and only reported."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.vm.guest import GuestItem, GuestRun, Reporter, captured

_PORT = os.environ.get("PARETO_GUEST")
_RUN: pytest.StashKey[GuestRun] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    if _PORT:
        config.pluginmanager.register(Reporter(config, _PORT))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not _PORT:
        here = Path(__file__).parent
        items[:] = [GuestItem.of(item) if here in item.path.parents else item for item in items]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """pytest's own for a test in the guest, but for the running."""
    if not isinstance(item, GuestItem):
        return None
    session = item.session
    if _RUN not in session.stash:
        session.stash[_RUN] = GuestRun(session)
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in session.stash[_RUN].reports(item):
        if report.when == "teardown" and item.config.option.capture == "no":
            sys.stdout.writelines(captured(report))
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item) -> bool | None:
    """None here: each test has its own in the guest, and the first waits for the boot as well."""
    return True if isinstance(item, GuestItem) else None

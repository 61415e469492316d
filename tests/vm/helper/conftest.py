"""Fixtures for the helper's tests: a link, a helper that lives on, and nothing left after each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyroute2 import IPRoute

from pareto.remote.link import journal, offload
from tests.vm import wire
from tests.vm.wire import Helper


@pytest.fixture(scope="package", autouse=True)
def link() -> Iterator[None]:
    with wire.veth():
        yield


@pytest.fixture(scope="package")
def one_helper() -> Iterator[Helper]:
    """One for all tests that need not end it."""
    helper = Helper()
    yield helper
    helper.close()


@pytest.fixture
def helper(one_helper: Helper) -> Helper:
    return one_helper


@pytest.fixture(autouse=True)
def nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test the interface is as before: no qdisc, no ifb, no file, offloads on."""
    found = offload.read("data0")
    yield
    if "helper" in request.fixturenames:
        request.getfixturevalue("one_helper").ask("restore")
    assert offload.read("data0") == found
    assert wire.shown() == []
    assert not list(journal.FOLDER.glob("*"))
    with IPRoute() as ip:
        assert not [name for link in ip.get_links() if "ifb" in (name := link.get_attr("IFLA_IFNAME"))]

"""The table of a testbed's hosts."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.hosts import listing, setup
from pareto.hosts.inventory import Member
from pareto.hosts.way import Here, Unreachable, Way
from tests.unit.example_host import ExampleHost, example_host


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ExampleHost:
    return example_host(tmp_path, monkeypatch)


def test_each_host_has_a_line_with_what_it_can(host: ExampleHost, snapshot: SnapshotAssertion) -> None:
    host.require("packaging>0", "other==1; python_version < '3'")
    members = [
        host.member(name="ready", python=sys.executable, data_interface="eth0"),
        host.member(name="new", role="server", ssh="gpu", device="cuda:0"),
        host.member(name="between", role="middle", next_address="10.0.1.2", next_interface="eth1"),
    ]
    assert listing.show(
        members, lambda _: Here(), say=host.lines.append, requirements=host.requirements, within_s=60
    )
    assert "\n".join(host.lines) == snapshot


def test_a_host_that_cannot_be_reached_holds_up_none(
    host: ExampleHost, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    """The time is up when two of the three have been waited for."""
    released = threading.Event()

    def open_way(member: Member) -> Way:
        if member.name == "gone":
            raise Unreachable("gone (pi@10.0.0.9): does not answer on port 22")
        if member.name == "slow":
            released.wait()
        return Here()

    def show(*names: str) -> bool:
        host.lines.clear()
        members = [host.member(name=name) for name in names]
        return listing.show(
            members, open_way, say=host.lines.append, requirements=host.requirements, within_s=60
        )

    assert show("ready")
    assert not show("ready", "gone")
    now_s = iter([0.0, 0.0, 0.0, 60.0])
    monkeypatch.setattr(setup, "time", SimpleNamespace(monotonic=now_s.__next__))
    try:
        assert not show("gone", "slow", "ready")
    finally:
        released.set()
    assert "\n".join(host.lines) == snapshot

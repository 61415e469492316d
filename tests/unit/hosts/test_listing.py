"""The table of a testbed's hosts."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest

from pareto.hosts import listing
from pareto.hosts.inventory import Member
from pareto.hosts.way import Here, Unreachable, Way
from tests.unit.example_host import ExampleHost, example_host


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ExampleHost:
    return example_host(tmp_path, monkeypatch)


def test_each_host_has_a_line_with_what_it_can(host: ExampleHost) -> None:
    host.require("packaging>0", "other==1; python_version < '3'")
    released = threading.Event()

    def open_way(member: Member) -> Way:
        if member.name == "gone":
            raise Unreachable("gone (pi@10.0.0.9): does not answer on port 22")
        if member.name == "slow":
            released.wait(20)
        return Here()

    members = [
        host.member(name="ready", python=sys.executable, data_interface="eth0"),
        host.member(name="new", role="server", ssh="gpu", device="cuda:0"),
        host.member(name="between", role="middle", next_address="10.0.1.2", next_interface="eth1"),
    ]
    show = {"say": host.lines.append, "requirements": host.requirements}
    assert listing.show(members, open_way, **show)  # type: ignore[arg-type]
    assert host.lines == [
        "name     role    ssh    data address               device  state",
        "ready    edge    local  10.0.0.2 (eth0)            cpu     reachable, set up",
        "new      server  gpu    10.0.0.2                   cuda:0  reachable, not set up",
        "between  middle  local  10.0.0.2, 10.0.1.2 (eth1)  cpu     reachable, not set up",
    ]
    host.lines.clear()
    began = time.monotonic()
    members = [host.member(name="gone"), host.member(name="slow"), members[0]]
    assert not listing.show(members, open_way, within_s=4, **show)  # type: ignore[arg-type]
    assert time.monotonic() - began < 6
    states = [line.split("cpu", 1)[1].strip() for line in host.lines[1:]]
    assert states == [
        "gone (pi@10.0.0.9): does not answer on port 22",
        "no answer in 4 s",
        "reachable, set up",
    ]
    released.set()

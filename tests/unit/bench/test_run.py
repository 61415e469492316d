"""What both ends report is held against what was asked of them."""

from __future__ import annotations

from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.bench.run import Ends, Place
from pareto.hosts.host import TestbedError
from pareto.hosts.session import Heartbeat
from pareto.jsonlines import plain
from tests.unit import reported
from tests.unit.far_end import HOSTS, FarEnd, StandIn


def ends(**reports: Any) -> Ends:
    """Two ends whose programs give these reports."""
    answers: dict[str, Any] = {
        "facts": plain(reported.facts(1)),
        "listen": {"floor": 1},
        "connect": None,
        "expect": None,
        "time": {"seconds": [1e-3], "cpu_s": 1e-3, "sent_bytes": 40_000},
        "taken": {"cpu_s": 2e-3, "count": 10, "same": True},
        **reports,
    }
    replies = {op: (lambda _, op=op: answers[op]) for op in answers}
    hosts = [StandIn(host, lambda _: FarEnd(replies)) for host in HOSTS.values()]
    heartbeat = Heartbeat()
    heartbeat.stop()
    place = Place("veth", "", *hosts, "192.168.7.1", "eth0", "enp3s0", heartbeat)  # type: ignore[arg-type]
    return Ends(place, ["floor"])


def test_both_ends_report_processor_time() -> None:
    stream, taken = ends().stream("floor", 4_000, 10, 4)
    assert (stream.cpu_s, taken.cpu_s) == (1e-3, 2e-3)


@pytest.mark.parametrize(
    ("reports", "count"),
    [
        ({"time": {"seconds": [1e-3], "cpu_s": 1e-3, "sent_bytes": 39_999}}, "39999 of 40000 bytes"),
        ({"taken": {"cpu_s": 1e-3, "count": 9, "same": None}}, "9 of 10 payloads"),
    ],
    ids=["bytes", "payloads"],
)
def test_a_stream_that_did_not_cross_is_no_figure(
    reports: dict[str, Any], count: str, snapshot: SnapshotAssertion
) -> None:
    with pytest.raises(TestbedError, match=count) as refused:
        ends(**reports).stream("floor", 4_000, 10, 4)
    assert str(refused.value) == snapshot


def test_trips_that_did_not_cross_are_no_figure() -> None:
    less = ends(time={"seconds": [1e-3], "cpu_s": 1e-3, "sent_bytes": 39_999})
    with pytest.raises(TestbedError, match="39999 of 40000 bytes"):
        less.trips("floor", 4_000, 10)


def test_what_arrives_changed_is_no_figure(snapshot: SnapshotAssertion) -> None:
    changed = ends(taken={"cpu_s": 1e-3, "count": 10, "same": False})
    with pytest.raises(TestbedError) as refused:
        changed.trips("floor", 4_000, 10, kept=True)
    assert str(refused.value) == snapshot

"""What a backend adds on a link: payloads of several sizes, the quiet rounds, and a real link's own time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.backend_cost import BackendCost
from pareto.hosts.host import EDGE, SERVER, End, Host, TestbedError
from pareto.hosts.session import Session
from pareto.hosts.testbed import Link
from pareto.predict import backend_costs
from pareto.predict.backend_costs import (
    LEAST_STREAMED,
    MOST_BYTES,
    MOST_LINK_S,
    MOST_STREAM_S,
    QUICK,
    THOROUGH,
    USUAL,
    USUAL_BYTES,
    Care,
    Ends,
    added,
    link_s,
    on_links,
    reading_of,
    shaping_s,
)
from pareto.protocol.constants import GOODPUT
from pareto.protocol.profile_messages import Taken, Timed
from pareto.remote.link.probe import Reading
from pareto.remote.link.profile import Direction, Profile
from pareto.trial.workers import Workers
from tests.unit.far_end import HOSTS, FarEnd, StandIn, bed_of
from tests.unit.test_workers import FakeShaper

SLOW = Reading(0.002, 8e6, 8e6)


class FakeEnds:
    """Round trips of 1 ms and 2 ns a byte by tcp, 5 ms by rpc, on top of `link`; every third is far longer, if any."""

    def __init__(self, link: Callable[[int], float] = lambda nbytes: 0.0, *, any_late: bool = True) -> None:
        self.link = link
        self.rounds: Iterator[int] = itertools.count() if any_late else itertools.repeat(0)
        self.streamed: list[float] = []

    def trips(self, backend: str, nbytes: int, count: int, *, kept: bool = False) -> list[float]:
        late = 1.0 if next(self.rounds) % 3 == 2 and not kept else 0.0
        return [late + self.link(nbytes) + (1e-3 if backend == "tcp" else 5e-3) + 2e-9 * nbytes] * count

    def stream(self, backend: str, nbytes: int, count: int, in_flight: int) -> tuple[Timed, Taken]:
        """0.1 ms a payload at the near end; 0.2 ms, and 3 ns a byte, at the far end."""
        assert 1 < in_flight <= count
        self.streamed.append(count * self.link(nbytes))
        return Timed([1.0], count * 1e-4, 0), Taken(count * (2e-4 + 3e-9 * nbytes), count, None)


LINK = Link(*(End(role, host.data_address, "eth0") for role, host in HOSTS.items()), FakeShaper())


@pytest.fixture
def costs() -> Callable[..., dict[str, BackendCost]]:
    """What tcp and rpc add on a link, by name."""

    def run(reading: Reading | None, largest_bytes: int, care: Care = THOROUGH) -> dict[str, BackendCost]:
        ends = cast(Ends, FakeEnds(lambda nbytes: link_s(reading, nbytes), any_late=care is THOROUGH))
        ways = ("tcp", "rpc")
        return {cost.backend: cost for cost in added(ends, LINK, reading, ways, largest_bytes, care)}

    return run


def test_a_time_for_each_request_and_one_for_each_byte(costs: Callable[..., dict[str, BackendCost]]) -> None:
    made = costs(None, 3_000_000)
    tcp, rpc = made["tcp"], made["rpc"]
    assert (tcp.fixed_s, tcp.per_byte_s) == (pytest.approx(1e-3), pytest.approx(2e-9)), (
        "late rounds do not count"
    )
    assert (rpc.fixed_s, rpc.per_byte_s) == (pytest.approx(5e-3), pytest.approx(2e-9))
    assert tcp.payload_bytes.max() == 3_000_000


def test_a_search_takes_few_payloads_that_span_what_models_send(
    costs: Callable[..., dict[str, BackendCost]],
) -> None:
    tcp = costs(None, 0, QUICK)["tcp"]
    assert tcp.payload_bytes.tolist() == [1_000, 10_000, 100_000, 1_000_000], "whatever the model"
    assert (tcp.fixed_s, tcp.per_byte_s) == (pytest.approx(1e-3), pytest.approx(2e-9))
    waits = costs(reading_of(USUAL), 0, QUICK)["tcp"]
    assert (waits.link_s > 0).all()
    assert waits.fixed_s == pytest.approx(1e-3)
    assert waits.processor_s("far_s", np.array([1e6])) == pytest.approx(2e-4 + 3e-3), (
        "of those that are streamed"
    )


@dataclass
class FakeWorkers:
    """Whose connections are open by one group of backends at a time."""

    of: list[list[str]] = field(default_factory=list)

    def opened(self, backends: list[str]) -> dict[str, tuple[str, str]]:
        self.of.append(backends)
        return {"edge-middle": ("edge", "middle"), "middle-server": ("middle", "server")}

    def bare_links(self) -> dict[str, Reading]:
        return {"edge-middle": SLOW, "middle-server": SLOW}


@pytest.mark.parametrize("is_local", [True, False])
def test_every_link_has_every_backend_and_is_left_without_a_profile(
    monkeypatch: pytest.MonkeyPatch, is_local: bool
) -> None:
    """Of rpc's agents a process has one: tcp and the first are connected, then the other alone."""
    between: list[tuple[str, ...]] = []

    def fake(*ends: str) -> FakeEnds:
        between.append(ends)
        return FakeEnds()

    monkeypatch.setattr(backend_costs, "Ends", fake)
    middle = Host("hub", "192.168.7.9", "eth1", "/home/ada/.pareto", "python3")
    hosts = {EDGE: HOSTS[EDGE], "middle": middle, SERVER: HOSTS[SERVER]}
    shaper, workers = FakeShaper(), FakeWorkers()
    with closing(
        bed_of(
            {role: StandIn(host, lambda _: FarEnd({})) for role, host in hosts.items()},
            is_local=is_local,
            shaper=shaper,
        )
    ) as bed:
        made = on_links(bed, cast(Workers, workers), ("rpc", "tcp", "rpc:basic"), 0, QUICK)
    assert [(cost.link, cost.backend) for cost in made] == [
        (link, backend)
        for link in ("edge-middle", "middle-server")
        for backend in ("rpc", "tcp", "rpc:basic")
    ]
    turns = 1 + is_local
    assert workers.of == [["rpc", "tcp"], ["rpc:basic"]] * turns
    assert between == [("edge", "middle", "eth0"), ("middle", "server", "eth1")] * 2 * turns
    names = [profile.name for profile in shaper.applied]
    assert names == (["none"] * 2 + ["usual"] * 2 + ["none"] * 2 if is_local else [])
    assert [len(cost.parts) for cost in made] == [turns] * 6


def test_what_sending_takes_of_the_processors(costs: Callable[..., dict[str, BackendCost]]) -> None:
    sizes = np.array([1e4, 1e6])
    for reading in (None, Reading(0.01, 1e8, 1e8)):
        tcp = costs(reading, 3_000_000)["tcp"]
        assert tcp.processor_s("near_s", sizes) == pytest.approx([1e-4, 1e-4])
        assert tcp.processor_s("far_s", sizes) == pytest.approx(2e-4 + 3e-9 * sizes)


def test_payloads_that_take_a_link_long_are_not_streamed(
    costs: Callable[..., dict[str, BackendCost]],
) -> None:
    tcp = costs(SLOW, 3_000_000)["tcp"]
    assert (np.isnan(tcp.near_s) == (tcp.link_s > MOST_STREAM_S)).all()
    assert np.isnan(tcp.near_s).any()
    assert tcp.processor_s("near_s", np.array([1e6])) == pytest.approx(1e-4), "the others say"


def test_a_relay_takes_processor_time_too(
    monkeypatch: pytest.MonkeyPatch, costs: Callable[..., dict[str, BackendCost]]
) -> None:
    spent_s = itertools.count(step=0.01)
    monkeypatch.setattr(backend_costs, "shaping_s", lambda _: next(spent_s))
    tcp = costs(None, 3_000_000)["tcp"]
    assert (tcp.shaper_s > 0).all()
    assert (tcp.shaper_s <= 0.01 / LEAST_STREAMED).all()


@pytest.mark.parametrize(
    ("facts", "spent_s"), [({"relay": {"cpu_s": 2.5}}, 2.5), ({"netem": {}}, 0.0), ({}, 0.0)]
)
def test_only_a_relay_says_what_it_takes(facts: dict[str, object], spent_s: float) -> None:
    class Shaping(FakeShaper):
        def facts(self) -> dict[str, object]:
            return facts

    link = Link(*(End(role, "", "") for role in (EDGE, SERVER)), Shaping())
    assert shaping_s(link) == spent_s


def test_a_profile_read_as_a_link() -> None:
    profile = Profile("", Direction(delay_s=0.01, rate_bps=1e6), Direction(delay_s=0.02))
    reading = reading_of(profile)
    assert (reading.rtt_s, reading.rate_bps, reading.rate_back_bps) == (0.03, GOODPUT * 1e6, None)


def test_payloads_have_bounds(costs: Callable[..., dict[str, BackendCost]]) -> None:
    assert costs(None, 10)["tcp"].payload_bytes.max() == USUAL_BYTES
    assert costs(None, 10**9)["tcp"].payload_bytes.max() == MOST_BYTES


def test_a_real_links_own_time_is_no_cost_of_a_backend(costs: Callable[..., dict[str, BackendCost]]) -> None:
    tcp = costs(SLOW, 3_000_000)["tcp"]
    assert (tcp.fixed_s, tcp.per_byte_s) == (pytest.approx(1e-3), pytest.approx(2e-9, rel=1e-3))
    assert tcp.link_s == pytest.approx(0.002 + 8 * tcp.payload_bytes / 8e6)
    assert tcp.link_s.max() <= MOST_LINK_S, "a megabyte would take it longer"


def test_a_link_that_is_very_slow_still_has_one_payload(costs: Callable[..., dict[str, BackendCost]]) -> None:
    (nbytes,) = costs(Reading(5.0, 1e3, 1e3), 3_000_000)["tcp"].payload_bytes
    assert nbytes == backend_costs.LEAST_BYTES


@pytest.fixture
def ends() -> Callable[..., Ends]:
    """Two ends whose workers give these reports."""

    def made(**reports: Any) -> Ends:
        answers: dict[str, Any] = {
            "expect": None,
            "time": {"seconds": [1e-3], "cpu_s": 1e-3, "sent_bytes": 40_000},
            "taken": {"cpu_s": 2e-3, "count": 10, "same": True},
            **reports,
        }
        replies = {op: (lambda _, op=op: answers[op]) for op in answers}
        near, far = (Session(host.name, FarEnd(replies)) for host in HOSTS.values())
        return Ends(near, far, "eth0")

    return made


def test_both_ends_report_processor_time(ends: Callable[..., Ends]) -> None:
    stream, taken = ends().stream("tcp", 4_000, 10, 4)
    assert (stream.cpu_s, taken.cpu_s) == (1e-3, 2e-3)


@pytest.mark.parametrize(
    ("reports", "count"),
    [
        ({"time": {"seconds": [1e-3], "cpu_s": 1e-3, "sent_bytes": 39_999}}, "39999 of 40000 bytes"),
        ({"taken": {"cpu_s": 1e-3, "count": 9, "same": None}}, "9 of 10 payloads"),
        ({"taken": {"cpu_s": 1e-3, "count": 10, "same": False}}, "not what was sent"),
    ],
    ids=["bytes", "payloads", "changed"],
)
def test_what_did_not_cross_as_it_was_is_no_figure(
    ends: Callable[..., Ends], reports: dict[str, Any], count: str, snapshot: SnapshotAssertion
) -> None:
    both = ends(**reports)
    with pytest.raises(TestbedError, match=count) as refused:
        both.stream("tcp", 4_000, 10, 4)
    assert str(refused.value) == snapshot
    with pytest.raises(TestbedError, match=count):
        both.trips("tcp", 4_000, 10, kept=True)

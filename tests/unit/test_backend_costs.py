"""What a backend adds on a link: payloads of several sizes, the quiet rounds, and a real link's own time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from analysis.model_profile import BackendCost
from pareto import backend_costs
from pareto.backend_costs import MOST_BYTES, MOST_LINK_S, USUAL_BYTES, added, link_s
from pareto.bench.run import Place
from pareto.hosts.host import SERVER
from pareto.link.probe import Reading
from tests.unit.far_end import HOSTS, FarEnd, StandIn, bed_of

SLOW = Reading(0.002, 8e6, 8e6)


class FakeEnds:
    """Round trips of 1 ms and 2 ns a byte by tcp, 5 ms by rpc, on top of `link`; every third is far longer."""

    def __init__(self, link: Callable[[int], float] = lambda nbytes: 0.0) -> None:
        self.link = link
        self.rounds: Iterator[int] = itertools.count()

    def trips(self, way: str, nbytes: int, count: int, *, kept: bool = False) -> list[float]:
        late = 1.0 if next(self.rounds) % 3 == 2 and not kept else 0.0
        return [late + self.link(nbytes) + (1e-3 if way == "tcp" else 5e-3) + 2e-9 * nbytes] * count


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, BackendCost]]:
    """What tcp and rpc add on a link, by name."""

    def run(reading: Reading | None, largest_bytes: int) -> dict[str, BackendCost]:
        ends = FakeEnds(lambda nbytes: link_s(reading, nbytes))

        def connected(_: ExitStack, place: Place, ways: tuple[str, ...]) -> dict[str, FakeEnds]:
            assert (place.name, place.address) == ("edge-server", HOSTS[SERVER].data_address)
            return dict.fromkeys(ways, ends)

        monkeypatch.setattr(backend_costs, "connected", connected)
        bed = bed_of({role: StandIn(host, lambda _: FarEnd({})) for role, host in HOSTS.items()})
        try:
            return {
                cost.backend: cost
                for cost in added(bed, bed.links[0], reading, ("tcp", "rpc"), largest_bytes)
            }
        finally:
            bed.close()

    return run


def test_a_time_for_each_request_and_one_for_each_byte(costs: Callable[..., dict[str, BackendCost]]) -> None:
    made = costs(None, 3_000_000)
    tcp, rpc = made["tcp"], made["rpc"]
    assert (tcp.fixed_s, tcp.per_byte_s) == (pytest.approx(1e-3), pytest.approx(2e-9)), (
        "late rounds do not count"
    )
    assert (rpc.fixed_s, rpc.per_byte_s) == (pytest.approx(5e-3), pytest.approx(2e-9))
    assert tcp.payload_bytes.max() == 3_000_000


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

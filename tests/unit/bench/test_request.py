"""What of the benchmark may be asked for, and how much is measured then."""

from __future__ import annotations

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto import profile_files
from pareto.bench.request import Request, efforts, request
from pareto.constants import MOST_IN_FLIGHT
from pareto.errors import UserError
from pareto.link.profile import Direction, Profile

DEFAULTS = {
    "places": "loopback,veth,netem",
    "netem": "wifi",
    "ways": "floor,tcp,rpc,naive",
    "sizes": "4kB,200kB,3MB,32MB",
    "rounds": None,
    "seed": 0,
    "quick": False,
}


def of(**options: object) -> Request:
    return request(**{**DEFAULTS, **options})  # type: ignore[arg-type]


def test_sizes_are_powers_of_ten_and_rise() -> None:
    assert of(sizes="3MB, 4kB,200kB,4KB,1MiB,8b").sizes == (8, 4_000, 200_000, 1_048_576, 3_000_000)


@pytest.mark.parametrize(
    ("option", "text", "named"),
    [
        ("sizes", "4", "'4'"),
        ("sizes", "0kB", "'0kB'"),
        ("sizes", "1GB", "'1GB'"),
        ("sizes", ",", ""),
        ("places", "moon", "'moon'"),
        ("ways", "floor,udp", "'udp'"),
        ("ways", "tcp:1", "'tcp:1'"),
        ("ways", "tcp:4:a", "'tcp:4:a'"),
        ("rounds", 0, "0"),
    ],
)
def test_what_cannot_be_is_refused(
    option: str, text: object, named: str, snapshot: SnapshotAssertion
) -> None:
    with pytest.raises(UserError, match="^--" + option.replace("_", "-")) as refused:
        of(**{option: text})
    assert named in str(refused.value)
    assert str(refused.value) == snapshot


def test_a_profile_is_not_looked_for_where_no_link_is_shaped() -> None:
    assert of(places="veth", netem="nonsense").profiles == ()


def test_a_backends_variants_are_ways() -> None:
    assert of(ways="tcp,tcp:4,rpc,rpc:basic").ways == ("tcp", "tcp:4", "rpc", "rpc:basic")


def test_rounds_are_fewer_for_a_first_look() -> None:
    assert (of().rounds, of(quick=True).rounds, of(quick=True, rounds=9).rounds) == (15, 3, 9)


def test_a_slow_link_is_spared() -> None:
    """At 15 Mbit/s 200 kB take 0.1 s, 3 MB 1.7 s, 32 MB 18 s."""
    small, middle, large = efforts(of(), profile_files.load("wifi"))
    assert [effort.nbytes for effort in (small, middle, large)] == [4_000, 200_000, 3_000_000]
    assert [effort.rounds for effort in (small, middle, large)] == [15, 7, 7]
    assert [effort.streamed for effort in (small, middle, large)] == [True, True, False]
    assert (small.trips(0.005), middle.trips(0.11), middle.payloads(0.11)) == (10, 1, 2)


def test_a_link_that_holds_more_has_more_under_way() -> None:
    """100 Mbit/s for 10 ms are 125 kB."""
    small, middle, *_ = efforts(of(), profile_files.load("10ms-100mbit"))
    assert (small.in_flight, middle.in_flight) == (4 + 32, 4 + 1)
    assert {effort.in_flight for effort in efforts(of(), None)} == {4}
    far = Profile("far", Direction(0.1, 1e9), Direction(0.1, None))
    assert efforts(of(), far)[0].in_flight == MOST_IN_FLIGHT

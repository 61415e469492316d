"""What crosses in a cell, and what a local testbed's cores leave of its throughput."""

from __future__ import annotations

from typing import Any

import pytest

from pareto.remote.link.profile import Direction, Profile
from pareto.sweep import foreseen
from pareto.sweep.cell import Cell
from pareto.sweep.foreseen import ModelFacts


@pytest.mark.parametrize(
    ("codec", "batch_size", "nbytes"),
    [
        ("none", 1, (400, 400)),
        ("int8", 2, (800, pytest.approx(208))),
        ("zstd:3", 1, (400, 400)),  # nothing is known of it
    ],
)
def test_a_crossing_has_what_the_codec_sends(codec: str, batch_size: int, nbytes: tuple[float, Any]) -> None:
    cell = Cell("m", (1,), "one", "tcp", "none", batch_size, codec)
    points, shares = (("input", 100), ("one", 400), ("last", 0)), {"int8": (0.25, 0.26, 1.0)}
    known = ModelFacts(points, 0.01, wire_shares=shares)
    (crossing,) = foreseen.crossings(cell, known, [Profile("x")], ["link"])
    assert (crossing.payload_bytes, crossing.sent_bytes) == nbytes


def test_what_a_local_testbeds_cores_leave_of_a_throughput() -> None:
    quick = ModelFacts((("input", 100_000), ("a", 1000), ("output", 0)), 0.004, splits=((1,), (2,)))
    cut, whole = (Cell("m", (point,), "", "tcp", "x", 1) for point in (1, 2))
    still, slow = Profile("x"), Profile("x", Direction(0.0, 1e5))
    sends_s = foreseen.SENDING_S
    assert foreseen.reach(whole, quick, [still], cores=2) == 1.0  # nothing is sent
    assert foreseen.reach(cut, quick, [slow], cores=2) == 1.0  # the link is slower than all of it
    assert foreseen.reach(cut, quick, [still], cores=2) == pytest.approx(0.002 / (0.002 + sends_s), rel=0.05)
    # A quarter of a core: the edge's stage and its sending alike take four times as long.
    slowed = foreseen.reach(cut, quick, [still], edge_cpu=0.25, cores=2)
    assert slowed == pytest.approx(0.002 / (0.002 + sends_s), rel=0.05)
    # One core for both hosts does the work of both, and the relay's.
    carried_s = foreseen.RELAY_S_PER_BYTE * (1000 + quick.result_bytes)
    shared = foreseen.reach(cut, quick, [still], cores=1)
    assert shared == pytest.approx(0.002 / (0.004 + 2 * sends_s + carried_s))

"""A profile in words."""

from __future__ import annotations

from syrupy.assertion import SnapshotAssertion

from pareto.link.profile import Direction, Gilbert, Profile
from pareto.link.words import describe


def test_everything_that_is_asked_is_said(snapshot: SnapshotAssertion) -> None:
    out = Direction(
        0.2, 2.5e6, 0.01, loss=0.015, duplicate=0.001, reorder=0.02, corrupt=0.0001, limit_bytes=65536
    )
    back = Direction(0.03, loss=Gilbert(0.01, 0.19))
    words = describe(Profile("x", out, back))
    for figure in ("200 ms", "10 ms", "2.5 Mbit/s", "1.5%", "0.1%", "2%", "0.01%", "65536", "30 ms", "5%"):
        assert figure in words
    assert words == snapshot

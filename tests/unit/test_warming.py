"""How much bulk warms a connection, and when it is warm. Who is sent it: `test_workers`."""

from __future__ import annotations

import math

import pytest

from pareto.hosts.warm_up import bulk_bytes, gets_no_quicker


@pytest.mark.parametrize(
    ("rate_bps", "rtt_s", "nbytes", "fills"),
    [
        (15e6, 0.002, 1 << 18, False),
        (4.8e6, 0.2, 720_000, True),
        (0.8e6, 0.15, 1 << 18, False),  # more than fills it in any case
        (12e6, 0.07, 1 << 18, False),  # not so long
        (9.6e6, 0.65, 1_560_000, False),  # to fill the queue would take too long
        (1e9, 0.1, 8 << 20, False),
        (math.inf, 0.0, 8 << 20, False),
    ],
)
def test_bulk_opens_the_window_or_fills_the_queue(
    rate_bps: float, rtt_s: float, nbytes: int, fills: bool
) -> None:
    assert bulk_bytes(rate_bps, rtt_s) == (nbytes, fills)


@pytest.mark.parametrize(
    ("took_s", "no_quicker"),
    [
        ([1.4], False),
        ([1.85, 1.40], False),  # it gets better
        ([1.85, 1.40, 1.40], True),
        ([2.0, 2.15], True),
        ([0.80, 2.54], False),  # packets were lost, and will not be for ever
        ([2.0, 2.9, 2.4], True),
        ([2.0, 2.9, 1.3], False),
        ([9.0, 7.0, 5.0, 3.0], False),
    ],
)
def test_bulk_gets_no_quicker_when_two_in_a_row_are_alike_or_no_better(
    took_s: list[float], no_quicker: bool
) -> None:
    assert gets_no_quicker(took_s) is no_quicker

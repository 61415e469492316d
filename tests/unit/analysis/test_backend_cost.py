"""What a backend adds to a request, by probed payloads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pareto.analysis.backend_cost import BackendCost
from tests.unit.analysis.test_model_profile import SIZES, profile


def test_a_backend_costs_a_fixed_time_and_one_for_each_byte() -> None:
    tcp, rpc = profile().backends
    assert (tcp.fixed_s, tcp.per_byte_s) == (pytest.approx(1e-4), pytest.approx(1e-9))
    assert tcp.residual == pytest.approx(0, abs=1e-6)
    assert (rpc.fixed_s, rpc.per_byte_s) == (pytest.approx(7e-4), pytest.approx(2e-9)), "beyond the link"
    noisy = BackendCost(
        "edge-server", "tcp", SIZES, (1e-4 + 1e-9 * SIZES) * [1.1, 0.9, 1.1, 0.9], np.zeros(4)
    )
    assert 0.05 < noisy.residual < 0.15


def test_a_link_that_slows_payloads_has_a_line_of_its_own() -> None:
    bare = BackendCost("edge-server", "tcp", SIZES, 1e-4 + 1e-9 * SIZES, np.zeros(4), near_s=np.full(4, 1e-5))
    link_s = 0.01 + 8e-8 * SIZES
    slowed = replace(bare, trip_s=link_s + 7e-4, link_s=link_s, near_s=np.empty(0), far_s=1e-5 + 3e-9 * SIZES)
    both = bare.and_of(slowed)
    assert both.where(waiting=False).fixed_s == pytest.approx(1e-4)
    assert both.where(waiting=True).fixed_s == pytest.approx(7e-4)
    assert [len(part.trip_s) for part in both.parts] == [4, 4]
    assert both.processor_s("near_s", SIZES) == pytest.approx(np.full(4, 1e-5))
    assert both.processor_s("far_s", SIZES) == pytest.approx(1e-5 + 3e-9 * SIZES)
    assert both.processor_s("shaper_s", SIZES).tolist() == [0] * 4, "nobody knows"
    assert bare.where(waiting=True).trip_s.tolist() == bare.trip_s.tolist(), "there are no others"
    assert [part.fixed_s for part in bare.parts] == [bare.fixed_s]


def test_payloads_that_overflow_a_queue_are_not_on_the_line() -> None:
    sizes = np.array([1e3, 1e5, 2e5, 3e5, 1e6])
    link_s = 0.01 + 8e-8 * sizes
    times = np.array([1, 1, 1, 3, 2])
    cost = BackendCost("edge-server", "rpc", sizes, times * (link_s + 1e-3), link_s)
    assert (cost.fixed_s, cost.residual) == (pytest.approx(1e-3), pytest.approx(0, abs=1e-9))
    assert cost.resends
    assert not replace(cost, trip_s=link_s + 1e-3).resends
    assert not replace(cost, link_s=np.zeros(5)).resends, "a link without a rate has no queue"


def test_neither_term_of_a_backend_is_negative() -> None:
    falling = BackendCost("edge-server", "tcp", SIZES, np.array([2.0, 1.9, 1.8, 1.7]), np.zeros(4))
    assert falling.per_byte_s == 0
    assert falling.fixed_s > 0
    quicker_than_the_link = BackendCost("edge-server", "tcp", SIZES, SIZES / 1e6, np.full(4, 2.0))
    assert (quicker_than_the_link.fixed_s, quicker_than_the_link.per_byte_s) == (0, 0)

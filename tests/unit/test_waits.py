"""How long trials wait until the hosts are ready; how much bulk warms a connection, and when it is warm."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from pareto.hosts.warm_up import bulk_bytes, gets_no_quicker
from pareto.partitions.engines.registry import ENGINES
from pareto.sweep import profile_files, waits
from pareto.sweep.cell import Cell
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.sweep import Sweep
from pareto.sweep.waits import Waits

NODES = {"m": (0, 20, 30)}


def sweep(**options: object) -> Sweep:
    return make_sweep({"model": "m", "netem": "none", "backend": "tcp", **options})


def waiting(wanted: Sweep, *, fresh: bool = True) -> Waits:
    return Waits(wanted, NODES, {name: [profile_files.load(name)] for name in wanted.netems}, fresh=fresh)


def cell(point: int, engine: str = "eager", netem: str = "none", batch_size: int = 1) -> Cell:
    return Cell("m", (point,), "", "tcp", netem, batch_size, engine=engine)


def test_on_a_long_link_connections_are_warmed() -> None:
    """As it was measured at 200 ms and 5 Mbit/s: connecting and three bulks of each backend; agents meet slowly."""

    def wait_s(netem: str, backend: str) -> float:
        return waits.open_s(sweep(netem=netem, backend=backend), [profile_files.load(netem)])

    assert wait_s("none", "tcp,rpc") < 0.5
    assert wait_s("200ms-5mbit", "tcp") == pytest.approx(1.22 + 4.67 + 2 * 0.36, rel=0.05)
    assert wait_s("200ms-5mbit", "tcp,rpc") == pytest.approx(1.22 + 4.49 + 4.67 + 7.03 + 2 * 0.36, rel=0.05)


def test_the_model_is_loaded_once_and_longer_on_a_slow_edge() -> None:
    load_s = 30 * waits.LOAD_NODE_S
    whole, slow = (waiting(sweep(edge_cpu=share)) for share in (1.0, 0.25))
    opens_s = waits.open_s(sweep(), [profile_files.load("none")])
    assert whole.before_s(cell(1), 1) == pytest.approx(load_s + opens_s)
    assert slow.before_s(cell(1), 1) == pytest.approx(load_s * waits.slowed(0.25) + opens_s)
    assert waits.slowed(0.25) > 4
    assert whole.before_s(cell(2), 1) == 0
    assert waiting(sweep(), fresh=False).before_s(cell(1), 1) == 0


def test_fresh_workers_load_connect_and_build_anew() -> None:
    kept, anew = (waiting(sweep(restart=when)) for when in ("never", "round"))
    first_s = anew.before_s(cell(1), 1)
    kept.before_s(cell(1), 1)
    assert kept.before_s(cell(1), 2) == 0
    assert anew.before_s(cell(1), 2) == pytest.approx(first_s + waits.START_S)
    built = waiting(sweep(engine="compile", restart="round"))
    first_s = built.before_s(cell(2, "compile"), 1)
    assert built.before_s(cell(2, "compile"), 2) == pytest.approx(first_s + waits.START_S)
    # Another allocator takes fresh ones.
    of, other = waiting(sweep(allocator="tuned,default")), replace(cell(1), allocator="default")
    first_s = of.before_s(cell(1), 1)
    assert of.before_s(other, 1) == pytest.approx(first_s + waits.START_S)
    assert of.before_s(other, 2) == 0


@pytest.mark.parametrize("engine", ["compile", "onnx"])
def test_a_stage_is_built_once_by_what_is_in_it_and_the_engine_starts_once_on_a_host(engine: str) -> None:
    of, cost = waiting(sweep(engine=engine)), ENGINES[engine]
    of.before_s(cell(1), 1)
    assert of.before_s(cell(1, engine), 1) == pytest.approx(cost.first_s + cost.stage_s + 20 * cost.node_s)
    assert of.before_s(cell(2, engine), 1) == pytest.approx(cost.stage_s + 30 * cost.node_s)
    assert of.before_s(cell(2, engine, batch_size=8), 1) == pytest.approx(cost.stage_s + 30 * cost.node_s)
    assert of.before_s(cell(1, engine), 2) == pytest.approx(cost.again_s)
    later = waiting(sweep(engine=engine), fresh=False)
    assert later.before_s(cell(1, engine), 3) == pytest.approx(cost.again_s), "it was built before"


def test_the_slowest_host_is_waited_for_and_that_is_a_slow_edge() -> None:
    slow, cost = waits.slowed(0.25), ENGINES["compile"]
    edge, server = "edge=compile", "edge=onnx+server=compile"
    of = waiting(sweep(engine="edge=compile,edge=onnx,server=compile", edge_cpu=0.25))
    of.before_s(cell(1), 1)
    assert of.before_s(cell(1, edge), 1) == pytest.approx(
        slow * (cost.first_s + cost.stage_s + 20 * cost.node_s)
    )
    assert of.before_s(cell(1, server), 1) == pytest.approx(cost.first_s + cost.stage_s + 10 * cost.node_s)


# What warms a connection. Who is sent it: `test_workers`.


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

"""The model profile of a simulated testbed, and forecasts from it against simulated trials."""

from __future__ import annotations

import itertools
import statistics

import numpy as np
import pytest

from pareto.analysis.prediction.forecast import Forecasts
from pareto.models.prepare import canonical
from pareto.predict.links import case as case_of
from pareto.simulated.unit_times import model_profile
from pareto.simulated.workers import Simulation
from pareto.simulated.world import World
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.networks import profiles
from pareto.sweep.sweep import Sweep
from tests.unit.gating import gating
from tests.unit.simulated.study import rows

STEADY = {"noise": {"request": 0, "trial": 0, "round": 0}}


def sweep(**options: object) -> Sweep:
    asked = {"model": "mobilenetv2", "netem": "10ms-100mbit", "testbed": "simulated", "trials": 1}
    return canonical(make_sweep({**asked, **options}))


CASES = [*itertools.product((2, 3), ("10ms-100mbit", "200ms-5mbit", "lan-1gbit"))]


@pytest.mark.parametrize("case", gating(CASES, (2, "lan-1gbit"), (3, "200ms-5mbit")))
def test_a_forecast_without_noise_is_what_trials_measure_with_any_codec(case: tuple[int, str]) -> None:
    hosts, netem = case
    points = "0,5,14,21" if hosts == 2 else "0+0,3+10,5+5,8+21,21+21"
    codecs = "none,fp16,int8+zstd" if hosts == 3 else "none,int8,zstd,jpeg"
    asked = {"only": True, "batch_size": "1,2", "edge_cpu": 0.5, "codec": codecs}
    wanted = sweep(netem=netem, hosts=hosts, points=points, **asked)
    world = World.model_validate(STEADY)
    known = model_profile(Simulation(world), "mobilenet_v2", wanted)
    links = netem, profiles(netem, hosts - 1), wanted.link_tolerance
    seen = set()
    for trial in rows(wanted, world):
        cut = np.array([[int(each) for each in trial["point"].split("+")]])
        asked = case_of(*links, trial["batch_size"], "auto", trial["codec"])
        said = Forecasts(known, asked, trial["backend"]).of(cut)
        assert said["latency_s"][0] == pytest.approx(trial["latency_s"], rel=1e-3)
        assert said["throughput_ips"][0] == pytest.approx(trial["throughput_ips"], rel=0.01)
        assert said["least_latency_s"][0] < trial["latency_s"]
        assert said["most_throughput_ips"][0] > trial["throughput_ips"]
        seen.add(trial["codec"])
    assert "none" in seen and len(seen) >= 4


def test_a_profile_has_the_worlds_noise_and_is_the_same_each_time() -> None:
    wanted = sweep(batch_size="1,4")
    noisy = World.model_validate({"noise": {"trial": 0.1, "round": 0.0}})
    known, again = (model_profile(Simulation(noisy), "mobilenet_v2", wanted) for _ in range(2))
    true = model_profile(Simulation(World.model_validate(STEADY)), "mobilenet_v2", wanted)
    edge, edge_again, edge_true = (each.of("edge", 4) for each in (known, again, true))
    assert edge.median_s.tolist() == edge_again.median_s.tolist()
    assert edge.median_s.sum() != pytest.approx(edge_true.median_s.sum(), rel=0.005)
    assert edge.median_s.sum() == pytest.approx(edge_true.median_s.sum(), rel=0.4)
    assert (edge.least_s < edge.low_s).all()
    assert (edge.low_s < edge.high_s).all()
    assert edge.difference == pytest.approx(0)
    assert known.batch_sizes == (1, 4)
    assert statistics.fmean(known.flops) > 1e6
    assert known.cost("edge-server", "rpc").fixed_s > known.cost("edge-server", "tcp").fixed_s

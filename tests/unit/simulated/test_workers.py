"""Trials of a simulated testbed, its world's file, and forecasts from its model profile against its trials."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.prediction.forecast import Forecasts
from pareto.driver.runner import Aborted
from pareto.hosts.host import TestbedError
from pareto.models.prepare import canonical
from pareto.predict.links import case as case_of
from pareto.remote.link.probe import GOODPUT
from pareto.simulated.unit_times import model_profile
from pareto.simulated.workers import Simulation
from pareto.simulated.world import Noise, World, load
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.networks import profiles
from pareto.sweep.sweep import Sweep
from pareto.trial.store import Row
from tests.unit.gating import gating
from tests.unit.refusals import refusal
from tests.unit.simulated.worlds import HOSTS, POINTS, STILL, rows, sweep, world


def by(column: str, found: list[Row]) -> list[Row]:
    """Two rows, which differ by this."""
    return sorted(found, key=lambda row: str(row[column]))


def test_without_noise_a_trial_is_arithmetic() -> None:
    found = {row["point"]: row for row in rows(sweep(), world(noise=STILL))}
    crossed, whole = found["0"], found["7"]
    assert whole["payload_bytes"] == 0
    assert whole["latency_s"] == pytest.approx(whole["edge_s"])
    assert whole["throughput_ips"] == pytest.approx(1 / whole["edge_s"])
    # The edge is ten times slower, and takes a millisecond for each of the seven units.
    assert whole["edge_s"] == pytest.approx(10 * crossed["server_s"] + 0.007)
    transfer_s = 8 * crossed["payload_bytes"] / (50e6 * GOODPUT)
    assert crossed["payload_bytes"] == 4 * 3 * 32 * 32
    assert crossed["latency_s"] == pytest.approx(crossed["server_s"] + transfer_s + 0.01 + 0.0001, rel=1e-6)


def test_a_trial_keeps_its_bounds_whatever_the_noise() -> None:
    noisy = world(noise={"kind": "heavy", "request": 0.1, "trial": 0.1, "round": 0.1})
    asked = {"batch_size": "1,4", "in_flight": "auto,1,8", "codec": "none,int8,uint4+zstd"}
    wanted = sweep(backend="tcp,rpc", trials=3, **asked)
    found = rows(wanted, noisy)
    words = {"throughput only": "'s stage took", "latency only": " is over its bound "}
    # Replies are counted: one of a request that the edge had computed before may come late, and within the time.
    others = [row for row in found if row["status"] != "ok"]
    assert all(words[row["status"]] in row["reason"] for row in others)
    assert len(others) < len(found) / 100
    assert len(found) == ((POINTS - 1) * 3 + 1) * 2 * 3 * 2 * 3
    for row in found:
        assert row["latency_s"] > 0.999999 * row["latency_bound_s"]
        over = row["throughput_ips"] / row["throughput_bound_ips"]
        assert over <= (1.001 if row["status"] == "latency only" else 1.000001)


@pytest.mark.parametrize("role", HOSTS)
def test_a_host_that_something_else_slows_in_some_rounds_is_told_in_these(role: str) -> None:
    loaded = world(hosts={role: {"per_unit": 0.01}}, loads={role: {"factor": 3, "rounds": [2]}})
    found = rows(sweep(points="3", trials=3), loaded)
    assert [row["status"] for row in found] == ["ok", "invalid", "ok"]
    assert f"the {role}'s stage" in found[1]["reason"]
    assert [round(row[f"{role}_slowdown"]) for row in found] == [1, 3, 1]
    # Its bounds do not follow it, so that an efficiency would show it.
    assert found[1]["latency_bound_s"] == pytest.approx(found[0]["latency_bound_s"], rel=0.2)
    assert found[1]["throughput_ips"] < 0.5 * found[1]["throughput_bound_ips"]


def test_a_codec_takes_time_on_both_hosts_and_sends_less() -> None:
    zstd, int8 = {"encode": 10, "decode": 50, "share": "50%"}, {"encode": 4, "decode": 8, "share": 0.25}
    quiet = world(noise=STILL, codecs={"zstd": zstd, "int8": int8})
    wanted = sweep(points="3", codec="none,int8+zstd", edge_cpu=0.5)
    coded, plain = by("codec", rows(wanted, quiet))
    payload = coded["payload_bytes"]
    assert coded["wire_bytes"] == round((payload / 4 + 8) / 2)
    assert plain["wire_bytes"] == plain["payload_bytes"] == payload
    edge, server = (HOSTS[role]["gflops"] / 100 * 1e6 for role in ("edge", "server"))
    encode_s = (payload / 4 + payload / 4 / 10) / edge / 0.5
    decode_s = (payload / 8 + payload / 4 / 50) / server
    assert (coded["encode_s"], coded["decode_s"]) == pytest.approx((encode_s, decode_s))
    assert (coded["edge_s"], coded["server_s"]) == pytest.approx((plain["edge_s"], plain["server_s"]))
    saved_s = 8 * (payload - coded["wire_bytes"]) / (50e6 * GOODPUT)
    assert coded["latency_s"] == pytest.approx(plain["latency_s"] - saved_s + encode_s + decode_s)
    assert coded["throughput_ips"] == pytest.approx(1 / (coded["edge_s"] + encode_s), rel=0.01)


def test_an_engine_takes_its_share_of_the_time_on_the_hosts_that_have_it() -> None:
    wanted = sweep(points="3", engine="eager,onnx,edge=onnx,server=compile")
    found = {row["engine"]: row for row in rows(wanted, world(noise=STILL, engines={"onnx": "25%"}))}
    eager, onnx, both = found.values()
    assert list(found) == ["eager", "onnx", "edge=onnx+server=compile"]
    assert (4 * onnx["edge_s"], 4 * onnx["server_s"]) == pytest.approx((eager["edge_s"], eager["server_s"]))
    assert both["edge_s"] == onnx["edge_s"]
    assert both["server_s"] == pytest.approx(0.5 * eager["server_s"]), "as usual"


def test_many_requests_keep_the_slowest_step_busy_and_wait_for_a_busy_server_only() -> None:
    hosts = {"edge": {"per_unit": 0.02}, "server": {"per_unit": 0.01}}
    chosen = sweep(points="3", in_flight="1,auto")
    alone, many = by("in_flight", rows(chosen, world(hosts=hosts, noise=STILL)))
    assert alone["throughput_ips"] == pytest.approx(1 / alone["latency_s"], rel=1e-6)
    assert many["bound_by"] == many["busiest"] == "edge"
    assert many["busiest_utilization"] == pytest.approx(1, rel=0.01)
    assert many["throughput_ips"] == pytest.approx(1 / many["edge_s"], rel=0.01)
    # An edge begins a request when it is free for it; before the server they queue, by Little's law all in flight.
    for edge_s, server_s in ((0.02, 0.01), (0.01, 0.02)):
        hosts = {"edge": {"per_unit": edge_s}, "server": {"per_unit": server_s}}
        chosen = sweep(points="3", in_flight="1,8", trials=1)
        alone, many = by("in_flight", rows(chosen, world(hosts=hosts, noise=STILL)))
        assert alone["loaded_latency_s"] == pytest.approx(alone["latency_s"], rel=1e-6)
        queue_s = many["in_flight"] / many["throughput_ips"] if edge_s < server_s else alone["latency_s"]
        assert many["loaded_latency_s"] == pytest.approx(queue_s, rel=0.05)


def test_a_trial_is_the_same_whatever_was_measured_before_it_but_in_another_world() -> None:
    both, later = (rows(sweep(points=points, trials=2), world()) for points in ("2,3", "3"))
    figures = ("round", "latency_s", "throughput_ips", "edge_s", "server_s")
    one, other = (
        {tuple(row[name] for name in figures) for row in of if row["point"] == "3"} for of in (both, later)
    )
    assert one == other
    assert len({row["latency_s"] for row in both}) == 4
    first, second = (rows(sweep(), world(seed=seed))[0]["latency_s"] for seed in (0, 1))
    assert first != second


@pytest.mark.parametrize("kind", ["normal", "lognormal", "heavy"])
def test_noise_has_the_size_that_is_stated(kind: str) -> None:
    noise = {"kind": kind, "request": 0.0, "trial": 0.05, "round": 0.0}
    found = rows(sweep(points="7", trials=400), world(noise=noise))
    edge_s = [row["edge_s"] for row in found]
    assert statistics.stdev(edge_s) / statistics.fmean(edge_s) == pytest.approx(0.05, rel=0.35)


@pytest.mark.parametrize(("which", "least", "most"), [("round", 0.999, 1.0), ("trial", -0.2, 0.2)])
def test_noise_is_common_to_a_round_or_each_trial_has_its_own(which: str, least: float, most: float) -> None:
    noise = {**STILL, which: 0.1}
    found = rows(sweep(points="5,6", trials=200), world(noise=noise))
    found.sort(key=lambda row: int(row["round"]))
    ordered = [[row["edge_s"] for row in found if row["point"] == point] for point in ("5", "6")]
    assert least <= np.corrcoef(*ordered)[0, 1] <= most + 1e-9


@pytest.mark.parametrize(
    ("truth", "status", "fault"),
    [({"rate": 0.8}, "invalid", "rate"), ({"delay": 0.01}, "invalid", "RTT"), ({"rate": 0.99}, "ok", "")],
)
def test_a_link_may_be_off_by_the_tolerance(truth: dict[str, float], status: str, fault: str) -> None:
    (row,) = rows(sweep(points="2"), world(link=truth, noise=STILL))
    assert row["status"] == status
    assert fault in row["reason"]


def test_a_share_of_trials_fails_and_a_share_is_wrong() -> None:
    found = rows(sweep(trials=60), world(faults={"failed": 0.1, "invalid": 0.2}))
    statuses = Counter(row["status"] for row in found)
    assert statuses["failed"] / len(found) == pytest.approx(0.1, abs=0.05)
    assert statuses["invalid"] / len(found) == pytest.approx(0.18, abs=0.06)
    assert all("latency_s" not in row for row in found if row["status"] != "ok")


def test_a_host_that_is_gone_for_good_ends_the_run_and_one_that_is_not_there_is_refused() -> None:
    with pytest.raises(Aborted, match="server"):
        rows(sweep(trials=5), world(faults={"lost": "server", "after": 10}))
    with pytest.raises(TestbedError, match="middle1"):
        rows(sweep(), world(hosts={"middle1": {}}))


def test_a_chain_has_a_stage_on_each_host_that_takes_part() -> None:
    found = rows(sweep(hosts=3, points="0+7,2+4,7+7"), world(hosts=HOSTS | {"middle1": {"gflops": 1}}))
    parts = {row["point"]: (row["middle_s"] is None, row["server_s"] is None) for row in found}
    assert parts == {"2+4": (False, False), "0+7": (False, True), "7+7": (True, True)}
    assert all(row["latency_s"] >= 0.999999 * row["latency_bound_s"] for row in found)


def test_a_trace_is_played_and_seen() -> None:
    found = rows(sweep(netem="handover", points="2", trials=2), world())
    assert [row["status"] for row in found] == ["ok", "ok"]
    assert [row["trace_from_s"] for row in found] == pytest.approx([0, 15], abs=0.5)
    assert all(row["trace_to_s"] > row["trace_from_s"] for row in found)


def test_without_a_file_there_is_a_usual_world() -> None:
    usual = load("simulated")
    assert usual == World()
    assert usual.speed("edge").gflops < usual.speed("middle1").gflops < usual.speed("server").gflops


def test_quantities_have_their_units_and_a_file_of_times_stands_in_place_of_flops(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    (tmp_path / "world.yaml").write_text(
        "hosts: {edge: {gflops: 2, per_unit: 30us}}\n"
        "noise: {kind: heavy, request: 10%, trial: 0, round: 0.05}\n"
        "link: {rate: 92%, delay: 3ms}\n"
        "faults: {failed: 2%, invalid: 1%, lost: edge, after: 20}\n"
        "engines: {onnx: 40%}\n"
        "requests: 10\nseed: 7\n"
    )
    found = load(f"simulated:{tmp_path}/world.yaml")
    assert found.record() == snapshot
    assert (found.engine_share("onnx"), found.engine_share("eager")) == (0.4, 1.0)
    (tmp_path / "units.csv").write_text("model,host,unit,seconds\nnet,edge,2,0.25\n")
    (tmp_path / "world.yaml").write_text("hosts: {edge: {gflops: 1, per_unit: 0ms}}\ntimes: units.csv\n")
    found = load(f"simulated:{tmp_path}/world.yaml")
    assert found.unit_times_s("edge", "net", [10**9, 10**9]) == [1.0, 0.25]
    assert found.unit_times_s("server", "net", [0, 0]) == [1e-5, 1e-5]
    assert found.record()["times"] == [["net", "edge", 2, 0.25]]


UNUSABLE = [
    "", "- edge", "hosts: {edge: {gflop: 2}}", "hosts: {edge: {gflops: fast}}", "noise: {request: 3}",
    "noise: {kind: white}", "faults: {after: -1}", "times: nowhere.csv", "times: bad.csv", "times: worse.csv",
    "hosts: [",
]  # fmt: skip


def test_an_unusable_file_is_refused(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    (tmp_path / "bad.csv").write_text("unit,seconds\n1,2\n")
    (tmp_path / "worse.csv").write_text("model,host,unit,seconds\nnet,edge,1,soon\n")
    said = {}
    for text in UNUSABLE:
        (tmp_path / "world.yaml").write_text(text)
        said[text] = refusal(TestbedError, load, f"simulated:{tmp_path}/world.yaml")
    assert said == snapshot


@pytest.mark.parametrize("name", ["simulated:", "simulated:nowhere.yaml"])
def test_a_file_that_is_not_there_is_named(name: str, snapshot: SnapshotAssertion) -> None:
    assert refusal(TestbedError, load, name) == snapshot


@pytest.mark.parametrize(("kind", "middle"), [("normal", 0.6745), ("lognormal", 0.6745), ("heavy", 0.4416)])
def test_half_of_the_noise_is_as_small_as_its_distribution_says(kind: Any, middle: float) -> None:
    """The heavy one's variance, which a few draws decide, tells less."""
    factors = Noise(kind=kind).factors(np.random.default_rng(1), 0.05, (100_000,))
    assert np.median(np.abs(np.log(factors))) == pytest.approx(0.05 * middle, rel=0.02)


STEADY = {"noise": {"request": 0, "trial": 0, "round": 0}}


def of_mobilenet(**options: object) -> Sweep:
    asked = {"model": "mobilenetv2", "netem": "10ms-100mbit", "testbed": "simulated", "trials": 1}
    return canonical(make_sweep({**asked, **options}))


CASES = [*itertools.product((2, 3), ("10ms-100mbit", "200ms-5mbit", "lan-1gbit"))]


@pytest.mark.parametrize("case", gating(CASES, (2, "lan-1gbit"), (3, "200ms-5mbit")))
def test_a_forecast_without_noise_is_what_trials_measure_with_any_codec(case: tuple[int, str]) -> None:
    hosts, netem = case
    points = "0,5,14,21" if hosts == 2 else "0+0,3+10,5+5,8+21,21+21"
    codecs = "none,fp16,int8+zstd" if hosts == 3 else "none,int8,zstd,jpeg"
    asked = {"only": True, "batch_size": "1,2", "edge_cpu": 0.5, "codec": codecs}
    wanted = of_mobilenet(netem=netem, hosts=hosts, points=points, **asked)
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
    wanted = of_mobilenet(batch_size="1,4")
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

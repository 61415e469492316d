"""Trials of a simulated testbed: what they depend on, what is measured of them, and what goes wrong on purpose."""

from __future__ import annotations

import statistics
from collections import Counter

import numpy as np
import pytest

from pareto.driver.runner import Aborted
from pareto.hosts.host import TestbedError
from pareto.remote.link.probe import GOODPUT
from pareto.trial.store import Row
from tests.unit.simulated.study import rows
from tests.unit.simulated.worlds import HOSTS, POINTS, STILL, sweep, world


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


def test_hosts_between_decode_and_encode() -> None:
    wanted = sweep(points="2+4", hosts=3, codec="none,fp16")
    coded, plain = by("codec", rows(wanted, world(noise=STILL)))
    assert coded["middle_s"] == pytest.approx(plain["middle_s"])
    assert coded["decode_s"] > 0
    assert coded["status"] == plain["status"] == "ok"


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

"""What a trial measures on a real testbed: the payload crosses, phases overlap, a wrong link is noticed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from pareto.cell import Cell
from pareto.checked_sweep import make_sweep
from pareto.hosts.host import EDGE, MIDDLE, SERVER
from pareto.hosts.local_testbed import open_local
from pareto.hosts.session import SessionError
from pareto.link import probe
from pareto.link.netem import PACKET_BYTES
from pareto.link.profile import Profile
from pareto.messages import LoadModel
from pareto.plan import Effort, Trial
from pareto.prepare import Prepared, canonical, prepare
from pareto.profile_files import load
from pareto.trial import TrialResult, stage_rows, trial_row
from pareto.workers import Workers
from tests.integration.test_sweep import sound
from tests.less_than_root import needs_networks

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    needs_networks,
]

MODEL = "mobilenet_v2"
BACKENDS = ("tcp", "tcp:4", "tcp:tls", "tcp:4:aes-gcm", "rpc", "rpc:basic")
EFFORT = Effort(latency=(5, 0.3), throughput=(8, 0.3))
BUSY = probe.Tolerance(rtt_floor_s=0.015, rate_fraction=0.3)
"""Also where other programs keep this machine from its work."""
SWEEP = canonical(make_sweep({"model": MODEL, "netem": "none"}))


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    return prepare(MODEL, SWEEP)


def workers_of(prepared: Prepared, hosts: int) -> Iterator[Workers]:
    with (
        closing(open_local(hosts=hosts)) as bed,
        closing(Workers(bed, {MODEL: prepared}, BACKENDS)) as workers,
    ):
        workers.start()
        yield workers


@pytest.fixture(scope="module")
def workers(prepared: Prepared) -> Iterator[Workers]:
    yield from workers_of(prepared, 2)


@pytest.fixture(scope="module")
def chain(prepared: Prepared) -> Iterator[Workers]:
    yield from workers_of(prepared, 3)


def cell(prepared: Prepared, backend: str, netem: str, *cuts: int) -> Cell:
    name = "+".join(prepared.facts.points[cut][0] for cut in cuts)
    return Cell(MODEL, cuts, name, backend, netem, 1)


def measure(
    workers: Workers,
    it: Cell,
    *network: Profile,
    meanwhile: Callable[[], object] = lambda: None,
    effort: Effort = EFFORT,
) -> tuple[TrialResult, dict[str, Any]]:
    """What each host's worker says of a trial, and the row it makes. `meanwhile` is called before the trial."""

    def probed() -> list[probe.Probed]:
        """As the runner does, once more where a reading is off."""
        readings = []
        for link, profile in zip(workers.links, network, strict=True):
            reading, _ = workers.probed(link, profile, BUSY)
            readings.append(workers.probed(link, profile, BUSY)[0] if reading.fault else reading)
        return readings

    workers.ready(it, network)
    before = probed()
    meanwhile()
    result = workers.trial(Trial(it, 1, 0.2, 5.0, effort), network)
    assert isinstance(result, TrialResult)
    names = [link.name for link in workers.links]
    probes = dict(zip(names, zip(before, probed(), strict=True), strict=True))
    return result, trial_row(it, workers.crossings(it, network), result, probes, slowed=100.0, others=1.0)


def measured(workers: Workers, it: Cell, *network: Profile) -> tuple[TrialResult, dict[str, Any]]:
    """A trial in which nothing was wrong but what else keeps this machine busy."""
    result, row = measure(workers, it, *network)
    assert sound(row), row["reason"]
    assert row["max_abs_error"] <= 1e-3
    return result, row


def sent_once(result: TrialResult, role: str) -> int:
    """Bytes that a host sent, without the packets of TCP that it sent again."""
    usage = result.hosts[role].usage
    assert usage.sent_bytes is not None
    assert usage.retransmits is not None
    return usage.sent_bytes - usage.retransmits * PACKET_BYTES


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_payload_crosses_the_link(workers: Workers, prepared: Prepared, backend: str) -> None:
    """By the interface's own counters: TensorPipe would rather go through memory where both ends share a machine."""
    profile = load("5ms-50mbit")
    result, row = measured(workers, cell(prepared, backend, profile.name, 5), profile)
    requests = row["latency_requests"] + row["throughput_requests"]
    payload = prepared.facts.points[5][1]
    assert result.edge.payload_bytes == payload == 100_352
    assert requests * payload <= result.edge.sent_bytes
    assert sent_once(result, EDGE) < 1.15 * requests * payload
    assert row["latency_s"] >= row["latency_bound_s"] > payload * 8 / 50e6 + 0.005
    # TensorPipe has a connection more, for what is no tensor; that it sends by 16 beside one another is its own choice.
    connections = {"tcp": [1], "tcp:4": [4], "rpc": [17, 18], "rpc:basic": [2]}
    connections |= {"tcp:tls": [1], "tcp:4:aes-gcm": [4]}
    assert row["tcp_connections"] in connections[backend]


@pytest.mark.parametrize("backend", ["tcp", "rpc"])
def test_a_chain_of_three_hosts_sends_each_payload_over_its_own_link(
    chain: Workers, prepared: Prepared, backend: str
) -> None:
    network = load("5ms-50mbit"), load("10ms-20mbit")
    it = cell(prepared, backend, "5ms-50mbit+10ms-20mbit", 5, 13)
    result, row = measured(chain, it, *network)
    requests = row["latency_requests"] + row["throughput_requests"]
    payloads = [prepared.facts.points[cut][1] for cut in it.cuts]
    for role, payload in zip((EDGE, f"{MIDDLE}1"), payloads, strict=True):
        assert requests * payload <= result.hosts[role].usage.sent_bytes
        assert sent_once(result, role) < 1.2 * requests * payload + 20_000
    parts = [row[name] for name in ("edge_s", "middle_s", "server_s", "network_s", "serialize_s")]
    assert all(part > 0 for part in parts)
    assert (
        row["latency_s"] >= row["latency_bound_s"] > 0.015 + payloads[0] * 8 / 50e6 + payloads[1] * 8 / 20e6
    )
    for each in stage_rows(it, chain.crossings(it, network), result, {}):
        assert 0 < each["utilization"] <= 1
        assert each["bubble_s"] >= 0


def test_a_chain_may_end_in_the_middle_and_its_middle_may_have_nothing_to_do(
    chain: Workers, prepared: Prepared
) -> None:
    network = (load("5ms-50mbit"),) * 2
    last = len(prepared.facts.points) - 1
    for cuts, taking_part in {(10, last): 2, (10, 10): 3, (last, last): 1}.items():
        result, row = measured(chain, cell(prepared, "rpc", "5ms-50mbit", *cuts), *network)
        assert len(result.edge.stages_s) == taking_part - 1
        assert (row["server_s"] is None) == (taking_part < 3)
        assert (result.hosts[SERVER].weights_bytes == 0) == (taking_part < 3)


def test_a_link_that_is_not_what_the_profile_says_makes_the_trial_invalid(
    workers: Workers, prepared: Prepared
) -> None:
    asked, real = load("5ms-50mbit"), load("25ms-50mbit")
    it = cell(prepared, "tcp", asked.name, 16)
    shaper = workers.links[0].shaper
    try:  # somebody else's hand on the link
        _, row = measure(workers, it, asked, meanwhile=lambda: shaper.apply(real))
    finally:
        shaper.apply(asked)
    assert row["status"] == "invalid"
    assert "RTT" in row["reason"]


@pytest.mark.parametrize("backend", ["tcp:4", "rpc"])
def test_what_tcp_had_to_send_again_is_told(workers: Workers, prepared: Prepared, backend: str) -> None:
    """A thousand packets, of which one in fifty is lost, by a seed."""
    profile, link = load("5ms-50mbit-2%"), workers.links[0]
    it = cell(prepared, backend, profile.name, 5)
    result, row = measure(workers, it, profile, meanwhile=lambda: link.shaper.seed(7))
    assert row["tcp_retransmits"] > 0
    assert row["retransmits"] > 0  # the host's own count
    assert row["congestion"] == workers._testbed.facts["congestion_control"]
    assert row["tcp_min_rtt_s"] >= 0.0049
    assert result.edge.tcp.tcp_cwnd_packets > 0


def test_all_on_the_edge_sends_nothing(workers: Workers, prepared: Prepared) -> None:
    profile = load("5ms-50mbit")
    last = len(prepared.facts.points) - 1
    result, row = measured(workers, cell(prepared, "rpc", profile.name, last), profile)
    assert (result.edge.payload_bytes, result.edge.result_bytes) == (0, 0)
    assert row["server_s"] is None
    assert result.edge.tcp is None


def test_other_weights_on_a_host_are_refused(workers: Workers, prepared: Prepared, tmp_path: Path) -> None:
    """What arrives must be what was sent, by its digest."""
    damaged = tmp_path / "weights"
    content = bytearray(prepared.weights.path.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    remote = workers._testbed.remotes["edge"]
    path = remote.ship(damaged, "damaged.safetensors")
    with pytest.raises(SessionError, match="arrived damaged"):
        workers._sessions["edge"].ask(
            LoadModel(asdict(prepared.recipe), {path: prepared.weights.digest}, prepared.weights.digest, [])
        )

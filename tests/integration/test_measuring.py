"""What a trial measures on real parts, and what it notices: each payload crosses its link; another link than it says,
another split and stale weights are never `ok`.

A chain of three hosts in namespaces, with relays, workers and sockets. By how little something may be off and is still
found: tests/unit/link/test_probe.py and tests/unit/test_trial.py on readings, tests/measure/test_trials.py here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from typing import Any

import pytest

from pareto.hosts.host import EDGE, MIDDLE, SERVER
from pareto.hosts.local.testbed import open_local
from pareto.hosts.session import SessionError
from pareto.models.prepare import Prepared, canonical, prepare
from pareto.protocol.messages import LoadModel
from pareto.protocol.trial_messages import WrongOutput
from pareto.remote.link import probe
from pareto.remote.link.netem import PACKET_BYTES
from pareto.remote.link.profile import Profile
from pareto.sweep.cell import Cell
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.plan import Effort, Trial
from pareto.sweep.profile_files import load
from pareto.sweep.sweep import Sweep
from pareto.trial.result import TrialResult
from pareto.trial.rows import stage_rows, trial_row
from pareto.trial.workers import LOAD_TIMEOUT_S, Workers
from tests.integration.test_sweep import sound
from tests.less_than_root import needs_networks

pytestmark = [pytest.mark.integration, needs_networks]

NET = """
from torch import nn

input_shape = (3, 64, 64)


def build():
    steps = nn.Conv2d(3, 32, 10, stride=2), nn.Conv2d(32, 32, 2, stride=2)
    return nn.Sequential(*(nn.Sequential(step, nn.ReLU()) for step in steps), nn.Flatten(), nn.Linear(6272, 10))
"""
LARGE, SMALL, LAST = 1, 2, 3
PAYLOADS = {LARGE: 100_352, SMALL: 25_088}
MIDDLE1 = f"{MIDDLE}1"
CONNECTIONS = {"gloo": [1], "tcp": [1], "tcp:4": [4], "tcp:tls": [1], "tcp:4:tls": [4]} | {
    "rpc": [17, 18],
    "rpc:basic": [2],
    "rpc:threads=4": [17, 18],
    **({"zmq": [1]} if find_spec("zmq") else {}),
}
"""Those that carry payloads. TensorPipe has a connection more, for what is no tensor; to send by 16 beside one another
is its own choice."""
EFFORT = Effort(latency=(5, 0.05), throughput=(8, 0.05))
LINK, SLOW = load("5ms-50mbit"), load("10ms-20mbit")
BUSY = probe.Tolerance(rtt_floor_s=0.015, rate_fraction=0.3)
"""Also where other programs keep this machine from its work."""


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """A sweep of a model that costs next to nothing."""
    file = tmp_path_factory.mktemp("model") / "quick.py"
    file.write_text(NET)
    return canonical(make_sweep({"model": f"{file}:build", "netem": "none"}))


@pytest.fixture(scope="module")
def prepared(sweep: Sweep) -> Prepared:
    made = prepare(sweep.models[0], sweep)
    assert {cut: made.facts.points[cut][1] for cut in PAYLOADS} == PAYLOADS
    return made


@pytest.fixture(scope="module")
def workers(prepared: Prepared) -> Iterator[Workers]:
    models = {prepared.name: prepared}
    with closing(open_local(hosts=3)) as bed, closing(Workers(bed, models, tuple(CONNECTIONS))) as workers:
        workers.start()
        yield workers


def cell(prepared: Prepared, backend: str, *cuts: int, network: tuple[Profile, ...] = (LINK, SLOW)) -> Cell:
    name = "+".join(prepared.facts.points[cut][0] for cut in cuts)
    return Cell(prepared.name, cuts, name, backend, "+".join(each.name for each in network), 1)


def measure(
    workers: Workers,
    it: Cell,
    network: tuple[Profile, ...] = (LINK, SLOW),
    *,
    meanwhile: Callable[[], object] = lambda: None,
    done: Cell | None = None,
    effort: Effort = EFFORT,
) -> tuple[TrialResult | WrongOutput, dict[str, Any]]:
    """A trial's result, and the row it makes, the links probed before and after as the runner does.

    meanwhile: called before all of it. done: the cell that is really measured.
    """

    def probed() -> list[probe.Probed]:
        """Once more where a reading is off."""
        readings = []
        for link, profile in zip(workers.links, network, strict=True):
            reading, _ = workers.probed(link, profile, BUSY)
            readings.append(workers.probed(link, profile, BUSY)[0] if reading.fault else reading)
        return readings

    workers.ready(it, network)
    meanwhile()
    before = probed()
    result = workers.trial(Trial(done or it, 1, 0.2, 5.0, effort), network)
    names = [link.name for link in workers.links]
    probes = dict(zip(names, zip(before, probed(), strict=True), strict=True))
    row = trial_row(it, workers.crossings(it, network), result, probes, slowed=100.0, others=1.0)
    return result, row


def measured(workers: Workers, it: Cell) -> tuple[TrialResult, dict[str, Any]]:
    """A trial in which nothing was wrong but what else keeps this machine busy."""
    result, row = measure(workers, it)
    assert isinstance(result, TrialResult)
    assert sound(row), row["reason"]
    assert row["max_abs_error"] <= 1e-3
    return result, row


@pytest.mark.parametrize("backend", CONNECTIONS)
def test_each_payload_crosses_its_own_link(workers: Workers, prepared: Prepared, backend: str) -> None:
    """By the interface's own counters: TensorPipe would rather go through memory where both ends share a machine."""
    it = cell(prepared, backend, LARGE, SMALL)
    result, row = measured(workers, it)
    requests = row["latency_requests"] + row["throughput_requests"]
    more = {EDGE: (1.15, 0), MIDDLE1: (1.2, 20_000)}
    for (role, (share, once)), payload in zip(more.items(), PAYLOADS.values(), strict=True):
        usage = result.hosts[role].usage
        assert requests * payload <= usage.sent_bytes
        again = usage.retransmits * PACKET_BYTES  # what TCP sent once more
        assert usage.sent_bytes - again < share * requests * payload + once
    assert result.edge.payload_bytes == PAYLOADS[LARGE]
    assert min(row[name] for name in ("edge_s", "middle_s", "server_s", "network_s", "serialize_s")) > 0
    crossing_s = PAYLOADS[LARGE] * 8 / 50e6 + PAYLOADS[SMALL] * 8 / 20e6
    assert row["latency_s"] >= row["latency_bound_s"] > 0.015 + crossing_s
    assert row["tcp_connections"] in CONNECTIONS[backend]
    for each in stage_rows(it, workers.crossings(it, (LINK, SLOW)), result, {}):
        assert 0 < each["utilization"] <= 1
        assert each["bubble_s"] >= 0


@pytest.mark.parametrize(
    ("cuts", "taking_part"), [((SMALL, LAST), 2), ((SMALL, SMALL), 3), ((LAST, LAST), 1)]
)
def test_a_chain_may_end_early_and_its_middle_may_have_nothing_to_do(
    workers: Workers, prepared: Prepared, cuts: tuple[int, int], taking_part: int
) -> None:
    result, row = measured(workers, cell(prepared, "rpc", *cuts))
    assert len(result.edge.stages_s) == taking_part - 1
    assert (row["server_s"] is None) == (taking_part < 3)
    assert (result.hosts[SERVER].weights_bytes == 0) == (taking_part < 3)
    if taking_part == 1:
        assert (result.edge.payload_bytes, result.edge.result_bytes, result.edge.tcp) == (0, 0, None)


@pytest.mark.parametrize("backend", ["tcp:4", "rpc"])
def test_what_tcp_had_to_send_again_is_told(workers: Workers, prepared: Prepared, backend: str) -> None:
    """Hundreds of packets, of which one in fifty is lost, by a seed."""
    network = load("5ms-50mbit-2%"), LINK
    shaper = workers.links[0].shaper
    it = cell(prepared, backend, LARGE, SMALL, network=network)
    result, row = measure(workers, it, network, meanwhile=lambda: shaper.seed(7))
    assert isinstance(result, TrialResult)
    assert row["tcp_retransmits"] > 0
    assert row["retransmits"] > 0  # the host's own count
    assert row["congestion"] == workers._testbed.facts["congestion_control"]
    assert row["tcp_min_rtt_s"] >= 0.0049
    assert result.edge.tcp.tcp_cwnd_packets > 0


# What is not so


def test_a_link_that_is_later_than_it_says(workers: Workers, prepared: Prepared) -> None:
    """However disturbed the machine is: no echo is early, and 25 ms are none of 5."""
    shaper = workers.links[0].shaper
    real = load("25ms-50mbit")
    try:  # somebody else's hand on the link
        _, row = measure(workers, cell(prepared, "tcp", LARGE, SMALL), meanwhile=lambda: shaper.apply(real))
    finally:
        shaper.apply(LINK)
    assert row["status"] == "invalid"
    for when in ("before", "after"):
        assert f"off {when} the trial: RTT" in row["reason"]


@pytest.mark.parametrize("backend", ["tcp", "rpc"])
def test_a_smaller_tensor_sent_than_the_cut_says(workers: Workers, prepared: Prepared, backend: str) -> None:
    """A later cut's, so that the results are right: the interfaces' counters know what crossed."""
    said, done = (cell(prepared, backend, cut, cut) for cut in (LARGE, SMALL))
    _, row = measure(workers, said, done=done)
    assert row["max_abs_error"] <= 1e-3
    assert row["status"] == "invalid"
    assert "data interface sent" in row["reason"]


@pytest.fixture(scope="module")
def stale(sweep: Sweep) -> Prepared:
    return prepare(sweep.models[0], sweep.model_copy(update={"seed": sweep.seed + 1}))


@contextmanager
def stale_on(workers: Workers, prepared: Prepared, stale: Prepared, *roles: str) -> Iterator[None]:
    """Another seed's weights, whole and with their own digest, beside the inputs and results of now."""
    for role in roles:
        remote, digest = workers._testbed.remotes[role], stale.weights.digest
        path = remote.ship(stale.weights.path, f"{digest}.safetensors")
        data = [remote.ship(each.path, f"{each.digest}.safetensors") for each in prepared.data.values()]
        request = LoadModel(asdict(stale.recipe), {path: digest}, digest, data if role == EDGE else [])
        workers._sessions[role].ask(request, LOAD_TIMEOUT_S)
    try:
        yield
    finally:
        workers._loaded = workers._network = None  # loaded and connected anew


@pytest.mark.parametrize("backend", ["tcp", pytest.param("rpc", marks=pytest.mark.deep)])
def test_stale_weights(workers: Workers, prepared: Prepared, stale: Prepared, backend: str) -> None:
    """The two ends say which weights they have before anything is measured. Where all hosts have the stale ones they
    agree, and their results are not the whole model's."""
    it = cell(prepared, backend, LARGE, SMALL)
    workers.ready(it, (LINK, SLOW))
    with stale_on(workers, prepared, stale, SERVER), pytest.raises(SessionError, match="another model"):
        measure(workers, it)
    workers.ready(it, (LINK, SLOW))
    with stale_on(workers, prepared, stale, EDGE, MIDDLE1, SERVER):
        _, row = measure(workers, it)
    assert row["status"] == "invalid"
    assert "output differs" in row["reason"]

"""Somebody's hand on what is measured: a link that is not what it says, another split, stale weights. None may be `ok`.

On real parts: namespaces, the relay, both workers, sockets. The link is tampered with behind the harness' back, by a
shaper that puts another profile in force than it was given. By how little it may be off and is still found:
tests/unit/link/test_probe.py and tests/unit/test_trial.py on readings, tests/measure/test_tampering.py on this machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, replace
from typing import Any

import pytest

from pareto.cell import Cell
from pareto.checked_sweep import make_sweep
from pareto.hosts.host import EDGE, SERVER
from pareto.hosts.local_testbed import open_local
from pareto.hosts.session import SessionError
from pareto.hosts.shaping import RelayShaper
from pareto.link.probe import Tolerance
from pareto.link.profile import Direction, Profile
from pareto.messages import LoadModel
from pareto.plan import Effort, Trial
from pareto.prepare import Prepared, canonical, prepare
from pareto.profile_files import load
from pareto.sweep import Sweep
from pareto.trial import trial_row
from pareto.workers import LOAD_TIMEOUT_S, Workers
from tests.less_than_root import needs_networks

pytestmark = [
    pytest.mark.integration,
    needs_networks,
]

EFFORT = Effort(latency=(8, 0.3), throughput=(4, 0.3))
POINT = 1
NET = """
from torch import nn

input_shape = (3, 128, 128)


def build():
    return nn.Sequential(nn.Conv2d(3, 4, 3, 4), nn.ReLU(), nn.Flatten(), nn.Linear(4096, 10))
"""
LINK = load("10ms-20mbit")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """Of a model that costs next to nothing, and whose cut shrinks what crosses to a twelfth."""
    file = tmp_path_factory.mktemp("model") / "quick.py"
    file.write_text(NET)
    return canonical(make_sweep({"model": f"{file}:build", "netem": "none"}))


@pytest.fixture(scope="module")
def prepared(sweep: Sweep) -> Prepared:
    return prepare(sweep.models[0], sweep)


@pytest.fixture(scope="module")
def workers(prepared: Prepared) -> Iterator[Workers]:
    models = {prepared.name: prepared}
    with closing(open_local()) as bed, closing(Workers(bed, models, ("tcp", "rpc"))) as workers:
        workers.start()
        yield workers


def cell(prepared: Prepared, point: int, backend: str = "tcp") -> Cell:
    return Cell(prepared.name, (point,), prepared.facts.points[point][0], backend, LINK.name, 1)


def measured(workers: Workers, it: Cell, done: Cell | None = None) -> dict[str, Any]:
    """The row of a trial, its link probed as the runner does. `done`: the cell that is really measured."""
    (link,) = workers.links
    workers.ready(it, [LINK])
    first, _ = workers.probed(link, LINK, Tolerance())
    told = workers.trial(Trial(done or it, 1, 0.2, 5.0, EFFORT), [LINK])
    last, _ = workers.probed(link, LINK, Tolerance())
    return trial_row(it, workers.crossings(it, [LINK]), told, {link.name: (first, last)})


def test_a_link_that_is_later_than_it_says(
    workers: Workers, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However disturbed the machine is: no echo is early, and 30 ms are none of 10."""
    honest = RelayShaper.apply

    def later(shaper: RelayShaper, profile: Profile) -> dict[str, Any]:
        return honest(shaper, replace(profile, server_to_edge=Direction(0.02)))

    with monkeypatch.context() as patched:
        patched.setattr(RelayShaper, "apply", later)
        workers._network = None  # the links are shaped anew
        row = measured(workers, cell(prepared, POINT))
    workers._network = None
    assert row["status"] == "invalid"
    for when in ("before", "after"):
        assert f"link off {when} the trial: RTT" in row["reason"]


@pytest.mark.parametrize("backend", ["tcp", "rpc"])
def test_a_smaller_tensor_sent_than_the_cut_says(workers: Workers, prepared: Prepared, backend: str) -> None:
    """A later cut's, so that the results are right: the interfaces' counters know what crossed."""
    said, done = (cell(prepared, point, backend) for point in (0, POINT))
    sizes = [prepared.facts.points[point][1] for point in (0, POINT)]
    assert sizes[0] > sizes[1]
    row = measured(workers, said, done)
    assert row["max_abs_error"] <= 1e-3
    assert row["status"] == "invalid"
    assert "data interface sent" in row["reason"]


def load_stale(workers: Workers, prepared: Prepared, stale: Prepared, *roles: str) -> None:
    """Another seed's weights, whole and with their own digest, beside the inputs and results of now."""
    for role in roles:
        remote = workers._testbed.remotes[role]
        digest = stale.weights.digest
        path = remote.ship(stale.weights.path, f"{digest}.safetensors")
        data = [remote.ship(each.path, f"{each.digest}.safetensors") for each in prepared.data.values()]
        request = LoadModel(asdict(stale.recipe), {path: digest}, digest, data if role == EDGE else [])
        workers._sessions[role].ask(request, LOAD_TIMEOUT_S)


@pytest.fixture(scope="module")
def stale(sweep: Sweep) -> Prepared:
    return prepare(sweep.models[0], sweep.model_copy(update={"seed": sweep.seed + 1}))


@pytest.mark.parametrize("backend", ["tcp", "rpc"])
def test_stale_weights_on_the_server(
    workers: Workers, prepared: Prepared, stale: Prepared, backend: str
) -> None:
    """The two ends say which weights they have before anything is measured."""
    it = cell(prepared, POINT, backend)
    workers.ready(it, [LINK])
    load_stale(workers, prepared, stale, SERVER)
    try:
        with pytest.raises(SessionError, match="another model"):
            measured(workers, it)
    finally:
        workers._model = workers._network = None  # loaded and connected anew


def test_stale_weights_on_all_hosts(workers: Workers, prepared: Prepared, stale: Prepared) -> None:
    """Both ends agree, and their results are not the whole model's."""
    it = cell(prepared, POINT)
    workers.ready(it, [LINK])
    load_stale(workers, prepared, stale, EDGE, SERVER)
    try:
        row = measured(workers, it)
    finally:
        workers._model = workers._network = None  # loaded and connected anew
    assert row["status"] == "invalid"
    assert "output differs" in row["reason"]

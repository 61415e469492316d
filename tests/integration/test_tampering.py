"""Somebody's hand on what is measured: a link that is not what it says, another split, stale weights. None may be `ok`.

On real parts: namespaces, the relay, both workers, sockets. The link is tampered with behind the harness' back, by a
shaper that puts another profile in force than it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from typing import Any

import pytest

from pareto.cell import Cell
from pareto.checked_sweep import make_sweep
from pareto.faults import crossed_late
from pareto.hosts.host import EDGE, SERVER
from pareto.hosts.local_testbed import open_local
from pareto.hosts.session import SessionError
from pareto.hosts.shaping import RelayShaper
from pareto.link.probe import Probed, Tolerance
from pareto.link.profile import Direction, Profile
from pareto.messages import LoadModel
from pareto.plan import Effort, Trial
from pareto.prepare import Prepared, canonical, prepare
from pareto.profile_files import load
from pareto.runner import MOST_READINGS
from pareto.trial import TrialResult, trial_row
from pareto.workers import LOAD_TIMEOUT_S, Workers
from tests.less_than_root import needs_networks

pytestmark = [
    pytest.mark.integration,
    needs_networks,
]

MODEL = "mobilenet_v2"
EFFORT = Effort(latency=(8, 0.3), throughput=(4, 0.3))
SWEEP = canonical(make_sweep({"model": MODEL, "netem": "none"}))
LINK = load("10ms-20mbit")
Change = Callable[[Profile], Profile]
TRIES = 6
"""On a machine that others keep busy a reading may be off by itself."""


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    return prepare(MODEL, SWEEP)


@pytest.fixture(scope="module")
def workers(prepared: Prepared) -> Iterator[Workers]:
    with closing(open_local()) as bed, closing(Workers(bed, {MODEL: prepared}, ("tcp", "rpc"))) as workers:
        workers.start()
        yield workers


def out_at(rate: float) -> Change:
    """That many times the rate away from the edge."""

    def change(profile: Profile) -> Profile:
        way = profile.edge_to_server
        assert way.rate_bps is not None
        return replace(profile, edge_to_server=replace(way, rate_bps=rate * way.rate_bps))

    return change


def later_by(seconds: float) -> Change:
    def change(profile: Profile) -> Profile:
        back = replace(profile.server_to_edge, delay_s=profile.server_to_edge.delay_s + seconds)
        return replace(profile, server_to_edge=back)

    return change


@contextmanager
def tampered(workers: Workers, change: Change, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever profile is put on a link from now on is another one."""
    honest = RelayShaper.apply
    with monkeypatch.context() as patched:
        patched.setattr(RelayShaper, "apply", lambda shaper, profile: honest(shaper, change(profile)))
        workers._network = None  # the links are shaped anew
        yield
    workers._network = None


def cell(prepared: Prepared, point: int, netem: Profile = LINK, backend: str = "tcp") -> Cell:
    return Cell(MODEL, (point,), prepared.facts.points[point][0], backend, netem.name, 1)


def measured(
    workers: Workers,
    it: Cell,
    profile: Profile = LINK,
    *,
    before: Callable[[], object] = lambda: None,
    after: Callable[[], object] = lambda: None,
    done: Cell | None = None,
) -> dict[str, Any]:
    """The row of a trial, its link probed as the runner does. `done`: the cell that is really measured."""
    (link,) = workers.links

    def probed() -> Probed:
        for _ in range(MOST_READINGS):
            found, _ = workers.probed(link, profile, Tolerance())
            if not found.fault:
                break
        return found

    workers.ready(it, [profile])
    first = probed()
    before()
    told = workers.trial(Trial(done or it, 1, 0.2, 5.0, EFFORT), [profile])
    after()
    crossed, probes, idle_s = workers.crossings(it, [profile]), {link.name: (first, probed())}, None
    if isinstance(told, TrialResult) and crossed_late(it, crossed, told, probes, Tolerance()):
        idle_s = workers.idle_crossing_s(link, crossed[0])
    return trial_row(it, crossed, told, probes, idle_s=idle_s)


@pytest.mark.alone
def test_an_honest_link_is_not_off(workers: Workers, prepared: Prepared) -> None:
    """Its hosts may be, on a machine that is kept busy."""
    for _ in range(TRIES):
        row = measured(workers, cell(prepared, 3))
        if "link off" not in row["reason"]:
            break
    assert "link off" not in row["reason"]
    assert row["loaded_rate_bps"] == pytest.approx(row["rate_bps"], rel=0.06)


@pytest.mark.alone
@pytest.mark.parametrize("rate", [0.97, 1.03])
def test_a_relay_whose_rate_is_off(
    workers: Workers, prepared: Prepared, monkeypatch: pytest.MonkeyPatch, rate: float
) -> None:
    with tampered(workers, out_at(rate), monkeypatch):
        row = measured(workers, cell(prepared, 3))
    assert row["status"] == "invalid"
    assert "rate edge to server" in row["reason"]


@pytest.mark.alone
@pytest.mark.parametrize("rate", [0.97, 1.03])
def test_a_gigabit_relay_whose_rate_is_off(
    workers: Workers, prepared: Prepared, monkeypatch: pytest.MonkeyPatch, rate: float
) -> None:
    """At which a quarter of the readings from first to last arrival lay above the wire's rate."""
    gigabit = load("lan-1gbit")
    with tampered(workers, out_at(rate), monkeypatch):
        row = measured(workers, cell(prepared, 3, gigabit), gigabit)
    assert row["status"] == "invalid"
    assert "rate edge to server" in row["reason"]


@pytest.mark.alone
@pytest.mark.parametrize("seconds", [0.001, -0.001])
def test_a_relay_whose_delay_is_off_by_a_millisecond(
    workers: Workers, prepared: Prepared, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    twenty = Profile("20ms", Direction(0.01), Direction(0.01))
    with tampered(workers, later_by(seconds), monkeypatch):
        row = measured(workers, cell(prepared, 5, twenty), twenty)
    assert row["status"] == "invalid"
    assert "RTT" in row["reason"]


@pytest.mark.alone
def test_a_relay_that_is_slow_only_while_the_trial_runs(workers: Workers, prepared: Prepared) -> None:
    """Both probes find what was asked."""
    shaper = workers.links[0].shaper

    def once() -> dict[str, Any]:
        return measured(
            workers,
            cell(prepared, 3),
            before=lambda: shaper.apply(out_at(0.92)(LINK)),
            after=lambda: shaper.apply(LINK),
        )

    for _ in range(TRIES):
        row = once()
        assert row["status"] == "invalid"
        link_is_off = [when for when in ("before", "during", "after") if f"off {when}" in row["reason"]]
        if link_is_off == ["during"]:
            break
    assert link_is_off == ["during"]


@pytest.mark.parametrize("backend", ["tcp", "rpc"])
def test_a_smaller_tensor_sent_than_the_cut_says(workers: Workers, prepared: Prepared, backend: str) -> None:
    """A later cut's, so that the results are right: the interfaces' counters know what crossed."""
    said, done = (cell(prepared, point, backend=backend) for point in (1, 16))
    sizes = [prepared.facts.points[point][1] for point in (1, 16)]
    assert sizes[0] > sizes[1]
    row = measured(workers, said, done=done)
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
def stale() -> Prepared:
    return prepare(MODEL, SWEEP.model_copy(update={"seed": SWEEP.seed + 1}))


@pytest.mark.parametrize("backend", ["tcp", "rpc"])
def test_stale_weights_on_the_server(
    workers: Workers, prepared: Prepared, stale: Prepared, backend: str
) -> None:
    """The two ends say which weights they have before anything is measured."""
    it = cell(prepared, 5, backend=backend)
    workers.ready(it, [LINK])
    load_stale(workers, prepared, stale, SERVER)
    try:
        with pytest.raises(SessionError, match="another model"):
            measured(workers, it)
    finally:
        workers.close()


def test_stale_weights_on_all_hosts(workers: Workers, prepared: Prepared, stale: Prepared) -> None:
    """Both ends agree, and their results are not the whole model's."""
    it = cell(prepared, 5)
    workers.ready(it, [LINK])
    load_stale(workers, prepared, stale, EDGE, SERVER)
    try:
        row = measured(workers, it)
    finally:
        workers.close()
    assert row["status"] == "invalid"
    assert "output differs" in row["reason"]

"""How near a trial on a real testbed comes to physics and to the plan: overlap, latency, estimate, units, costs.

And by how little a link may be off until the probe and a trial's own transfers find it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from pareto.hosts.local.testbed import open_local
from pareto.hosts.shapers import RelayShaper
from pareto.models.prepare import Prepared, canonical, prepare
from pareto.remote.link.probe import GOODPUT, Tolerance
from pareto.remote.link.profile import Direction, Profile
from pareto.sweep import plan
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.plan import Effort, Trial
from pareto.sweep.profile_files import load
from pareto.trial.result import TrialResult
from pareto.trial.rows import trial_row
from pareto.trial.workers import Workers
from tests.integration.test_measuring import BUSY, cell, measure
from tests.less_than_root import needs_networks
from tests.measure.conftest import Figures

pytestmark = needs_networks

MODEL = "mobilenet_v2"
LINK, GIGABIT = load("10ms-20mbit"), load("lan-1gbit")
TWENTY = Profile("20ms", Direction(0.01), Direction(0.01))


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    return prepare(MODEL, canonical(make_sweep({"model": MODEL, "netem": "none"})))


@pytest.fixture(scope="module")
def workers(prepared: Prepared) -> Iterator[Workers]:
    with closing(open_local()) as bed, closing(Workers(bed, {MODEL: prepared}, ("tcp", "rpc"))) as workers:
        workers.start()
        yield workers


@pytest.mark.parametrize("backend", ["tcp", "rpc"])
def test_compute_and_transfer_overlap(
    workers: Workers, prepared: Prepared, figures: Figures, backend: str
) -> None:
    """A link on which the payload takes about as long as all computing: one after the other would be 1."""
    rate_mbit = max(1, round(prepared.facts.points[10][1] * 8 / prepared.facts.compute_s / 1e6))
    network = (load(f"5ms-{rate_mbit}mbit"),)
    effort = Effort(latency=(5, 0.3), throughput=(8, 0.3))
    _, row = measure(workers, cell(prepared, backend, 10, network=network), network, effort=effort)
    gain = row["throughput_ips"] * row["latency_s"]
    figures.state(f"overlap: gain over one after the other, {backend}", gain, least=1.5)


def test_latency_is_near_its_bound_on_a_slow_link(
    workers: Workers, prepared: Prepared, figures: Figures
) -> None:
    """No slow start, no wait for an acknowledgement, no queueing in super-packets: what is left is physics."""
    network = (load("200ms-5mbit"),)
    it = cell(prepared, "tcp", 13, network=network)
    result, _ = measure(workers, it, network, effort=Effort(latency=(8, 0.3), throughput=(1, 0.1)))
    assert isinstance(result, TrialResult)
    (crossing,) = workers.crossings(it, network)
    over = 100 * min(result.networks_s) / crossing.least_s
    figures.state("latency: of the link, against its least", over, "%", least=100, most=110)


def test_an_estimate_is_what_the_trial_takes(workers: Workers, prepared: Prepared, figures: Figures) -> None:
    name = "50ms-20mbit"
    chosen = {"model": MODEL, "netem": name, "points": "1", "only": True, "backend": "tcp", "trials": 1}
    network = (load(name),)
    facts = {MODEL: replace(prepared.facts, splits=((1,),))}
    (trial,) = plan.make((canonical(make_sweep(chosen)), facts, {name: network})).trials
    workers._loaded = None  # the trial before this one left another model on the edge, or none
    workers.ready(trial.cell, network)
    began = time.monotonic()
    workers.trial(trial, network)
    workers.probed(workers.links[0], network[0], BUSY)
    share = 100 * (time.monotonic() - began) / trial.estimate_s
    figures.about("estimate: the trial against it", share, "%", aim=100, within=35)


@pytest.mark.parametrize("share", [0.25, 0.05])
def test_a_quota_is_kept(figures: Figures, share: float) -> None:
    spin = (
        "import sys, time; t, c = time.perf_counter(), time.process_time()\n"
        "while time.perf_counter() - t < 2: pass\n"
        "print((time.process_time() - c) / (time.perf_counter() - t))"
    )
    with closing(open_local(edge_cpu=share)) as bed:
        edge = bed.remotes["edge"]
        command = f'{edge.host.python} -c "{spin}"'
        got = statistics.mean(float(edge.connection.run(command).out) for _ in range(2))
    figures.about(f"quota: {share:.0%} of a core", 100 * got, "%", aim=100 * share, within=1 + 10 * share)


def changed(profile: Profile, rate: float, later_s: float) -> Profile:
    """That many times the rate away from the edge, so much later on the way back."""
    out, back = profile.directions
    if out.rate_bps:
        out = replace(out, rate_bps=rate * out.rate_bps)
    return replace(profile, edge_to_server=out, server_to_edge=replace(back, delay_s=back.delay_s + later_s))


@pytest.mark.parametrize(
    "case",
    [
        (LINK, 1.0, 0.0, ""),
        *((LINK, rate, 0.0, "rate edge to server") for rate in (0.97, 1.03)),
        *((GIGABIT, rate, 0.0, "rate edge to server") for rate in (0.97, 1.03)),
        *((TWENTY, 1.0, later_s, "RTT") for later_s in (-0.001, 0.001)),
    ],
)
def test_a_probe_finds_what_is_off(
    workers: Workers, prepared: Prepared, figures: Figures, case: tuple[Profile, float, float, str]
) -> None:
    profile, rate, later_s, word = case
    honest = RelayShaper.apply
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            RelayShaper, "apply", lambda shaper, asked: honest(shaper, changed(asked, rate, later_s))
        )
        workers._network = None  # the links are shaped anew
        workers.ready(cell(prepared, "tcp", 3, network=(profile,)), [profile])
        found, _ = workers.probed(workers.links[0], profile, Tolerance())
    workers._network = None
    reading = found.reading
    if profile is TWENTY:
        name, aim = f"tampering: 20 ms, {1e3 * later_s:+g} ms", 20 + 1e3 * later_s
        figures.about(name, 1e3 * (reading.rtt_s or 0.0), "ms", aim=aim, within=0.3)
    else:
        name = f"tampering: {profile.name} at {rate:.0%} of its rate"
        asked_bps = (profile.edge_to_server.rate_bps or 0.0) * reading.payload_share
        figures.about(name, 100 * (reading.rate_bps or 0.0) / asked_bps, "%", aim=100 * rate, within=0.9)
    right = word in found.fault if word else not found.fault
    figures.state(f"{name}: verdict as it should be", float(right), least=1)


def test_a_link_that_is_slow_only_while_the_trial_runs(
    workers: Workers, prepared: Prepared, figures: Figures
) -> None:
    """Both probes find what was asked."""
    (link,), it = workers.links, cell(prepared, "tcp", 3, network=(LINK,))
    workers.ready(it, [LINK])
    for rate in (1.0, 0.92):
        first, _ = workers.probed(link, LINK, Tolerance())
        link.shaper.apply(changed(LINK, rate, 0.0))
        told = workers.trial(Trial(it, 1, 0.2, 5.0, Effort((8, 0.3), (4, 0.3))), [LINK])
        link.shaper.apply(LINK)
        last, _ = workers.probed(link, LINK, Tolerance())
        row = trial_row(it, workers.crossings(it, [LINK]), told, {link.name: (first, last)})
        aim, name = 20 * rate * GOODPUT, f"tampering: {rate:.0%} of the rate in the trial alone"
        figures.about(name, row["loaded_rate_bps"] / 1e6, "Mbit/s of payload", aim=aim, within=0.04 * aim)
        when = [when for when in ("before", "during", "after") if f"off {when}" in row["reason"]]
        figures.state(f"{name}: verdict as it should be", float(when == ["during"] * (rate < 1)), least=1)

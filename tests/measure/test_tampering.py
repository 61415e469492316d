"""By how little a link may be off until the probe and a trial's own transfers find it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from pareto.hosts.local.testbed import open_local
from pareto.hosts.shapers import RelayShaper
from pareto.models.prepare import Prepared, canonical, prepare
from pareto.remote.link.probe import GOODPUT, Tolerance
from pareto.remote.link.profile import Direction, Profile
from pareto.sweep.cell import Cell
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.plan import Effort, Trial
from pareto.sweep.profile_files import load
from pareto.trial.rows import trial_row
from pareto.trial.workers import Workers
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
    with closing(open_local()) as bed, closing(Workers(bed, {MODEL: prepared}, ("tcp",))) as workers:
        workers.start()
        yield workers


def changed(profile: Profile, rate: float, later_s: float) -> Profile:
    """That many times the rate away from the edge, so much later on the way back."""
    out, back = profile.directions
    if out.rate_bps:
        out = replace(out, rate_bps=rate * out.rate_bps)
    return replace(profile, edge_to_server=out, server_to_edge=replace(back, delay_s=back.delay_s + later_s))


def cell(prepared: Prepared, profile: Profile) -> Cell:
    return Cell(MODEL, (3,), prepared.facts.points[3][0], "tcp", profile.name, 1)


@pytest.mark.parametrize(
    ("profile", "rate", "later_s", "word"),
    [
        (LINK, 1.0, 0.0, ""),
        *((LINK, rate, 0.0, "rate edge to server") for rate in (0.97, 1.03)),
        *((GIGABIT, rate, 0.0, "rate edge to server") for rate in (0.97, 1.03)),
        *((TWENTY, 1.0, later_s, "RTT") for later_s in (-0.001, 0.001)),
    ],
)
def test_a_probe_finds_what_is_off(
    workers: Workers,
    prepared: Prepared,
    figures: Figures,
    monkeypatch: pytest.MonkeyPatch,
    profile: Profile,
    rate: float,
    later_s: float,
    word: str,
) -> None:
    honest = RelayShaper.apply
    with monkeypatch.context() as patched:
        patched.setattr(
            RelayShaper, "apply", lambda shaper, asked: honest(shaper, changed(asked, rate, later_s))
        )
        workers._network = None  # the links are shaped anew
        workers.ready(cell(prepared, profile), [profile])
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
    (link,), it = workers.links, cell(prepared, LINK)
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

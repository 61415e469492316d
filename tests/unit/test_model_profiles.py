"""Model profiles of a testbed: what is measured, what is kept, and what of it counts another time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pytest

from pareto.analysis import model_profile
from pareto.basics.console import console
from pareto.commands import unit_times as profiling
from pareto.hosts.host import EDGE, SERVER, TestbedError
from pareto.hosts.session import SessionLost
from pareto.models.prepare import recipe
from pareto.partitions import model as partitioned
from pareto.partitions import registry
from pareto.predict import backend_costs, model_profiles
from pareto.predict.backend_costs import QUICK, THOROUGH
from pareto.predict.model_profiles import ago, difference, estimate_s, folder_of, spares_s
from pareto.protocol.errors import UserError
from pareto.protocol.profile_messages import Roofline, Steady, TimeUnits, UnitRuns
from pareto.remote.link.probe import Reading
from pareto.simulated.world import load
from pareto.sweep.cell import Cell
from pareto.sweep.plan import QUICK as EFFORT
from pareto.sweep.plan import Plan, Trial
from pareto.sweep.sweep import Sweep
from pareto.trial.model_upload import Meter
from pareto.trial.workers import Workers
from tests.unit.far_end import FakeShaper, bed_of, silent
from tests.unit.simulated.worlds import MODEL, POINTS, sweep
from tests.unit.test_backend_costs import FakeEnds

UNITS = POINTS - 1
NAME = registry.canonical(MODEL)
FACTS = {
    EDGE: {"cpu": "A57", "cores": [3], "device": "cpu", "threads": 1, "cuda": None, "torch": "2.13"},
    SERVER: {"cpu": "Xeon", "cores": [0, 1], "device": "cuda:0", "threads": 2, "cuda": {"name": "H100"}},
}


def facts_of_hosts() -> dict[str, dict[str, Any]]:
    return {role: dict(of) for role, of in FACTS.items()}


@dataclass
class FakeWorkers:
    """Times unit k at k ms on the edge and a tenth of that on the server, whatever the batch."""

    hosts: dict[str, dict[str, Any]] = field(default_factory=facts_of_hosts)
    requests: list[tuple[str, str, TimeUnits]] = field(default_factory=list)
    together: list[int] = field(default_factory=list)
    opened_for: list[list[str]] = field(default_factory=list)
    units: int = UNITS
    shares: dict[str, float] = field(default_factory=dict)
    lost: bool = False
    shown: list[str] = field(default_factory=list)
    sent: list[tuple[object, ...]] = field(default_factory=list)
    images: list[int] = field(default_factory=list)

    def facts(self) -> dict[str, dict[str, Any]]:
        return self.hosts

    def send(self, meter: Meter, models: Sequence[str], *, whole: bool) -> None:
        self.sent.append((*models, whole))

    def roofline(self, role: str, cpu: float) -> Roofline:
        self.shares[role] = cpu
        return Roofline(1e9, 2e9)

    def unit_runs(self, model: str, requests: dict[str, TimeUnits]) -> dict[str, UnitRuns]:
        self.together.append(len(requests))
        return {role: self._runs_of(model, role, request) for role, request in requests.items()}

    def _runs_of(self, model: str, role: str, request: TimeUnits) -> UnitRuns:
        if self.lost:
            raise SessionLost(f"{role} ended")
        self.requests.append((model, role, request))
        scale = 1e-3 if role == EDGE else 1e-4
        run = [scale * (number + 1) for number in range(self.units)]
        runs = [[seconds * (1 + 0.01 * k) for seconds in run] for k in range(-5, 6)]
        steady = [Steady((10.0, 12.0), 20)] if request.steady_s else []
        steady += [Steady((10.0 + k, 11.0 + k), 10 + k) for k in range(self.units)] if request.unit_s else []
        return UnitRuns(runs, [sum(each) for each in runs], [1e-5] * 11, None, steady)

    def samples(self) -> dict[str, Any]:
        times = [9.5 + 0.1 * number for number in range(30)]
        return {role: {"at_s": times, "energy_j": [5.0 * at for at in times]} for role in self.hosts}

    def opened(self, backends: list[str]) -> dict[str, tuple[str, str]]:
        self.opened_for.append(backends)
        return {"edge-server": (EDGE, SERVER)}

    def bare_links(self) -> dict[str, Reading]:
        return {"edge-server": Reading(0.002, 8e6, 8e6)}


def plain(words: str, folder: Path | None = None) -> str:
    return re.sub(r"\d+ s ago", "N s ago", words.replace(str(folder), "FOLDER").replace(NAME, "MODEL"))


@pytest.fixture
def workers() -> FakeWorkers:
    return FakeWorkers()


class Kept(NamedTuple):
    """A model's profile, its folder, and whether anything was measured for it."""

    profile: model_profile.ModelProfile
    folder: Path
    is_new: bool


Measure = Callable[..., tuple[Kept, str]]


@pytest.fixture
def measure(
    workers: FakeWorkers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Measure:
    """The profile of a small model on a testbed of stand-ins, and what is printed meanwhile."""
    monkeypatch.setattr(
        model_profiles, "prepare", lambda name, asked: workers.images.append(asked.images) or name
    )

    def run(bed: Any = None, *, fresh: bool = False, spares_s: float | None = None, **options: Any):
        monkeypatch.setattr(backend_costs, "Ends", lambda *_: FakeEnds())
        wanted = sweep(**{"backend": "tcp,rpc", "testbed": "local", **options})
        capsys.readouterr()
        with closing(bed or bed_of(silent(), is_local=True, shaper=FakeShaper())) as opened:
            on = console(), wanted, opened, cast(Workers, workers), {}, tmp_path / "profiles"
            show, before = workers.shown.append, len(workers.requests)
            kept = model_profiles.on_testbed(*on, fresh=fresh, spares_s=spares_s, show=show)
        is_new = len(workers.requests) > before
        made = Kept(*kept[registry.canonical(wanted.models[0])], is_new)
        return made, " ".join(capsys.readouterr().out.split())

    return run


def test_every_device_is_measured_at_every_batch_size(workers: FakeWorkers, measure: Measure) -> None:
    kept, _ = measure(batch_size="1,4", edge_cpu=0.5)
    asked = [(role, request.batch_size, request.cpu) for _, role, request in workers.requests]
    assert asked == [(EDGE, 1, 0.5), (SERVER, 1, 1.0), (EDGE, 4, 0.5), (SERVER, 4, 1.0)]
    profile = kept.profile
    edge, server = profile.of(EDGE, 4), profile.of(SERVER, 1)
    assert edge.median_s == pytest.approx([1e-3 * (number + 1) for number in range(UNITS)])
    assert ((edge.least_s < edge.low_s) & (edge.low_s < edge.median_s) & (edge.median_s < edge.high_s)).all()
    assert edge.difference == pytest.approx(0)
    assert (edge.cpu, server.cpu, server.device, server.threads) == (0.5, 1.0, "cuda:0", 2)
    assert workers.shares == {EDGE: 0.5, SERVER: 1.0}
    assert workers.sent == [(NAME, True)], "each host runs all units"
    assert workers.images == [4], "one batch is prepared"
    assert (kept.is_new, profile.hosts[EDGE]["peak_flops"], len(profile.points)) == (True, 1e9, POINTS)
    assert profile.flops.sum() > 0
    assert ago(profile, profile.hosts).endswith(" s")
    read = model_profile.read(kept.folder)
    assert (read.points, read.graph_digest) == (profile.points, profile.graph_digest)


def test_energy_is_that_of_a_run_where_there_is_a_sensor(workers: FakeWorkers, measure: Measure) -> None:
    workers.hosts[EDGE]["sensors"] = {"energy_j": "powercap"}
    profile = measure(bed_of(silent(), is_local=False))[0].profile
    times = profile.of(EDGE, 1)
    assert times.energy_j == pytest.approx(5.0 * 2 / 20)
    reached = [5.0 / (10 + unit) if 11 + unit < 12.4 else np.nan for unit in range(UNITS)]
    np.testing.assert_allclose(times.units_energy_j, reached, err_msg="none where samples end")
    assert np.isnan(profile.of(SERVER, 1).energy_j)
    assert [(request.steady_s, request.unit_s) for _, _, request in workers.requests] == [
        (2.0, 0.8),
        (0.0, 0.0),
    ]
    workers.hosts[EDGE]["energy_least_s"] = 50.0
    slow = measure(bed_of(silent(), is_local=False), fresh=True)[0].profile
    assert np.isnan(slow.of(EDGE, 1).energy_j)
    (told,) = [line for line in profiling.lines(slow) if line.startswith("edge (")]
    assert told.endswith("no J: its meter must be read for 50 s")
    shared = measure(fresh=True)[0].profile
    assert np.isnan(shared.of(EDGE, 1).energy_j), "hosts on one machine share its sensors"


def test_a_profile_is_shown_and_used_again(workers: FakeWorkers, measure: Measure, snapshot: object) -> None:
    first, _ = measure()
    assert [plain(words) for words in workers.shown] == snapshot
    again, words = measure()
    assert (again.is_new, again.folder, len(workers.requests)) == (False, first.folder, 2)
    assert plain(words) == snapshot
    assert (measure(fresh=True)[0].is_new, len(workers.requests)) == (True, 4)
    workers.hosts[SERVER]["cuda"] = {"name": "H200"}
    again, words = measure()
    assert again.is_new, "of another device"
    assert plain(words) == snapshot


@pytest.mark.parametrize(
    "options",
    [{"batch_size": "2"}, {"edge_cpu": 0.5}, {"threads": 2}, {"backend": "tcp"}, {"granularity": "block"}],
)
def test_another_setting_has_a_folder_of_its_own(measure: Measure, options: dict[str, Any]) -> None:
    usual = {"granularity": "op"} if "granularity" in options else {}
    assert measure(**usual)[0].folder != measure(**options)[0].folder


def test_what_is_the_default_is_no_other_setting(tmp_path: Path) -> None:
    def folder(**options: Any) -> Path:
        return folder_of(tmp_path, sweep(testbed="local", **options), outline)

    outline = partitioned.outline(recipe(NAME, sweep()))
    assert folder() == folder(hosts=2, threads=1)
    assert folder() not in (folder(hosts=3), folder(congestion="bbr"))


LONG_AGO = timedelta(days=3, hours=2)


def made_at(when: str | timedelta) -> Callable[[Path], None]:
    """Lets a profile say that it was made then, or so long ago."""

    def damage(folder: Path) -> None:
        at = when if isinstance(when, str) else (datetime.now(timezone.utc) - when).isoformat()
        facts = json.loads((folder / "profile.json").read_text())
        (folder / "profile.json").write_text(json.dumps(facts | {"made_at": at}))

    return damage


DAMAGES = {
    "too old": made_at(LONG_AGO), "of the future": made_at("2999-01-01T00:00:00+00:00"),
    "without a zone": made_at("2026-01-01T00:00:00"),
    "without a file": lambda folder: (folder / "backends.csv").unlink(),
    "damaged": lambda folder: (folder / "profile.csv").write_text("nothing\n"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_what_does_not_count_is_said_and_made_anew(measure: Measure, damage: Any, snapshot: object) -> None:
    first, _ = measure()
    damage(first.folder)
    again, words = measure()
    assert again.is_new
    assert plain(words, first.folder) == snapshot
    assert not measure()[0].is_new, "it has taken its place"


def test_which_cores_a_host_has_is_no_difference() -> None:
    moved = {**FACTS, EDGE: {**FACTS[EDGE], "cores": [1], "pid": 7}}
    assert difference(FACTS, moved) == ""
    assert "cores" in difference(FACTS, {**FACTS, EDGE: {**FACTS[EDGE], "cores": [1, 2]}})
    assert "edge" in difference({EDGE: FACTS[EDGE]}, FACTS)
    hostile = difference({**FACTS, EDGE: {**FACTS[EDGE], "cpu": "\x1b[2J" + "long " * 1000}}, FACTS)
    assert "\x1b" not in hostile
    assert len(hostile) < 200


@pytest.mark.parametrize(
    ("fault", "value", "words"),
    [
        ("lost", True, "the profile broke off: edge ended"),
        ("units", UNITS - 1, f"edge reports {UNITS - 1} units"),
        ("", None, "cannot write"),
    ],
)
def test_a_host_that_is_lost_or_has_other_units_or_a_folder_that_cannot_be_written_ends_it(
    workers: FakeWorkers, measure: Measure, tmp_path: Path, fault: str, value: Any, words: str
) -> None:
    if fault:
        setattr(workers, fault, value)
    else:
        (tmp_path / "profiles").write_text("a file")
    with pytest.raises(TestbedError if fault else UserError, match=words):
        measure()


SEARCH = {"spares_s": 1e6}
"""Of a profile that may take as long as it will."""


def test_a_search_measures_with_less_care_and_hosts_at_once(workers: FakeWorkers, measure: Measure) -> None:
    brief, _ = measure(**SEARCH)
    asked = {(request.runs, request.seconds) for *_, request in workers.requests}
    assert (workers.together, asked) == ([2], {(QUICK.runs, QUICK.seconds)})
    assert not workers.shares, "what a device reaches at best orders no cells"
    assert len(brief.profile.cost("edge-server", "tcp").payload_bytes) == 2 * QUICK.payloads
    whole, words = measure()
    assert "a search made it, with less care" in words
    assert (whole.is_new, workers.together) == (True, [2, 1, 1])
    assert {request.runs for *_, request in workers.requests[2:]} == {THOROUGH.runs}
    assert not measure(**SEARCH)[0].is_new, "a search takes what is better than it needs"


def test_what_backends_add_is_measured_once_for_all_models(workers: FakeWorkers, measure: Measure) -> None:
    """Another batch size stands for another model: the links are the same."""
    first, _ = measure(**SEARCH)
    opened = len(workers.opened_for)
    second, _ = measure(**SEARCH, batch_size="2")
    third, _ = measure(**SEARCH, batch_size="4", backend="tcp")
    assert second.is_new
    assert len(workers.opened_for) == opened
    trip_s = first.profile.cost("edge-server", "tcp").trip_s
    for kept, backends in ((second, ["tcp", "rpc"]), (third, ["tcp"])):
        assert [cost.backend for cost in kept.profile.backends] == backends
        assert kept.profile.cost("edge-server", "tcp").trip_s == pytest.approx(trip_s)
        kept_at = model_profile.read(kept.folder).backends_at
        assert kept_at == first.profile.made_at, "not of the second's copy"
    made_at(LONG_AGO)(first.folder)
    since = (datetime.now(timezone.utc) - timedelta(hours=30)).isoformat()
    with pytest.raises(UserError, match=r"it is 30 h .* old"):  # as its oldest part
        ago(replace(second.profile, backends_at=since), second.profile.hosts)
    fourth, _ = measure(**SEARCH, batch_size="8")
    assert fourth.profile.backends_at == "", "a copy is no source: what it has may be of any age"


@pytest.mark.parametrize(
    ("options", "torch"),
    [
        *((option, "2.13") for option in ({"fresh": True}, {"edge_cpu": 0.5}, {"congestion": "bbr"})),
        *(({"backend": "tcp,rpc,tcp:4"}, "2.13"), ({}, "2.14")),
    ],
)
def test_on_other_links_or_hosts_or_by_other_backends_it_is_measured_anew(
    workers: FakeWorkers, measure: Measure, options: dict[str, Any], torch: str
) -> None:
    workers.hosts[SERVER]["torch"] = "2.13"
    measure(**SEARCH)
    opened = len(workers.opened_for)
    workers.hosts[SERVER]["torch"] = torch
    assert measure(**SEARCH, batch_size="2", **options)[0].profile.backends_at == ""
    assert len(workers.opened_for) > opened


def test_no_profile_is_made_that_takes_longer_than_it_spares(
    workers: FakeWorkers, measure: Measure, capsys: pytest.CaptureFixture[str], snapshot: object
) -> None:
    with pytest.raises(KeyError):
        measure(spares_s=2.5)
    assert " ".join(capsys.readouterr().out.split()) == snapshot
    assert (workers.requests, workers.sent) == ([], [])
    measure(**SEARCH)
    assert not measure(spares_s=0.0)[0].is_new, "one that is kept takes no time"


def test_the_estimate_knows_what_is_there_already() -> None:
    two, three = sweep(testbed="local"), sweep(testbed="local", hosts=3)
    assert estimate_s(two, QUICK) == QUICK.seconds + QUICK.host_s + QUICK.link_s
    assert estimate_s(three, QUICK, of_links=False) == QUICK.seconds + QUICK.host_s
    assert estimate_s(two, THOROUGH) == 2 * (THOROUGH.seconds + THOROUGH.host_s) + THOROUGH.link_s


def test_a_profile_spares_cells_beyond_the_likeliest_until_rounds_would_tell() -> None:
    """Cells of 1, 2, ... seconds: the eight shortest are measured anyway; two rounds of the others are not."""

    def planned(points: int, rounds: int, netems: tuple[str, ...] = ("wifi",)) -> Plan:
        cells = [Cell("net", (point,), "", "tcp", netem, 1) for netem in netems for point in range(points)]
        every = [(cell, number) for number in range(1, rounds + 1) for cell in cells]
        return Plan(tuple(Trial(*each, 0.1, 1.0 + each[0].cuts[0], EFFORT) for each in every), rounds)

    spared = [spares_s(planned(*of)) for of in ((5, 6), (8, 6), (10, 1), (10, 6), (10, 6, ("wifi", "lte")))]
    assert spared == [0.0, 0.0, 9.0 + 10.0, 2 * (9.0 + 10.0), 4 * (9.0 + 10.0)]


def test_a_simulated_testbed_has_profiles_too(tmp_path: Path) -> None:
    wanted: Sweep = sweep(batch_size="1,2")
    profile, kept_in = profiling.make_or_reuse(console(), wanted, tmp_path)[NAME]
    outline = partitioned.outline(recipe(NAME, wanted))
    assert kept_in == folder_of(tmp_path, wanted, outline, load(wanted.testbed).record())
    assert model_profile.read(kept_in).batch_sizes == (1, 2)
    assert profile.activation_bytes.sum() > 0


def test_a_model_that_is_not_there_costs_no_testbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "require_testbed", lambda *_: None)
    monkeypatch.setattr(profiling, "testbed_of", lambda *_, **__: pytest.fail("it was built"))
    with pytest.raises(UserError, match="nosuch"):
        profiling.make_or_reuse(console(), sweep(model="nosuch", testbed="local"), tmp_path)

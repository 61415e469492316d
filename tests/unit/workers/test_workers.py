"""The workers and monitors of a run: what each is asked, and what becomes of them when one is lost."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from unittest.mock import ANY, Mock

import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from pareto.hosts import session
from pareto.hosts.host import EDGE, SERVER, TcpSettings, TestbedError
from pareto.hosts.session import SessionError, SessionLost
from pareto.hosts.testbed import Testbed
from pareto.models.prepare import Artifact
from pareto.partitions.shards import Shard
from pareto.protocol.host_messages import SensorSample
from pareto.protocol.jsonlines import Refused, plain
from pareto.protocol.profile_messages import TimeCodecs, TimeUnits
from pareto.remote.link.profile import Direction, Profile
from pareto.sweep.cell import Cell
from pareto.sweep.plan import QUICK, Effort, Trial
from pareto.trial.model_upload import Meter
from pareto.trial.result import HostReport
from pareto.trial.workers import Workers
from tests.unit.far_end import HOSTS, StandIn
from tests.unit.refusals import refusal
from tests.unit.reported import SERIES, TRIAL, facts
from tests.unit.workers.ends import (
    BETWEEN,
    CELL,
    CHAIN,
    CUT_AT_BOTH,
    MIDDLE,
    NONE,
    NOTHING_MEASURED,
    PIDS,
    WATTS,
    Ends,
    bed_of_hosts,
    measured,
    once,
    shaper_of,
    workers_of,
)


@pytest.fixture
def chain(ends: Ends) -> Testbed:
    return bed_of_hosts(ends, CHAIN)


def test_a_monitor_watches_each_worker_unless_nothing_is_sampled(bed: Testbed, ends: Ends) -> None:
    with closing(workers_of(bed, None)) as workers:
        workers.start()
        assert workers.facts()[EDGE] == vars(facts(PIDS[EDGE]))
        assert (workers.samples(), workers.sampling()) == ({}, None)
    assert set(ends.of) == {(role, "pareto.remote.worker") for role in HOSTS}
    with closing(workers_of(bed)) as workers:
        workers.start()
        for role in HOSTS:
            (begun,) = ends.monitor(role).of("begin")
            assert (begun["pid"], begun["interval_s"]) == (PIDS[role], 0.2)
            sensed = {
                "sensors": {"energy_j": "powercap"},
                "idle_power_w": WATTS[role],
                "energy_leaves_out": "",
                "energy_least_s": 0.1,
            }
            assert workers.facts()[role] == {**vars(facts(PIDS[role])), **sensed}
        assert workers.samples() == dict.fromkeys(HOSTS, SERIES)
        assert set(workers.facts()) == set(workers.sampling() or {}) == set(HOSTS)
    ends.answers["begin"] = Mock(side_effect=Refused("no process 11 to watch"))
    with closing(workers_of(bed)) as workers, pytest.raises(SessionError, match="pi: no process 11 to watch"):
        workers.start()
    assert len(ends.all) == 2 + 4 + 4
    assert all(end.closed for end in ends.all), "nothing is left"


@pytest.mark.parametrize(
    ("sample_s", "least_window_s", "asked_s", "lasts_s"),
    [
        (None, 1.0, 0.3, 0.3), (0.2, 0.1, 0.3, 0.8), (0.2, 1.0, 0.3, 1.25), (0.05, 0.1, 0.3, 0.3),
        (0.2, 50.0, 0.3, 0.8), (0.2, 1.0, 2.0, 2.0),
    ],
)  # fmt: skip
def test_a_throughput_phase_is_as_long_as_the_energy_sensors_need(
    bed: Testbed, ends: Ends, sample_s: float | None, least_window_s: float, asked_s: float, lasts_s: float
) -> None:
    ends.answers["begin"] = {"by_field": {"energy_j": "nvml"}, "least_window_s": least_window_s}
    effort = Effort(latency=(9, asked_s), throughput=(9, asked_s))
    with closing(workers_of(bed, sample_s)) as workers:
        workers.ready(CELL, [NONE])
        workers.trial(Trial(CELL, 1, 1.0, 1.0, effort), [NONE])
    (trial,) = ends.worker(EDGE).of("trial")
    assert trial["latency"] == {"requests": 9, "seconds": asked_s}
    assert trial["throughput"] == {"requests": 9, "seconds": lasts_s}


def test_idle_power_is_not_of_a_meter_that_needs_longer_than_it_is_read(bed: Testbed, ends: Ends) -> None:
    ends.answers["begin"] = {"by_field": {"energy_j": "slow"}, "least_window_s": 50.0}
    with closing(workers_of(bed)) as workers:
        workers.start()
        assert [workers.facts()[role]["idle_power_w"] for role in HOSTS] == [None, None]
    assert not ends.monitor(EDGE).of("idle")


def test_in_a_chain_each_host_talks_to_the_next_and_has_its_stage(
    chain: Testbed, ends: Ends, snapshot: SnapshotAssertion
) -> None:
    network = [Profile("fast", Direction(0.01, 80e6)), Profile("slow", Direction(0.95, 4e6))]
    with closing(workers_of(chain, code=Artifact(Path(os.devnull), "c"))) as workers:
        workers.ready(CELL, network)
        workers.ready(CELL, network)
        result = measured(workers, CUT_AT_BOTH, network)
        transfers_s = [crossing.usual_s for crossing in workers.crossings(CUT_AT_BOTH, network)]
    assert {name: list(links) for name, links in workers.shaped.items()} == {CELL.netem: list(BETWEEN)}
    assert list(result.hosts) == [EDGE, MIDDLE, SERVER]
    # The slowest link decides how many requests are in flight.
    assert len(set(transfers_s)) == 2
    assert ends.asked(EDGE, "trial", "transfer_s") == [max(transfers_s)]
    # Inputs go to the edge alone, and a model's code to all.
    assert ends.transcript() == snapshot


def test_a_host_that_traces_another_graph_is_named(
    workers: Workers, ends: Ends, snapshot: SnapshotAssertion
) -> None:
    ends.answers["load"] = "another"
    line = refusal(TestbedError, workers.ready, CELL, [NONE])
    assert EDGE in line and "alexnet" in line
    assert line == snapshot


def test_who_launches_workers_waits_for_them_when_they_start(bed: Testbed, ends: Ends) -> None:
    bed.revive = Mock()  # type: ignore[method-assign]
    with closing(workers_of(bed)) as workers:
        workers.launch()
        assert set(ends.of) == {(role, "pareto.remote.worker") for role in HOSTS}
        assert not any(end.of("facts") for end in ends.all)
        workers.start()
        assert all(len(each) == 1 for each in ends.of.values()), "nothing was started twice"
        assert all(len(ends.worker(role).of("facts")) == 1 for role in HOSTS)
        bed.revive.assert_not_called()
        # After a loss all are started again.
        ends.monitor(SERVER).dead = True
        with pytest.raises(SessionLost, match=r"^gpu "):
            workers.samples()
        workers.close()
        workers.start()
        bed.revive.assert_called_once_with()
        assert workers.samples() == dict.fromkeys(HOSTS, SERIES)
        assert {len(each) for each in ends.of.values()} == {2}
    with closing(workers_of(bed)) as workers:
        workers.launch()
    assert all(end.closed for end in ends.all), "also those that nobody waited for"


def test_a_trial_has_its_stage_and_tells_what_it_served(
    bed: Testbed, workers: Workers, ends: Ends, snapshot: SnapshotAssertion
) -> None:
    first_result, again = measured(workers), measured(workers)
    assert (first_result.quality["agreement"], first_result.quality["agreement_images"]) == (1.0, 8)
    assert (first_result.warm_ups, again.warm_ups) == (1, 0), "it is proven now"
    assert replace(first_result, warm_ups=0) == again
    assert again.hosts[EDGE] == HostReport(again.edge, None, 99, None, meter=again.hosts[EDGE].meter)
    assert again.edge.latency_s == TRIAL["latency_s"]
    assert again.strangers_percent is None
    assert again.hosts[SERVER].baseline_s == 0.04  # the lesser: once before, once after
    # Workers are told the transport and not its label, and the edge what to decode ahead; on slow devices nothing is
    # warmed up that has been proven.
    for cell in (replace(CELL, backend="tcp:a"), replace(CELL, prefetch=3)):
        measured(workers, cell)
    for ends.answers["stage"]["run_s"] in (0.001, 5.0):
        workers.trial(Trial(CELL, 1, 0.01, 1.0, QUICK), [NONE])
    assert ends.transcript() == snapshot
    # Where the hosts are this machine, what strangers took of it is known; and what an idle host takes.
    bed.watch_strangers = lambda: lambda: 17.0
    workers.facts()
    result = measured(workers)
    assert result.strangers_percent == 17.0
    assert {role: host.idle_power_w for role, host in result.hosts.items()} == {EDGE: 2.5, SERVER: None}


def test_a_baseline_after_a_trial_is_the_one_before_the_next_of_the_same_stages(
    workers: Workers, ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    def baselines() -> int:
        return len(ends.worker(SERVER).of("baseline"))

    def trial(cell: Cell) -> int:
        """How many baselines the trial takes on each host."""
        before = baselines()
        workers.trial(once(cell), [NONE])
        return baselines() - before

    now = Mock(return_value=100.0)
    monkeypatch.setattr("pareto.trial.workers.time.monotonic", now)
    ends.baselines[SERVER] = [0.05, 0.02, 0.04, *[0.09] * 20]
    measured(workers)
    result = measured(workers, replace(CELL, backend="tcp:a"))
    assert (baselines(), result.hosts[SERVER].baseline_s) == (3, 0.02), "the one between serves both"
    assert trial(replace(CELL, cuts=(0,))) == 2, "another stage"
    cell = replace(CELL, cuts=(0,), batch_size=1)
    assert [trial(cell), trial(cell)] == [2, 1]
    now.return_value += 2.0
    assert trial(cell) == 2, "the host may be slower now"
    ends.answers["trial"] = NOTHING_MEASURED
    trial(cell)
    ends.answers["trial"] = TRIAL
    assert trial(cell) == 2, "a trial that measured nothing came between"
    ends.late = 10**6
    ends.worker(SERVER).dead = True
    with pytest.raises(SessionLost):
        trial(cell)
    workers.close()
    workers.start()
    ends.late = 0
    assert trial(cell) == 2, "it is another process"


def test_another_rpc_agent_is_joined_where_a_cell_needs_it_and_all_is_opened_anew(
    bed: Testbed, ends: Ends
) -> None:
    """All: else one backend's connections would be younger than another's. A cell without an agent takes any."""
    with closing(workers_of(bed, backends=("tcp", "tcp:4", "rpc", "rpc:basic"))) as workers:
        for backend in ("tcp", "rpc:basic:a", "tcp:4", "rpc:basic:b", "rpc", "tcp"):
            workers.ready(replace(CELL, backend=backend), [NONE])
    opened = [["tcp", "tcp:4", agent] for agent in ("rpc", "rpc:basic", "rpc")]
    assert ends.asked(EDGE, "connect", "backends") == opened
    assert ends.asked(EDGE, "warm", "backend") == [each for all_ in opened for each in all_]
    assert [ends.asked(role, "join", "backend") for role in HOSTS] == [["rpc", "rpc:basic", "rpc"]] * 2
    assert len(shaper_of(bed).applied) == 1


def arguments(bed: Testbed) -> dict[str, list[tuple[str, ...]]]:
    """By role, what each of its workers was started with beside what all are."""
    remotes = cast(dict[str, StandIn], bed.remotes)
    return {role: [told[4:] for told in remote.arguments] for role, remote in remotes.items()}


@pytest.mark.parametrize(("is_local", "told"), [(False, ("--congestion", "bbr")), (True, ())])
def test_real_hosts_set_the_congestion_control_themselves(bed: Testbed, is_local: bool, told: object) -> None:
    """The local testbed's routes have it for every socket, from its first packet on."""
    bed.is_local = is_local
    with closing(workers_of(bed, None, tcp=TcpSettings("bbr"))) as workers:
        workers.start()
    assert arguments(bed) == {role: [told] for role in HOSTS}


def test_each_worker_starts_with_its_allocator_and_anew_for_another_cells(bed: Testbed, ends: Ends) -> None:
    left = replace(CELL, allocator="edge=default")
    with closing(workers_of(bed, None)) as workers:
        workers.ready(CELL, [NONE])
        workers.ready(replace(CELL, backend="tcp:a"), [NONE])
        assert {len(each) for each in ends.of.values()} == {1}
        ends.in_force[EDGE] = "default"
        workers.ready(left, [NONE])
        workers.ready(left, [NONE])
        assert {len(each) for each in ends.of.values()} == {2}
    assert arguments(bed) == {EDGE: [(), ("--allocator", "default")], SERVER: [(), ()]}
    ends.in_force |= {EDGE: "tuned", SERVER: "default"}  # the server: not what was asked
    with closing(workers_of(bed, None)) as workers, pytest.raises(TestbedError, match="server has default"):
        workers.start()
    assert all(end.closed for end in ends.all)


def test_while_a_trial_runs_the_sensors_are_shown_until_a_host_is_lost(
    workers: Workers, ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody asks the server anything meanwhile but the heartbeat: the edge alone would be waited for."""
    monkeypatch.setattr(session, "MEANWHILE_S", 0.001)
    ends.late = 10**6
    shown: list[dict[str, Any]] = []

    def sampled(latest: dict[str, Any], progress: object) -> None:
        shown.append(latest)
        ends.worker(EDGE).late = 10**6 if len(shown) < 2 else 0

    workers.trial(once(), [NONE], sampled)
    assert shown == [{role: plain(SensorSample(1.0, energy_j=3.0)) for role in HOSTS}] * 2
    ends.monitor(EDGE).dead = True
    with pytest.raises(SessionLost, match=r"^pi "):
        workers.trial(once(), [NONE], lambda *latest: None)
    workers.close()
    workers.start()
    ends.late = 1
    ends.worker(SERVER).dead = True
    workers._sessions[SERVER].ping()
    ends.worker(SERVER).dead = False
    with pytest.raises(SessionLost, match=r"^gpu "):
        workers.trial(once(), [NONE])


def test_units_and_codecs_are_timed_on_a_host_that_has_the_model(
    workers: Workers, ends: Ends, snapshot: SnapshotAssertion
) -> None:
    """Then connections of some backends alone are opened at both ends of a link; a trial has its own anew."""
    units = TimeUnits(2, 0.5, 6, 0.0, 1.0, 0.0, 0.5)
    codecs = TimeCodecs([(1, "int8"), (2, "zstd:3")], "", True, 1.0)
    for _ in range(2):
        assert workers.unit_runs("alexnet", {SERVER: units}).keys() == {SERVER}
        workers.codec_runs("alexnet", SERVER, codecs, Artifact(Path("somewhere"), "abc"))
    assert workers.roofline(EDGE, 0.5).flops == 1e9
    workers.ready(CELL, [NONE])
    ((name, (near, far)),) = workers.opened(["tcp"]).items()
    assert (name, near.name, far.name) == ("edge-server", HOSTS[EDGE].name, HOSTS[SERVER].name)
    workers.ready(CELL, [NONE])
    assert ends.transcript() == snapshot


def test_hosts_load_their_own_units_and_all_of_them_to_time_each(bed: Testbed, ends: Ends) -> None:
    shards = tuple(Shard(unit, str(unit), 1, Path(os.devnull), b"x", ()) for unit in range(2))
    with closing(workers_of(bed)) as workers:
        prepared = workers._prepared["alexnet"]
        workers._prepared["alexnet"] = replace(prepared, shards=shards, splits=((1,),))
        meter = Meter(Console(quiet=True), lambda words: None)
        workers.start()
        workers.send(meter)
        assert workers.sending() == {"bytes": {EDGE: 1, SERVER: 1}, "seconds": ANY}
        workers.ready(CELL, [NONE])
        request = TimeUnits(2, 0.5, 40, 3.0, 40.0, 2.0, 0.8)
        for _ in range(2):
            workers.unit_runs("alexnet", {SERVER: request})
        workers.ready(CELL, [NONE])
        assert workers.sending() == {"bytes": {EDGE: 2, SERVER: 2}, "seconds": ANY}
    for role, unit in ((EDGE, "0"), (SERVER, "1")):
        loads = [list(load["weights"].values()) for load in ends.worker(role).of("load")]
        assert loads == [[unit], ["0", "1"]]

"""Trial by trial into a store: what is kept of each, and when it is better to stop."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest
from pyarrow import parquet
from syrupy.assertion import SnapshotAssertion

from pareto.driver.runner import (
    MAX_FAILURES_IN_A_ROW,
    MAX_REBUILDS,
    MOST_AGAIN,
    Aborted,
    Runner,
    Tally,
    Watcher,
)
from pareto.hosts.connection import Unreachable
from pareto.hosts.session import SessionLost
from pareto.protocol.trial_messages import Progress, WrongOutput
from pareto.remote.link.probe import GOODPUT, STILL, Probed, Reading, Sample
from pareto.remote.link.profile import Direction, Profile
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.networks import Networks, profiles
from pareto.sweep.plan import QUICK, Plan, Trial
from pareto.trial.any_workers import AnyWorkers
from pareto.trial.faults import OTHER_PROGRAMS
from pareto.trial.rows import link_row
from pareto.trial.store import Row, Store
from tests import rows_of
from tests.unit.example_trial import SENSED, WINDOWS, report
from tests.unit.refusals import refusal
from tests.unit.stand_in_workers import CELL, LATEST, NONE, StandInWorkers

TRIAL = Trial(CELL, 1, 0.4, 4.0, QUICK)


@dataclass
class Follower(Watcher):
    is_live: bool
    seen: list[Any] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    rebuilt: list[tuple[str, int]] = field(default_factory=list)

    def rebuilds(self, reason: str, times: int) -> None:
        self.rebuilt.append((reason, times))

    def sampled(self, latest: dict[str, dict[str, Any]], progress: Progress | None) -> None:
        self.seen.append(latest)

    def finished(self, trial: Trial, row: Row) -> None:
        self.rows.append(row)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.create(tmp_path, "run", {})


def runner(
    workers: StandInWorkers,
    store: Store,
    networks: Networks = {NONE.name: (NONE,)},  # noqa: B006
    *,
    follower: Watcher | None = None,
    tally: Tally | None = None,
    starts: int = 0,
    **options: Any,
) -> Runner:
    """Of a sweep with these options."""
    sweep = make_sweep({"model": "m", "restart": "never", **options})
    watcher = follower or Follower(False)
    return Runner(cast(AnyWorkers, workers), store, networks, sweep, watcher, tally or Tally(), starts=starts)


def run(
    workers: StandInWorkers, store: Store, *, trials: int = 1, is_live: bool = False, **how: Any
) -> Follower:
    follower = Follower(is_live)
    trial_of_each = tuple(replace(TRIAL, round=1 + n) for n in range(trials))
    runner(workers, store, follower=follower, **how).run(Plan(trial_of_each, trials))
    return follower


def given_up(workers: StandInWorkers, store: Store) -> str:
    """Why a run of eight trials was."""
    return refusal(Aborted, run, workers, store, trials=8)


def column(store: Store, name: str) -> list[str]:
    return [row[name] for row in store.rows()]


def test_a_trials_samples_are_kept_from_its_beginning_on(store: Store, tmp_path: Path) -> None:
    run(StandInWorkers(), store)
    (row,) = store.rows()
    assert (row["status"], row["edge_temperature_c"], row["server_temperature_c"]) == ("ok", "43", "43")
    table = parquet.read_table(store.folder / "devices" / f"{CELL.id}-r01.parquet").to_pydict()
    assert table["host"] == ["edge"] * 5 + ["server"] * 5
    assert table["at_s"][:5] == [-0.5, 0.5, 1.5, 2.5, 3.5]  # the trial began at 0.5
    assert table["energy_j"][:5] == SENSED["energy_j"]
    without, wrong = (Store.create(tmp_path, "run", {}) for _ in range(2))
    run(StandInWorkers(samples_told={}), without)
    (row,) = without.rows()
    assert (row["status"], row["edge_temperature_c"], row["edge_energy_j"]) == ("ok", "", "")
    follower = run(StandInWorkers(report=WrongOutput(3.0, 1e-4)), wrong)
    assert [row["status"] for row in follower.rows] == ["invalid"], "measured once: it can never be right"
    assert list((wrong.folder / "requests").iterdir()) == []
    assert not [each for each in (without, wrong) if (each.folder / "devices").exists()]


def test_what_each_host_did_is_kept_beside_the_trial(store: Store) -> None:
    run(StandInWorkers(report=report(**WINDOWS, throughput_busy_s=1.5, weights_bytes=7)), store, trials=2)
    rows = rows_of(store.folder / "stages.csv")
    assert [" ".join((row["round"], row["position"], row["host"])) for row in rows] == [
        *("1 0 edge", "1 1 server", "2 0 edge", "2 1 server")
    ]
    edge, server = rows[:2]
    assert (edge["first_unit"], edge["last_unit"], edge["payload_bytes"]) == ("0", "7", "100352")
    assert (edge["utilization"], edge["bubble_s"], edge["weights_bytes"]) == ("0.5", "0.25", "7")
    assert (server["first_unit"], server["payload_bytes"], server["utilization"]) == ("7", "", "")
    table = parquet.read_table(store.folder / "requests" / f"{CELL.id}-r01.parquet").to_pydict()
    assert set(table["server_s"]) == {0.015}


def test_only_a_live_screen_asks_for_samples_and_drops_are_counted_where_somebody_counts(
    tmp_path: Path,
) -> None:
    dropped: list[list[int | None]] = [[None], [3, 10], [3, None], [5, 5]]
    for counted, said in zip(dropped, ("", "7", "", "0"), strict=True):
        for is_live in (True, False):
            store = Store.create(tmp_path, "run", {})
            assert run(StandInWorkers(dropped=[*counted]), store, is_live=is_live).seen == [LATEST] * is_live
            assert column(store, "dropped_packets") == [said]


def test_how_disturbed_a_host_may_be_is_the_sweeps_to_say(tmp_path: Path) -> None:
    slow = StandInWorkers(report=report(**WINDOWS, edge_s=0.036, work_s=0.051, latency_s=0.42))
    shared = StandInWorkers(report=report(**WINDOWS, strangers_percent=50.0))
    limits: list[tuple[StandInWorkers, dict[str, float], str]] = [
        (slow, {}, "throughput only"),
        (slow, {"slowdown": 9.0}, "ok"),
        (shared, {}, "invalid"),
        (shared, {"others": 0.6}, "ok"),
    ]
    for workers, allowed, status in limits:
        follower = run(workers, Store.create(tmp_path, "run", {}), **allowed)
        assert follower.rows[-1]["status"] == status


def test_hosts_that_stay_away_end_the_run(store: Store, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    away = [Unreachable("pi: No route to host")] * 9
    why = given_up(StandInWorkers(faults=[*away]), store)
    assert "pi: No route to host" in why
    assert why == snapshot
    # Rounds that are added have few trials each: none of them alone has enough to give up.
    another = Store.create(tmp_path, "run", {})
    all_rounds = runner(StandInWorkers(faults=[*away]), another)
    with pytest.raises(Aborted):
        for number in range(1, 9):
            all_rounds.run(Plan((replace(TRIAL, round=number),), 1))
    assert column(store, "status") == column(another, "status") == ["failed"] * MAX_FAILURES_IN_A_ROW


def test_the_clock_knows_the_pace(store: Store) -> None:
    tally = Tally()
    assert tally.pace == 1.0
    session = runner(StandInWorkers(), store, tally=tally)
    session.now = itertools.count(step=3.0).__next__
    session.run(Plan((TRIAL,), 1))
    walls = float(store.rows()[0]["wall_s"])
    assert (tally.wall, tally.foreseen) == (walls, TRIAL.estimate_s)
    assert tally.pace == walls / TRIAL.estimate_s > 1
    # Losses are shares of what was sent.
    lossy = Profile("lossy", Direction(0.01, loss=0.1), Direction(0.01, loss=0.25))
    reading = Reading(0.02, None, None, Sample(50, 45, 0, 0), Sample(200, 150, 0, 0))
    row = link_row(lossy, reading, STILL)
    assert (row["loss"], row["loss_back"], row["datagrams"]) == (0.1, 0.25, 250)
    assert (row["asked_loss"], row["asked_loss_back"]) == pytest.approx((0.1, 0.25))


def test_a_host_that_is_lost_costs_its_trial(store: Store) -> None:
    workers = StandInWorkers(faults=[SessionLost("pi ended: killed by signal 9")])
    run(workers, store, trials=3)
    assert column(store, "status") == ["failed", "ok", "ok"]
    assert column(store, "reason")[0] == "pi ended: killed by signal 9"
    assert workers.closed == 1


def test_a_trial_is_done_again_where_its_testbed_was_lost(store: Store) -> None:
    workers = StandInWorkers(faults=[SessionLost("edge ended")] * 2, gone="its relay was killed")
    follower = run(workers, store, trials=2)
    assert [(row["round"], row["status"]) for row in store.rows()] == [("1", "ok"), ("2", "ok")]
    assert follower.rebuilt == [("its relay was killed", 1), ("its relay was killed", 2)]
    assert workers.closed == 2  # the workers are started anew on what is built
    assert column(store, "restart") == ["3", "3"]


def test_a_testbed_that_is_lost_again_and_again_is_given_up(store: Store) -> None:
    why = "its relay was killed"
    workers = StandInWorkers(faults=[SessionLost("edge ended")] * 99, gone=why, within=True)
    assert why in given_up(workers, store)
    assert [(row["status"], row["reason"]) for row in store.rows()] == [
        ("failed", why)
    ] * MAX_FAILURES_IN_A_ROW
    assert 99 - len(workers.faults) == MAX_REBUILDS + MAX_FAILURES_IN_A_ROW


def test_a_testbed_that_does_not_come_back_ends_the_run(store: Store, snapshot: SnapshotAssertion) -> None:
    """To wait for it takes a minute each time: no further trial is tried."""
    away = [Unreachable("gpu: No route to host")] * 99
    workers = StandInWorkers(faults=away, gone="gpu: it does not answer")
    assert given_up(workers, store) == snapshot
    assert column(store, "reason") == ["gpu: No route to host"]
    assert 99 - len(workers.faults) == 1 + MAX_REBUILDS


def test_a_probe_that_is_off_is_taken_again_at_most_thrice(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    off = Probed(Reading(0.3, None, None), "RTT 300 ms, asked 0 ms")
    for times, statuses in ((3, ["ok"]), (4, ["invalid", "ok"])):
        store = Store.create(tmp_path, "run", {})
        rows = run(StandInWorkers(readings=[off] * times), store).rows
        assert [row["status"] for row in rows] == statuses
        assert column(store, "status") == ["ok"]
    assert rows[0]["reason"] == snapshot


@pytest.mark.parametrize(
    ("spoilt", "statuses", "attempts"),
    [
        ([1], "ok ok ok ok ok", 6),
        ([1, 5], "ok ok ok ok ok", 7),
        ([1, 5, 6], "invalid ok ok ok ok", 7),
        (range(99), "invalid invalid invalid invalid invalid", 11),
    ],
    ids=["once", "twice", "thrice", "on and on"],
)
def test_what_others_spoil_is_measured_again_after_its_round(
    store: Store, spoilt: Sequence[int], statuses: str, attempts: int
) -> None:
    """Twice at most; where one after the other is spoilt again, the rest is left alone."""

    class Disturbed(StandInWorkers):
        count = 0

        def trial(self, *arguments: Any) -> Any:
            self.report = report(**WINDOWS, strangers_percent=50.0 if self.count in spoilt else 0.0)
            self.count += 1
            return super().trial(*arguments)

    tally, workers = Tally(), Disturbed()
    trials = tuple(replace(TRIAL, cell=replace(CELL, cuts=(cut,))) for cut in range(5))
    runner(workers, store, tally=tally).run(Plan(trials, 1))
    assert workers.count == attempts
    rows = {row["point"]: row["status"] for row in store.rows()}
    assert [rows[str(cut)] for cut in (1, 0, 2, 3, 4)] == statuses.split()
    assert len(store.rows()) == 5
    assert [each["blamed"] for each in tally.again] == [OTHER_PROGRAMS] * (attempts - 5)
    assert len(tally.faulty) == statuses.count("invalid")


def test_each_round_sees_another_part_of_a_trace_also_one_that_is_added(store: Store) -> None:
    (changing,) = profiles("handover")
    assert changing.offset_s == 0
    workers, cell = StandInWorkers(), replace(CELL, netem="t")
    session = runner(workers, store, {"t": (changing,)})
    session.run(Plan(tuple(replace(TRIAL, cell=cell, round=number) for number in (1, 2)), 2))
    session.run(Plan((replace(TRIAL, cell=cell, round=3),), 2))
    period = changing.period_s or 0.0
    assert workers.played == pytest.approx([0, period / 2, period / 4])


@pytest.mark.parametrize(("idle_s", "status"), [(0.4, "ok"), (0.1, "invalid")])
def test_bytes_that_crossed_late_cross_the_idle_link_again(store: Store, idle_s: float, status: str) -> None:
    rate = Probed(Reading(0.01, 5e6 * GOODPUT, None), "")
    workers = StandInWorkers(readings=[rate, rate], idle_s=idle_s)
    trial = replace(TRIAL, cell=replace(CELL, netem="slow"))
    runner(workers, store, {"slow": (Profile("slow", Direction(0.01, 5e6)),)}).run(Plan((trial,), 1))
    assert workers.crossed == [100_352] * (1 if status == "ok" else 1 + MOST_AGAIN)
    assert store.rows()[0]["status"] == status, store.rows()[0]["reason"]


def test_a_link_that_keeps_its_profile_in_another_network_is_probed_anew(store: Store) -> None:
    networks = {"none+a": (NONE, Profile("a")), "none+b": (NONE, Profile("b"))}
    trials = [replace(TRIAL, cell=replace(CELL, cuts=(3, 7), netem=name)) for name in networks]
    runner(StandInWorkers(middles=("middle1",)), store, networks).run(Plan(tuple(trials), 1))
    rows = rows_of(store.folder / "link.csv")
    assert [row["when"] for row in rows if row["link"] == "edge-middle1"] == ["before", "after"] * 2


LOSSY = Profile("lossy", Direction(0.01, 1e7, loss=0.01))


@pytest.mark.parametrize("takes_seeds", [True, False])
def test_every_cell_of_a_round_meets_the_same_losses_and_each_round_others(
    store: Store, tmp_path: Path, takes_seeds: bool
) -> None:
    workers, other, calm = StandInWorkers(takes_seeds=takes_seeds), StandInWorkers(), StandInWorkers()
    cells = [replace(CELL, netem="t", backend=backend) for backend in ("tcp", "rpc")]
    plan = Plan(tuple(replace(TRIAL, cell=cell, round=number) for number in (1, 2) for cell in cells), 2)
    runner(workers, store, {"t": (LOSSY,)}, seed=3).run(plan)
    first, again, second, _ = workers.seeds
    assert first == again != second
    reports = column(store, "link_seed")
    if takes_seeds:
        assert reports[0] == reports[1] != reports[2] == reports[3]
        assert all(reports)
    else:
        assert reports == [""] * 4
    runner(other, Store.create(tmp_path, "other", {}), {"t": (LOSSY,)}, seed=4).run(plan)
    assert other.seeds[0] != first
    run(calm, without_chance := Store.create(tmp_path, "calm", {}))
    assert (calm.seeds, column(without_chance, "link_seed")) == ([], [""])


def test_each_link_of_a_chain_has_a_chance_of_its_own(store: Store) -> None:
    workers = StandInWorkers(middles=("middle1",))
    trial = replace(TRIAL, cell=replace(CELL, cuts=(3, 7), netem="t"))
    runner(workers, store, {"t": (LOSSY, LOSSY)}).run(Plan((trial,), 1))
    first, second = workers.seeds
    assert first != second


def test_fresh_workers_for_every_so_many_rounds_and_each_row_says_which(tmp_path: Path) -> None:
    """Three rounds of two cells: a start each round, every two rounds, never; a session before had two starts."""
    cells = CELL, replace(CELL, backend="rpc")
    trials = tuple(replace(TRIAL, cell=cell, round=number) for number in (1, 2, 3) for cell in cells)
    each = ("round", [3, 3, 4, 4, 5, 5], 2), (2, [3, 3, 3, 3, 4, 4], 1), ("never", [3] * 6, 0)
    for every, starts, closed in each:
        workers, follower, store = StandInWorkers(), Follower(False), Store.create(tmp_path, "run", {})
        runner(workers, store, follower=follower, restart=every, starts=2).run(Plan(trials, 3))
        assert [row["restart"] for row in follower.rows] == starts
        assert workers.closed == closed
        assert store.starts() == max(starts)


def test_another_allocator_has_fresh_workers_and_its_rows_say_so(store: Store) -> None:
    """Rows also say which codecs they stand for: a cell is the same cell, whatever it stands for."""
    left, workers, follower = replace(CELL, allocator="default"), StandInWorkers(), Follower(False)
    order = ((1, replace(CELL, stands_for=("none", "int8"))), (1, left), (2, left), (2, CELL))
    trials = tuple(replace(TRIAL, cell=cell, round=n) for n, cell in order)
    runner(workers, store, follower=follower).run(Plan(trials, 2))
    said = [(row["allocator"], row["restart"]) for row in follower.rows]
    assert said == [("tuned", 1), ("default", 2), ("default", 2), ("tuned", 3)]
    assert workers.closed == 2
    assert (store.rows()[0]["codec"], store.rows()[0]["stands_for"]) == ("none", "none; int8")
    assert store.done() == {(CELL, 1), (CELL, 2), (left, 1), (left, 2)}

"""Trial by trial into a store: what is kept of each, and when it is better to stop."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest
from pyarrow import parquet
from syrupy.assertion import SnapshotAssertion

from pareto.hosts.connection import Unreachable
from pareto.hosts.host import End
from pareto.hosts.session import SessionLost
from pareto.hosts.shapers import LinkState, Shaper
from pareto.hosts.testbed import Link
from pareto.protocol.trial_messages import Progress, WrongOutput
from pareto.remote.link.probe import GOODPUT, STILL, Probed, Reading, Sample, Tolerance
from pareto.remote.link.profile import Direction, Profile
from pareto.run.runner import MAX_FAILURES_IN_A_ROW, MAX_REBUILDS, MOST_AGAIN, Aborted, Runner, Tally, Watcher
from pareto.sweep.bounds import Crossing
from pareto.sweep.cell import Cell
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.networks import Networks, profiles
from pareto.sweep.plan import QUICK, ModelFacts, Plan, Trial, crossings
from pareto.trial.any_workers import AnyWorkers
from pareto.trial.faults import OTHER_PROGRAMS
from pareto.trial.rows import link_row
from pareto.trial.store import Row, Store
from tests.unit.reported import result_of
from tests.unit.test_trial import SENSED, USAGE, WINDOWS, report

NONE = Profile("none")
CELL = Cell("mobilenet_v2", (7,), "features.6", "tcp", NONE.name, 1)
TRIAL = Trial(CELL, 1, 0.4, 4.0, QUICK)
FACTS = ModelFacts(tuple((f"features.{i}", 100_352) for i in range(12)), 0.01)
SAMPLES = {"edge": SENSED, "server": SENSED}
END = End("edge", "192.168.7.2", "eth0")
LATEST = {"edge": {"cpu_percent": 7.0}}


@dataclass
class StandInWorkers:
    """Hosts that do what they are asked at once, unless `faults` are still to come: before a trial, or within it."""

    report: dict[str, Any] | WrongOutput = field(default_factory=lambda: report(**WINDOWS))
    samples_told: dict[str, Any] = field(default_factory=lambda: SAMPLES)
    faults: list[Exception] = field(default_factory=list)
    readings: list[Probed] = field(default_factory=list)
    dropped: list[int | None] = field(default_factory=lambda: [None])
    closed: int = 0
    gone: str = ""
    within: bool = False

    def lost(self) -> str:
        return self.gone

    def ready(self, cell: Cell, network: Sequence[Profile]) -> None:
        if self.faults and not self.within:
            raise self.faults.pop(0)

    @property
    def links(self) -> tuple[Link, ...]:
        return (Link(END, END, cast(Shaper, self)),)

    def crossings(self, cell: Cell, network: Sequence[Profile], seen: Any) -> list[Crossing]:
        return crossings(cell, FACTS, network, ["edge-server"], seen)

    def probed(
        self, link: Link, profile: Profile, tolerance: Tolerance
    ) -> tuple[Probed, tuple[float, float]]:
        good = Probed(Reading(0.0003, None, None), "")
        return (self.readings.pop(0) if self.readings else good), (0.0, 0.0)

    def trial(self, trial: Trial, network: Any, sampled: Any) -> Any:
        if self.faults:
            raise self.faults.pop(0)
        if sampled is not None:
            sampled(LATEST, None)
        if isinstance(self.report, WrongOutput):
            return self.report
        return result_of({"edge": self.report, **self.others()})

    def others(self) -> dict[str, Any]:
        return {"server": {**USAGE, **WINDOWS}}

    def samples(self) -> dict[str, Any]:
        return self.samples_told

    def state(self) -> LinkState:
        return LinkState(self.dropped.pop(0) if len(self.dropped) > 1 else self.dropped[0], None)

    def close(self) -> None:
        self.closed += 1


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


def run(workers: StandInWorkers, store: Store, *, trials: int = 1, is_live: bool = False) -> Follower:
    follower = Follower(is_live)
    trial_of_each = tuple(replace(TRIAL, round=1 + n) for n in range(trials))
    runner(workers, store, follower=follower).run(Plan(trial_of_each, trials))
    return follower


def test_a_trials_samples_are_kept_from_its_beginning_on(store: Store) -> None:
    run(StandInWorkers(), store)
    (row,) = store.rows()
    assert (row["status"], row["edge_temperature_c"], row["server_temperature_c"]) == ("ok", "43", "43")
    table = parquet.read_table(store.folder / "devices" / f"{CELL.id}-r01.parquet").to_pydict()
    assert table["host"] == ["edge"] * 5 + ["server"] * 5
    assert table["at_s"][:5] == [-0.5, 0.5, 1.5, 2.5, 3.5]  # the trial began at 0.5
    assert table["energy_j"][:5] == SENSED["energy_j"]


def test_what_each_host_did_is_kept_beside_the_trial(store: Store) -> None:
    busy = {"throughput_busy_s": 1.5}
    workers = StandInWorkers(report=report(**WINDOWS, **busy, weights_bytes=7))
    run(workers, store, trials=2)
    with (store.folder / "stages.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["round"], row["position"], row["host"]) for row in rows] == [
        ("1", "0", "edge"),
        ("1", "1", "server"),
        ("2", "0", "edge"),
        ("2", "1", "server"),
    ]
    edge, server = rows[:2]
    assert (edge["first_unit"], edge["last_unit"], edge["payload_bytes"]) == ("0", "7", "100352")
    assert (edge["utilization"], edge["bubble_s"], edge["weights_bytes"]) == ("0.5", "0.25", "7")
    assert (server["first_unit"], server["payload_bytes"], server["utilization"]) == ("7", "", "")
    table = parquet.read_table(store.folder / "requests" / f"{CELL.id}-r01.parquet").to_pydict()
    assert set(table["server_s"]) == {0.015}


def test_without_samples_there_is_no_file_of_them(store: Store) -> None:
    run(StandInWorkers(samples_told={}), store)
    (row,) = store.rows()
    assert (row["status"], row["edge_temperature_c"], row["edge_energy_j"]) == ("ok", "", "")
    assert not (store.folder / "devices").exists()


def test_a_split_that_is_wrong_keeps_no_samples(store: Store) -> None:
    run(StandInWorkers(report=WrongOutput(3.0, 1e-4)), store)
    (row,) = store.rows()
    assert row["status"] == "invalid"
    assert not (store.folder / "devices").exists()
    assert list((store.folder / "requests").iterdir()) == []


@pytest.mark.parametrize(("is_live", "seen"), [(True, [LATEST]), (False, [])])
def test_only_a_live_screen_asks_for_samples_meanwhile(store: Store, is_live: bool, seen: list[Any]) -> None:
    assert run(StandInWorkers(), store, is_live=is_live).seen == seen


@pytest.mark.parametrize(("counted", "said"), [([None], ""), ([3, 10], "7"), ([3, None], ""), ([5, 5], "0")])
def test_drops_are_counted_only_where_somebody_counts(
    store: Store, counted: list[int | None], said: str
) -> None:
    run(StandInWorkers(dropped=counted), store)
    assert store.rows()[0]["dropped_packets"] == said


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
        follower, store = Follower(False), Store.create(tmp_path, "run", {})
        runner(workers, store, follower=follower, **allowed).run(Plan((TRIAL,), 1))
        assert follower.rows[-1]["status"] == status


def test_hosts_that_stay_away_end_the_run(store: Store, snapshot: SnapshotAssertion) -> None:
    workers = StandInWorkers(faults=[Unreachable("pi: No route to host")] * 9)
    with pytest.raises(Aborted) as aborted:
        run(workers, store, trials=8)
    assert "pi: No route to host" in str(aborted.value)
    assert str(aborted.value) == snapshot
    assert [row["status"] for row in store.rows()] == ["failed"] * MAX_FAILURES_IN_A_ROW


def test_failures_are_counted_from_plan_to_plan(store: Store) -> None:
    """Rounds that are added have few trials each: none of them alone has enough to give up."""
    workers = StandInWorkers(faults=[Unreachable("pi: No route to host")] * 9)
    all_rounds = runner(workers, store)
    with pytest.raises(Aborted):
        for number in range(1, 9):
            all_rounds.run(Plan((replace(TRIAL, round=number),), 1))
    assert len(store.rows()) == MAX_FAILURES_IN_A_ROW


def test_the_clock_knows_the_pace(store: Store) -> None:
    now = itertools.count(step=3.0).__next__
    tally = Tally()
    assert tally.pace == 1.0
    session = runner(StandInWorkers(), store, tally=tally)
    session.now = now
    session.run(Plan((TRIAL,), 1))
    walls = float(store.rows()[0]["wall_s"])
    assert (tally.wall, tally.foreseen) == (walls, TRIAL.estimate_s)
    assert tally.pace == walls / TRIAL.estimate_s > 1


def test_a_host_that_is_lost_costs_its_trial(store: Store) -> None:
    workers = StandInWorkers(faults=[SessionLost("pi ended: killed by signal 9")])
    run(workers, store, trials=3)
    assert [row["status"] for row in store.rows()] == ["failed", "ok", "ok"]
    assert store.rows()[0]["reason"] == "pi ended: killed by signal 9"
    assert workers.closed == 1


def test_a_trial_is_done_again_where_its_testbed_was_lost(store: Store) -> None:
    workers = StandInWorkers(faults=[SessionLost("edge ended")] * 2, gone="its relay was killed")
    follower = run(workers, store, trials=2)
    assert [(row["round"], row["status"]) for row in store.rows()] == [("1", "ok"), ("2", "ok")]
    assert follower.rebuilt == [("its relay was killed", 1), ("its relay was killed", 2)]
    assert workers.closed == 2  # the workers are started anew on what is built
    assert [row["restart"] for row in store.rows()] == ["3", "3"]


def test_a_testbed_that_is_lost_again_and_again_is_given_up(store: Store) -> None:
    workers = StandInWorkers(
        faults=[SessionLost("edge ended")] * 99, gone="its relay was killed", within=True
    )
    with pytest.raises(Aborted, match="its relay was killed"):
        run(workers, store, trials=8)
    assert [row["status"] for row in store.rows()] == ["failed"] * MAX_FAILURES_IN_A_ROW
    assert {row["reason"] for row in store.rows()} == {"its relay was killed"}
    assert 99 - len(workers.faults) == MAX_REBUILDS + MAX_FAILURES_IN_A_ROW


def test_a_testbed_that_does_not_come_back_ends_the_run(store: Store, snapshot: SnapshotAssertion) -> None:
    """To wait for it takes a minute each time: no further trial is tried."""
    workers = StandInWorkers(
        faults=[Unreachable("gpu: No route to host")] * 99, gone="gpu: it does not answer"
    )
    with pytest.raises(Aborted) as aborted:
        run(workers, store, trials=8)
    assert str(aborted.value) == snapshot
    assert [row["reason"] for row in store.rows()] == ["gpu: No route to host"]
    assert 99 - len(workers.faults) == 1 + MAX_REBUILDS


def test_losses_are_shares_of_what_was_sent() -> None:
    lossy = Profile("lossy", Direction(0.01, loss=0.1), Direction(0.01, loss=0.25))
    reading = Reading(0.02, None, None, Sample(50, 45, 0, 0), Sample(200, 150, 0, 0))
    row = link_row(lossy, reading, STILL)
    assert (row["loss"], row["loss_back"], row["datagrams"]) == (0.1, 0.25, 250)
    assert (row["asked_loss"], row["asked_loss_back"]) == pytest.approx((0.1, 0.25))


def test_a_probe_that_is_off_is_taken_again_at_most_thrice(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    off = Probed(Reading(0.3, None, None), "RTT 300 ms, asked 0 ms")
    stores = [Store.create(tmp_path, "run", {}) for _ in range(2)]
    followers = [
        run(StandInWorkers(readings=[off] * times), store)
        for store, times in zip(stores, (3, 4), strict=True)
    ]
    assert [[row["status"] for row in each.rows] for each in followers] == [["ok"], ["invalid", "ok"]]
    assert followers[1].rows[0]["reason"] == snapshot
    assert [[row["status"] for row in store.rows()] for store in stores] == [["ok"], ["ok"]]


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

    tally, follower, workers = Tally(), Follower(False), Disturbed()
    cells = [replace(CELL, cuts=(cut,)) for cut in range(5)]
    trials = tuple(replace(TRIAL, cell=cell) for cell in cells)
    runner(workers, store, follower=follower, tally=tally).run(Plan(trials, 1))
    assert workers.count == attempts
    rows = {row["point"]: row["status"] for row in store.rows()}
    assert [rows[str(cut)] for cut in (1, 0, 2, 3, 4)] == statuses.split()
    assert len(store.rows()) == 5
    assert len(tally.again) == attempts - 5
    assert all(each["blamed"] == OTHER_PROGRAMS for each in tally.again)
    assert len(tally.faulty) == statuses.count("invalid")


def test_what_can_never_be_right_is_measured_once(store: Store) -> None:
    follower = run(StandInWorkers(report=WrongOutput(3.0, 1e-4)), store)
    assert [row["status"] for row in follower.rows] == ["invalid"]


class Played(StandInWorkers):
    """Notes from where on the link's trace is played."""

    def restart(self, position_s: float) -> None:
        self.played = [*getattr(self, "played", []), position_s]


def test_each_round_sees_another_part_of_a_trace_also_one_that_is_added(store: Store) -> None:
    (changing,) = profiles("handover")
    assert changing.offset_s == 0
    workers, cell = Played(), replace(CELL, netem="t")
    session = runner(workers, store, {"t": (changing,)})
    session.run(Plan(tuple(replace(TRIAL, cell=cell, round=number) for number in (1, 2)), 2))
    session.run(Plan((replace(TRIAL, cell=cell, round=3),), 2))
    period = changing.period_s or 0.0
    assert workers.played == pytest.approx([0, period / 2, period / 4])


class OverAnIdleLink(StandInWorkers):
    """Takes as long over the idle link as requests did in the trial, or less."""

    idle_s = 0.4

    def idle_crossing_s(self, link: Link, crossing: Crossing) -> float:
        self.crossed = [*getattr(self, "crossed", []), crossing.payload_bytes]
        return self.idle_s


@pytest.mark.parametrize(("idle_s", "status"), [(0.4, "ok"), (0.1, "invalid")])
def test_bytes_that_crossed_late_cross_the_idle_link_again(store: Store, idle_s: float, status: str) -> None:
    slow = Profile("slow", Direction(0.01, 5e6))
    rate = Probed(Reading(0.01, 5e6 * GOODPUT, None), "")
    workers = OverAnIdleLink(readings=[rate, rate])
    workers.idle_s = idle_s
    trial = replace(TRIAL, cell=replace(CELL, netem="slow"))
    runner(workers, store, {"slow": (slow,)}).run(Plan((trial,), 1))
    assert workers.crossed == [100_352] * (1 if status == "ok" else 1 + MOST_AGAIN)
    assert store.rows()[0]["status"] == status, store.rows()[0]["reason"]


class ThreeHosts(StandInWorkers):
    @property
    def links(self) -> tuple[Link, ...]:
        middle, server = replace(END, role="middle1"), replace(END, role="server")
        shaper = cast(Shaper, self)
        return (Link(END, middle, shaper), Link(middle, server, shaper))

    def crossings(self, cell: Cell, network: Sequence[Profile], seen: Any) -> list[Crossing]:
        return crossings(cell, FACTS, network, [link.name for link in self.links], seen)

    def others(self) -> dict[str, Any]:
        passed_on = {**USAGE, **WINDOWS, "sent_bytes": 1 << 30, "received_bytes": 1 << 30}
        return {"middle1": passed_on, **super().others()}


def test_a_link_that_keeps_its_profile_in_another_network_is_probed_anew(store: Store) -> None:
    networks = {"none+a": (NONE, Profile("a")), "none+b": (NONE, Profile("b"))}
    trials = [replace(TRIAL, cell=replace(CELL, cuts=(3, 7), netem=name)) for name in networks]
    runner(ThreeHosts(), store, networks).run(Plan(tuple(trials), 1))
    rows = list(csv.DictReader((store.folder / "link.csv").read_text().splitlines()))
    assert [row["when"] for row in rows if row["link"] == "edge-middle1"] == ["before", "after"] * 2


class Seeded(StandInWorkers):
    """Notes what chance on its link began from."""

    takes_seeds = True

    def seed(self, seed: int) -> bool:
        self.seeds = [*getattr(self, "seeds", []), seed]
        return self.takes_seeds


@pytest.mark.parametrize("takes_seeds", [True, False])
def test_every_cell_of_a_round_meets_the_same_losses_and_each_round_others(
    store: Store, tmp_path: Path, takes_seeds: bool
) -> None:
    lossy = Profile("lossy", Direction(0.01, 1e7, loss=0.01))
    workers = Seeded()
    workers.takes_seeds = takes_seeds
    cells = [replace(CELL, netem="t", backend=backend) for backend in ("tcp", "rpc")]
    plan = Plan(tuple(replace(TRIAL, cell=cell, round=number) for number in (1, 2) for cell in cells), 2)
    network = {"t": (lossy,)}
    runner(workers, store, network, seed=3).run(plan)
    first, again, second, _ = workers.seeds
    assert first == again != second
    reports = [row["link_seed"] for row in store.rows()]
    if takes_seeds:
        assert reports[0] == reports[1] != reports[2] == reports[3]
        assert all(reports)
    else:
        assert reports == [""] * 4
    other = Seeded()
    its = Store.create(tmp_path, "other", {})
    runner(other, its, network, seed=4).run(plan)
    assert other.seeds[0] != first


class SeededChain(Seeded, ThreeHosts):
    """The same of two links."""


def test_each_link_of_a_chain_has_a_chance_of_its_own(store: Store) -> None:
    workers, lossy = SeededChain(), Profile("lossy", Direction(0.01, 1e7, loss=0.01))
    trial = replace(TRIAL, cell=replace(CELL, cuts=(3, 7), netem="t"))
    runner(workers, store, {"t": (lossy, lossy)}).run(Plan((trial,), 1))
    first, second = workers.seeds
    assert first != second


def test_a_link_without_chance_needs_no_seed(store: Store) -> None:
    workers = Seeded()
    run(workers, store)
    assert not hasattr(workers, "seeds")
    assert store.rows()[0]["link_seed"] == ""


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
    left, workers, follower = replace(CELL, allocator="default"), StandInWorkers(), Follower(False)
    trials = tuple(
        replace(TRIAL, cell=cell, round=n) for n, cell in ((1, CELL), (1, left), (2, left), (2, CELL))
    )
    runner(workers, store, follower=follower).run(Plan(trials, 2))
    assert [(row["allocator"], row["restart"]) for row in follower.rows] == [
        ("tuned", 1),
        ("default", 2),
        ("default", 2),
        ("tuned", 3),
    ]
    assert workers.closed == 2


def test_a_row_says_which_codecs_it_stands_for(store: Store) -> None:
    cell = replace(CELL, stands_for=("none", "int8"))
    runner(StandInWorkers(), store).run(Plan((replace(TRIAL, cell=cell),), 1))
    (row,) = store.rows()
    assert (row["codec"], row["stands_for"]) == ("none", "none; int8")
    assert store.done() == {(CELL, 1)}, "a cell is the same cell, whatever it stands for"

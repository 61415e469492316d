"""Rounds of cells: complete, in a random but repeatable order, and no longer than the link asks for."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.protocol.errors import UserError
from pareto.remote.link import probe
from pareto.remote.link.profile import Direction, Profile
from pareto.sweep import plan, profile_files, waits
from pareto.sweep.cell import Cell
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.plan import ModelFacts, Plan
from pareto.sweep.sweep import Sweep
from tests.unit.own_codecs import simple, written

MODELS = {
    "a": ModelFacts((("input", 600_000), ("mid", 100_000), ("output", 0)), 0.03, splits=((0,), (1,), (2,))),
    "b": ModelFacts((("input", 600_000), ("output", 0)), 0.01, splits=((0,), (1,))),
}


def sweep(**fields: object) -> Sweep:
    return make_sweep({"model": "a,b", "netem": "none,20ms-20mbit", "trials": 4, **fields})


def make(wanted: Sweep, done: frozenset[tuple[Cell, int]] = frozenset()) -> Plan:
    models = {name: MODELS[name] for name in wanted.models}
    return plan.make(wanted, models, {name: [profile_files.load(name)] for name in wanted.netems}, done)


def order(trials: Iterable[plan.Trial]) -> list[tuple[Cell, int]]:
    """Which they are: how long one takes depends also on what comes before it."""
    return [(trial.cell, trial.round) for trial in trials]


def test_every_round_has_every_cell_once() -> None:
    wanted = sweep()
    counted = Counter((trial.cell, trial.round) for trial in make(wanted).trials)
    cells = plan.cells(wanted, MODELS, wanted.netems)
    assert len(cells) == (3 + 2) * 2 * 2  # points x backends x profiles
    assert counted == Counter((cell, number) for cell in cells for number in (1, 2, 3, 4))


def test_a_backend_under_two_names_is_two_cells_of_one_transport() -> None:
    cells = plan.cells(sweep(backend="tcp:a,tcp:b"), MODELS, ["none"])
    assert len(set(cells)) == len(cells) == 2 * (3 + 2)
    assert len({cell.id for cell in cells}) == len(cells)
    assert {cell.transport for cell in cells} == {"tcp"}
    assert Counter(cell.backend for cell in cells) == {"tcp:a": 5, "tcp:b": 5}


def test_the_order_is_random_but_the_seeds() -> None:
    first, again, other = make(sweep()), make(sweep()), make(sweep(seed=1))
    assert first.trials == again.trials
    assert first.trials != other.trials
    rounds = [[t.cell for t in first.trials if t.round == number] for number in (1, 2, 3, 4)]
    links = {tuple(dict.fromkeys((c.model, c.netem) for c in cells)) for cells in rounds}
    within = {tuple(c for c in cells if (c.model, c.netem) == ("a", "none")) for cells in rounds}
    assert len(links) > 1
    assert len(within) == 4


def test_a_round_changes_model_or_link_as_rarely_as_it_can() -> None:
    for number in (1, 2, 3, 4):
        links = [(t.cell.model, t.cell.netem) for t in make(sweep()).trials if t.round == number]
        changes = sum(a != b for a, b in itertools.pairwise(links))
        assert changes == 3  # two models x two profiles


def test_a_round_changes_the_rpc_agent_once_and_keeps_every_cell() -> None:
    """Joining anew takes longer than many a trial. Which comes first is chance, and the others are among both."""
    variants = ("tcp", "tcp:4", "rpc", "rpc:basic:a", "rpc:basic:b")
    wanted = sweep(model="a", netem="none", backend=",".join(variants), trials=20)
    cells, firsts, places = plan.cells(wanted, {"a": MODELS["a"]}, ["none"]), [], []
    for number in range(1, 21):
        round_ = [trial.cell for trial in make(wanted).trials if trial.round == number]
        assert Counter(round_) == Counter(cells)
        agents = [cell.agent for cell in round_ if cell.agent]
        assert sum(a != b for a, b in itertools.pairwise(agents)) == 1
        firsts.append(agents[0])
        places += [place for place, cell in enumerate(round_) if not cell.agent]
    assert set(firsts) == {"rpc", "rpc:basic"}
    assert set(places) == set(range(len(cells)))


def test_what_is_done_is_left_out_and_the_rest_keeps_its_order() -> None:
    whole = make(sweep())
    done = frozenset((t.cell, t.round) for t in whole.trials[::3])
    rest = make(sweep(), done)
    assert order(rest.trials) == order(t for t in whole.trials if (t.cell, t.round) not in done)


def test_rounds_divide_a_trace_evenly_and_those_added_begin_between_them() -> None:
    to_begin_with = Plan((), 3)
    assert [to_begin_with.part(number) for number in (1, 2, 3)] == pytest.approx([0, 1 / 3, 2 / 3])
    added = [to_begin_with.part(number) for number in range(4, 13)]
    assert added[:3] == pytest.approx([1 / 6, 3 / 6, 5 / 6])
    begun = sorted([0, 1 / 3, 2 / 3, *added])
    assert begun == pytest.approx([number / 12 for number in range(12)])
    assert [Plan((), 1).part(number) for number in range(1, 6)] == [0, 0.5, 0.25, 0.75, 0.125]


def test_a_round_that_is_added_has_the_order_of_its_number() -> None:
    """Whether a round was planned or added, by whichever session: the same trials in the same order."""
    wanted = sweep(trials=2)
    networks = {name: [profile_files.load(name)] for name in wanted.netems}
    conditions = {cell.condition for cell in plan.cells(wanted, MODELS, wanted.netems)}
    added = plan.further(wanted, MODELS, networks, dict.fromkeys(conditions, 4))
    assert order(added.trials) == order(t for t in make(sweep(trials=4)).trials if t.round == 4)
    assert added.rounds == 2
    some = sorted(conditions)[:2]
    part = plan.further(wanted, MODELS, networks, dict.fromkeys(some, 4))
    assert part.trials == tuple(t for t in added.trials if t.cell.condition in some)


def test_of_an_added_round_that_was_begun_the_rest_is_planned() -> None:
    wanted, longer = sweep(trials=2), make(sweep(trials=3))
    begun = next(t for t in longer.trials if t.round == 3)
    done = frozenset((t.cell, t.round) for t in longer.trials if t.round < 3) | {(begun.cell, 3)}
    rest = make(wanted, done).trials
    of_its_condition = [t for t in longer.trials if t.round == 3 and t.cell.condition == begun.cell.condition]
    assert order(rest) == order(t for t in of_its_condition if t != begun)
    last = plan.last_rounds(wanted, MODELS, wanted.netems, done)
    assert last.pop(begun.cell.condition) == 3
    assert set(last.values()) == {2}


def test_a_cell_is_named_by_its_cuts() -> None:
    wanted = sweep(model="a", backend="tcp", netem="none")
    chain = {"a": replace(MODELS["a"], splits=((0, 1), (1, 2)))}
    assert [(cell.point, cell.point_name, cell.id) for cell in plan.cells(wanted, chain, wanted.netems)] == [
        ("0+1", "input+mid", "a-k00+01-tcp-none-b1"),
        ("1+2", "mid+output", "a-k01+02-tcp-none-b1"),
    ]


def test_only_links_before_the_last_point_are_crossed() -> None:
    model = replace(MODELS["a"], result_bytes=40)
    network, names = (
        [profile_files.load("none"), profile_files.load("20ms-20mbit")],
        ["edge-middle1", "middle1-server"],
    )

    def crossed(*cuts: int) -> list[tuple[str, str, int, int]]:
        cell = Cell("a", cuts, "", "tcp", "x", 2)
        found = plan.crossings(cell, model, network, names, [(0.0, 1.0), (2.0, 3.0)])
        assert [it.seen for it in found] == [(0.0, 1.0), (2.0, 3.0)][: len(found)]
        return [(it.link, it.profile.name, it.payload_bytes, it.result_bytes) for it in found]

    assert crossed(0, 1) == [
        ("edge-middle1", "none", 1_200_000, 80),
        ("middle1-server", "20ms-20mbit", 200_000, 80),
    ]
    assert crossed(1, 2) == [("edge-middle1", "none", 200_000, 80)]
    assert crossed(2, 2) == []


def test_phases_follow_the_link() -> None:
    """A cell lasts as long as its least requests need, and never under the phases' seconds."""
    wanted = sweep(model="a", netem="none,200ms-5mbit", backend="tcp", trials=1)
    estimate = {(t.cell.netem, *t.cell.cuts): t.estimate_s - t.waiting_s for t in make(wanted).trials}
    transfer_s = 600_000 * 8 / 5e6
    least = plan.THOROUGH.latency[0] * (transfer_s + 0.2) + plan.THOROUGH.throughput[0] * transfer_s
    assert estimate["200ms-5mbit", 0] > least
    assert estimate["none", 0] < 2 * (plan.THOROUGH.latency[1] + plan.THOROUGH.throughput[1])
    quick = sum(t.estimate_s for t in make(sweep(model="a", quick=True)).trials)
    assert quick < 0.8 * sum(t.estimate_s for t in make(sweep(model="a")).trials)


@pytest.mark.parametrize("more", [{}, {"quick": True}])
@pytest.mark.parametrize(
    ("wanted", "length"), [({"requests": 662}, (662, 0.0)), ({"phase": "10s"}, (1, 10.0))]
)
def test_phases_are_as_long_as_asked_for(
    wanted: dict[str, Any], length: tuple[int, float], more: dict[str, Any]
) -> None:
    """And the estimate says so: two phases, in which the slowest step paces the second."""
    usual, asked = (make(sweep(model="a", backend="tcp", trials=1, **more, **each)) for each in ({}, wanted))
    for before, trial in zip(usual.trials, asked.trials, strict=True):
        assert trial.effort == plan.Effort(length, length)
        added_s = max(length[0] * trial.latency_s, length[1]) - trial.latency_s
        assert trial.estimate_s > before.estimate_s - 1.2 + added_s
    if "phase" in wanted:
        assert asked.estimate_s == pytest.approx(len(asked.trials) * 20.0, rel=0.2)


@pytest.mark.parametrize(
    ("netem", "proven", "requests"), [("200ms-5mbit", False, 1), ("200ms-5mbit", True, 0), ("none", True, 3)]
)
def test_warm_up_proves_each_cell_and_costs_a_slow_link_nothing_more(
    netem: str, proven: bool, requests: int
) -> None:
    wanted = sweep(model="a", netem=netem, backend="tcp", trials=1)
    (trial,) = (trial for trial in make(wanted).trials if trial.cell.cuts == (0,))
    assert trial.warmup_requests(proven) == requests
    assert replace(trial, latency_s=0.15).warmup_requests(proven) == 1, (
        "the first is the one that takes longer"
    )
    assert trial.warmup_requests(proven, compute_s=0.21) == (not proven)


def test_all_cells_in_six_rounds_take_less_than_22_minutes() -> None:
    """MobileNetV2's payloads, of images as bytes, at 200 ms and 5 Mbit/s, with what rpc loses there and sends again."""
    kib = [147, 1568, 784, 294, 294, *[98] * 3, *[49] * 4, *[73.5] * 3, *[30.625] * 3, 61.25, 245, 5, 0]
    points = tuple((str(i), int(size * 1024)) for i, size in enumerate(kib))
    models = {"m": ModelFacts(points, 0.03, splits=tuple((i,) for i in range(len(kib))))}
    networks = {"200ms-5mbit": [profile_files.load("200ms-5mbit")]}
    for options, limit_s in (({}, 22 * 60), ({"quick": True, "trials": 1}, 4 * 60)):
        wanted = make_sweep({"model": "m", "netem": "200ms-5mbit", **options})
        assert plan.make(wanted, models, networks).estimate_s < limit_s


def test_each_depth_is_a_cell_of_its_own_and_foreseen_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """One in flight goes at the pace of the latency, many at that of the slowest step."""
    wanted = make_sweep({"model": "m", "netem": "200ms-5mbit", "points": "0", "in_flight": "1,8,auto"})
    models = {"m": ModelFacts((("input", 10_000), ("output", 0)), 0.03, splits=((0,),))}
    monkeypatch.setattr(plan, "THOROUGH", replace(plan.THOROUGH, throughput=(30, 0.5)))
    made = plan.make(wanted, models, {"200ms-5mbit": [profile_files.load("200ms-5mbit")]})
    estimates = {trial.cell.in_flight: trial.estimate_s for trial in made.trials}
    assert len({trial.cell for trial in made.trials}) == 3 * len(wanted.backends)
    assert estimates["1"] > estimates["8"] + 30 * 0.2 * 0.7
    assert estimates["1"] > estimates["auto"] + 30 * 0.2 * 0.7


def test_each_number_of_requests_decoded_ahead_is_a_condition_of_its_own() -> None:
    camera = {"from": "jpeg", "dataset": "folder", "data_path": "pictures", "backend": "tcp"}
    wanted = make_sweep({"model": "m", "prefetch": "0,1,4", "trials": 2, **camera})
    models = {"m": ModelFacts((("input", 10_000), ("output", 0)), 0.03, splits=((0,),))}
    made = plan.make(wanted, models, {"none": [profile_files.load("none")]})
    for number in (1, 2):
        in_round = [trial.cell for trial in made.trials if trial.round == number]
        assert sorted(cell.prefetch for cell in in_round) == [0, 1, 4]
        assert len({cell.condition for cell in in_round}) == 3


def test_the_cells_of_one_allocator_stay_together_and_a_round_begins_with_the_last_ones() -> None:
    """Workers start anew for another one."""
    wanted = make_sweep(
        {"model": "m", "netem": "none,wifi", "allocator": "tuned,default", "trials": 3, "backend": "tcp"}
    )
    models = {"m": ModelFacts((("input", 10_000), ("output", 0)), 0.03, splits=((0,), (1,)))}
    made = plan.make(wanted, models, {name: [profile_files.load(name)] for name in wanted.netems})
    told = [trial.cell.allocator for trial in made.trials]
    assert [allocator for allocator, _ in itertools.groupby(told)] == ["tuned", "default", "tuned", "default"]
    assert len({trial.cell for trial in made.trials}) == len({trial.cell.id for trial in made.trials}) == 8
    assert len({trial.cell.condition for trial in made.trials}) == 4


def test_what_a_local_testbeds_cores_leave_of_a_throughput() -> None:
    quick = ModelFacts((("input", 100_000), ("a", 1000), ("output", 0)), 0.004, splits=((1,), (2,)))
    cut, whole = (Cell("m", (point,), "", "tcp", "x", 1) for point in (1, 2))
    still, slow = Profile("x"), Profile("x", Direction(0.0, 1e5))
    sends_s = plan.SENDING_S
    assert plan.reach(whole, quick, [still], cores=2) == 1.0  # nothing is sent
    assert plan.reach(cut, quick, [slow], cores=2) == 1.0  # the link is slower than all of it
    assert plan.reach(cut, quick, [still], cores=2) == pytest.approx(0.002 / (0.002 + sends_s), rel=0.05)
    # A quarter of a core: the edge's stage and its sending alike take four times as long.
    slowed = plan.reach(cut, quick, [still], edge_cpu=0.25, cores=2)
    assert slowed == pytest.approx(0.002 / (0.002 + sends_s), rel=0.05)
    # One core for both hosts does the work of both, and the relay's.
    carried_s = plan.RELAY_S_PER_BYTE * (1000 + quick.result_bytes)
    shared = plan.reach(cut, quick, [still], cores=1)
    assert shared == pytest.approx(0.002 / (0.004 + 2 * sends_s + carried_s))


def test_fresh_workers_cost_their_start_in_each_round_that_has_them() -> None:
    never, each, second = (
        make(sweep(model="a", netem="none", trials=4, restart=when)).estimate_s
        for when in ("never", "round", "2")
    )
    start_s = waits.START_S + waits.LOAD_NODE_S * waits.USUAL_NODES
    assert each - never > 2.9 * start_s
    assert second - never == pytest.approx(start_s, rel=0.5)


def test_connections_are_warmed_each_time_the_network_changes() -> None:
    one, other, both = (
        make(sweep(netem=netem, backend="tcp", trials=4)).estimate_s
        for netem in ("200ms-5mbit", "none", "200ms-5mbit,none")
    )
    opening_s = waits.open_s(sweep(backend="tcp"), [profile_files.load("200ms-5mbit")])
    changes = (both - one - other) / opening_s
    assert changes >= 2, "alone it is warmed once; beside another network in nearly every round"
    assert changes == pytest.approx(round(changes), abs=0.3), (
        "to open those without a link takes a moment, too"
    )


def test_a_slow_edge_makes_trials_longer() -> None:
    fast, slow = (make(sweep(model="a", edge_cpu=share)).estimate_s for share in (1.0, 0.05))
    assert slow > fast


def test_codecs_are_cells_where_something_crosses() -> None:
    wanted = make_sweep({"model": "m", "codec": "none,int8,zstd", "backend": "tcp"})
    facts = ModelFacts((("input", 100), ("one", 400), ("last", 0)), 0.01, splits=((0,), (1,), (2,)))
    made = [(cell.cuts, cell.codec) for cell in plan.cells(wanted, {"m": facts}, ["none"])]
    assert made == [
        *(((cut,), codec) for cut in (0, 1) for codec in ("none", "int8", "zstd:3")),
        ((2,), "none"),
    ]


def test_engines_are_cells_at_every_point() -> None:
    wanted = make_sweep({"model": "m", "engine": "eager,edge=onnx", "backend": "tcp"})
    facts = ModelFacts((("input", 100), ("one", 400), ("last", 0)), 0.01, splits=((0,), (1,), (2,)))
    made = plan.cells(wanted, {"m": facts}, ["none"])
    assert [(cell.cuts[0], cell.engine) for cell in made] == [
        (cut, engine) for cut in range(3) for engine in ("eager", "edge=onnx")
    ]
    assert len({cell.condition for cell in made}) == 2


def test_the_time_of_a_slow_edge_is_that_of_all_that_it_runs() -> None:
    """Beside the phases its stage runs by itself: as it was measured of YOLOv8n on a quarter of a core."""
    facts = {"m": ModelFacts((("input", 100), ("last", 0)), 0.1, splits=((1,),))}
    wanted = make_sweep({"model": "m", "backend": "tcp", "edge_cpu": 0.25, "trials": 1, "quick": True})
    (trial,) = plan.make(wanted, facts, {"none": [profile_files.load("none")]}).trials
    assert trial.latency_s == pytest.approx(0.525, rel=0.15)
    assert trial.estimate_s - trial.waiting_s == pytest.approx(7.4 - 0.27, rel=0.15)


def test_pictures_are_cells_where_nothing_but_the_input_crosses() -> None:
    wanted = make_sweep({"model": "m", "codec": "none,jpeg", "backend": "tcp"})
    points = (("input", 100), ("one", 400), ("last", 0))
    for splits, pictures in (
        (((0,), (1,), (2,)), [(0,)]),
        (((0, 0), (0, 1), (0, 2), (1, 1)), [(0, 0), (0, 2)]),
    ):
        facts = ModelFacts(points, 0.01, splits=splits)
        made = plan.cells(wanted, {"m": facts}, ["none"])
        assert [cell.cuts for cell in made if cell.codec == "jpeg:90"] == pictures
        assert [cell.cuts for cell in made if cell.codec == "none"] == [*splits]


def test_a_crossing_has_what_the_codec_sends() -> None:
    facts = ModelFacts(
        (("input", 100), ("one", 400), ("last", 0)), 0.01, wire_shares={"int8": (0.25, 0.26, 1.0)}
    )

    def bytes_of(codec: str, batch_size: int = 1) -> tuple[float, float]:
        cell = Cell("m", (1,), "one", "tcp", "none", batch_size, codec)
        (crossing,) = plan.crossings(cell, facts, [Profile("x")], ["link"])
        return crossing.payload_bytes, crossing.sent_bytes

    assert bytes_of("none") == (400, 400)
    assert bytes_of("int8", 2) == (800, pytest.approx(208))
    assert bytes_of("zstd:3") == (400, 400), "nothing is known of it"


def of_bytes(**options: Any) -> tuple[Sweep, dict[str, ModelFacts]]:
    wanted = make_sweep({"model": "m", "backend": "tcp", "netem": "none", "trials": 2, **options})
    points = (("input", 100), ("one", 400), ("last", 0))
    dtypes = (("uint8",), ("float32", "int64"), ())
    return wanted, {"m": ModelFacts(points, 0.01, splits=((0,), (1,), (2,)), dtypes=dtypes)}


def test_codecs_that_come_to_the_same_are_one_cell() -> None:
    def cells(codec: str) -> list[tuple[int, str, tuple[str, ...]]]:
        sweep, models = of_bytes(codec=codec)
        return [(cell.cuts[0], cell.codec, cell.stands_for) for cell in plan.cells(sweep, models, ["none"])]

    assert cells("none,int8,zstd,int8+zstd") == [
        (0, "none", ("none", "int8")),
        (0, "zstd:3", ("zstd:3", "int8+zstd:3")),
        *((1, codec, (codec,)) for codec in ("none", "int8", "zstd:3", "int8+zstd:3")),
        (2, "none", ("none", "int8", "zstd:3", "int8+zstd:3")),
    ]
    assert cells("int8+zstd,fp16") == [
        (0, "zstd:3", ("int8+zstd:3",)),
        (0, "none", ("fp16",)),
        (1, "int8+zstd:3", ("int8+zstd:3",)),
        (1, "fp16", ("fp16",)),
        (2, "none", ("int8+zstd:3", "fp16")),
    ]
    wanted, models = of_bytes(codec="int8")
    chain = {"m": replace(models["m"], splits=((0, 0), (0, 1)))}
    made = [(cell.point, cell.codec) for cell in plan.cells(wanted, chain, ["none"])]
    assert made == [("0+0", "none"), ("0+1", "int8")], "floats cross the second link"


def test_an_added_round_has_the_cells_that_stand_for_its_codec() -> None:
    """Its own condition is another codec's, which may be sure already, or have no cells of its own."""
    for codecs in ("int8", "none,int8"):
        wanted, models = of_bytes(codec=codecs)
        networks = {"none": [profile_files.load("none")]}
        int8 = ("m", "none", 1, "int8", "eager", "auto", 0, "tuned")
        assert int8 in plan.last_rounds(wanted, models, ["none"])
        added = plan.further(wanted, models, networks, {int8: 3})
        assert sorted((trial.cell.cuts, trial.cell.codec) for trial in added.trials) == [
            ((0,), "none"), ((1,), "int8"), ((2,), "none"),
        ]  # fmt: skip
        done = frozenset((trial.cell, 3) for trial in added.trials if trial.cell.codec == "none")
        rest = plan.further(wanted, models, networks, {int8: 3}, done)
        assert [trial.cell.codec for trial in rest.trials] == ["int8"], "another codec's round had the others"
        planned = plan.make(wanted, models, networks)
        first = frozenset((trial.cell, trial.round) for trial in planned.trials)
        rest = plan.make(wanted, models, networks, first | done)
        assert [trial.cell.codec for trial in rest.trials] == (["int8"] if codecs == "int8" else []), (
            "beside none's cells they do not say that a round of int8's was begun"
        )
        begun = first | {(trial.cell, 3) for trial in added.trials if trial.cell.codec == "int8"}
        assert [trial.cell.codec for trial in plan.make(wanted, models, networks, begun).trials] == [
            "none"
        ] * 2


def test_points_that_a_users_own_codec_does_not_fit_have_no_such_cell(tmp_path: Path) -> None:
    file = written(tmp_path, simple())
    sweep = make_sweep({"model": "m", "codec": f"none,{file}:Own,{file}:Own+zstd", "backend": "tcp"})
    unfit = {"Own": frozenset({0}), "Own+zstd:3": frozenset({0, 1})}
    facts = ModelFacts(
        (("input", 100), ("one", 400), ("two", 200), ("last", 0)),
        0.01,
        splits=((0,), (1,), (2,), (3,), (0, 2), (2, 3)),
        unfit=unfit,
    )
    cells = plan.cells(sweep, {"m": facts}, ["wifi"])
    assert [(cell.point, cell.codec) for cell in cells if cell.codec != "none"] == [
        ("1", "Own"),
        ("2", "Own"),
        ("2", "Own+zstd:3"),
        ("2+3", "Own"),
        ("2+3", "Own+zstd:3"),
    ]
    plan.check_fits(sweep, {"m": facts})


def test_a_users_own_codec_that_fits_nothing_is_refused(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    file = written(tmp_path, simple())
    sweep = make_sweep({"model": "m", "codec": f"none,{file}:Own"})
    points = (("input", 100), ("one", 400), ("last", 0))
    never = ModelFacts(points, 0.01, splits=((0,), (1,), (2,)), unfit={"Own": frozenset({0, 1})})
    with pytest.raises(UserError) as refused:
        plan.check_fits(sweep, {"m": never})
    assert str(refused.value).replace(str(file), "own.py") == snapshot
    plan.check_fits(sweep, {"m": never, "n": ModelFacts(points, 0.01, splits=((1,),))})
    plan.check_fits(sweep, {"m": ModelFacts(points, 0.01, splits=((2,),), unfit={"Own": frozenset({0, 1})})})


def test_a_codecs_time_and_bytes_are_foreseen() -> None:
    facts = ModelFacts(
        (("input", 100), ("one", 400_000), ("last", 0)),
        0.01,
        splits=((1,),),
        wire_shares={"int8": (0.25, 0.25, 1.0)},
        codec_s={"int8": ((0.0, 0.0), (0.2, 0.05), (0.0, 0.0))},
    )
    wanted = make_sweep(
        {"model": "m", "backend": "tcp", "codec": "none,int8", "trials": 1, "batch_size": "2"}
    )
    network = {"none": (Profile("x", Direction(rate_bps=8e6)),)}
    trials = {trial.cell.codec: trial for trial in plan.make(wanted, {"m": facts}, network).trials}
    saved_s = 2 * 300_000 * 8 / 8e6 / probe.GOODPUT
    assert trials["none"].latency_s - trials["int8"].latency_s == pytest.approx(saved_s - 2 * 0.25)
    slow = replace(facts, codec_s={"int8": ((0.0, 0.0), (5.0, 0.05), (0.0, 0.0))})
    by_codec = {trial.cell.codec: trial for trial in plan.make(wanted, {"m": slow}, network).trials}
    assert by_codec["int8"].estimate_s > trials["int8"].estimate_s + 2 * 2 * 5.0 - 2.0
    assert by_codec["none"].estimate_s == trials["none"].estimate_s
    reached = [plan.reach(trials["int8"].cell, each, network["none"], cores=2) for each in (facts, slow)]
    assert reached[1] > reached[0], "where a codec is the slowest step, the cores are not"

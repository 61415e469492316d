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
from pareto.sweep import foreseen, plan, profile_files, waits
from pareto.sweep.cell import Cell
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.foreseen import ModelFacts
from pareto.sweep.plan import Plan
from pareto.sweep.sweep import Sweep
from tests.unit.own_codecs import simple, written
from tests.unit.refusals import refusal

POINTS = (("input", 100), ("one", 400), ("last", 0))
MODELS = {
    "a": ModelFacts((("input", 600_000), ("mid", 100_000), ("output", 0)), 0.03, splits=((0,), (1,), (2,))),
    "b": ModelFacts((("input", 600_000), ("output", 0)), 0.01, splits=((0,), (1,))),
}
ONE = {"m": ModelFacts((("input", 10_000), ("output", 0)), 0.03, splits=((0,), (1,)))}


def sweep(**fields: object) -> Sweep:
    return make_sweep({"model": "a,b", "netem": "none,20ms-20mbit", "trials": 4, **fields})


def networks(wanted: Sweep) -> dict[str, list[Profile]]:
    return {name: [profile_files.load(name)] for name in wanted.netems}


def make(wanted: Sweep, done: frozenset[tuple[Cell, int]] = frozenset()) -> Plan:
    return plan.make((wanted, {name: MODELS[name] for name in wanted.models}, networks(wanted)), done)


def facts(*splits: tuple[int, ...], **known: Any) -> ModelFacts:
    """Of a model of three points."""
    return ModelFacts(POINTS, 0.01, splits=splits or ((0,), (1,), (2,)), **known)


def asked(**options: Any) -> Sweep:
    return make_sweep({"model": "m", "backend": "tcp", **options})


def order(trials: Iterable[plan.Trial]) -> list[tuple[Cell, int]]:
    """Which they are: how long one takes depends also on what comes before it."""
    return [(trial.cell, trial.round) for trial in trials]


def test_every_round_has_every_cell_once() -> None:
    wanted = sweep()
    cells = plan.cells((wanted, MODELS, wanted.netems))
    assert len(cells) == (3 + 2) * 2 * 2  # points x backends x profiles
    counted = Counter(order(make(wanted).trials))
    assert counted == Counter((cell, number) for cell in cells for number in (1, 2, 3, 4))
    # A backend under two names is two cells of one transport.
    cells = plan.cells((sweep(backend="tcp:a,tcp:b"), MODELS, ["none"]))
    assert len(set(cells)) == len({cell.id for cell in cells}) == len(cells) == 2 * (3 + 2)
    assert {cell.transport for cell in cells} == {"tcp"}
    assert Counter(cell.backend for cell in cells) == {"tcp:a": 5, "tcp:b": 5}


def test_the_order_is_random_but_the_seeds() -> None:
    first, again, other = make(sweep()), make(sweep()), make(sweep(seed=1))
    assert first.trials == again.trials
    assert first.trials != other.trials
    rounds = [[t.cell for t in first.trials if t.round == number] for number in (1, 2, 3, 4)]
    places = [[(c.model, c.netem) for c in cells] for cells in rounds]
    within = {tuple(c for c in cells if (c.model, c.netem) == ("a", "none")) for cells in rounds}
    assert len({tuple(dict.fromkeys(each)) for each in places}) > 1
    assert len(within) == 4
    for each in places:  # two models x two profiles: it changes as rarely as it can
        assert sum(a != b for a, b in itertools.pairwise(each)) == 3


def test_a_round_changes_the_rpc_agent_once_and_keeps_every_cell() -> None:
    """Joining anew takes longer than many a trial. Which comes first is chance, and the others are among both."""
    variants = ("tcp", "tcp:4", "rpc", "rpc:basic:a", "rpc:basic:b")
    wanted = sweep(model="a", netem="none", backend=",".join(variants), trials=20)
    cells, firsts, places = plan.cells((wanted, {"a": MODELS["a"]}, ["none"])), [], []
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
    conditions = {cell.condition for cell in plan.cells((wanted, MODELS, wanted.netems))}
    added = plan.further((wanted, MODELS, networks(wanted)), dict.fromkeys(conditions, 4))
    assert order(added.trials) == order(t for t in make(sweep(trials=4)).trials if t.round == 4)
    assert added.rounds == 2
    some = sorted(conditions)[:2]
    part = plan.further((wanted, MODELS, networks(wanted)), dict.fromkeys(some, 4))
    assert part.trials == tuple(t for t in added.trials if t.cell.condition in some)
    # Of an added round that was begun the rest is planned.
    wanted, longer = sweep(trials=2), make(sweep(trials=3))
    begun = next(t for t in longer.trials if t.round == 3)
    done = frozenset((t.cell, t.round) for t in longer.trials if t.round < 3) | {(begun.cell, 3)}
    rest = make(wanted, done).trials
    of_its_condition = [t for t in longer.trials if t.round == 3 and t.cell.condition == begun.cell.condition]
    assert order(rest) == order(t for t in of_its_condition if t != begun)
    last = plan.last_rounds((wanted, MODELS, wanted.netems), done)
    assert last.pop(begun.cell.condition) == 3
    assert set(last.values()) == {2}


def test_only_links_before_the_last_point_are_crossed() -> None:
    wanted = sweep(model="a", backend="tcp", netem="none")
    chain = {"a": replace(MODELS["a"], splits=((0, 1), (1, 2)))}
    assert [
        (cell.point, cell.point_name, cell.id) for cell in plan.cells((wanted, chain, wanted.netems))
    ] == [
        ("0+1", "input+mid", "a-k00+01-tcp-none-b1"),
        ("1+2", "mid+output", "a-k01+02-tcp-none-b1"),
    ]
    # Only links before the last point are crossed.
    model, names = replace(MODELS["a"], result_bytes=40), ["edge-middle1", "middle1-server"]
    network = [profile_files.load("none"), profile_files.load("20ms-20mbit")]

    def crossed(*cuts: int) -> list[tuple[str, str, int, int]]:
        cell = Cell("a", cuts, "", "tcp", "x", 2)
        found = foreseen.crossings(cell, model, network, names, [(0.0, 1.0), (2.0, 3.0)])
        assert [it.seen for it in found] == [(0.0, 1.0), (2.0, 3.0)][: len(found)]
        return [(it.link, it.profile.name, it.payload_bytes, it.result_bytes) for it in found]

    second = ("middle1-server", "20ms-20mbit", 200_000, 80)
    assert crossed(0, 1) == [("edge-middle1", "none", 1_200_000, 80), second]
    assert crossed(1, 2) == [("edge-middle1", "none", 200_000, 80)]
    assert crossed(2, 2) == []


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
        assert trial.effort == plan.Effort(length, length, length)
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
    assert replace(trial, latency_s=0.15).warmup_requests(proven) == 1, "the first takes longer"
    assert trial.warmup_requests(proven, compute_s=0.21) == (not proven)


def test_phases_follow_the_link_and_a_slow_edge() -> None:
    """A cell lasts as long as its least requests need, and never under the phases' seconds."""
    wanted = sweep(model="a", netem="none,200ms-5mbit", backend="tcp", trials=1)
    estimate = {(t.cell.netem, *t.cell.cuts): t.estimate_s - t.waiting_s for t in make(wanted).trials}
    transfer_s = 600_000 * 8 / 5e6
    least = plan.THOROUGH.latency[0] * (transfer_s + 0.2) + plan.THOROUGH.throughput[0] * transfer_s
    assert estimate["200ms-5mbit", 0] > least
    assert estimate["none", 0] < 2 * (plan.THOROUGH.latency[1] + plan.THOROUGH.throughput[1])
    quick = sum(t.estimate_s for t in make(sweep(model="a", quick=True)).trials)
    assert quick < 0.8 * sum(t.estimate_s for t in make(sweep(model="a")).trials)
    # Beside the phases its stage runs by itself: as it was measured of YOLOv8n on a quarter of a core.
    known = {"m": ModelFacts((("input", 100), ("last", 0)), 0.1, splits=((1,),))}
    wanted = asked(edge_cpu=0.25, trials=1, quick=True)
    (trial,) = plan.make((wanted, known, networks(wanted))).trials
    assert trial.latency_s == pytest.approx(0.525, rel=0.15)
    assert trial.estimate_s - trial.waiting_s == pytest.approx(7.4 - 0.27, rel=0.15)
    # MobileNetV2's payloads, of images as bytes, at 200 ms and 5 Mbit/s, with what rpc loses there and sends again.
    kib = [147, 1568, 784, 294, 294, *[98] * 3, *[49] * 4, *[73.5] * 3, *[30.625] * 3, 61.25, 245, 5, 0]
    points = tuple((str(i), int(size * 1024)) for i, size in enumerate(kib))
    models = {"m": ModelFacts(points, 0.03, splits=tuple((i,) for i in range(len(kib))))}
    for options, limit_s in (({}, 22 * 60), ({"quick": True, "trials": 1}, 4 * 60)):
        wanted = make_sweep({"model": "m", "netem": "200ms-5mbit", **options})
        assert plan.make((wanted, models, networks(wanted))).estimate_s < limit_s


def test_each_depth_is_a_cell_of_its_own_and_foreseen_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """One in flight goes at the pace of the latency, many at that of the slowest step."""
    wanted = asked(netem="200ms-5mbit", in_flight="1,8,auto")
    monkeypatch.setattr(plan, "THOROUGH", replace(plan.THOROUGH, throughput=(30, 0.5)))
    made = plan.make((wanted, {"m": replace(ONE["m"], splits=((0,),))}, networks(wanted)))
    estimates = {trial.cell.in_flight: trial.estimate_s for trial in made.trials}
    assert len({trial.cell for trial in made.trials}) == 3
    assert estimates["1"] > max(estimates["8"], estimates["auto"]) + 30 * 0.2 * 0.7
    # So many decoded ahead are a condition, too.
    camera = {"from": "jpeg", "dataset": "folder", "data_path": "pictures"}
    ahead = plan.make((asked(prefetch="0,1,4", trials=2, **camera), ONE, networks(asked())))
    for number in (1, 2):
        in_round = [trial.cell for trial in ahead.trials if trial.round == number and trial.cell.cuts == (0,)]
        assert sorted(cell.prefetch for cell in in_round) == [0, 1, 4]
        assert len({cell.condition for cell in in_round}) == 3


def test_the_cells_of_one_allocator_stay_together_and_a_round_begins_with_the_last_ones() -> None:
    """Workers start anew for another one."""
    wanted = asked(netem="none,wifi", allocator="tuned,default", trials=3)
    made = plan.make((wanted, ONE, networks(wanted)))
    told = [trial.cell.allocator for trial in made.trials]
    assert [allocator for allocator, _ in itertools.groupby(told)] == ["tuned", "default", "tuned", "default"]
    assert len({trial.cell for trial in made.trials}) == len({trial.cell.id for trial in made.trials}) == 8
    assert len({trial.cell.condition for trial in made.trials}) == 4


def took_s(**options: object) -> float:
    return make(sweep(**options)).estimate_s


def test_trials_take_longer_with_fresh_workers_each_change_of_the_network_and_a_slow_edge() -> None:
    never, each, second = (took_s(model="a", netem="none", restart=when) for when in ("never", "round", "2"))
    start_s = waits.START_S + waits.LOAD_NODE_S * waits.USUAL_NODES
    assert each - never > 2.9 * start_s
    assert second - never == pytest.approx(start_s, rel=0.5)
    alone = ("200ms-5mbit", "none")
    one, other, both = (took_s(netem=netem, backend="tcp") for netem in (*alone, ",".join(alone)))
    opening_s = waits.open_s(sweep(backend="tcp"), [profile_files.load("200ms-5mbit")])
    changes = (both - one - other) / opening_s
    assert changes >= 2, "alone it is warmed once; beside another network in nearly every round"
    assert changes == pytest.approx(round(changes), abs=0.3), "to open those without a link takes a moment"
    assert took_s(model="a", edge_cpu=0.05) > took_s(model="a", edge_cpu=1.0)


def test_codecs_are_cells_where_something_crosses_and_engines_at_every_point() -> None:
    made = plan.cells((asked(codec="none,int8,zstd"), {"m": facts()}, ["none"]))
    crossing = [((cut,), codec) for cut in (0, 1) for codec in ("none", "int8", "zstd:3")]
    assert [(cell.cuts, cell.codec) for cell in made] == [*crossing, ((2,), "none")]
    made = plan.cells((asked(engine="eager,edge=onnx"), {"m": facts()}, ["none"]))
    each = [(cut, engine) for cut in range(3) for engine in ("eager", "edge=onnx")]
    assert [(cell.cuts[0], cell.engine) for cell in made] == each
    assert len({cell.condition for cell in made}) == 2
    # Pictures are cells where nothing but the input crosses.
    for splits, pictures in (
        (((0,), (1,), (2,)), [(0,)]),
        (((0, 0), (0, 1), (0, 2), (1, 1)), [(0, 0), (0, 2)]),
    ):
        made = plan.cells((asked(codec="none,jpeg"), {"m": facts(*splits)}, ["none"]))
        assert [cell.cuts for cell in made if cell.codec == "jpeg:90"] == pictures
        assert [cell.cuts for cell in made if cell.codec == "none"] == [*splits]


def of_bytes(**options: Any) -> tuple[Sweep, dict[str, ModelFacts]]:
    known = facts(dtypes=(("uint8",), ("float32", "int64"), ()))
    return asked(netem="none", trials=2, **options), {"m": known}


def test_codecs_that_come_to_the_same_are_one_cell() -> None:
    def cells(codec: str) -> list[tuple[int, str, tuple[str, ...]]]:
        sweep, models = of_bytes(codec=codec)
        return [(cell.cuts[0], cell.codec, cell.stands_for) for cell in plan.cells((sweep, models, ["none"]))]

    assert cells("none,int8,zstd,int8+zstd") == [
        (0, "none", ("none", "int8")),
        (0, "zstd:3", ("zstd:3", "int8+zstd:3")),
        *((1, codec, (codec,)) for codec in ("none", "int8", "zstd:3", "int8+zstd:3")),
        (2, "none", ("none", "int8", "zstd:3", "int8+zstd:3")),
    ]
    assert cells("int8+zstd,fp16") == [
        (0, "zstd:3", ("int8+zstd:3",)), (0, "none", ("fp16",)), (1, "int8+zstd:3", ("int8+zstd:3",)),
        (1, "fp16", ("fp16",)), (2, "none", ("int8+zstd:3", "fp16")),
    ]  # fmt: skip
    wanted, models = of_bytes(codec="int8")
    chain = {"m": replace(models["m"], splits=((0, 0), (0, 1)))}
    made = [(cell.point, cell.codec) for cell in plan.cells((wanted, chain, ["none"]))]
    assert made == [("0+0", "none"), ("0+1", "int8")], "floats cross the second link"


@pytest.mark.parametrize("codecs", ["int8", "none,int8"])
def test_an_added_round_has_the_cells_that_stand_for_its_codec(codecs: str) -> None:
    """Its own condition is another codec's, which may be sure already, or have no cells of its own."""
    wanted, models = of_bytes(codec=codecs)
    int8 = ("m", "none", 1, "int8", "eager", "auto", 0, "tuned", "none")
    assert int8 in plan.last_rounds((wanted, models, ["none"]))

    def further(done: frozenset[tuple[Cell, int]] = frozenset()) -> tuple[plan.Trial, ...]:
        return plan.further((wanted, models, networks(wanted)), {int8: 3}, done).trials

    def codecs_left(done: Iterable[tuple[Cell, int]]) -> list[str]:
        made = plan.make((wanted, models, networks(wanted)), frozenset(done))
        return [trial.cell.codec for trial in made.trials]

    added = further()
    cells = [(trial.cell.cuts, trial.cell.codec) for trial in added]
    assert sorted(cells) == [((0,), "none"), ((1,), "int8"), ((2,), "none")]
    done = frozenset((trial.cell, 3) for trial in added if trial.cell.codec == "none")
    assert [trial.cell.codec for trial in further(done)] == ["int8"], "another codec's round had the others"
    first = frozenset(order(plan.make((wanted, models, networks(wanted))).trials))
    assert codecs_left(first | done) == (["int8"] if codecs == "int8" else []), (
        "beside none's cells they do not say that a round of int8's was begun"
    )
    begun = {(trial.cell, 3) for trial in added if trial.cell.codec == "int8"}
    assert codecs_left(first | begun) == ["none"] * 2


def test_points_that_a_users_own_codec_does_not_fit_have_no_such_cell(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    file = written(tmp_path, simple())
    wanted = asked(codec=f"none,{file}:Own,{file}:Own+zstd")
    unfit = {"Own": frozenset({0}), "Own+zstd:3": frozenset({0, 1})}
    points, splits = (*POINTS[:2], ("two", 200), ("last", 0)), ((0,), (1,), (2,), (3,), (0, 2), (2, 3))
    known = {"m": ModelFacts(points, 0.01, splits=splits, unfit=unfit)}
    cells = plan.cells((wanted, known, ["wifi"]))
    fit = [("1", "Own"), ("2", "Own"), ("2", "Own+zstd:3"), ("2+3", "Own"), ("2+3", "Own+zstd:3")]
    assert [(cell.point, cell.codec) for cell in cells if cell.codec != "none"] == fit
    plan.check_fits(wanted, known)
    wanted = asked(codec=f"none,{file}:Own")
    never = facts(unfit={"Own": frozenset({0, 1})})
    refused = refusal(UserError, plan.check_fits, wanted, {"m": never})
    assert refused.replace(str(file), "own.py") == snapshot
    plan.check_fits(wanted, {"m": never, "n": facts((1,))})
    plan.check_fits(wanted, {"m": replace(never, splits=((2,),))})


def test_a_codecs_time_and_bytes_are_foreseen() -> None:
    known = ModelFacts(
        (("input", 100), ("one", 400_000), ("last", 0)), 0.01, splits=((1,),),
        wire_shares={"int8": (0.25, 0.25, 1.0)}, codec_s={"int8": ((0.0, 0.0), (0.2, 0.05), (0.0, 0.0))},
    )  # fmt: skip
    slow = replace(known, codec_s={"int8": ((0.0, 0.0), (5.0, 0.05), (0.0, 0.0))})
    wanted, network = (
        asked(codec="none,int8", trials=1, batch_size="2"),
        (Profile("x", Direction(rate_bps=8e6)),),
    )
    trials, by_codec = (
        {trial.cell.codec: trial for trial in plan.make((wanted, {"m": each}, {"none": network})).trials}
        for each in (known, slow)
    )
    saved_s = 2 * 300_000 * 8 / 8e6 / probe.GOODPUT
    assert trials["none"].latency_s - trials["int8"].latency_s == pytest.approx(saved_s - 2 * 0.25)
    assert by_codec["int8"].estimate_s > trials["int8"].estimate_s + 2 * 2 * 5.0 - 2.0
    assert by_codec["none"].estimate_s == trials["none"].estimate_s
    reached = [foreseen.reach(trials["int8"].cell, each, network, cores=2) for each in (known, slow)]
    assert reached[1] > reached[0], "where a codec is the slowest step, the cores are not"

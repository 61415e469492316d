"""What the user reads: in 80 columns, without colour, in a log."""

from __future__ import annotations

import io
import itertools
import threading
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table
from syrupy.assertion import SnapshotAssertion

from pareto.basics import console
from pareto.commands import app
from pareto.remote.link.units import minutes
from pareto.run import screen
from pareto.run.runner import Tally
from pareto.sweep import plan, profile_files
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.networks import profiles
from pareto.sweep.plan import ModelFacts, Models, Plan

FACTS = {
    "mobilenet_v2": ModelFacts(
        tuple((f"features.{i}", 100_000) for i in range(12)), 0.03, splits=tuple((i,) for i in range(12))
    )
}
SWEEP = make_sweep({"model": "mobilenet_v2", "netem": "200ms-5mbit", "edge_cpu": 0.25, "trials": 3})
NETWORKS = {name: (profile_files.load(name),) for name in SWEEP.netems}


@pytest.fixture
def out() -> Console:
    return Console(file=io.StringIO(), width=80, highlight=False, markup=False)


def text_of(out: Console) -> str:
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def text(out: Console) -> str:
    written = text_of(out)
    assert "\x1b" not in written
    assert max(len(line) for line in written.splitlines()) <= 80
    return written


def made() -> Plan:
    return plan.make(SWEEP, FACTS, NETWORKS)


def planned(out: Console, *, cores: int | None = None, facts: Models = FACTS, **options: Any) -> str:
    """What the plan of a sweep with these options says."""
    sweep = make_sweep({"model": next(iter(facts)), **options})
    networks = {name: profiles(name, (sweep.hosts or 2) - 1) for name in sweep.netems}
    screen.plan(out, sweep, facts, networks, plan.make(sweep, facts, networks), cores=cores)
    return text(out)


def test_the_plan_says_which_throughputs_the_machines_own_cores_will_hold_back(
    out: Console, snapshot: SnapshotAssertion
) -> None:
    """Of quick stages, on a link that is quicker: sending takes as much of the edge's quarter as computing."""
    shown = planned(out, cores=2, netem="200ms-5mbit,lan-1gbit", edge_cpu=0.25, trials=3)
    assert "lan-1gbit at" in " ".join(shown.split())
    assert shown == snapshot


def test_a_link_that_is_slower_than_all_cores_leaves_nothing_to_say(out: Console) -> None:
    screen.plan(out, SWEEP, FACTS, NETWORKS, made(), cores=2)
    assert "\ncores" not in text(out)


@pytest.mark.parametrize(
    ("netem", "compute_s", "shown"),
    [
        ("200ms-5mbit", 0.03, "all on the edge takes about 144 ms, and the link alone at least 360 ms"),
        ("200ms-5mbit", 0.3, ""),
        ("none", 0.03, ""),
    ],
)
def test_what_physics_says_beforehand(out: Console, netem: str, compute_s: float, shown: str) -> None:
    facts = {name: replace(model, compute_s=compute_s) for name, model in FACTS.items()}
    words = " ".join(planned(out, cores=2, facts=facts, netem=netem, edge_cpu=0.25, trials=3).split())
    assert ("no split can be faster" in words) is bool(shown)
    assert shown in words


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.4, "0 s"), (59.6, "1 min 00 s"), (830, "13 min 50 s"), (7500, "2 h 05 min")]
)
def test_durations(seconds: float, shown: str) -> None:
    assert minutes(seconds) == shown


def test_the_plan_says_what_will_be_done(out: Console, snapshot: SnapshotAssertion) -> None:
    screen.plan(out, SWEEP, FACTS, NETWORKS, made())
    shown = text(out)
    assert minutes(made().estimate_s + screen.AROUND_S) in shown
    assert shown == snapshot


def test_the_plan_of_a_chain_tells_its_links_and_ways(out: Console, snapshot: SnapshotAssertion) -> None:
    splits = ((0, 0), (0, 3), (3, 7))
    mine = replace(FACTS["mobilenet_v2"], splits=splits, notes=("", "40 [cuts], 12 points"))
    shown = planned(out, facts={"mine": mine}, netem="wifi+lte", input="uint8", hosts=3)
    assert "40 [cuts], 12 points" in shown
    assert shown == snapshot


def row_of(plan: str, title: str) -> str:
    """What stands in a row of the plan, which may take several lines; empty if it has none."""
    _, _, rest = f"\n{plan}".partition(f"\n{title} ")
    first, *more = rest.splitlines() or [""]
    lines = [first, *itertools.takewhile(lambda line: line.startswith(" "), more)]
    return " ".join(" ".join(lines).split())


@pytest.mark.parametrize(
    ("wanted", "title", "shown"),
    [
        ({}, "TCP", ""),
        ({"initial_window": 100}, "TCP", ""),
        ({"congestion": "bbr", "initial_window": 10}, "TCP", "bbr, initial window 10"),
        ({"slow_start_after_idle": True}, "TCP", "slow start after idle"),
        ({"engine": "eager"}, "engines", ""),
        ({"engine": "eager,edge=onnx,server=compile"}, "engines", "eager, edge=onnx+server=compile"),
        ({"engine": "edge=onnx,edge=compile"}, "engines", "edge=onnx, edge=compile"),
    ],
)
def test_the_plan_tells_what_is_unusual_as_it_was_understood(
    out: Console, wanted: dict[str, Any], title: str, shown: str
) -> None:
    assert row_of(planned(out, netem="wifi", **wanted), title) == shown


@pytest.mark.parametrize(
    "wanted",
    [{"until": "5%"}, {"budget": "20min"}, {"until": "2.5%", "budget": "90s"}],
    ids=["until", "budget", "both"],
)
def test_the_plan_of_a_run_that_grows_says_how_far(
    out: Console, wanted: dict[str, Any], snapshot: SnapshotAssertion
) -> None:
    shown = planned(out, netem="wifi", **wanted)
    assert [row_of(shown, title) for title in ("trials", "then", "estimate")] == snapshot


def test_the_plan_of_a_run_that_grew_says_what_is_left_of_it(
    out: Console, snapshot: SnapshotAssertion
) -> None:
    todo = plan.make(SWEEP.model_copy(update={"trials": 7}), FACTS, NETWORKS)
    left = Plan(todo.trials[-3:], 3)
    screen.plan(out, SWEEP.model_copy(update={"until": 0.05}), FACTS, NETWORKS, left)
    assert row_of(text(out), "trials") == snapshot


@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        ({}, ""),
        ({"requests": 9}, "no quantile"),
        ({"requests": 662}, "tells p99 at"),
        ({"requests": 661}, "tells p95 at"),
        ({"requests": 10_000}, "tells p99.9 at"),
        ({"phase": "10s"}, "10 s each, about "),
    ],
    ids=["usual", "9", "662", "661", "10000", "10s"],
)
def test_the_plan_says_how_long_phases_are_and_which_quantiles_they_tell(
    out: Console, wanted: dict[str, Any], named: str, snapshot: SnapshotAssertion
) -> None:
    shown = row_of(planned(out, netem="wifi", **wanted), "phases")
    assert named in shown
    assert shown == snapshot


def test_the_summary_says_that_phases_ended_by_their_number_of_requests(out: Console) -> None:
    one, tally, ok = made().trials[0], Tally(), {"status": "ok", "wall_s": 1.0, "in_flight": 2}
    for lasts, requests in (
        ((1, 10.0), 10_000),
        ((1, 10.0), 9_990),
        ((10_000, 0.0), 10_000),
        ((1, 10.0), None),
    ):
        trial = replace(one, effort=plan.Effort(lasts, lasts))
        tally.add(trial, {**ok, "latency_requests": requests, "throughput_requests": requests})
    screen.summary(out, tally, 100.0)
    assert "1 trial had a phase of 10000 requests: there it ends" in text(out)


def test_the_summary_adds_up_and_lists_what_is_not_ok(out: Console, snapshot: SnapshotAssertion) -> None:
    bad = {
        **{"model": "m", "point": "3+7", "backend": "tcp", "netem": "lte", "batch_size": 8, "round": 1},
        **{"in_flight_asked": "4", "prefetch_asked": "0", "codec": "none", "engine": "eager"},
        **{"allocator": "tuned", "status": "invalid", "reason": "off"},
    }
    tally = Tally(measuring=80.0, probing=5.0, watching=90.0, driver_cpu=1.8, trials=40, faulty=[bad] * 12)
    screen.summary(out, tally, 100.0)
    shown = text(out)
    assert shown.count("invalid: m 3+7 tcp lte b8 d4, ") == screen.LISTED_FAULTS
    assert shown == snapshot


def test_trials_that_were_measured_again_are_counted_by_who_is_to_blame(out: Console) -> None:
    again = [{"blamed": "other programs"}] * 2 + [{"blamed": "the link"}]
    screen.summary(out, Tally(trials=40, again=again), 100.0)
    words = " ".join(text(out).split())
    assert "3 trials measured again after other programs (2), the link (1): report.md lists them" in words


def test_the_last_line_says_what_is_missing_and_the_command(snapshot: SnapshotAssertion) -> None:
    base = {"model": "m", "point": "7", "backend": "tcp", "netem": "lte"}
    rows = [{**base, "status": status} for status in ("ok", "invalid")]
    never = [{**base, "point": "3", "status": "failed"}]
    partly = [{**base, "status": "latency only"}]
    assert [screen.ending(each, "AGAIN") for each in (rows, rows + never, rows[:1] + partly)] == snapshot


def test_nothing_run_nothing_said(out: Console) -> None:
    screen.summary(out, Tally(), 3.0)
    assert text_of(out) == ""


def test_labels_of_backends_are_not_taken_for_emoji(capsys: pytest.CaptureFixture[str]) -> None:
    console.console().print("tcp:a and tcp:b: 2 ms", markup=False)
    assert capsys.readouterr().out == "tcp:a and tcp:b: 2 ms\n"


def test_no_text_from_elsewhere_moves_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """A title, colours, the cursor, an answer typed in the user's name, a direction; and what cannot be encoded."""
    hostile = "\x1b]0;mine\x07\x1b[31m\x1b[2J\x9b6n\r\u202e\ud800"
    table = Table.grid()
    table.add_row(hostile)
    out = console.console()
    out.print(hostile, markup=False)
    out.print(table)
    assert app._complain(hostile) == 2
    for shown in capsys.readouterr():
        assert "mine" in shown
        assert all(character.isprintable() for character in shown.replace("\n", ""))


def test_colours_of_our_own_stay() -> None:
    out = console._Console(file=io.StringIO(), force_terminal=True, color_system="standard")
    out.print("[bold]best[/bold]")
    assert text_of(out) == "\x1b[1mbest\x1b[0m\n"


def test_what_is_done_is_shown_without_a_thread_so_that_figures_are_drawn_on_all_cores() -> None:
    out = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=40)
    before = threading.active_count()
    with console.Doing(out) as doing:
        for words in ("reading the rows", "drawing 1 of 30 figures"):
            doing.show(words)
            assert threading.active_count() == before
    shown = text_of(out)
    assert shown.index("reading the rows") < shown.index("drawing 1 of 30 figures")
    assert shown.endswith("\x1b[2K"), "the line goes away"


def test_the_plan_says_which_codecs_are_one_cell(out: Console, snapshot: SnapshotAssertion) -> None:
    points = (("input", 100_000), ("one", 400_000), ("last", 0))
    dtypes = (("uint8",), ("float32",), ())
    facts = {"mine": ModelFacts(points, 0.03, splits=((0,), (1,), (2,)), dtypes=dtypes)}
    shown = planned(out, facts=facts, netem="none", codec="none,int8,uint4,int8+zstd")
    assert "int8, uint4 do the same as none at point 0" in " ".join(shown.split())
    assert "int8+zstd:3 does the same as zstd:3 at point 0" in " ".join(shown.split())
    assert shown == snapshot

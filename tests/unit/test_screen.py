"""What the user reads, in 80 columns, without colour: of a plan, of a run while it measures, and at its end."""

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
from pareto.driver import screen
from pareto.driver.runner import Tally
from pareto.remote.link.units import minutes
from pareto.sweep import plan
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.foreseen import ModelFacts, Models
from pareto.sweep.networks import profiles
from pareto.sweep.plan import Plan
from tests.unit.screened import FACTS, NETWORKS, SWEEP, made, page, text, text_of


@pytest.fixture
def out() -> Console:
    return page()


def planned(*, cores: int | None = None, facts: Models = FACTS, **options: Any) -> str:
    """What the plan of a sweep with these options says."""
    sweep, out = make_sweep({"model": next(iter(facts)), **options}), page()
    networks = {name: profiles(name, (sweep.hosts or 2) - 1) for name in sweep.netems}
    screen.plan(out, (sweep, facts, networks), plan.make((sweep, facts, networks)), cores=cores)
    return text(out)


def test_the_plan_says_what_will_be_done(out: Console, snapshot: SnapshotAssertion) -> None:
    screen.plan(out, (SWEEP, FACTS, NETWORKS), made())
    shown = text(out)
    assert minutes(made().estimate_s + screen.AROUND_S) in shown
    assert shown == snapshot
    # Of a chain it tells the links and ways.
    splits = ((0, 0), (0, 3), (3, 7))
    mine = replace(FACTS["mobilenet_v2"], splits=splits, notes=("", "40 [cuts], 12 points"))
    shown = planned(facts={"mine": mine}, netem="wifi+lte", input="uint8", hosts=3)
    assert "40 [cuts], 12 points" in shown
    assert shown == snapshot
    # And which codecs are one cell.
    points, dtypes = (("input", 100_000), ("one", 400_000), ("last", 0)), (("uint8",), ("float32",), ())
    facts = {"mine": ModelFacts(points, 0.03, splits=((0,), (1,), (2,)), dtypes=dtypes)}
    shown = planned(facts=facts, netem="none", codec="none,int8,uint4,int8+zstd")
    assert "int8, uint4 do the same as none at point 0" in " ".join(shown.split())
    assert "int8+zstd:3 does the same as zstd:3 at point 0" in " ".join(shown.split())
    assert shown == snapshot


def test_the_plan_says_which_throughputs_the_machines_own_cores_will_hold_back(
    out: Console, snapshot: SnapshotAssertion
) -> None:
    """Of quick stages, on a link that is quicker: sending takes as much of the edge's quarter as computing."""
    shown = planned(cores=2, netem="200ms-5mbit,lan-1gbit", edge_cpu=0.25, trials=3)
    assert "lan-1gbit at" in " ".join(shown.split())
    assert shown == snapshot
    screen.plan(out, (SWEEP, FACTS, NETWORKS), made(), cores=2)
    assert "\ncores" not in text(out), "the link is slower than all cores"


@pytest.mark.parametrize(
    ("netem", "compute_s", "shown"),
    [
        ("200ms-5mbit", 0.03, "all on the edge takes about 144 ms, and the link alone at least 360 ms"),
        ("200ms-5mbit", 0.3, ""),
        ("none", 0.03, ""),
    ],
)
def test_what_physics_says_beforehand(netem: str, compute_s: float, shown: str) -> None:
    facts = {name: replace(model, compute_s=compute_s) for name, model in FACTS.items()}
    words = " ".join(planned(cores=2, facts=facts, netem=netem, edge_cpu=0.25, trials=3).split())
    assert ("no split can be faster" in words) is bool(shown)
    assert shown in words


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
    wanted: dict[str, Any], title: str, shown: str
) -> None:
    assert row_of(planned(netem="wifi", **wanted), title) == shown


def test_the_plan_of_a_run_that_grows_says_how_far_and_what_is_left(
    out: Console, snapshot: SnapshotAssertion
) -> None:
    for wanted in ({"until": "5%"}, {"budget": "20min"}, {"until": "2.5%", "budget": "90s"}):
        shown = planned(netem="wifi", **wanted)
        assert [row_of(shown, title) for title in ("trials", "then", "estimate")] == snapshot
    todo = plan.make((SWEEP.model_copy(update={"trials": 7}), FACTS, NETWORKS))
    left = Plan(todo.trials[-3:], 3)
    screen.plan(out, (SWEEP.model_copy(update={"until": 0.05}), FACTS, NETWORKS), left)
    assert row_of(text(out), "trials") == snapshot


def test_the_plan_says_how_long_phases_are_and_which_quantiles_they_tell(snapshot: SnapshotAssertion) -> None:
    said = {
        requests: row_of(planned(netem="wifi", requests=requests), "phases")
        for requests in (9, 661, 662, 10_000)
    }
    usual, timed = (row_of(planned(netem="wifi", **wanted), "phases") for wanted in ({}, {"phase": "10s"}))
    tells = {9: "no quantile", 661: "tells p95 at", 662: "tells p99 at", 10_000: "tells p99.9 at"}
    assert all(words in said[requests] for requests, words in tells.items())
    assert "10 s each, about " in timed
    assert [usual, *said.values(), timed] == snapshot


def summary(tally: Tally) -> str:
    screen.summary(out := page(), tally, 100.0)
    return text(out) if text_of(out) else ""


def test_the_summary_says_that_phases_ended_by_their_number_of_requests() -> None:
    one, tally, ok = made().trials[0], Tally(), {"status": "ok", "wall_s": 1.0, "in_flight": 2}
    ten_s, many = (1, 10.0), (10_000, 0.0)
    for lasts, requests in ((ten_s, 10_000), (ten_s, 9_990), (many, 10_000), (ten_s, None)):
        trial = replace(one, effort=plan.Effort(lasts, lasts))
        tally.add(trial, {**ok, "latency_requests": requests, "throughput_requests": requests})
    assert "1 trial had a phase of 10000 requests: there it ends" in summary(tally)


def test_the_summary_adds_up_and_lists_what_is_not_ok(snapshot: SnapshotAssertion) -> None:
    bad = {
        **{"model": "m", "point": "3+7", "backend": "tcp", "netem": "lte", "batch_size": 8, "round": 1},
        **{"in_flight_asked": "4", "prefetch_asked": "0", "codec": "none", "engine": "eager"},
        **{"allocator": "tuned", "load": "none", "status": "invalid", "reason": "off"},
    }
    tally = Tally(measuring=80.0, probing=5.0, watching=90.0, driver_cpu=1.8, trials=40, faulty=[bad] * 12)
    shown = summary(tally)
    assert shown.count("invalid: m 3+7 tcp lte b8 d4, ") == screen.LISTED_FAULTS
    assert shown == snapshot
    again = [{"blamed": "other programs"}] * 2 + [{"blamed": "the link"}]
    words = " ".join(summary(Tally(trials=40, again=again)).split())
    assert "3 trials measured again after other programs (2), the link (1): report.md lists them" in words
    assert summary(Tally()) == "", "nothing run, nothing said"
    # The last line says what is missing, and the command.
    base = {"model": "m", "point": "7", "backend": "tcp", "netem": "lte"}
    rows = [{**base, "status": status} for status in ("ok", "invalid")]
    never = [{**base, "point": "3", "status": "failed"}]
    partly = [{**base, "status": "latency only"}]
    assert [screen.ending(each, "AGAIN") for each in (rows, rows + never, rows[:1] + partly)] == snapshot


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
    out.print("tcp:a and tcp:b: 2 ms", markup=False)
    assert capsys.readouterr().out == "tcp:a and tcp:b: 2 ms\n", "labels are not taken for emoji"
    ours = console._Console(file=io.StringIO(), force_terminal=True, color_system="standard")
    ours.print("[bold]best[/bold]")
    assert text_of(ours) == "\x1b[1mbest\x1b[0m\n", "colours of our own stay"
    assert [minutes(s) for s in (0.4, 59.6, 830, 7500)] == ["0 s", "1 min 00 s", "13 min 50 s", "2 h 05 min"]


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


@pytest.mark.parametrize(
    ("line", "coloured"),
    [
        ("attention: 2 points are unsteady", "\x1b[1;33mattention:\x1b[0m 2 points are unsteady"),
        ("error: no such host", "\x1b[1;31merror:\x1b[0m no such host"),
        ("60 ok, 2 invalid", "60 ok, 2 \x1b[1;31minvalid\x1b[0m"),
        ("60 ok, no attention: 1", "60 ok, no attention: 1"),
    ],
)
def test_what_a_reader_must_not_miss_has_a_colour_on_a_terminal(
    line: str, coloured: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown(**environment: str) -> str:
        for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", **environment}.items():
            monkeypatch.setenv(name, value)
        out = console.console(to=io.StringIO())
        out.print(line)
        out.print("cut at 7", style=console.ANSWER)
        return text_of(out)

    assert shown() == f"{coloured}\n\x1b[1;32mcut at 7\x1b[0m\n"
    assert "\x1b[1;3" not in shown(NO_COLOR="1")

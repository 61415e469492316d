"""What the user reads, in 80 columns, without colour: of a plan, of a run while it measures, and at its end."""

from __future__ import annotations

import io
import itertools
import re
import threading
from dataclasses import fields, replace
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table
from syrupy.assertion import SnapshotAssertion

from pareto.basics import console
from pareto.commands import app
from pareto.driver import screen
from pareto.driver.progress import Display
from pareto.driver.runner import Tally
from pareto.protocol.host_messages import SensorSample
from pareto.protocol.trial_messages import Progress
from pareto.remote.link.units import minutes
from pareto.sweep import plan, profile_files
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.foreseen import ModelFacts, Models
from pareto.sweep.networks import profiles
from pareto.sweep.plan import Plan

FACTS = {
    "mobilenet_v2": ModelFacts(
        tuple((f"features.{i}", 100_000) for i in range(12)), 0.03, splits=tuple((i,) for i in range(12))
    )
}
SWEEP = make_sweep({"model": "mobilenet_v2", "netem": "200ms-5mbit", "edge_cpu": 0.25, "trials": 3})
NETWORKS = {name: (profile_files.load(name),) for name in SWEEP.netems}


def page() -> Console:
    return Console(file=io.StringIO(), width=80, highlight=False, markup=False)


@pytest.fixture
def out() -> Console:
    return page()


def text_of(out: Console) -> str:
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def text(out: Console) -> str:
    written = text_of(out)
    assert "\x1b" not in written
    assert max(len(line) for line in written.splitlines()) <= 80
    return written


def made() -> Plan:
    return plan.make((SWEEP, FACTS, NETWORKS))


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


# While it measures


FIELDS = tuple(field.name for field in fields(SensorSample))
ROW = {"status": "ok", "reason": "", "wall_s": 1.0, "latency_s": 0.25, "throughput_ips": 4.0}


def terminal() -> Console:
    plain = {"highlight": False, "markup": False, "force_terminal": True, "color_system": None}
    return Console(file=io.StringIO(), width=80, **plain)  # type: ignore[arg-type]


def test_a_round_that_is_added_counts_and_is_told_by_others(out: Console) -> None:
    todo = made()
    first, added = (Plan(tuple(t for t in todo.trials if t.round == number), 1) for number in (1, 2))
    with Display(out, first) as progress:
        for part in (first, added):
            progress.expect(part)
            assert progress.eta_s == pytest.approx(part.estimate_s)
            for trial in part.trials:
                progress.finished(trial, {**ROW, "wall_s": trial.estimate_s})
    assert progress.eta_s == pytest.approx(0, abs=1e-6)
    shown = text(out)
    assert shown.count("/24 trials, ") == 10
    assert "/48 trials" not in shown
    with Display(out, Plan((), 3)) as progress:  # a session that only adds rounds
        progress.expect(todo)
        for trial in todo.trials:
            progress.finished(trial, ROW)
    out.print("end")
    assert text(out) == f"{shown}end\n"


@pytest.mark.parametrize(
    ("status", "shown"),
    [("ok", "250.0 ms, 4.00 images/s"), ("latency only", "250.0 ms"), ("throughput only", "4.00 images/s")],
)
def test_only_figures_that_can_be_trusted_are_shown(out: Console, status: str, shown: str) -> None:
    todo = made()
    with Display(out, todo) as progress:
        for trial in todo.trials[:8]:
            progress.finished(trial, ROW | {"status": status, "reason": "why"})
    assert re.search(rf": {shown}$", " ".join(text(out).split()))
    assert f"{status}: " not in text(out), "it may be measured again: what is left is told at the end"


def test_a_log_gets_a_line_for_each_tenth_and_each_fault(out: Console, snapshot: SnapshotAssertion) -> None:
    todo = made()
    with Display(out, todo) as progress:
        for number, trial in enumerate(todo.trials):
            row = ROW | {"wall_s": 2 * trial.estimate_s}
            if number == 30:
                row |= {"status": "failed", "reason": "link [lost] before the trial"}
            progress.started(trial)
            progress.finished(trial, row)
            if number == 35:
                left = sum(t.estimate_s for t in todo.trials[36:])
                assert progress.eta_s == pytest.approx(2 * left)  # twice as slow as foreseen so far
    shown = " ".join(text(out).split())
    assert shown.count("/72 trials, ") == 10
    assert "link [lost] before the trial" in shown
    assert text(out) == snapshot


def test_the_time_left_is_learnt_from_trials_of_the_same_cells_and_those_that_wait_for_a_build(
    out: Console,
) -> None:
    todo = made()
    builds = [replace(trial, waiting_s=9.0) for trial in todo.trials[:2]]
    todo = replace(todo, trials=(*builds, *todo.trials[2:]))
    with Display(out, todo) as progress:
        for trial, factor in zip(todo.trials[:3], (3, 3, 1), strict=False):
            progress.started(trial)
            progress.finished(trial, {**ROW, "wall_s": factor * trial.estimate_s})
        assert progress.eta_s == pytest.approx(sum(trial.estimate_s for trial in todo.trials[3:]))
    # One network takes twice as long as foreseen and the other as long: each by itself, not both by the mean.
    trials = plan.make((SWEEP, FACTS, NETWORKS)).trials
    takes_s = {t: t.estimate_s * (2 if t.cell.netem == trials[0].cell.netem else 1) for t in trials}
    with Display(out, Plan(trials, SWEEP.trials)) as progress:
        for trial in trials:
            if trial.round == 1:
                progress.finished(trial, {**ROW, "wall_s": takes_s[trial]})
        left_s = sum(took for trial, took in takes_s.items() if trial.round > 1)
        assert progress.eta_s == pytest.approx(left_s, rel=0.02)


def drawn(out: Console, samples: list[dict[str, dict[str, float | None]]]) -> list[str]:
    """The lines on a terminal while a trial runs, as they are drawn last."""
    with Display(out, made()) as progress:
        assert progress.is_live
        for latest in samples:
            progress.sampled(latest, None)
    *_, last = text_of(out).rpartition("24 left")[1:]
    return [line.rstrip() for line in re.sub(r"\x1b\[[?0-9;]*[A-Za-z]|\r", "", last).splitlines()]


def test_sensors_tell_only_what_there_is(out: Console, snapshot: SnapshotAssertion) -> None:
    nothing: dict[str, float | None] = dict.fromkeys(FIELDS)
    edge = {**nothing, "cpu_percent": 99.6, "rss_bytes": 312e6, "temperature_c": 61.4, "throttled": 0x1}
    server = {**nothing, "frequency_hz": 2.4e9, "power_w": 7.25, "gpu_percent": 0.0, "throttled": None}
    lines = drawn(terminal(), [{"edge": server, "server": edge}, {"edge": edge, "server": server}])
    assert lines[1:3] == snapshot
    lines = drawn(terminal(), [{"edge": nothing, "server": {**nothing, "cpu_percent": 3.0}}])
    assert lines[2] == "server 3% CPU"
    assert drawn(terminal(), [{"edge": nothing}])[1:] == ["starting"]
    all_of_them: dict[str, float | None] = {
        **{"cpu_percent": 100.0, "rss_bytes": 1234e6, "temperature_c": 61.4, "frequency_hz": 2.4e9},
        **{"power_w": 107.25, "gpu_percent": 100.0, "throttled": 0xF},
    }
    lines = drawn(terminal(), [{"edge": all_of_them, "server": all_of_them}])
    assert len(lines) == 3
    assert lines[2].endswith("…")
    assert len(lines[2]) <= 80
    assert lines[2] == snapshot
    with Display(out, made()) as progress:  # a log shows none
        assert not progress.is_live
        progress.sampled({"edge": {"cpu_percent": 99.0}}, None)
    assert text_of(out) == ""


def test_where_hosts_share_the_machine_it_is_drawn_only_when_the_driver_is_awake_anyway() -> None:
    out, todo = terminal(), made()
    others = set(threading.enumerate())  # one of an earlier test may still be ending
    with Display(out, todo, shares_machine=True) as progress:
        for number, trial in enumerate(todo.trials[:2]):
            progress.started(trial)
            drawn_before = len(text_of(out))
            assert f"trial {number + 1}: " in text_of(out)
            new = set(threading.enumerate()) - others
            assert not [it for it in new if type(it).__name__ == "_RefreshThread"]
            progress.sampled(
                {"edge": {**dict.fromkeys(FIELDS), "cpu_percent": 42.0}}, Progress("throughput", 3)
            )
            drawn = text_of(out)[drawn_before:]
            assert "edge 42% CPU" in drawn
            assert re.search(r"trial \d: \d+ s of about .*; throughput, 3 requests done; m", drawn)
            progress.finished(trial, ROW)
    assert "0 settled, 2 open, 22 left; about " in text_of(out)


def test_what_is_done_before_the_first_trial_is_shown_and_each_testbed_of_a_fleet() -> None:
    """On a terminal; of a plan that is not known yet there is no bar."""
    out = terminal()
    with Display(out, Plan((), 3), shares_machine=True) as progress:
        progress.shows("m on the edge, batch size 1")
        before = text_of(out)
        assert "m on the edge, batch size 1" in before
        assert "left" not in before
        progress.expect(made(), made())
        progress.started(made().trials[0])
        assert "0 settled, 0 open, 24 left" in text_of(out)
    # What is left is shared by the testbeds of a fleet each of which has a line.
    out, lines = terminal(), ["lab1: m wifi, round 1", f"lab2: {'not there ' * 9}"]
    with Display(out, made(), testbeds=lambda: lines) as progress:
        whole_s = progress.eta_s
        progress.at_once = 2
        assert progress.eta_s == pytest.approx(whole_s / 2)
    shown = text_of(out)
    assert "lab1: m wifi, round 1" in shown
    assert re.search(r"lab2: not there .*…", shown)


def test_cells_are_settled_when_nothing_is_left_of_them_or_they_are_struck_off(out: Console) -> None:
    todo = made()
    first = Plan(tuple(trial for trial in todo.trials if trial.round == 1), 3)
    kept = tuple(trial for trial in todo.trials if trial.round > 1 and trial.cell.backend == "tcp")
    with Display(out, todo) as progress:
        assert progress.cells == (0, 0, 24)
        progress.expect(first, todo)
        for trial in first.trials[:10]:
            progress.finished(trial, ROW)
        assert progress.cells == (0, 10, 14)
        for trial in first.trials[10:]:
            progress.finished(trial, ROW)
        progress.expect(Plan(kept, 3), Plan((), 3))
        assert progress.cells == (12, 12, 0), "rpc's are struck off"
        for trial in kept[:-1]:
            progress.finished(trial, ROW)
        assert progress.cells == (12, 12, 0), "a search decides between rounds"
        progress.finished(kept[-1], ROW)
        assert progress.cells == (24, 0, 0)
    with Display(out, first, grows=True) as progress:
        for trial in first.trials:
            progress.finished(trial, ROW)
        assert progress.cells == (0, 24, 0), "a round may be added"


def test_no_two_cells_have_the_same_line_of_a_fault(out: Console) -> None:
    factors = {"engine": "eager,onnx", "codec": "none,int8", "batch_size": "1,8", "in_flight": "auto,4"}
    sweep = make_sweep({"model": "mobilenet_v2", "netem": "wifi", "trials": 1, **factors})
    todo = plan.make((sweep, FACTS, {"wifi": profiles("wifi", 1)}))
    with Display(out, todo) as progress:
        for trial in todo.trials:
            progress.finished(trial, {"status": "failed", "reason": "why", "wall_s": 1.0})
    said = re.findall(r"failed: (.*?), round 1: why", " ".join(text(out).split()))
    assert len(set(said)) == len(todo.trials)
    assert sum(" onnx" in line for line in said) == len(todo.trials) / 2

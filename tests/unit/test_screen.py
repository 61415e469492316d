"""What the user reads: in 80 columns, without colour, in a log."""

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

from pareto import cli, console, plan, profile_files, screen
from pareto.checked_sweep import make_sweep
from pareto.host_messages import SensorSample
from pareto.networks import profiles
from pareto.plan import ModelFacts, Plan, Trial
from pareto.runner import Tally
from pareto.trial_messages import Progress

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


FIELDS = tuple(field.name for field in fields(SensorSample))


def text(out: Console) -> str:
    assert isinstance(out.file, io.StringIO)
    written = out.file.getvalue()
    assert "\x1b" not in written
    assert max(len(line) for line in written.splitlines()) <= 80
    return written


def made() -> Plan:
    return plan.make(SWEEP, FACTS, NETWORKS)


def test_the_plan_says_which_throughputs_the_machines_own_cores_will_hold_back(
    out: Console, snapshot: SnapshotAssertion
) -> None:
    """Of quick stages, on a link that is quicker: sending takes as much of the edge's quarter as computing."""
    networks = {name: (profile_files.load(name),) for name in ("200ms-5mbit", "lan-1gbit")}
    sweep = SWEEP.model_copy(update={"netems": tuple(networks)})
    screen.plan(out, sweep, FACTS, networks, plan.make(sweep, FACTS, networks), cores=2)
    shown = text(out)
    assert "lan-1gbit at" in " ".join(shown.split())
    assert shown == snapshot


def test_a_link_that_is_slower_than_all_cores_leaves_nothing_to_say(out: Console) -> None:
    screen.plan(out, SWEEP, FACTS, NETWORKS, made(), cores=2)
    assert "\ncores" not in text(out)


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.4, "0 s"), (59.6, "1 min 00 s"), (830, "13 min 50 s"), (7500, "2 h 05 min")]
)
def test_durations(seconds: float, shown: str) -> None:
    assert console.duration(seconds) == shown


def test_the_plan_says_what_will_be_done(out: Console, snapshot: SnapshotAssertion) -> None:
    screen.plan(out, SWEEP, FACTS, NETWORKS, made())
    shown = text(out)
    assert console.duration(made().estimate_s) in shown
    assert shown == snapshot


def test_the_plan_of_a_chain_tells_its_links_and_ways(out: Console, snapshot: SnapshotAssertion) -> None:
    splits = ((0, 0), (0, 3), (3, 7))
    facts = {
        "mine": ModelFacts(
            FACTS["mobilenet_v2"].points, 0.03, splits=splits, notes=("", "40 [cuts], 12 points")
        )
    }
    networks = {"wifi+lte": profiles("wifi+lte", 2)}
    sweep = make_sweep({"model": "mine", "netem": "wifi+lte", "input": "uint8", "hosts": 3})
    screen.plan(out, sweep, facts, networks, plan.make(sweep, facts, networks))
    shown = text(out)
    assert "40 [cuts], 12 points" in shown
    assert shown == snapshot


def row_of(plan: str, title: str) -> str:
    """What stands in a row of the plan, which may take several lines; empty if it has none."""
    _, _, rest = f"\n{plan}".partition(f"\n{title} ")
    first, *more = rest.splitlines() or [""]
    lines = [first, *itertools.takewhile(lambda line: line.startswith(" "), more)]
    return " ".join(" ".join(lines).split())


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [
        ({}, ""),
        ({"initial_window": 100}, ""),
        ({"congestion": "bbr", "initial_window": 10}, "bbr, initial window 10"),
        ({"slow_start_after_idle": True}, "slow start after idle"),
    ],
)
def test_the_plan_tells_what_was_asked_of_tcp(out: Console, wanted: dict[str, Any], shown: str) -> None:
    sweep = make_sweep({"model": "mobilenet_v2", "netem": "wifi", **wanted})
    networks = {"wifi": profiles("wifi", 1)}
    screen.plan(out, sweep, FACTS, networks, plan.make(sweep, FACTS, networks))
    assert row_of(text(out), "TCP") == shown


@pytest.mark.parametrize(
    "wanted",
    [{"until": "5%"}, {"budget": "20min"}, {"until": "2.5%", "budget": "90s"}],
    ids=["until", "budget", "both"],
)
def test_the_plan_of_a_run_that_grows_says_how_far(
    out: Console, wanted: dict[str, Any], snapshot: SnapshotAssertion
) -> None:
    sweep = make_sweep({"model": "mobilenet_v2", "netem": "wifi", **wanted})
    networks = {"wifi": profiles("wifi", 1)}
    screen.plan(out, sweep, FACTS, networks, plan.make(sweep, FACTS, networks))
    shown = text(out)
    assert [row_of(shown, title) for title in ("trials", "then", "estimate")] == snapshot


def test_the_plan_of_a_run_that_grew_says_what_is_left_of_it(
    out: Console, snapshot: SnapshotAssertion
) -> None:
    todo = plan.make(SWEEP.model_copy(update={"trials": 7}), FACTS, NETWORKS)
    left = Plan(todo.trials[-3:], 3)
    screen.plan(out, SWEEP.model_copy(update={"until": 0.05}), FACTS, NETWORKS, left)
    assert row_of(text(out), "trials") == snapshot


def test_what_is_done_before_the_first_trial_is_shown() -> None:
    """On a terminal; of a plan that is not known yet there is no bar."""
    terminal = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    with screen.Progress(terminal, Plan((), 3), shares_machine=True) as progress:
        progress.shows("m on the edge, batch size 1")
        before = written(terminal)
        assert "m on the edge, batch size 1" in before
        assert "left" not in before
        progress.begin(made())
        progress.started(made().trials[0])
        assert f"0/{len(made().trials)}" in written(terminal)


def written(terminal: Console) -> str:
    assert isinstance(terminal.file, io.StringIO)
    return terminal.file.getvalue()


def test_a_round_that_is_added_counts_and_is_told_by_others(out: Console) -> None:
    todo = made()
    first, added = (Plan(tuple(t for t in todo.trials if t.round == number), 1) for number in (1, 2))
    row = {"status": "ok", "reason": "", "latency_s": 0.25, "throughput_ips": 4.0}
    with screen.Progress(out, first) as progress:
        for part in (first, added):
            progress.expect(part)
            assert progress.eta_s == pytest.approx(part.estimate_s)
            for trial in part.trials:
                progress.finished(trial, {**row, "wall_s": trial.estimate_s})
    assert progress.eta_s == pytest.approx(0, abs=1e-6)
    shown = text(out)
    assert shown.count("/24 trials, ") == 10
    assert "/48 trials" not in shown


def test_also_a_session_that_only_adds_rounds_is_told_by_others(out: Console) -> None:
    added = made()
    with screen.Progress(out, Plan((), 3)) as progress:
        progress.expect(added)
        for trial in added.trials:
            row = {"status": "ok", "reason": "", "wall_s": 1.0, "latency_s": 0.25, "throughput_ips": 4.0}
            progress.finished(trial, row)
    out.print("end")
    assert text(out) == "end\n"


@pytest.mark.parametrize(
    ("status", "shown"),
    [("ok", "250.0 ms, 4.00 images/s"), ("latency only", "250.0 ms"), ("throughput only", "4.00 images/s")],
)
def test_only_figures_that_can_be_trusted_are_shown(out: Console, status: str, shown: str) -> None:
    todo = made()
    row = {"status": status, "reason": "why", "wall_s": 1.0, "latency_s": 0.25, "throughput_ips": 4.0}
    with screen.Progress(out, todo) as progress:
        for trial in todo.trials[:8]:
            progress.finished(trial, row)
    assert re.search(rf": {shown}$", " ".join(text(out).split()))
    assert text(out).count(f"{status}: ") == (0 if status == "ok" else 8)


def test_a_log_gets_a_line_for_each_tenth_and_each_fault(out: Console, snapshot: SnapshotAssertion) -> None:
    todo = made()
    with screen.Progress(out, todo) as progress:
        for number, trial in enumerate(todo.trials):
            row = {
                "status": "ok",
                "reason": "",
                "wall_s": 2 * trial.estimate_s,
                "latency_s": 0.25,
                "throughput_ips": 4.0,
            }
            if number == 30:
                row |= {
                    "status": "invalid",
                    "reason": "link off [before] the trial: RTT 300 ms, asked 200 ms",
                }
            progress.started(trial)
            progress.finished(trial, row)
            if number == 35:
                left = sum(t.estimate_s for t in todo.trials[36:])
                assert progress.eta_s == pytest.approx(2 * left)  # twice as slow as foreseen so far
    shown = " ".join(text(out).split())
    assert shown.count("/72 trials, ") == 10
    assert "link off [before] the trial: RTT 300 ms" in shown
    assert text(out) == snapshot


def test_the_time_left_tells_trials_that_wait_for_a_build_from_others(out: Console) -> None:
    todo = made()
    builds = [replace(trial, waiting_s=9.0) for trial in todo.trials[:2]]
    todo = replace(todo, trials=(*builds, *todo.trials[2:]))
    with screen.Progress(out, todo) as progress:
        for trial, factor in zip(todo.trials[:3], (3, 3, 1), strict=False):
            row = {"status": "ok", "reason": "", "wall_s": factor * trial.estimate_s}
            progress.started(trial)
            progress.finished(trial, row)
        assert progress.eta_s == pytest.approx(sum(trial.estimate_s for trial in todo.trials[3:]))


def test_no_two_cells_have_the_same_line_of_a_fault(out: Console) -> None:
    factors = {"engine": "eager,onnx", "codec": "none,int8", "batch_size": "1,8", "in_flight": "auto,4"}
    sweep = make_sweep({"model": "mobilenet_v2", "netem": "wifi", "trials": 1, **factors})
    todo = plan.make(sweep, FACTS, {"wifi": profiles("wifi", 1)})
    with screen.Progress(out, todo) as progress:
        for trial in todo.trials:
            progress.finished(trial, {"status": "failed", "reason": "why", "wall_s": 1.0})
    said = re.findall(r"failed: (.*?), round 1: why", " ".join(text(out).split()))
    assert len(set(said)) == len(todo.trials)
    assert sum(" onnx" in line for line in said) == len(todo.trials) / 2


def test_the_summary_adds_up_and_lists_what_is_not_ok(out: Console, snapshot: SnapshotAssertion) -> None:
    bad = {
        "model": "m",
        "point": "3+7",
        "backend": "tcp",
        "netem": "lte",
        "batch_size": 8,
        "round": 1,
        "status": "invalid",
        "reason": "off",
    }
    bad |= {"in_flight_asked": "4", "prefetch_asked": "0", "codec": "none", "engine": "eager"}
    tally = Tally(measuring=80.0, probing=5.0, watching=90.0, driver_cpu=1.8, trials=40, faulty=[bad] * 12)
    screen.summary(out, tally, 100.0)
    shown = text(out)
    assert shown.count("invalid: m 3+7 tcp lte b8 d4, ") == screen.LISTED_FAULTS
    assert shown == snapshot


def test_nothing_run_nothing_said(out: Console) -> None:
    screen.summary(out, Tally(), 3.0)
    assert isinstance(out.file, io.StringIO)
    assert out.file.getvalue() == ""


def terminal() -> Console:
    return Console(
        file=io.StringIO(), width=80, highlight=False, markup=False, force_terminal=True, color_system=None
    )


def drawn(out: Console, samples: list[dict[str, dict[str, float | None]]]) -> list[str]:
    """The lines on a terminal while a trial runs, as they are drawn last."""
    with screen.Progress(out, made()) as progress:
        assert progress.is_live
        for latest in samples:
            progress.sampled(latest, None)
    assert isinstance(out.file, io.StringIO)
    *_, last = out.file.getvalue().rpartition("0/72")[1:]
    return [line.rstrip() for line in re.sub(r"\x1b\[[?0-9;]*[A-Za-z]|\r", "", last).splitlines()]


def test_sensors_tell_only_what_there_is(snapshot: SnapshotAssertion) -> None:
    nothing = dict.fromkeys(FIELDS)
    edge = {**nothing, "cpu_percent": 99.6, "rss_bytes": 312e6, "temperature_c": 61.4, "throttled": 0x1}
    server = {**nothing, "frequency_hz": 2.4e9, "power_w": 7.25, "gpu_percent": 0.0, "throttled": None}
    lines = drawn(terminal(), [{"edge": server, "server": edge}, {"edge": edge, "server": server}])
    assert lines[1:3] == snapshot


def test_a_host_without_sensors_is_not_named() -> None:
    known = {**dict.fromkeys(FIELDS), "cpu_percent": 3.0}
    lines = drawn(terminal(), [{"edge": dict.fromkeys(FIELDS), "server": known}])
    assert lines[2] == "server 3% CPU"
    lines = drawn(terminal(), [{"edge": dict.fromkeys(FIELDS)}])
    assert lines[1:] == ["starting"]


def test_all_sensors_of_both_hosts_stay_in_one_line(snapshot: SnapshotAssertion) -> None:
    all_of_them: dict[str, float | None] = {
        "cpu_percent": 100.0,
        "rss_bytes": 1234e6,
        "temperature_c": 61.4,
        "frequency_hz": 2.4e9,
        "power_w": 107.25,
        "gpu_percent": 100.0,
        "throttled": 0xF,
    }
    lines = drawn(terminal(), [{"edge": all_of_them, "server": all_of_them}])
    assert len(lines) == 3
    assert lines[2].endswith("…")
    assert len(lines[2]) <= 80
    assert lines[2] == snapshot


def test_where_hosts_share_the_machine_it_is_drawn_only_when_the_driver_is_awake_anyway() -> None:
    out, todo = terminal(), made()
    assert isinstance(out.file, io.StringIO)
    others = set(threading.enumerate())  # one of an earlier test may still be ending
    with screen.Progress(out, todo, shares_machine=True) as progress:
        for number, trial in enumerate(todo.trials[:2]):
            progress.started(trial)
            drawn_before = len(out.file.getvalue())
            assert f"{number}/72" in out.file.getvalue()
            new = set(threading.enumerate()) - others
            assert not [it for it in new if type(it).__name__ == "_RefreshThread"]
            progress.sampled(
                {"edge": {**dict.fromkeys(FIELDS), "cpu_percent": 42.0}}, Progress("throughput", 3)
            )
            drawn = out.file.getvalue()[drawn_before:]
            assert "edge 42% CPU" in drawn
            assert re.search(r"this trial: \d+ s of about .*; throughput, 3 requests done", drawn)
            row = {"status": "ok", "wall_s": 1.0, "latency_s": 0.25, "throughput_ips": 4.0, "reason": ""}
            progress.finished(trial, row)
    assert out.file.getvalue().count("1/72") >= 1


def test_what_is_left_is_learnt_from_the_trials_of_the_same_cells(out: Console) -> None:
    """One network takes twice as long as foreseen and the other as long: each by itself, not both by the mean."""
    first, *others = plan.make(SWEEP, FACTS, NETWORKS).trials
    slow = first.cell.netem
    row = {"status": "ok", "reason": "", "latency_s": 0.25, "throughput_ips": 4.0}

    def takes(trial: Trial) -> float:
        return trial.estimate_s * (2 if trial.cell.netem == slow else 1)

    trials = [first, *others]
    rounds = [trial for trial in trials if trial.round == 1]
    left = [trial for trial in trials if trial.round > 1]
    with screen.Progress(out, Plan(tuple(trials), SWEEP.trials)) as progress:
        for trial in rounds:
            progress.finished(trial, {**row, "wall_s": takes(trial)})
        assert progress.eta_s == pytest.approx(sum(map(takes, left)), rel=0.02)


def test_a_log_shows_no_sensors(out: Console) -> None:
    with screen.Progress(out, made()) as progress:
        assert not progress.is_live
        progress.sampled({"edge": {"cpu_percent": 99.0}}, None)
    assert isinstance(out.file, io.StringIO)
    assert out.file.getvalue() == ""


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
    assert cli._complain(hostile) == 2
    for shown in capsys.readouterr():
        assert "mine" in shown
        assert all(character.isprintable() for character in shown.replace("\n", ""))


def test_colours_of_our_own_stay() -> None:
    out = console._Console(file=io.StringIO(), force_terminal=True, color_system="standard")
    out.print("[bold]best[/bold]")
    assert text_of(out) == "\x1b[1mbest\x1b[0m\n"


def text_of(out: Console) -> str:
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def test_the_plan_says_which_codecs_are_one_cell(out: Console, snapshot: SnapshotAssertion) -> None:
    points = (("input", 100_000), ("one", 400_000), ("last", 0))
    dtypes = (("uint8",), ("float32",), ())
    facts = {"mine": ModelFacts(points, 0.03, splits=((0,), (1,), (2,)), dtypes=dtypes)}
    networks = {"none": profiles("none", 1)}
    sweep = make_sweep({"model": "mine", "netem": "none", "codec": "none,int8,uint4,int8+zstd"})
    screen.plan(out, sweep, facts, networks, plan.make(sweep, facts, networks))
    shown = text(out)
    assert "int8, uint4 do the same as none at point 0" in " ".join(shown.split())
    assert "int8+zstd:3 does the same as zstd:3 at point 0" in " ".join(shown.split())
    assert shown == snapshot

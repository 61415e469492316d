"""What the user sees while it measures, in 80 columns, without colour."""

from __future__ import annotations

import io
import re
import threading
from dataclasses import fields, replace

import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from pareto.driver.progress import Display
from pareto.protocol.host_messages import SensorSample
from pareto.protocol.trial_messages import Progress
from pareto.sweep import plan
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.networks import profiles
from pareto.sweep.plan import Plan
from tests.unit.screened import FACTS, NETWORKS, SWEEP, made, page, text, text_of

# While it measures


@pytest.fixture
def out() -> Console:
    return page()


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
            sample = {**dict.fromkeys(FIELDS), "cpu_percent": 42.0}
            progress.sampled({"edge": sample}, Progress("throughput", 3))
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

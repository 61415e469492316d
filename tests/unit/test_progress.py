"""What is seen of a run while it measures."""

from __future__ import annotations

import io
import re
import threading
from dataclasses import fields, replace

import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from pareto.protocol.host_messages import SensorSample
from pareto.protocol.trial_messages import Progress
from pareto.run.progress import Display
from pareto.sweep import plan
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.networks import profiles
from pareto.sweep.plan import Plan, Trial
from tests.unit.test_screen import FACTS, NETWORKS, SWEEP, made, text, text_of

FIELDS = tuple(field.name for field in fields(SensorSample))
ROW = {"status": "ok", "reason": "", "wall_s": 1.0, "latency_s": 0.25, "throughput_ips": 4.0}


@pytest.fixture
def out() -> Console:
    return Console(file=io.StringIO(), width=80, highlight=False, markup=False)


def terminal() -> Console:
    return Console(
        file=io.StringIO(), width=80, highlight=False, markup=False, force_terminal=True, color_system=None
    )


def test_what_is_done_before_the_first_trial_is_shown() -> None:
    """On a terminal; of a plan that is not known yet there is no bar."""
    out = terminal()
    with Display(out, Plan((), 3), shares_machine=True) as progress:
        progress.shows("m on the edge, batch size 1")
        before = text_of(out)
        assert "m on the edge, batch size 1" in before
        assert "left" not in before
        progress.expect(made(), made())
        progress.started(made().trials[0])
        assert f"0/{len(made().trials)}" in text_of(out)


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


def test_also_a_session_that_only_adds_rounds_is_told_by_others(out: Console) -> None:
    added = made()
    with Display(out, Plan((), 3)) as progress:
        progress.expect(added)
        for trial in added.trials:
            progress.finished(trial, ROW)
    out.print("end")
    assert text(out) == "end\n"


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


def test_the_time_left_tells_trials_that_wait_for_a_build_from_others(out: Console) -> None:
    todo = made()
    builds = [replace(trial, waiting_s=9.0) for trial in todo.trials[:2]]
    todo = replace(todo, trials=(*builds, *todo.trials[2:]))
    with Display(out, todo) as progress:
        for trial, factor in zip(todo.trials[:3], (3, 3, 1), strict=False):
            row = {"status": "ok", "reason": "", "wall_s": factor * trial.estimate_s}
            progress.started(trial)
            progress.finished(trial, row)
        assert progress.eta_s == pytest.approx(sum(trial.estimate_s for trial in todo.trials[3:]))


def drawn(out: Console, samples: list[dict[str, dict[str, float | None]]]) -> list[str]:
    """The lines on a terminal while a trial runs, as they are drawn last."""
    with Display(out, made()) as progress:
        assert progress.is_live
        for latest in samples:
            progress.sampled(latest, None)
    *_, last = text_of(out).rpartition("0/72")[1:]
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
        **{"cpu_percent": 100.0, "rss_bytes": 1234e6, "temperature_c": 61.4, "frequency_hz": 2.4e9},
        **{"power_w": 107.25, "gpu_percent": 100.0, "throttled": 0xF},
    }
    lines = drawn(terminal(), [{"edge": all_of_them, "server": all_of_them}])
    assert len(lines) == 3
    assert lines[2].endswith("…")
    assert len(lines[2]) <= 80
    assert lines[2] == snapshot


def test_where_hosts_share_the_machine_it_is_drawn_only_when_the_driver_is_awake_anyway() -> None:
    out, todo = terminal(), made()
    others = set(threading.enumerate())  # one of an earlier test may still be ending
    with Display(out, todo, shares_machine=True) as progress:
        for number, trial in enumerate(todo.trials[:2]):
            progress.started(trial)
            drawn_before = len(text_of(out))
            assert f"{number}/72" in text_of(out)
            new = set(threading.enumerate()) - others
            assert not [it for it in new if type(it).__name__ == "_RefreshThread"]
            progress.sampled(
                {"edge": {**dict.fromkeys(FIELDS), "cpu_percent": 42.0}}, Progress("throughput", 3)
            )
            drawn = text_of(out)[drawn_before:]
            assert "edge 42% CPU" in drawn
            assert re.search(r"this trial: \d+ s of about .*; throughput, 3 requests done", drawn)
            progress.finished(trial, ROW)
    assert text_of(out).count("1/72") >= 1


def test_what_is_left_is_learnt_from_the_trials_of_the_same_cells(out: Console) -> None:
    """One network takes twice as long as foreseen and the other as long: each by itself, not both by the mean."""
    first, *others = plan.make(SWEEP, FACTS, NETWORKS).trials
    slow = first.cell.netem

    def takes(trial: Trial) -> float:
        return trial.estimate_s * (2 if trial.cell.netem == slow else 1)

    trials = [first, *others]
    rounds = [trial for trial in trials if trial.round == 1]
    left = [trial for trial in trials if trial.round > 1]
    with Display(out, Plan(tuple(trials), SWEEP.trials)) as progress:
        for trial in rounds:
            progress.finished(trial, {**ROW, "wall_s": takes(trial)})
        assert progress.eta_s == pytest.approx(sum(map(takes, left)), rel=0.02)


def test_what_is_left_is_shared_by_the_testbeds_of_a_fleet_each_of_which_has_a_line() -> None:
    out, lines = terminal(), ["lab1: m wifi, round 1", f"lab2: {'not there ' * 9}"]
    with Display(out, made(), testbeds=lambda: lines) as progress:
        whole_s = progress.eta_s
        progress.at_once = 2
        assert progress.eta_s == pytest.approx(whole_s / 2)
    shown = text_of(out)
    assert "lab1: m wifi, round 1" in shown
    assert re.search(r"lab2: not there .*…", shown)


def test_a_log_shows_no_sensors(out: Console) -> None:
    with Display(out, made()) as progress:
        assert not progress.is_live
        progress.sampled({"edge": {"cpu_percent": 99.0}}, None)
    assert text_of(out) == ""


def test_no_two_cells_have_the_same_line_of_a_fault(out: Console) -> None:
    factors = {"engine": "eager,onnx", "codec": "none,int8", "batch_size": "1,8", "in_flight": "auto,4"}
    sweep = make_sweep({"model": "mobilenet_v2", "netem": "wifi", "trials": 1, **factors})
    todo = plan.make(sweep, FACTS, {"wifi": profiles("wifi", 1)})
    with Display(out, todo) as progress:
        for trial in todo.trials:
            progress.finished(trial, {"status": "failed", "reason": "why", "wall_s": 1.0})
    said = re.findall(r"failed: (.*?), round 1: why", " ".join(text(out).split()))
    assert len(set(said)) == len(todo.trials)
    assert sum(" onnx" in line for line in said) == len(todo.trials) / 2

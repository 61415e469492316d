"""What the user reads: in 80 columns, without colour, in a log."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from pareto import plan, screen, spec
from pareto.link import library
from pareto.plan import ModelFacts, Plan
from pareto.runner import Clock

FACTS = {"mobilenet_v2": ModelFacts(tuple((f"features.{i}", 100_000) for i in range(12)), 0.03)}
SWEEP = spec.sweep({"model": "mobilenet_v2", "netem": "200ms-5mbit", "edge_cpu": 0.25})
PROFILES = {name: library.load(name) for name in SWEEP.netems}


@pytest.fixture
def out() -> Console:
    return Console(file=io.StringIO(), width=80, highlight=False)


def text(out: Console) -> str:
    assert isinstance(out.file, io.StringIO)
    written = out.file.getvalue()
    assert "\x1b" not in written
    assert max(len(line) for line in written.splitlines()) <= 80
    return written


def made() -> Plan:
    return plan.make(SWEEP, FACTS, PROFILES)


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.4, "0 s"), (59.6, "1 min 00 s"), (830, "13 min 50 s"), (7500, "2 h 05 min")]
)
def test_durations(seconds: float, shown: str) -> None:
    assert screen.duration(seconds) == shown


def test_the_plan_says_what_will_be_done(out: Console) -> None:
    screen.plan(out, SWEEP, FACTS, PROFILES, made())
    shown = text(out)
    for part in (
        "12 of 12 points, 0 to 11",
        "edge to server 200 ms at 5 Mbit/s",
        "25% of a core",
        "72: 24 cells",
    ):
        assert part in shown
    assert f"about {screen.duration(made().estimate_s)}" in shown


def test_a_log_gets_a_line_for_each_tenth_and_each_fault(out: Console) -> None:
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
    assert shown.count("trials, ") == 10
    assert "72/72 trials, 0 s left" in shown
    assert "round 2: link off [before] the trial: RTT 300 ms" in shown
    assert "250.0 ms, 4.00 images/s" in shown


def test_the_summary_adds_up_and_lists_what_is_not_ok(out: Console) -> None:
    bad = {
        "model": "m",
        "point": 3,
        "backend": "tcp",
        "netem": "lte",
        "round": 1,
        "status": "invalid",
        "reason": "off",
    }
    screen.summary(out, Clock(measuring=80.0, probing=5.0, trials=40, faulty=[bad] * 12), 100.0)
    shown = text(out)
    assert "40 trials in 1 min 40 s: measuring 80%, probing the link 5%, the rest 15%" in shown
    assert shown.count("invalid: m 3 tcp lte, round 1: off") == screen.LISTED_FAULTS
    assert "and 2 more" in shown


def test_nothing_run_nothing_said(out: Console) -> None:
    screen.summary(out, Clock(), 3.0)
    assert isinstance(out.file, io.StringIO)
    assert out.file.getvalue() == ""

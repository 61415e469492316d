"""What the user sees of a fleet."""

from __future__ import annotations

import io

from rich.console import Console

from pareto.cell import Cell
from pareto.fleet.screen import Board
from pareto.fleet.tasks import Task
from pareto.fleet.testbeds import Testbed
from pareto.plan import QUICK, Plan, Trial

TRIALS = tuple(
    Trial(Cell("m", (point,), "mid", "tcp", "wifi", 1), number, 0.1, 2.0, QUICK)
    for number in (1, 2)
    for point in range(3)
)


def board(*, is_terminal: bool) -> tuple[Board, io.StringIO]:
    text = io.StringIO()
    out = Console(file=text, width=80, force_terminal=is_terminal, color_system=None, highlight=False)
    return Board(out, Plan(TRIALS, 2), ""), text


def test_it_shows_what_each_testbed_does_and_how_far_all_is() -> None:
    shown, text = board(is_terminal=True)
    busy = Testbed("lab1", "lab1", "tls://a", Task(0, TRIALS[:3], came=1), trials=1)
    lost, idle = Testbed("lab2", "lab2", is_lost=True, trials=4), Testbed("lab3", "lab3", "tls://b")
    out = Testbed("lab4", "lab4", out="does not answer " * 9)
    shown.show([busy, lost, idle, out, Testbed("lab5", "lab5")])
    shown.finished(busy, TRIALS[0], {"wall_s": 4.0, "status": "ok"})
    Console(file=text, width=80, color_system=None).print(shown._draw())
    lines = text.getvalue().splitlines()
    assert len(lines) == 6
    assert "1/6 trials" in lines[0]
    assert "10 s left" in lines[0]  # five of 2 s foreseen, which take twice that, on two testbeds
    wanted = ("m wifi, round 1: 1 of 3 trials", "lost", "idle", "taken out: does not answer", "starting")
    for line, words in zip(lines[1:], wanted, strict=True):
        assert words in line


def test_a_log_has_a_line_for_each_task_and_for_each_trial_that_is_not_ok() -> None:
    shown, text = board(is_terminal=False)
    testbed = Testbed("lab1", "lab1", "tls://a", Task(0, TRIALS[:3]))
    shown.show([testbed])
    shown.finished(testbed, TRIALS[0], {"wall_s": 2.0, "status": "ok"})
    shown.finished(testbed, TRIALS[1], {"wall_s": 2.0, "status": "invalid", "reason": "slow"})
    assert testbed.task is not None
    shown.task_done(testbed, testbed.task)
    first, *_, last = text.getvalue().splitlines()
    assert first.startswith("invalid:")
    assert "on lab1: slow" in first
    assert last.startswith("lab1: m wifi, round 1: 3 trials in")
    assert "2/6 trials" in last

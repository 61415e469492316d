"""Figures of time and rate, each beside its aim: printed as a table at the end.

A figure that is off its aim fails its test; where other programs had more than 2 % of the cores meanwhile it is
`disturbed`, which judges nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from pareto.hosts.local.cpu import watch_strangers
from tests.integration.conftest import net, relay

__all__ = ["net", "relay"]

MOST_FOREIGN_PERCENT = 2.0
Printed = Callable[[str], None]
_ROWS = pytest.StashKey[list["Figure"]]()


@dataclass(frozen=True)
class Figure:
    """A reading with its aim: from `least` to `most`, either of which may be open."""

    name: str
    value: float
    unit: str
    foreign_percent: float
    least: float | None = None
    most: float | None = None

    @property
    def verdict(self) -> str:
        if self.least is self.most is None:
            return "-"
        low = self.least is not None and not self.value >= self.least
        high = self.most is not None and not self.value <= self.most
        if not (low or high):
            return "met"
        return "off" if self.foreign_percent <= MOST_FOREIGN_PERCENT else "disturbed"

    @property
    def aim(self) -> str:
        if self.least is not None and self.most is not None:
            return f"{self.least:.4g} to {self.most:.4g}"
        if self.least is not None:
            return f"at least {self.least:.4g}"
        return "-" if self.most is None else f"at most {self.most:.4g}"


class Figures:
    """What one test has measured. Off on a quiet machine: the test fails when it has stated all of its figures."""

    def __init__(self, rows: list[Figure]) -> None:
        self._foreign_percent = watch_strangers(sorted(os.sched_getaffinity(0)))
        self._rows = rows
        self._mine: list[Figure] = []

    def state(self, name: str, value: float, unit: str = "", **aim: float | None) -> None:
        """A figure for the table, e.g. `state("relay: delay of 10 ms", 10.2, "ms", least=10, most=11)`."""
        self._mine.append(Figure(name, value, unit, self._foreign_percent(), **aim))

    def about(self, name: str, value: float, unit: str = "", *, aim: float, within: float) -> None:
        """A figure that should be its aim, give or take so much in the same unit."""
        self.state(name, value, unit, least=aim - within, most=aim + within)

    def judge(self) -> None:
        self._rows.extend(self._mine)
        off = [row for row in self._mine if row.verdict == "off"]
        assert not off, "; ".join(f"{row.name}: {row.value:.4g} {row.unit}, aim {row.aim}" for row in off)


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Iterator[Figures]:
    """Where a test states its figures."""
    stated = Figures(request.config.stash.setdefault(_ROWS, []))
    yield stated
    stated.judge()


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    """Prints a line of a study's own table past pytest's capture."""

    def show(line: str) -> None:
        with capsys.disabled():
            print(line)

    return show


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    rows = config.stash.get(_ROWS, [])
    if not rows:
        return
    terminalreporter.section("figures")
    terminalreporter.line("| figure | measured | aim | others had | |")
    terminalreporter.line("|---|---|---|---|---|")
    for row in rows:
        cells = (
            row.name,
            f"{row.value:.4g} {row.unit}".rstrip(),
            row.aim,
            f"{row.foreign_percent:.1f} %",
            row.verdict,
        )
        terminalreporter.line(f"| {' | '.join(cells)} |")

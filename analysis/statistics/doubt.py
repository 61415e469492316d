"""The reasons why figures are unsure, as data: a terminal shows their heads, a report also where it is worst."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

PROGRAMS, GOVERNOR = "close other programs", "set the CPU governor to performance"
THROTTLE = "see in trials.csv that no device is hot or throttles"
AGAIN = "measure again"


@dataclass(frozen=True)
class Doubt:
    """head: how many points or trials it is about. worst: where it is worst, or more of it. cures: what to do."""

    head: str
    worst: str = ""
    cures: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.head}{f', {self.worst}' if self.worst else ''}"


def cures(doubts: Iterable[Doubt]) -> str:
    """A line that says what to do, each cure once; empty where there is none."""
    each = dict.fromkeys(cure for doubt in doubts for cure in doubt.cures)
    return f"to mend: {'; '.join(each)}" if each else ""

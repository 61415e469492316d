"""The load that a camera or users offer: requests that arrive by themselves, and what they may take.

A load's text is its name in every row: `15/s` is one request every 66.7 ms, `poisson:15/s` as many at random,
`trace:FILE` those of a file. Arrivals are seeded by round: all cells of a round meet the same ones. With `find` each
cell has a rate of its own in each round, until the highest is known that it bears.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pareto.basics import files
from pareto.protocol.constants import MOST_REQUESTS
from pareto.protocol.errors import UserError
from pareto.remote.link import units

NONE = "none"
POISSON, TRACE, FIND = "poisson:", "trace:", "find"
FOUND = (FIND, POISSON + FIND)
"""The loads whose rate is another in each round of a cell."""
YES, NO, OPEN, STABLE, UNSTABLE, LATE = "yes", "no", "open", "stable", "unstable", "late: "
"""Words of rows: whether an SLO holds, or the requests do not tell; whether completions keep up with what arrives; and
how the fault begins of a phase whose requests were known too late."""
RATES = 0.001, 100_000.0
"""The least and the greatest rate of a load, in requests a second."""
MOST_S = 21_600.0
"""Seconds that a phase may last."""
NEEDED: Mapping[float, int] = {0.5: 11, 0.9: 64, 0.95: 130, 0.99: 662, 0.999: 6636}
"""The fewest values of which two or more lie beyond a quantile with a confidence of 99 %: a negative binomial's."""
_RATE = re.compile(r"(\d+(?:\.\d+)?)/s")
_QUANTILE = re.compile(r"(?:p(50|90|95|99|99\.9)|(max)|(missed))\s*<\s*(.+)")
_MOST_TRACE_BYTES = 1 << 22


@dataclass(frozen=True)
class Load:
    """text: its name. rate: requests a second, on average. at_s: the arrivals of a trace; None for the others."""

    text: str
    rate: float
    by_chance: bool = False
    at_s: tuple[float, ...] | None = None

    @property
    def is_found(self) -> bool:
        return self.text in FOUND

    def arrivals(self, requests: int, seconds: float, *seeds: object) -> list[float]:
        """Seconds from the first possible arrival on: at least so many, and for at least so long; all of a trace."""
        if self.at_s is not None:
            return list(self.at_s)
        number = min(MOST_REQUESTS, max(requests, math.ceil(self.rate * seconds), 2))
        if not self.by_chance:
            return [place * (1 / self.rate) for place in range(number)]
        draws = random.Random("/".join(map(str, (*seeds, self.text))))  # noqa: S311
        return list(itertools.accumulate(draws.expovariate(self.rate) for _ in range(number)))


@dataclass(frozen=True)
class Slo:
    """The service-level objective of requests, from when they arrive: `share` of them at most takes `limit_s` or
    longer; without a limit, until the next one arrives."""

    text: str
    share: float
    limit_s: float | None

    @property
    def requests(self) -> int:
        """How many requests tell whether it holds."""
        otherwise = math.ceil(6.64 / self.share) if self.share else NEEDED[0.999]
        return NEEDED.get(round(1 - self.share, 6), otherwise)

    def of(self, load: Load) -> float:
        """Its limit in seconds under a load."""
        return 1 / load.rate if self.limit_s is None else self.limit_s


@functools.cache
def parse(text: str) -> Load | None:
    """The load that a text names; None for `none`. Raises UserError."""
    if text == NONE:
        return None
    if text in FOUND:
        return Load(text, 1.0, by_chance=text != FIND)
    if text.startswith(TRACE):
        return _trace(Path(text.removeprefix(TRACE)).expanduser())
    match = _RATE.fullmatch(text.removeprefix(POISSON))
    if match is None or not RATES[0] <= (rate := float(match[1])) <= RATES[1]:
        raise UserError(
            "a load is a rate such as 15/s or poisson:15/s, trace:FILE with a time of arrival a line, or none"
        )
    return Load(text, rate, by_chance=text.startswith(POISSON))


def every(text: str) -> str:
    """The load of a period such as 66.7ms, as text. Raises UserError."""
    period_s = units.delay_s(text, "--every")
    if not 1 / RATES[1] <= period_s <= 1 / RATES[0]:
        raise UserError(f"--every {text}: from 10us to 1000s")
    return f"{units.digits_of(1 / period_s, 6)}/s"


def slo(text: str) -> Slo:
    """The SLO that a text states. Raises UserError."""
    match = _QUANTILE.fullmatch(text.strip())
    if match is None:
        raise UserError("an SLO is one such as 'p95 < 100ms', 'max < 1s' or 'missed < 1%'")
    percent, is_max, is_missed, limit = match.groups()
    if is_missed:
        return Slo(text, units.share(limit, "--slo"), None)
    share = 0.0 if is_max else round(1 - float(percent) / 100, 6)
    return Slo(text, share, units.delay_s(limit, "--slo"))


def listed(texts: Sequence[str]) -> tuple[str, ...]:
    """The texts, each once, of which those that name no file name a load. Raises UserError. Opens no file."""
    for text in texts:
        if not text.startswith(TRACE):
            parse(text)
    return tuple(dict.fromkeys(texts))


def _trace(path: Path) -> Load:
    """The load of a file with seconds of arrival, one a line, rising. Raises UserError."""
    lines = files.text(path, "arrivals", _MOST_TRACE_BYTES).split()
    try:
        at_s = tuple(map(float, lines))
    except ValueError:
        raise UserError(f"{path}: a time of arrival in seconds on each line, and nothing else") from None
    rises = all(0 <= a <= b <= MOST_S for a, b in itertools.pairwise(at_s))
    if not (rises and 2 <= len(at_s) <= MOST_REQUESTS):
        raise UserError(
            f"{path}: 2 to {MOST_REQUESTS} times of arrival that rise, in seconds from 0 to {MOST_S:.0f}"
        )
    span_s = at_s[-1] - at_s[0]
    if not span_s > 0:
        raise UserError(f"{path}: all requests arrive at once: that is no rate")
    return Load(f"{TRACE}{path.stem}", (len(at_s) - 1) / span_s, by_chance=True, at_s=at_s)

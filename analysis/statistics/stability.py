"""What makes figures unsure, in a few lines with advice, as pyperf gives it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from analysis.naming import cell_name, condition_title
from analysis.statistics.median import LEAST_VALUES
from pareto.constants import MOST_ROUNDS

UNSTEADY = 0.05
"""A figure is steady if half of its interval is no more of it."""
OUTLYING = 0.1
"""Chance flags fewer, also with 6 rounds and two figures of each: 6 %."""
WORTH_TELLING = 1.0
"""A drift of less, in percent over a run, changes no conclusion."""
RESUME = f"--resume it with --until {UNSTEADY:.0%}"

MEASURES = {"latency": "s", "throughput": "ips"}
"""What is watched, and the ending of its columns."""


def warnings(front: pd.DataFrame, drifts: pd.DataFrame) -> Iterator[str]:
    """At most a line for each kind of doubt, with how many points it is about and the worst; none if all is steady.

    front: as from `analysis.fronts.front.front`; drifts: as from `analysis.statistics.drift.drifts`. A figure is
    unsteady if half of its 95 % interval is over `UNSTEADY` of its median; with too few rounds for an interval, if half
    of the range of its rounds is, which says less.
    """
    measured = front[front["rounds"] > 0]
    once = measured[measured["rounds"] == 1]
    if not once.empty:
        worst = once.loc[once["excluded"].idxmax()]
        left_out = f", {_left_out(worst)} at {_named(worst)}" if worst["excluded"] else ""
        yield (
            f"{_points(len(once), len(measured))} measured in one round{left_out}: how steady the figures are is not "
            f"known (to mend: {_rounds_for_interval(worst)})"
        )
    yield from _unsteady(measured)
    yield from _outliers(measured)
    yield from _drifting(drifts)


def halves(rows: pd.DataFrame, measure: str, low: str = "low", high: str = "high") -> pd.Series:
    """How far each row's measure may be off, as a share of its median: the longer half of its interval.

    NaN where it has none. low, high: which columns are its ends; `least` and `most` are those of the rounds' range.
    """
    unit = MEASURES[measure]
    median = rows[f"{measure}_{unit}"]
    below, above = median - rows[f"{measure}_{low}_{unit}"], rows[f"{measure}_{high}_{unit}"] - median
    off: pd.Series = np.maximum(below, above) / median
    return off


def widest(off: pd.DataFrame) -> tuple[Any, str, float]:
    """Where the largest of these shares is: index, measure, share. One of them must be known."""
    sizes = off.to_numpy(dtype=float)
    row, column = np.unravel_index(np.nanargmax(sizes), sizes.shape)
    return off.index[row], str(off.columns[column]), float(sizes[row, column])


def _unsteady(measured: pd.DataFrame) -> Iterator[str]:
    """By interval where there is one, else by the rounds' range: they are not the same, and are not mixed."""
    enough = measured["rounds"] >= LEAST_VALUES
    several = measured[~enough & (measured["rounds"] > 1)]
    for rows, ends, which, words in (
        (
            measured[enough],
            ("low", "high"),
            "" if enough.all() else " with an interval",
            "of its median at 95 %,",
        ),
        (several, ("least", "most"), " with too few rounds for an interval", "between its"),
    ):
        off = pd.DataFrame({measure: halves(rows, measure, *ends) for measure in MEASURES})
        unsteady = off[(off > UNSTEADY).any(axis=1)]
        if unsteady.empty:
            continue
        index, measure, size = widest(unsteady)
        worst = rows.loc[index]
        left_out = f" ({_left_out(worst)})" if worst["excluded"] else ""
        mend = _rounds_for_interval(worst) if ends[0] == "least" else _rounds_for_steadiness(worst, size)
        yield (
            f"{_points(len(unsteady), len(rows), which)} unsteady, most of all the {measure} of {_named(worst)}: "
            f"±{size:.0%} {words} {_rounds(worst)}{left_out}. To mend: {mend}; close other programs, set the CPU "
            "governor to performance, see that no device throttles"
        )


def _rounds_for_interval(row: pd.Series) -> str:
    """A run that had as many rounds as an interval needs, and lost some, is not helped by as many again."""
    if row["rounds"] + row["excluded"] >= LEAST_VALUES:
        return RESUME
    return f"--trials {LEAST_VALUES}, or {RESUME}"


def _rounds_for_steadiness(row: pd.Series, size: float) -> str:
    """An interval shrinks as the root of the rounds. Of those to come, as many will be lost as of those there are."""
    more = math.ceil((row["rounds"] + row["excluded"]) * (size / UNSTEADY) ** 2)
    return (
        f"--trials {more}, or {RESUME}"
        if more <= MOST_ROUNDS
        else f"over {MOST_ROUNDS} rounds would be needed"
    )


def _outliers(measured: pd.DataFrame) -> Iterator[str]:
    known = measured[measured["outliers"].notna()]
    outliers, trials = known["outliers"].sum(), known["rounds"].sum()
    if outliers <= OUTLYING * trials:
        return
    worst = known.loc[known["outliers"].idxmax()]
    yield (
        f"{outliers:.0f} of {trials:.0f} trials are outliers, most at {_named(worst)}: {worst['outliers']:.0f} of "
        f"{_rounds(worst)}. They count as all others do. Something may have run beside them: close other programs"
    )


def _drifting(drifts: pd.DataFrame) -> Iterator[str]:
    found = drifts[drifts["drifts"].astype(bool) & (drifts["change_percent"].abs() >= WORTH_TELLING)]
    if found.empty:
        return
    worst = found.loc[found["change_percent"].abs().idxmax()]
    also = f" (and {len(found) - 1} more of {len(drifts)})" if len(found) > 1 else ""
    yield (
        f"drift: {worst['measure']} of {condition_title(worst)} over {worst['backend']} went "
        f"{worst['change_percent']:+.1f} % from the first round to the last of {worst['rounds']}{also}: the rounds are "
        "not alike. Let the devices warm up, look at their temperature and throttling in trials.csv, and measure again"
    )


def _points(some: int, of: int, such: str = "") -> str:
    """`2 of 4 points with an interval are`."""
    every = {1: "the only point", 2: "both points"}.get(of, f"all {of} points")
    which = f"{some} of {of} points" if some < of else every
    return f"{which}{such} {'is' if some == 1 else 'are'}"


def _left_out(row: pd.Series) -> str:
    return f"{row['excluded']:.0f} trial{'s' if row['excluded'] != 1 else ''} left out"


def _rounds(row: pd.Series) -> str:
    return f"{row['rounds']:.0f} round{'s' if row['rounds'] != 1 else ''}"


def _named(row: pd.Series) -> str:
    return f"{cell_name(row)} ({condition_title(row)})"

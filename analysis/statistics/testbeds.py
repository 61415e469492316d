"""Differences between testbeds of equal hardware that shared the rounds of a run."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from pareto.analysis.runs.points import CELL, round_of
from pareto.analysis.runs.standing import stands
from pareto.analysis.statistics.significance import MEASURES

KEY = ["model", "netem", "setup"]
"""The columns that are the same for all trials of a task: they are measured on one testbed in each round."""
COLUMNS = [*KEY, "measure", "testbed", "rounds", "difference_percent"]
NOTABLE = 5.0
"""Percent by which testbeds differ that are better reported apart."""


def differences(trials: pd.DataFrame) -> pd.DataFrame:
    """A row for each testbed of each task that has several, and measure (`latency`, `throughput`); columns `COLUMNS`.

    difference_percent: how much more its trials have than the others', by the medians of the same cells.
    """
    if "testbed" not in trials or trials["testbed"].nunique() < 2:
        return pd.DataFrame(columns=COLUMNS)
    rows = trials.assign(in_round=round_of(trials))[stands(trials)]
    made = []
    for key, task in rows.groupby(KEY, dropna=False, observed=True):
        rounds = task.groupby("testbed", observed=True)["in_round"].nunique()
        usual = task.groupby(CELL, dropna=False, observed=True)[[*MEASURES.values()]].transform("median")
        for measure, column in MEASURES.items():
            apart = np.log(task[column] / usual[column])
            levels = apart.groupby(task["testbed"], observed=True).median().dropna()
            for name, level in levels.items() if len(levels) > 1 else ():
                away = 100 * np.expm1(level - levels.drop(name).mean())
                made.append((*key, measure, name, rounds[name], away))
    return pd.DataFrame(made, columns=COLUMNS)


def sentences(rows: pd.DataFrame) -> Iterator[str]:
    """At most one line, on the testbed that is furthest from the others; `rows` of `differences`."""
    if rows.empty:
        return
    row = rows.loc[rows["difference_percent"].abs().idxmax()]
    yield (
        f"testbeds: the {row['measure']} of {row['testbed']} is {abs(row['difference_percent']):.1f} % "
        f"{'higher' if row['difference_percent'] > 0 else 'lower'} than that of the others, by the medians of the "
        f"same cells ({row['model']} at {row['netem']}); points are compared within rounds, each on one testbed"
    )

"""The testbeds of some runs side by side, where there are several: their hosts, what they measured, and by how much
their figures differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from pareto.analysis.runs.comparable import of_testbed
from pareto.analysis.runs.load import Run
from pareto.analysis.runs.manifest import section
from pareto.analysis.runs.points import round_of
from pareto.analysis.runs.standing import stands
from pareto.analysis.statistics.significance import MEASURES
from pareto.analysis.tables.columns import UNKNOWN, Column, Framed, figure, framed

NOTES = (
    "latency, throughput = how much more its rounds have than those of the others of equal hardware (the median over "
    "models and networks)",
    "testbeds.csv has each, with its interval",
)


def testbeds_table(runs: Sequence[Run], trials: pd.DataFrame, differences: pd.DataFrame) -> Framed | None:
    """The table, a row for each testbed; None of one testbed.

    trials: of `analysis.runs.load`; differences: of `analysis.statistics.testbeds`.
    """
    if "testbed" not in trials or trials["testbed"].nunique() < 2:
        return None
    by_testbed = trials.assign(in_round=round_of(trials), valid=stands(trials)).groupby("testbed")
    counts = by_testbed.agg(rounds=("in_round", "nunique"), trials=("valid", "size"), valid=("valid", "sum"))
    setups = by_testbed["setup"].unique().map(lambda each: "; ".join(filter(None, each)))
    facts = {name: _facts(runs, set(of["run"]), str(name)) for name, of in by_testbed}
    columns = [
        Column("testbed", [*counts.index]),
        *([Column("setup", [*setups])] if setups.ne("").any() else []),
        Column("hosts", [_joined(facts[name], "hostname") for name in counts.index]),
        Column("hardware", [_joined(facts[name], "cpu", "cuda") for name in counts.index]),
        *(Column(head, [*counts[head].astype("str")], kind="number") for head in counts),
    ]
    medians = differences.groupby(["measure", "testbed"])["difference_percent"].median()
    for measure in MEASURES:
        if measure in medians.index:
            apart = medians[measure].reindex(counts.index)
            cells = [f"{'+' if value > 0 else ''}{figure(value, 1)}" for value in apart]
            columns.append(Column(measure, cells, "%", "number"))
    return framed(columns, f"{len(counts)} testbeds", NOTES if len(medians) else ())


def _facts(runs: Sequence[Run], names: set[str], testbed: str) -> dict[str, dict[str, Any]]:
    """The facts that the last session on a testbed, in the runs of these names, recorded of each host, by its role."""
    sessions = [each for run in runs if names & {*run.names} for each in of_testbed(run.manifest, testbed)]
    return {role: section(each, "hosts", role) for each in sessions for role in section(each, "hosts")}


def _joined(facts: Mapping[str, Mapping[str, Any]], *keys: str) -> str:
    """`edge pi4; server gpu1`; what is the same on all hosts once."""
    each = {
        role: ", ".join(str(host[key]) for key in keys if host.get(key)) or UNKNOWN
        for role, host in facts.items()
    }
    if len(set(each.values())) == 1:
        return next(iter(each.values()))
    return "; ".join(f"{role} {text}" for role, text in each.items()) or UNKNOWN

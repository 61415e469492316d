"""The testbeds of some runs side by side, where there are several: their hosts, what they measured, and by how much
their figures differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from pareto.analysis.points import round_of
from pareto.analysis.runs.comparable import of_testbed
from pareto.analysis.runs.load import Run
from pareto.analysis.runs.manifest import section
from pareto.analysis.standing import stands
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
    names = sorted(trials["testbed"].unique()) if "testbed" in trials else []
    if len(names) < 2:
        return None
    facts = {name: _facts(runs, trials[trials["testbed"] == name], name) for name in names}
    numbers = trials.assign(in_round=round_of(trials), valid=stands(trials)).groupby("testbed")
    counts = numbers.agg(rounds=("in_round", "nunique"), trials=("valid", "size"), valid=("valid", "sum"))
    apart = differences.groupby(["measure", "testbed"])["difference_percent"].median().unstack("testbed")
    setups = trials.groupby("testbed")["setup"].unique().map(lambda each: "; ".join(filter(None, each)))
    columns = [
        Column("testbed", names),
        *([Column("setup", [setups[name] for name in names])] if setups.ne("").any() else []),
        Column("hosts", [_joined(facts[name], "hostname") for name in names]),
        Column("hardware", [_joined(facts[name], "cpu", "cuda") for name in names]),
        *(
            Column(head, [str(counts.loc[name, head]) for name in names], kind="number")
            for head in ("rounds", "trials", "valid")
        ),
        *(
            Column(measure, _signed(apart.reindex(columns=names).loc[measure]), "%", "number")
            for measure in MEASURES
            if measure in apart.index
        ),
    ]
    return framed(columns, f"{len(names)} testbeds", NOTES if not apart.empty else ())


def _facts(runs: Sequence[Run], trials: pd.DataFrame, testbed: str) -> dict[str, dict[str, Any]]:
    """The facts that the last session on a testbed recorded of each host, by its role."""
    known: dict[str, dict[str, Any]] = {}
    its = set(trials["run"])
    for run in runs:
        for session in of_testbed(run.manifest, testbed) if its.intersection(run.names) else ():
            known |= {role: section(session, "hosts", role) for role in section(session, "hosts")}
    return known


def _joined(facts: Mapping[str, Mapping[str, Any]], *keys: str) -> str:
    """`edge pi4, server gpu1`; what is the same on all hosts once."""
    each = {role: ", ".join(_texts(host, keys)) or UNKNOWN for role, host in facts.items()}
    if len(set(each.values())) == 1:
        return next(iter(each.values()))
    return "; ".join(f"{role} {text}" for role, text in each.items()) or UNKNOWN


def _texts(host: Mapping[str, Any], keys: Sequence[str]) -> Iterator[str]:
    return (str(host[key]) for key in keys if host.get(key))


def _signed(values: pd.Series) -> list[str]:
    return [f"+{figure(value, 1)}" if value > 0 else figure(value, 1) for value in values]

"""The settings of two runs, as far as they differ: a line each, what makes the comparison doubtful first."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pareto.analysis.naming import listed
from pareto.analysis.runs import comparable as runs
from pareto.analysis.runs.manifest import sessions

DOUBTFUL = "attention: "


def differences(
    first: Mapping[str, Any], other: Mapping[str, Any], models: Collection[str], networks: Collection[str]
) -> list[str]:
    """The differences of two manifests, A and B, a line each, about the models and networks that both runs have.

    Lines that begin with `DOUBTFUL` come first: something else was measured, such as other weights, another profile
    under the same name, or another testbed. Neither what only one of them records is a difference, nor an option that
    one does not have and the other leaves at its default.
    """
    both = {"A": first, "B": other}
    if missing := [name for name, manifest in both.items() if not manifest]:
        verb = "have" if len(missing) > 1 else "has"
        return [
            f"{DOUBTFUL}{listed(missing)} {verb} no manifest that can be read: what else differs is not known"
        ]
    about = sorted(models), sorted(networks)
    subjects = [
        (name, runs.recorded(runs.made(each, *about) | runs.measured(each) | runs.asked(each)))
        for name, each in both.items()
    ]
    others = [
        (name, runs.recorded(runs.chosen(each) | runs.made(each, *about, exactly=True) | runs.remarks(each)))
        for name, each in both.items()
    ]
    doubts = runs.differing([facts for _, facts in subjects])
    rest = [fact for fact in runs.differing([facts for _, facts in others]) if fact not in doubts]
    silent = listed(name for name, each in both.items() if not runs.roles(sessions(each)))
    return [
        *(f"{DOUBTFUL}{line}" for line in runs.told(doubts, subjects)),
        *([f"{silent}: nothing recorded of the hosts"] if silent else []),
        *runs.told(rest, others),
    ]

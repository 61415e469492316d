"""The settings of two runs, as far as they differ: a line each, what makes the comparison doubtful first."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pareto.analysis.runs.comparable import (
    asked,
    chosen,
    differing,
    made,
    measured,
    recorded,
    remarks,
    roles,
    told,
)
from pareto.analysis.runs.manifest import sessions

DOUBTFUL = "attention: "


def differences(
    first: Mapping[str, Any], other: Mapping[str, Any], models: Collection[str], networks: Collection[str]
) -> list[str]:
    """The differences of two manifests, a line each, about the models and networks that both runs have.

    The runs are called A and B. Lines that begin with `DOUBTFUL` come first: something else was measured, with other
    weights, another graph, other cuts under a point's number, another profile under the same name, another testbed or
    processor. A manifest that is missing is named as such; what only one of them records is no difference, nor is an
    option that one of them does not have and the other leaves at its default.
    """
    both = {"A": first, "B": other}
    if missing := [name for name, manifest in both.items() if not manifest]:
        return [
            f"{DOUBTFUL}{' and '.join(missing)} {'have' if len(missing) > 1 else 'has'} no manifest that can be read: "
            "what else differs is not known"
        ]
    about = sorted(models), sorted(networks)
    subjects = [
        (name, recorded(made(each, *about) | measured(each) | asked(each))) for name, each in both.items()
    ]
    others = [
        (name, recorded(chosen(each) | made(each, *about, exactly=True) | remarks(each)))
        for name, each in both.items()
    ]
    doubts = differing([facts for _, facts in subjects])
    rest = [fact for fact in differing([facts for _, facts in others]) if fact not in doubts]
    silent = " and ".join(name for name, each in both.items() if not roles(sessions(each)))
    return [
        *(f"{DOUBTFUL}{line}" for line in told(doubts, subjects)),
        *([f"{silent}: nothing recorded of the hosts"] if silent else []),
        *told(rest, others),
    ]

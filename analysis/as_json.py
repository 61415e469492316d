"""The findings of commands as JSON, for other programs: `docs/json.md` has every key."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pareto.analysis.advice.ranking import CHOICE
from pareto.analysis.advice.rivals import beside
from pareto.analysis.runs.points import CONDITION
from pareto.basics.escaping import spelled

if TYPE_CHECKING:
    from pareto.analysis.advice.advise import Advice
    from pareto.analysis.comparing.between_runs import Comparison
    from pareto.analysis.findings import Findings


def text(value: Mapping[str, Any]) -> str:
    """An object as JSON, with null for what is not known or has no limit."""
    made = json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False)
    return spelled(made, lambda character: json.dumps(character)[1:-1])


def plain(value: Any) -> Any:
    """A value as JSON's types: a frame as a list of objects, a dataclass as one, NaN and infinity as None."""
    if isinstance(value, pd.DataFrame):
        value = value.to_dict(orient="records")
    elif dataclasses.is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    elif isinstance(value, pd.Series | np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bool | int):
        return value
    return None if value is None or value is pd.NA or value is pd.NaT else str(value)


def _of(whole: Any, *names: str) -> dict[str, Any]:
    """These attributes, which have the same names in JSON."""
    return {name: getattr(whole, name) for name in names}


def of_report(findings: Findings, folder: Path) -> dict[str, Any]:
    """The findings of `report`: the answers, the fastest point of each condition, every point, every comparison."""
    front = findings.front
    allowed = front[front["feasible"].astype(bool) & front["latency_s"].notna()]
    best = allowed.loc[allowed.groupby(CONDITION, dropna=False)["latency_s"].idxmin()]
    rivals = beside(best, findings.trials, findings.where, findings.networks)
    return {
        "runs": [run.folder for run in findings.runs],
        "folder": folder,
        **_of(findings, "simulated", "objectives", "where", "answers"),
        "fastest": best.assign(could_be_better=rivals),
        "points": front,
        "backends": findings.paired,
        "codecs": findings.paired_codecs,
        "engines": findings.paired_engines,
        **_of(findings, "overhead", "loads", "rates", "testbeds", "warnings"),
        "verdicts": [*findings.verdicts, *findings.codecs, *findings.engines],
        **_of(findings, "notes", "files"),
    }


def of_comparison(comparison: Comparison) -> dict[str, Any]:
    """The findings of `compare`: the conclusions, every cell that both runs have, and the fronts."""
    return {
        "runs": comparison.names,
        "conclusions": comparison.sentences,
        "points": comparison.differences,
        **_of(comparison, "fronts", "settings", "only_first", "only_second", "notes"),
    }


def of_advice(advice: Advice, notes: list[str]) -> dict[str, Any]:
    """The findings of `advise`: the sentence, every point from the best on, and where another is better."""
    ranked = advice.ranking
    return {
        "answer": str(advice),
        "model": advice.title,
        "network": advice.network,
        "best_for": advice.objective,
        "where": advice.where,
        "choices": ranked.choices[CHOICE],
        "better_elsewhere": [
            {
                "along": switch.along,
                "from": switch.at,
                **_of(switch, "upwards", "low", "high", "extrapolated"),
                "place": ranked.choices["place"].loc[switch.cell],
            }
            for switch in ranked.crossovers
        ],
        "better_elsewhere_unsure": sorted(ranked.unsure_along),
        "measured": advice.measured,
        "measured_here": ranked.profile,
        "extrapolated": advice.extrapolated,
        "unsure": ranked.unsure,
        "could_be_better": ranked.rivals,
        "errors": advice.validation.errors,
        "notes": notes,
    }

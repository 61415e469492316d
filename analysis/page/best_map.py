"""The data of the page's map of other networks: the predictions, cell by cell, and what was measured."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pandas as pd

from pareto.analysis.advice import predict
from pareto.analysis.advice.best import best
from pareto.analysis.advice.observed import WORKLOAD, Observed, observe, workloads
from pareto.analysis.advice.predict import Predictor, Validation
from pareto.analysis.advice.rivals import absent
from pareto.analysis.findings import Findings
from pareto.analysis.naming import cell_name, count
from pareto.analysis.prediction.network import networks
from pareto.analysis.wording import order
from pareto.protocol.errors import UserError
from pareto.remote.link.units import percent

MOST_MAPS = 12
"""How many workloads have a map: each is computed once more in the reader's browser."""
MOST_CELLS = 1000
"""A map with more cells than this is left out: it would not follow the sliders."""
BEYOND = 2.5
"""The factor by which the sliders go beyond what was measured, at both ends."""
LEAST = 100.0
"""The least factor between the ends of a slider."""
OTHERWISE = {"delay_s": (0.001, 0.2), "rate_bps": (1e6, 1e9)}
"""The range of a slider where no network that was measured has a delay, or a limit."""


class Maps:
    """A map for each workload of the findings whose networks are constant delays and rates.

    made: the maps, for the script. None is made where a condition was set: of a predicted network it cannot be asked.
    """

    def __init__(self, findings: Findings) -> None:
        self.made: list[dict[str, Any]] = []
        self._keys: list[tuple[str, ...]] = []
        for trials, observed in _observed(findings):
            cells = observed.cells
            if len(self.made) < MOST_MAPS and len(cells) <= MOST_CELLS:
                row = cells.iloc[0]
                made = _map(observed, _of_workload(findings.front, row))
                if none := absent(cells, trials, findings.struck):
                    made["worth"] = {name: f"{worth} {none}." for name, worth in made["worth"].items()}
                if made["measured"]:
                    self._keys.append(_key(row))
                    self.made.append(made)

    def place(self, row: pd.Series) -> int | None:
        """The number of the map of the workload of a front's row; None if there is none."""
        key = _key(row)
        return self._keys.index(key) if key in self._keys else None


def _observed(findings: Findings) -> Iterator[tuple[pd.DataFrame, Observed]]:
    """Yield the trials of each workload, and what was observed of them."""
    if findings.where:
        return
    with suppress(UserError):
        known = networks(run.manifest for run in findings.runs)
        for trials in workloads(findings.trials):
            with suppress(UserError):
                yield trials, observe(predict.advisable(trials, known), findings.stages, known)


def _key(row: pd.Series) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in WORKLOAD)


def _of_workload(front: pd.DataFrame, row: pd.Series) -> pd.DataFrame:
    kept: pd.DataFrame = front[(front[WORKLOAD].astype("str") == row[WORKLOAD].astype("str")).all(axis=1)]
    return kept


def _map(observed: Observed, rows: pd.DataFrame) -> dict[str, Any]:
    """A map's cells, measured networks, ranges of the sliders, and what its predictions are worth."""
    predictor = predict.predictor(observed)
    winners = best(rows, observed.networks, predictor)
    winners = winners[winners["netem"].isin(observed.profiles)]
    validation = predict.validate(observed)
    return {
        "cells": list(_cells(predictor)),
        "batch": predictor.batch_size,
        "in_flight": predictor.in_flight,
        "measured": list(_measured(winners)),
        "delays": _range(winners["delay_s"], "delay_s"),
        "rates": _range(winners["rate_bps"], "rate_bps"),
        "error": {name: _finite(validation.spread(name)) for name in ("latency", "throughput")},
        "worth": {name: _worth(validation, name) for name in ("latency", "throughput")},
    }


def _cells(predictor: Predictor) -> Iterator[dict[str, Any]]:
    """Yield each cell whose time can be predicted: its name, what to do, and its row of `Predictor.lines`."""
    lines = predictor.lines()
    for row, numbers in zip(predictor.cells.to_dict("records"), lines.to_dict("records"), strict=True):
        if all(map(math.isfinite, numbers.values())):
            yield {
                "name": cell_name(row),
                "point": str(row["point"]),
                "backend": str(row["backend"]),
                "order": order({**row, "payload_bytes": row["wire_bytes"] if row["backend"] else 0.0}),
                "line": [float(f"{value:.9g}") for value in numbers.values()],
            }


def _measured(winners: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield each measured network, with the best median there for both figures."""
    for netem, both in winners.groupby("netem", sort=False):
        first = both.iloc[0]
        found = {
            row["objective"]: [cell_name(row), str(row["point"]), float(f"{row['measured']:.6g}")]
            for row in both.to_dict("records")
        }
        yield {
            "netem": str(netem),
            "delay": float(first["delay_s"]),
            "rate": _finite(first["rate_bps"]),
            "best": found,
        }


def _range(values: pd.Series, name: str) -> list[float]:
    """The ends of a slider: around the values, and wide enough to be worth moving."""
    known = values[(values > 0) & (values < math.inf)]
    low, high = (known.min() / BEYOND, known.max() * BEYOND) if len(known) else OTHERWISE[name]
    wider = max(1.0, math.sqrt(LEAST * low / high))
    return [float(f"{low / wider:.2g}"), float(f"{high * wider:.2g}")]


def _finite(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _worth(validation: Validation, objective: str) -> str:
    """A sentence on how far predictions were off where the truth was measured."""
    errors = validation.errors[objective]
    if not validation.held_out or math.isnan(errors.median):
        return "How far predictions are off is not known: it takes a second network to test them."
    return (
        f"Tested on {count(validation.profiles, 'network')}, each predicted from the others: off by "
        f"{percent(errors.median)} (median), {percent(errors.worst)} (worst)."
    )

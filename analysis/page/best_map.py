"""The page's map of other networks: the best point as predicted on a grid of delays and rates, and as measured."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd

from pareto.analysis.advice import predict
from pareto.analysis.advice.best import best
from pareto.analysis.advice.observed import WORKLOAD, observe, workloads
from pareto.analysis.advice.predict import Predictor, Validation, margin_on_grid
from pareto.analysis.advice.rivals import absent
from pareto.analysis.findings import Findings
from pareto.analysis.naming import cell_name
from pareto.analysis.prediction.network import networks
from pareto.analysis.runs.points import NONE
from pareto.analysis.statistics.samples import Bools, Floats
from pareto.analysis.wording import order
from pareto.protocol.errors import UserError
from pareto.remote.link.units import duration, percent, rate

MOST_MAPS, MOST_CELLS = 12, 1000
"""How many workloads have a map, and how many cells these may have."""
OBJECTIVES = {"latency": "Lowest latency", "throughput": "Highest throughput"}
BEYOND, LEAST = 2.5, 100.0
"""The factor by which an axis goes beyond what was measured, at both ends; the least factor between its ends."""
STEPS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
"""The steps of a decade."""
OTHERWISE = {"delay_s": (0.001, 0.2), "rate_bps": (1e6, 1e9)}
"""The range of an axis where no network that was measured has a delay, or a limit."""
MAP_PX, LETTER_PX = (330, 240), 7
"""About the size of a map, and the width of a letter: which names have room."""


def maps(findings: Findings) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Yield the map of each workload (its values of `WORKLOAD`) of two hosts whose networks are constant delays and
    rates. None has one where a condition was set: of a predicted network it cannot be asked.
    """
    made = 0
    with suppress(UserError):
        known = networks(run.manifest for run in findings.runs)
        for trials in () if findings.where else workloads(findings.trials):
            with suppress(UserError):
                observed = observe(predict.advisable(trials, known), findings.stages, known)
                of = trials.iloc[0][WORKLOAD].astype("str")
                rows = findings.front[(findings.front[WORKLOAD].astype("str") == of).all(axis=1)]
                winners = best(rows, observed.networks)
                winners = winners[winners["netem"].isin(observed.profiles)]
                predictor = _known(predict.predictor(observed))
                if made < MOST_MAPS and 0 < len(predictor.cells) <= MOST_CELLS and len(winners):
                    made += 1
                    none = absent(observed.cells, trials, findings.struck)
                    yield tuple(of), _map(predictor, predict.validate(observed), winners, none)


def _known(predictor: Predictor) -> Predictor:
    """The predictor of the cells of which both figures can be predicted."""
    costs = [predictor.cost(objective, delay_s=0.1, rate_bps=1e7).ravel() for objective in OBJECTIVES]
    return predictor.only(np.asarray(np.isfinite(costs).all(axis=0)))


def _map(predictor: Predictor, validation: Validation, winners: pd.DataFrame, none: str) -> dict[str, Any]:
    """A map: how each objective's is drawn, the measured networks, and `data`, in which the sliders look a cell up."""
    delays = np.array([0.0, *_steps(winners["delay_s"], "delay_s")])
    rates = np.array([*_steps(winners["rate_bps"], "rate_bps"), math.inf])
    size = len(delays), len(rates)
    measured = [
        _measured(both, str(netem), delays, rates) for netem, both in winners.groupby("netem", sort=False)
    ]
    inside = np.outer(_between(delays, winners["delay_s"]), _between(rates, winners["rate_bps"]))
    drawn: list[dict[str, Any]] = []
    data: dict[str, Any] = {"delay": list(map(duration, delays)), "rate": list(map(_rate, rates))}
    for objective, title in OBJECTIVES.items():
        # Delays x rates x cells; the way back is not shaped.
        each = [
            predictor.cost(objective, delay_s=np.full(size[1], delay), rate_bps=rates) for delay in delays
        ]
        costs = np.stack(each)
        errors = validation.errors[objective]
        error = math.expm1(validation.spread(objective))
        close = margin_on_grid(predictor, delays, rates, objective) < np.nan_to_num(error)
        used, best_of = np.unique(costs.argmin(axis=-1).ravel(), return_inverse=True)
        cells = predictor.cells.iloc[used].to_dict("records")
        data[objective] = {
            "best": best_of.tolist(),
            "orders": list(map(_order, cells)),
            "cost": [
                _figure(objective, cost).removesuffix(" images/s") for cost in costs.min(axis=-1).ravel()
            ],
            "note": (close + 2 * ~inside).ravel().tolist(),
        }
        points = dict.fromkeys(cell["point"] for cell in cells)
        shade = dict(zip(points, np.linspace(0.08, 0.6, len(points)).round(3).tolist(), strict=True))
        areas = best_of.reshape(size) == np.arange(len(cells))[:, None, None]
        drawn.append(
            {
                "title": title,
                "areas": [
                    (shade[cell["point"]], _path(where), name, _place(where, name, measured))
                    for cell, name, where in zip(cells, map(cell_name, cells), areas, strict=True)
                ],
                "close": _path(close),
                "error": percent(error),
                "errors": [
                    percent(each)
                    for each in (errors.median, errors.worst)
                    if validation.held_out and math.isfinite(each)
                ],
            }
        )
    return {
        "drawn": drawn,
        "size": size[::-1],
        "x": _ticks(rates, data["rate"]),
        "y": _ticks(delays, data["delay"]),
        "measured": measured,
        "tested": validation.profiles,
        "none": none,
        "data": data,
    }


def _order(cell: Mapping[Any, Any]) -> str:
    """The advice where that cell is best."""
    return order({**cell, "payload_bytes": 0.0 if cell["backend"] == NONE else cell["wire_bytes"]})


def _rate(bps: float) -> str:
    return rate(bps, 3) if math.isfinite(bps) else "no limit"


def _steps(values: pd.Series, name: str) -> list[float]:
    """The steps of an axis around the values, wide enough for a map; those that were measured are among them."""
    known = values[(values > 0) & (values < math.inf)]
    low, high = (known.min() / BEYOND, known.max() * BEYOND) if len(known) else OTHERWISE[name]
    wider = max(1.0, math.sqrt(LEAST * low / high))
    powers = 10.0 ** np.arange(math.floor(math.log10(low / wider)), math.log10(high * wider))
    steps = np.outer(powers, STEPS).ravel()
    steps = steps[(steps >= low / wider * 0.99) & (steps <= high * wider * 1.01)]
    for value in known:
        steps[_nearest(steps, value)] = value
    return list(map(float, steps))


def _nearest(steps: Floats, value: float) -> int:
    """The place of a step; of 0 the first, of no limit the last."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return int(
            np.where(steps == value, 0.0, np.nan_to_num(np.abs(np.log(steps / value)), nan=np.inf)).argmin()
        )


def _between(steps: Floats, measured: pd.Series) -> Bools:
    return np.asarray((steps >= measured.min()) & (steps <= measured.max()))


def _ticks(steps: Floats, texts: list[str]) -> list[tuple[float, str]]:
    """The places, in percent, and the texts of whole decades, and of 0 or no limit at an end."""
    ends = [place for place, step in enumerate(steps) if not 0 < step < math.inf]
    whole = [place for place, step in enumerate(steps) if f"{step:.2e}".startswith("1.00e")]
    shown = [*ends, *(place for place in whole if all(abs(place - end) > 0.18 * len(steps) for end in ends))]
    return [(_percent(place + 0.5, len(steps)), texts[place]) for place in sorted(shown)]


def _percent(part: float, whole: float) -> float:
    return round(100 * part / whole, 2)


def _runs(where: Bools) -> list[tuple[int, int, int]]:
    """The runs in each row of a grid: how far down the row is, from which column on, and to which."""
    steps = np.diff(np.pad(where, ((0, 0), (1, 1))).astype(int))
    both = zip(np.argwhere(steps > 0).tolist(), np.argwhere(steps < 0).tolist(), strict=True)
    return [(len(where) - 1 - row, start, end) for (row, start), (_, end) in both]


def _path(where: Bools) -> str:
    """The places of a grid as a path, in steps."""
    return "".join(f"M{start} {down}H{end}v1H{start}z" for down, start, end in _runs(where))


def _place(where: Bools, name: str, measured: list[dict[str, Any]]) -> tuple[float, float] | None:
    """The place, in percent, of a cell's name in its area, clear of the measured networks; None without room."""
    high, wide = where.shape
    longest = max(end - start for _, start, end in _runs(where))
    rows = [run for run in _runs(where) if run[2] - run[1] == longest]
    if longest / wide * MAP_PX[0] < LETTER_PX * len(name) or len(rows) / high * MAP_PX[1] < 14:
        return None
    free = [
        run for run in rows if all(abs(high - 1 - each["delay"] - run[0]) > 2 for each in measured)
    ] or rows
    down, start, end = free[len(free) // 2]
    return _percent((start + end) / 2, wide), _percent(down + 0.5, high)


def _measured(both: pd.DataFrame, netem: str, delays: Floats, rates: Floats) -> dict[str, Any]:
    """A measured network: its place, and the best median there for both figures."""
    delay, rate_at = _nearest(delays, both["delay_s"].iloc[0]), _nearest(rates, both["rate_bps"].iloc[0])
    found = {row["objective"]: row for row in both.to_dict("records")}
    costs = {
        name: row["measured"] if name == "latency" else 1 / row["measured"] for name, row in found.items()
    }
    words = [f"{cell_name(found[name])}, {_figure(name, cost)}" for name, cost in costs.items()]
    return {
        "netem": netem,
        "delay": delay,
        "rate": rate_at,
        "x": _percent(rate_at + 0.5, len(rates)),
        "y": _percent(len(delays) - delay - 0.5, len(delays)),
        "points": [str(found[name]["point"]) if name in found else "" for name in OBJECTIVES],
        "words": f"{netem}, measured: {'; '.join(words)}",
    }


def _figure(objective: str, cost: float) -> str:
    return duration(cost) if objective == "latency" else f"{1 / cost:.3g} images/s"

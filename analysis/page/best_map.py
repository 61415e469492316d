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
from pareto.analysis.advice.observed import WORKLOAD, Observed, observe, workloads
from pareto.analysis.advice.predict import Predictor, Validation, margin_on_grid
from pareto.analysis.advice.rivals import absent
from pareto.analysis.findings import Findings
from pareto.analysis.naming import cell_name, count
from pareto.analysis.points import NONE
from pareto.analysis.prediction.network import networks
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
                of = observed.cells.iloc[0][WORKLOAD].astype("str")
                rows = findings.front[(findings.front[WORKLOAD].astype("str") == of).all(axis=1)]
                winners = best(rows, observed.networks)
                winners = winners[winners["netem"].isin(observed.profiles)]
                if made < MOST_MAPS and len(observed.cells) <= MOST_CELLS and len(winners):
                    made += 1
                    yield tuple(of), _map(observed, winners, absent(observed.cells, trials, findings.struck))


def _map(observed: Observed, winners: pd.DataFrame, none: str) -> dict[str, Any]:
    """A map: how each objective's is drawn, the measured networks, and `data`, in which the sliders look a cell up."""
    predictor, validation = predict.predictor(observed), predict.validate(observed)
    delays = np.array([0.0, *_steps(winners["delay_s"], "delay_s")])
    rates = np.array([*_steps(winners["rate_bps"], "rate_bps"), math.inf])
    inside = np.outer(_between(delays, winners["delay_s"]), _between(rates, winners["rate_bps"]))
    drawn: list[dict[str, Any]] = []
    data: dict[str, Any] = {"delay": list(map(duration, delays)), "rate": list(map(_rate, rates))}
    for objective, title in OBJECTIVES.items():
        error = math.expm1(validation.spread(objective))
        close = margin_on_grid(predictor, delays, rates, objective) < np.nan_to_num(error)
        areas, data[objective] = _objective(predictor, delays, rates, objective)
        off = f"Too close to tell: another point is within the prediction's error ({percent(error)})."
        beyond = "This is beyond what was measured."
        data[objective] |= {
            "note": (close + 2 * ~inside).ravel().tolist(),
            "notes": ["", off, beyond, f"{off} {beyond}"],
        }
        worth = _worth(validation, objective) + (f" {none}." if none else "")
        drawn.append({"title": title, "areas": areas, "close": _path(close), "worth": worth})
    return {
        "drawn": drawn,
        "size": (len(rates), len(delays)),
        "x": _ticks(rates, data["rate"]),
        "y": _ticks(delays, data["delay"]),
        "measured": list(_measured(winners, delays, rates)),
        "data": data,
    }


def _objective(
    predictor: Predictor, delays: Floats, rates: Floats, objective: str
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The areas in which a cell is best, and by delay and rate the best cell and what it comes to; the way back is not
    shaped.
    """
    costs = np.stack(
        [predictor.cost(objective, delay_s=np.full(len(rates), delay), rate_bps=rates) for delay in delays]
    )
    used, best_of = np.unique(costs.argmin(axis=-1).ravel(), return_inverse=True)
    cells = predictor.cells.iloc[used].to_dict("records")
    points = list(dict.fromkeys(cell["point"] for cell in cells))
    shade = 0.52 / max(1, len(points) - 1)
    areas = [
        {"opacity": round(0.08 + shade * points.index(cell["point"]), 3)}
        | _area((best_of == number).reshape(len(delays), -1), cell_name(cell))
        for number, cell in enumerate(cells)
    ]
    least = costs.min(axis=-1).ravel()
    return areas, {
        "best": best_of.tolist(),
        "orders": [_order(cell) for cell in cells],
        "cost": [duration(cost) if objective == "latency" else f"{1 / cost:.3g}" for cost in least],
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
    shown = [*ends, *(place for place in whole if all(abs(place - end) > 2 for end in ends))]
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


def _area(where: Bools, name: str) -> dict[str, Any]:
    """A cell's area as a path, and its name where there is room for it: its place in percent, and the text."""
    high, wide = where.shape
    longest = max(end - start for _, start, end in _runs(where))
    rows = [run for run in _runs(where) if run[2] - run[1] == longest]
    down, start, end = rows[len(rows) // 2]
    has_room = longest / wide * MAP_PX[0] > LETTER_PX * len(name) and len(rows) / high * MAP_PX[1] > 14
    place = (_percent((start + end) / 2, wide), _percent(down + 0.5, high), name)
    return {"path": _path(where), "name": place if has_room else None}


def _measured(winners: pd.DataFrame, delays: Floats, rates: Floats) -> Iterator[dict[str, Any]]:
    """Yield each measured network: its place, and the best median there for both figures."""
    for netem, both in winners.groupby("netem", sort=False):
        delay, rate_at = _nearest(delays, both["delay_s"].iloc[0]), _nearest(rates, both["rate_bps"].iloc[0])
        found = {row["objective"]: row for row in both.to_dict("records")}
        words = [f"{cell_name(row)}, {_figure(name, row['measured'])}" for name, row in found.items()]
        yield {
            "netem": str(netem),
            "delay": delay,
            "rate": rate_at,
            "x": _percent(rate_at + 0.5, len(rates)),
            "y": _percent(len(delays) - delay - 0.5, len(delays)),
            "points": [str(found[name]["point"]) if name in found else "" for name in OBJECTIVES],
            "words": f"{netem}, measured: {'; '.join(words)}",
        }


def _figure(objective: str, value: float) -> str:
    return duration(value) if objective == "latency" else f"{value:.3g} images/s"


def _worth(validation: Validation, objective: str) -> str:
    """How far predictions were off where the truth was measured."""
    errors = validation.errors[objective]
    if not validation.held_out or math.isnan(errors.median):
        return "How far predictions are off is not known: it takes a second network to test them."
    return (
        f"Tested on {count(validation.profiles, 'network')}, each predicted from the others: off by "
        f"{percent(errors.median)} (median), {percent(errors.worst)} (worst)."
    )

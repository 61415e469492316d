"""The page's map of other networks: the best point as predicted on a grid of delays and rates, and as measured."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
from scipy.ndimage import distance_transform_edt

from pareto.analysis.advice.observed import WORKLOAD
from pareto.analysis.advice.predict import Predictor, Validation, best, on_grid
from pareto.analysis.advice.workload import workloads
from pareto.analysis.findings import Findings
from pareto.analysis.naming import cell_name
from pareto.analysis.runs.points import NONE
from pareto.analysis.statistics.samples import Bools, Floats
from pareto.analysis.wording import forms
from pareto.protocol.errors import UserError
from pareto.remote.link.units import duration, percent, rate

MOST_MAPS, MOST_CELLS = 12, 1000
"""How many workloads have a map, and how many cells these may have."""
OBJECTIVES = {"latency": "Lowest latency", "throughput": "Highest throughput"}
BEYOND, LEAST = 2.5, 100.0
"""The factor by which an axis goes beyond what was measured, at both ends; the least factor between its ends."""
STEPS = np.outer(10.0 ** np.arange(-9, 15), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)).ravel()
"""The steps of axes."""
OTHERWISE = {"delay_s": (0.001, 0.2), "rate_bps": (1e6, 1e9)}
"""The range of an axis where no network that was measured has a delay, or a limit."""
MAP_PX, NAME_PX = (240, 330), (14, 7)
"""About the height and width of a map, and of a name's letters: which names have room."""


def maps(findings: Findings) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Yield the map of each workload (its values of `WORKLOAD`) of two hosts whose networks are constant delays and
    rates. None has one where a condition was set: of a predicted network it cannot be asked.
    """
    made = 0
    with suppress(UserError):
        for workload in () if findings.where else workloads(findings.joined):
            if workload.unfit:
                continue
            of = workload.rows.iloc[0][WORKLOAD].astype("str")
            rows = findings.front[(findings.front[WORKLOAD].astype("str") == of).all(axis=1)]
            winners = best(rows, workload.networks)
            winners = winners[winners["netem"].isin(workload.observed.profiles)]
            every = workload.predictor
            costs = [every.cost(name, delay_s=0.1, rate_bps=1e7).ravel() for name in OBJECTIVES]
            # Only of these cells both figures can be predicted.
            predictor = every.only(np.asarray(np.isfinite(costs).all(axis=0)))
            if made < MOST_MAPS and 0 < len(predictor.cells) <= MOST_CELLS and len(winners):
                made += 1
                yield tuple(of), _map(predictor, workload.validation, winners) | {"none": workload.absent}


def _map(predictor: Predictor, validation: Validation, winners: pd.DataFrame) -> dict[str, Any]:
    """A map: how each objective's is drawn, the measured networks, and `data`, in which the sliders look a cell up."""
    delays = np.array([0.0, *_steps(winners["delay_s"])])
    rates = np.array([*_steps(winners["rate_bps"]), math.inf])
    by_netem = winners.groupby("netem", sort=False)
    measured = [_measured(both, str(netem), delays, rates) for netem, both in by_netem]
    # The way back is not shaped.
    grid = dict(zip(("delay_s", "rate_bps"), np.meshgrid(delays, rates, indexing="ij"), strict=True))
    inside = np.all([at == at.clip(winners[of].min(), winners[of].max()) for of, at in grid.items()], axis=0)
    near = np.zeros(inside.shape, dtype=bool)
    for at in measured:
        near[max(0, at["delay"] - 1) : at["delay"] + 2, max(0, at["rate"] - 1) : at["rate"] + 2] = True
    drawn: list[dict[str, Any]] = []
    texts = [*map(duration, delays)], [rate(bps, 3) for bps in rates]
    data: dict[str, Any] = {"delay": texts[0], "rate": texts[1]}
    for objective, title in OBJECTIVES.items():
        cell, costs, behind = on_grid(predictor, delays, rates, objective)
        errors, error = validation.errors[objective], math.expm1(validation.spread(objective))
        close = behind < np.nan_to_num(error)
        used, best_of = np.unique(cell.ravel(), return_inverse=True)
        cells = predictor.cells.iloc[used]
        sent = cells["wire_bytes"].mask(cells["backend"] == NONE, 0.0)
        least = [_figure(objective, cost) for cost in costs.ravel()]
        data[objective] = {
            "best": best_of.tolist(),
            "orders": [forms(cell)["order"] for cell in cells.assign(payload_bytes=sent).to_dict("records")],
            "cost": [text.removesuffix(" images/s") for text in least],
            "note": (close + 2 * ~inside).ravel().tolist(),
        }
        points = [*dict.fromkeys(cells["point"])]
        shades = dict(zip(points, np.linspace(0.08, 0.6, len(points)).round(3).tolist(), strict=True))
        areas = []
        for number, cell in enumerate(cells.to_dict("records")):
            area, name = best_of.reshape(inside.shape) == number, cell_name(cell)
            areas.append((shades[cell["point"]], _path(area), name, _place(area & ~near, name)))
        known = [errors.median, errors.worst] if validation.held_out else []
        told = [percent(each) for each in known if math.isfinite(each)]
        drawn.append(
            {"title": title, "areas": areas, "close": _path(close), "error": percent(error), "errors": told}
        )
    return {
        "drawn": drawn,
        "size": inside.shape[::-1],
        "x": _ticks(rates, texts[1]),
        "y": _ticks(delays, texts[0]),
        "measured": measured,
        "tested": validation.profiles,
        "data": data,
    }


def _steps(values: pd.Series) -> Floats:
    """The steps of an axis around the values, wide enough for a map; those that were measured are among them."""
    known = values[(values > 0) & (values < math.inf)]
    ends = (known.min() / BEYOND, known.max() * BEYOND) if len(known) else OTHERWISE[str(values.name)]
    wider = max(1.0, math.sqrt(LEAST * ends[0] / ends[1]))
    steps = STEPS[(ends[0] / wider * 0.99 <= STEPS) & (ends[1] * wider * 1.01 >= STEPS)]
    for value in known:
        steps[_nearest(steps, value)] = value
    return steps


def _nearest(steps: Floats, value: float) -> int:
    """The place of a step; of 0 the first, of no limit the last."""
    return int(np.abs(np.log(np.clip(steps, 1e-12, 1e18) / np.clip(value, 1e-12, 1e18))).argmin())


def _ticks(steps: Floats, texts: list[str]) -> list[tuple[float, str]]:
    """The places, in percent, and the texts of whole decades, and of 0 or no limit at an end."""
    ends = [place for place, step in enumerate(steps) if not 0 < step < math.inf]
    whole = [place for place, step in enumerate(steps) if f"{step:.2e}".startswith("1.00e")]
    shown = [*ends, *(place for place in whole if all(abs(place - end) > 0.18 * len(steps) for end in ends))]
    return [(_percent(place + 0.5, len(steps)), texts[place]) for place in sorted(shown)]


def _percent(part: float, whole: float) -> float:
    return round(100 * part / whole, 2)


def _path(where: Bools) -> str:
    """The places of a grid as a path, in steps."""
    return "".join(f"M{across} {down}h1v1h-1z" for down, across in np.argwhere(where[::-1]).tolist())


def _place(free: Bools, name: str) -> tuple[float, float] | None:
    """The place, in percent, of a cell's name where there is most room for it; None without room."""
    high, wide = free.shape
    room = NAME_PX[0], NAME_PX[1] * len(name)
    # In halves of a name: whose middle is 1 away from where it must not be has room.
    sampling = 2 * MAP_PX[0] / high / room[0], 2 * MAP_PX[1] / wide / room[1]
    away = distance_transform_edt(np.pad(free, 1), sampling=sampling)[1:-1, 1:-1]
    widest = np.argwhere(away == away.max())
    row, column = widest[len(widest) // 2].tolist()
    if away[row, column] < 1:
        return None
    return _percent(column + 0.5, wide), _percent(high - row - 0.5, high)


def _measured(both: pd.DataFrame, netem: str, delays: Floats, rates: Floats) -> dict[str, Any]:
    """A measured network: its place, and the best median there for both figures."""
    delay, rate_at = _nearest(delays, both["delay_s"].iloc[0]), _nearest(rates, both["rate_bps"].iloc[0])
    found = {row["objective"]: row for row in both.to_dict("records")}
    words = [
        f"{cell_name(row)}, {_figure(name, row['measured'] if name == 'latency' else 1 / row['measured'])}"
        for name, row in found.items()
    ]
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

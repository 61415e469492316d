"""Trials to the Pareto front: medians over rounds, dominance, how sure both are, and which points tie."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pareto.analysis.fronts import energy, indicators, quality, shared_rounds
from pareto.analysis.fronts.cells import OF_CELL, OF_ENERGY, OF_TRIALS, SPREADS
from pareto.analysis.fronts.draws import ALL, Draws, prepared
from pareto.analysis.fronts.indicators import nondominated_in_each
from pareto.analysis.fronts.objectives import ACCURACY, DEFAULT, Objective, chosen
from pareto.analysis.fronts.where import Where
from pareto.analysis.naming import cell_names
from pareto.analysis.runs.points import BUT_CODEC, CELL, NONE
from pareto.analysis.runs.treatments import AT_WORK
from pareto.analysis.statistics.posterior import FAIR_CHANCE
from pareto.analysis.statistics.samples import LEAST_VALUES, OUTSIDE, Bools, Floats, Ints

MIN_ROUNDS = 3
"""With fewer rounds their spread is not known. With 3 it is calibrated where the noise is small, as simulation
shows, and where it is not, no probability is stated; an interval needs more."""
_JUDGED = {
    **dict.fromkeys(("on_backend_front", "on_front", "on_energy_front"), False),
    **dict.fromkeys(("on_fronts_of", "ties"), ""),
    **dict.fromkeys(("probability", "probability_all"), float("nan")),
}
"""Columns that a condition decides, and their values for a cell without a valid trial."""
_OVER_CODECS = {"on_codec_front": "on_front", "codec_probability": "probability_all", "codec_ties": "ties"}
OF_FRONT = [
    *("feasible", "on_backend_front", "on_front", "on_fronts_of"),
    *("probability", "probability_all", "ties", *_OVER_CODECS),
]
COLUMNS = [*OF_TRIALS, *OF_FRONT, *OF_ENERGY, "on_energy_front"]
KEPT = [*CELL, "point_order", "point_name", "rounds", *SPREADS, *OF_FRONT]
"""The columns of front.csv that are there even if they hold nothing."""


def front(
    trials: pd.DataFrame, objectives: Sequence[str] = DEFAULT, where: str = "", seed: int = 0
) -> pd.DataFrame:
    """One row per cell (`CONDITION`, backend, point), sorted by them, points by their cuts; columns `COLUMNS`, which
    results/README.md describes under front.csv.

    A point where nothing crosses is one cell (`runs.treatments.pooled`), which competes on the front of every backend.
    A cell without a figure that can be trusted has `rounds` 0 and is on no front. Energies of middle hosts are known if
    the trials have them (`analysis.fronts.energy.with_middle`). objectives: names of `analysis.fronts.objectives`;
    where: as `analysis.fronts.where.Where` reads it. The same trials and `seed` give the same result, whatever other
    conditions are there. Raises `UserError` for what can't be read.
    """
    rows, draws = prepared(trials, objectives, where, seed=seed)
    return _with_codecs(_joined(rows, map(_judged, draws)), trials, objectives, where, seed)


def fronts(
    trials: pd.DataFrame, objectives: Sequence[str] = DEFAULT, where: str = "", seed: int = 0
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """The frames of `front`, `hypervolumes` and `attainment` with their defaults, from the same cells, one condition
    after another. The attainment is always that of latency and throughput. Raises `UserError` as the three do.
    """
    rows, draws = prepared(trials, objectives, where, seed=seed)
    is_plane = tuple(objectives) == DEFAULT
    judged: list[pd.DataFrame] = []
    volumes: list[dict[str, Any]] = []
    corners: list[pd.DataFrame] = []
    for drawn in draws:
        judged.append(_judged(drawn))
        volumes += indicators.hypervolume_rows(drawn, {})
        corners += indicators.attainment_rows(drawn) if is_plane else []
    if not is_plane:
        attainment = indicators.attainment(trials, where=where, seed=seed)
    return (
        _with_codecs(_joined(rows, judged), trials, objectives, where, seed),
        indicators.hypervolume_frame(volumes, objectives),
        indicators.attainment_frame(corners) if is_plane else attainment,
    )


def over_codecs(objectives: Sequence[str], where: str) -> tuple[str, ...]:
    """The objectives of the front over all codecs: accuracy is among them, so that no codec wins by its losses alone,
    unless the constraint says how much quality is enough (`analysis.fronts.quality.LIMITS`).
    """
    is_limited = bool(Where.parse(where).columns & quality.LIMITS)
    return tuple(objectives) if is_limited or ACCURACY in objectives else (*objectives, ACCURACY)


def _with_codecs(
    frame: pd.DataFrame, trials: pd.DataFrame, objectives: Sequence[str], where: str, seed: int
) -> pd.DataFrame:
    """The frame with the front over all codecs, and all `COLUMNS`; `frame`: one row a cell of each codec."""
    made = frame.assign(**{name: frame[own] for name, own in _OVER_CODECS.items()})
    crossing = frame[frame["backend"] != NONE]
    counts = crossing.groupby(BUT_CODEC, dropna=False, observed=True)[["codec", AT_WORK]].nunique()
    several = counts[(counts > 1).all(axis=1)].reset_index()[BUT_CODEC]
    if len(several):
        mine = trials.merge(several, on=BUT_CODEC)
        rows, draws = prepared(mine, over_codecs(objectives, where), where, seed=seed, over_codecs=True)
        # A cell that stands for several codecs is a row of each of them here, and one row there.
        key = [*BUT_CODEC, "backend", "point", AT_WORK]
        of_all = _joined(rows, map(_judged, draws))[[*key, *_OVER_CODECS.values()]]
        of_all = made[key].merge(of_all, how="left", on=key)
        there = of_all["on_front"].notna().to_numpy()
        for name, own in _OVER_CODECS.items():
            made.loc[there, name] = of_all.loc[there, own].astype(made[name].dtype).to_numpy()
    return made.reindex(columns=COLUMNS)


def _joined(rows: pd.DataFrame, judged: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """The cells with what `_judged` says of those of each condition that have a valid trial."""
    made = pd.concat(parts) if (parts := list(judged)) else pd.DataFrame(columns=[*_JUDGED])
    columns = {
        name: made[name].reindex(rows.index, fill_value=nothing).astype(type(nothing))
        for name, nothing in _JUDGED.items()
    }
    return rows.assign(**columns)


def _judged(drawn: Draws) -> pd.DataFrame:
    """The columns `_JUDGED` of one condition's cells."""
    rows = drawn.rows
    on_fronts = {name: _on_front(drawn, members, drawn.objectives) for name, members in drawn.groups()}
    on_front = on_fronts.pop(ALL)
    names = ["; ".join(name for name, on in on_fronts.items() if on[cell]) for cell in range(len(rows))]
    within, overall = probabilities(drawn)
    which = "active-energy" if energy.judged_by(rows) == energy.ACTIVE else "energy"
    return pd.DataFrame(
        {
            # A point without a backend, where there is no other, is on no backend's front but on that of all.
            "on_backend_front": (np.array(names) != "") | (on_front & rows["backend"].eq(NONE)),
            "on_front": on_front,
            "on_energy_front": _on_front(drawn, np.arange(len(rows)), chosen((*DEFAULT, which))),
            "on_fronts_of": names,
            "ties": ties(drawn, overall),
            "probability": within,
            "probability_all": overall,
        },
        rows.index,
    )


def _on_front(drawn: Draws, members: Ints, objectives: Sequence[Objective]) -> Bools:
    """Mask of the cells that no feasible one of these members dominates: by their medians, or where a run was a search,
    by those over the rounds that two cells share.
    """
    columns = [each.column for each in objectives]
    if drawn.is_search:
        figures = drawn.measured(columns)
        # What no trial varies in is told, too, by the rounds that a cell has.
        figures[np.isnan(drawn.rounds["latency_s"])[:, :, None] & np.isin(columns, OF_CELL)] = np.nan
    else:
        figures = drawn.rows[columns].to_numpy(dtype=float)[None]
    figures = np.where(drawn.rows[["feasible"]], figures, np.nan)
    on_front = np.zeros(len(drawn.rows), dtype=bool)
    maximise = [each.maximise for each in objectives]
    on_front[members] = shared_rounds.nondominated(figures[:, members], maximise)
    return on_front


def probabilities(draws: Draws) -> tuple[Floats, Floats]:
    """The probability of each cell to be on its backend's front, and on that of all; the same where nothing crosses.

    It is the share of draws of what the figures may be in truth (`analysis.statistics.posterior`) in which no point
    dominates it. NaN for a cell with fewer than `MIN_ROUNDS` rounds, or without a figure in one of the objectives; and
    where noise is not known, or too large for any probability to hold (docs/analysis.md has a table).
    """
    rows, within = draws.rows, np.full(len(draws.rows), np.nan)
    if draws.true is None:
        return within, within
    backend, overall = rows["backend"].to_numpy(), within
    for name, members in draws.groups():
        of = draws.true.of(members)
        stated = of.stated(nondominated_in_each(of.values, draws.maximise).mean(axis=0))
        own = backend[members] == name
        within[members[own]], overall = stated[own], stated
    lacking = rows[draws.columns].isna().any(axis=1) & rows["feasible"]
    enough = (rows["rounds"] >= MIN_ROUNDS) & ~lacking
    within = np.where(backend == NONE, overall, within)
    return np.where(enough, within, np.nan), np.where(enough, overall, np.nan)


def ties(draws: Draws, probability: Floats) -> list[str]:
    """The cells that each one can't be told apart from: `any 21; tcp 17`, empty if none or unknown.

    Two can't be told apart if in every objective either may be the better one with 2.5 % or more. Points with fewer
    than 6 rounds, or on the front of all backends with less than 5 % `probability`, are not compared.
    """
    names = cell_names(draws.rows).to_numpy()
    result = [""] * len(names)
    if draws.true is None:
        return result
    enough = draws.rows["rounds"].to_numpy() >= LEAST_VALUES
    fair = enough & ~(probability < FAIR_CHANCE) & ~np.isnan(draws.true.values).all(axis=(0, 2))
    values = draws.true.values[:, fair]
    not_more = (values[:, :, None] <= values[:, None, :]).mean(axis=0)
    alike = (np.minimum(not_more, not_more.transpose(1, 0, 2)) >= OUTSIDE).all(axis=2)
    np.fill_diagonal(alike, False)
    for cell, others in zip(np.flatnonzero(fair), alike, strict=True):
        result[cell] = "; ".join(names[fair][others])
    return result

"""Trials to the Pareto front: medians over rounds, dominance, how sure both are, and which points tie."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from pareto.analysis.fronts import energy, indicators, quality, shared_rounds
from pareto.analysis.fronts.cells import (
    ACTIVES,
    EFFICIENCIES,
    ENDS,
    ENERGIES,
    MEDIANS,
    SPREADS,
    STEPS,
    WIRE,
)
from pareto.analysis.fronts.draws import RESAMPLES, Draws, Prepared, prepared
from pareto.analysis.fronts.indicators import nondominated, nondominated_in_each
from pareto.analysis.fronts.objectives import ACCURACY, DEFAULT, chosen
from pareto.analysis.fronts.where import Where
from pareto.analysis.naming import cell_names, transports
from pareto.analysis.runs.points import AT_WORK, BUT_CODEC, CELL, CONDITION, NONE
from pareto.analysis.statistics.posterior import FAIR_CHANCE
from pareto.analysis.statistics.samples import LEAST_VALUES, OUTSIDE, Bools, Floats, Ints

MIN_ROUNDS = 3
"""With fewer rounds their spread is not known. With 3 it is calibrated where the noise is small, as simulation
shows, and where it is not, no probability is stated; an interval needs more."""
OF_FRONT = [
    *("feasible", "on_backend_front", "on_front", "on_fronts_of"),
    *("probability", "probability_all", "ties"),
    *("on_codec_front", "codec_probability", "codec_ties"),
]
COLUMNS = [
    *CONDITION,
    *("backend", "point"),
    AT_WORK,
    *("point_order", "point_name", "rounds", "excluded", "trials", "left_out"),
    *MEDIANS,
    *STEPS,
    *("top1", "top1_images", *quality.COLUMNS, WIRE, *EFFICIENCIES),
    *(name.format(end) for name in SPREADS.values() for end in ENDS),
    "outliers",
    *OF_FRONT,
    *ENERGIES,
    *ACTIVES,
    *(energy.WHOLE, energy.ACTIVE, "energy_of", "on_energy_front"),
]
KEPT = [*CELL, "point_order", "point_name", "rounds", *SPREADS, *OF_FRONT]
"""The columns of front.csv that are there even if they hold nothing."""


@dataclass(frozen=True)
class Fronts:
    """Frames as from the functions `front`, `hypervolumes` and `attainment` of this package."""

    front: pd.DataFrame
    hypervolumes: pd.DataFrame
    attainment: pd.DataFrame


def front(
    trials: pd.DataFrame,
    objectives: Sequence[str] = DEFAULT,
    where: str = "",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """One row per cell (`CONDITION`, backend, point), sorted by them, points by their cuts; columns `COLUMNS`, which
    results/README.md describes under front.csv.

    A point where nothing crosses is one cell (`runs.points.pooled`), which competes on the front of every backend.
    A cell without a figure that can be trusted has `rounds` 0 and is on no front. Energies of middle hosts are known if
    the trials have them (`analysis.fronts.energy.with_middle`). The front over all codecs is in the objectives of
    `over_codecs`. objectives: names of `analysis.fronts.objectives`; where: as `analysis.fronts.where.Where` reads it.

    The same trials, `resamples` and `seed` give the same result, whatever other conditions are there. Raises
    `UserError` for objectives or a constraint that can't be read.
    """
    ready = prepared(trials, objectives, where, resamples, seed)
    return _with_codecs(_judged(ready, map(_certainty, ready.draws)), trials, objectives, where, seed)


def over_codecs(objectives: Sequence[str], where: str) -> tuple[str, ...]:
    """The objectives of the front over all codecs: accuracy is among them, so that no codec wins by its losses alone,
    unless the constraint says how much quality is enough (`analysis.fronts.quality.LIMITS`).
    """
    is_limited = bool(Where.parse(where).columns & quality.LIMITS)
    return tuple(objectives) if is_limited or ACCURACY in objectives else (*objectives, ACCURACY)


def _with_codecs(
    frame: pd.DataFrame, trials: pd.DataFrame, objectives: Sequence[str], where: str, seed: int
) -> pd.DataFrame:
    """The frame with the front over all codecs; `frame`: one row a cell of each codec."""
    made = frame.assign(
        on_codec_front=frame["on_front"], codec_probability=frame["probability_all"], codec_ties=frame["ties"]
    )
    crossing = frame[frame["backend"] != NONE]
    counts = crossing.groupby(BUT_CODEC, dropna=False, observed=True)[["codec", AT_WORK]].nunique()
    several = (counts > 1).all(axis=1)
    if not several.any():
        return made.reindex(columns=COLUMNS)
    wanted = several[several].reset_index()[BUT_CODEC]
    mine = trials.merge(wanted, on=BUT_CODEC)
    # Only the probabilities are needed of the draws, not the resamples.
    ready = prepared(mine, over_codecs(objectives, where), where, 1, seed, over_codecs=True)
    rows = ready.rows.assign(feasible=ready.where.holds(ready.rows))
    rows["over"] = _on_front(rows, ready, _conditions(rows, ready))
    sure = pd.concat([_certainty(drawn) for drawn in ready.draws] or [pd.DataFrame(columns=["ties"])])
    rows = rows.join(sure.reindex(columns=["probability_all", "ties"]))
    # A cell that stands for several codecs is a row of each of them here, and one row there.
    key = [*BUT_CODEC, "backend", "point", AT_WORK]
    joined = made[key].merge(rows[[*key, "over", "probability_all", "ties"]], how="left", on=key)
    is_of = joined["over"].notna().to_numpy()
    made.loc[is_of, "on_codec_front"] = joined.loc[is_of, "over"].astype(bool).to_numpy()
    made.loc[is_of, "codec_probability"] = joined.loc[is_of, "probability_all"].astype(float).to_numpy()
    made.loc[is_of, "codec_ties"] = joined.loc[is_of, "ties"].fillna("").astype("str").to_numpy()
    return made.reindex(columns=COLUMNS)


def _certainty(drawn: Draws) -> pd.DataFrame:
    """The certainty of one condition's front: `probability`, `probability_all` and `ties` of its cells."""
    within, overall = probabilities(drawn)
    columns = {"probability": within, "probability_all": overall, "ties": ties(drawn, overall)}
    return pd.DataFrame(columns, index=drawn.rows.index)


def _judged(ready: Prepared, certain: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """The frame of `front`, from the cells and what `_certainty` says of each condition that has a valid trial."""
    frame = ready.rows.assign(feasible=ready.where.holds(ready.rows))
    conditions = _conditions(frame, ready)
    frame["on_fronts_of"] = _fronts_of(frame, ready, conditions)
    frame["on_front"] = _on_front(frame, ready, conditions)
    # A point without a backend, where there is no other, is on no backend's front but on that of all.
    frame["on_backend_front"] = frame["on_fronts_of"].ne("") | (frame["on_front"] & frame["backend"].eq(NONE))
    frame["on_energy_front"] = _on_energy_front(frame, ready, conditions)
    nothing = pd.DataFrame(columns=["probability", "probability_all", "ties"])
    sure = pd.concat(parts) if (parts := list(certain)) else nothing
    frame = frame.join(sure.astype({"probability": float, "probability_all": float}))
    frame["ties"] = frame["ties"].fillna("").astype("str")
    return frame.reindex(columns=COLUMNS)


def _conditions(rows: pd.DataFrame, ready: Prepared) -> list[Ints]:
    """The places of the rows of each condition."""
    return list(rows.groupby(list(ready.condition), dropna=False, observed=True).indices.values())


def _on_energy_front(rows: pd.DataFrame, ready: Prepared, conditions: Sequence[Ints]) -> Bools:
    """Mask of rows on the front of latency, throughput and the energy that each condition is judged by."""
    on_front = np.zeros(len(rows), dtype=bool)
    energies = rows[[energy.WHOLE, energy.ACTIVE]]
    for members in conditions:
        is_active = energy.judged_by(energies.iloc[members]) == energy.ACTIVE
        objectives = chosen((*DEFAULT, "active-energy" if is_active else "energy"))
        on_front |= _on_front(rows, replace(ready, objectives=objectives), [members])
    return on_front


def _fronts_of(rows: pd.DataFrame, ready: Prepared, conditions: Sequence[Ints]) -> pd.Series:
    """The names of the backends on whose front each row is."""
    backend = rows["backend"].to_numpy(dtype=object)
    names = np.full(len(rows), "", dtype=object)
    for name in transports(rows):
        # Where nothing crosses, only the backends of that condition count.
        there = [members for members in conditions if (backend[members] == name).any()]
        own = [members[np.isin(backend[members], [name, NONE])] for members in there]
        on_front = _on_front(rows, ready, own)
        names[on_front] = [f"{each}; {name}" if each else name for each in names[on_front]]
    return pd.Series(names, index=rows.index, dtype="str")


def _on_front(rows: pd.DataFrame, ready: Prepared, rivals: Iterable[Ints]) -> Bools:
    """Mask of the rows that no feasible one of the same rivals dominates: by their medians, or where a run was
    a search, by those over the rounds that two cells share.
    """
    maximise = [each.maximise for each in ready.objectives]
    columns = [each.column for each in ready.objectives]
    on_front = np.zeros(len(rows), dtype=bool)
    feasible = rows["feasible"].to_numpy()
    figures = [rows[column].to_numpy(float) for column in columns]
    for members in rivals:
        candidates = members[feasible[members]]
        searched = len(candidates) and not ready.of_searches.empty
        measured = ready.measured(rows.iloc[candidates], columns) if searched else None
        if measured is None:
            on_front[candidates] = nondominated(*(each[candidates] for each in figures), maximise=maximise)
        else:
            on_front[candidates] = shared_rounds.nondominated(measured, maximise)
    return on_front


def fronts(
    trials: pd.DataFrame, objectives: Sequence[str] = DEFAULT, where: str = "", seed: int = 0
) -> Fronts:
    """The frames of the three functions with their defaults, from the same cells and resamples, one condition's at a
    time. The attainment is always that of latency and throughput. Raises `UserError` as the three do.
    """
    ready = prepared(trials, objectives, where, seed=seed)
    is_plane = tuple(objectives) == DEFAULT
    certain: list[pd.DataFrame] = []
    volumes: list[dict[str, Any]] = []
    corners: list[pd.DataFrame] = []
    for drawn in ready.draws:
        certain.append(_certainty(drawn))
        volumes += indicators.hypervolume_rows(drawn, {})
        if is_plane:
            corners += indicators.attainment_rows(drawn.first(indicators.BAND_RESAMPLES))
    return Fronts(
        _with_codecs(_judged(ready, certain), trials, objectives, where, seed),
        indicators.hypervolume_frame(volumes, ready.objectives),
        indicators.attainment_frame(corners)
        if is_plane
        else indicators.attainment(trials, where=where, seed=seed),
    )


def probabilities(draws: Draws) -> tuple[Floats, Floats]:
    """The probability of each cell to be on its backend's front, and on that of all backends; the same where nothing
    crosses.

    It is the share of draws of what the figures may be in truth (`analysis.statistics.posterior`) in which no point
    dominates it. NaN for a cell with fewer than `MIN_ROUNDS` rounds, or without a figure in one of the objectives; and
    where noise is not known, or too large for any probability to hold (docs/analysis.md has a table).
    """
    backend = draws.rows["backend"].to_numpy()
    unknown = np.full(len(backend), np.nan)
    if draws.true is None:
        return unknown, unknown
    values = draws.true.values
    lacking = (
        draws.rows[[each.column for each in draws.objectives]].isna().any(axis=1) & draws.rows["feasible"]
    )
    enough = (draws.rows["rounds"] >= MIN_ROUNDS).to_numpy() & ~lacking.to_numpy()
    overall = draws.true.stated(nondominated_in_each(values, draws.maximise).mean(axis=0))
    within = overall.copy()
    for name in set(backend) - {NONE}:
        own = (backend == name) | (backend == NONE)
        shares = nondominated_in_each(values[:, own], draws.maximise).mean(axis=0)
        stated = draws.true.of(own).stated(shares)
        within[backend == name] = stated[backend[own] == name]
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
    fair = np.flatnonzero(enough & ~(probability < FAIR_CHANCE))
    values = draws.true.values[:, fair]
    fair = fair[~np.isnan(values).all(axis=(0, 2))]
    values = draws.true.values[:, fair]
    not_more = (values[:, :, None] <= values[:, None, :]).mean(axis=0)
    alike = (np.minimum(not_more, not_more.transpose(1, 0, 2)) >= OUTSIDE).all(axis=2)
    np.fill_diagonal(alike, False)
    for cell, others in zip(fair, alike, strict=True):
        result[cell] = "; ".join(names[fair[others]])
    return result

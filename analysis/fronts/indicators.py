"""Dominance of points, the worth of a whole front (hypervolume), and its place (attainment surfaces)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import moocore
import numpy as np
import pandas as pd

from pareto.analysis.fronts.draws import RESAMPLES, Draws, prepared
from pareto.analysis.fronts.objectives import DEFAULT, Objective, chosen
from pareto.analysis.runs.points import CONDITION
from pareto.analysis.statistics.samples import LEAST_VALUES, OUTSIDE, Bools, Floats
from pareto.protocol.errors import UserError

BEYOND_WORST = 1.1
"""The default reference by the worst: at the worst itself that point would be worth nothing, however good otherwise."""
PLANE = ["latency_s", "throughput_ips"]
PERCENT = (5, 50, 95)
BAND_RESAMPLES = 400
"""A few hundred suffice for the band."""
AT_ONCE = 4_000_000
"""Pairs of points compared at once: some 10 MB."""
COLUMNS = [*CONDITION, "backend", "hypervolume", "hypervolume_low", "hypervolume_high", "rounds", "reference"]


def nondominated(*figures: Floats, maximise: Sequence[bool] = (False, True)) -> Bools:
    """Mask of the points that no other dominates; one array an objective, by default latency and throughput.

    A point dominates another if it is no worse in every objective and better in at least one; so points with
    equal figures are on the front together. A point with NaN in any is on no front.
    """
    return np.asarray(nondominated_in_each(np.column_stack(figures)[None], maximise)[0])


def nondominated_in_each(sets: Floats, maximise: Sequence[bool]) -> Bools:
    """The same for many sets of the same points: sets x points x objectives to sets x points."""
    losses = np.where(np.asarray(maximise), -sets, sets)
    # Most points are dominated by one of a few in every set. They are on no front, and what they dominate one of these
    # few dominates, too: the others alone are compared with each other.
    usual = losses.sum(axis=0)[None]
    few = ~_dominated(usual, usual)[0] & ~np.isnan(usual[0]).any(axis=1)
    left = ~_dominated(losses, losses[:, few]).all(axis=0)
    rivals = losses[:, left]
    on_front = np.zeros(sets.shape[:2], dtype=bool)
    on_front[:, left] = ~_dominated(rivals, rivals) & ~np.isnan(rivals).any(axis=2)
    return on_front


def _dominated(losses: Floats, others: Floats) -> Bools:
    """Mask of each set's points that one of `others` dominates; sets x points x objectives, to sets x points."""
    dominated = np.empty(losses.shape[:2], dtype=bool)
    step = max(1, AT_ONCE // max(1, losses.shape[1] * others.shape[1]))
    for part in (slice(start, start + step) for start in range(0, len(losses), step)):
        # [s, i, j]: the other point i of the set s is worse than j somewhere, or better. NaN is never better.
        worse, better = np.zeros((2, len(losses[part]), others.shape[1], losses.shape[1]), dtype=bool)
        for mine, theirs in zip(*(each[part].transpose(2, 0, 1) for each in (losses, others)), strict=True):
            worse |= ~(theirs[:, :, None] <= mine[:, None])
            better |= theirs[:, :, None] < mine[:, None]
        dominated[part] = (better & ~worse).any(axis=1)
    return dominated


def staircase(
    latency: Sequence[float] | Floats, throughput: Sequence[float] | Floats, *, right: float, bottom: float
) -> tuple[Floats, Floats]:
    """The vertices of the boundary of all that some point equals or beats, from `bottom` to `right` (the attainment
    surface of Fonseca & Fleming, "On the performance assessment and comparison of stochastic multiobjective
    optimizers", PPSN IV, 1996).
    """
    points = np.column_stack([latency, throughput])
    x, y = np.unique(points[nondominated(*points.T)], axis=0).T
    if not len(x):
        return np.empty(0), np.empty(0)
    return np.append(np.repeat(x, 2), right), np.append(bottom, np.repeat(y, 2))


def volume(points: Floats, reference: Floats, objectives: Sequence[Objective]) -> float:
    """The hypervolume of `points` (points x objectives) against `reference`: the space of all that some point dominates
    and that dominates the reference (Zitzler & Thiele, "Multiobjective optimization using evolutionary algorithms",
    PPSN V, 1998). A point with NaN in any objective adds nothing.
    """
    measured = points[~np.isnan(points).any(axis=1)]
    maximise = [each.maximise for each in objectives]
    return float(moocore.hypervolume(measured, ref=reference, maximise=maximise)) if len(measured) else 0.0


def volumes_of_each(sets: Floats, reference: Floats, objectives: Sequence[Objective]) -> Floats:
    """The same for many sets of points: sets x points x objectives. In the plane, a sum of strips for all at once."""
    if len(objectives) != 2:
        return np.array([volume(points, reference, objectives) for points in sets])
    sign = np.array([-1.0 if each.maximise else 1.0 for each in objectives])
    bound = reference * sign
    unmeasured = np.isnan(sets).any(axis=2, keepdims=True)
    # A point at the reference adds nothing, so whatever adds nothing may be put there.
    losses = np.minimum(np.where(unmeasured, bound, sets * sign), bound)
    order = np.argsort(losses[:, :, 0], axis=1)
    first, other = (np.take_along_axis(losses[:, :, axis], order, axis=1) for axis in (0, 1))
    widths = np.diff(first, axis=1, append=bound[0])
    return np.asarray((widths * (bound[1] - np.minimum.accumulate(other, axis=1))).sum(axis=1))


def hypervolumes(
    trials: pd.DataFrame,
    objectives: Sequence[str] = DEFAULT,
    where: str = "",
    reference: Mapping[str, float] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """One row per condition and backend, and one for all of them together (backend `all`): the `COLUMNS`, and a column
    `reference_<column>` for each objective. Only hypervolumes against the same reference may be compared.

    `reference`: values by the objectives' names, such as `{"latency": 0.5}`; of those that it leaves out a tenth worse
    than the worst median of a feasible point of the condition, or 0 if more is better. NaN where nothing was measured
    or nothing is feasible; 0 for a backend that has no feasible point where another has. The interval (`without_bias`)
    is empty with fewer than 6 rounds: `rounds` is the fewest that a point has that is on the front in at least 5 % of
    the resamples. Raises `UserError`.
    """
    (_, draws), given = prepared(trials, objectives, where, resamples, seed), dict(reference or {})
    for name in given:
        if name not in objectives:
            raise UserError(f"reference: {name!r} is not one of the objectives {', '.join(objectives)}")
    rows = (row for drawn in draws for row in hypervolume_rows(drawn, given))
    return hypervolume_frame(rows, objectives)


def hypervolume_rows(drawn: Draws, given: Mapping[str, float]) -> Iterator[dict[str, Any]]:
    """The rows of `hypervolumes` of one condition; `given`: its `reference`."""
    bound, words = reference_for(drawn.medians, drawn.objectives, given)
    same = {name: drawn.rows[name].iloc[0] for name in CONDITION} | {"reference": words}
    same |= zip((f"reference_{column}" for column in drawn.columns), bound, strict=True)
    for backend, members in drawn.groups():
        row = same | {"backend": backend}
        if not np.isnan(bound).any() and (~np.isnan(drawn.values[:, members])).all(axis=2).any():
            admitted = drawn.admitted[:, members]
            row["hypervolume"] = volume(drawn.medians[members], bound, drawn.objectives)
            on_front = nondominated_in_each(admitted, drawn.maximise)
            row["rounds"] = drawn.rounds_of_front(members, on_front)
            if row["rounds"] >= LEAST_VALUES:
                volumes = volumes_of_each(admitted, bound, drawn.objectives)
                ends = np.maximum(without_bias(volumes, row["hypervolume"]), 0)
                row["hypervolume_low"], row["hypervolume_high"] = ends
        yield row


def hypervolume_frame(rows: Iterable[Mapping[str, Any]], objectives: Sequence[str]) -> pd.DataFrame:
    """The frame of `hypervolumes`, of the rows of all conditions."""
    references = [f"reference_{each.column}" for each in chosen(objectives)]
    return pd.DataFrame(list(rows), columns=[*COLUMNS, *references])


def reference_for(
    medians: Floats, objectives: Sequence[Objective], given: Mapping[str, float]
) -> tuple[Floats, str]:
    """The reference, NaN where it is not given and nothing feasible was measured; and what it is, in words."""
    measured = medians[~np.isnan(medians).any(axis=1)]
    values, words = [], []
    for objective, figures in zip(objectives, measured.T, strict=True):
        value, why = BEYOND_WORST * max(figures, default=np.nan), " (a tenth worse than the worst)"
        if objective.name in given:
            value, why = float(given[objective.name]), " (as given)"
        elif objective.maximise:
            value, why = 0.0, ""
        values.append(value)
        words.append(f"{objective.words} {value:.4g} {objective.unit}{why}")
    return np.array(values), ", ".join(words)


def without_bias(resampled: Floats, measured: float) -> Floats:
    """The ends of a 95 % interval: the resamples' percentiles less twice the bias that they show (their mean less what
    was measured; Efron & Tibshirani, "An Introduction to the Bootstrap", 1993, ch. 10).

    The hypervolume of noisy medians is too large on average, as luck makes a front and bad luck hardly unmakes it; that
    of resamples is so once more. By simulation it holds the truth in 92 to 97 % of cases with 6 to 20 rounds.
    """
    bias = resampled.mean() - measured
    return np.asarray(np.quantile(resampled, [OUTSIDE, 1 - OUTSIDE]) - 2 * bias)


def attainment(
    trials: pd.DataFrame, where: str = "", resamples: int = BAND_RESAMPLES, seed: int = 0
) -> pd.DataFrame:
    """The corners of the surfaces that 5, 50 and 95 % of the resampled fronts attain: a band in which the front lies.

    Columns: CONDITION, backend (a name, or `all` of them together), percent, latency_s, throughput_ips; in the order of
    the latency within a surface. `staircase` makes lines of them.

    The surface of 95 % bounds what nearly all resamples attain, that of 5 % what hardly any surpasses (empirical
    attainment function: Grunert da Fonseca, Fonseca & Hall, EMO 2001). No rows for a group where a point that may be on
    its front (in 5 % of the resamples) has fewer than 6 rounds, or where none is feasible. Raises `UserError`.
    """
    _, draws = prepared(trials, DEFAULT, where, resamples, seed)
    return attainment_frame(rows for drawn in draws for rows in attainment_rows(drawn, resamples))


def attainment_rows(drawn: Draws, most: int = BAND_RESAMPLES) -> Iterator[pd.DataFrame]:
    """The rows of `attainment` of each group of one condition that has any, by the first of the resamples."""
    sign = np.where(drawn.maximise, -1.0, 1.0)
    for backend, members in drawn.groups():
        admitted = drawn.admitted[:most, members]
        on_front = nondominated_in_each(admitted, drawn.maximise)
        if drawn.rounds_of_front(members, on_front) < LEAST_VALUES:
            continue
        # A resample without a feasible point attains nothing: it counts as one far behind all others.
        empty = np.flatnonzero(~on_front.any(axis=1))
        losses = admitted[on_front] * sign
        behind = losses.max(axis=0) + 1
        losses = np.concatenate([losses, np.tile(behind, (len(empty), 1))])
        sets = np.concatenate([np.nonzero(on_front)[0], empty])
        ordered = np.argsort(sets, kind="stable")  # moocore takes the sets one after the other
        corners = moocore.eaf(losses[ordered], sets[ordered], percentiles=PERCENT)
        corners = corners[(corners[:, :2] < behind).all(axis=1)] * [*sign, 1.0]
        found = pd.DataFrame(corners, columns=[*PLANE, "percent"]).astype({"percent": int})
        key = {name: drawn.rows[name].iloc[0] for name in CONDITION} | {"backend": backend}
        yield found.sort_values(["percent", "latency_s"], kind="stable", ignore_index=True).assign(**key)


def attainment_frame(corners: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """The frame of `attainment`, of the rows of all groups."""
    columns = [*CONDITION, "backend", "percent", *PLANE]
    parts = list(corners)
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)

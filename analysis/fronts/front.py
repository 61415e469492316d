"""Trials to the Pareto front: medians over rounds, dominance, and how sure both are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from analysis.fronts import draws, energy, membership, ties
from analysis.fronts.cells import ACTIVES, ENDS, ENERGIES, MEDIANS, SPREADS, STEPS, cells
from analysis.fronts.dominance import Bools, nondominated
from analysis.fronts.draws import Draws
from analysis.fronts.objectives import DEFAULT, Objective, chosen
from analysis.fronts.where import Where
from analysis.keys import CELL, CONDITION
from analysis.naming import backends
from analysis.neutral import NONE, pooled
from analysis.statistics.floor import floors

COLUMNS = [
    *CELL,
    "point_name",
    "rounds",
    "excluded",
    "trials",
    "left_out",
    *MEDIANS,
    *STEPS,
    "top1",
    "top1_images",
    "latency_efficiency",
    "throughput_efficiency",
    *(name.format(end) for name in SPREADS.values() for end in ENDS),
    "outliers",
    "feasible",
    "on_backend_front",
    "on_front",
    "on_fronts_of",
    "probability",
    "probability_all",
    "ties",
    *ENERGIES,
    *ACTIVES,
    energy.WHOLE,
    energy.ACTIVE,
    "energy_of",
    "on_energy_front",
]


def front(
    trials: pd.DataFrame,
    objectives: Sequence[str] = DEFAULT,
    where: str = "",
    resamples: int = draws.RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """One row per cell (`CONDITION`, backend, point), sorted by them, points by their cuts.

    A point where nothing crosses is one cell, whose backend is empty text: a round of it is the mean of what was
    measured under each backend (`analysis.neutral.pooled`). It competes with, and on, the front of every backend.
    Only trials with status `ok` count; `rounds` is their number and `excluded` that of the others (at a point where
    nothing crosses, of rounds with such a trial and without). `trials` and `left_out` count every trial. A cell without
    any has `rounds` 0, no figures, and is on no front. Further columns:

    - medians over rounds: latency_s, latency_p95_s, edge_s, serialize_s, network_s, middle_s, server_s,
      latency_bound_s, loaded_latency_s, loaded_latency_p95_s (seconds, the last two of the throughput phase),
      throughput_ips, throughput_bound_ips, sequential_ips (images/s), pipeline_gain (throughput_ips over
      sequential_ips), payload_bytes, edge_rss_bytes, edge_peak_rss_bytes. Each is a median of its own: the parts of
      the latency need not add up to its median exactly.
    - bound_by: the step, a host or a way on a link, that sets the throughput's bound in most rounds. busiest: the step
      that was busy for the greatest share of the throughput phase in most rounds; busiest_utilization: that share,
      median. top1: share of the images with the right top class, over all rounds; top1_images: how many different
      ones the longest of them saw.
    - latency_efficiency = bound / measured, throughput_efficiency = measured / bound.
    - latency_least_s, latency_most_s, throughput_least_ips, throughput_most_ips: the range of the rounds;
      latency_low_s, latency_high_s, throughput_low_ips, throughput_high_ips: 95 % interval of the median
      (`analysis.statistics.median.interval`), empty with fewer than 6 rounds. outliers: how many rounds are one in
      latency or throughput (`analysis.statistics.outliers`), empty with too few rounds to tell.
    - edge_energy_j, middle_energy_j (if the trials have it: `analysis.fronts.energy.with_middle`), server_energy_j:
      medians over rounds, J per image, idle power included; edge_active_energy_j, ...: without it. energy_j and
      active_energy_j: what counts of them for this condition, and energy_of: of which devices, as
      `analysis.fronts.energy.counted` decides.
    - feasible: satisfies `where` (`analysis.fronts.where.Where`), in any of the columns above; true without one.
    - on_backend_front: feasible, and in the `objectives` (names of `analysis.fronts.objectives`) not dominated by a
      feasible point of its backend; on_front: nor by any other backend's. on_fronts_of: the backends on whose fronts
      it is (`tcp`; `tcp; rpc` where nothing crosses). on_energy_front: the same as on_front in latency, throughput and
      energy, whatever the objectives: active_energy_j where the condition has it, else energy_j.
    - probability: of being on its backend's front; probability_all: on that of all backends, which for a point without
      a backend is both. ties: the points that it
      can't be told apart from. Both over `resamples` bootstrap resamples of whole rounds
      (`analysis.fronts.membership`, `analysis.fronts.ties`); empty with too few rounds.

    The same trials, `resamples` and `seed` give the same result, whatever other conditions are there. Raises
    `UserError` for objectives or a constraint that can't be read.
    """
    wanted, constraint = chosen(objectives), Where.parse(where)
    known = floors(trials, [objective.column for objective in wanted])
    trials = pooled(trials)
    rows = cells(trials)
    every = draws.conditions(trials, rows, wanted, constraint, resamples, seed, known)
    return judged(rows, wanted, constraint, map(certainty, every))


def certainty(drawn: Draws) -> pd.DataFrame:
    """How sure the front of one condition is: `probability`, `probability_all` and `ties` of its cells."""
    within, overall = membership.probabilities(drawn)
    found = {"probability": within, "probability_all": overall, "ties": ties.named(drawn, overall)}
    return pd.DataFrame(found, index=drawn.rows.index)


def judged(
    rows: pd.DataFrame, objectives: Sequence[Objective], where: Where, certain: Iterable[pd.DataFrame]
) -> pd.DataFrame:
    """The frame of `front`, of the cells and, of each condition that has a valid trial, what `certainty` says."""
    found = rows.assign(feasible=where.holds(rows))
    found["on_fronts_of"] = _fronts_of(found, objectives)
    found["on_front"] = _on_front(found, objectives)
    # One without a backend, where there is no other point, is on no front of theirs but on that of all.
    found["on_backend_front"] = found["on_fronts_of"].ne("") | (found["on_front"] & found["backend"].eq(NONE))
    found["on_energy_front"] = _on_energy_front(found)
    nothing = pd.DataFrame(columns=["probability", "probability_all", "ties"])
    sure = pd.concat(parts) if (parts := list(certain)) else nothing
    found = found.join(sure.astype({"probability": float, "probability_all": float}))
    found["ties"] = found["ties"].fillna("").astype("str")
    return found.reindex(columns=COLUMNS)


def _on_energy_front(rows: pd.DataFrame) -> Bools:
    """In latency, throughput and the energy that each condition is judged by."""
    by = rows.groupby(CONDITION, dropna=False, observed=True)
    energy_j = np.full(len(rows), np.nan)
    for members in by.indices.values():
        of_condition = rows.iloc[members]
        energy_j[members] = of_condition[energy.judged_by(of_condition)]
    return _on_front(rows.assign(**{energy.WHOLE: energy_j}), chosen((*DEFAULT, "energy")))


def _fronts_of(rows: pd.DataFrame, objectives: Sequence[Objective]) -> pd.Series:
    """The names of the backends on whose front each row is."""
    found = pd.Series("", index=rows.index, dtype="str")
    for backend in filter(None, backends(rows)):
        own = rows[rows["backend"].isin([backend, NONE])]
        own = own[_on_front(own, objectives)]
        # Where nothing crosses, only the backends of that condition count.
        there = rows.loc[rows["backend"] == backend, CONDITION].drop_duplicates()
        kept = own.reset_index().merge(there, on=CONDITION)["index"]
        found[kept] = found[kept].where(found[kept] == "", found[kept] + "; ") + backend
    return found


def _on_front(rows: pd.DataFrame, objectives: Sequence[Objective]) -> Bools:
    """Which rows no feasible one of their condition dominates."""
    on_front = np.zeros(len(rows), dtype=bool)
    feasible = rows["feasible"].to_numpy()
    for members in rows.groupby(CONDITION, dropna=False, observed=True).indices.values():
        candidates = members[feasible[members]]
        figures = (rows[objective.column].to_numpy(float)[candidates] for objective in objectives)
        on_front[candidates] = nondominated(*figures, maximise=[each.maximise for each in objectives])
    return on_front

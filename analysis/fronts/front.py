"""Trials to the Pareto front: medians over rounds, dominance, and how sure both are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.fronts import energy
from analysis.fronts.dominance import Floats, nondominated
from analysis.keys import CELL, CONDITION
from analysis.points import order

MEDIANS = [
    "latency_s",
    "throughput_ips",
    "latency_bound_s",
    "throughput_bound_ips",
    "sequential_ips",
    "pipeline_gain",
    "edge_s",
    "serialize_s",
    "network_s",
    "middle_s",
    "server_s",
    "payload_bytes",
]
ENERGIES = ["edge_energy_j", "middle_energy_j", "server_energy_j"]
COLUMNS = [
    *CELL,
    "point_name",
    "rounds",
    "excluded",
    *MEDIANS,
    "bottleneck",
    "top1",
    "top1_images",
    "latency_efficiency",
    "throughput_efficiency",
    "latency_low_s",
    "latency_high_s",
    "throughput_low_ips",
    "throughput_high_ips",
    "on_backend_front",
    "on_front",
    "probability",
    *ENERGIES,
    "energy_j",
    "energy_of",
    "on_energy_front",
]

MIN_ROUNDS = 3
"""With fewer rounds a bootstrap knows nothing about their spread, and a probability of 1 would be feigned."""


def front(trials: pd.DataFrame, resamples: int = 2000, seed: int = 0) -> pd.DataFrame:
    """One row per cell (`CONDITION`, backend, point), sorted by them, points by their cuts.

    Only trials with status `ok` count; `rounds` is their number and `excluded` that of the others. A cell
    without any has `rounds` 0, no figures, and is on no front. Further columns:

    - medians over rounds: latency_s, edge_s, serialize_s, network_s, middle_s, server_s, latency_bound_s
      (seconds), throughput_ips, throughput_bound_ips, sequential_ips (images/s), pipeline_gain (throughput_ips over
      sequential_ips), payload_bytes. Each is a median of its own: the parts of the latency need not add up to its
      median exactly.
    - bottleneck: what bounds the throughput in most rounds, a host or a way on a link. top1: share of the images
      with the right top class, over all rounds; top1_images: how many different ones the longest of them saw.
    - latency_efficiency = bound / measured, throughput_efficiency = measured / bound.
    - on_backend_front: not dominated within its backend; on_front: nor by any other backend's point.
    - latency_low_s, latency_high_s, throughput_low_ips, throughput_high_ips: 95 % interval of the median.
    - probability: share of resamples in which the point is on its backend's front.

    - edge_energy_j, middle_energy_j (if the trials have it: `analysis.fronts.energy.with_middle`), server_energy_j:
      medians over rounds, J per image. energy_j: what counts of them for this
      condition, and energy_of: of which devices, as `analysis.fronts.energy.counted`
      decides. on_energy_front: no point of the condition dominates it in latency, throughput and energy_j.
      Empty and false where no device's energy is known.

    Intervals and probability are percentile bootstraps (Efron & Tibshirani, "An Introduction to the Bootstrap",
    1993) over rounds: a resample draws whole rounds, the same for every point of a backend, because what slows
    one round slows all its points, and only their differences decide dominance. Empty with fewer than
    `MIN_ROUNDS` rounds. The same trials, `resamples` and `seed` give the same result, whatever other cells are there.
    """
    rows: pd.DataFrame = _cells(trials)
    rows["latency_efficiency"] = rows["latency_bound_s"] / rows["latency_s"]
    rows["throughput_efficiency"] = rows["throughput_ips"] / rows["throughput_bound_ips"]
    rows["on_backend_front"] = _on_front(rows, [*CONDITION, "backend"])
    rows["on_front"] = _on_front(rows, CONDITION)
    rows["energy_of"], rows["energy_j"] = "", np.nan
    for members in rows.groupby(CONDITION, dropna=False).groups.values():
        rows.loc[members, "energy_of"], rows.loc[members, "energy_j"] = energy.counted(rows.loc[members])
    rows["on_energy_front"] = _on_front(rows, CONDITION, "energy_j")

    spread = [
        _bootstrap(group, resamples, np.random.default_rng(seed))
        for _, group in trials[trials["status"] == "ok"].groupby([*CONDITION, "backend"], dropna=False)
    ]
    if spread:
        rows = rows.merge(pd.concat(spread), how="left", on=CELL)
    ordered: pd.DataFrame = rows.reindex(columns=COLUMNS)
    return ordered


def _cells(trials: pd.DataFrame) -> pd.DataFrame:
    trials = trials.assign(hits=trials["top1"] * trials["top1_images"])
    if "middle_energy_j" not in trials:
        trials["middle_energy_j"] = np.nan
    ok = trials[trials["status"] == "ok"].groupby(CELL, dropna=False)
    every = trials.groupby(CELL, dropna=False)
    rows: pd.DataFrame = every.size().to_frame("excluded")
    # A trial that failed early may not have learnt its point's name.
    rows["point_name"] = every["point_name"].max()
    rows["rounds"] = ok.size().reindex(rows.index, fill_value=0)
    rows["excluded"] -= rows["rounds"]
    rows[[*MEDIANS, *ENERGIES]] = ok[[*MEDIANS, *ENERGIES]].median()
    rows["bottleneck"] = ok["bottleneck"].agg(lambda steps: steps.mode().iat[0])
    rows["bottleneck"] = rows["bottleneck"].fillna("")
    rows["top1"] = ok["hits"].sum() / ok["top1_images"].sum()
    rows["top1_images"] = ok["top1_images"].max()
    cells: pd.DataFrame = rows.reset_index()
    return cells.sort_values(
        CELL, key=lambda column: order(column) if column.name == "point" else column, ignore_index=True
    )


def _on_front(rows: pd.DataFrame, within: list[str], *also: str) -> npt.NDArray[np.bool_]:
    on_front = np.zeros(len(rows), dtype=bool)
    for members in rows.groupby(within, dropna=False).indices.values():
        group = rows.iloc[members]
        objectives = (group[column].to_numpy() for column in ("latency_s", "throughput_ips", *also))
        on_front[members] = nondominated(*objectives)
    return on_front


def _bootstrap(ok: pd.DataFrame, resamples: int, rng: np.random.Generator) -> pd.DataFrame:
    """Intervals and front probability of the points of one backend under one condition, keyed by `CELL`."""
    # A round is known by its run too, as several runs may be pooled; and a trial repeated within its round
    # counts as a round more.
    repeat = ok.groupby([*CELL, "run", "round"], dropna=False).cumcount()
    table = ok.assign(repeat=repeat).set_index(["run", "round", "repeat", "point"])
    latency_s, throughput_ips = (table[column].unstack("point") for column in ("latency_s", "throughput_ips"))
    draws = rng.integers(len(latency_s), size=(resamples, len(latency_s)))
    latency = _resampled_medians(latency_s.to_numpy(), draws)
    throughput = _resampled_medians(throughput_ips.to_numpy(), draws)
    on_front = [nondominated(*plane) for plane in zip(latency, throughput, strict=True)]

    # In the order of the columns above: unstack sorts them.
    spread: pd.DataFrame = ok.drop_duplicates("point").sort_values("point")[CELL]
    figures = {
        "latency_low_s": np.quantile(latency, 0.025, axis=0),
        "latency_high_s": np.quantile(latency, 0.975, axis=0),
        "throughput_low_ips": np.quantile(throughput, 0.025, axis=0),
        "throughput_high_ips": np.quantile(throughput, 0.975, axis=0),
        "probability": np.mean(on_front, axis=0),
    }
    enough = ok.groupby("point").size().to_numpy() >= MIN_ROUNDS
    for name, values in figures.items():
        spread[name] = np.where(enough, values, np.nan)
    return spread


def _resampled_medians(measured: Floats, draws: npt.NDArray[np.int64]) -> Floats:
    """Medians of `measured` (rounds x points) over drawn rounds: resamples x points.

    A missing trial is left out; a resample that drew none of a point's trials keeps the point's own median.
    """
    return np.column_stack(
        [_median(column[draws], _median(column[None, :], np.nan)) for column in measured.T]
    )


def _median(values: Floats, otherwise: float | Floats) -> Floats:
    """The median of each row without its NaN, many times as fast as `numpy.nanmedian`."""
    ordered = np.sort(values, axis=1)  # NaN last
    count = np.count_nonzero(~np.isnan(values), axis=1)
    row = np.arange(len(values))
    middle = (ordered[row, (count - 1) // 2] + ordered[row, count // 2]) / 2
    return np.where(count > 0, middle, otherwise)

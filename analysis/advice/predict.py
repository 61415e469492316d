"""Predictions of points in networks where they were not measured: stages as measured, links by arithmetic.

The arithmetic is `analysis.prediction.formula`; what the backend adds is a + b x bytes. The idea of predicting a
split's time from its stages and the network is that of Kang et al., "Neurosurgeon", ASPLOS 2017; here the stages are
measured, not modelled, and so is what the backend adds (a, b). How well predictions do is tested where the truth was
measured (`validate`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from pareto.analysis.advice.observed import Observed, medians, observe, together, workloads
from pareto.analysis.costs import MIN_PAYLOADS, slope
from pareto.analysis.points import cuts
from pareto.analysis.prediction import formula
from pareto.analysis.prediction.compared import Errors
from pareto.analysis.prediction.formula import Conditions, Payloads, Values
from pareto.analysis.prediction.network import Network, networks
from pareto.analysis.standing import stands
from pareto.analysis.statistics.noise import Floor, Floors, floor_of
from pareto.analysis.statistics.samples import Bools, Floats, Ints
from pareto.protocol.constants import MOST_IN_FLIGHT
from pareto.protocol.errors import UserError

PAIRS = 20_000_000
"""Slopes that are in memory at once."""


@dataclass(frozen=True)
class Predictor:
    """Arrays over cells (last axis), or resamples x cells. `cells`: see `analysis.advice.observed.Observed`.

    payload_bytes: what crosses, after the codec. work_s: stages and serialization. overhead_s: a + b x bytes; NaN where
    the backend's is not known. stage_s: seconds a batch that the slowest stage takes when it bounds. filling: the share
    of TCP's goodput that transfers reach when the link does. The scales differ from 1 in a predictor that is
    `anchored`.
    """

    cells: pd.DataFrame
    batch_size: int
    in_flight: int
    payload_bytes: Floats
    result_bytes: Floats
    work_s: Floats
    overhead_s: Floats
    stage_s: Floats
    filling: Values = 1.0
    latency_scale: Values = 1.0
    throughput_scale: Values = 1.0

    def latency_s(
        self, delay_s: Values, rate_bps: Values, delay_back_s: Values = 0.0, rate_back_bps: Values = math.inf
    ) -> Floats:
        """Seconds with one request in flight: the conditions' shape x cells.

        Conditions are one-way delays (s) and rates on the wire (bit/s), numbers or arrays that go together; for a
        resampled predictor those arrays end in an axis of length 1.
        """
        carried_s = formula.carrying_s(
            self._payloads, _one_link(delay_s, rate_bps, delay_back_s, rate_back_bps)
        )
        network_s = np.where(self.payload_bytes > 0, carried_s + self.overhead_s, 0.0)
        return np.asarray(self.latency_scale * (self.work_s + network_s))

    def throughput_ips(
        self, delay_s: Values, rate_bps: Values, delay_back_s: Values = 0.0, rate_back_bps: Values = math.inf
    ) -> Floats:
        """Images a second with as many requests in flight as the runs had: shapes as in `latency_s`."""
        link_s = self._link_s(rate_bps, rate_back_bps)
        latency_s = self.latency_s(delay_s, rate_bps, delay_back_s, rate_back_bps)
        period_s = formula.period_s(self._payloads, self.stage_s, link_s, latency_s, self.in_flight)
        return np.asarray(self.throughput_scale * self.batch_size / period_s)

    def _link_s(self, rate_bps: Values, rate_back_bps: Values) -> Floats:
        """Seconds that a request occupies the slower direction."""
        conditions = _one_link(0.0, rate_bps, 0.0, rate_back_bps)
        return np.asarray(formula.occupied_s(self._payloads, conditions) / self.filling)

    @property
    def _payloads(self) -> Payloads:
        return Payloads(self.payload_bytes[..., None], self.result_bytes[..., None])

    def cost(self, objective: str, **conditions: Values) -> Floats:
        """The cost, to be least: seconds of latency, or seconds an image (`throughput`). Unknown is inf.

        `conditions`: those of `latency_s`, by name. Raises `UserError` for another objective.
        """
        if objective == "latency":
            cost = self.latency_s(**conditions)
        elif objective == "throughput":
            cost = 1 / self.throughput_ips(**conditions)
        else:
            raise UserError(f"advice is for latency or throughput, not {objective!r}")
        return np.where(np.isnan(cost), np.inf, cost)

    def anchored(self, network: Network, latency_s: Floats, throughput_ips: Floats) -> Predictor:
        """The same, changed to give at `network` what was measured there. NaN: not measured, not changed.

        Latency is scaled. The step that bounds the throughput there takes as long as it did; only where
        others then take longer is the whole throughput scaled.
        """
        conditions, known = vars(network), np.isfinite(throughput_ips)
        latency = latency_s / self.latency_s(**conditions)
        scaled = replace(self, latency_scale=self.latency_scale * np.where(np.isnan(latency), 1.0, latency))
        period_s = self.batch_size / throughput_ips
        link_s = scaled._link_s(network.rate_bps, network.rate_back_bps)
        stage_bounds = scaled.stage_s >= link_s
        scaled = replace(
            scaled,
            stage_s=np.where(known & stage_bounds, period_s, scaled.stage_s),
            filling=np.where(known & ~stage_bounds, scaled.filling * link_s / period_s, scaled.filling),
        )
        throughput = throughput_ips / scaled.throughput_ips(**conditions)
        return replace(scaled, throughput_scale=np.where(known, throughput, 1.0))

    def only(self, kept: Ints | Bools) -> Predictor:
        """The predictor of these cells."""
        arrays: dict[str, Any] = {
            name: value[..., kept] for name, value in vars(self).items() if isinstance(value, np.ndarray)
        }
        return replace(self, cells=self.cells.loc[kept].reset_index(drop=True), **arrays)


def _one_link(*values: Values) -> Conditions:
    """Conditions of the one link between two hosts, from numbers or arrays of them."""
    return Conditions(*(np.asarray(value)[..., None, None] for value in values))


def predictor(observed: Observed, draws: Ints | None = None) -> Predictor:
    """A predictor from all rounds, or from each draw of them (resamples x rounds): arrays resamples x cells then.

    Stage times are medians over whole rounds, those of all profiles pooled. a and b of a backend are one line through
    the overheads of all its points at all profiles, each the median of its rounds; neither is below 0. Through fewer
    than `MIN_PAYLOADS` different payloads there is none: then a is the median and b 0. Throughput that a stage bounds
    is measured, at profiles where that stage bounded; else it is that stage's time, longer by what such cells of the
    backend show. The share of TCP's goodput that transfers reach is a backend's: the median of its cells where the
    link bounded.
    """
    indexes = np.arange(len(observed.stratum))[None] if draws is None else draws
    work_s, stage_s, period_s, filling = (
        medians(getattr(observed, name), indexes) for name in ("work_s", "stage_s", "period_s", "filling")
    )
    backend, cells = observed.cells["backend"].to_numpy(), observed.cells
    nbytes = (cells["wire_bytes"] + cells["result_bytes"]).to_numpy(dtype="float64")
    slower = _of_backend(period_s / stage_s, backend)
    arrays = {
        "work_s": work_s,
        "overhead_s": _overhead_s(observed, indexes, backend, nbytes),
        "stage_s": np.where(np.isnan(period_s), stage_s * slower, period_s),
        "filling": _of_backend(filling, backend),
    }
    if draws is None:
        arrays = {name: value[0] for name, value in arrays.items()}
    depth = str(cells["in_flight_asked"].iloc[0])
    return Predictor(
        cells=cells,
        batch_size=int(cells["batch_size"].iloc[0]),
        in_flight=int(depth) if depth.isdigit() else MOST_IN_FLIGHT,
        payload_bytes=cells["wire_bytes"].to_numpy(dtype="float64"),
        result_bytes=cells["result_bytes"].to_numpy(dtype="float64"),
        **arrays,
    )


def predictors(
    trials: pd.DataFrame, stages: pd.DataFrame, manifests: Sequence[Mapping[str, Any]]
) -> list[Predictor]:
    """A predictor for each workload (model, batch size, codec, depth, setup) of two hosts that has a valid trial.

    Takes the frames of `analysis.runs.load` and the manifests of the runs. Workloads that cannot be predicted are
    left out: see `advisable`.
    """
    known = networks(manifests)
    result = []
    for rows in workloads(trials):
        with suppress(UserError):
            result.append(predictor(observe(advisable(rows, known), stages, known)))
    return result


def advisable(trials: pd.DataFrame, known: Mapping[str, Network]) -> pd.DataFrame:
    """The valid trials of one workload. Raises `UserError`, one line, where nothing can be predicted from them."""
    model = trials["model"].iloc[0]
    ok = trials[stands(trials, "latency") & trials["latency_s"].notna()]
    if ok.empty:
        raise UserError(f"{model}: no valid trial among {len(trials)}: nothing to advise from")
    if any(len(cuts(point)) > 1 for point in ok["point"].unique()):
        raise UserError(
            f"{model}: a chain of hosts was measured: advice on chains is by a model profile (--profile)"
        )
    if not set(ok["netem"].unique()) & set(known):
        raise UserError(
            f"{model}: no profile of a constant delay and rate was measured "
            f"({', '.join(sorted(ok['netem'].unique()))}): nothing to predict from"
        )
    return ok


def as_measured(observed: Observed, draws: Ints | None = None) -> Predictor:
    """A predictor of what was measured at the profiles of `observed`, in any network: where no arithmetic holds."""
    latency_s, throughput_ips = (
        medians(values, draws) for values in (observed.latency_s, observed.throughput_ips)
    )
    batch_size, nothing = int(observed.cells["batch_size"].iloc[0]), np.zeros(len(observed.cells))
    return Predictor(
        cells=observed.cells,
        batch_size=batch_size,
        in_flight=MOST_IN_FLIGHT,
        payload_bytes=nothing,
        result_bytes=nothing,
        work_s=latency_s,
        overhead_s=np.zeros_like(latency_s),
        stage_s=batch_size / throughput_ips,
    )


def best_on_grid(predictor: Predictor, delays_s: Floats, rates_bps: Floats, objective: str) -> Ints:
    """The best cell (row of `predictor.cells`) at each delay (rows) and rate (columns); the way back is not shaped."""
    # Row by row: with hundreds of cells, all at once would take gigabytes.
    rows = [
        np.argmin(
            predictor.cost(objective, delay_s=np.full(len(rates_bps), delay_s), rate_bps=rates_bps), axis=-1
        )
        for delay_s in delays_s
    ]
    return np.array(rows, dtype=np.int64)


def margin_on_grid(predictor: Predictor, delays_s: Floats, rates_bps: Floats, objective: str) -> Floats:
    """The share of the best cell's cost by which the best of another point is behind it, at each delay (rows) and
    rate (columns); inf where there is one point.
    """
    of_point = list(predictor.cells.groupby("point", observed=True).indices.values())
    rows = []
    for delay_s in delays_s:
        costs = predictor.cost(objective, delay_s=np.full(len(rates_bps), delay_s), rate_bps=rates_bps)
        best = np.stack([costs[..., cells].min(axis=-1) for cells in of_point], axis=-1)
        two = np.partition(best, 1, axis=-1)[..., :2] if len(of_point) > 1 else best * [1.0, np.inf]
        rows.append(two[..., 1] / two[..., 0] - 1)
    return np.array(rows)


def _overhead_s(observed: Observed, draws: Ints, backend: npt.NDArray[Any], nbytes: Floats) -> Floats:
    """a + b x bytes, resamples x cells; 0 where nothing crosses, NaN for a backend without a known link."""
    result = np.zeros((len(draws), len(backend)))
    at_profile = [medians(observed.at(name).overhead_s, draws) for name in observed.profiles]
    for name in set(backend) - {""}:
        mine = np.flatnonzero(backend == name)
        points = np.hstack([overheads[:, mine] for overheads in at_profile])
        x = np.tile(nbytes[mine], len(at_profile))
        known = ~np.isnan(points).any(axis=0)
        result[:, mine] = _line_at(x[known], points[:, known], nbytes[mine]) if known.any() else np.nan
    return result


def _line_at(x: Floats, y: Floats, at: Floats) -> Floats:
    b = np.zeros(len(y))
    if len(np.unique(x)) >= MIN_PAYLOADS:
        parts = np.array_split(y, 1 + len(y) * len(x) ** 2 // PAIRS)
        b = np.maximum(0.0, np.concatenate([slope(x, part) for part in parts]))
    a = np.maximum(0.0, np.median(y - b[:, None] * x, axis=1))
    return np.asarray(a[:, None] + b[:, None] * at)


def _of_backend(values: Floats, backend: npt.NDArray[Any]) -> Floats:
    """The medians over each backend's cells, else over all cells, else 1: resamples x cells."""
    result = np.ones_like(values)
    known = ~np.isnan(values).any(axis=0)
    for name in set(backend):
        mine = backend == name
        for among in (known & mine, known):
            if among.any():
                result[:, mine] = np.median(values[:, among], axis=1)[:, None]
                break
    return result


Models = tuple[Predictor, Predictor]
"""Central (arrays over cells), by round (rounds x cells)."""


@dataclass(frozen=True)
class Ensemble:
    """One workload's predictors: from all its rounds, and from each alone.

    `blocks`: the rounds, of very many several together. floor: by column, what identical treatments differ by.
    """

    observed: Observed
    blocks: Observed
    floor: Floor

    @classmethod
    def of(cls, observed: Observed, floors: Floors) -> Ensemble:
        return cls(observed, together(observed), floor_of(floors, observed.cells.iloc[0]))

    @cached_property
    def predicted(self) -> Models:
        """Predictors from all profiles, for any network."""
        return predictor(self.observed), predictor(self.blocks, self._alone)

    def measured(self, profile: str, network: Network | None) -> Models:
        """Predictors that give at `network`, this profile, what was measured there; in any network, if it is None."""
        selections = ((self.observed, None), (self.blocks, self._alone))
        made = []
        for number, (observed, draws) in enumerate(selections):
            there = observed.at(profile)
            if network is None:
                made.append(as_measured(there, draws))
            else:
                figures = (medians(values, draws) for values in (there.latency_s, there.throughput_ips))
                made.append(self.predicted[number].anchored(network, *figures))
        central, by_round = made
        return central, by_round

    @property
    def _alone(self) -> Ints:
        return np.arange(len(self.blocks.stratum))[:, None]


@dataclass(frozen=True)
class Validation:
    """The errors of predictions, by objective, over the points that cross the link.

    `held_out`: each profile was predicted from the others alone; else from all, itself among them, as there is no
    other. `profiles`: how many were tested. `cells`: how many points at them.
    """

    held_out: bool
    profiles: int
    cells: int
    errors: Mapping[str, Errors]

    def spread(self, objective: str) -> float:
        """The model's error, as a standard deviation; NaN where nothing is known of how it does elsewhere."""
        return self.errors[objective].spread if self.held_out and objective in self.errors else np.nan


def validate(observed: Observed) -> Validation:
    """The errors of predicting each profile without its own trials, against the medians measured there.

    Points where nothing crosses are not tested: no network is in them.
    """
    held_out = len(observed.profiles) > 1
    errors: list[tuple[Floats, Floats]] = []
    crossing = observed.cells["backend"].ne("").to_numpy()
    for profile in observed.profiles:
        network = vars(observed.networks[profile])
        central = predictor(observed.without(profile) if held_out else observed)
        there = observed.at(profile)
        latency = central.latency_s(**network) / medians(there.latency_s) - 1
        throughput = central.throughput_ips(**network) / medians(there.throughput_ips) - 1
        errors.append((latency[crossing], throughput[crossing]))
    latencies, throughputs = (np.concatenate(of_kind) for of_kind in zip(*errors, strict=True))
    tested = np.isfinite(latencies)
    by_objective = {"latency": Errors.of(latencies), "throughput": Errors.of(throughputs)}
    return Validation(held_out, len(observed.profiles), int(np.count_nonzero(tested)), by_objective)

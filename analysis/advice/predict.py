"""Predictions of points in networks where they were not measured: stages as measured, links by arithmetic.

The arithmetic is `analysis.prediction.formula`; what the backend adds is a + b x bytes. The idea of predicting a
split's time from its stages and the network is that of Kang et al., "Neurosurgeon", ASPLOS 2017; here the stages are
measured, not modelled, and so is what the backend adds (a, b). How well predictions do is tested where the truth was
measured (`validate`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from pareto.analysis.advice.observed import Observed, observe, workloads
from pareto.analysis.costs import MIN_PAYLOADS, slope
from pareto.analysis.prediction import formula
from pareto.analysis.prediction.compared import Errors
from pareto.analysis.prediction.formula import Conditions, Payloads, Values
from pareto.analysis.prediction.network import Network, networks
from pareto.analysis.runs.points import NONE, cuts
from pareto.analysis.runs.standing import stands
from pareto.analysis.statistics.noise import Floors, floor_of
from pareto.analysis.statistics.samples import Bools, Floats, Ints
from pareto.protocol.constants import MOST_IN_FLIGHT
from pareto.protocol.errors import UserError

PAIRS = 20_000_000
"""Slopes that are in memory at once."""


@dataclass(frozen=True)
class Predictor:
    """Arrays over cells (last axis), or rounds x cells. `cells`: see `analysis.advice.observed.Observed`.

    payload_bytes: what crosses, after the codec. work_s: stages and serialization. overhead_s: a + b x bytes; NaN where
    the backend's is not known. stage_s: seconds a batch that the slowest stage takes when it bounds. filling: the share
    of TCP's goodput that transfers reach when the link does. The scales differ from 1 where it is `anchored`.
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
        predictor by rounds those arrays end in an axis of length 1.
        """
        carried_s = formula.carrying_s(*self._on_link(delay_s, rate_bps, delay_back_s, rate_back_bps))
        network_s = np.where(self.payload_bytes > 0, carried_s + self.overhead_s, 0.0)
        return np.asarray(self.latency_scale * (self.work_s + network_s))

    def throughput_ips(
        self, delay_s: Values, rate_bps: Values, delay_back_s: Values = 0.0, rate_back_bps: Values = math.inf
    ) -> Floats:
        """Images a second with as many requests in flight as the runs had: shapes as in `latency_s`."""
        payloads, link = self._on_link(delay_s, rate_bps, delay_back_s, rate_back_bps)
        link_s = formula.occupied_s(payloads, link) / self.filling
        latency_s = self.latency_s(delay_s, rate_bps, delay_back_s, rate_back_bps)
        period_s = formula.period_s(payloads, self.stage_s, link_s, latency_s, self.in_flight)
        return np.asarray(self.throughput_scale * self.batch_size / period_s)

    def _on_link(self, *conditions: Values) -> tuple[Payloads, Conditions]:
        """The bytes that each cell puts on the one link between two hosts, and its conditions."""
        payloads = Payloads(self.payload_bytes[..., None], self.result_bytes[..., None])
        return payloads, Conditions(*(np.asarray(value)[..., None, None] for value in conditions))

    def cost(self, objective: str, **conditions: Values) -> Floats:
        """The cost, to be least: seconds of latency, or seconds an image (`throughput`). Unknown is inf.

        `conditions`: those of `latency_s`, by name. Raises `UserError` for another objective.
        """
        if objective not in ("latency", "throughput"):
            raise UserError(f"advice is for latency or throughput, not {objective!r}")
        of_latency = objective == "latency"
        cost = self.latency_s(**conditions) if of_latency else 1 / self.throughput_ips(**conditions)
        return np.where(np.isnan(cost), np.inf, cost)

    def anchored(self, network: Network, latency_s: Floats, throughput_ips: Floats) -> Predictor:
        """The same, changed to give at `network` what was measured there. NaN: not measured, not changed.

        Latency is scaled. The step that bounds the throughput there takes as long as it did; only where
        others then take longer is the whole throughput scaled.
        """
        conditions, known = vars(network), np.isfinite(throughput_ips)
        latency = latency_s / self.latency_s(**conditions)
        period_s = self.batch_size / throughput_ips
        link_s = formula.occupied_s(*self._on_link(*conditions.values())) / self.filling
        by_stage = self.stage_s >= link_s
        scaled = replace(
            self,
            latency_scale=self.latency_scale * np.where(np.isnan(latency), 1.0, latency),
            stage_s=np.where(known & by_stage, period_s, self.stage_s),
            filling=np.where(known & ~by_stage, self.filling * link_s / period_s, self.filling),
        )
        throughput = throughput_ips / scaled.throughput_ips(**conditions)
        return replace(scaled, throughput_scale=np.where(known, throughput, 1.0))

    def only(self, kept: Ints | Bools) -> Predictor:
        """The predictor of these cells."""
        arrays: dict[str, Any] = {
            name: value[..., kept] for name, value in vars(self).items() if isinstance(value, np.ndarray)
        }
        return replace(self, cells=self.cells.loc[kept].reset_index(drop=True), **arrays)


def predictor(observed: Observed, *, by_round: bool = False) -> Predictor:
    """A predictor from all rounds, or from each alone: arrays rounds x cells then.

    a and b of a backend are one line through the overheads of all its points at all profiles, neither below 0; through
    fewer than `MIN_PAYLOADS` payloads a is the median and b 0. Throughput that a stage bounds is measured where it did;
    else it is that stage's time, longer by what such cells of the backend show. `filling` is a backend's.
    """
    cells, backend = observed.cells, observed.cells["backend"].to_numpy()
    work_s, stage_s, period_s, filling = (
        np.atleast_2d(observed.medians(name, by_round=by_round))
        for name in ("work_s", "stage_s", "period_s", "filling")
    )
    slower = _of_backend(period_s / stage_s, backend)
    arrays = {
        "work_s": work_s,
        "overhead_s": _overhead_s(observed, by_round),
        "stage_s": np.where(np.isnan(period_s), stage_s * slower, period_s),
        "filling": _of_backend(filling, backend),
    }
    depth = str(cells["in_flight_asked"].iloc[0])
    return Predictor(
        cells=cells,
        batch_size=int(cells["batch_size"].iloc[0]),
        in_flight=int(depth) if depth.isdigit() else MOST_IN_FLIGHT,
        payload_bytes=cells["wire_bytes"].to_numpy(dtype="float64"),
        result_bytes=cells["result_bytes"].to_numpy(dtype="float64"),
        **{name: value if by_round else value[0] for name, value in arrays.items()},
    )


def predictors(
    trials: pd.DataFrame, stages: pd.DataFrame, manifests: Sequence[Mapping[str, Any]]
) -> list[Predictor]:
    """A predictor for each workload (model, batch size, codec, depth, setup) of two hosts that is `advisable`."""
    known, result = networks(manifests), []
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


def as_measured(observed: Observed, *, by_round: bool = False) -> Predictor:
    """A predictor of what was measured at the profiles of `observed`, in any network: where no arithmetic holds."""
    latency_s, throughput_ips = (
        observed.medians(name, by_round=by_round) for name in ("latency_s", "throughput_ips")
    )
    batch_size, nothing = int(observed.cells["batch_size"].iloc[0]), np.zeros(len(observed.cells))
    stage_s, none = batch_size / throughput_ips, np.zeros_like(latency_s)
    return Predictor(observed.cells, batch_size, MOST_IN_FLIGHT, nothing, nothing, latency_s, none, stage_s)


def best_on_grid(predictor: Predictor, delays_s: Floats, rates_bps: Floats, objective: str) -> Ints:
    """The best cell (row of `predictor.cells`) at each delay (rows) and rate (columns); the way back is not shaped."""
    rows = _on_grid(predictor, delays_s, rates_bps, objective)
    return np.array([costs.argmin(axis=-1) for costs in rows], dtype=np.int64)


def margin_on_grid(predictor: Predictor, delays_s: Floats, rates_bps: Floats, objective: str) -> Floats:
    """The share of the best cell's cost by which the best of another point is behind it, at each delay (rows) and
    rate (columns); inf where there is one point.
    """
    of_point = list(predictor.cells.groupby("point", observed=True).indices.values())
    rows = []
    for costs in _on_grid(predictor, delays_s, rates_bps, objective):
        best = np.stack([costs[..., cells].min(axis=-1) for cells in of_point], axis=-1)
        two = np.partition(best, 1, axis=-1)[..., :2] if len(of_point) > 1 else best * [1.0, np.inf]
        rows.append(two[..., 1] / two[..., 0] - 1)
    return np.array(rows)


def _on_grid(predictor: Predictor, delays_s: Floats, rates_bps: Floats, objective: str) -> Iterator[Floats]:
    """Costs of rates x cells, delay by delay: with hundreds of cells, all at once would take gigabytes."""
    for delay_s in delays_s:
        yield predictor.cost(objective, delay_s=np.full(len(rates_bps), delay_s), rate_bps=rates_bps)


def _overhead_s(observed: Observed, by_round: bool) -> Floats:
    """a + b x bytes, rounds x cells; 0 where nothing crosses, NaN for a backend without a known link."""
    cells, backend = observed.cells, observed.cells["backend"].to_numpy()
    nbytes = (cells["wire_bytes"] + cells["result_bytes"]).to_numpy(dtype="float64")
    at_profile = [
        np.atleast_2d(observed.at(name).medians("overhead_s", by_round=by_round))
        for name in observed.profiles
    ]
    result = np.zeros_like(at_profile[0])
    for name in set(backend) - {NONE}:
        mine = backend == name
        points = np.hstack([overheads[:, mine] for overheads in at_profile])
        known = ~np.isnan(points).any(axis=0)
        x, y = np.tile(nbytes[mine], len(at_profile))[known], points[:, known]
        if not known.any():
            result[:, mine] = np.nan
            continue
        b = np.zeros(len(y))
        if len(np.unique(x)) >= MIN_PAYLOADS:
            parts = np.array_split(y, 1 + len(y) * len(x) ** 2 // PAIRS)
            b = np.maximum(0.0, np.concatenate([slope(x, part) for part in parts]))
        a = np.maximum(0.0, np.median(y - b[:, None] * x, axis=1))
        result[:, mine] = a[:, None] + b[:, None] * nbytes[mine]
    return result


def _of_backend(values: Floats, backend: npt.NDArray[Any]) -> Floats:
    """The medians over each backend's cells, else over all cells, else 1: rounds x cells."""
    result = np.ones_like(values)
    known = ~np.isnan(values).any(axis=0)
    for name in set(backend):
        mine = backend == name
        among = known & mine if (known & mine).any() else known
        if among.any():
            result[:, mine] = np.median(values[:, among], axis=1)[:, None]
    return result


class Ensemble:
    """One workload's predictors: from all its rounds, and from each alone (rounds x cells).

    `blocks`: the rounds, of very many several together. floor: by column, what identical treatments differ by.
    """

    def __init__(self, observed: Observed, floors: Floors) -> None:
        self.observed, self.blocks = observed, observed.together()
        self.floor = floor_of(floors, {**observed.cells.iloc[0], "engine": ""})

    @cached_property
    def predicted(self) -> tuple[Predictor, Predictor]:
        """Predictors from all profiles, for any network."""
        return predictor(self.observed), predictor(self.blocks, by_round=True)

    def measured(self, profile: str, network: Network | None) -> tuple[Predictor, Predictor]:
        """Predictors that give at `network`, this profile, what was measured there; in any network, if it is None."""

        def made(observed: Observed, by_round: bool) -> Predictor:
            there = observed.at(profile)
            if network is None:
                return as_measured(there, by_round=by_round)
            figures = (there.medians(name, by_round=by_round) for name in ("latency_s", "throughput_ips"))
            return self.predicted[by_round].anchored(network, *figures)

        return made(self.observed, False), made(self.blocks, True)


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
    off: dict[str, list[Floats]] = {"latency": [], "throughput": []}
    crossing = observed.cells["backend"].ne(NONE).to_numpy()
    for profile in observed.profiles:
        network, there = vars(observed.networks[profile]), observed.at(profile)
        central = predictor(observed.without(profile) if held_out else observed)
        off["latency"].append((central.latency_s(**network) / there.medians("latency_s") - 1)[crossing])
        ips = there.medians("throughput_ips")
        off["throughput"].append((central.throughput_ips(**network) / ips - 1)[crossing])
    errors = {objective: np.concatenate(each) for objective, each in off.items()}
    tested = int(np.isfinite(errors["latency"]).sum())
    by_objective = {objective: Errors.of(each) for objective, each in errors.items()}
    return Validation(held_out, len(observed.profiles), tested, by_objective)

"""Predictions of points in networks where they were not measured: stages as measured, links by arithmetic.

A split's time is predicted from its stages and the network as by Kang et al., "Neurosurgeon", ASPLOS 2017; here the
stages are measured, not modelled, and so is what the backend adds, a + b x bytes. How well that does is tested.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from pareto.analysis.advice.observed import Observed, is_chain
from pareto.analysis.costs import MIN_PAYLOADS, slope
from pareto.analysis.prediction import formula
from pareto.analysis.prediction.compared import Errors
from pareto.analysis.prediction.formula import Conditions, Values
from pareto.analysis.prediction.network import Network
from pareto.analysis.runs.points import NONE
from pareto.analysis.statistics.samples import Bools, Floats, Ints
from pareto.analysis.statistics.significance import MEASURES
from pareto.protocol.constants import MOST_IN_FLIGHT

PAIRS = 20_000_000
"""Slopes that are in memory at once."""
SAME, CLOSE, OTHER = "same", "close", "other"
"""A prediction names the point measured best; another whose interval overlaps or is not known; another."""
COLUMNS = [
    *("netem", "delay_s", "rate_bps", "objective", "point", "backend", "measured", "low", "high"),
    *("predicted_point", "predicted_backend", "measured_there", "behind_percent", "prediction"),
]


@dataclass(frozen=True)
class Predictor:
    """Arrays over cells (last axis), or rounds x cells. `cells`: see `analysis.advice.observed.Observed`.

    payload_bytes: what crosses, after the codec. work_s: stages and serialization. overhead_s: a + b x bytes; NaN where
    the backend's is not known. stage_s: seconds a batch that the slowest stage takes when it bounds. filling: the share
    of TCP's goodput that transfers reach when the link does. The scales differ from 1 where it is `anchored`.

    Conditions are those of `Network`, by name: numbers or arrays that go together; for a predictor by rounds those
    arrays end in an axis of length 1.
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

    def latency_s(self, **conditions: Values) -> Floats:
        """Seconds with one request in flight: the conditions' shape x cells."""
        network_s = formula.carrying_s(*self._on_link(conditions)) + self.overhead_s
        crossing_s = np.where(self.payload_bytes > 0, network_s, 0.0)
        return np.asarray(self.latency_scale * (self.work_s + crossing_s))

    def throughput_ips(self, **conditions: Values) -> Floats:
        """Images a second with as many requests in flight as the runs had: shapes as in `latency_s`."""
        link_s = self._occupied_s(conditions)
        waits_s = self.latency_s(**conditions) / self.in_flight
        crossing_s = np.where(self.payload_bytes > 0, np.maximum(link_s, waits_s), 0.0)
        return np.asarray(self.throughput_scale * self.batch_size / np.maximum(self.stage_s, crossing_s))

    def _occupied_s(self, conditions: Mapping[str, Values]) -> Floats:
        """Seconds that the link is busy with a request; NaN where it never was the bound, so that nothing is known."""
        with np.errstate(invalid="ignore"):
            return np.asarray(formula.occupied_s(*self._on_link(conditions)) / self.filling)

    def _on_link(self, conditions: Mapping[str, Values]) -> tuple[Floats, Floats, Conditions]:
        """The bytes that each cell puts on the link, and its conditions."""
        link = Conditions(**{name: np.asarray(each)[..., None] for name, each in conditions.items()})
        return self.payload_bytes, self.result_bytes, link

    def cost(self, objective: str, **conditions: Values) -> Floats:
        """The cost, to be least: seconds of latency, or seconds an image (`throughput`). Unknown is inf."""
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
        link_s = self._occupied_s(conditions)
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


def as_measured(observed: Observed, *, by_round: bool = False) -> Predictor:
    """A predictor of what was measured at the profiles of `observed`, in any network: where no arithmetic holds."""
    latency_s, ips = (observed.medians(name, by_round=by_round) for name in MEASURES.values())
    cells, nothing = observed.cells, np.zeros(len(observed.cells))
    size = int(cells["batch_size"].iloc[0])
    return Predictor(cells, size, MOST_IN_FLIGHT, nothing, nothing, latency_s, nothing, stage_s=size / ips)


def on_grid(
    predictor: Predictor, delays_s: Floats, rates_bps: Floats, objective: str
) -> tuple[Ints, Floats, Floats]:
    """At each delay (rows) and rate (columns) the best cell (row of `predictor.cells`), its cost, and the share of that
    by which the best of another point is behind (inf where there is one point). The way back is not shaped.
    """
    of_point = list(predictor.cells.groupby("point", observed=True).indices.values())
    best, least, behind = [], [], []
    # Delay by delay: with hundreds of cells, all costs at once would take gigabytes.
    for delay_s in delays_s:
        costs = predictor.cost(objective, delay_s=np.full(len(rates_bps), delay_s), rate_bps=rates_bps)
        best.append(costs.argmin(axis=-1))
        least.append(costs.min(axis=-1))
        points = np.sort([costs[..., cells].min(axis=-1) for cells in of_point], axis=0)
        behind.append(points[1] / points[0] - 1 if len(points) > 1 else np.full(len(rates_bps), np.inf))
    return np.array(best), np.array(least), np.array(behind)


def _overhead_s(observed: Observed, by_round: bool) -> Floats:
    """a + b x bytes, rounds x cells; 0 where nothing crosses, NaN for a backend without a known link."""
    cells, backend = observed.cells, observed.cells["backend"].to_numpy()
    nbytes = (cells["wire_bytes"] + cells["result_bytes"]).to_numpy(dtype="float64")
    profiles = map(observed.at, observed.profiles)
    at_profile = [np.atleast_2d(of.medians("overhead_s", by_round=by_round)) for of in profiles]
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


@dataclass(frozen=True)
class Validation:
    """The errors of predictions, by objective, over the points that cross the link: so many `cells` at `profiles`.

    held_out: each profile was predicted from the others alone; else from itself, as there is no other.
    """

    held_out: bool
    profiles: int
    cells: int
    errors: Mapping[str, Errors]

    def spread(self, objective: str) -> float:
        """The model's error, as a standard deviation; NaN where nothing is known of how it does elsewhere."""
        return self.errors[objective].spread if self.held_out else np.nan


def validate(observed: Observed) -> Validation:
    """The errors of predicting each profile without its own trials, against the medians measured there."""
    profiles, crossing = observed.profiles, observed.cells["backend"].ne(NONE).to_numpy()
    held_out = len(profiles) > 1
    off: dict[str, list[Floats]] = {objective: [] for objective in MEASURES}
    for profile in profiles:
        central = predictor(observed.at(profile, without=True) if held_out else observed)
        there, network = observed.at(profile), vars(observed.networks[profile])
        for objective, column in MEASURES.items():
            predicted = getattr(central, column)(**network)
            off[objective].append((predicted / there.medians(column) - 1)[crossing])
    errors = {objective: np.concatenate(each) for objective, each in off.items()}
    tested = int(np.isfinite(errors["latency"]).sum())
    by_objective = {objective: Errors.of(each) for objective, each in errors.items()}
    return Validation(held_out, len(profiles), tested, by_objective)


def best(
    rows: pd.DataFrame, known: Mapping[str, Network], predictor: Predictor | None = None
) -> pd.DataFrame:
    """One row a profile and objective (`latency`, `throughput`), of one model, batch size, codec and depth.

    `rows`: of `analysis.fronts.front.front`, of two hosts; profiles that are not in `known` are left out, as are points
    that are not `feasible`. Columns `COLUMNS`:

    - delay_s: what the profile adds to a round trip, both ways. rate_bps: edge to server, inf without a limit.
    - point, backend: the best median; backend is empty where nothing crosses, as all do the same there. measured, low,
      high: that median (s or images/s) and its 95 % interval, NaN where there is none.
    - predicted_point, predicted_backend: the best at that network by `predictor`; empty without one. measured_there:
      what was measured at that point, NaN if it was not; behind_percent: how much worse that is than the best.
    - prediction: `SAME`, `CLOSE` or `OTHER`; empty without a predictor.
    """
    if is_chain(rows):
        return pd.DataFrame(columns=COLUMNS)
    rows = rows[rows["feasible"].astype(bool) & rows["netem"].isin([*known])]
    rows, made = rows.astype(dict.fromkeys(("netem", "point", "backend"), "str")), []
    for objective, column in MEASURES.items():
        figures = {column.replace("_", f"_{end}_"): end for end in ("low", "high")} | {column: "measured"}
        each = rows.dropna(subset=[column]).rename(columns=figures)
        worse = 1 if objective == "latency" else -1  # the power of a figure by which less is better
        first = each.loc[(each["measured"] ** worse).groupby(each["netem"], sort=False).idxmin()]
        links = [known[netem] for netem in first["netem"]]
        first = first.assign(
            objective=objective,
            delay_s=[link.delay_s + link.delay_back_s for link in links],
            rate_bps=[link.rate_bps for link in links],
            **dict.fromkeys(("predicted_point", "predicted_backend", "prediction"), ""),
        )
        if predictor is not None and links:
            numbers = [int(predictor.cost(objective, **vars(link)).argmin()) for link in links]
            cells = predictor.cells[["point", "backend"]].iloc[numbers].set_axis(first.index)
            of_cell = each.set_index(["netem", "point", "backend"])[["measured", "low", "high"]]
            named = pd.MultiIndex.from_frame(cells.assign(netem=first["netem"])[of_cell.index.names])
            there = of_cell[~of_cell.index.duplicated()].reindex(named).set_axis(first.index)
            apart = there["low"] > first["high"] if worse == 1 else there["high"] < first["low"]
            cases = (first[["point", "backend"]] == cells).all(axis=1), apart | there["measured"].isna()
            first = first.assign(
                predicted_point=cells["point"],
                predicted_backend=cells["backend"],
                measured_there=there["measured"],
                behind_percent=100 * (there["measured"] ** worse / first["measured"] ** worse - 1),
                prediction=np.select(cases, (SAME, OTHER), CLOSE),
            )
        made.append(first.reindex(columns=COLUMNS))
    both = pd.concat(made)
    profiles = {name: place for place, name in enumerate(rows["netem"].unique())}
    return both.sort_values("netem", key=lambda of: of.map(profiles), kind="stable", ignore_index=True)

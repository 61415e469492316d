"""Points that a conclusion leaves out: without a valid trial, if their bounds allow that they are better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from pareto.analysis.advice.crossovers import RANGES, STEPS
from pareto.analysis.advice.observed import CELL, WORK, WORKLOAD
from pareto.analysis.advice.predict import Predictor
from pareto.analysis.fronts.cells import BOUNDS
from pareto.analysis.fronts.where import Where
from pareto.analysis.naming import listed, some
from pareto.analysis.prediction.formula import Conditions, Payloads, Values, carrying_s, occupied_s
from pareto.analysis.prediction.network import Network
from pareto.analysis.runs.points import BUT_CODEC, CONDITION, NO_CODEC, NONE, competing, cuts, nothing_crosses
from pareto.analysis.runs.standing import stands
from pareto.analysis.statistics.samples import Floats
from pareto.analysis.wording import place
from pareto.protocol.constants import GOODPUT
from pareto.remote.link.units import duration

FIGURES = dict(
    zip(("latency", "throughput"), ((figure, bound) for bound, figure in BOUNDS.items()), strict=True)
)
"""The columns of each objective's figure and of its bound."""
MOST_NAMED = 3


@dataclass(frozen=True)
class Rival:
    """A point, or one way to run it, without a valid trial. whole: no way to run the point has one.

    bound: the least seconds that a request can take there, or the most images/s; NaN where it is not known.
    """

    point: str
    place: str
    whole: bool
    bound: float


@dataclass(frozen=True)
class Tried:
    """The trials of one condition, valid or not, of several codecs or engines if they compete; columns as in
    trials.csv. where: a constraint (`analysis.fronts.where`): cells that it rules out are no rivals. network: of the
    condition, where it is one delay and rate. struck: what a search struck off there (`runs.load.struck`).
    """

    trials: pd.DataFrame
    where: str = ""
    network: Network | None = None
    struck: pd.DataFrame = field(default_factory=pd.DataFrame)

    def lost(self, objective: str = "latency") -> pd.DataFrame:
        """One row a cell that was tried and has no valid figure of an objective.

        Bounds: the best that it can be; where no trial has any, those of its point over another backend, or of the link
        alone; of the other objective what was measured, if valid. `whole`: no cell of its point has a figure.
        """
        figure, _ = FIGURES[objective]
        rows = competing(self.trials)
        has = stands(rows, objective) & rows[figure].notna()
        if has.all():
            return rows.head(0).reindex(columns=["point", *BOUNDS])
        alone = nothing_crosses(rows)
        rows = rows.assign(
            backend=rows["backend"].astype("str").where(~alone, NONE),
            codec=rows["codec"].astype("str").where(~alone, NO_CODEC),
            engine=rows.get(WORK, ""),
        )
        rows = rows.reindex(columns=[*dict.fromkeys([*rows, *BOUNDS])])
        same = [rows[name] for name in CELL if name != "backend"]
        for bound, best in zip(BOUNDS, ("min", "max"), strict=True):
            rows[bound] = rows[bound].fillna(rows[bound].groupby(same, observed=True).transform(best))
        if self.network is not None:
            known = rows["payload_bytes"].notna()
            latency_s, image_s = (link_s(rows, each, **vars(self.network)) for each in FIGURES)
            by_link = pd.DataFrame({"latency_bound_s": latency_s, "throughput_bound_ips": np.nan}, rows.index)
            crosses = rows["payload_bytes"] > 0
            by_link.loc[crosses, "throughput_bound_ips"] = 1 / image_s[crosses]
            rows = rows.fillna(by_link[known])
        (other,) = FIGURES.keys() - {objective}
        measured, bound = FIGURES[other]
        rows[bound] = rows[measured].where(stands(rows, other)).fillna(rows[bound])
        has_cell = has.groupby([rows[name] for name in CELL], observed=True).transform("any")
        has_point = has.groupby(rows["point"], observed=True).transform("any")
        groups = rows.assign(whole=~has_point)[~has_cell].groupby(CELL, observed=True, sort=False)
        least, most = (groups[name] for name in BOUNDS)
        best_of = dict(zip(BOUNDS, (least.min(), most.max()), strict=True))
        cells = groups.first().assign(**best_of).reset_index()
        # What was measured cannot be trusted: it decides about no constraint.
        unknown = cells.assign(**{name: np.nan for name, _ in FIGURES.values()})
        return cells[~Where.parse(self.where).fails(unknown)]

    def unsure_along(self, model: Predictor, network: Network, objective: str) -> frozenset[str]:
        """Those of `rate` and `delay` along which another point than the model's could be best somewhere: one that
        was struck off in this network, or has no valid figure.
        """
        columns = ["point", "payload_bytes", "codec", "how", "latency_s", "batch_size"]
        lost, struck = self.lost(objective), self.struck.reindex(columns=columns)
        # What a codec sends there is not known, nor how fast it is where it was struck off by rounds.
        struck = struck.assign(
            payload_bytes=struck["payload_bytes"].where(struck["codec"].isin(["", NO_CODEC]), 0.0),
            latency_bound_s=struck["latency_s"].where(struck["how"] == "physics"),
        )
        cells = pd.concat([each for each in (lost, struck) if len(each)] or [lost])
        # Over which backend a point is better does not hang on the network.
        cells = cells[~cells["point"].isin(model.cells["point"])]
        if cells.empty:
            return frozenset()
        fixed_s = 0.0
        if objective == "latency":
            beyond_s = cells["latency_bound_s"].to_numpy(float) - link_s(cells, objective, **vars(network))
            fixed_s = np.maximum(np.nan_to_num(beyond_s), 0.0)
        found = set()
        for along, (column, ends) in RANGES.items():
            places = vars(network) | {column: np.geomspace(*ends, STEPS)}
            bounds = fixed_s + link_s(cells, objective, **places)
            if (bounds < model.cost(objective, **places).min(axis=-1)[:, None]).any():
                found.add(along)
        return frozenset(found)

    def rivals(self, best: float, objective: str = "latency") -> list[Rival]:
        """The cells without a valid figure of which it is open whether they are better than the best of the others.

        A bound that is not known leaves it open.
        """
        _, bound = FIGURES[objective]
        cells = self.lost(objective)
        worse = cells[bound] >= best if objective == "latency" else cells[bound] <= best
        return [
            Rival(str(row["point"]), place(row), bool(row["whole"]), float(row[bound]))
            for row in cells[~worse].to_dict("records")
        ]


def with_bytes(trials: pd.DataFrame) -> pd.DataFrame:
    """The trials, with what crosses at their points where they failed before they knew: the same in every network."""
    columns = [name for name in ("payload_bytes", "result_bytes", "wire_bytes") if name in trials]
    if not (lacking := trials[columns].isna()).any(axis=None):
        return trials
    same = [name for name in (*BUT_CODEC, "codec", "point") if name in trials and name != "netem"]
    known = trials.groupby(same, dropna=False, observed=True)[columns].transform("min")
    return trials.assign(**{name: trials[name].where(~lacking[name], known[name]) for name in columns})


def link_s(cells: pd.DataFrame, objective: str, **conditions: Values) -> Floats:
    """Seconds that the link alone takes of a request, or of an image (throughput): conditions x cells, 0 where the
    bytes are not known. conditions: those of `Network`.
    """
    cells = cells.reindex(columns=["payload_bytes", "wire_bytes", "result_bytes", "batch_size"])
    out = cells["wire_bytes"].fillna(cells["payload_bytes"]).to_numpy(float)
    payloads = Payloads(out[:, None], cells["result_bytes"].fillna(0.0).to_numpy(float)[:, None])
    # Headers do not count: a rate is on the wire.
    plain = {
        name: np.asarray(value / GOODPUT if "rate" in name else value)[..., None, None]
        for name, value in conditions.items()
    }
    if objective == "latency":
        return carrying_s(payloads, Conditions(**plain))
    return np.asarray(occupied_s(payloads, Conditions(**plain)) / cells["batch_size"].to_numpy(float))


def sentence(rivals: Sequence[Rival], objective: str = "latency") -> str:
    """`points 0, 2 and 3 have no valid latency and could be better: their bounds are from 240 ms`; or nothing."""
    if not rivals:
        return ""
    points = sorted({rival.point for rival in rivals if rival.whole}, key=cuts)
    names = [*points, *dict.fromkeys(rival.place for rival in rivals if not rival.whole)]
    several = len(names) > 1
    named = some(names, MOST_NAMED) if len(names) > MOST_NAMED else listed(names)
    head = ("points " if len(points) > 1 else "point ") if points else ""
    text = f"{head}{named} {'have' if several else 'has'} no valid {objective} and could be better"
    known = [rival.bound for rival in rivals if not np.isnan(rival.bound)]
    if not known:
        return text
    bound = duration(min(known)) if objective == "latency" else f"{max(known):.3g} images/s"
    least = "from" if objective == "latency" else "up to"
    return f"{text}: {f'their bounds are {least}' if several else 'its bound is'} {bound}"


def absent(observed: pd.DataFrame, trials: pd.DataFrame, struck: pd.DataFrame) -> str:
    """`Points 9 and 21 have no valid trial in any network, and may be better somewhere`; nothing if all have one.

    observed: the cells of a workload that predictions are made of. trials: all that were made of it. struck: what a
    search struck off (`runs.load.struck`).
    """
    first = trials[WORKLOAD].head(1).to_dict("records")
    off = struck[(struck[WORKLOAD] == pd.Series(first[0])).all(axis=1)] if first and len(struck) else struck
    tried = {*trials["point"].astype("str"), *(off["point"].astype("str") if len(off) else ())}
    points = sorted(tried - set(observed["point"].astype("str")), key=cuts)
    if not points:
        return ""
    has = f"Points {listed(points)} have" if len(points) > 1 else f"Point {points[0]} has"
    return f"{has} no valid trial in any network, and may be better somewhere"


def beside(
    best: pd.DataFrame, trials: pd.DataFrame, where: str = "", networks: Mapping[str, Network] | None = None
) -> list[str]:
    """`sentence` for each of these rows of a front, which has the least latency of its condition."""
    tried = {
        key: Tried(rows, where, (networks or {}).get(str(key[CONDITION.index("netem")])))
        for key, rows in with_bytes(trials).groupby(CONDITION, dropna=False, observed=True)
    }
    rows = best[[*CONDITION, "latency_s"]].itertuples(index=False, name=None)
    return [
        sentence(tried[key].rivals(least)) if key in tried else ""
        for *of, least in rows
        if (key := tuple(of))
    ]

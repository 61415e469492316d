"""Points without a valid trial that may be better, by their bounds, and the probabilities that they leave open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from pareto.analysis.advice.crossovers import RANGES, STEPS
from pareto.analysis.advice.observed import CELL, WORK, linked, needed
from pareto.analysis.advice.predict import Predictor
from pareto.analysis.fronts.objectives import chosen
from pareto.analysis.fronts.where import Where
from pareto.analysis.naming import condition_title, listed, some
from pareto.analysis.prediction.formula import Conditions, Values, carrying_s, occupied_s
from pareto.analysis.prediction.network import Network
from pareto.analysis.runs.points import BUT_CODEC, CONDITION, NO_CODEC, NONE, cuts
from pareto.analysis.runs.standing import competing, stands
from pareto.analysis.runs.treatments import backend_of, in_every_codec
from pareto.analysis.statistics.doubt import Doubt
from pareto.analysis.statistics.posterior import FAIR_CHANCE
from pareto.analysis.statistics.samples import Bools, Floats
from pareto.analysis.wording import forms
from pareto.remote.link.units import duration

FIGURES = {
    "latency": ("latency_s", "latency_bound_s"),
    "throughput": ("throughput_ips", "throughput_bound_ips"),
}
"""The columns of each objective's figure and of its bound."""
_BEST = {"latency": "min", "throughput": "max"}
MOST_NAMED = 3
_ROW = [*CONDITION, "backend", "point"]
_STATED = (("probability", "probability_all"), CONDITION), (("codec_probability",), BUT_CODEC)
"""The columns of probabilities, and what is the same for all points that compete in them."""


def located(rows: pd.DataFrame, every: pd.DataFrame | None = None) -> pd.DataFrame:
    """The trials under the names of their cells. every: the trials that tell where nothing crosses."""
    return rows.assign(backend=backend_of(rows, every), engine=rows.get(WORK, rows["engine"]))


def lost(
    trials: pd.DataFrame,
    objective: str,
    where: str = "",
    networks: Mapping[str, Network] | None = None,
    within: Sequence[str] = (),
) -> pd.DataFrame:
    """One row a cell that was tried and has no valid figure of an objective, beside the other cells that are the same
    in the columns `within`; without those that a constraint rules out.

    Bounds: the best that it can be; where no trial has any, those of its point over another backend, or of the link
    alone, of the profiles that are in `networks`; of the other objective what was measured, if valid. `whole`: no cell
    of its point has a figure.
    """
    figure, _ = FIGURES[objective]
    rows = competing(trials)
    has = stands(rows, objective) & rows[figure].notna()
    if within:
        lacks = (~has).groupby([rows[name] for name in within], dropna=False, observed=True).transform("any")
        rows, has = rows[lacks], has[lacks]
    rows = rows.reindex(columns=[*dict.fromkeys([*rows, *dict(FIGURES.values()).values(), "whole"])])
    if has.all():
        return rows.head(0)
    rows = linked(located(rows), networks or {})
    conditions = {name: rows[name].to_numpy() for name in Network.__annotations__}
    is_known = rows["payload_bytes"].notna() & rows["rate_bps"].notna()
    keys, by = [*dict.fromkeys([*within, *CELL])], {"dropna": False, "observed": True}
    for name, (measured, bound) in FIGURES.items():
        best = rows.groupby([key for key in keys if key != "backend"], **by)[bound].transform(_BEST[name])
        alone = link_s(rows, name, **conditions)
        alone = alone if name == "latency" else 1 / np.where(alone > 0, alone, np.nan)
        rows[bound] = rows[bound].fillna(best).fillna(pd.Series(alone, rows.index).where(is_known))
        if name != objective:
            rows[bound] = rows[measured].where(stands(rows, name)).fillna(rows[bound])
    has_point, has_cell = (
        has.groupby([rows[name] for name in same], **by).transform("any")
        for same in ([*within, "point"], keys)
    )
    groups = rows.assign(whole=~has_point)[~has_cell].groupby(keys, sort=False, **by)
    bounds = {bound: groups[bound].agg(_BEST[name]) for name, (_, bound) in FIGURES.items()}
    cells = groups.first().assign(**bounds).reset_index()
    # What was measured cannot be trusted: it decides about no constraint.
    unknown = cells.assign(**{measured: np.nan for measured, _ in FIGURES.values()})
    return cells[~Where.parse(where).fails(unknown)]


def link_s(cells: pd.DataFrame, objective: str, **conditions: Values) -> Floats:
    """Seconds that the link alone takes of a request, or of an image (throughput), 0 where the bytes are not known:
    the shape of the conditions, which are those of `Network` and broadcast against the cells.
    """
    cells = cells.reindex(columns=["payload_bytes", "wire_bytes", "result_bytes", "batch_size"])
    out, back = cells["wire_bytes"].fillna(cells["payload_bytes"]), cells["result_bytes"].fillna(0.0)
    request = out.to_numpy(float), back.to_numpy(float), Conditions(**conditions)
    # Headers do not count: a rate is on the wire.
    if objective == "latency":
        return carrying_s(*request, reached=1.0)
    return np.asarray(occupied_s(*request, reached=1.0) / cells["batch_size"].to_numpy(float))


def rivals(cells: pd.DataFrame, best: float, objective: str = "latency") -> pd.DataFrame:
    """The cells (of `lost`) that may be better than the best figure of all others, as may one whose bound is not known:
    point, place (in words), whole (no cell of the point has a figure), bound (s, or images/s).
    """
    bound, places = cells[FIGURES[objective][1]], [forms(row)["place"] for row in cells.to_dict("records")]
    is_worse = bound >= best if objective == "latency" else bound <= best
    cells = cells.assign(bound=bound, place=places)[~is_worse]
    return cells[["point", "place", "whole", "bound"]].astype({"point": "str", "whole": "bool"})


def sentence(rivals: pd.DataFrame, objective: str = "latency") -> str:
    """`points 0, 2 and 3 have no valid latency and could be better: their bounds are from 240 ms`; or nothing."""
    points = sorted(rivals.loc[rivals["whole"], "point"].unique(), key=cuts)
    names = [*points, *rivals.loc[~rivals["whole"], "place"].unique()]
    if not names:
        return ""
    named = some(names, MOST_NAMED) if len(names) > MOST_NAMED else listed(names)
    head = "points " if len(points) > 1 else "point " if points else ""
    has, bounds = ("have", "their bounds are") if len(names) > 1 else ("has", "its bound is")
    text = f"{head}{named} {has} no valid {objective} and could be better"
    if rivals["bound"].isna().all():
        return text
    if objective == "latency":
        return f"{text}: {bounds}{' from' * (len(names) > 1)} {duration(rivals['bound'].min())}"
    return f"{text}: {bounds}{' up to' * (len(names) > 1)} {rivals['bound'].max():.3g} images/s"


def unsure_along(
    cells: pd.DataFrame, struck: pd.DataFrame, model: Predictor, network: Network, objective: str
) -> frozenset[str]:
    """Those of `rate` and `delay` along which another point than the model's could be best somewhere: one of these
    cells, without a valid figure in this network, or one that was struck off in it.
    """
    # What a codec sends there is not known, nor how fast it is where it was struck off by rounds.
    struck = struck.reindex(columns=["point", "payload_bytes", "codec", "how", "latency_s", "batch_size"])
    struck = struck.assign(
        payload_bytes=struck["payload_bytes"].where(struck["codec"].eq(NO_CODEC), 0.0),
        latency_bound_s=struck["latency_s"].where(struck["how"] == "physics"),
    )
    cells = pd.concat([each for each in (cells, struck) if len(each)] or [cells])
    # Over which backend a point is better does not hang on the network.
    cells = cells[~cells["point"].isin(model.cells["point"])]
    if cells.empty:
        return frozenset()
    beyond_s = cells["latency_bound_s"].to_numpy(float) - link_s(cells, objective, **vars(network))
    fixed_s = np.maximum(np.nan_to_num(beyond_s), 0.0) if objective == "latency" else 0.0
    could = {}
    for along, (column, ends) in RANGES.items():
        places = np.geomspace(*ends, STEPS)[:, None]
        least = model.cost(objective, **vars(network) | {column: places[:, 0]}).min(axis=-1)[:, None]
        bounds = fixed_s + link_s(cells, objective, **vars(network) | {column: places})
        could[along] = bool((bounds < least).any())
    return frozenset(along for along in could if could[along])


def beside(
    best: pd.DataFrame, trials: pd.DataFrame, where: str = "", networks: Mapping[str, Network] | None = None
) -> list[str]:
    """`sentence` for each of these rows of a front, which has the least latency of its condition."""
    cells = lost(needed(trials, *Where.parse(where).columns), "latency", where, networks, CONDITION)
    groups = cells.groupby(CONDITION, dropna=False, observed=True).indices
    rows = best[[*CONDITION, "latency_s"]].itertuples(index=False, name=None)
    return [
        sentence(rivals(cells.iloc[groups[key]].assign(engine=""), least)) if key in groups else ""
        for *of, least in rows
        if (key := tuple(of))
    ]


def lacking(
    front: pd.DataFrame,
    trials: pd.DataFrame,
    objectives: Sequence[str],
    where: str,
    networks: Mapping[str, Network] | None = None,
) -> tuple[pd.DataFrame, list[Doubt]]:
    """The front without the probabilities that do not hold; and at most one doubt: which cells lack a valid figure, and
    could be on the front of their condition.

    A cell that lacks a figure is at its best as good as its bounds (`lost`), or as what was measured of it; in an
    objective without a bound, better than all. It could not be on the front if a measured cell is no worse than that.
    No probability holds of a cell that it would dominate, unless below `FAIR_CHANCE`.
    """
    columns = {each.column: -1.0 if each.maximise else 1.0 for each in chosen(objectives)}
    every = in_every_codec(needed(trials, *Where.parse(where).columns))
    found = pd.concat([lost(every, figure, where, networks, CONDITION) for figure in FIGURES])
    keys, of_lost = (pd.MultiIndex.from_frame(rows[_ROW].astype("str")) for rows in (front, found))
    found = found.set_index(of_lost)[~of_lost.duplicated()]
    is_allowed, is_lost = front["feasible"].to_numpy(bool), keys.isin(found.index)
    signs = np.array([*columns.values()])
    losses: Floats = signs * front[[*columns]].to_numpy(float)
    lacks: Bools = np.isnan(losses).any(axis=1) & (is_lost | is_allowed)
    if not lacks.any():
        return front, []
    of_lost, bounds, best = found.reindex(keys), dict(FIGURES.values()), losses.copy()
    for number, column in enumerate(columns):
        if column in bounds:
            best[is_lost, number] = signs[number] * of_lost[bounds[column]].to_numpy(float)[is_lost]
    best = np.where(np.isnan(best), -np.inf, best)
    front = front.copy()
    backend, codec = (front[name].astype("str").to_numpy() for name in ("backend", "codec"))
    could: list[int] = []
    for names, same in _STATED:
        for members in front.groupby(same, dropna=False, observed=True).indices.values():
            whole = members[is_allowed[members] & ~np.isnan(losses[members]).any(axis=1)]
            tried = members[lacks[members]]
            # Another codec may cost more accuracy: it keeps nothing off.
            alike = codec[whole] == codec[tried][:, None]
            is_open = ~(alike & (losses[whole] <= best[tried][:, None]).all(axis=2)).any(axis=1)
            left = tried[is_open & (len(whole) > 0)]
            could += [*left] if same is CONDITION else []
            beaten = (best[left][:, None] <= losses[whole]).all(axis=2)
            mine = (backend[left][:, None] == backend[whole]) | (backend[left] == NONE)[:, None]
            for name in names:
                competing = mine | (backend[whole] == NONE) if name == "probability" else np.True_
                unsettled = whole[(beaten & competing).any(axis=0)]
                # A rival more makes it no likelier to be on a front.
                unsettled = unsettled[~(front[name].to_numpy(float)[unsettled] < FAIR_CHANCE)]
                front.loc[front.index[unsettled], name] = np.nan
    if not could:
        return front, []
    several = len(front[CONDITION].drop_duplicates()) > 1
    named = []
    for number in could:
        of = found.loc[keys[number]].to_dict() if is_lost[number] else {}
        row = front.iloc[number].to_dict() | of | {"engine": ""}
        named.append(f"{forms(row)['place']}{f' ({condition_title(row)})' * several}")
    points = "a point lacks" if len(named) == 1 else f"{len(named)} points lack"
    head = f"{points} a valid {' or '.join(objectives)} and could be on the front"
    return front, [Doubt(head, some(named, MOST_NAMED))]

"""The points of one workload in one network, ranked, and how sure it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import pandas as pd

from pareto.analysis.advice.crossovers import Crossover, crossovers, named_points
from pareto.analysis.advice.observed import CELL, KEPT, MIN_ROUNDS
from pareto.analysis.advice.rivals import located, lost, rivals, sentence, unsure_along
from pareto.analysis.advice.workload import Workload
from pareto.analysis.fronts import quality
from pareto.analysis.fronts.cells import BOUNDS
from pareto.analysis.fronts.where import Where
from pareto.analysis.naming import count
from pareto.analysis.prediction.network import UNSHAPED, Network
from pareto.analysis.runs.manifest import input_type
from pareto.analysis.runs.points import NONE, cuts
from pareto.analysis.runs.standing import competing
from pareto.analysis.statistics import posterior
from pareto.analysis.statistics.samples import Floats
from pareto.analysis.statistics.significance import MEASURES, median_intervals
from pareto.analysis.wording import EDGE, SERVER, forms, sent
from pareto.protocol.errors import UserError
from pareto.remote.link.units import duration

SURE, LIKELY = 0.95, 0.8
Z = NormalDist().inv_cdf(0.975)
TOSS_UP = "a toss-up"
NAMED = 3
"""Points that are named where none is likely the best."""
EVEN = 0.5
"""If they have less probability together, naming them would say nothing."""
CHOICE = [
    *("codec", "engine", "backend", "point", "point_name", "place", "order", "doing", "sent"),
    *("latency_s", "latency_low_s", "latency_high_s"),
    *("throughput_ips", "throughput_low_ips", "throughput_high_ips", "probability"),
]


@dataclass(frozen=True, eq=False)
class Ranking:
    """The points in the wanted network.

    choices: one row a point, best first: `CHOICE`, and more in words; the crossovers' `cell` is in its index. Seconds
    and images/s are from all rounds, with 95 % intervals (NaN: too few rounds) of the median of what each round by
    itself says, widened by what the probability knows besides: the noise floor, and how far predictions are off.
    Where nothing crosses there is no backend. engine: empty where there is one. place, order, doing, end, sent: of
    `analysis.wording`. probability: of being the best (`ranking`), NaN where none holds; sureness: `sure 71 %`, or
    empty text. figure: `41 ms`, `38 images/s`.

    rounds: of the best. profile: the measured one that the figures are of, empty if they are predicted. unsure: why no
    probability is stated. unmeasured: which of `all on the server` and `all on the edge` were not tried. rivals: what
    was tried, has no valid trial, and could be better (`analysis.advice.rivals.rivals`). unsure_along: along what
    (`rate`, `delay`) another point than the ranked ones could be better somewhere.
    """

    choices: pd.DataFrame
    crossovers: Sequence[Crossover]
    profile: str
    rounds: int
    unsure: str
    unmeasured: Sequence[str]
    rivals: pd.DataFrame
    unsure_along: frozenset[str]

    @property
    def best(self) -> pd.Series:
        return self.choices.iloc[0]

    @property
    def sure(self) -> str:
        """`sure`, `likely`, `a toss-up`, or empty text: no probability holds."""
        p = self.best["probability"]
        if math.isnan(p) or self.unsure:
            return ""
        return "sure" if p >= SURE else "likely" if p >= LIKELY else TOSS_UP

    @property
    def contenders(self) -> pd.DataFrame:
        """The likeliest, until they hold the best with `SURE` together; `NAMED` at most, the best among them."""
        first, others = self.best["probability"], self.choices["probability"].iloc[1:]
        likely = others[others > 0].sort_values(ascending=False, kind="stable")[: NAMED - 1]
        before = first + likely.cumsum().shift(fill_value=0.0)
        return self.choices.loc[[self.choices.index[0], *likely[before < SURE].index]]


def ranking(
    workload: Workload,
    network: Network | None,
    objective: str = "latency",
    where: str = "",
    profile: str = "",
    among: pd.MultiIndex | None = None,
    engine: str = "",
) -> Ranking:
    """The points of a workload that satisfy `where` in this network, or, if it is given, that are `among` the cells
    (`analysis.advice.observed.CELL`) that do; of this `engine`, if one is given.

    With `profile`, the name of one that is this network, the figures are those measured there, of what no search struck
    off there. Crossovers are those of the predictions where these put the same point first here; else of a model scaled
    to what was measured; without a network there are none. Where a point without a valid trial could be better by its
    bound, no probability of being the best holds.

    Probabilities are of draws of what each point may take in truth (`analysis.statistics.posterior`): by what each
    round by itself says, by the run's noise floor, and, where it is predicted, by how far predictions are off
    (`Validation.spread`; where that is not known, none is stated). Raises `UserError`.
    """
    conditions, observed = vars(network or UNSHAPED), workload.observed
    predictor, by_round = workload.at(profile)
    rounds, costs = observed.at(profile).rounds, predictor.cost(objective, **conditions)
    here, struck = workload.rows, workload.struck
    if profile:
        here, struck = (rows[rows["netem"] == profile] for rows in (here, struck))
    else:  # In another network than the measured ones all that is known of a point is what its link takes.
        here, struck = here.drop(columns=[*BOUNDS]), struck.assign(how="")
    here = here[here["engine"] == engine] if engine else here
    cells, is_kept = pd.MultiIndex.from_frame(observed.cells[CELL]), (rounds > 0) & np.isfinite(costs)
    if among is None:
        # The constraint may be on what is known of any cell.
        unknown = [name for name in {*KEPT, *quality.COLUMNS} if observed.cells[name].isna().all()]
        figures = {name: getattr(predictor, name)(**conditions) for name in MEASURES.values()}
        is_kept &= Where.parse(where).holds(observed.cells.assign(**figures).drop(columns=unknown))
    else:
        is_kept &= cells.isin(among)
    if profile:  # In other networks what was struck off here may be best.
        left = located(competing(here), workload.rows)[CELL].astype("str").drop_duplicates()
        is_kept &= cells.isin(pd.MultiIndex.from_frame(left))
    if not is_kept.any():
        raise UserError(
            f"no point satisfies {where!r} here" if where else "no valid point satisfies what is asked"
        )
    kept = np.flatnonzero(is_kept)
    predictor, by_round, costs, rounds = predictor.only(kept), by_round.only(kept), costs[kept], rounds[kept]
    best, present = int(np.argmin(costs)), workload.blocks.at(profile).present[:, kept]

    of_latency, known = objective == "latency", {profile: network} if network else {}
    without = lost(here.assign(netem=profile), objective, where, known)
    could = rivals(without, costs[best] if of_latency else 1 / costs[best], objective)
    inputs = input_type((run.manifest for run in workload.runs.runs), workload.first["model"])
    choices = predictor.cells.assign(netem=profile, probability=np.nan)
    is_exact = choices["backend"].eq(NONE).to_numpy() | bool(profile)
    for name, column in MEASURES.items():
        off = 0.0 if profile else workload.validation.spread(name)
        spread = np.hypot(workload.floor.get(column, 0.0), np.where(is_exact, 0.0, off))
        middle, of_rounds = (getattr(model, column)(**conditions) for model in (predictor, by_round))
        of_rounds = np.where(present & np.isfinite(of_rounds), of_rounds, np.nan)
        choices = choices.assign(**_interval(column, middle, of_rounds, spread))
        if name == objective and could.empty:
            of_costs, points = of_rounds if of_latency else 1 / of_rounds, choices["point"].to_numpy()
            shares = _probabilities(of_costs, points, spread, costs)
            choices["probability"] = np.where(rounds >= MIN_ROUNDS, shares, np.nan)
    rows = [
        row
        | forms(row)
        | {
            "sent": sent(row, inputs),
            "figure": duration(row["latency_s"]) if of_latency else f"{row['throughput_ips']:.3g} images/s",
            "sureness": f"sure {100 * row['probability']:.0f} %" if row["probability"] >= 0 else "",
        }
        for row in choices.to_dict("records")
    ]
    choices = pd.DataFrame(rows).iloc[np.argsort(costs, kind="stable")]

    switches, unsure_at = list[Crossover](), frozenset[str]()
    if network is not None:
        measured = [workload.networks[name] for name in observed.profiles]
        model, model_by_round = (each.only(kept) for each in workload.at(""))
        names = named_points(predictor)
        if names[best] != names[np.argmin(model.cost(objective, **conditions))]:
            model, model_by_round = predictor, by_round
        anywhere = workload.blocks.present[:, kept]
        switches = crossovers(model, model_by_round, anywhere, network, objective, measured)
        unsure_at = unsure_along(without, struck, model, network, objective)
    untested = not profile and math.isnan(workload.validation.spread(objective))
    unsure = sentence(could, objective) or _unsure(choices, int(rounds[best]), untested)
    tried = pd.concat([rows[["point", "payload_bytes"]] for rows in (here, struck)]).drop_duplicates()
    ends = {SERVER: [set(cuts(of)) == {0} for of in tried["point"]], EDGE: tried["payload_bytes"].eq(0)}
    unmeasured = [end for end, of in ends.items() if not np.any(of)]
    return Ranking(choices, switches, profile, int(rounds[best]), unsure, unmeasured, could, unsure_at)


def _interval(column: str, middle: Floats, of_rounds: Floats, spread: Floats) -> dict[str, Floats]:
    """A figure of each cell and its interval's ends, by column. spread: what is off besides, a share either way."""
    ends = dict(zip(("low", "high"), median_intervals(of_rounds.T), strict=True))
    wide = {end: np.hypot(np.log(values / middle), Z * spread) for end, values in ends.items()}
    low, high = (column.replace("_", f"_{end}_") for end in ends)
    return {column: middle, low: middle * np.exp(-wide["low"]), high: middle * np.exp(wide["high"])}


def _probabilities(
    of_rounds: Floats, points: npt.NDArray[np.object_], spread: Floats, costs: Floats
) -> Floats:
    """The probability of each cell to cost least, NaN where none holds. of_rounds: the costs by each round alone."""
    if not np.isfinite(spread).all():
        return np.full(len(costs), np.nan)
    draws = posterior.draws(of_rounds[:, :, None], points, spread[:, None], costs[:, None])
    return np.full(len(costs), np.nan) if draws is None else draws.stated(best_shares(draws.values[:, :, 0]))


def _unsure(choices: pd.DataFrame, rounds: int, untested: bool) -> str:
    """The reason why no probability of the best, of so many rounds, is stated; empty text where one is."""
    p, too = choices["probability"], f"{count(rounds, 'round')}: too {{}} to say how sure"
    likeliest = choices.loc[p.fillna(0.0).idxmax()]
    if rounds < MIN_ROUNDS:
        return too.format("few")
    if math.isnan(p.iloc[0]):
        untold = "how well it predicts could not be tested, so not how sure this is"
        return untold if untested else too.format("noisy")
    if p.iloc[0] < LIKELY <= likeliest["probability"]:
        # Medians over unlike rounds are no comparison.
        return f"within the rounds that both have {likeliest['place']} is better, {likeliest['sureness']}"
    return "too many come too close to say how sure" if p.nlargest(NAMED).sum() < EVEN else ""


def answer(ranked: Ranking, objective: str) -> str:
    """`probably cut at 7 (features.6) over tcp: 83 ms`, or the points between which it is a toss-up."""
    best, named = ranked.best, ranked.contenders
    if ranked.sure == TOSS_UP and len(named) > 1:
        *most, last = [
            f"{place} ({', '.join(filter(None, told))})"
            for place, *told in named[["place", "sent", "figure", "sureness"]].itertuples(index=False)
        ]
        text = f"{TOSS_UP} between {', '.join(most)} and {last}"
    else:
        named = named.head(1)
        probably = f"probably ({best['sureness']}) " if ranked.sure == "likely" else ""
        sends = f" ({best['sent']})" if best["sent"] else ""
        text = f"{probably}{best['order']}{sends}: {best['figure']}"
    if not ranked.unmeasured or named["end"].all():
        return text
    were = "were" if len(ranked.unmeasured) > 1 else "was"
    return f"{text}, but {' and '.join(ranked.unmeasured)} {were} not measured"


def best_shares(costs: Floats) -> Floats:
    """The share of draws (draws x cells) in which each cell costs least. Those that cost the same divide it."""
    least = costs <= costs.min(axis=1, keepdims=True) + 1e-12
    return np.asarray((least / least.sum(axis=1, keepdims=True)).mean(axis=0))

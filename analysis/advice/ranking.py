"""The points of one workload in one network, ranked, and how sure it is."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from pareto.analysis.advice.crossovers import Crossover, crossovers, named_points
from pareto.analysis.advice.observed import CELL, KEPT, MIN_ROUNDS
from pareto.analysis.advice.predict import Ensemble, Predictor
from pareto.analysis.advice.rivals import Rival, Tried, sentence
from pareto.analysis.fronts import quality
from pareto.analysis.fronts.where import Where
from pareto.analysis.naming import count
from pareto.analysis.prediction.network import Network
from pareto.analysis.statistics import posterior, significance
from pareto.analysis.statistics.samples import Bools, Floats
from pareto.analysis.wording import EDGE, SERVER, doing, order, place, sent
from pareto.protocol.errors import UserError
from pareto.remote.link.units import duration

SURE, LIKELY = 0.95, 0.8
Z = NormalDist().inv_cdf(0.975)
TOSS_UP = "a toss-up"
NAMED = 3
"""Points that are named where none is likely the best."""
EVEN = 0.5
"""If they have less probability together, naming them would say nothing."""


@dataclass(frozen=True)
class Choice:
    """A point in the wanted network: seconds and images/s from all rounds, with 95 % intervals (NaN: too few).

    The intervals are those of the median of what each round by itself says, widened by what the probability knows
    besides: the noise floor, and how far predictions are off (NaN where that is not known).
    backend: empty text where nothing crosses and all backends are the same. codec: `none` there, too. engine: what runs
    the units, empty where there is one engine. probability: of being the best, by rounds, noise floor and what the
    model gets wrong (`ranking`); NaN where none holds. place, order, doing, sent: in words (`analysis.wording`).
    """

    codec: str
    engine: str
    backend: str
    point: str
    point_name: str
    place: str
    order: str
    doing: str
    sent: str
    latency_s: float
    latency_low_s: float
    latency_high_s: float
    throughput_ips: float
    throughput_low_ips: float
    throughput_high_ips: float
    probability: float

    def behind(self, best: Choice, objective: str) -> float:
        """The share of the best's latency by which it takes longer, or of its throughput that it lacks."""
        if objective == "latency":
            return self.latency_s / best.latency_s - 1
        return 1 - self.throughput_ips / best.throughput_ips

    @property
    def sureness(self) -> str:
        """`sure 71 %`: how probably it is the best; empty where no probability holds."""
        return "" if math.isnan(self.probability) else f"sure {self.probability:.0%}".replace("%", " %")

    def figure(self, objective: str) -> str:
        """Latency or throughput in words: `41 ms`, `38 images/s`."""
        return duration(self.latency_s) if objective == "latency" else f"{self.throughput_ips:.3g} images/s"


@dataclass(frozen=True)
class Ranking:
    """`choices`, best first; the same in the order to which the crossovers' `cell` refers: `by_cell`.

    rounds: how many the best has. profile: the measured profile that the figures are of, empty if they are predicted.
    unsure: why no probability is stated, empty where one is. unmeasured: which of `all on the server`
    and `all on the edge` were not tried, so that a cut was not compared with them. rivals: what was tried, has no valid
    trial, and could be better. unsure_along: along what (`rate`, `delay`) crossovers are of the ranked points alone, as
    what was struck off here, or has no valid trial, could be better somewhere.
    """

    choices: tuple[Choice, ...]
    by_cell: tuple[Choice, ...]
    crossovers: tuple[Crossover, ...]
    profile: str
    rounds: int
    unsure: str
    unmeasured: tuple[str, ...] = ()
    rivals: tuple[Rival, ...] = ()
    unsure_along: frozenset[str] = frozenset()

    @property
    def best(self) -> Choice:
        return self.choices[0]

    @property
    def runner_up(self) -> Choice | None:
        return self.choices[1] if len(self.choices) > 1 else None

    @property
    def sure(self) -> str:
        """`sure`, `likely`, `a toss-up`, or empty text: no probability holds."""
        p = self.best.probability
        if math.isnan(p) or self.unsure:
            return ""
        return "sure" if p >= SURE else "likely" if p >= LIKELY else TOSS_UP

    @property
    def contenders(self) -> tuple[Choice, ...]:
        """The likeliest, until they hold the best with `SURE` together; `NAMED` at most, the best among them."""
        # Not known (NaN) is not above 0.
        others = [choice for choice in self.choices[1:] if choice.probability > 0]
        contenders, total = [self.best], self.best.probability
        for choice in sorted(others, key=lambda choice: -choice.probability)[: NAMED - 1]:
            if total >= SURE:
                break
            contenders.append(choice)
            total += choice.probability
        return tuple(contenders)


def ranking(
    ensemble: Ensemble,
    network: Network | None,
    objective: str,
    where: str = "",
    profile: str = "",
    among: Collection[tuple[str, ...]] | None = None,
    *,
    model_errors: Mapping[str, float] | None = None,
    seed: int = 0,
    input_type: str = "",
    tried: Tried | None = None,
) -> Ranking:
    """All points that satisfy `where` in this network, and are `among` these (`analysis.advice.observed.CELL`), if that
    is given.

    With `profile`, the name of one that is this network, the figures are those measured there, of the points measured
    there. Crossovers are those of the predictions, as the map of networks has them, where these put the same point
    first here; else of a model scaled to what was measured. With a profile and no network (a link that changes, a
    chain) there are none. input_type: dtypes of the inputs, for the words. tried: all trials that
    were made here, valid or not: of a point without a valid one its bound says whether it could be better. Where one
    could, no probability of being the best holds. A cell that a search struck off is worse here.

    Probabilities are of draws of what each point may take in truth (`analysis.statistics.posterior`): by what each
    round by itself says, by the run's noise floor, and, where it is predicted, by the objective's own of
    `model_errors`, a standard deviation (NaN: not known, and no probability is stated). Where nothing crosses there is
    no network to be wrong about.

    Raises `UserError` if no point is left.
    """
    observed, blocks = ensemble.observed, ensemble.blocks
    conditions = vars(network or Network(0.0, math.inf))
    if profile:
        models = ensemble.measured(profile, network)
        rounds, present = observed.at(profile).rounds, blocks.at(profile).present
    else:
        models = ensemble.predicted
        rounds, present = observed.rounds, blocks.present
    known = (rounds > 0) & np.isfinite(models[0].cost(objective, **conditions))
    kept = np.flatnonzero(known & _feasible(models[0], conditions, where))
    if among is not None:
        cells = observed.cells.loc[kept, CELL].itertuples(index=False, name=None)
        kept = kept[[cell in among for cell in cells]]
    if not len(kept):
        raise UserError(
            f"no point satisfies {where!r} here" if where else "no valid point satisfies what is asked"
        )
    central, by_round = (model.only(kept) for model in models)
    costs = central.cost(objective, **conditions)
    of_rounds = np.where(present[:, kept], by_round.cost(objective, **conditions), np.nan)
    is_exact = central.cells["backend"].eq("").to_numpy() | bool(profile)
    floors = dict(
        zip(significance.MEASURES, ensemble.floor.of([*significance.MEASURES.values()]), strict=True)
    )
    errors = dict.fromkeys(floors, 0.0) | dict(model_errors or {})
    spreads = {name: np.hypot(floor, np.where(is_exact, 0.0, errors[name])) for name, floor in floors.items()}
    points = central.cells["point"].to_numpy()
    shares = _probabilities(costs, of_rounds, points, spreads[objective], seed)
    shares = np.where(rounds[kept] >= MIN_ROUNDS, shares, np.nan)
    rivals: list[Rival] = []
    if tried is not None:
        least = float(costs.min())
        rivals = tried.rivals(least if objective == "latency" else 1 / least, objective)
        shares = np.full(len(kept), np.nan) if rivals else shares
    by_cell = _choices(central, by_round, present[:, kept], conditions, spreads, shares, input_type)
    ranked = np.argsort(costs, kind="stable")
    switches: list[Crossover] = []
    unsure_along: frozenset[str] = frozenset()
    if network is not None:
        measured = [observed.networks[name] for name in observed.profiles]
        model, model_by_round = (each.only(kept) for each in ensemble.predicted)
        foreseen = np.nan_to_num(model.cost(objective, **conditions), nan=np.inf)
        if named_points(central)[np.argmin(costs)] != named_points(central)[np.argmin(foreseen)]:
            model, model_by_round = central, by_round
        present_there = blocks.present[:, kept]
        switches = crossovers(model, model_by_round, present_there, network, objective, measured)
        unsure_along = tried.unsure_along(model, network, objective) if tried is not None else unsure_along
    choices = tuple(by_cell[cell] for cell in ranked)
    best_rounds = int(rounds[kept][ranked[0]])
    unsure = ""
    if rivals:
        unsure = sentence(rivals, objective)
    elif math.isnan(choices[0].probability):
        unsure = _unsure(best_rounds, errors[objective])
    elif choices[0].probability < LIKELY <= (likeliest := max(choices, key=_by_probability)).probability:
        # Medians over unlike rounds are no comparison.
        unsure = f"within the rounds that both have {likeliest.place} is better, {likeliest.sureness}"
    elif np.sort(np.nan_to_num(shares))[-NAMED:].sum() < EVEN:
        unsure = "too many come too close to say how sure"
    others = [] if tried is None else [tried.lost(), tried.struck]
    places = [place(row) for rows in (observed.cells[rounds > 0], *others) for row in rows.to_dict("records")]
    unmeasured = tuple(end for end in (SERVER, EDGE) if not any(name.startswith(end) for name in places))
    return Ranking(
        choices,
        by_cell,
        tuple(switches),
        profile,
        best_rounds,
        unsure,
        unmeasured,
        tuple(rivals),
        unsure_along,
    )


def _by_probability(choice: Choice) -> float:
    return float(np.nan_to_num(choice.probability))


def _unsure(rounds: int, model_error: float) -> str:
    if rounds < MIN_ROUNDS:
        return f"{count(rounds, 'round')}: too few to say how sure"
    if math.isnan(model_error):
        return "how well it predicts could not be tested, so not how sure this is"
    return f"{count(rounds, 'round')}: too noisy to say how sure"


def answer(ranked: Ranking, objective: str) -> str:
    """`probably cut at 7 (features.6) over tcp: 83 ms`, or the points between which it is a toss-up."""
    if ranked.sure == TOSS_UP and len(ranked.contenders) > 1:
        named = [
            f"{each.place} ({', '.join(filter(None, (each.sent, each.figure(objective), each.sureness)))})"
            for each in ranked.contenders
        ]
        text = f"{TOSS_UP} between {', '.join(named[:-1])} and {named[-1]}"
        return text + _not_compared(ranked, ranked.contenders)
    probably = f"probably ({ranked.best.sureness}) " if ranked.sure == "likely" else ""
    sends = f" ({ranked.best.sent})" if ranked.best.sent else ""
    text = f"{probably}{ranked.best.order}{sends}: {ranked.best.figure(objective)}"
    return text + _not_compared(ranked, [ranked.best])


def _not_compared(ranked: Ranking, named: Sequence[Choice]) -> str:
    """`, but all on the server was not measured`, after a cut; empty if none is named, or nothing is missing."""
    has_cut = any(not choice.place.startswith((EDGE, SERVER)) for choice in named)
    if not (has_cut and ranked.unmeasured):
        return ""
    were = "were" if len(ranked.unmeasured) > 1 else "was"
    return f", but {' and '.join(ranked.unmeasured)} {were} not measured"


def _probabilities(
    costs: Floats, of_rounds: Floats, points: npt.NDArray[Any], floor: Floats, seed: int
) -> Floats:
    """The probability of each cell to be best; NaN where none holds. of_rounds: rounds x cells; costs, floor: cells."""
    if not np.isfinite(floor).all():
        return np.full(len(costs), np.nan)
    measured = np.where(np.isfinite(of_rounds), of_rounds, np.nan)[:, :, None]
    draws = posterior.draws(measured, points, floor[:, None], costs[:, None], seed=seed)
    return np.full(len(costs), np.nan) if draws is None else draws.stated(best_shares(draws.values[:, :, 0]))


def best_shares(costs: Floats) -> Floats:
    """The share of draws (draws x cells) in which each cell costs least. Those that cost the same divide it."""
    least = costs <= costs.min(axis=1, keepdims=True) + 1e-12
    return np.asarray((least / least.sum(axis=1, keepdims=True)).mean(axis=0))


def _feasible(central: Predictor, conditions: Mapping[str, float], where: str) -> Bools:
    """Mask of the cells that satisfy the constraint."""
    figures = dict.fromkeys((*KEPT, *quality.COLUMNS))
    frame = central.cells.drop(columns=[name for name in figures if central.cells[name].isna().all()])
    latency_s, throughput_ips = central.latency_s(**conditions), central.throughput_ips(**conditions)
    frame = frame.assign(latency_s=latency_s, throughput_ips=throughput_ips)
    return np.asarray(Where.parse(where).holds(frame))


def _choices(
    central: Predictor,
    by_round: Predictor,
    present: Bools,
    conditions: Mapping[str, float],
    spreads: Mapping[str, Floats],
    shares: Floats,
    input_type: str,
) -> tuple[Choice, ...]:
    figures = []
    for name, middle, of_rounds in (
        ("latency", central.latency_s(**conditions), by_round.latency_s(**conditions)),
        ("throughput", central.throughput_ips(**conditions), by_round.throughput_ips(**conditions)),
    ):
        known = np.where(present & np.isfinite(of_rounds), of_rounds, np.nan)
        low, high = significance.median_intervals(known.T)
        # What is off is a share, either way.
        low, high = (
            middle * np.exp(sign * np.hypot(np.log(end / middle), Z * spreads[name]))
            for sign, end in ((-1, low), (1, high))
        )
        figures += [middle, low, high]
    return tuple(
        Choice(
            row["codec"],
            row["engine"],
            row["backend"],
            row["point"],
            row["point_name"],
            place(row),
            order(row),
            doing(row),
            sent(row, input_type),
            *map(float, of_cell),
        )
        for row, of_cell in zip(
            central.cells.to_dict("records"), np.transpose([*figures, shares]), strict=True
        )
    )

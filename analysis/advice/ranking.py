"""The points of one workload in one network, ranked, and how sure it is."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd

from pareto.analysis.advice.crossovers import Crossover, crossovers, named_points
from pareto.analysis.advice.observed import CELL, KEPT, MIN_ROUNDS
from pareto.analysis.advice.predict import Ensemble
from pareto.analysis.advice.rivals import Rival, Tried, sentence
from pareto.analysis.fronts import quality
from pareto.analysis.fronts.where import Where
from pareto.analysis.naming import count
from pareto.analysis.prediction.network import UNSHAPED, Network
from pareto.analysis.runs.points import NONE, cuts
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
    besides: the noise floor, and how far predictions are off (NaN where that is not known). Where nothing crosses there
    is no backend and no codec. engine: empty where there is one. probability: of being the best (`ranking`); NaN where
    none holds. place, order, doing, sent: in words (`analysis.wording`).
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

    @property
    def end(self) -> str:
        """The words for the host that has the whole model, `EDGE` or `SERVER`; empty text for a cut."""
        return EDGE if self.backend == NONE else SERVER if set(cuts(self.point)) == {0} else ""

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

    rounds: of the best. profile: the measured one that the figures are of, empty if they are predicted. unsure: why no
    probability is stated. unmeasured: which of `all on the server` and `all on the edge` were not tried. rivals: what
    was tried, has no valid trial, and could be better. unsure_along: along what (`rate`, `delay`) another point than
    the ranked ones could be better somewhere.
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

    With `profile`, the name of one that is this network, the figures are those measured there. Crossovers are those of
    the predictions where these put the same point first here; else of a model scaled to what was measured; without a
    network there are none. tried: all trials that were made here, valid or not: where a point without a valid one could
    be better by its bound, no probability of being the best holds.

    Probabilities are of draws of what each point may take in truth (`analysis.statistics.posterior`): by what each
    round by itself says, by the run's noise floor, and, where it is predicted, by the objective's own of
    `model_errors`, a standard deviation (NaN: not known, and no probability is stated). Raises `UserError`.
    """
    conditions = vars(network or UNSHAPED)
    models = ensemble.measured(profile, network) if profile else ensemble.predicted
    observed, blocks = ensemble.observed, ensemble.blocks
    there, blocks_there = (each.at(profile) if profile else each for each in (observed, blocks))
    rounds = there.rounds
    figures = {name: getattr(models[0], name)(**conditions) for name in significance.MEASURES.values()}
    known = (rounds > 0) & np.isfinite(models[0].cost(objective, **conditions))
    kept = np.flatnonzero(known & _feasible(observed.cells.assign(**figures), where))
    if among is not None:
        cells = observed.cells.loc[kept, CELL].itertuples(index=False, name=None)
        kept = kept[[cell in among for cell in cells]]
    if not len(kept):
        raise UserError(
            f"no point satisfies {where!r} here" if where else "no valid point satisfies what is asked"
        )
    central, by_round = (model.only(kept) for model in models)
    present, rounds = blocks_there.present[:, kept], rounds[kept]
    costs = central.cost(objective, **conditions)
    is_exact = central.cells["backend"].eq(NONE).to_numpy() | bool(profile)
    errors = dict.fromkeys(significance.MEASURES, 0.0) | dict(model_errors or {})
    spreads = {
        name: np.hypot(ensemble.floor.shares.get(column, 0.0), np.where(is_exact, 0.0, errors[name]))
        for name, column in significance.MEASURES.items()
    }
    rivals: list[Rival] = []
    if tried is not None:
        least = float(costs.min())
        rivals = tried.rivals(least if objective == "latency" else 1 / least, objective)
    shares = np.full(len(kept), np.nan)
    if not rivals and np.isfinite(spreads[objective]).all():
        of_rounds = by_round.cost(objective, **conditions)
        of_rounds = np.where(present & np.isfinite(of_rounds), of_rounds, np.nan)[:, :, None]
        points, floor = central.cells["point"].to_numpy(), spreads[objective][:, None]
        draws = posterior.draws(of_rounds, points, floor, costs[:, None], seed=seed)
        if draws is not None:
            shares = draws.stated(best_shares(draws.values[:, :, 0]))
    shares = np.where(rounds >= MIN_ROUNDS, shares, np.nan)
    rows = central.cells.assign(probability=shares)
    for name, column in significance.MEASURES.items():
        middle, of_rounds = (getattr(model, column)(**conditions) for model in (central, by_round))
        ends = significance.median_intervals(np.where(present & np.isfinite(of_rounds), of_rounds, np.nan).T)
        rows[column] = middle
        for sign, which, end in zip((-1, 1), ("low", "high"), ends, strict=True):
            # What is off is a share, either way.
            wide = np.exp(sign * np.hypot(np.log(end / middle), Z * spreads[name]))
            rows[column.replace("_", f"_{which}_")] = middle * wide
    by_cell = tuple(_choice(row, input_type) for row in rows.to_dict("records"))
    choices = tuple(by_cell[cell] for cell in np.argsort(costs, kind="stable"))
    switches: list[Crossover] = []
    unsure_along: frozenset[str] = frozenset()
    if network is not None:
        measured = [observed.networks[name] for name in observed.profiles]
        model, model_by_round = (each.only(kept) for each in ensemble.predicted)
        names = named_points(central)
        if names[np.argmin(costs)] != names[np.argmin(model.cost(objective, **conditions))]:
            model, model_by_round = central, by_round
        switches = crossovers(model, model_by_round, blocks.present[:, kept], network, objective, measured)
        unsure_along = tried.unsure_along(model, network, objective) if tried is not None else unsure_along
    best_rounds = int(rounds[np.argmin(costs)])
    likeliest = max(choices, key=lambda choice: np.nan_to_num(choice.probability))
    unsure = ""
    if rivals:
        unsure = sentence(rivals, objective)
    elif math.isnan(choices[0].probability):
        unsure = _unsure(best_rounds, errors[objective])
    elif choices[0].probability < LIKELY <= likeliest.probability:
        # Medians over unlike rounds are no comparison.
        unsure = f"within the rounds that both have {likeliest.place} is better, {likeliest.sureness}"
    elif np.sort(np.nan_to_num(shares))[-NAMED:].sum() < EVEN:
        unsure = "too many come too close to say how sure"
    others = [] if tried is None else [tried.lost(), tried.struck]
    every = [
        place(row) for each in (observed.cells[there.rounds > 0], *others) for row in each.to_dict("records")
    ]
    unmeasured = tuple(end for end in (SERVER, EDGE) if not any(name.startswith(end) for name in every))
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


def _feasible(cells: pd.DataFrame, where: str) -> Bools:
    """Mask of the cells that satisfy the constraint, which may be on what is known of any."""
    unknown = [name for name in dict.fromkeys((*KEPT, *quality.COLUMNS)) if cells[name].isna().all()]
    return np.asarray(Where.parse(where).holds(cells.drop(columns=unknown)))


def _choice(row: dict[Hashable, Any], input_type: str) -> Choice:
    words = {"place": place(row), "order": order(row), "doing": doing(row), "sent": sent(row, input_type)}
    figures: dict[str, Any] = {each.name: (row | words)[each.name] for each in fields(Choice)}
    return Choice(**figures)


def _unsure(rounds: int, model_error: float) -> str:
    if rounds < MIN_ROUNDS:
        return f"{count(rounds, 'round')}: too few to say how sure"
    if math.isnan(model_error):
        return "how well it predicts could not be tested, so not how sure this is"
    return f"{count(rounds, 'round')}: too noisy to say how sure"


def answer(ranked: Ranking, objective: str) -> str:
    """`probably cut at 7 (features.6) over tcp: 83 ms`, or the points between which it is a toss-up."""
    named: Sequence[Choice] = [ranked.best]
    if ranked.sure == TOSS_UP and len(ranked.contenders) > 1:
        named = ranked.contenders
        *most, last = [
            f"{each.place} ({', '.join(filter(None, (each.sent, each.figure(objective), each.sureness)))})"
            for each in named
        ]
        text = f"{TOSS_UP} between {', '.join(most)} and {last}"
    else:
        probably = f"probably ({ranked.best.sureness}) " if ranked.sure == "likely" else ""
        sends = f" ({ranked.best.sent})" if ranked.best.sent else ""
        text = f"{probably}{ranked.best.order}{sends}: {ranked.best.figure(objective)}"
    if not ranked.unmeasured or all(choice.end for choice in named):
        return text
    were = "were" if len(ranked.unmeasured) > 1 else "was"
    return f"{text}, but {' and '.join(ranked.unmeasured)} {were} not measured"


def best_shares(costs: Floats) -> Floats:
    """The share of draws (draws x cells) in which each cell costs least. Those that cost the same divide it."""
    least = costs <= costs.min(axis=1, keepdims=True) + 1e-12
    return np.asarray((least / least.sum(axis=1, keepdims=True)).mean(axis=0))

"""From what rate, or delay, on another point is best than in a network; and from what rate on a codec pays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pareto.analysis.advice.predict import Predictor
from pareto.analysis.fronts.quality import is_none
from pareto.analysis.prediction.network import Network
from pareto.analysis.runs.points import NONE
from pareto.analysis.runs.treatments import STANDS_FOR
from pareto.analysis.schema import BETWEEN
from pareto.analysis.statistics.samples import Bools, Floats, interval
from pareto.analysis.wording import interval as in_words

RATES_BPS = (1e4, 1e11)
DELAYS_S = (1e-5, 2.0)
"""No crossover is looked for beyond these ranges: no network is there."""
RANGES = {"rate": ("rate_bps", RATES_BPS), "delay": ("delay_s", DELAYS_S)}
"""The field of a network along which crossovers are looked for, and its range."""
STEPS = 401
"""Places looked at from one end of a range to the other, in equal ratios; a crossover between two is then found to
rounding. A point that is best between two of them only is not seen."""
_TINY = 1e-9
"""Costs closer than this share are the same."""


@dataclass(frozen=True)
class Crossover:
    """From `at` on (s of `delay`, or bit/s of `rate`, out), up or down from the wanted network, `cell` (row of the
    predictor's cells) is best. low, high: 95 % interval, NaN where there is none: too few rounds, or too many of them
    have no such crossover. extrapolated: beyond what the measured profiles span.
    """

    along: str
    upwards: bool
    at: float
    cell: int
    low: float
    high: float
    extrapolated: bool

    def when(self, say: Callable[[float], str]) -> str:
        """`from 26 Mbit/s on (95 %: 22 to 29 Mbit/s), extrapolated`."""
        at = f"from {say(self.at)} on" if self.upwards else f"below {say(self.at)}"
        return f"{at}{in_words(self.low, self.high, say)}{', extrapolated' if self.extrapolated else ''}"


def crossovers(
    central: Predictor,
    by_round: Predictor,
    present: Bools,
    network: Network,
    objective: str,
    measured: Sequence[Network],
) -> list[Crossover]:
    """Crossovers to another point: the nearest on each side, along the rate at this delay, then along the delay. The
    way back stays as it is. The interval is that of the median of the rounds' own crossovers.

    by_round: the cells from each round alone; present: rounds x cells, which were measured. measured: the profiles.
    """
    result, names = [], named_points(central)
    for along, (field, ends) in RANGES.items():

        def cost(places: Floats, of: Predictor = central, field: str = field) -> Floats:
            return of.cost(objective, **vars(network) | {field: places})

        here = min(max(getattr(network, field), ends[0]), ends[1])
        before = int(np.argmin(cost(np.array([here]))[0]))
        # The same point over another backend is no other point: which backend is better does not hang on the network.
        others = names != names[before]
        span = [getattr(each, field) for each in measured]
        for upwards, end in ((True, ends[1]), (False, ends[0])):
            at = _beaten(cost, others, here, end)
            if at is None:
                continue
            after = int(np.argmin(np.where(others, cost(np.array([at]))[0], np.inf)))
            places = np.geomspace(*ends, STEPS)[:: 1 if upwards else -1]
            costs = cost(places[:, None], by_round.only(np.array([before, after])))
            ahead = (costs[..., 0] - costs[..., 1])[:, present[:, before] & present[:, after]]
            # A round without one: the second is better everywhere, so from before the first place on, or nowhere.
            outside = np.where(ahead[0] > 0, -np.inf, np.inf) * (1 if upwards else -1)
            low, high = _interval(ahead, places, at, outside)
            extrapolated = not min(span, default=math.inf) <= at <= max(span, default=-math.inf)
            result.append(Crossover(along, upwards, at, after, low, high, extrapolated))
    return result


def named_points(predictor: Predictor) -> npt.NDArray[Any]:
    """Each cell's codec and point. With another codec it is another choice: which is better hangs on the network."""
    names = predictor.cells["codec"].astype("str") + " " + predictor.cells["point"].astype("str")
    return np.asarray(names)


def _beaten(cost: Callable[[Floats], Floats], others: Bools, here: float, end: float) -> float | None:
    """The place on the way from `here` to `end` at which one of the others is first better than all that are not."""
    if not others.any():
        return None

    def beaten(places: Floats) -> Bools:
        costs = cost(places)
        return np.asarray(costs[..., others].min(axis=-1) < costs[..., ~others].min(axis=-1) * (1 - _TINY))

    places = np.geomspace(here, end, STEPS)
    after = np.flatnonzero(beaten(places))
    if not len(after) or after[0] == 0:
        return None
    near, far = map(float, places[after[0] - 1 : after[0] + 1])
    while not math.isclose(near, far, rel_tol=1e-9):
        middle = math.sqrt(near * far)
        near, far = (near, middle) if beaten(np.array([middle]))[0] else (middle, far)
    return far


def _interval(ahead: Floats, places: Floats, at: float, outside: Floats | float) -> tuple[float, float]:
    """The 95 % interval of the place nearest to `at` where each round's lead (places x rounds) becomes positive.

    outside: the logarithm of the place that counts where a round has none. NaN: no interval, or it has no end.
    """
    logs = np.log(places)
    step, number = np.nonzero((ahead[:-1] <= 0) & (ahead[1:] > 0))
    before, after = ahead[step, number], ahead[step + 1, number]
    crossed = np.full(ahead[1:].shape, np.nan)
    crossed[step, number] = logs[step] + (logs[step + 1] - logs[step]) * before / (before - after)
    off = np.where(np.isnan(crossed), np.inf, np.abs(crossed - math.log(at)))
    nearest = np.take_along_axis(crossed, off.argmin(axis=0)[None], axis=0)[0]
    both = interval(np.where(np.isnan(nearest), outside, nearest))
    if both is None or not np.isfinite(both).all():
        return math.nan, math.nan
    return math.exp(both[0]), math.exp(both[1])


class Pays(NamedTuple):
    """The rates (bit/s; 0 and inf: no end) between which the best point with a codec is faster than that without.

    low_ends, high_ends: 95 % intervals of both, NaN where there is none: too few rounds, or too many of them have no
    such end. sure: in the middle between them the rounds agree that it does.
    """

    low: float
    high: float
    low_ends: tuple[float, float]
    high_ends: tuple[float, float]
    sure: bool


def pays(central: Predictor, by_round: Predictor, present: Bools, network: Network) -> dict[str, Pays | None]:
    """The rates between which each codec pays, at the delay of a network; None for one that pays nowhere.

    The cells are of several codecs; those of one are its own, and those that come to the same with it. Against it stand
    the points without a codec and those where nothing crosses: without one of them there is nothing to compare.
    by_round: the same cells from each round alone; present: rounds x cells, which of these were measured.
    """
    cells = central.cells
    plain = (is_none(cells["codec"]) | cells["backend"].eq(NONE)).to_numpy()
    names_of = (cells["codec"].astype("str") + BETWEEN + cells[STANDS_FOR]).str.split(BETWEEN)
    names = sorted({name for names in names_of[~plain] for name in names if name}) if plain.any() else []
    rates = np.geomspace(*RATES_BPS, STEPS)
    costs = central.cost("latency", **vars(network) | {"rate_bps": rates})
    of_rounds = by_round.cost("latency", **vars(network) | {"rate_bps": rates[:, None]})
    of_rounds = np.where(present, of_rounds, np.inf)
    found: dict[str, Pays | None] = {}
    for codec in names:
        mine = ~plain & [codec in of for of in names_of]
        ahead = costs[:, plain].min(axis=1) - costs[:, mine].min(axis=1)
        least, plain_least = of_rounds[..., mine].min(axis=-1), of_rounds[..., plain].min(axis=-1)
        known = np.isfinite(least).all(axis=0) & np.isfinite(plain_least).all(axis=0)
        found[codec] = _pays(ahead, (plain_least - least)[:, known], rates)
    return found


def _pays(ahead: Floats, each: Floats, rates: Floats) -> Pays | None:
    """The widest range of rates, by their ratio, in which a codec is ahead. each: the lead by each round alone."""
    inside = np.diff(np.concatenate([[False], np.nan_to_num(ahead, nan=-1.0) > 0, [False]]).astype(int))
    starts, afters = np.flatnonzero(inside > 0), np.flatnonzero(inside < 0)
    if not len(starts):
        return None
    widest = int(np.argmax(afters - starts))

    def zero(after: int) -> float:
        share = ahead[after - 1] / (ahead[after - 1] - ahead[after])
        return float(rates[after - 1] * (rates[after] / rates[after - 1]) ** share)

    low = zero(starts[widest]) if starts[widest] else 0.0
    high = zero(afters[widest]) if afters[widest] < len(rates) else math.inf
    none = math.nan, math.nan
    # A round that has no such end is ahead beyond all rates. What ends is what begins, seen from above.
    low_ends = _interval(each, rates, low, -math.inf) if low > 0 else none
    high_ends = _interval(each[::-1], rates[::-1], high, math.inf) if high < math.inf else none
    middle = math.sqrt(max(low, RATES_BPS[0]) * min(high, RATES_BPS[1]))
    leads = interval(each[int(np.argmin(np.abs(np.log(rates / middle))))])
    return Pays(low, high, low_ends, high_ends, leads is not None and leads[0] > 0)

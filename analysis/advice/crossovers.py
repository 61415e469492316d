"""From what rate, or delay, on another point is best than in a network."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from pareto.analysis.advice.predict import Predictor
from pareto.analysis.prediction.network import Network
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
    """From `at` on (s of `delay`, or bit/s of `rate`, out), up or down from the wanted network, `cell` is best.

    `low`, `high`: 95 % interval, NaN where there is none: too few rounds (`analysis.statistics.samples.interval`), or
    too many of them have no such crossover. `cell`: row of the predictor's cells. `extrapolated`: beyond what the
    measured profiles span.
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
    """Crossovers to another point: the nearest on each side, along the rate at this delay, then along the delay.

    `by_round`: the same cells from each round alone; `present`: rounds x cells, which of these were measured.
    `measured`: the networks of the profiles. The way back stays as it is. The interval is that of the median of the
    rounds' own crossovers.
    """
    result = []
    points = named_points(central)

    def cost(of: Predictor, field: str, values: Floats) -> Floats:
        return of.cost(objective, **vars(network) | {field: values})

    for along, (field, ends) in RANGES.items():
        here = min(max(getattr(network, field), ends[0]), ends[1])
        span = [getattr(each, field) for each in measured]
        for upwards, end in ((True, ends[1]), (False, ends[0])):
            switch = _switch(partial(cost, central, field), points, here, end)
            if switch is None:
                continue
            at, before, after = switch
            places = np.geomspace(*ends, STEPS)[:: 1 if upwards else -1]
            pair = by_round.only(np.array([before, after]))
            costs = cost(pair, field, places[:, None])
            ahead = (costs[..., 0] - costs[..., 1])[:, present[:, before] & present[:, after]]
            # A round without one: the second is better everywhere, so from before the first place on, or nowhere.
            outside = np.where(ahead[0] > 0, -np.inf, np.inf) * (1 if upwards else -1)
            low, high = crossing_interval(ahead, places, at, outside)
            extrapolated = not min(span, default=math.inf) <= at <= max(span, default=-math.inf)
            result.append(Crossover(along, upwards, at, after, low, high, extrapolated))
    return result


def named_points(predictor: Predictor) -> npt.NDArray[Any]:
    """Each cell's codec and point. With another codec it is another choice: which is better hangs on the network."""
    names = predictor.cells["codec"].astype("str") + " " + predictor.cells["point"].astype("str")
    return np.asarray(names)


def _switch(
    cost: Callable[[Floats], Floats], points: npt.NDArray[Any], here: float, end: float
) -> tuple[float, int, int] | None:
    """The place where the point best `here` is first beaten on the way to `end`; its cell, and the better one."""
    best = int(np.argmin(cost(np.array([here]))[0]))
    # The same point over another backend is no other point: which backend is better does not hang on the network.
    mine = points == points[best]
    if mine.all():
        return None

    def beaten(costs: Floats) -> Bools:
        return np.asarray(costs[..., ~mine].min(axis=-1) < costs[..., mine].min(axis=-1) * (1 - _TINY))

    places = np.geomspace(here, end, STEPS)
    after = np.flatnonzero(beaten(cost(places)))
    if not len(after) or after[0] == 0:
        return None
    near, far = map(float, places[after[0] - 1 : after[0] + 1])
    while not math.isclose(near, far, rel_tol=1e-9):
        middle = math.sqrt(near * far)
        near, far = (near, middle) if beaten(cost(np.array([middle])))[0] else (middle, far)
    return far, best, int(np.argmin(np.where(mine, np.inf, cost(np.array([far]))[0])))


def crossing_interval(
    ahead: Floats, places: Floats, at: float, outside: Floats | float
) -> tuple[float, float]:
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

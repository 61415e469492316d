"""Whether testbeds of equal hardware agree, and the figures of all of them at one level.

On a logarithmic scale a round's level is what its trials have in common, taken out of what they differ by (a median
polish; Tukey, "Exploratory Data Analysis", 1977). Levels are compared by a one-way random-effects model

    level of a round = the mean + what its testbed adds + what the round adds

with any number of rounds on each testbed. With Q(ratio) the weighted squares between testbeds' means, weights
n / (1 + n ratio), over their degrees of freedom and the variance within testbeds, Q is F-distributed at the true ratio
of the two variances. So Q(0) is the F test of whether they agree, and where Q meets the quantiles of F are the ends of
an interval of the ratio, which is exact for normal rounds (Wald, "A note on the analysis of variance with unequal class
frequencies", Annals of Mathematical Statistics 11, 1940; for known variances it is the Q-profile of Viechtbauer,
"Confidence intervals for the amount of heterogeneity in meta-analysis", Statistics in Medicine 26, 2007). Where it
meets the median of F is the estimate. docs/analysis.md has what of it holds by simulation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import special

from analysis.engines import without_engine
from analysis.fronts.cells import ACTIVES, ENERGIES, MEDIANS
from analysis.points import CELL, round_of
from analysis.runs.setups import some, without_factors
from analysis.standing import stands
from analysis.statistics import significance
from analysis.statistics.samples import OUTSIDE, Floats, Ints

KEY = ["model", "netem", "setup"]
"""What is the same for all trials of a task: they are measured on one testbed in each round."""
COLUMNS = [
    *(*KEY, "measure", "testbed", "rounds"),
    *("difference_percent", "low_percent", "high_percent"),
    *("spread_percent", "spread_low_percent", "spread_high_percent"),
    *("p_value", "p_corrected", "differ"),
]
LEVELLED = [*(name for name in MEDIANS if name.endswith(("_s", "_ips"))), *ENERGIES, *ACTIVES]
"""The columns whose figures `levelled` brings to one level."""
NOTABLE = 0.05
"""Where rounds would hide a difference between testbeds as large as this, it is not said that they agree."""
_TINY = 1e-18
"""A variance: of figures that vary by less than a billionth."""
_SWEEPS = 10


@dataclass(frozen=True)
class Between:
    """The levels of testbeds (natural logarithms): how many `rounds` each has, their `means`, and the variance `within`
    a testbed, which `freedom` degrees of freedom tell.
    """

    testbeds: Sequence[str]
    rounds: Ints
    means: Floats
    within: float
    freedom: int

    def over_within(self, ratio: float) -> float:
        """Q: the variance between testbeds over that within, if their true ratio is this; about 1 if it is."""
        weights = self.rounds / (1 + self.rounds * ratio)
        away = self.means - np.average(self.means, weights=weights)
        return float((weights * away**2).sum() / (len(self.means) - 1) / max(self.within, _TINY))

    def ratio(self, quantile: float) -> float:
        """The true ratio of the variances at which Q is that quantile of F; 0 where Q is less at any."""
        target = float(special.fdtri(len(self.means) - 1, self.freedom, quantile))
        if self.over_within(0.0) <= target:
            return 0.0
        squares = float(((self.means - self.means.mean()) ** 2).sum())
        most = squares / (len(self.means) - 1) / max(self.within, _TINY) / target
        from scipy.optimize import brentq  # takes long to import, and is seldom needed

        return float(brentq(lambda ratio: self.over_within(ratio) - target, 0.0, 2 * most, xtol=1e-9))

    @property
    def p_value(self) -> float:
        """How likely rounds alone make testbeds differ as much."""
        return float(special.fdtrc(len(self.means) - 1, self.freedom, self.over_within(0.0)))

    @property
    def spread(self) -> tuple[float, float, float]:
        """The standard deviation between testbeds, and its 95 % interval."""
        quantiles = (0.5, 1 - OUTSIDE, OUTSIDE)
        middle, low, high = (math.sqrt(self.ratio(each) * max(self.within, _TINY)) for each in quantiles)
        return middle, low, high

    @property
    def effects(self) -> Floats:
        """What each testbed adds, as far as its rounds show it: drawn towards 0 by what they leave open (the best
        linear unbiased prediction; Robinson, "That BLUP is a good thing", Statistical Science 6, 1991).
        """
        ratio = self.ratio(0.5)
        shown = self.rounds * ratio / (1 + self.rounds * ratio)
        centre = np.average(self.means, weights=self.rounds / (1 + self.rounds * ratio))
        return np.asarray(shown * (self.means - centre))

    def differences(self) -> Iterator[tuple[float, float, float]]:
        """Of each testbed, how far its level is from the mean of the others', with an interval; all intervals hold
        together with 95 % (Bonferroni's)."""
        many = len(self.means)
        at_once = many if many > 2 else 1  # of two, one is the other's mirror image
        far = float(special.stdtrit(self.freedom, 1 - OUTSIDE / at_once)) * math.sqrt(self.within)
        for place in range(many):
            others = np.arange(many) != place
            middle = self.means[place] - self.means[others].mean()
            error = math.sqrt(1 / self.rounds[place] + (1 / self.rounds[others]).sum() / (many - 1) ** 2)
            yield middle, middle - far * error, middle + far * error


def between(levels: Floats, testbed: npt.NDArray[np.object_]) -> Between | None:
    """What testbeds differ by, from the levels of rounds (NaN: none); None of one testbed, or of a round on each."""
    known = ~np.isnan(levels)
    names, number, rounds = np.unique(testbed[known], return_inverse=True, return_counts=True)
    freedom = int(known.sum()) - len(names)
    if len(names) < 2 or freedom < 1:
        return None
    means = np.bincount(number, levels[known]) / rounds
    within = float(((levels[known] - means[number]) ** 2).sum()) / freedom
    return Between([str(name) for name in names], rounds, means, within, freedom)


def round_levels(logs: Floats) -> Floats:
    """The level of each round, of rounds x cells (NaN: no trial): what remains when each cell's own is taken out."""
    levels, known = np.zeros(len(logs)), ~np.isnan(logs).all(axis=1)
    logs = logs[:, ~np.isnan(logs).all(axis=0)]
    if not known.any():
        return np.full(len(logs), np.nan)
    for _ in range(_SWEEPS):
        cells = np.nanmedian(logs - levels[:, None], axis=0)
        levels[known] = np.nanmedian(logs[known] - cells, axis=1)
    return np.where(known, levels, np.nan)


def levelled(trials: pd.DataFrame) -> pd.DataFrame:
    """The trials, with the figures of all testbeds of equal hardware as on their mean.

    Each model, network and setup by itself, and each figure: one factor for all trials of a testbed, so that whatever
    is compared within a round stays as it is. It takes out what the testbed's rounds show it to add (`Between`), which
    is nothing where testbeds differ no more than their rounds do. As they are where no task has several testbeds.
    """
    if "testbed" not in trials or trials["testbed"].nunique() < 2:
        return trials
    columns = [name for name in LEVELLED if name in trials]
    factors = np.ones((len(trials), len(columns)))
    for rows in _tasks(trials):
        testbed = rows["testbed"].astype(object).to_numpy()
        for place, column in enumerate(columns):
            known = between(*_levels(rows, column))
            if known is not None:
                of_testbed = dict(zip(known.testbeds, np.exp(-known.effects), strict=True))
                factors[rows["at"].to_numpy(), place] = [of_testbed.get(name, 1.0) for name in testbed]
    return trials.assign(
        **{name: trials[name].to_numpy() * factors[:, place] for place, name in enumerate(columns)}
    )


def agreement(trials: pd.DataFrame) -> pd.DataFrame:
    """One row for each testbed of each task that has several, and measure (`latency`, `throughput`); columns `COLUMNS`.

    difference_percent: how far the level of the testbed's rounds is from the mean of the others', with an interval.
    spread_percent: the standard deviation between testbeds of this kind, with an interval: what another one is to be
    expected to differ by. p_value: of the hypothesis that they agree; p_corrected: Holm's over all tests of the frame;
    differ: it is 0.05 at most. Where each testbed has one round, only the rounds are known. Takes trials as they were
    measured.
    """
    made: list[dict[str, object]] = []
    tests: list[float] = []
    for rows in _tasks(trials) if "testbed" in trials else ():
        for measure, column in significance.MEASURES.items():
            levels, testbed = _levels(rows, column)
            known, named = between(levels, testbed), rows.iloc[0][KEY].to_dict() | {"measure": measure}
            if known is None:
                names, counts = np.unique(testbed[~np.isnan(levels)], return_counts=True)
                made += [
                    named | {"testbed": name, "rounds": n} for name, n in zip(names, counts, strict=True)
                ]
                continue
            spread, low, high = (100 * math.expm1(each) for each in known.spread)
            for name, n, ends in zip(known.testbeds, known.rounds, known.differences(), strict=True):
                of_one = dict(zip(COLUMNS[6:9], (100 * math.expm1(each) for each in ends), strict=True))
                of_all = dict(zip(COLUMNS[9:12], (spread, low, high), strict=True))
                made.append(named | {"testbed": name, "rounds": n, **of_one, **of_all, "test": len(tests)})
            tests.append(known.p_value)
    frame = pd.DataFrame(made).reindex(columns=[*COLUMNS, "test"])
    number = frame.pop("test")
    p_values = np.array([*tests, np.nan])
    corrected = np.array([*significance.holm(p_values[:-1]), np.nan])
    place = number.fillna(-1).astype(int).to_numpy()
    frame["p_value"], frame["p_corrected"] = p_values[place], corrected[place]
    frame["differ"] = frame["p_corrected"] <= significance.ALPHA
    return frame


def _tasks(trials: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """The trials that count of each task with several testbeds; `at`: their places; `setup` is that of the hosts."""
    ok = stands(trials).to_numpy()
    rows = trials.assign(at=np.arange(len(trials)), cell=_number(trials, CELL), in_round=round_of(trials))[ok]
    rows["setup"] = without_factors(without_engine(rows))
    for _, of_task in rows.groupby(KEY, dropna=False, observed=True, sort=True):
        if of_task["testbed"].nunique() > 1:
            yield of_task


def _number(rows: pd.DataFrame, by: Sequence[str]) -> Ints:
    return np.asarray(rows.groupby(list(by), dropna=False, observed=True).ngroup())


def _levels(rows: pd.DataFrame, column: str) -> tuple[Floats, npt.NDArray[np.object_]]:
    """The level of each round in a column, and its testbed."""
    figures = rows[rows[column] > 0]
    in_round, rounds = pd.factorize(figures["in_round"], sort=True)
    cell, cells = pd.factorize(figures["cell"])
    logs = np.full((len(rounds), len(cells)), np.nan)
    logs[in_round, cell] = np.log(figures[column].to_numpy(dtype=float))
    testbed = figures.drop_duplicates("in_round").sort_values("in_round")["testbed"]
    return round_levels(logs), testbed.astype(object).to_numpy()


def sentences(rows: pd.DataFrame) -> Iterator[str]:
    """At most a line on testbeds that agree, or one on those that differ, and one where that is not known; `rows` of
    `agreement`."""
    known = rows[rows["p_value"].notna()]
    if len(rows) > len(known):
        yield "whether testbeds agree is not known where each measured one round (to mend: --trials)"
    if known.empty:
        return
    differing, comparisons = known[known["differ"]], len(known[[*KEY, "measure"]].drop_duplicates())
    if differing.empty:
        yield _agreeing(known)
        return
    worst = differing.loc[differing["difference_percent"].abs().idxmax()]
    more = len(differing[[*KEY, "measure"]].drop_duplicates()) - 1
    others = (
        known[(known[[*KEY, "measure"]] == worst[[*KEY, "measure"]]).all(axis=1)]["testbed"].nunique() - 1
    )
    low, high = sorted(abs(worst[["low_percent", "high_percent"]].astype(float)))
    also = f", and {more} more of {comparisons} comparisons differ" if more else ""
    spread = "What another one would differ by, two do not tell"
    if others > 1:
        spread = (
            f"Between such testbeds it has a standard deviation of {worst['spread_percent']:.1f} % "
            f"({worst['spread_low_percent']:.1f} to {worst['spread_high_percent']:.1f} %)"
        )
    yield (
        f"testbeds differ: the {worst['measure']} of {worst['testbed']} is {abs(worst['difference_percent']):.1f} % "
        f"({low:.1f} to {high:.1f} %) {'higher' if worst['difference_percent'] > 0 else 'lower'} than that of "
        f"{f'the other {others}' if others > 1 else 'the other one'}, {worst['model']} at {worst['netem']}{also}. "
        f"{spread}. Figures are as on the mean of these testbeds, their intervals hold for these alone, and points are "
        "compared within each of them"
    )


def _agreeing(known: pd.DataFrame) -> str:
    names = some(list(dict.fromkeys(known["testbed"])))
    ends = known[["low_percent", "high_percent"]].abs().max(axis=1)
    worst, most = known.loc[ends.idxmax()], known["difference_percent"].abs().max()
    where = f"{worst['measure']}, {worst['model']} at {worst['netem']}"
    if ends.max() > 100 * NOTABLE:
        return (
            f"whether testbeds agree is known roughly: their rounds explain what {names} differ by, {most:.1f} % or "
            f"less, and would hide up to {ends.max():.0f} % ({where})"
        )
    return (
        f"testbeds agree: none of {names} differs from the others by more than {most:.1f} %, which their rounds "
        f"explain, and {ends.max():.1f} % is the most to be expected ({where})"
    )

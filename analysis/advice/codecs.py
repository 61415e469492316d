"""From what rate on a codec pays: the best point with it against the best without one, over the rate of the link."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pareto.analysis.advice.advise import title
from pareto.analysis.advice.crossovers import RATES_BPS, STEPS, crossing_interval
from pareto.analysis.advice.observed import OVER_CODECS, observe, workloads
from pareto.analysis.advice.predict import Ensemble, Predictor, advisable
from pareto.analysis.fronts.quality import SAME_OUTPUT, WORDS, is_none, span
from pareto.analysis.prediction.network import Network, networks
from pareto.analysis.runs.points import NO_CODEC, NONE, STANDS_FOR
from pareto.analysis.schema import BETWEEN
from pareto.analysis.statistics.noise import Floors, floors
from pareto.analysis.statistics.samples import Bools, Floats, interval
from pareto.analysis.wording import interval as in_words
from pareto.protocol.errors import UserError
from pareto.remote.link.units import rate

MOST = 50
"""Sentences: nobody reads more."""


class Pays(NamedTuple):
    """The rates (bit/s; 0 and inf: no end) between which the best point with a codec is faster than that without.

    low_ends, high_ends: 95 % intervals of both, NaN where there is none: too few rounds, or too many of them have no
    such end. sure: in the middle between them the rounds agree that it does.
    """

    codec: str
    low: float
    high: float
    low_ends: tuple[float, float]
    high_ends: tuple[float, float]
    sure: bool


def pays(central: Predictor, by_round: Predictor, present: Bools, network: Network) -> list[Pays]:
    """The rates between which each codec pays, at the delay of a network; one that pays nowhere is left out.

    The cells are of several codecs. Against it stand the points without a codec and those where nothing crosses.
    by_round: the same cells from each round alone; present: rounds x cells, which of these were measured.
    """
    plain = _plain(central.cells).to_numpy()
    if not plain.any():
        return []
    rates = np.geomspace(*RATES_BPS, STEPS)
    costs = central.cost("latency", **vars(network) | {"rate_bps": rates})
    of_rounds = by_round.cost("latency", **vars(network) | {"rate_bps": rates[:, None]})
    of_rounds = np.where(present, of_rounds, np.inf)
    found = []
    for codec in sorted(_codecs(central.cells)):
        mine = ~plain & _of_codec(central.cells, codec)
        ends = _widest(costs[:, plain].min(axis=1) - costs[:, mine].min(axis=1), rates)
        if ends is None:
            continue
        least, plain_least = of_rounds[..., mine].min(axis=-1), of_rounds[..., plain].min(axis=-1)
        known = np.isfinite(least).all(axis=0) & np.isfinite(plain_least).all(axis=0)
        each = (plain_least - least)[:, known]
        none = math.nan, math.nan
        # A round that has no such end is ahead beyond all rates. What ends is what begins, seen from above.
        low = crossing_interval(each, rates, ends[0], -math.inf) if ends[0] > 0 else none
        high = crossing_interval(each[::-1], rates[::-1], ends[1], math.inf) if ends[1] < math.inf else none
        middle = math.sqrt(max(ends[0], RATES_BPS[0]) * min(ends[1], RATES_BPS[1]))
        leads = interval(each[int(np.argmin(np.abs(np.log(rates / middle))))])
        found.append(Pays(codec, *ends, low, high, leads is not None and leads[0] > 0))
    return found


def _widest(ahead: Floats, rates: Floats) -> tuple[float, float] | None:
    """The widest range of rates, by their ratio, in which a codec is ahead; 0 and inf where it has no end."""
    inside = np.concatenate([[False], np.nan_to_num(ahead, nan=-1.0) > 0, [False]])
    starts, ends = np.flatnonzero(inside[1:] & ~inside[:-1]), np.flatnonzero(~inside[1:] & inside[:-1])
    if not len(starts):
        return None
    widest = int(np.argmax(ends - starts))

    def zero(before: int) -> float:
        share = ahead[before] / (ahead[before] - ahead[before + 1])
        return float(rates[before] * (rates[before + 1] / rates[before]) ** share)

    first, after = int(starts[widest]), int(ends[widest])
    return 0.0 if first == 0 else zero(first - 1), math.inf if after == len(rates) else zero(after - 1)


def sentences(
    trials: pd.DataFrame,
    stages: pd.DataFrame,
    manifests: Sequence[Mapping[str, Any]],
    struck_off: pd.DataFrame | None = None,
) -> list[str]:
    """A line for each workload and profile of one delay and rate that was measured with several codecs: from what rate
    on each of them pays, at that profile's delay.

    `may`: the rounds do not agree, or are too few for an interval. Where points have no valid trial there, or a search
    struck them off, it is said to be among those measured.
    """
    if trials["codec"].nunique() < 2:
        return []
    known, floor = networks(manifests, strict=False), floors(trials)
    lines: list[str] = []
    for rows in workloads(trials, over_codecs=True):
        if rows["codec"].nunique() > 1:
            lines += _of_workload(rows, stages, known, floor, struck_off)
    return lines[:MOST]


def _of_workload(
    rows: pd.DataFrame,
    stages: pd.DataFrame,
    known: Mapping[str, Network],
    floor: Floors,
    struck_off: pd.DataFrame | None,
) -> Iterator[str]:
    try:
        ensemble = Ensemble(observe(advisable(rows, known), stages, known), floor)
    except UserError:
        return
    for netem in ensemble.observed.profiles:
        central, by_round = ensemble.measured(netem, known[netem])
        present = ensemble.blocks.at(netem).present
        here = np.flatnonzero((ensemble.observed.at(netem).rounds > 0) & present.any(axis=0))
        measured = central.only(here)
        if not _plain(measured.cells).any():
            continue
        made = pays(measured, by_round.only(here), present[:, here], known[netem])
        among = ", among the points measured here" if _lacks(measured.cells, rows, struck_off, netem) else ""
        row = rows.iloc[0].to_dict() | {"codec": NO_CODEC}
        head = f"{title(row, netem)}, predicted at its delay{among}"
        if made:
            yield f"{head}: {'; '.join(_said(each, central.cells) for each in made)}"
        if none := sorted(_codecs(measured.cells) - {each.codec for each in made}):
            yield f"{head}: {', '.join(none)} {'pays' if len(none) == 1 else 'pay'} at no rate"


def _plain(cells: pd.DataFrame) -> pd.Series:
    """Mask of the cells that a codec has to beat: those without one, and those where nothing crosses."""
    plain: pd.Series = is_none(cells["codec"]) | cells["backend"].eq(NONE)
    return plain


def _lacks(cells: pd.DataFrame, rows: pd.DataFrame, struck_off: pd.DataFrame | None, netem: str) -> bool:
    """Whether the cells lack a point that was tried with a codec in some network, or struck off in this one."""
    tried = rows[["codec", "point"]]
    if struck_off is not None and len(struck_off):
        off = struck_off[(struck_off[OVER_CODECS] == rows.iloc[0][OVER_CODECS]).all(axis=1)]
        off = off[off["netem"] == netem]
        codec = off["codec"].where(off["payload_bytes"] > 0, NO_CODEC)
        tried = pd.concat([tried, off[["point"]].assign(codec=codec)])
    every, known = (
        pd.MultiIndex.from_frame(each[["codec", "point"]].astype("str")) for each in (tried, cells)
    )
    return not every.isin(known).all()


def _codecs(cells: pd.DataFrame) -> set[str]:
    """The codecs that change something in one of the cells, and those that come to one of these there."""
    coded = cells[~_plain(cells)]
    others = (name for names in coded[STANDS_FOR] for name in names.split(BETWEEN) if name)
    return {*coded["codec"].astype("str"), *others}


def _of_codec(cells: pd.DataFrame, codec: str) -> Bools:
    """Mask of the cells that are the codec's own, or stand for it."""
    stands = cells[STANDS_FOR].map(lambda codecs: codec in codecs.split(BETWEEN))
    return np.asarray(cells["codec"].astype("str").eq(codec) | stands)


def _said(each: Pays, cells: pd.DataFrame) -> str:
    """`int8 pays below 45 Mbit/s (95 %: 43 to 47 Mbit/s), agreement 98.5 %`."""
    low, high = (
        rate(end) + in_words(*of, rate) if 0 < end < math.inf else ""
        for end, of in ((each.low, each.low_ends), (each.high, each.high_ends))
    )
    above = f"above {low}" if low else "at any rate"
    where = (f"from {low} to {high}" if low else f"below {high}") if high else above
    return f"{each.codec} {'pays' if each.sure else 'may pay'} {where}{_cost(each.codec, cells)}"


def _cost(codec: str, cells: pd.DataFrame) -> str:
    """`, agreement 97 to 98.5 %`; nothing for a codec that gives the same output."""
    own = cells[cells["codec"].astype("str") == codec]
    if own["output_error"].le(SAME_OUTPUT).all():
        return ""
    kinds = [WORDS[kind] for kind in own["accuracy_of"].unique() if kind in WORDS]
    return f", {kinds[0] if kinds else 'accuracy'} {span(own['accuracy'])}"

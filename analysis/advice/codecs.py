"""From what rate on a codec pays: the best point with it against the best without one, over the rate of the link."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pareto.analysis.advice.crossovers import RATES_BPS, STEPS
from pareto.analysis.advice.observed import OVER_CODECS, observe, workloads
from pareto.analysis.advice.predict import Ensemble, Predictor, advisable
from pareto.analysis.fronts.quality import SAME_OUTPUT, WORDS, is_none, span
from pareto.analysis.naming import in_flight
from pareto.analysis.points import NO_CODEC, STANDS_FOR
from pareto.analysis.prediction.network import Network, networks
from pareto.analysis.schema import BETWEEN
from pareto.analysis.statistics.noise import Floors, floors
from pareto.analysis.statistics.samples import Bools, Floats, interval
from pareto.analysis.wording import interval as in_words
from pareto.protocol.errors import UserError
from pareto.remote.link.units import rate

MOST = 50
"""Sentences: nobody reads more."""


@dataclass(frozen=True)
class Pays:
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
    conditions = vars(network) | {"rate_bps": rates}
    costs = central.cost("latency", **conditions)
    of_rounds = by_round.cost("latency", **vars(network) | {"rate_bps": rates[:, None]})
    of_rounds = np.where(present, of_rounds, np.inf)
    found = []
    for codec in sorted(_codecs(central.cells)):
        mine = ~plain & _of_codec(central.cells, codec)
        ahead = costs[:, plain].min(axis=1) - costs[:, mine].min(axis=1)
        ends = _widest(ahead, rates)
        if ends is None:
            continue
        least, plain_least = of_rounds[..., mine].min(axis=-1), of_rounds[..., plain].min(axis=-1)
        known = np.isfinite(least).all(axis=0) & np.isfinite(plain_least).all(axis=0)
        each = (plain_least - least)[:, known]
        intervals = (
            _interval(each, rates, ends[0], begins=True),
            _interval(each, rates, ends[1], begins=False),
        )
        middle = math.sqrt(max(ends[0], RATES_BPS[0]) * min(ends[1], RATES_BPS[1]))
        leads = interval(each[int(np.argmin(np.abs(np.log(rates / middle))))])
        found.append(Pays(codec, *ends, *intervals, leads is not None and leads[0] > 0))
    return found


def _widest(ahead: Floats, rates: Floats) -> tuple[float, float] | None:
    """The widest range of rates, by their ratio, in which a codec is ahead; 0 and inf where it has no end."""
    inside = np.concatenate([[False], np.nan_to_num(ahead, nan=-1.0) > 0, [False]])
    starts, ends = np.flatnonzero(inside[1:] & ~inside[:-1]), np.flatnonzero(~inside[1:] & inside[:-1])
    if not len(starts):
        return None
    widest = int(np.argmax(ends - starts))
    first, after = int(starts[widest]), int(ends[widest])
    low = 0.0 if first == 0 else _zero(ahead, rates, first - 1)
    high = math.inf if after == len(rates) else _zero(ahead, rates, after - 1)
    return low, high


def _zero(ahead: Floats, rates: Floats, before: int) -> float:
    """The rate (bit/s) at which the lead changes its sign, between two neighbouring ones."""
    one, other = ahead[before], ahead[before + 1]
    share = one / (one - other)
    return float(np.exp(np.log(rates[before]) + share * np.log(rates[before + 1] / rates[before])))


def _interval(ahead: Floats, rates: Floats, end: float, *, begins: bool) -> tuple[float, float]:
    """The interval of an end over the rounds: rates x rounds; of each round the nearest place where it begins, or ends,
    to be ahead. A round that has none is ahead beyond all rates.
    """
    if not 0 < end < math.inf:
        return math.nan, math.nan
    nearest = []
    for of_round in ahead.T:
        before, after = of_round[:-1] > 0, of_round[1:] > 0
        places = np.flatnonzero(~before & after if begins else before & ~after)
        each = np.log([_zero(of_round, rates, int(place)) for place in places])
        none = -math.inf if begins else math.inf
        nearest.append(each[np.argmin(np.abs(each - math.log(end)))] if len(each) else none)
    both = interval(np.array(nearest))
    if both is None or not np.isfinite(both).all():
        return math.nan, math.nan
    return math.exp(both[0]), math.exp(both[1])


def sentences(
    trials: pd.DataFrame,
    stages: pd.DataFrame,
    manifests: Sequence[Mapping[str, Any]],
    struck_off: pd.DataFrame | None = None,
) -> list[str]:
    """A line for each workload and profile of one delay and rate that was measured with several codecs: from what rate
    on each of them pays, at that profile's delay. Takes the frames of `analysis.runs.load` and the runs' manifests.

    Predicted from the measured stages, bytes and times to encode, as all advice is. `may`: the rounds do not agree, or
    are too few for an interval; an end without an interval is as unsure. A codec's cost in accuracy is said with
    it. Where points have no valid trial there, or a search struck them off (`analysis.runs.struck`), it is said to be
    among those measured; of a codec without a valid trial there is nothing to say.
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
        ensemble = Ensemble.of(observe(advisable(rows, known), stages, known), floor)
    except UserError:
        return
    for netem in ensemble.observed.profiles:
        network = known[netem]
        central, by_round = ensemble.measured(netem, network)
        present = ensemble.blocks.at(netem).present
        here = np.flatnonzero((ensemble.observed.at(netem).rounds > 0) & (present.any(axis=0)))
        measured = central.only(here)
        if not _plain(measured.cells).any():
            continue
        made = pays(measured, by_round.only(here), present[:, here], network)
        among = ", among the points measured here" if _lacks(measured.cells, rows, struck_off, netem) else ""
        head = f"{_title(rows.iloc[0], netem)}, predicted at its delay{among}"
        if made:
            yield f"{head}: {'; '.join(_said(each, central.cells) for each in made)}"
        if none := sorted(_codecs(measured.cells) - {each.codec for each in made}):
            yield f"{head}: {', '.join(none)} {'pays' if len(none) == 1 else 'pay'} at no rate"


def _plain(cells: pd.DataFrame) -> pd.Series:
    """Mask of the cells that a codec has to beat: those without one, and those where nothing crosses."""
    plain: pd.Series = is_none(cells["codec"]) | cells["backend"].eq("")
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
        set(each[["codec", "point"]].astype("str").itertuples(index=False, name=None))
        for each in (tried, cells)
    )
    return bool(every - known)


def _codecs(cells: pd.DataFrame) -> set[str]:
    """The codecs that change something in one of the cells, and those that come to one of these there."""
    coded = cells[~is_none(cells["codec"]) & cells["backend"].ne("")]
    own = set(coded["codec"].astype("str"))
    return own.union(*(set(filter(None, codecs.split(BETWEEN))) for codecs in coded[STANDS_FOR]))


def _of_codec(cells: pd.DataFrame, codec: str) -> Bools:
    """Mask of the cells that are the codec's own, or stand for it."""
    stands = cells[STANDS_FOR].map(lambda codecs: codec in codecs.split(BETWEEN))
    either: Bools = (cells["codec"].astype("str").eq(codec) | stands).to_numpy()
    return either


def _title(row: pd.Series, netem: str) -> str:
    batch = f"batch size {row['batch_size']}" if row["batch_size"] != 1 else ""
    parts = (f"{row['model']} at {netem}", batch, in_flight(row["in_flight_asked"]), row["setup"])
    return ", ".join(str(part) for part in parts if part)


def _said(each: Pays, cells: pd.DataFrame) -> str:
    """`int8 pays below 45 Mbit/s (95 %: 43 to 47 Mbit/s), agreement 98.5 %`."""
    low, high = (
        rate(end) + in_words(*of, rate) if 0 < end < math.inf else ""
        for end, of in ((each.low, each.low_ends), (each.high, each.high_ends))
    )
    if low and high:
        where = f"from {low} to {high}"
    elif high:
        where = f"below {high}"
    else:
        where = f"above {low}" if low else "at any rate"
    return f"{each.codec} {'pays' if each.sure else 'may pay'} {where}{_cost(each.codec, cells)}"


def _cost(codec: str, cells: pd.DataFrame) -> str:
    """`, agreement 97 to 98.5 %`; nothing for a codec that gives the same output."""
    own = cells[cells["codec"].astype("str") == codec]
    if own["output_error"].le(SAME_OUTPUT).all():
        return ""
    kinds = [WORDS[kind] for kind in own["accuracy_of"].unique() if kind in WORDS]
    return f", {kinds[0] if kinds else 'accuracy'} {span(own['accuracy'])}"

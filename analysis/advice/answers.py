"""The answers for measured conditions in sentences: where to cut, what each engine is best at, where codecs pay."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd

from pareto.analysis.advice.advise import title
from pareto.analysis.advice.crossovers import Pays, pays
from pareto.analysis.advice.observed import CELL, WORK, WORKLOAD
from pareto.analysis.advice.ranking import TOSS_UP, Ranking, answer, ranking
from pareto.analysis.advice.workload import Workload, workloads
from pareto.analysis.fronts.quality import SAME_OUTPUT, WORDS, span
from pareto.analysis.naming import levels
from pareto.analysis.prediction.network import Network
from pareto.analysis.runs.load import Joined
from pareto.analysis.runs.points import CONDITION, EAGER, NO_CODEC
from pareto.analysis.runs.treatments import work_names
from pareto.analysis.wording import EDGE, SERVER, more
from pareto.analysis.wording import interval as in_words
from pareto.protocol.errors import UserError
from pareto.remote.link.units import percent, rate

MOST = 50
"""Sentences, and those of the rest of a workload: nobody reads more."""
Conditions = tuple[tuple[str, ...], ...]
"""Values of `CONDITION`, as text, of some conditions."""


class Answer(str):
    """An answer in a sentence. conditions: those it answers, first that of the chosen engine. sure: by 95 % or more."""

    conditions: Conditions
    sure: bool

    def __new__(cls, text: str, conditions: Conditions = (), *, sure: bool = False) -> Answer:
        made = super().__new__(cls, text)
        made.conditions, made.sure = conditions, sure
        return made


def answers(runs: Joined, where: str = "", front: pd.DataFrame | None = None) -> list[Answer]:
    """The point of least latency: an `Answer` for each workload and profile, in the order of the trials.

    Engines compete, and the answer names one; a second sentence says what each is best at. Figures are measured. From
    what rate on another point pays is predicted from all profiles of the workload, at this profile's delay, where the
    link is one of one delay and rate. `may`: the rounds do not agree that it does, or are too few for an interval.
    front: that of `analysis.fronts.front.front` for the same `where`, which knows every column; only its feasible
    points count.
    """
    said: list[tuple[Mapping[Any, Any], str, Answer]] = []
    for workload in workloads(runs, over_engines=True, strict=False):
        if len(said) >= MOST:
            break
        for netem, here in workload.rows.groupby("netem", sort=False, observed=True):
            texts, engine, sure = ["no valid trial"], "", False
            if netem in workload.valid["netem"].unique():
                among = None if front is None else _feasible(front[front["netem"] == netem], workload)
                network = workload.networks.get(netem)
                asked = {"network": network, "where": where, "profile": netem, "among": among}
                try:
                    ranked = ranking(workload, **asked)
                except UserError as error:
                    texts = [str(error)]
                else:
                    texts = [_sentence(ranked, network), _by_engine(workload, asked)]
                    engine, sure = ranked.best["engine"], ranked.sure == "sure"
            # The conditions here, those of the engine that it chooses first.
            keys = here[[*CONDITION, WORK]].astype("str").drop_duplicates()
            keys = keys.sort_values(WORK, key=lambda works: works != engine, kind="stable")
            conditions = tuple(dict.fromkeys(keys[CONDITION].itertuples(index=False, name=None)))
            made = [Answer(text, conditions, sure=sure) for text in texts if text]
            said += [(workload.first, str(netem), each) for each in made]
    lines, but_engine = _lines(said), [name for name in CONDITION if name != "engine"]
    told = {tuple({**first, "netem": netem}[name] for name in but_engine) for first, netem, _ in said}
    if (left := len(runs.trials[but_engine].drop_duplicates()) - len(told)) > 0:
        lines.append(Answer(f"and {left} more conditions: report on fewer runs to see them"))
    return lines


def _lines(said: Sequence[tuple[Mapping[Any, Any], str, Answer]]) -> list[Answer]:
    """Each answer under its title; codecs with the same one in the same profile share it, where the first of them is.

    said: a workload's first row, the profile, and the answer there.
    """
    alike: dict[tuple[str, str], list[tuple[Mapping[Any, Any], str, Answer]]] = {}
    for first, netem, each in said:
        alike.setdefault((title({**first, "codec": ""}, netem), each), []).append((first, netem, each))
    lines = []
    for (head, text), same in alike.items():
        codecs = levels({first["codec"] or NO_CODEC for first, *_ in same})
        head = f"{head}, codecs {', '.join(codecs)}" if len(same) > 1 else title(*same[0][:2])
        conditions = tuple(key for *_, each in same for key in each.conditions)
        lines.append(Answer(f"{head}: {text}", conditions, sure=all(each.sure for *_, each in same)))
    return lines


def _feasible(front: pd.DataFrame, workload: Workload) -> pd.MultiIndex:
    """The cells (`CELL`) of a workload that satisfy the report's constraint. front: of one profile."""
    own = front.merge(workload.rows[WORKLOAD].drop_duplicates(), on=WORKLOAD)
    own = own[own["feasible"].astype(bool)]
    engine = work_names(own) if "engine" in workload.varied else ""
    return pd.MultiIndex.from_frame(own.assign(engine=engine)[CELL])


def _sentence(ranked: Ranking, network: Network | None) -> str:
    """The answer; what cutting there is worth beside the whole model on a host; and where another point pays."""
    text = answer(ranked, "latency")
    if not ranked.sure:
        text += f" ({ranked.unsure})"
    if ranked.sure == TOSS_UP:
        return text
    best, gains = ranked.best, []
    for end in (EDGE, SERVER):
        whole = ranked.choices.loc[ranked.choices["end"] == end, "latency_s"]
        if len(whole) and best["end"] not in (EDGE, end):
            gains.append(f"{percent(1 - best['latency_s'] / whole.iloc[0])} less than {end}")
    text += f", {' and '.join(gains)}" if gains else ""
    if network is None or len(ranked.rivals) or len(ranked.choices) == 1:
        return text
    is_unsure, parts = "rate" in ranked.unsure_along, []
    for switch in (each for each in ranked.crossovers if each.along == "rate"):
        other = ranked.choices.loc[switch.cell]
        what = "a split" if best["end"] == EDGE and not other["end"] else other["doing"]
        parts.append(f"{what} {'may pay' if math.isnan(switch.low) else 'pays'} {switch.when(rate)}")
    if parts:
        among = " among the points measured here" if is_unsure else ""
        return f"{text}; predicted{among}: {', '.join(parts)}"
    what = "a split" if best["end"] == EDGE else "another point"
    what = "another of the points measured here" if is_unsure else what
    return f"{text}; at this delay no link speed makes {what} faster (predicted)"


def _by_engine(workload: Workload, asked: Mapping[str, Any]) -> str:
    """`best by engine: onnx at 15 (80 ms), eager all on the edge (94 ms, 18 % longer)`, and whether the best split
    moves with the engine, which is told where the best of both is sure; empty text where there is one engine.
    """
    of_engines: dict[str, Ranking] = {}
    for engine in workload.rows["engine"].unique() if "engine" in workload.varied else ():
        with suppress(UserError):  # no valid trial of it is left
            of_engines[engine] = ranking(workload, **asked, engine=engine)
    if len(of_engines) < 2:
        return ""
    of_engines = dict(sorted(of_engines.items(), key=lambda each: float(each[1].best["latency_s"])))
    least_s, bests = min(ranked.best["latency_s"] for ranked in of_engines.values()), []
    for engine, ranked in of_engines.items():
        best = ranked.best
        longer = more(best["latency_s"] / least_s - 1, "longer", "as long")
        longer = longer if best["latency_s"] > least_s else ""
        sure = best["sureness"] if ranked.sure in ("likely", TOSS_UP) else ""
        figures = ", ".join(filter(None, (best["figure"], longer, sure)))
        bests.append(f"{engine} {best['end'] or 'at ' + best['point']} ({figures})")
    base = EAGER if EAGER in of_engines else next(iter(of_engines))
    here, moves = of_engines.pop(base), []
    where = here.best["end"] or here.best["point"]
    for engine, ranked in of_engines.items():
        if ranked.sure == here.sure == "sure":
            there = ranked.best["end"] or ranked.best["point"]
            moved = f"moves from {where} to {there}" if where != there else f"is that by {base}"
            moves.append(f"with {engine} the best split {moved}")
    if len(moves) < len(of_engines):
        which = "for the others" if moves else "whether the best split moves with the engine"
        moves.append(f"{which} the trials do not decide")
    return f"best by engine: {', '.join(bests)}; {', '.join(moves)}"


def of_codecs(runs: Joined) -> list[str]:
    """A line for each workload and profile of one delay and rate that was measured with several codecs: from what rate
    on each of them pays, at that profile's delay.

    `may`: the rounds do not agree, or are too few for an interval. Where points have no valid trial there, or a search
    struck them off, it is said to be among those measured.
    """
    if runs.trials["codec"].nunique() < 2:
        return []
    every = workloads(runs, over_codecs=True, strict=False)
    fit = (each for each in every if each.rows["codec"].nunique() > 1 and not each.unfit)
    lines = (_of_codecs_at(each, netem) for each in fit for netem in each.observed.profiles)
    return [*itertools.islice(itertools.chain.from_iterable(lines), MOST)]


def _of_codecs_at(workload: Workload, netem: str) -> Iterator[str]:
    central, by_round = workload.at(netem)
    present, network = workload.blocks.at(netem).present, workload.networks[netem]
    here = np.flatnonzero((workload.observed.at(netem).rounds > 0) & present.any(axis=0))
    measured = central.only(here)
    found = pays(measured, by_round.only(here), present[:, here], network)
    # The points that were tried with a codec in some network, or struck off in this one.
    off = workload.struck[workload.struck["netem"] == netem]
    off = off.assign(codec=off["codec"].where(off["payload_bytes"] > 0, NO_CODEC))
    tried, known = (
        pd.MultiIndex.from_frame(pd.concat([each[["codec", "point"]] for each in frames]).astype("str"))
        for frames in ((workload.rows, off), (measured.cells,))
    )
    among = "" if tried.isin(known).all() else ", among the points measured here"
    head = f"{title(workload.first, netem)}, predicted at its delay{among}"
    if said := [_said(codec, of, central.cells) for codec, of in found.items() if of]:
        yield f"{head}: {'; '.join(said)}"
    if none := [codec for codec, of in found.items() if not of]:
        yield f"{head}: {', '.join(none)} {'pays' if len(none) == 1 else 'pay'} at no rate"


def _said(codec: str, pays: Pays, cells: pd.DataFrame) -> str:
    """`int8 pays below 45 Mbit/s (95 %: 43 to 47 Mbit/s), agreement 98.5 %`, where it does not give the same output."""
    low, high = (
        rate(end) + in_words(*of, rate) if 0 < end < math.inf else ""
        for end, of in ((pays.low, pays.low_ends), (pays.high, pays.high_ends))
    )
    where = f"from {low} to {high}" if low and high else f"below {high}" if high else f"above {low}"
    text = f"{codec} {'pays' if pays.sure else 'may pay'} {where if low or high else 'at any rate'}"
    own = cells[cells["codec"] == codec]
    if own["output_error"].le(SAME_OUTPUT).all():
        return text
    kinds = [WORDS[kind] for kind in own["accuracy_of"].unique() if kind in WORDS]
    return f"{text}, {kinds[0] if kinds else 'accuracy'} {span(own['accuracy'])}"

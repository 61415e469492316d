"""The answer in one sentence, for each condition that was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.advice.advise import title
from analysis.advice.choices import TOSS_UP, Choice, Ranking, answer, ranking
from analysis.advice.ensemble import Ensemble
from analysis.advice.network import Network, networks
from analysis.advice.observed import WORKLOAD, Observed, observe, workloads
from analysis.advice.wording import EDGE, SERVER, interval, more, percent, rate
from analysis.keys import CONDITION
from analysis.points import cuts
from analysis.runs.manifest import input_type
from analysis.statistics.floor import floors
from pareto.errors import UserError

MOST = 50
"""So many sentences, and those of the rest of a workload: more nobody reads."""


def answers(
    trials: pd.DataFrame,
    stages: pd.DataFrame,
    manifests: Sequence[Mapping[str, Any]],
    *,
    objective: str = "latency",
    where: str = "",
    front: pd.DataFrame | None = None,
    seed: int = 0,
) -> list[str]:
    """One sentence for each workload and profile, in the order of the trials; frames as in `analysis.advice.advise`.

    Figures are measured. From what rate on another point pays is predicted from all profiles of the workload, at this
    profile's delay; it is left out where the link is not one delay and rate, where runs mean different links by one
    name, and in chains. `may`: the rounds do not agree that it does, or are too few for an interval. `probably`: that
    point is the best with less than 95 % (`analysis.advice.choices`); below 80 % the contenders are named.

    Only points that satisfy `where` count (in the columns that `analysis.advice.advise` knows), or that are feasible in
    `front`, the frame of `analysis.fronts.front.front`, which knows every column.
    """
    known = networks(manifests, strict=False)
    floor = floors(trials)
    found: list[str] = []
    for rows in workloads(trials):
        if len(found) >= MOST:
            break
        ok = rows[(rows["status"] == "ok") & rows["latency_s"].notna()]
        ensemble = Ensemble.of(observe(ok, stages, known), floor) if len(ok) else None
        images = input_type(manifests, str(rows["model"].iloc[0]))
        for netem in rows["netem"].unique():
            head = title(rows.iloc[0], netem)
            if ensemble is None or netem not in ensemble.observed.places:
                found.append(f"{head}: no valid trial")
                continue
            network = None if _is_chain(ensemble.observed) else known.get(netem)
            among = None if front is None else _feasible(front, rows.iloc[0], netem)
            try:
                ranked = ranking(
                    ensemble, network, objective, where, netem, among, seed=seed, input_type=images
                )
            except UserError as error:
                found.append(f"{head}: {error}")
            else:
                found.append(f"{head}: {_sentence(ranked, objective, network)}")
    more = len(trials[CONDITION].drop_duplicates()) - len(found)
    return [*found, f"and {more} conditions more: report on fewer runs for theirs"] if more > 0 else found


def _feasible(front: pd.DataFrame, like: pd.Series, netem: str) -> set[tuple[str, str]]:
    """Backend and point of the condition's rows that satisfy the report's constraint."""
    rows = front[(front["netem"] == netem) & front["feasible"].astype(bool)]
    for name in WORKLOAD:
        rows = rows[rows[name] == like[name]]
    return set(zip(rows["backend"], rows["point"], strict=True))


def _is_chain(observed: Observed) -> bool:
    return any(len(cuts(point)) > 1 for point in observed.cells["point"])


def _sentence(ranked: Ranking, objective: str, network: Network | None) -> str:
    text = answer(ranked, objective, ranked.sure)
    if not ranked.sure:
        text += f" ({ranked.unsure})"
    if ranked.sure == TOSS_UP:
        return text
    text += _gain(ranked, objective)
    return f"{text}; {_elsewhere(ranked)}" if network and len(ranked.choices) > 1 else text


def _gain(ranked: Ranking, objective: str) -> str:
    """`, 12 % less than all on the edge and 40 % less than all on the server`: what cutting there is worth."""
    if _kind(ranked.best) == EDGE:
        return ""
    whole = [
        next((choice for choice in ranked.choices if _kind(choice) == kind), None) for kind in (EDGE, SERVER)
    ]
    gains = []
    for end in whole:
        if end is None or _kind(end) == _kind(ranked.best):
            continue
        if objective == "latency":
            gains.append(f"{percent(1 - ranked.best.latency_s / end.latency_s)} less than {_kind(end)}")
        else:
            gain = ranked.best.throughput_ips / end.throughput_ips - 1
            gains.append(more(gain, f"more than {_kind(end)}", f"as much as {_kind(end)}"))
    return f", {' and '.join(gains)}" if gains else ""


def _elsewhere(ranked: Ranking) -> str:
    """From what rate on another point pays."""
    told = []
    for switch in ranked.crossovers:
        if switch.along != "rate":
            continue
        other = ranked.by_cell[switch.cell]
        what = "a split" if _kind(ranked.best) == EDGE and _kind(other) == "" else other.doing
        at = f"from {rate(switch.at)} on" if switch.upwards else f"below {rate(switch.at)}"
        pays = "may pay" if math.isnan(switch.low) else "pays"
        span = interval(switch.low, switch.high, rate)
        told.append(f"{what} {pays} {at}{span}{', extrapolated' if switch.extrapolated else ''}")
    if told:
        return f"predicted: {', '.join(told)}"
    none = "split" if _kind(ranked.best) == EDGE else "other point"
    return f"predicted: at this delay no {none} pays at any rate"


def _kind(choice: Choice) -> str:
    """Which host has the whole model; empty text for a cut."""
    return next((kind for kind in (EDGE, SERVER) if choice.place.startswith(kind)), "")

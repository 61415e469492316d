"""The best cut by each of several measured engines, how far it is behind, and whether the cut moves."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pandas as pd

from pareto.analysis.advice.observed import CELL, WORK
from pareto.analysis.advice.predict import Ensemble
from pareto.analysis.advice.ranking import TOSS_UP, Ranking, ranking
from pareto.analysis.advice.rivals import Tried
from pareto.analysis.engines import EAGER
from pareto.analysis.points import NONE, nothing_crosses
from pareto.analysis.prediction.network import Network
from pareto.analysis.wording import EDGE, SERVER, more
from pareto.protocol.errors import UserError
from pareto.remote.link.units import duration


def sentence(
    ensemble: Ensemble,
    rows: pd.DataFrame,
    network: Network | None,
    profile: str,
    among: Collection[tuple[str, ...]] | None = None,
    where: str = "",
) -> str:
    """`best by engine: onnx at 15 (80 ms), eager all on the edge (94 ms, 18 % longer)`; whether the best split moves
    with the engine; empty text where there is one engine.

    It moves, or is the same, only where the best of each is sure (p >= 0.95). rows: the trials of the workload, of
    `analysis.advice.observed.workloads` over engines; among: as of `analysis.advice.ranking.ranking`; where: the
    constraint that they satisfy.
    """
    if (rows[WORK] == "").all():
        return ""
    of_engines: dict[str, Ranking] = {}
    for engine, own in rows.groupby("engine", sort=False, observed=True):
        cells = _cells(own, rows)
        try:
            of_engines[str(engine)] = ranking(
                ensemble,
                network,
                "latency",
                "",
                profile,
                cells if among is None else cells & set(among),
                tried=Tried(own[own["netem"] == profile], where, network),
            )
        except UserError:
            continue  # no valid trial of it is left
    if len(of_engines) < 2:
        return ""
    ordered = sorted(of_engines.items(), key=lambda each: each[1].best.latency_s)
    least_s = ordered[0][1].best.latency_s
    bests = [f"{engine} {_at(each)}{_where(each)} ({_figure(each, least_s)})" for engine, each in ordered]
    return f"best by engine: {', '.join(bests)}; {_moves(dict(ordered))}"


def _cells(own: pd.DataFrame, every: pd.DataFrame) -> set[tuple[str, ...]]:
    """`CELL` of an engine's trials. every: those of all engines, which tell where nothing crosses."""
    alone = nothing_crosses(own, every)
    named = own.assign(engine=own[WORK], backend=own["backend"].astype("str").where(~alone, NONE))
    return set(named[CELL].astype("str").itertuples(index=False, name=None))


def _where(ranked: Ranking) -> str:
    """`all on the edge`, `15`."""
    return next((end for end in (EDGE, SERVER) if ranked.best.place.startswith(end)), ranked.best.point)


def _at(ranked: Ranking) -> str:
    return "" if ranked.best.place.startswith((EDGE, SERVER)) else "at "


def _figure(ranked: Ranking, least_s: float) -> str:
    """`104 ms, 39 % longer, sure 83 %`: how much longer than by the best engine, and how sure where it is not."""
    latency_s = ranked.best.latency_s
    longer = more(latency_s / least_s - 1, "longer", "as long") if latency_s > least_s else ""
    sure = ranked.best.sureness if ranked.sure in ("likely", TOSS_UP) else ""
    return ", ".join(filter(None, (duration(latency_s), longer, sure)))


def _moves(of_engines: Mapping[str, Ranking]) -> str:
    """Whether the best split is another one by each engine than by the base: only where the best of both is sure."""
    base = EAGER if EAGER in of_engines else next(iter(of_engines))
    parts = []
    for engine, ranked in of_engines.items():
        if engine == base or {ranked.sure, of_engines[base].sure} != {"sure"}:
            continue
        here, there = _where(of_engines[base]), _where(ranked)
        moved = f"moves from {here} to {there}" if here != there else f"is that by {base}"
        parts.append(f"with {engine} the best split {moved}")
    untold = len(of_engines) - 1 - len(parts)
    if untold:
        which = "for the others" if parts else "whether the best split moves with the engine"
        parts.append(f"{which} the trials do not decide")
    return ", ".join(parts)

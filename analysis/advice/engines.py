"""The best cut by each of several measured engines, how far it is behind, and whether the cut moves."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pandas as pd

from pareto.analysis.advice.observed import CELL, WORK
from pareto.analysis.advice.predict import Ensemble
from pareto.analysis.advice.ranking import TOSS_UP, Ranking, ranking
from pareto.analysis.advice.rivals import Tried
from pareto.analysis.prediction.network import Network
from pareto.analysis.runs.points import EAGER, NONE, nothing_crosses
from pareto.analysis.wording import more
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
        # All engines' trials tell where nothing crosses.
        backend = own["backend"].astype("str").where(~nothing_crosses(own, rows), NONE)
        named = own.assign(engine=own[WORK], backend=backend)[CELL].astype("str")
        cells = set(named.itertuples(index=False, name=None))
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
    bests = []
    for engine, ranked in ordered:
        best, at = ranked.best, "" if ranked.best.end else "at "
        longer = more(best.latency_s / least_s - 1, "longer", "as long") if best.latency_s > least_s else ""
        sure = best.sureness if ranked.sure in ("likely", TOSS_UP) else ""
        figures = ", ".join(filter(None, (duration(best.latency_s), longer, sure)))
        bests.append(f"{engine} {at}{best.end or best.point} ({figures})")
    return f"best by engine: {', '.join(bests)}; {_moves(dict(ordered))}"


def _moves(of_engines: Mapping[str, Ranking]) -> str:
    """Whether the best split is another one by each engine than by the base: only where the best of both is sure."""
    base = EAGER if EAGER in of_engines else next(iter(of_engines))
    parts = []
    for engine, ranked in of_engines.items():
        if engine == base or {ranked.sure, of_engines[base].sure} != {"sure"}:
            continue
        here, there = (each.best.end or each.best.point for each in (of_engines[base], ranked))
        moved = f"moves from {here} to {there}" if here != there else f"is that by {base}"
        parts.append(f"with {engine} the best split {moved}")
    untold = len(of_engines) - 1 - len(parts)
    if untold:
        which = "for the others" if parts else "whether the best split moves with the engine"
        parts.append(f"{which} the trials do not decide")
    return ", ".join(parts)

"""The point to use in a network, the runner-up, and how sure that is: from runs, or by a model profile of theirs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from pareto.analysis.advice.observed import WORKLOAD, is_chain
from pareto.analysis.advice.predict import Validation
from pareto.analysis.advice.ranking import TOSS_UP, Ranking, answer, ranking
from pareto.analysis.advice.workload import Workload, workloads
from pareto.analysis.fronts.quality import LIMITS
from pareto.analysis.fronts.where import Where
from pareto.analysis.model_profile import read
from pareto.analysis.naming import unusual
from pareto.analysis.prediction.compared import in_run, unfit
from pareto.analysis.prediction.forecast import AUTO
from pareto.analysis.prediction.network import Network, networks
from pareto.analysis.prediction.predicted import CONSTRAINED
from pareto.analysis.runs.load import Joined
from pareto.analysis.runs.points import EAGER, NO_CODEC
from pareto.analysis.wording import more
from pareto.protocol.errors import UserError
from pareto.remote.link.units import percent, rate


@dataclass(frozen=True)
class Advice:
    """The advice for `network`. `title` names the workload, `measured` the profiles that it was measured at.

    extrapolated: the network lies beyond what the profiles span.
    """

    title: str
    network: Network
    objective: str
    where: str
    measured: Mapping[str, Network]
    ranking: Ranking
    validation: Validation
    extrapolated: bool

    def __str__(self) -> str:
        ranked, objective = self.ranking, self.objective
        how = f"measured at {ranked.profile}" if ranked.profile else "predicted"
        how += ", beyond what was measured" * self.extrapolated
        if not ranked.sure:
            how += f"; {ranked.unsure}"
        text = f"{self.title} at {in_words(self.network)}: {answer(ranked, objective)} ({how})"
        if len(ranked.choices) == 1 or ranked.sure == TOSS_UP:
            return text
        best, second = ranked.choices.iloc[0], ranked.choices.iloc[1]
        if objective == "latency":
            behind = more(second["latency_s"] / best["latency_s"] - 1, "longer", "as long")
        else:
            behind = f"{percent(1 - second['throughput_ips'] / best['throughput_ips'])} less"
        return f"{text}; next is {second['place']}, {behind}"


def advise(
    runs: Joined, network: Network, *, objective: str = "latency", where: str = "", model: str = ""
) -> Advice:
    """The best point in a network, from what some runs measured in others.

    `where`: a constraint (`analysis.fronts.where`) on latency_s and throughput_ips in that network, on what does not
    depend on it (edge_s, payload_bytes, agreement, ...), and on the workload (`batch_size == 8`). One on quality
    (`analysis.fronts.quality.LIMITS`) makes all codecs compete; else one must be chosen, so that none wins by its
    losses. All engines compete, as the results of each are proven. Raises `UserError`, one line.
    """
    if objective not in ("latency", "throughput"):
        raise UserError(f"advice is for latency or throughput, not {objective!r}")
    over_codecs = bool(Where.parse(where).columns & LIMITS)
    every = list(workloads(of_model(runs, model), over_codecs=over_codecs, over_engines=True))
    if not (fit := [each for each in every if not each.unfit]):
        raise UserError(every[0].unfit)
    found, refused = list[tuple[Workload, Ranking]](), list[UserError]()
    for workload in fit:
        profiles = workload.observed.profiles
        at = next((name for name in profiles if workload.networks[name].same(network)), "")
        try:
            found.append((workload, ranking(workload, network, objective, where, at)))
        except UserError as error:
            refused.append(error)
    if not found:
        raise refused[0]
    if len(found) > 1:
        raise UserError(_several(pd.DataFrame([workload.first for workload, _ in found])[WORKLOAD]))
    ((of, ranked),) = found
    measured = {name: of.networks[name] for name in of.observed.profiles}
    ends = {name: [getattr(each, name) for each in measured.values()] for name in ("delay_s", "rate_bps")}
    inside = all(min(each) <= getattr(network, name) <= max(each) for name, each in ends.items())
    return Advice(title(of.first), network, objective, where, measured, ranked, of.validation, not inside)


def title(row: Mapping[Any, Any], netem: str = "") -> str:
    """`mobilenet_v2 at wifi, batch size 8`: without what goes without saying."""
    name = f"{row['model']} at {netem}" if netem else row["model"]
    batch = f"batch size {row['batch_size']}" if row["batch_size"] != 1 else ""
    return ", ".join(str(part) for part in (name, batch, *unusual(row), row.get("setup")) if part)


def in_words(network: Network) -> str:
    """`80 ms and 20 Mbit/s`, and the way back if it is shaped."""
    out = f"{network.delay_s * 1e3:g} ms and {rate(network.rate_bps)}"
    if network == Network(network.delay_s, network.rate_bps):
        return out
    return f"{out} (back {network.delay_back_s * 1e3:g} ms and {rate(network.rate_back_bps)})"


def of_model(runs: Joined, model: str) -> Joined:
    """The runs with the trials of the model that is meant; all, where there is one. Raises UserError."""

    def plain(name: str) -> str:
        return name.lower().replace("_", "").replace("-", "")

    models = sorted(map(str, runs.trials["model"].unique()))
    if not models:
        raise UserError("no trial has ended yet: nothing to advise from")
    meant = [name for name in models if not model or plain(name) == plain(model)]
    if not meant:
        raise UserError(f"no trials of model {model!r}; there are {', '.join(models)}")
    if len(meant) > 1:
        raise UserError(f"the runs have several models: choose one with --model ({', '.join(meant)})")
    return replace(runs, trials=runs.trials[runs.trials["model"] == meant[0]])


def _several(firsts: pd.DataFrame) -> str:
    """The choice that several workloads leave to the user."""
    column = next(name for name in firsts if firsts[name].nunique() > 1)
    values = [repr(value) if isinstance(value, str) else str(value) for value in firsts[column].unique()]
    enough = ', or say what is accurate enough: --where "agreement >= 0.99"' if column == "codec" else ""
    such = f'choose one, such as --where "{column} == {values[0]}"'
    return f"the runs have {column} {', '.join(values)}: {such}{enough}"


class Kept(NamedTuple):
    """A run's own model profile, and how its trials used the model. unmeasured: cells that a search left out."""

    folder: Path
    batch_size: int
    in_flight: str
    unmeasured: int


def kept(runs: Joined, network: Network, model: str = "", where: str = "") -> Kept | None:
    """The model profile to choose by in a network, the latest of those that fit; None: choose by the trials.

    It is chosen by where the runs' points have several cuts, as trials say nothing of other links there; and where a
    search struck cells off without a trial, unless it did so for this very network. None, too, where the trials are of
    several workloads, went through a codec or ran by another engine than eager, or the constraint is on what no profile
    knows. Raises UserError.
    """
    runs, manifests = of_model(runs, model), [run.manifest for run in runs.runs]
    trials, every = runs.trials, list(workloads(runs, strict=False))
    if len(every) != 1 or not Where.parse(where).columns <= set(CONSTRAINED):
        return None
    first, keys = every[0].first, [*WORKLOAD, "backend", "point"]
    # Cells that searches struck off without a trial, of which no run has a valid one anywhere.
    off = runs.struck[runs.struck["model"].isin(trials["model"].unique()) & runs.struck["how"].eq("physics")]
    cells, ok = (pd.MultiIndex.from_frame(rows[keys].astype("str")) for rows in (off, every[0].valid))
    unmeasured = int((~cells.unique().isin(ok)).sum())
    is_measured = any(each.same(network) for each in networks(manifests, strict=False).values())
    plain = first["codec"] == NO_CODEC and trials["engine"].eq(EAGER).all()
    if not plain or not (is_chain(trials) or (unmeasured and not is_measured)):
        return None
    batch_size, fitting = int(first["batch_size"]), []
    for folder in (folder for run in runs.runs for folder in in_run(run.folder)):
        with suppress(UserError):  # without a profile that cannot be read, trials can be advised from even so
            profile = read(folder)
            same = profile.model == first["model"] and batch_size in profile.batch_sizes
            if same and not unfit(profile, manifests):
                fitting.append((profile.made_at, folder))
    if not fitting:
        return None
    return Kept(max(fitting)[1], batch_size, str(first["in_flight_asked"]) or AUTO, unmeasured)

"""Whether advice is by the model profile that runs keep: where their trials leave out points that may be best."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from pareto.analysis.advice.advise import of_model
from pareto.analysis.advice.observed import WORKLOAD, workloads
from pareto.analysis.fronts.where import Where
from pareto.analysis.model_profile import read
from pareto.analysis.prediction.compared import in_run, unfit
from pareto.analysis.prediction.forecast import AUTO
from pareto.analysis.prediction.network import Network, networks
from pareto.analysis.prediction.predicted import CONSTRAINED
from pareto.analysis.runs.load import Joined
from pareto.analysis.runs.points import EAGER, NO_CODEC, cuts
from pareto.analysis.runs.standing import stands
from pareto.protocol.errors import UserError


@dataclass(frozen=True)
class Kept:
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
    trials = of_model(runs.trials, model)
    groups = list(workloads(trials))
    manifests = [run.manifest for run in runs.runs]
    if len(groups) != 1 or not Where.parse(where).columns <= set(CONSTRAINED):
        return None
    first = groups[0].iloc[0]
    # Cells that searches struck off without a trial, of which no run has a valid one anywhere.
    keys = [*WORKLOAD, "backend", "point"]
    off = runs.struck[runs.struck["model"].isin(trials["model"].unique()) & runs.struck["how"].eq("physics")]
    ok = pd.MultiIndex.from_frame(trials.loc[stands(trials, "latency"), keys].astype("str"))
    unmeasured = int((~pd.MultiIndex.from_frame(off[keys].astype("str")).unique().isin(ok)).sum())
    is_measured = any(each.same(network) for each in networks(manifests, strict=False).values())
    chained = any(len(cuts(point)) > 1 for point in trials["point"].unique())
    plain = first["codec"] in ("", NO_CODEC) and trials["engine"].eq(EAGER).all()
    if not plain or not (chained or (unmeasured and not is_measured)):
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

"""One workload: its trials, valid or not, all that is known beside them, and predictors made of them once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import pandas as pd

from pareto.analysis.advice.observed import NEEDED, WORK, WORKLOAD, Observed, is_chain, needed, observe
from pareto.analysis.advice.predict import Predictor, Validation, as_measured, predictor, validate
from pareto.analysis.fronts import quality
from pareto.analysis.naming import listed
from pareto.analysis.prediction.network import Network, networks
from pareto.analysis.runs.load import Joined
from pareto.analysis.runs.points import NO_CODEC, cuts
from pareto.analysis.runs.standing import SETTLED, stands
from pareto.analysis.runs.treatments import in_every_codec, work_names
from pareto.analysis.schema import STRUCK
from pareto.analysis.statistics.noise import Floors, floor_of, floors
from pareto.analysis.statistics.significance import MEASURES


@dataclass(frozen=True)
class Workload:
    """The trials of one workload (`rows`, with the columns that advice looks at), valid or not.

    networks: the profiles that are one delay and rate; none of a chain. noise: the floors under the trials. varied:
    those of `codec` and `engine` in which the trials differ, as advice chooses that too.
    """

    rows: pd.DataFrame
    runs: Joined
    networks: Mapping[str, Network]
    noise: Callable[[], Floors] = dict
    varied: Sequence[str] = ()

    @cached_property
    def first(self) -> dict[Any, Any]:
        """The first row, of no codec and no engine where advice chooses one."""
        plain = {"codec": NO_CODEC, "engine": ""}
        return {**self.rows.iloc[0], **{name: plain[name] for name in self.varied}}

    @cached_property
    def unfit(self) -> str:
        """The reason why nothing can be predicted from it; empty text where it can."""
        model, ok = self.first["model"], self.valid
        if ok.empty:
            return f"{model}: no valid trial among {len(self.rows)}: nothing to advise from"
        if is_chain(ok):
            by = "advice on chains is by a model profile (--profile)"
            return f"{model}: a chain of hosts was measured: {by}"
        if (measured := set(ok["netem"])) & self.networks.keys():
            return ""
        names = ", ".join(sorted(measured))
        return f"{model}: no profile of a constant delay and rate was measured ({names}): nothing to predict from"

    @cached_property
    def valid(self) -> pd.DataFrame:
        """The trials whose latency counts."""
        return self.rows[stands(self.rows, "latency") & self.rows["latency_s"].notna()]

    @cached_property
    def struck(self) -> pd.DataFrame:
        """The cells of this workload that a search struck off, in any network."""
        same = {name: self.first[name] for name in WORKLOAD if name not in self.varied}
        off = self.runs.struck.reindex(columns=[*STRUCK.columns, "setup"])
        return off[(off[[*same]] == pd.Series(same)).all(axis=1)]

    @cached_property
    def observed(self) -> Observed:
        """The valid trials, of which there must be one."""
        return observe(self.valid, self.runs.stages, self.networks)

    @cached_property
    def blocks(self) -> Observed:
        """The same; of very many rounds, several together."""
        return self.observed.together()

    @cached_property
    def floor(self) -> Mapping[str, float]:
        """By column, what identical treatments differ by, as a share."""
        return floor_of(self.noise(), {**self.first, "engine": ""}).shares

    @cached_property
    def validation(self) -> Validation:
        """The errors of predictions from all profiles but one."""
        return validate(self.observed)

    @cached_property
    def predictor(self) -> Predictor:
        """The predictor from all rounds and profiles, for any network."""
        return predictor(self.observed)

    @cached_property
    def by_round(self) -> Predictor:
        """The predictor from each round alone: rounds x cells."""
        return predictor(self.blocks, by_round=True)

    def at(self, profile: str) -> tuple[Predictor, Predictor]:
        """Predictors, from all rounds and from each alone, that give at this profile what was measured there; in any
        network, if it is not one delay and rate. Without a profile: `predictor` and `by_round`.
        """
        if not profile:
            return self.predictor, self.by_round
        there, blocks = self.observed.at(profile), self.blocks.at(profile)
        if (network := self.networks.get(profile)) is None:
            return as_measured(there), as_measured(blocks, by_round=True)
        central = self.predictor.anchored(network, *map(there.medians, MEASURES.values()))
        of_rounds = (blocks.medians(name, by_round=True) for name in MEASURES.values())
        return central, self.by_round.anchored(network, *of_rounds)

    @property
    def absent(self) -> str:
        """`Points 9 and 21 have no valid trial in any network, and may be better somewhere`; nothing if all have."""
        tried = {*self.rows["point"].astype("str"), *self.struck["point"].astype("str")}
        points = sorted(tried - set(self.observed.cells["point"]), key=cuts)
        if not points:
            return ""
        has = f"Points {listed(points)} have" if len(points) > 1 else f"Point {points[0]} has"
        return f"{has} no valid trial in any network, and may be better somewhere"


def workloads(
    runs: Joined, *, over_codecs: bool = False, over_engines: bool = False, strict: bool = True
) -> Iterator[Workload]:
    """Yield each workload, in the order of the trials.

    over_codecs, over_engines: those of all codecs, or engines, are one workload; each trial keeps its setup. An engine
    that changes the results is a workload of its own unless all codecs are one, so that none wins by its losses.
    strict: two networks of one name raise `UserError`; else that name is not known.
    """
    known = networks((run.manifest for run in runs.runs), strict=strict)
    noise = cache(lambda: floors(runs.trials))
    every = needed(runs.trials)
    every = every.reindex(columns=[*NEEDED, *every.columns.intersection([SETTLED])])
    every = in_every_codec(every, together=over_codecs)
    by: list[Any] = [name for name in WORKLOAD if name != "codec" or not over_codecs]
    if over_engines:
        engine = every["engine"].astype("str")
        changing = quality.is_none(every["codec"]) & every["output_error"].gt(quality.SAME_OUTPUT)
        apart = engine.where(engine.isin([] if over_codecs else engine[changing].unique()), "")
        by = [apart if name == "engine" else name for name in by]
    for _, rows in every.groupby(by, dropna=False, sort=False, observed=True):
        several = over_engines and rows["engine"].nunique() > 1
        rows = rows.assign(**{WORK: work_names(rows) if several else ""})
        varied = ["codec"] * over_codecs + ["engine"] * several
        yield Workload(rows, runs, {} if is_chain(rows) else known, noise, varied)

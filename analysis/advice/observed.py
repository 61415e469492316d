"""The measurements of one workload as a frame, a row a valid trial, and medians over all rounds or of each alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from pareto.analysis.fronts import quality
from pareto.analysis.naming import backends
from pareto.analysis.prediction.network import Network
from pareto.analysis.runs.points import (
    AT_WORK,
    CONDITION,
    NO_CODEC,
    SETTLED,
    STANDS_FOR,
    TRIAL,
    in_every_codec,
    nothing_crosses,
    order,
    pooled,
    round_of,
    work_names,
)
from pareto.analysis.runs.standing import stands
from pareto.analysis.statistics.samples import Bools, Floats, Ints
from pareto.protocol.constants import GOODPUT

WORKLOAD = [name for name in CONDITION if name != "netem"]
"""Columns that are the same for all points that advice chooses from; the network is what it is about."""
OVER_CODECS = [name for name in WORKLOAD if name != "codec"]
"""The same where it chooses a codec, too."""
OVER_ENGINES = [name for name in WORKLOAD if name != "engine"]
"""The same where it chooses an engine."""
WORK = "work"
"""The column of the engines at work (`runs.points.work_names`), if advice chooses one; else empty text."""
CELL = ["codec", "engine", "backend", "point"]
"""Columns that tell the cells of one workload apart. `engine` is empty text where advice chooses none."""
KEPT = (
    *("edge_s", "serialize_s", "server_s", "payload_bytes", "wire_bytes", "result_bytes"),
    *(
        "top1",
        "top1_images",
        "agreement",
        "agreement_images",
        "output_error",
        quality.MEAN_IOU,
        quality.MAP50,
    ),
    *("edge_rss_bytes", "edge_peak_rss_bytes", "server_rss_bytes", "server_peak_rss_bytes"),
)
"""Figures of a cell that do not depend on the network."""
NEEDED = list(
    dict.fromkeys(
        [
            *("status", "point_name", "testbed", *TRIAL, WORK, STANDS_FOR),
            *(*quality.MARKS.values(), "latency_s", "network_s", "throughput_ips"),
            *("latency_bound_s", "throughput_bound_ips", "in_flight", *KEPT),
        ]
    )
)
"""The columns of a trial that are kept: half a million rows of all of them are half a gigabyte."""
CLEARLY = 1.5
"""The step that bounds the throughput takes so many times as long as the others. Where two are near each other both
bound it, as sending takes the processor's time too, and the trial says nothing of either."""
MIN_ROUNDS = 3
"""With fewer rounds nothing is said of how sure a ranking is."""
MOST_ROUNDS = 100
"""More rounds are taken together with those that follow: thousands take long and tell no more."""
MEASURES = ["latency_s", "throughput_ips", "work_s", "overhead_s", "stage_s", "period_s", "filling"]


@dataclass(frozen=True)
class Observed:
    """The measurements of one workload.

    cells: a row a cell: the workload, engine, backend, point, point_name, medians of `KEPT`, and its accuracy
    (`analysis.fronts.quality`). A point where nothing crosses is one cell without a backend (`runs.points.pooled`).
    trials: a row a valid trial: netem, its cell and round by number, repeat (which one of the cell in the round), and

    - latency_s, throughput_ips: as measured. work_s: what is not the network's: stages and serialization.
    - overhead_s: what the network took beyond delays, and payload and result at TCP's goodput; NaN where the profile is
      not in `networks`, and where nothing crosses.
    - stage_s: the slowest stage's time, the better of both phases. period_s: seconds from one batch to the next, where
      that stage `CLEARLY` bounded it. filling: the share of TCP's goodput that was reached, where the link did.

    stratum: for each round the set of profiles that its run has, as a number.
    """

    cells: pd.DataFrame
    trials: pd.DataFrame
    networks: Mapping[str, Network]
    stratum: Ints

    @property
    def profiles(self) -> list[str]:
        """The profiles of a known network, in the order of the run."""
        return [str(name) for name in self.trials["netem"].unique() if name in self.networks]

    @property
    def present(self) -> Bools:
        """Mask of the cells that each round measured at all: rounds x cells."""
        present = np.zeros((len(self.stratum), len(self.cells)), dtype=bool)
        present[self.trials["round"], self.trials["cell"]] = True
        return present

    @property
    def rounds(self) -> Ints:
        """The number of rounds of each cell: the fewest in a stratum that has any."""
        counts = pd.DataFrame(self.present).groupby(self.stratum).sum()
        return np.asarray(counts.where(counts > 0).min().fillna(0).astype("int64"))

    def at(self, profile: str) -> Observed:
        """The measurements at this profile alone."""
        return replace(self, trials=self.trials[self.trials["netem"] == profile])

    def without(self, profile: str) -> Observed:
        return replace(self, trials=self.trials[self.trials["netem"] != profile])

    def medians(self, measure: str, *, by_round: bool = False) -> Floats:
        """The medians of cells over all rounds and profiles, or of each round alone: rounds x cells. NaN: none.

        A round that has none of a cell's trials gets the median of all of them.
        """
        cells = range(len(self.cells))
        of_all = self.trials.groupby("cell")[measure].median().reindex(cells)
        if not by_round:
            return np.asarray(of_all)
        each = self.trials.groupby(["round", "cell"])[measure].median().unstack("cell")
        return np.asarray(each.reindex(index=range(len(self.stratum)), columns=cells).fillna(of_all))

    def together(self) -> Observed:
        """The same with at most about `MOST_ROUNDS` rounds, each the medians of several of one stratum."""
        rounds = len(self.stratum)
        if rounds <= MOST_ROUNDS:
            return self
        parts: list[Ints] = []
        for stratum in np.unique(self.stratum):
            members = np.flatnonzero(self.stratum == stratum)
            most = max(MIN_ROUNDS, MOST_ROUNDS * len(members) // rounds)
            parts += np.array_split(members, min(len(members), most))
        block = np.repeat(np.arange(len(parts)), [len(part) for part in parts])[
            np.argsort(np.concatenate(parts))
        ]
        of_block = self.trials.assign(round=block[self.trials["round"]])
        groups = of_block.groupby(["round", "netem", "repeat", "cell"], sort=False)
        trials = groups[MEASURES].median().reset_index()
        return replace(self, trials=trials, stratum=self.stratum[[part[0] for part in parts]])


def needed(trials: pd.DataFrame, *also: str) -> pd.DataFrame:
    """The trials, with the columns that advice looks at as far as they have them, and with these ones."""
    return trials[[name for name in dict.fromkeys((*NEEDED, SETTLED, *also)) if name in trials]]


def workloads(
    trials: pd.DataFrame, *, over_codecs: bool = False, over_engines: bool = False
) -> Iterator[pd.DataFrame]:
    """The trials of each workload, valid or not, in their order; the columns that advice looks at.

    over_codecs, over_engines: those of all codecs, or engines, are one workload; each trial keeps its setup. An engine
    that changes the results is a workload of its own unless all codecs are one, so that none wins by its losses.
    """
    wanted = trials.reindex(columns=[*NEEDED, *([SETTLED] if SETTLED in trials else [])])
    if over_codecs:
        wanted["codec"] = wanted["codec"].astype("str").where(~nothing_crosses(wanted), NO_CODEC)
    else:
        wanted = in_every_codec(wanted)
    by: list[Any] = OVER_CODECS if over_codecs else WORKLOAD
    if over_engines:
        engine = wanted["engine"].astype("str")
        changing = quality.is_none(wanted["codec"]) & wanted["output_error"].gt(quality.SAME_OUTPUT)
        apart = engine.where(engine.isin([] if over_codecs else engine[changing].unique()), "")
        by = [apart if name == "engine" else name for name in by]
    for _, rows in wanted.groupby(by, dropna=False, sort=False, observed=True):
        several = over_engines and rows["engine"].nunique() > 1
        yield rows.assign(**{WORK: work_names(rows) if several else ""})


def observe(trials: pd.DataFrame, stages: pd.DataFrame, networks: Mapping[str, Network]) -> Observed:
    """The valid trials of one workload, of any number of runs and profiles; there must be one at least.

    Takes the frames of `analysis.runs.load`. Runs older than `stages.csv` have the medians of the latency phase in
    place of the better mean of both.
    """
    # Columns first, rows then: the other way round, all that is measured would be copied.
    columns = [*NEEDED, *([AT_WORK] if AT_WORK in trials else [])]
    ok = trials.reindex(columns=columns)[stands(trials, "latency") & trials["latency_s"].notna()]
    for name in (STANDS_FOR, WORK, *quality.MARKS.values()):
        ok[name] = ok[name].astype(object).fillna("").astype("str")
    stages, ok = pooled(stages, ok), pooled(ok)
    # Keys may be categories, which take no new value.
    texts = ["testbed", "point_name", *(name for name in TRIAL if name not in ("batch_size", "round"))]
    ok = ok.astype({name: "str" for name in texts if ok[name].dtype != "str"})
    crosses = ok["payload_bytes"] > 0
    # Without a codec what crosses is the payload; so it is taken to be where it was not measured.
    ok["wire_bytes"] = ok["wire_bytes"].fillna(ok["payload_bytes"])
    ok["stage_s"] = _slowest(ok, stages)
    ok["work_s"] = ok["latency_s"] - ok["network_s"].where(crosses, 0.0)
    links = pd.DataFrame.from_dict(
        {name: vars(networks[name]) for name in ok["netem"].unique() if name in networks},
        orient="index",
        columns=list(vars(Network(0.0, 1.0))),
        dtype="float64",
    )
    ok = ok.join(links, on="netem")
    out_s, back_s = 8 * ok["wire_bytes"] / ok["rate_bps"], 8 * ok["result_bytes"] / ok["rate_back_bps"]
    carried_s = ok["delay_s"] + ok["delay_back_s"] + (out_s + back_s) / GOODPUT
    ok["overhead_s"] = (ok["network_s"] - carried_s).where(crosses)
    period_s = ok["batch_size"] / ok["throughput_ips"]
    link_s = (np.maximum(out_s, back_s) / GOODPUT).where(crosses, 0.0)
    waiting_s = (ok["latency_s"] / ok["in_flight"]).where(crosses & ok["in_flight"].notna(), 0.0)
    waits = waiting_s > np.maximum(link_s, ok["stage_s"])
    ok["period_s"] = period_s.where((ok["stage_s"] >= CLEARLY * link_s) & ~waits)
    ok["filling"] = (link_s / period_s).where((link_s >= CLEARLY * ok["stage_s"]) & ~waits)

    cells, ok["cell"] = _cells(ok)
    ok["round"] = ok.groupby(["run", round_of(ok)], sort=False).ngroup()
    ok["repeat"] = ok.groupby(["round", "netem", "cell"]).cumcount()
    profiles_of = ok.groupby("run")["netem"].agg(lambda names: " ".join(sorted(names.unique())))
    run_of = ok.drop_duplicates("round").sort_values("round")["run"]
    stratum = pd.factorize(run_of.map(profiles_of))[0].astype(np.int64)
    return Observed(cells, ok[["netem", "cell", "round", "repeat", *MEASURES]], networks, stratum)


def _slowest(ok: pd.DataFrame, stages: pd.DataFrame) -> pd.Series:
    """The time of the slowest stage of each trial, the better of both phases."""
    if stages.empty:
        return ok[["edge_s", "server_s"]].max(axis=1)
    keys = [name for name in ("testbed", *TRIAL) if name in stages]
    best = stages.groupby(keys, observed=True)["best_s"].max().rename("best").reset_index()
    # The stages are those of the codec that was measured.
    measured = ok.assign(codec=ok[AT_WORK]) if AT_WORK in ok else ok
    slowest = measured[keys].merge(best, how="left", on=keys)["best"].set_axis(ok.index)
    return slowest.fillna(ok[["edge_s", "server_s"]].max(axis=1))


def _cells(ok: pd.DataFrame) -> tuple[pd.DataFrame, Ints]:
    """The cells, and the number of each trial's cell."""
    groups = ok.groupby(["codec", WORK, "backend", "point"])
    cells = groups[[*KEPT]].median()
    cells.insert(0, "point_name", groups["point_name"].max())
    cells.insert(1, STANDS_FOR, groups[STANDS_FOR].max())
    for name in quality.MARKS.values():
        cells[name] = groups[name].max().where(groups[name].nunique() == 1, "")
    cells = cells.reset_index().rename(columns={WORK: "engine"})
    same = ok.head(1)[WORKLOAD].to_dict("records")[0]
    own = {name: cells.pop(name) for name in ("codec", "engine")}
    for place, name in enumerate(WORKLOAD):
        cells.insert(place, name, own.get(name, same[name]))
    cells = quality.with_quality(cells.assign(rounds=1)).drop(columns="rounds")
    # tcp first, as everywhere.
    later = cells["backend"].map({name: place for place, name in enumerate(backends(cells))})
    keys = cells.assign(place=order(cells["point"]), later=later)
    ordered = keys.sort_values(["place", "later", "codec", "engine"], kind="stable").index
    return cells.loc[ordered].reset_index(drop=True), np.argsort(ordered)[groups.ngroup().to_numpy()]

"""The measurements of one workload as a frame, a row a valid trial, and medians over all rounds or of each alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from pareto.analysis.fronts import quality
from pareto.analysis.naming import backends
from pareto.analysis.prediction.formula import Conditions, carrying_s, occupied_s
from pareto.analysis.prediction.network import Network
from pareto.analysis.runs.points import BUT_CODEC, CONDITION, TRIAL, cuts, order, round_of
from pareto.analysis.runs.standing import SETTLED, stands
from pareto.analysis.runs.treatments import AT_WORK, STANDS_FOR, pooled
from pareto.analysis.statistics.samples import Bools, Floats, Ints

WORKLOAD = [name for name in CONDITION if name != "netem"]
"""Columns that are the same for all points that advice chooses from; the network is what it is about."""
OVER_CODECS = [name for name in WORKLOAD if name != "codec"]
"""The same where it chooses a codec, too."""
WORK = "work"
"""The column of the engines at work (`runs.treatments.work_names`), if advice chooses one; else empty text."""
CELL = ["codec", "engine", "backend", "point"]
"""Columns that tell the cells of one workload apart. `engine` is empty text where advice chooses none."""
KEPT = (
    *("edge_s", "serialize_s", "server_s", "payload_bytes", "wire_bytes", "result_bytes"),
    *("top1", "top1_images", "agreement", "agreement_images", "output_error"),
    *(quality.MEAN_IOU, quality.MAP50),
    *("edge_rss_bytes", "edge_peak_rss_bytes", "server_rss_bytes", "server_peak_rss_bytes"),
)
"""Figures of a cell that do not depend on the network."""
_TEXTS = (STANDS_FOR, WORK, *quality.MARKS.values())
NEEDED = [
    *("status", "point_name", "testbed", *TRIAL, *_TEXTS, "latency_s", "network_s", "throughput_ips"),
    *("latency_bound_s", "throughput_bound_ips", "in_flight", *KEPT),
]
"""The columns of a trial that are kept: half a million rows of all of them are half a gigabyte."""
CLEARLY = 1.5
"""The step that bounds the throughput takes so many times as long as the others. Where two are near each other both
bound it, as sending takes the processor's time too, and the trial says nothing of either."""
MIN_ROUNDS = 3
"""With fewer rounds nothing is said of how sure a ranking is."""
MOST_ROUNDS = 100
"""More rounds are taken together with those that follow: thousands take long and tell no more."""
MEASURES = ["latency_s", "throughput_ips", "work_s", "overhead_s", "stage_s", "period_s", "filling"]


def needed(trials: pd.DataFrame, *also: str) -> pd.DataFrame:
    """The trials, with the columns that advice looks at and these ones, as far as they have them; and with what crosses
    at their points where they failed before they knew: it is the same in every network.
    """
    trials = trials[[name for name in dict.fromkeys((*NEEDED, SETTLED, *also)) if name in trials]]
    columns = trials.columns.intersection(["payload_bytes", "result_bytes", "wire_bytes"])
    if not (lacking := trials[columns].isna()).any(axis=None):
        return trials
    same = [name for name in (*BUT_CODEC, "codec", "point") if name in trials and name != "netem"]
    known = trials.groupby(same, dropna=False, observed=True)[[*columns]].transform("min")
    return trials.assign(**{name: trials[name].where(~lacking[name], known[name]) for name in columns})


def is_chain(rows: pd.DataFrame) -> bool:
    """Whether points of some rows have several cuts, one for each link."""
    return any(len(cuts(point)) > 1 for point in rows["point"].unique())


def linked(trials: pd.DataFrame, networks: Mapping[str, Network]) -> pd.DataFrame:
    """The trials, with the figures of their profile's network; NaN where that is not known."""
    links = [vars(of) for of in networks.values()]
    return trials.join(pd.DataFrame(links, [*networks], [*Network.__annotations__], "float64"), on="netem")


@dataclass(frozen=True)
class Observed:
    """The measurements of one workload.

    cells: a row a cell: the workload, engine, backend, point, point_name, medians of `KEPT`, and its accuracy
    (`analysis.fronts.quality`). A point where nothing crosses is one cell without a backend (`runs.treatments.pooled`).
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

    def at(self, profile: str, *, without: bool = False) -> Observed:
        """The measurements at this profile alone, or at all others; at every profile, if it is empty text."""
        at = self.trials["netem"] == profile
        return replace(self, trials=self.trials[at != without]) if profile else self

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
        rounds, strata = len(self.stratum), list[int]()
        if rounds <= MOST_ROUNDS:
            return self
        block = np.zeros(rounds, dtype=np.int64)
        for stratum in np.unique(self.stratum):
            members = np.flatnonzero(self.stratum == stratum)
            most = max(MIN_ROUNDS, MOST_ROUNDS * len(members) // rounds)
            for part in np.array_split(members, min(len(members), most)):
                block[part] = len(strata)
                strata.append(stratum)
        of_block = self.trials.assign(round=block[self.trials["round"]])
        groups = of_block.groupby(["round", "netem", "repeat", "cell"], sort=False)
        return replace(self, trials=groups[MEASURES].median().reset_index(), stratum=np.array(strata))


def observe(trials: pd.DataFrame, stages: pd.DataFrame, networks: Mapping[str, Network]) -> Observed:
    """The measurements in the trials of one workload, of which one at least must be valid. Runs older than `stages.csv`
    have the medians of the latency phase in place of the better mean of both.
    """
    # Columns first, rows then: the other way round, all that is measured would be copied.
    columns = [*NEEDED, *([AT_WORK] if AT_WORK in trials else [])]
    ok = trials.reindex(columns=columns)[stands(trials, "latency") & trials["latency_s"].notna()]
    ok = ok.assign(**{name: ok[name].astype(object).fillna("").astype("str") for name in _TEXTS})
    stages, ok = pooled(stages, ok), pooled(ok)
    # Keys may be categories, which take no new value.
    texts = ["testbed", "point_name", *(name for name in TRIAL if name not in ("batch_size", "round"))]
    ok = ok.astype({name: "str" for name in texts if ok[name].dtype != "str"})
    crosses = ok["payload_bytes"] > 0
    # Without a codec what crosses is the payload; so it is taken to be where it was not measured.
    ok["wire_bytes"] = ok["wire_bytes"].fillna(ok["payload_bytes"])
    ok["stage_s"] = _slowest(ok, stages)
    ok["work_s"] = ok["latency_s"] - ok["network_s"].where(crosses, 0.0)
    ok = linked(ok, networks)
    link = Conditions(**{name: ok[name].to_numpy() for name in Network.__annotations__})
    request = *ok[["wire_bytes", "result_bytes"]].to_numpy(float).T, link
    ok["overhead_s"] = (ok["network_s"] - carrying_s(*request)).where(crosses)
    period_s, link_s = ok["batch_size"] / ok["throughput_ips"], occupied_s(*request)
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
    slowest = ok[["edge_s", "server_s"]].max(axis=1)
    if stages.empty:
        return slowest
    keys = [name for name in ("testbed", *TRIAL) if name in stages]
    best = stages.groupby(keys, observed=True)["best_s"].max().rename("best").reset_index()
    # The stages are those of the codec that was measured.
    measured = ok.assign(codec=ok[AT_WORK]) if AT_WORK in ok else ok
    return measured[keys].merge(best, how="left", on=keys)["best"].set_axis(ok.index).fillna(slowest)


def _cells(ok: pd.DataFrame) -> tuple[pd.DataFrame, Ints]:
    """The cells, and the number of each trial's cell."""
    groups = ok.groupby(["codec", WORK, "backend", "point"])
    cells = groups[["point_name", STANDS_FOR]].max().join(groups[[*KEPT]].median())
    for name in quality.MARKS.values():
        cells[name] = groups[name].max().where(groups[name].nunique() == 1, "")
    cells = cells.reset_index().rename(columns={WORK: "engine"})
    same = {name: ok[name].iloc[0] for name in WORKLOAD if name not in cells}
    cells = quality.with_quality(cells.assign(**same, rounds=1)).drop(columns="rounds")
    # tcp first, as everywhere.
    later = {name: place for place, name in enumerate(backends(cells))}
    keys = cells.assign(place=order(cells["point"]), later=cells["backend"].map(later))
    ordered = keys.sort_values(["place", "later", "codec", "engine"], kind="stable").index
    return cells.loc[ordered].reset_index(drop=True), np.argsort(ordered)[groups.ngroup().to_numpy()]

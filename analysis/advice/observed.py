"""The measurements of one workload as arrays that rounds can be drawn from, and medians over whole rounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from pareto.analysis.engines import BUT_ENGINE, BUT_FACTORS, engines, without_engine, work_names
from pareto.analysis.fronts import quality
from pareto.analysis.naming import backends
from pareto.analysis.points import (
    AT_WORK,
    CONDITION,
    SETTLED,
    STANDS_FOR,
    TRIAL,
    in_every_codec,
    nothing_crosses,
    order,
    pooled,
    round_of,
)
from pareto.analysis.prediction.network import Network
from pareto.analysis.standing import stands
from pareto.analysis.statistics.samples import Bools, Floats, Ints
from pareto.protocol.constants import GOODPUT

WORKLOAD = [name for name in CONDITION if name != "netem"]
"""Columns that are the same for all points that advice chooses from; the network is what it is about."""
OVER_CODECS = [name for name in WORKLOAD if name != "codec"]
"""The same where it chooses a codec, too."""
WORK = "work"
"""The column of the engines at work (`analysis.engines.work_names`), if advice chooses one; else empty text."""
CELL = ["codec", "engine", "backend", "point"]
"""Columns that tell the cells of one workload apart. `engine` is empty text where advice chooses none."""
KEPT = (
    *(
        "edge_s",
        "serialize_s",
        "server_s",
        "payload_bytes",
        "wire_bytes",
        "result_bytes",
        "top1",
        "top1_images",
    ),
    *("agreement", "agreement_images", "output_error", quality.MEAN_IOU, quality.MAP50),
    *("edge_rss_bytes", "edge_peak_rss_bytes", "server_rss_bytes", "server_peak_rss_bytes"),
)
"""Figures of a cell that do not depend on the network."""
NEEDED = list(
    dict.fromkeys(
        (
            "status",
            "point_name",
            "testbed",
            *TRIAL,
            "engine",
            WORK,
            BUT_ENGINE,
            BUT_FACTORS,
            STANDS_FOR,
            *quality.MARKS.values(),
            "latency_s",
            "network_s",
            "throughput_ips",
            "latency_bound_s",
            "throughput_bound_ips",
            "in_flight",
            *KEPT,
        )
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
MEASURES = ("latency_s", "throughput_ips", "work_s", "overhead_s", "stage_s", "period_s", "filling")


@dataclass(frozen=True)
class Observed:
    """The measurements of one workload. The arrays are rounds x places x cells, NaN where there is no valid trial.

    A place is a profile; it comes twice where a cell was measured twice in a round. `cells` has a row a cell: the
    workload, engine, backend, point, point_name, medians of `KEPT`, and its accuracy (`analysis.fronts.quality`). A
    point where nothing crosses is one cell without a backend (`analysis.points.pooled`).

    - latency_s, throughput_ips: as measured. work_s: what is not the network's: stages and serialization.
    - overhead_s: what the network took beyond delays, and payload and result at TCP's goodput; NaN where the profile is
      not in `networks`, and where nothing crosses.
    - stage_s: the slowest stage's time, the better of both phases. period_s: seconds from one batch to the next, where
      that stage `CLEARLY` bounded it. filling: the share of TCP's goodput that was reached, where the link did.
    - stratum: for each round the set of profiles that its run has. Rounds are drawn within it.
    """

    cells: pd.DataFrame
    places: tuple[str, ...]
    networks: Mapping[str, Network]
    stratum: Ints
    latency_s: Floats
    throughput_ips: Floats
    work_s: Floats
    overhead_s: Floats
    stage_s: Floats
    period_s: Floats
    filling: Floats

    @property
    def profiles(self) -> list[str]:
        """The profiles of a known network, in the order of the run."""
        return [name for name in dict.fromkeys(self.places) if name in self.networks]

    @property
    def present(self) -> Bools:
        """Mask of the cells that each round measured at all: rounds x cells."""
        return np.asarray(np.any(~np.isnan(self.latency_s), axis=1))

    @property
    def rounds(self) -> Ints:
        """The number of rounds of each cell: the fewest in a stratum that has any."""
        strata = np.unique(self.stratum)
        counts = np.array([self.present[self.stratum == each].sum(axis=0) for each in strata])
        fewest = np.where(counts > 0, counts, len(self.stratum) + 1).min(axis=0)
        return np.where(counts.any(axis=0), fewest, 0)

    def at(self, *profiles: str) -> Observed:
        """The measurements at these profiles alone."""
        kept = np.array([place in profiles for place in self.places])
        arrays: dict[str, Any] = {name: getattr(self, name)[:, kept] for name in MEASURES}
        places = tuple(place for place in self.places if place in profiles)
        return replace(self, places=places, **arrays)

    def without(self, profile: str) -> Observed:
        return self.at(*(place for place in self.places if place != profile))


def workloads(
    trials: pd.DataFrame, *, over_codecs: bool = False, over_engines: bool = False
) -> Iterator[pd.DataFrame]:
    """The trials of each workload, valid or not, in their order; the columns that advice looks at.

    over_codecs, over_engines: those of all codecs, or engines, are one workload; each trial keeps its setup. An engine
    that changes the results is a workload of its own unless all codecs are one, so that none wins by its losses.
    """
    columns = [*NEEDED, *([SETTLED] if SETTLED in trials else [])]
    needed = trials.reindex(columns=columns)
    if over_codecs:
        needed["codec"] = needed["codec"].astype("str").where(~nothing_crosses(needed), "none")
    else:
        needed = in_every_codec(needed)
    by: list[Any] = OVER_CODECS if over_codecs else WORKLOAD
    if over_engines:
        setups = without_engine(needed)
        if not over_codecs:
            setups = setups.where(~_by_changing_engines(needed), needed["setup"].astype("str"))
        by = [setups if name == "setup" else name for name in by]
    for _, rows in needed.groupby(by, dropna=False, sort=False, observed=True):
        several = over_engines and rows["setup"].nunique() > 1
        yield rows.assign(**{WORK: work_names(rows) if several else ""})


def _by_changing_engines(trials: pd.DataFrame) -> pd.Series:
    """Mask of the trials by an engine that changes results somewhere without a codec."""
    changed = quality.is_none(trials["codec"]) & trials["output_error"].gt(quality.SAME_OUTPUT)
    engine = engines(trials)
    return engine.isin(set(engine[changed]))


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
    netem, profiles = pd.factorize(ok["netem"])
    known = [networks.get(name) for name in profiles]
    for name in vars(Network(0.0, 1.0)):
        ok[name] = np.array([getattr(network, name) if network else np.nan for network in known])[netem]
    out_s, back_s = (8 * ok["wire_bytes"] / ok["rate_bps"], 8 * ok["result_bytes"] / ok["rate_back_bps"])
    carried_s = ok["delay_s"] + ok["delay_back_s"] + (out_s + back_s) / GOODPUT
    ok["overhead_s"] = (ok["network_s"] - carried_s).where(crosses)
    period_s = ok["batch_size"] / ok["throughput_ips"]
    link_s = (np.maximum(out_s, back_s) / GOODPUT).where(crosses, 0.0)
    waiting_s = (ok["latency_s"] / ok["in_flight"]).where(crosses & ok["in_flight"].notna(), 0.0)
    waits = waiting_s > np.maximum(link_s, ok["stage_s"])
    ok["period_s"] = period_s.where((ok["stage_s"] >= CLEARLY * link_s) & ~waits)
    ok["filling"] = (link_s / period_s).where((link_s >= CLEARLY * ok["stage_s"]) & ~waits)

    cells, cell = _cells(ok)
    run, runs = pd.factorize(ok["run"])
    drawn, run_of = _numbered(run, round_of(ok).to_numpy())
    repeat = pd.Series(cell).groupby([drawn, netem, cell]).cumcount().to_numpy()
    place, netem_of = _numbered(netem, repeat)
    arrays = {}
    for name in MEASURES:
        arrays[name] = np.full((len(run_of), len(netem_of), len(cells)), np.nan)
        arrays[name][drawn, place, cell] = ok[name]
    has = np.zeros((len(runs), len(profiles)), dtype=bool)
    has[run, netem] = True
    stratum = pd.factorize(pd.Series([row.tobytes() for row in has]))[0][run_of].astype(np.int64)
    return Observed(cells, tuple(profiles[netem_of]), networks, stratum, **arrays)


def _numbered(one: Ints, other: Ints) -> tuple[Ints, Ints]:
    """Each different pair's number, in the order of appearance; and the first of each pair."""
    within, values = pd.factorize(other)
    number, pairs = pd.factorize(one * len(values) + within)
    return number, pairs // len(values)


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
    codecs = cells.pop("codec")
    same = ok.head(1)[WORKLOAD].to_dict("records")[0]
    if (cells["engine"] != "").any():
        same["setup"] = without_engine(ok.head(1)).iloc[0]
    for place, name in enumerate(WORKLOAD):
        cells.insert(place, name, codecs if name == "codec" else same[name])
    cells = quality.with_quality(cells.assign(rounds=1)).drop(columns="rounds")
    # tcp first, as everywhere.
    cells["later"] = cells["backend"].map({name: place for place, name in enumerate(backends(cells))})
    cells["place"] = order(cells["point"])
    ordered = cells.sort_values(["place", "later", "codec", "engine"], kind="stable")
    cell = np.argsort(ordered.index)[groups.ngroup().to_numpy()]
    return ordered.drop(columns=["place", "later"]).reset_index(drop=True), cell


def together(observed: Observed) -> Observed:
    """The same with at most about `MOST_ROUNDS` rounds, each the medians of several of one stratum."""
    rounds = len(observed.stratum)
    if rounds <= MOST_ROUNDS:
        return observed
    parts: list[Ints] = []
    for stratum in np.unique(observed.stratum):
        members = np.flatnonzero(observed.stratum == stratum)
        parts += np.array_split(
            members, min(len(members), max(MIN_ROUNDS, MOST_ROUNDS * len(members) // rounds))
        )
    arrays: dict[str, Any] = {}
    for name in MEASURES:
        last = np.moveaxis(getattr(observed, name), 0, -1)
        arrays[name] = np.stack([_medians(last[..., part], np.nan) for part in parts])
    return replace(observed, stratum=observed.stratum[[part[0] for part in parts]], **arrays)


def medians(values: Floats, draws: Ints | None = None) -> Floats:
    """Medians of rounds x places x cells over all rounds and places: cells. Over drawn rounds: resamples x cells.

    A missing trial is left out; a draw that has none of a cell's trials gets the median of all of them.
    """
    if draws is None:
        return np.asarray(medians(values, np.arange(len(values))[None])[0])
    result = np.full((len(draws), values.shape[2]), np.nan)
    for cell in range(values.shape[2]):
        of_cell = values[:, :, cell]
        of_cell = of_cell[:, ~np.isnan(of_cell).all(axis=0)]
        if of_cell.size:
            middle = float(np.median(of_cell[~np.isnan(of_cell)]))
            result[:, cell] = _medians(of_cell[draws].reshape(len(draws), -1), middle)
    return result


def _medians(values: Floats, otherwise: float) -> Floats:
    """The medians along the last axis, without NaN; many times as fast as `numpy.nanmedian`."""
    count = np.count_nonzero(~np.isnan(values), axis=-1)
    if (count == values.shape[-1]).all():
        return np.asarray(np.median(values, axis=-1))
    ordered = np.sort(values, axis=-1)  # NaN last
    one, other = (
        np.take_along_axis(ordered, place[..., None], axis=-1)[..., 0]
        for place in (np.maximum(count - 1, 0) // 2, count // 2)
    )
    return np.where(count > 0, (one + other) / 2, otherwise)

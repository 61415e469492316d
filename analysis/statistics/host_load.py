"""Other load on the hosts while they were measured: a line for each kind, with what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from pareto.analysis.naming import USUAL, cell_title, listed
from pareto.analysis.runs.manifest import directions, section, sessions, within
from pareto.analysis.runs.points import CELL, TRIAL, of_role
from pareto.analysis.runs.standing import stands
from pareto.analysis.statistics.doubt import AGAIN, GOVERNOR, PROGRAMS, Doubt
from pareto.remote.link.units import duration, percent

SLOWER, MATTERS = 1.25, 0.05
"""A stage that takes this multiple of its baseline, which makes up this share of the latency, is worth a look."""
TAKEN = 10.0
"""Percent of a host's cores that something else may take before it is reported. Measuring itself takes 1 to 3."""
REMEDY = (PROGRAMS, GOVERNOR, AGAIN)
_CORES, _SHARE = f"took over {TAKEN:g} % of the hosts' cores", "{:.0f} % on {}"
_SLOW = "{:.1f} times on {}: something else ran there, or its clock changed"
LOADS = {
    "slowdown": (SLOWER, f"a stage took over {SLOWER:g} times as long as alone", _SLOW, REMEDY),
    "others_percent": (TAKEN, f"other programs {_CORES}", _SHARE, (PROGRAMS,)),
    "strangers_percent": (TAKEN, f"other programs than this run's {_CORES}", _SHARE, (PROGRAMS,)),
    "steal_percent": (TAKEN, f"other machines on the same hypervisor {_CORES}", _SHARE, (PROGRAMS,)),
}
"""By figure of a host in a trial: what is much of it, and in words that it was, where most of all, and what to do."""
CHANGED = 1.5
"""Baselines of one stage in one run that are this far apart are of two machines, as it were."""
LATE, LATE_S = 1.5, 0.005
"""A latency of this multiple of its bound, and this many seconds above it, has another cause than the transports: by
them alone it was under 1.3 times its bound in all that was measured over links that lose nothing."""
IMPAIRED = ("jitter_s", "loss", "duplicate", "reorder", "corrupt", "trace")
"""Settings of a profile by which a link is not always the same, or loses something."""
HOSTS = ("edge", "server")
STAGE = ["run", "model", "batch_size", "engine", "allocator", "host", "first_unit", "last_unit"]


def doubts(trials: pd.DataFrame, stages: pd.DataFrame, *, shared: bool) -> Iterator[Doubt]:
    """At most one doubt of each kind of load; none where the hosts had nothing else to do, or did not tell.

    Only trials that count are looked at: a latency whose stage was slowed by more does not. shared: the hosts are one
    machine with the harness, whose own programs count among the others'.
    """
    # Columns first: a million rows of all of them are a gigabyte.
    names = ["s", *(name for name in LOADS if name != "strangers_percent")]
    columns = [*TRIAL, "latency_s", "strangers_percent", *(f"{host}_{of}" for host in HOSTS for of in names)]
    ok = trials.loc[stands(trials), columns]
    parts = {f"the {host}": ok[[f"{host}_{of}" for of in names]].set_axis(names, axis=1) for host in HOSTS}
    every = pd.concat({**parts, "all hosts": ok[["strangers_percent"]]})
    lost_s = (every["s"] * (1 - 1 / every["slowdown"])).to_numpy()
    least_s = MATTERS * ok["latency_s"].loc[every.index.get_level_values(1)].to_numpy()
    every["slowdown"] = every["slowdown"].where(lost_s > least_s)
    every = every.drop(columns="others_percent" if shared else "strangers_percent")
    for name, (least, head, most, cures) in LOADS.items():
        figures = every.get(name, pd.Series(dtype=float))
        much = figures[figures > least]
        if len(much):
            whose, trial = much.idxmax()
            row, count = ok.loc[trial], much.index.get_level_values(1).nunique()
            worst = f"most at {cell_title(row)} in round {row['round']}: {most.format(much.max(), whose)}"
            yield Doubt(f"{head} in {count} of {len(ok)} trials", worst, cures)
    known = stages.reindex(columns=[*dict.fromkeys([*TRIAL, *STAGE]), "baseline_s"])
    known = known[known["baseline_s"].notna()].merge(ok[TRIAL], on=TRIAL)
    # Few rows first, then the engine of each host by name: a million names take seconds.
    known = known.groupby(STAGE, dropna=False, observed=True)["baseline_s"].agg(["min", "max"]).reset_index()
    for name in ("engine", "allocator"):
        named = zip(known[name].astype("str"), known["host"].astype("str"), strict=True)
        known[name] = [of_role(each, host, USUAL[name]) for each, host in named]
    spread = known.groupby(STAGE, dropna=False).agg({"min": "min", "max": "max"}).reset_index()
    apart = spread["max"] / spread["min"]
    if count := (apart > CHANGED).sum():
        row = spread.loc[apart.idxmax()]
        yield Doubt(
            f"{count} of {len(spread)} stages took over {CHANGED:g} times as long alone in one trial as in another",
            f"most of all the {row['host']}'s from unit {row['first_unit']:.0f} on: {duration(row['min'])} and "
            f"{duration(row['max'])}: the host itself changed",
            REMEDY,
        )


def on_one_core(manifests: Sequence[Mapping[str, Any]]) -> Iterator[Doubt]:
    """A doubt for each set of hosts of a local testbed that had one physical core between them."""
    every = [session for manifest in manifests for session in sessions(manifest)]
    shared = {tuple(roles) for session in every for roles in within(session, "testbed", "on_one_core") or ()}
    why = "so that each was slower while the other computed, and no throughput is its own"
    yield from (Doubt(f"{listed(roles)} shared one physical core", why) for roles in sorted(shared))


def beyond(front: pd.DataFrame, manifests: Sequence[Mapping[str, Any]]) -> Iterator[Doubt]:
    """A doubt if points of a front take much longer than their bounds over links that neither vary nor lose anything:
    something between stages and links takes the time, such as a host that is slow to answer.
    """

    def varies(manifest: Mapping[str, Any], profile: str) -> bool:
        ways = directions(manifest, profile)
        is_impaired = any(way.get(what) for way in ways for what in IMPAIRED)
        return is_impaired or bool(within(manifest, "profiles", profile, "bucket"))

    still = [
        netem
        for manifest in manifests
        for netem, names in section(manifest, "networks").items()
        if not any(varies(manifest, name) for name in names)
    ]
    crossing = front[front["netem"].isin(still) & (front["payload_bytes"] > 0) & front["latency_s"].notna()]
    beyond_s = crossing["latency_s"] - crossing["latency_bound_s"]
    late = beyond_s[(beyond_s > LATE_S) & (crossing["latency_s"] > LATE * crossing["latency_bound_s"])]
    if len(late):
        worst = crossing.loc[late.idxmax()]
        yield Doubt(
            f"{len(late)} of {len(crossing)} points that cross the link take over {LATE:g} times their bound",
            f"most of all {cell_title(worst)}: {duration(worst['latency_s'])}, of which neither the stages nor the "
            f"link take {duration(late.max())}",
            (
                "look at the hosts' wait_percent in trials.csv: something between stages and link takes that time",
            ),
        )


def full_cores(trials: pd.DataFrame, *, shared: bool) -> Iterator[str]:
    """A line if hosts' cores bounded the throughput of some cells, and neither a stage alone nor the link.

    shared: as for `doubts`.
    """
    told = trials[[f"{host}_core_percent" for host in HOSTS]].notna().any(axis=1)
    known = trials[stands(trials, "throughput") & told]
    reached = known["throughput_ips"] / known["throughput_bound_ips"]
    known = known.assign(full=known["full_cores"] != "", reached=reached).dropna(subset="reached")
    cells = known.groupby(CELL, dropna=False, as_index=False).agg(
        full=("full", "mean"), reached=("reached", "median"), strangers=("strangers_percent", "median")
    )
    held = cells[cells["full"] > 0.5]
    if len(held):
        worst = held.loc[held["reached"].idxmin()]
        why = "which have more to do than the stages"
        if shared:
            why = "which carry the link and all senders as well"
        if (held["strangers"] > TAKEN).any():
            why = "of which programs that are none of this run's took a part"
        yield (
            f"the throughput of {len(held)} of {len(cells)} cells is held below its bound by the hosts' cores, {why}; "
            f"most at {cell_title(worst)}: {percent(worst['reached'])} of its bound"
        )

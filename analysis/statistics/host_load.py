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
CHANGED = 1.5
"""Baselines of one stage in one run that are this far apart are of two machines, as it were."""
TAKEN = 10.0
"""Percent of a host's cores that something else may take before it is reported. Measuring itself takes 1 to 3."""
LATE, LATE_S = 1.5, 0.005
"""A latency of this multiple of its bound, and this many seconds above it, has another cause than the transports: by
them alone it was under 1.3 times its bound in all that was measured over links that lose nothing."""
HOSTS = ("edge", "server")
STAGE = ["run", "model", "batch_size", "engine", "allocator", "host", "first_unit", "last_unit"]
REMEDY = (PROGRAMS, GOVERNOR, AGAIN)


def doubts(trials: pd.DataFrame, stages: pd.DataFrame, *, shared: bool) -> Iterator[Doubt]:
    """At most one doubt of each kind of load; none where the hosts had nothing else to do, or did not tell.

    Only trials that count are looked at: a latency whose stage was slowed by more does not. shared: the hosts are one
    machine with the harness, whose own programs count among the others'.
    """
    # Columns first: a million rows of all of them are a gigabyte.
    of_hosts = [
        f"{host}_{name}" for host in HOSTS for name in ("slowdown", "s", "others_percent", "steal_percent")
    ]
    ok = trials.loc[stands(trials), [*TRIAL, "latency_s", "strangers_percent", *of_hosts]]
    yield from _slower(ok)
    known = stages.reindex(columns=[*dict.fromkeys([*TRIAL, *STAGE]), "baseline_s"])
    yield from _changed(known[known["baseline_s"].notna()].merge(ok[TRIAL], on=TRIAL))
    of_others = [f"{host}_others_percent" for host in HOSTS]
    whom = "other programs than this run's" if shared else "other programs"
    yield from _taken(ok, ["strangers_percent"] if shared else of_others, whom)
    stolen = [f"{host}_steal_percent" for host in HOSTS]
    yield from _taken(ok, stolen, "other machines on the same hypervisor")


def on_one_core(manifests: Sequence[Mapping[str, Any]]) -> Iterator[Doubt]:
    """A doubt for each set of hosts of a local testbed that had one physical core between them."""
    every = [session for manifest in manifests for session in sessions(manifest)]
    shared = {tuple(roles) for session in every for roles in within(session, "testbed", "on_one_core") or ()}
    why = "so that each was slower while the other computed, and no throughput is its own"
    for roles in sorted(shared):
        yield Doubt(f"{listed(roles)} shared one physical core", why)


def beyond(front: pd.DataFrame, manifests: Sequence[Mapping[str, Any]]) -> Iterator[Doubt]:
    """A doubt if points of a front take much longer than their bounds over links that neither vary nor lose anything.

    There stages and links leave nothing else to wait for: something between them takes the time, such as a host that is
    slow to answer.
    """
    still = {
        netem
        for manifest in manifests
        for netem, names in section(manifest, "networks").items()
        if all(_is_still(manifest, name) for name in names)
    }
    crossing = front[front["netem"].isin(still) & (front["payload_bytes"] > 0) & front["latency_s"].notna()]
    beyond_s = crossing["latency_s"] - crossing["latency_bound_s"]
    late = crossing[(beyond_s > LATE_S) & (crossing["latency_s"] > LATE * crossing["latency_bound_s"])]
    if late.empty:
        return
    worst = late.loc[beyond_s[late.index].idxmax()]
    yield Doubt(
        f"{len(late)} of {len(crossing)} points that cross the link take over {LATE:g} times their bound",
        f"most of all {cell_title(worst)}: {duration(worst['latency_s'])}, of which neither the stages nor the link "
        f"take {duration(beyond_s[worst.name])}",
        ("look at the hosts' wait_percent in trials.csv: something between stages and link takes that time",),
    )


def full_cores(trials: pd.DataFrame, *, shared: bool) -> Iterator[str]:
    """A line if hosts' cores bounded the throughput of some cells, and neither a stage alone nor the link.

    shared: as for `doubts`.
    """
    known = trials[
        stands(trials, "throughput") & trials[[f"{host}_core_percent" for host in HOSTS]].notna().any(axis=1)
    ]
    reached = known["throughput_ips"] / known["throughput_bound_ips"]
    known = known.assign(full=known["full_cores"] != "", reached=reached).dropna(subset="reached")
    cells = known.groupby(CELL, dropna=False, as_index=False).agg(
        full=("full", "mean"), reached=("reached", "median"), strangers=("strangers_percent", "median")
    )
    held = cells[cells["full"] > 0.5]
    if held.empty:
        return
    worst = held.loc[held["reached"].idxmin()]
    why = (
        "which carry the link and all senders as well" if shared else "which have more to do than the stages"
    )
    if (held["strangers"] > TAKEN).any():
        why = "of which programs that are none of this run's took a part"
    yield (
        f"the throughput of {len(held)} of {len(cells)} cells is held below its bound by the hosts' cores, {why}; "
        f"most at {cell_title(worst)}: {percent(worst['reached'])} of its bound"
    )


def _is_still(manifest: Mapping[str, Any], profile: str) -> bool:
    """Whether a link of this profile is always the same, and loses nothing."""
    impaired = ("jitter_s", "loss", "duplicate", "reorder", "corrupt", "trace")
    is_impaired = any(way.get(what) for way in directions(manifest, profile) for what in impaired)
    return not is_impaired and not within(manifest, "profiles", profile, "bucket")


def _slower(ok: pd.DataFrame) -> Iterator[Doubt]:
    every = pd.concat(
        ok[[*TRIAL, "latency_s"]].assign(host=host, slowdown=ok[f"{host}_slowdown"], stage_s=ok[f"{host}_s"])
        for host in HOSTS
    ).reset_index(drop=True)
    lost_s = every["stage_s"] * (1 - 1 / every["slowdown"])
    slow = every[(every["slowdown"] > SLOWER) & (lost_s > MATTERS * every["latency_s"])]
    if slow.empty:
        return
    worst, slowed = slow.loc[slow["slowdown"].idxmax()], len(slow.drop_duplicates(TRIAL))
    yield Doubt(
        f"in {slowed} of {len(ok)} trials a stage took over {SLOWER:g} times as long as alone",
        f"most of all the {worst['host']}'s of {cell_title(worst)} in round {worst['round']}: {worst['slowdown']:.1f} "
        "times: something else ran there, or its clock changed",
        REMEDY,
    )


def _changed(stages: pd.DataFrame) -> Iterator[Doubt]:
    known = stages.groupby(STAGE, dropna=False, observed=True)["baseline_s"].agg(["min", "max"]).reset_index()
    hosts = known["host"].astype("str")
    for name in ("engine", "allocator"):
        named = zip(known[name].astype("str"), hosts, strict=True)
        known[name] = [of_role(each, host, USUAL[name]) for each, host in named]
    spread = known.groupby(STAGE, dropna=False).agg({"min": "min", "max": "max"}).reset_index()
    apart = spread[spread["max"] > CHANGED * spread["min"]]
    if apart.empty:
        return
    worst = apart.loc[(apart["max"] / apart["min"]).idxmax()]
    yield Doubt(
        f"{len(apart)} of {len(spread)} stages took over {CHANGED:g} times as long alone in one trial as in another",
        f"most of all the {worst['host']}'s from unit {worst['first_unit']:.0f} on: {duration(worst['min'])} and "
        f"{duration(worst['max'])}: the host itself changed",
        REMEDY,
    )


def _taken(ok: pd.DataFrame, columns: list[str], whom: str) -> Iterator[Doubt]:
    """A doubt if programs took much of the cores. columns: percents of one host's cores, or of all hosts'."""
    most = ok[columns].max(axis=1)
    if not (most > TAKEN).any():
        return
    worst = most.idxmax()
    host = str(ok.loc[worst, columns].astype(float).idxmax()).partition("_")[0]
    whose = f"the {host}'s" if host in HOSTS else "all hosts'"
    yield Doubt(
        f"{whom} took over {TAKEN:g} % of the hosts' cores in {(most > TAKEN).sum()} of {len(ok)} trials",
        f"most at {cell_title(ok.loc[worst])} in round {ok.loc[worst, 'round']}: {most[worst]:.0f} % of {whose}",
        (PROGRAMS,),
    )

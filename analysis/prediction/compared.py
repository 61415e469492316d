"""Forecasts beside what was measured: how far they are off, whether their errors are right, and whether bounds hold."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pareto.analysis.model_profile import ModelProfile, read
from pareto.analysis.naming import NONE, SIMULATED, cell_title, condition_title, count, some, transport
from pareto.analysis.prediction.forecast import Case, Forecasts
from pareto.analysis.prediction.network import Network, networks
from pareto.analysis.runs.manifest import directions, section, within
from pareto.analysis.runs.points import CELL, CONDITION, EAGER, cuts
from pareto.analysis.statistics.doubt import Doubt
from pareto.analysis.statistics.samples import Floats
from pareto.analysis.statistics.significance import MEASURES
from pareto.basics import files
from pareto.protocol.errors import UserError
from pareto.remote.link.probe import Tolerance
from pareto.remote.link.units import percent

FOLDER = "profiles"
"""In a run's folder, the model profiles that it was made with, each in a folder of its own."""
MOST = 64
"""Profiles that are read of a run."""
COLUMNS = (
    *(*CELL, "point_name", "latency_s", "predicted_latency_s", "latency_error", "latency_off"),
    *("least_latency_s", "throughput_ips", "predicted_throughput_ips", "throughput_error", "throughput_off"),
    *("most_throughput_ips", "expected", "beyond_bound", "profile_made_at"),
)


class Errors(NamedTuple):
    """Absolute errors, as shares of what was measured, and the root mean square of log(predicted / measured)."""

    median: float
    worst: float
    spread: float

    @classmethod
    def of(cls, errors: Floats) -> Errors:
        known = errors[np.isfinite(errors) & (errors > -1)]  # nothing measured takes no time
        if not len(known):
            return cls(np.nan, np.nan, np.nan)
        sizes = np.abs(known)
        return cls(float(np.median(sizes)), float(sizes.max()), float(np.sqrt(np.mean(np.log1p(known) ** 2))))


def in_run(folder: Path) -> Iterator[Path]:
    """The folders of the model profiles in a run's folder. Raises UserError, OSError."""
    there = files.listing(folder, FOLDER).items()
    yield from itertools.islice((folder / FOLDER / name for name, kind in there if kind == "a folder"), MOST)


def profiles_of(runs: Iterable[Path], named: Iterable[Path]) -> tuple[list[ModelProfile], list[str]]:
    """The model profiles in the runs' folders and those that are named, and a line on each that is unreadable; a named
    one raises UserError."""
    profiles, unread = [read(folder) for folder in named], []
    for run in runs:
        try:
            profiles += [read(folder) for folder in in_run(run)]
        except (UserError, OSError) as error:
            unread.append(f"{error}: skipped")
    return profiles, unread


def unfit(profile: ModelProfile, manifests: Sequence[Mapping[str, Any]]) -> str:
    """The reason why a profile says nothing of a model as some runs measured it; empty text if it does."""
    runs = [manifest for manifest in manifests if section(manifest, "models", profile.model)]
    if not runs:
        return f"no run measured {profile.model}"
    if any(within(run, "models", profile.model, "graph_digest") != profile.graph_digest for run in runs):
        return f"{profile.model} had another graph, or other points"
    simulated = any(times.device == SIMULATED for times in profile.times)
    if any(bool(run.get(SIMULATED)) != simulated for run in runs):
        return "one of them is simulated, the other is not"
    shares = {times.cpu for times in profile.times if times.role == "edge"}
    if any((within(run, "sweep", "edge_cpu") or 1.0) not in shares for run in runs):
        mine = ", ".join(f"{share:g}" for share in shares)
        return f"the edge had another share of a core (--edge-cpu {mine})"
    return ""


def unused(profiles: Sequence[ModelProfile], manifests: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A line on each profile that is not compared with what was measured, or not with all of it, and why."""
    engines = (within(run, "sweep", "engines") or () for run in manifests)
    named = [name for name in dict.fromkeys(itertools.chain.from_iterable(engines)) if name != EAGER]
    for profile in profiles:
        if why := unfit(profile, manifests):
            yield f"the model profile of {profile.model} of {profile.made_at} is left out: {why}"
        elif named:
            yield (
                f"the model profile of {profile.model} of {profile.made_at} times units in eager: points of "
                f"{', '.join(map(str, named))} are not compared with it"
            )


def compared(
    rows: pd.DataFrame, profiles: Sequence[ModelProfile], manifests: Sequence[Mapping[str, Any]]
) -> pd.DataFrame:
    """One row a measured point that a profile knows: `COLUMNS`. rows: of `analysis.fronts.front.front`.

    latency_error, throughput_error: the forecast's standard deviation, as a share; latency_off, throughput_off:
    predicted over measured, less 1. expected: the objectives whose two standard deviations reach what was measured, or
    its interval. A point without one of both figures has no error of that. beyond_bound: the objectives measured better
    than the forecast's bound, which cannot be.
    """
    made = [pd.DataFrame(columns=list(COLUMNS))]
    by = ["netem", "batch_size", "codec", "in_flight_asked", "backend"]
    # A profile times units in eager.
    measured = rows[rows["engine"] == EAGER].dropna(subset=list(MEASURES.values()), how="all")
    # Without the rows that stand for a cell of another codec, which was measured once: none's come first.
    measured = measured.sort_values("codec", key=lambda codec: codec != NONE, kind="stable")
    figures = [*(name for name in CELL if name != "codec"), *MEASURES.values()]
    known, slack = networks(manifests, strict=False), _widest(manifests)
    for profile in profiles:
        own = measured[measured["model"] == profile.model].drop_duplicates(figures)
        groups = own.groupby(by, sort=False, observed=True) if not unfit(profile, manifests) else ()
        for (netem, batch_size, codec, depth, named), group in groups:
            splits = np.array([cuts(point) for point in group["point"]])
            names = next((names for run in manifests if (names := within(run, "networks", netem))), [netem])
            names = names * splits.shape[1] if len(names) == 1 else names
            if not known.keys() >= set(names):
                continue
            # Where nothing crosses any backend will do.
            backend = next((cost.backend for cost in profile.backends), "") if named == NONE else named
            usual = [known[name] for name in names]
            best = [_nearest(known[name], name, manifests) for name in names]
            case = Case(netem, usual, best, int(batch_size), str(depth), slack, str(codec))
            with suppress(UserError):  # the profile does not know it
                said = Forecasts(profile, case, transport(backend)).of(splits)
                made.append(_beside(group, said).assign(profile_made_at=profile.made_at)[list(COLUMNS)])
    return pd.concat(made[1:] or made, ignore_index=True)


def _widest(manifests: Iterable[Mapping[str, Any]]) -> Tolerance:
    options = ("rtt_tolerance", "rtt_floor", "tolerance")
    asked = ([within(run, "sweep", name) or 0.0 for name in options] for run in manifests)
    return functools.reduce(Tolerance.at_least, itertools.starmap(Tolerance, asked), Tolerance())


def _nearest(network: Network, name: str, manifests: Sequence[Mapping[str, Any]]) -> Network:
    """The network with the least delays that its profile's jitter allows."""
    ways = zip(*(directions(run, name) for run in manifests), strict=True)
    out_s, back_s = (max(way.get("jitter_s") or 0.0 for way in of_runs) for of_runs in ways)
    delays_s = max(0.0, network.delay_s - out_s), max(0.0, network.delay_back_s - back_s)
    return replace(network, delay_s=delays_s[0], delay_back_s=delays_s[1])


def _beside(group: pd.DataFrame, said: Mapping[str, Floats]) -> pd.DataFrame:
    """The rows of one condition and backend, with their forecasts beside them."""
    predicted = {f"predicted_{name}" if name in MEASURES.values() else name: of for name, of in said.items()}
    made = group.assign(**predicted)
    expected, beyond_bound = pd.DataFrame(), pd.DataFrame()
    for objective, column in MEASURES.items():
        unit = column.removeprefix(objective)
        figure, said_to_be, spread = made[column], made[f"predicted_{column}"], 2 * made[f"{objective}_error"]
        made[f"{objective}_off"] = said_to_be / figure - 1
        low, high = (made[f"{objective}_{end}{unit}"].fillna(figure) for end in ("low", "high"))
        expected[objective] = (said_to_be * (1 - spread) <= high) & (said_to_be * (1 + spread) >= low)
        bound = made["least_latency_s" if objective == "latency" else "most_throughput_ips"]
        beyond_bound[objective] = figure < bound if objective == "latency" else figure > bound
    # The names of the columns that hold.
    expected, beyond_bound = (of.dot(of.columns + ",").str.rstrip(",") for of in (expected, beyond_bound))
    return made.assign(expected=expected, beyond_bound=beyond_bound)


def sentences(frame: pd.DataFrame) -> Iterator[str]:
    """A line for each condition: how far off a profile's forecasts were."""
    for _, rows in frame.groupby(CONDITION, sort=False, dropna=False):
        parts = []
        for objective in MEASURES:
            errors = Errors.of(rows[f"{objective}_off"].to_numpy(dtype=np.float64))
            if math.isfinite(errors.median):
                median, worst = percent(errors.median), percent(errors.worst)
                parts.append(f"{objective} off by {median} (median), {worst} (worst)")
        right = sum(rows["expected"].str.count(name).sum() for name in MEASURES)
        figures = int(rows[list(MEASURES.values())].notna().sum().sum())
        yield (
            f"{condition_title(rows.iloc[0])}: the model profile predicted {', '.join(parts)}, at "
            f"{count(len(rows), 'point')}; {right} of {figures} figures within two standard deviations"
        )


def faults(frame: pd.DataFrame) -> Iterator[Doubt]:
    """A doubt on the points that were measured better than the bound of the forecast."""
    beyond = frame[frame["beyond_bound"] != ""]
    if beyond.empty:
        return
    named = some([cell_title(row) for row in beyond.to_dict("records")])
    yield Doubt(
        f"{count(len(beyond), 'point')} beyond the bound of the model profile's least times",
        f"{named}: a device was slower while it was profiled",
        ("profile the model anew",),
    )

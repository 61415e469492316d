"""Model profiles of a testbed: measured once, kept in a folder, and used again on the same devices."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime, timezone
from itertools import pairwise, product
from pathlib import Path
from typing import Any

from rich.console import Console

from pareto.analysis.backend_cost import BackendCost
from pareto.analysis.model_profile import ModelProfile, read
from pareto.analysis.naming import file_stem
from pareto.basics.escaping import short
from pareto.hosts.testbed import Testbed
from pareto.models.prepare import Prepared, prepare, recipe
from pareto.partitions import model as partitioned
from pareto.partitions import registry
from pareto.predict.backend_costs import QUICK, THOROUGH, Care
from pareto.predict.model_times import Timing
from pareto.predict.search import Group, group_of
from pareto.predict.strikes import LEAST_LIKELY
from pareto.protocol.errors import UserError
from pareto.remote.link.units import minutes
from pareto.sweep import dataset_names
from pareto.sweep.networks import links_of
from pareto.sweep.plan import Plan
from pareto.sweep.sweep import Sweep
from pareto.trial.model_upload import Meter
from pareto.trial.start import unbroken
from pareto.trial.workers import Workers

FORM = 2
"""The form of a profile's content: one of an older form is not used again."""
MOST_AGE_S = 24 * 3600
"""A machine's speed drifts: by half from one day to another on some."""
CODEC_S = 0.5
"""For the estimate: what a codec takes at all points on a host."""
ROUNDS_UNTIL_KNOWN = 2
"""Rounds of all cells, until their differences tell what can be on the front."""
MOST_WORDS = 60
"""Characters that are shown of what a profile says of a device: anybody may have written it."""
Facts = Mapping[str, Mapping[str, Any]]
"""By role, what is known of a host."""
Kept = dict[str, tuple[ModelProfile, Path]]
"""By the full name of a model, its profile and the folder that it is kept in."""
DECIDING = ("machine", "cpu", "cores", "device", "cuda", "threads", "torch", "governor")
"""The facts about a device that decide how fast it is."""


def on_testbed(
    out: Console,
    sweep: Sweep,
    bed: Testbed,
    workers: Workers,
    prepared: dict[str, Prepared],
    folder: Path,
    *,
    fresh: bool = False,
    spares_s: float | None = None,
    show: Callable[[str], None],
) -> Kept:
    """The profiles of a sweep's models on an open testbed, by workers that have started and have nothing to do.

    One that is kept beneath `folder` counts if it is of the same graph, devices and settings and not too old. fresh:
    none counts. spares_s: of a search, the seconds of trials that profiles can spare at most: they are made with less
    care, and not at all where that takes longer. prepared: of the workers; what it lacks is added. show: takes what is
    measured now, in words. The links are left without a profile. Raises UserError, TestbedError.
    """
    care = THOROUGH if spares_s is None else QUICK
    profiles: Kept = {}
    with unbroken(bed, "the profile broke off"):
        facts = workers.facts()
        outlines = {name: partitioned.outline(recipe(name, sweep)) for name in names(sweep)}
        places = {name: folder_of(folder, sweep, outline) for name, outline in outlines.items()}
        for name, place in places.items():
            if not fresh and (kept := _kept(out, place, name, facts, care)) is not None:
                profiles[name] = kept, place
        missing, timing = [name for name in outlines if name not in profiles], None
        for number, name in enumerate(missing):
            costs = None if fresh or care is THOROUGH else _costs_of_another(places[name], sweep, facts)
            takes_s = estimate_s(sweep, care, of_links=costs is None)
            all_s = takes_s + (len(missing) - 1) * estimate_s(sweep, care, of_links=False)
            if not number and spares_s is not None and all_s > spares_s:
                words = f"it takes about {minutes(all_s)}, and can spare no more than {minutes(spares_s)} of trials"
                out.print(f"no model profile is made: {words}", soft_wrap=True)
                return profiles
            out.print(f"{name}: its model profile takes about {minutes(takes_s)}, on {', '.join(facts)}")
            if name not in prepared:  # its weights are needed; images are noise there, so one batch is enough
                prepared[name] = prepare(name, sweep.model_copy(update={"images": max(sweep.batch_sizes)}))
            workers.send(Meter(out, show), [name], whole=True)
            timing = timing or Timing(show, sweep, bed, workers, facts, care)
            made = timing.profile(prepared[name], outlines[name], costs)
            made.write(places[name], under=folder)
            profiles[name] = made, places[name]
    return {name: profiles[name] for name in outlines}


def estimate_s(sweep: Sweep, care: Care, *, of_links: bool = True) -> float:
    """The seconds that the profile of a model of usual size takes. of_links: with what backends add."""
    links = links_of(sweep)
    of_codecs_s = (links + 1) * CODEC_S * sum(bool(codec.names) for codec in sweep.coding)
    turns = links + 1 if care is THOROUGH else 1
    of_units_s = turns * (care.host_s + care.seconds)
    return (of_units_s + of_codecs_s) * len(sweep.batch_sizes) + links * care.link_s * of_links


def spares_s(whole: Plan) -> float:
    """The most seconds of a search's trials that model profiles can spare, by the plan of all its cells: all that the
    first `ROUNDS_UNTIL_KNOWN` rounds have beyond the cells that are always measured."""
    taken_s: dict[tuple[int, Group], list[float]] = {}
    for trial in whole.trials:
        if trial.round <= ROUNDS_UNTIL_KNOWN:
            taken_s.setdefault((trial.round, group_of(trial.cell.condition)), []).append(trial.estimate_s)
    return sum(sum(sorted(of_round)[LEAST_LIKELY:]) for of_round in taken_s.values())


def folder_of(folder: Path, sweep: Sweep, outline: partitioned.Outline, world: Any = None) -> Path:
    """Where the profile of a model is kept: a folder for each graph, testbed, and setting that changes a time.

    The name's end is the same for all models whose backends cost the same. world: the record of a simulated testbed.
    """
    where = sweep.testbed if world is None else world
    links, tcp = links_of(sweep), asdict(sweep.tcp)
    of_links: list[Any] = [FORM, where, sweep.edge_cpu, sweep.threads or 1, links, tcp, sweep.device]
    settings: list[Any] = [outline.graph_digest, sweep.batch_sizes, sweep.transports]
    if any(codec.names for codec in sweep.coding):  # which take longer for some images than for others
        images = sweep.dataset, str(sweep.data_path), sweep.images, sweep.weights, sweep.seed
        own = [*(codec.own for codec in sweep.coding), dataset_names.OWN.own(sweep.dataset)]
        settings += [sorted(sweep.codecs), *(each.digest() for each in own if each), *images]
    keys = (json.dumps(each, sort_keys=True).encode() for each in (settings, of_links))
    stems = [file_stem(outline.name), *(hashlib.sha256(key).hexdigest()[:10] for key in keys)]
    return folder / "-".join(stems)


def difference(then: Facts, now: Facts) -> str:
    """The first thing in which hosts of a profile are others than those there are, in words; empty: there is none."""
    if list(then) != list(now):
        return f"its hosts are {', '.join(then) or 'none'}"
    for role, key in product(now, DECIDING):
        was, is_now = (_deciding(facts[role].get(key)) for facts in (then, now))
        if was != is_now:
            return f"the {role}'s {key} was {short(str(was), MOST_WORDS)}, and is {is_now}"
    return ""


def _deciding(value: Any) -> Any:
    """The part of a fact that decides: of a list of cores their number, of a GPU its name; not which ones they are."""
    if isinstance(value, list | tuple):
        return len(value)
    return value.get("name") if isinstance(value, Mapping) else value


def _kept(out: Console, folder: Path, name: str, facts: Facts, care: Care) -> ModelProfile | None:
    """The profile that is kept in a folder, if it counts; says why it does not."""
    if not folder.exists():
        return None
    try:
        profile = read(folder)
        if care is THOROUGH and not any("peak_flops" in of_host for of_host in profile.hosts.values()):
            raise UserError(difference(profile.hosts, facts) or "a search made it, with less care")
        made = ago(profile, facts)
    except UserError as error:
        out.print(f"the model profile of {name} that was kept does not count: {error}", soft_wrap=True)
        return None
    out.print(f"{name}: its model profile of {made} ago is used; `partitions --times --fresh` makes it anew")
    return profile


def ago(profile: ModelProfile, facts: Facts) -> str:
    """How long ago the oldest part of a profile was made. Raises UserError where it does not count on these hosts."""
    if why := difference(profile.hosts, facts):
        raise UserError(why)
    since_s = -1.0
    with suppress(ValueError, TypeError):  # it says nothing that is a time
        then = datetime.fromisoformat(profile.backends_at or profile.made_at)
        since_s = (datetime.now(timezone.utc) - then).total_seconds()
    if since_s < 0:
        raise UserError(f"it says that it was made at {profile.made_at}")
    if since_s > MOST_AGE_S:
        raise UserError(f"it is {minutes(since_s)} old, and speeds drift")
    return minutes(since_s)


def _costs_of_another(place: Path, sweep: Sweep, facts: Facts) -> tuple[list[BackendCost], str] | None:
    """The backends' costs by another model's profile that counts, and when they were measured; None without one."""
    wanted = set(product(map("-".join, pairwise(facts)), sweep.transports))
    for other in sorted(place.parent.glob(f"*-{place.name.rpartition('-')[2]}")):
        with suppress(UserError):
            profile = read(other)
            costs = [cost for cost in profile.backends if (cost.link, cost.backend) in wanted]
            ago(profile, facts)
            if len(costs) == len(wanted) and not profile.backends_at:
                return costs, profile.made_at
    return None


def names(sweep: Sweep) -> list[str]:
    """The full names of a sweep's models."""
    return [registry.canonical(model) for model in sweep.models]

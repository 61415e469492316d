"""The main job, from a checked sweep to its report: prepare, build the testbed, run, put everything back, analyse."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from pareto import plan, reporting, screen, simulated, splits
from pareto.crew import Crew
from pareto.hosts import testbeds
from pareto.hosts.host import TestbedError
from pareto.hosts.inventory import SIMULATED, THIS_MACHINE
from pareto.hosts.testbed import Testbed
from pareto.hosts.way import FAULTS
from pareto.manifest import check_same, driver, new_manifest, resume_command, utc_now
from pareto.prepare import Prepared, canonical, prepare, recipe
from pareto.probing import in_words, prospects
from pareto.runner import Aborted, Clock, Runner, link_facts
from pareto.stopping import Stopping
from pareto.store import Store, StoreError
from pareto.sweep import Networks, Sweep, links_of, networks_of
from partitions import model as partitioned
from partitions.registry import canonical as canonical_name

if TYPE_CHECKING:
    from analysis.statistics.until import Standing

Models = Mapping[str, Prepared] | Mapping[str, simulated.Model]


def run(
    sweep: Sweep, out: Path, resume: Path | None, *, dry_run: bool, began: float, figures: str = "auto"
) -> int:
    """Run a sweep and report on it; returns the exit code. `began`: `time.monotonic` when the program started.

    Raises UserError, StoreError, TestbedError.
    """
    with ExitStack() as held:
        store = None
        if resume is not None:
            store = held.enter_context(closing(Store.read(resume) if dry_run else Store.resume(resume)))
        return _run(sweep, out, store, held, dry_run=dry_run, began=began, figures=figures)


def _run(
    sweep: Sweep,
    out: Path,
    store: Store | None,
    held: ExitStack,
    *,
    dry_run: bool,
    began: float,
    figures: str,
) -> int:
    """`held`: what is let go of when the run is over."""
    console = screen.console()
    simulation = simulated.Simulation(simulated.load(sweep.testbed), began) if sweep.simulated else None
    if simulation is None and not dry_run:
        testbeds.require(sweep.testbed, sweep.edge_cpu)
    links = links_of(sweep)
    networks = networks_of(sweep, links)
    clock, code, can_write = Clock(), 0, True
    real: dict[str, Prepared] = {}
    sweep = canonical(sweep)
    names = [canonical_name(model) for model in sweep.models]
    points = {name: partitioned.describe(recipe(name, sweep))[0] for name in names}
    # Before anything is made of the models: bad input must not cost minutes.
    asked = {name: splits.chosen(name, of, sweep.points, links) for name, of in points.items()}
    ways = {name: splits.measured(name, of, sweep, links) for name, of in points.items()}
    for name in names:
        if simulation is not None:
            simulation.prepare(name, sweep)
        else:
            real[name] = prepare(name, sweep)
    prepared: Models = real if simulation is None else simulation.models
    now = time.monotonic if simulation is None else simulation.clock
    records = {name: model.manifest for name, model in prepared.items()}
    if store is not None:
        check_same(store, sweep, records, networks)
    facts = {
        name: replace(
            it.facts,
            splits=ways[name],
            notes=(
                splits.ends_note(set(ways[name]).difference(asked[name])),
                splits.fold_note(points[name]),
                *it.notes,
            ),
        )
        for name, it in prepared.items()
    }
    done = store.done() if store is not None else frozenset()
    to_do = plan.make(sweep, facts, networks, done)
    cores = len(os.sched_getaffinity(0)) if sweep.testbed == THIS_MACHINE else None
    screen.plan(console, sweep, facts, networks, to_do, cores)
    if dry_run:
        return 0
    if store is None:
        name, manifest = _run_name(sweep, prepared, networks), new_manifest(sweep, records, networks)
        store = held.enter_context(closing(Store.create(out, name, manifest)))
    stopping = Stopping(
        sweep,
        plan.last_rounds(sweep, facts, networks, done),
        partial(plan.further, sweep, facts, networks),
        partial(_standing, store.folder),
        clock,
        began,
        partial(console.print, markup=False),
        now,
    )
    parts = stopping.plans(to_do)
    try:
        # The first is asked for before a testbed is built: a run that goes on may have measured enough.
        if first := next(parts, None):
            rest = itertools.chain([first], parts)
            opened = _testbed(sweep, networks) if simulation is None else simulation.testbed(links + 1)
            with closing(opened) as bed:
                workers = (
                    Crew(bed, real, sweep.transports, sweep.sample, sweep.tcp)
                    if simulation is None
                    else simulated.Workers(
                        simulation,
                        bed.links,
                        edge_cpu=sweep.edge_cpu,
                        session=len(store.manifest()["sessions"]),
                    )
                )
                _measure(console, sweep, networks, to_do, rest, stopping, store, clock, bed, workers, now)
    except KeyboardInterrupt:
        of = f" of {len(to_do.trials)}" if sweep.until is sweep.budget is None else ""
        console.print(f"interrupted: {clock.trials}{of} trials are kept")
        code = 130
    except (Aborted, StoreError, TestbedError) as error:
        if isinstance(error, TestbedError) and not clock.trials:
            raise
        console.print(f"error: {error}", markup=False, soft_wrap=True)
        code, can_write = 1, not isinstance(error, StoreError)
    except Exception:
        if store.has_rows:
            _tell_how_to_go_on(console, store, sweep)
        raise
    if not store.has_rows:
        return code
    if code:
        _tell_how_to_go_on(console, store, sweep)
    took_s = time.monotonic() - began
    screen.summary(console, clock, now() - began, None if simulation is None else took_s)
    if not can_write:
        return code
    from analysis.reporting import Asked

    reporting.show(console, [store.folder], Asked(figures=figures))
    return code or int(any(row["status"] != "ok" for row in store.rows()))


def _tell_how_to_go_on(console: Console, store: Store, sweep: Sweep) -> None:
    how = resume_command(store.folder, sweep)
    console.print(f"go on with: {how}", markup=False, soft_wrap=True)


def _testbed(sweep: Sweep, networks: Networks) -> Testbed:
    return testbeds.open_testbed(
        sweep.testbed,
        [profile for network in networks.values() for profile in network],
        hosts=sweep.hosts or 2,
        shape_at=sweep.shape_at,
        edge_cpu=sweep.edge_cpu,
        threads=sweep.threads or 1,
        tcp=sweep.tcp,
    )


def _measure(
    console: Console,
    sweep: Sweep,
    networks: Networks,
    to_do: plan.Plan,
    parts: Iterable[plan.Plan],
    stopping: Stopping,
    store: Store,
    clock: Clock,
    bed: Testbed,
    workers: Crew | simulated.Workers,
    now: Callable[[], float],
) -> None:
    """`to_do`: what is planned; `parts`: it and what is added to it, each asked for when the one before is done."""
    manifest = {**store.manifest(), "sweep": sweep.model_dump(mode="json"), "testbed": bed.label}
    session: dict[str, Any] = {"started_at": utc_now(), "driver": driver(), "testbed": bed.facts}
    with (
        closing(workers),
        screen.Progress(console, to_do, shares_machine=bed.is_local) as progress,
    ):
        try:
            workers.start()
            session["hosts"] = workers.facts()
            _tell_versions(console, session["hosts"])
            for roles in bed.facts.get("on_one_core", ()):
                console.print(f"attention: {screen.on_one_core(roles)}", markup=False)
            if isinstance(workers, Crew) and not bed.is_local:
                session["bare_links"] = _bare_links(console, workers, sweep, networks)
        except FAULTS as error:
            raise TestbedError(f"the workers did not start: {bed.lost() or error}") from error
        store.drop_failed()
        manifest["sessions"] = [*manifest.get("sessions", []), session]
        store.write_manifest(manifest)
        try:
            runner = Runner(
                workers,
                store,
                networks,
                sweep.link_tolerance,
                progress,
                clock,
                now,
                sweep.slowdown,
                sweep.seed,
                sweep.restart_rounds,
                store.starts(),
            )
            for part in parts:
                progress.expect(part)
                runner.run(part)
        except (Aborted, TestbedError):
            stopping.failed()
            raise
        finally:
            session["ended_at"] = utc_now()
            session["stopping"] = stopping.record()
            session["links"] = link_facts(networks, bed.links, workers.shaped)
            session["shaping"] = {link.name: _if_there(link.shaper.facts) for link in bed.links}
            session["sampling"] = _if_there(workers.sampling)
            session["trials"] = clock.trials
            session["rebuilt"] = clock.rebuilt
            session["measuring_s"] = round(clock.measuring, 3)
            session["probing_s"] = round(clock.probing, 3)
            session["watching_s"] = round(clock.watching, 3)
            session["driver_cpu_s"] = round(clock.driver_cpu, 3)
            store.write_manifest(manifest)
    for line in screen.lateness(session["shaping"]):
        console.print(f"attention: {line}", markup=False)


def _standing(folder: Path, within: float) -> Standing:
    """What is known of a run's front. Imported between rounds, not while one is measured."""
    from analysis.fronts.front import front
    from analysis.runs import trials
    from analysis.statistics import until

    return until.standing(front(trials.load([folder])), within)


def _if_there(tell: Callable[[], dict[str, Any] | None]) -> dict[str, Any] | None:
    try:
        return tell()
    except FAULTS:  # the run has ended because of it: what is known is kept
        return None


def _tell_versions(console: Console, hosts: Mapping[str, Mapping[str, Any]]) -> None:
    """Name what differs: another version may compute with other kernels, and trace another graph."""
    for package in ("torch", "torchvision"):
        versions = {role: told[package] for role, told in hosts.items()} | {"driver": version(package)}
        if len({found.partition("+")[0] for found in versions.values()}) > 1:
            each = ", ".join(f"{found} on the {where}" for where, found in versions.items())
            console.print(f"versions differ: {package} {each}", markup=False)


def _bare_links(console: Console, crew: Crew, sweep: Sweep, networks: Networks) -> dict[str, Any]:
    """The real links before anything is emulated on them, and which profiles they cannot be made to follow."""
    found = crew.bare_links()
    for number, (name, link) in enumerate(found.items()):
        which = f"the link {name}" if len(found) > 1 else "the link"
        console.print(f"{which} itself: {in_words(link)}", markup=False)
        for profile in dict.fromkeys(network[number] for network in networks.values()):
            for line in prospects(profile, link, sweep.link_tolerance):
                console.print(f"attention: {line}", markup=False)
    rates = ("rtt_s", "rate_bps", "rate_back_bps")
    return {name: {rate: getattr(link, rate) for rate in rates} for name, link in found.items()}


def _run_name(sweep: Sweep, models: Collection[str], networks: Collection[str]) -> str:
    model = next(iter(models)) if len(models) == 1 else f"{len(models)}-models"
    netem = next(iter(networks)) if len(networks) == 1 else f"{len(networks)}-profiles"
    kind = f"-{SIMULATED}" if sweep.simulated else ""
    return f"{model}-{netem}{kind}-{datetime.now().astimezone():%Y%m%d-%H%M%S}"

"""The main job, from a checked sweep to its report: prepare, build the testbed, run, put everything back, analyse."""

from __future__ import annotations

import itertools
import os
import shlex
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.naming import file_stems
from pareto import COMMAND, PROFILES, plain_files, plan, reporting, screen, starting
from pareto.allocator_cost import cost
from pareto.cell import Condition
from pareto.console import Doing
from pareto.console import console as standard_output
from pareto.fleet import cluster
from pareto.hosts.connection import FAULTS
from pareto.hosts.host import TestbedError
from pareto.hosts.inventory import SIMULATED, THIS_MACHINE
from pareto.hosts.testbed import Testbed, require_testbed
from pareto.manifest import check_same, driver, new_manifest, resume_command, session_end, utc_now
from pareto.model_names import may_be_model
from pareto.networks import links_of, networks_of
from pareto.plan import ModelFacts, Plan
from pareto.progress import Progress
from pareto.runner import Aborted, AnyWorkers, Runner, Sink, Tally, Watcher
from pareto.stopping import Rounds, Stopping, known
from pareto.store import Store, StoreError
from pareto.sweep import Sweep
from pareto.workers import Workers

if TYPE_CHECKING:
    from rich.console import Console

    from analysis.model_profile import ModelProfile
    from pareto import simulated
    from pareto.prepare import Prepared
    from pareto.searching import Searching


def run(
    sweep: Sweep, out: Path, resume: Path | None, *, dry_run: bool, began: float, figures: str = "auto"
) -> int:
    """Run a sweep and report on it; returns the exit code.

    resume: the folder of the run that goes on. began: `time.monotonic` when the program started. Raises UserError,
    StoreError, TestbedError.
    """
    with ExitStack() as held:
        store = None
        if resume is not None:
            store = held.enter_context(closing(Store.read(resume) if dry_run else Store.resume(resume)))
        job = held.enter_context(closing(Job(sweep, began, dry_run=dry_run, launch=resume is None)))
        sweep = job.sweep
        if store is not None:
            check_same(store, sweep, job.records, job.networks)
        done = store.done() if store is not None else frozenset()
        planned = plan.make(sweep, job.facts, job.networks, done)
        cores = len(os.sched_getaffinity(0)) if sweep.testbed == THIS_MACHINE and not sweep.fleet else None
        search = job.search(store) if sweep.focused else None
        expected = planned if search is None else search.expected()
        screen.plan(job.console, sweep, job.facts, job.networks, planned, expected, cores)
        if dry_run:
            return 0
        if store is None:
            manifest = new_manifest(sweep, job.records, job.networks)
            store = held.enter_context(closing(Store.create(out, job.name, manifest)))
            if search is not None:
                search.store = store
        last = plan.last_rounds(sweep, job.facts, job.networks, done)
        return job.run(store, planned, job.stopping(store, planned, last, search), search, figures)


class Job:
    """A sweep with its networks and models, which are prepared, on a testbed or in a simulation."""

    def __init__(
        self,
        sweep: Sweep,
        began: float,
        *,
        dry_run: bool,
        launch: bool = False,
        console: Console | None = None,
    ) -> None:
        """launch: a local testbed is built, and its workers begin to start, before the models are prepared, as both
        take seconds; but not for a model that there cannot be, nor where a user's own codec is to be tried first. Other
        hosts are logged in to when the input is known to be good. Raises UserError, TestbedError.
        """
        self.console = console or standard_output()
        self.tally = Tally(at_once=len(sweep.testbeds))
        self._began = began
        self._simulation = None
        if sweep.simulated:
            from pareto import simulated

            first = next(iter(sweep.testbeds.values()))
            self._simulation = simulated.Simulation(simulated.load(first), began)
        elif not dry_run and sweep.cluster is None:
            for testbed in dict.fromkeys(sweep.testbeds.values()):
                require_testbed(testbed, sweep.edge_cpu, sweep.alone)
        if sweep.fleet and not dry_run:
            cluster.require()
        # A fleet's testbeds have clocks of their own.
        is_real = self._simulation is None or sweep.fleet
        self._now = time.monotonic if is_real or self._simulation is None else self._simulation.clock
        self._links = links_of(sweep)
        self.networks = networks_of(sweep, self._links)
        self.sweep = sweep
        self._prepared: dict[str, Prepared] = {}
        self._opened: tuple[Testbed, Workers] | None = None
        with ExitStack() as undo:
            if (
                launch
                and not dry_run
                and sweep.testbed == THIS_MACHINE
                and not sweep.fleet
                and all(map(may_be_model, sweep.models))
                and not any(codec.own for codec in sweep.coding)
            ):
                self._launch(undo)
            # It imports torch, which takes as long as the workers take for it.
            from pareto.prepare import canonical

            self.sweep = canonical(sweep)
            self.facts = self._prepare()
            """Of each model, what the plan needs to know."""
            self._undo = undo.pop_all()

    def close(self) -> None:
        """Put back what was opened early, if it is still open."""
        self._undo.close()

    def _launch(self, undo: ExitStack) -> None:
        """Build the testbed and have the workers begin to start. Raises TestbedError."""
        bed = self.testbed()
        undo.callback(bed.close)
        workers = self._of_testbed(bed)
        undo.callback(workers.close)
        try:
            workers.launch()
        except FAULTS as error:
            raise starting.not_started(bed, error) from error
        self._opened = bed, workers

    def _prepare(self) -> dict[str, ModelFacts]:
        from pareto import splits
        from pareto.prepare import prepare, recipe
        from partitions import model as partitioned
        from partitions.registry import canonical as canonical_name

        sweep, links = self.sweep, self._links
        names = [canonical_name(model) for model in sweep.models]
        points = {name: partitioned.describe(recipe(name, sweep))[0] for name in names}
        # Before anything is made of the models: bad input must not cost minutes.
        chosen = {name: splits.find(name, of, sweep.points, links) for name, of in points.items()}
        measured = {name: splits.to_measure(name, of, sweep, links) for name, of in points.items()}
        with Doing(self.console) as doing:
            for name in names:
                if self._simulation is not None:
                    self._simulation.prepare(name, sweep)
                else:
                    self._prepared[name] = prepare(name, sweep, measured[name], doing.show)
        facts = {}
        for name, model in self._models.items():
            added = set(measured[name]).difference(chosen[name])
            notes = (splits.ends_note(added), *model.facts.notes)
            facts[name] = replace(model.facts, splits=measured[name], notes=notes)
        plan.check_fits(sweep, facts)
        return facts

    @property
    def _models(self) -> Mapping[str, Prepared] | Mapping[str, simulated.Model]:
        return self._prepared if self._simulation is None else self._simulation.models

    @property
    def records(self) -> dict[str, dict[str, Any]]:
        """By model, what the manifest records of it."""
        return {name: model.manifest for name, model in self._models.items()}

    @property
    def name(self) -> str:
        """Of the run that begins now."""
        models, networks = list(self.facts), list(self.networks)
        model = models[0] if len(models) == 1 else f"{len(models)}-models"
        netem = networks[0] if len(networks) == 1 else f"{len(networks)}-profiles"
        kind = f"-{SIMULATED}" if self._simulation is not None else ""
        return f"{model}-{netem}{kind}-{datetime.now().astimezone():%Y%m%d-%H%M%S}"

    def search(self, store: Store | None) -> Searching:
        """The decisions on what each round has; of a search with the model profiles that it began with, which a new one
        gets by `_profile`.

        Raises UserError, StoreError.
        """
        from analysis import model_profile
        from pareto.searching import Searching

        if store is None or not self.sweep.search:
            return Searching(self.sweep, self.facts, self.networks, store)
        kept = self._kept_profiles(store)
        is_begun = store.has_rows and all(folder.is_dir() for folder in kept.values())
        profiles = {name: model_profile.read(folder) for name, folder in kept.items()} if is_begun else {}
        return Searching(self.sweep, self.facts, self.networks, store, profiles)

    def _kept_profiles(self, store: Store) -> dict[str, Path]:
        """By model, where the run's folder keeps its model profile."""
        return {name: store.folder / PROFILES.name / stem for name, stem in file_stems(*self.facts).items()}

    def _profile(
        self, search: Searching, store: Store, bed: Testbed, workers: AnyWorkers, progress: Progress
    ) -> dict[str, Any]:
        """Give the search its models' profiles of this testbed, where they can spare more than they take, and keep them
        in the run's folder; returns their cost.

        Raises UserError, TestbedError, StoreError.
        """
        began = self._now()
        profiles = self._model_profiles(store.folder.parent / PROFILES.name, bed, workers, progress)
        folders = self._kept_profiles(store)
        for name, profile in profiles.items():
            with plain_files.written(folders[name]):
                profile.write(folders[name], under=store.folder)
        search.learn(profiles, are_all=True)
        return {"profiling_s": round(self._now() - began, 3)}

    def _model_profiles(
        self, folder: Path, bed: Testbed, workers: AnyWorkers, progress: Progress
    ) -> dict[str, ModelProfile]:
        """By model, what its units take on the testbed, as kept beneath a folder if that counts.

        Raises UserError, TestbedError.
        """
        if self._simulation is not None:
            from pareto.simulated.profiling import model_profile

            return {name: model_profile(self._simulation, name, self.sweep) for name in self.facts}
        from pareto.model_profiles import on_testbed, spares_s

        assert isinstance(workers, Workers)  # noqa: S101
        sweep, out, show = self.sweep, self.console, progress.shows
        most_s = spares_s(plan.make(sweep, self.facts, self.networks))
        kept = on_testbed(out, sweep, bed, workers, self._prepared, folder, spares_s=most_s, show=show)
        return {name: each.profile for name, each in kept.items()}

    def stopping(
        self, store: Store, planned: Plan, last: Mapping[Condition, int], search: Searching | None = None
    ) -> Stopping:
        """last: each condition's last round that is planned."""
        grows = self.sweep.until is not None or self.sweep.budget is not None
        source = search or Rounds(
            planned,
            last,
            lambda numbers: plan.further(self.sweep, self.facts, self.networks, numbers, store.done()),
            (lambda: -(-self.tally.at_once // (len(self.facts) * len(self.networks)))) if grows else None,
        )
        look = partial(known, store.folder)
        return Stopping(self.sweep, source, look, self.tally, self._began, self.console.print, self._now)

    def run(
        self, store: Store, planned: Plan, stopping: Stopping, search: Searching | None, figures: str
    ) -> int:
        """Measure the plan and what is added to it, and report on all of the run; returns the exit code."""
        tally, code, writable = self.tally, 0, True
        try:
            self._measure(store, planned, stopping, search)
        except KeyboardInterrupt:
            is_all = self.sweep.until is self.sweep.budget is None and search is None
            of = f" of {len(planned.trials)}" if is_all else ""
            self.console.print(f"interrupted: {tally.trials}{of} trials are kept")
            code = 130
        except (Aborted, StoreError, TestbedError) as error:
            if not isinstance(error, StoreError) and not tally.trials:  # no testbed could be had
                raise TestbedError(str(error)) from None
            self.console.print(f"error: {error}", soft_wrap=True)
            code, writable = 1, not isinstance(error, StoreError)
        except Exception:
            if store.has_rows:
                self._print_resume_command(store)
            raise
        if not store.has_rows:
            return code
        if code:
            self._print_resume_command(store)
        took_s = None if self._simulation is None else time.monotonic() - self._began
        screen.summary(self.console, tally, self._now() - self._began, took_s)
        if search is not None and not search.lacks_profiles:
            for line in search.summary():
                self.console.print(line)
        if not writable:
            return code
        from analysis.findings import Options

        later = shlex.join(["report", str(store.folder), *(["--figures", "all"] if figures == "all" else [])])
        reporting.show(self.console, [store.folder], Options(figures=figures), later=f"{COMMAND} {later}")
        rows = store.rows()
        if code or all(row["status"] == "ok" for row in rows):
            return code
        self.console.print(screen.ending(rows, resume_command(store.folder, self.sweep)), soft_wrap=True)
        return 1

    def _print_resume_command(self, store: Store) -> None:
        command = resume_command(store.folder, self.sweep)
        self.console.print(f"go on with: {command}", soft_wrap=True)

    def _measure(
        self, store: Store, planned: Plan, stopping: Stopping, search: Searching | None = None
    ) -> None:
        if self.sweep.fleet:
            from pareto.fleet.driver import measure_plan

            measure_plan(self, store, planned, stopping)
            return
        parts = stopping.plans()
        # The first is taken before a testbed is built: a run that goes on may have measured enough.
        is_first_search = search is not None and search.lacks_profiles
        first = None if is_first_search else next(parts, None)
        if first is None and not is_first_search:
            return
        expected = planned if search is None else search.expected()
        with ExitStack() as ending, closing(self.testbed()) as bed:
            session: dict[str, Any] = {
                "started_at": utc_now(),
                "driver": driver(),
                "testbed_name": self.sweep.testbed_name,
                "testbed": bed.facts,
            }
            workers = self.workers(bed, len(store.manifest()["sessions"]))
            with closing(workers), Progress(self.console, expected, shares_machine=bed.is_local) as progress:
                import pyarrow.parquet  # noqa: F401  (while the workers start, not in the first trial)

                session |= starting.started(
                    self.console, workers, bed, self.sweep, self.networks, progress.shows
                )
                if search is not None and search.lacks_profiles:
                    session |= self._profile(search, store, bed, workers, progress)
                    first = next(parts, None)
                store.drop_unsound()
                if search is not None:
                    search.is_measuring = True
                manifest = store.manifest() | {
                    "sweep": self.sweep.model_dump(mode="json"),
                    "testbed": bed.label,
                }
                manifest["sessions"] = [*manifest["sessions"], session]
                store.write_manifest(manifest)
                runner = self.runner(workers, store, progress, self.sweep.testbed_name, store.starts())
                try:
                    for part in itertools.chain(filter(None, [first]), parts):
                        progress.expect(part, search.expected() if search is not None else None)
                        runner.run(part)
                except (Aborted, TestbedError):
                    stopping.failed()
                    raise
                finally:
                    session |= session_end(self.tally, self.networks, workers, bed) | {
                        "stopping": stopping.record()
                    }
                    store.write_manifest(manifest)
                progress.shows("what the allocator changes")
                session["allocator_cost"] = cost(workers, self.sweep, self.facts, self.networks)
                store.write_manifest(manifest)
                importing = threading.Thread(target=reporting.imported)  # nothing is measured any more
                ending.callback(importing.join)
                importing.start()
            for line in screen.lateness(session["shaping"]):
                self.console.print(f"attention: {line}")

    def testbed(self) -> Testbed:
        """Open it; where it is launched already, that one. Raises TestbedError."""
        if self._simulation is not None:
            return self._simulation.testbed(self._links + 1)
        if self._opened is not None:
            return self._opened[0]
        profiles = [profile for network in self.networks.values() for profile in network]
        return starting.testbed_of(self.sweep, profiles, self.console.print)

    def workers(self, bed: Testbed, session: int) -> AnyWorkers:
        """Those of a testbed. session: how many the run had before."""
        if self._simulation is None:
            return self._opened[1] if self._opened is not None else self._of_testbed(bed)
        from pareto import simulated

        return simulated.Workers(self._simulation, bed.links, edge_cpu=self.sweep.edge_cpu, session=session)

    def _of_testbed(self, bed: Testbed) -> Workers:
        sweep = self.sweep
        return Workers(bed, self._prepared, sweep.transports, sweep.sample, sweep.tcp, sweep.allocators[0])

    def runner(
        self, workers: AnyWorkers, store: Sink, watcher: Watcher, testbed: str, starts: int = 0
    ) -> Runner:
        """testbed: its name. starts: how often the run's workers have started."""
        sweep = self.sweep
        return Runner(
            workers,
            store,
            self.networks,
            sweep.link_tolerance,
            watcher,
            self.tally,
            self._now,
            sweep.slowdown,
            sweep.others,
            sweep.seed,
            sweep.restart_rounds,
            starts,
            testbed,
        )

"""A session of a run: its plan measured on one testbed, and what the manifest records of that."""

from __future__ import annotations

import itertools
import threading
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pareto import PROFILES
from pareto.basics import files
from pareto.driver import screen
from pareto.driver.job import Job
from pareto.driver.manifest import session_begin, session_end
from pareto.driver.progress import Display
from pareto.driver.runner import Aborted
from pareto.driver.stop import Stopping
from pareto.hosts.connection import FAULTS
from pareto.hosts.host import TestbedError
from pareto.hosts.testbed import Testbed
from pareto.partitions.allocator import DEFAULT, TUNED
from pareto.sweep import plan
from pareto.sweep.cell import Cell
from pareto.sweep.foreseen import Asked
from pareto.trial.any_workers import AnyWorkers
from pareto.trial.start import started
from pareto.trial.store import Store
from pareto.trial.workers import Workers

if TYPE_CHECKING:
    from pareto.analysis.model_profile import ModelProfile
    from pareto.predict.search_run import Searching

ALONE_RUNS = 3
"""Baselines of each host with each allocator, of which the shortest counts: what disturbs a host makes it slower."""


def measure(
    job: Job, store: Store, planned: plan.Plan, stopping: Stopping, search: Searching | None = None
) -> None:
    """Measure a plan and what is added to it on one testbed, which is put back, and record the session. Raises Aborted,
    StoreError, TestbedError, UserError."""
    parts = stopping.plans()
    # The first is taken before a testbed is built: a run that goes on may have measured enough.
    is_first_search = search is not None and search.lacks_profiles
    first = None if is_first_search else next(parts, None)
    if first is None and not is_first_search:
        return
    expected = planned if search is None else search.expected()
    with ExitStack() as ending, closing(job.testbed()) as bed:
        session = session_begin(bed, job.sweep.testbed_name)
        workers = job.workers(bed, len(store.manifest()["sessions"]))
        grows = search is None and job.sweep.grows
        progress = Display(job.console, expected, shares_machine=bed.is_local, grows=grows)
        with closing(workers), progress:
            import pyarrow.parquet  # noqa: F401  (while the workers start, not in the first trial)

            session |= started(job.console, workers, bed, job.sweep, job.networks, progress.shows)
            if search is not None and search.lacks_profiles:
                session |= _profile(job, search, store, bed, workers, progress)
                first = next(parts, None)
            store.drop_unsound()
            if search is not None:
                search.is_measuring = True
            manifest = store.manifest()
            manifest |= {"sweep": job.sweep.model_dump(mode="json"), "testbed": bed.label}
            manifest["sessions"] = [*manifest["sessions"], session]
            store.write_manifest(manifest)
            runner = job.runner(workers, store, progress, job.sweep.testbed_name, store.starts())
            try:
                for part in itertools.chain(filter(None, [first]), parts):
                    progress.expect(part, search.expected() if search is not None else None)
                    runner.run(part)
            except (Aborted, TestbedError):
                stopping.failed()
                raise
            finally:
                session |= session_end(job.tally, job.networks, workers, bed)
                session["stopping"] = stopping.record()
                store.write_manifest(manifest)
            progress.shows("what the allocator changes")
            session["allocator_cost"] = allocator_cost(workers, job.asked)
            store.write_manifest(manifest)
            importing = threading.Thread(target=_import_report)  # nothing is measured any more
            ending.callback(importing.join)
            importing.start()
        for line in screen.lateness(session["shaping"]):
            job.console.print(f"attention: {line}")


def allocator_cost(workers: AnyWorkers, asked: Asked) -> list[dict[str, Any]]:
    """The cost to hosts of leaving freed memory to the C library, as other programs do: for each model and batch size
    the point where it is cut most evenly, and by role how many times as long as tuned a run of that host's part took.
    Empty where that is not measured: nothing is tuned, or a first look is wanted that does not ask for it, or hosts are
    lost. Leaves the workers with either allocator.
    """
    sweep, models, _ = asked
    is_due = TUNED in sweep.allocators and (not sweep.quick or len(sweep.allocators) > 1)
    if not is_due or not isinstance(workers, Workers):
        return []

    def fewest(cell: Cell) -> int:
        """The units of the host that runs the fewest."""
        return min(end - start for start, end in itertools.pairwise((0, *cell.cuts, models[cell.model].last)))

    cells = sorted(plan.cells(asked), key=fewest)
    chosen = {(cell.model, cell.batch_size): cell for cell in cells}
    took: dict[Cell, dict[str, dict[str, float]]] = {cell: {} for cell in chosen.values()}
    try:
        # The one that they have comes first: each start takes seconds.
        for allocator in sorted((TUNED, DEFAULT), key=lambda one: one != workers.allocator):
            for cell, by in took.items():
                workers.loaded(replace(cell, allocator=allocator))
                runs = [workers.alone(cell) for _ in range(ALONE_RUNS)]
                by[allocator] = {role: min(run[role] or 0.0 for run in runs) for role in runs[0]}
    except FAULTS:  # the trials count without it
        return []
    return [
        {
            **{"model": cell.model, "batch_size": cell.batch_size, "point": cell.point},
            "times": {role: round(by[DEFAULT][role] / s, 3) for role, s in by[TUNED].items() if s},
        }
        for cell, by in took.items()
    ]


def _profile(
    job: Job, search: Searching, store: Store, bed: Testbed, workers: AnyWorkers, progress: Display
) -> dict[str, Any]:
    """Give the search its models' profiles of this testbed, where they can spare more than they take, and keep them in
    the run's folder; returns their cost. Raises UserError, TestbedError, StoreError."""
    began, folders = job.now(), job.profiles(store)
    profiles = _model_profiles(job, store.folder.parent / PROFILES.name, bed, workers, progress)
    for name, profile in profiles.items():
        with files.written(folders[name]):
            profile.write(folders[name], under=store.folder)
    search.learn(profiles, are_all=True)
    return {"profiling_s": round(job.now() - began, 3)}


def _model_profiles(
    job: Job, folder: Path, bed: Testbed, workers: AnyWorkers, progress: Display
) -> dict[str, ModelProfile]:
    """By model, what its units take on the testbed, or as kept in a folder. Raises UserError, TestbedError."""
    if job.simulation is not None:
        from pareto.simulated.unit_times import model_profile

        return {name: model_profile(job.simulation, name, job.sweep) for name in job.facts}
    from pareto.predict.model_profiles import on_testbed, spares_s

    assert isinstance(workers, Workers)  # noqa: S101
    of_job, most_s = (job.console, job.sweep), spares_s(plan.make(job.asked))
    kept = on_testbed(*of_job, bed, workers, job.prepared, folder, spares_s=most_s, show=progress.shows)
    return {name: profile for name, (profile, _) in kept.items()}


def _import_report() -> None:
    """Import what a report needs, which takes half a second and more. Errors come again when it is used."""
    with suppress(Exception):
        import pareto.analysis.reporting  # noqa: F401

"""The main job, from a checked sweep to its report: prepare, measure, put everything back, analyse."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pareto import COMMAND
from pareto.commands import report
from pareto.driver import screen
from pareto.driver.job import Job
from pareto.driver.manifest import check_same, new_manifest, resume_command
from pareto.driver.rates import Rates
from pareto.driver.runner import Aborted
from pareto.driver.session import measure
from pareto.driver.stop import Rounds, Stopping, known
from pareto.hosts.host import TestbedError
from pareto.hosts.inventory import THIS_MACHINE
from pareto.sweep import plan
from pareto.sweep.plan import Plan
from pareto.sweep.sweep import Sweep
from pareto.trial.store import Store, StoreError

if TYPE_CHECKING:
    from rich.console import Console

    from pareto.predict.search_run import Searching


def run(
    sweep: Sweep,
    out: Path,
    resume: Path | None,
    *,
    dry_run: bool,
    began: float,
    figures: str = "auto",
    console: Console | None = None,
    conclude: Callable[[Job, Store], None] | None = None,
) -> int:
    """Run a sweep and report on it; returns the exit code.

    resume: the folder of the run that goes on. began: `time.monotonic` when the program started. conclude: is called in
    place of the report. Raises UserError, StoreError, TestbedError.
    """
    conclude = conclude or partial(_report, figures=figures)
    with ExitStack() as held:
        store = None
        if resume is not None:
            store = held.enter_context(closing(Store.read(resume) if dry_run else Store.resume(resume)))
        job = Job(sweep, began, dry_run=dry_run, launch=resume is None, console=console)
        held.callback(job.close)
        sweep = job.sweep
        if store is not None:
            check_same(store, sweep, job.records, job.networks)
        done = store.done() if store is not None else frozenset()
        planned = plan.make(job.asked, done)
        cores = len(os.sched_getaffinity(0)) if sweep.testbed == THIS_MACHINE and not sweep.fleet else None
        search = _search(job, store) if sweep.focused else None
        expected = planned if search is None else search.expected()
        screen.plan(job.console, job.asked, planned, expected, cores)
        if dry_run:
            return 0
        if store is None:
            manifest = new_manifest(sweep, job.records, job.networks)
            store = held.enter_context(closing(Store.create(out, job.name, manifest)))
            if search is not None:
                search.store = store
        stopping = _stopping(job, store, planned, search)
        code, takes_report = _measured(job, store, planned, stopping, search)
        if not store.has_rows:
            return code
        _summary(job, store, search, code)
        if not takes_report:
            return code
        conclude(job, store)
        rows = store.rows()
        if code or all(row["status"] == "ok" for row in rows):
            return code
        job.console.print(screen.ending(rows, resume_command(store.folder, job.sweep)), soft_wrap=True)
        return 1


def _search(job: Job, store: Store | None) -> Searching:
    """The decisions on what each round has. A search that goes on has the model profiles that it began with; a new one
    gets them when its workers are there. Raises UserError, StoreError.
    """
    from pareto.analysis import model_profile
    from pareto.predict.search_run import Searching

    if store is None or not job.sweep.search:
        return Searching(job.asked, store)
    kept = job.profiles(store)
    is_begun = store.has_rows and all(folder.is_dir() for folder in kept.values())
    profiles = {name: model_profile.read(folder) for name, folder in kept.items()} if is_begun else {}
    return Searching(job.asked, store, profiles)


def _stopping(job: Job, store: Store, planned: Plan, search: Searching | None) -> Stopping:
    def together() -> int:
        return -(-job.tally.at_once // (len(job.facts) * len(job.networks)))

    if job.sweep.find_rate is not None:
        source: Rounds | Searching = Rates(job.asked, store)
    else:
        source = search or Rounds(job.asked, planned, store.done, together if job.sweep.grows else None)
    look = partial(known, store.folder)
    return Stopping(job.sweep, source, look, job.tally, job.began, job.console.print, job.now)


def _measured(
    job: Job, store: Store, planned: Plan, stopping: Stopping, search: Searching | None
) -> tuple[int, bool]:
    """The exit code of measuring the plan and what is added to it, and whether the run's folder takes a report."""
    try:
        if job.sweep.fleet:
            from pareto.driver.fleet.driver import measure_plan

            measure_plan(job, store, planned, stopping)
        else:
            measure(job, store, planned, stopping, search)
    except KeyboardInterrupt:
        is_all = not job.sweep.grows and search is None
        of = f" of {len(planned.trials)}" if is_all else ""
        job.console.print(f"interrupted: {job.tally.trials}{of} trials are kept")
        return 130, True
    except (Aborted, StoreError, TestbedError) as error:
        if not isinstance(error, StoreError) and not job.tally.trials:  # no testbed could be had
            raise TestbedError(str(error)) from None
        job.console.print(f"error: {error}", soft_wrap=True)
        return 1, not isinstance(error, StoreError)
    except Exception:
        if store.has_rows:
            _say_how_to_go_on(job, store)
        raise
    return 0, True


def _report(job: Job, store: Store, figures: str) -> None:
    from pareto.analysis.findings import Options

    later = shlex.join(["report", str(store.folder), *(["--figures", "all"] if figures == "all" else [])])
    report.show(job.console, [store.folder], Options(figures=figures), later=f"{COMMAND} {later}")


def _summary(job: Job, store: Store, search: Searching | None, code: int) -> None:
    """Print where the time went, and how to go on with a run that did not end as planned."""
    if code:
        _say_how_to_go_on(job, store)
    took_s = None if job.simulation is None else time.monotonic() - job.began
    screen.summary(job.console, job.tally, job.now() - job.began, took_s)
    if search is not None and not search.lacks_profiles:
        for line in search.summary():
            job.console.print(line)


def _say_how_to_go_on(job: Job, store: Store) -> None:
    job.console.print(f"go on with: {resume_command(store.folder, job.sweep)}", soft_wrap=True)

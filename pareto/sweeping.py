"""The main job, from a checked sweep to its report: prepare, build the testbed, run, put everything back, analyse."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

from pareto import __version__, plan, screen
from pareto.crew import Crew
from pareto.hosts import inventory, testbeds
from pareto.hosts.host import TestbedError
from pareto.hosts.inventory import THIS_MACHINE
from pareto.hosts.way import FAULTS
from pareto.link import library
from pareto.link.profile import Profile
from pareto.prepare import Prepared, canonical, prepare
from pareto.probing import in_words, prospects
from pareto.runner import Aborted, Clock, Runner, link_facts
from pareto.spec import SpecError, Sweep
from pareto.store import Store
from partitions.graph import UntraceableModel
from partitions.registry import UnknownModel
from partitions.weights import WeightsError

_PACKAGES = ("torch", "torchvision", "safetensors", "paramiko", "pyroute2", "numpy", "pandas", "moocore")


def run(sweep: Sweep, out: Path, resume: Path | None, *, dry_run: bool, began: float) -> int:
    """Run a sweep and report on it; returns the exit code. `began`: `time.monotonic` when the program started.

    Raises SpecError, StoreError, TestbedError.
    """
    console = screen.console()
    if not dry_run:
        testbeds.require(sweep.testbed)
    profiles = _profiles(sweep)
    store = Store.resume(resume) if resume is not None else None
    clock, code = Clock(), 0
    try:
        sweep = canonical(sweep)
        prepared = {name: prepare(name, sweep) for name in sweep.models}
    except (UnknownModel, UntraceableModel, WeightsError) as error:
        raise SpecError(str(error)) from error
    if store is not None:
        _check_same(store, sweep, prepared, profiles)
    facts = {name: it.facts for name, it in prepared.items()}
    to_do = plan.make(sweep, facts, profiles, store.done() if store is not None else frozenset())
    screen.plan(console, sweep, facts, profiles, to_do)
    if dry_run:
        return 0
    if store is None:
        store = Store.create(out, _run_name(sweep), _manifest(sweep, prepared, profiles))
    try:
        if to_do.trials:
            _measure(console, sweep, prepared, profiles, to_do, store, clock)
    except TestbedError:
        store.discard_if_empty()
        raise
    except KeyboardInterrupt:
        console.print(f"interrupted: {clock.trials} of {len(to_do.trials)} trials are kept")
        code = 130
    except Aborted as error:
        console.print(f"error: {error}", markup=False)
        code = 1
    if code:
        console.print(f"go on with: ./pareto.sh --resume {store.folder}", soft_wrap=True)
    screen.summary(console, clock, time.monotonic() - began)
    show(console, store.folder)
    return code or int(any(row["status"] != "ok" for row in store.rows()))


def _profiles(sweep: Sweep) -> dict[str, Profile]:
    """The profiles by name, which for a file is the file's. Raises SpecError."""
    profiles: dict[str, Profile] = {}
    for asked in sweep.netems:
        profile = library.load(asked)
        if profiles.setdefault(profile.name, profile) != profile:
            raise SpecError(
                f"--netem {asked}: another profile is called {profile.name} too; rename one's file"
            )
    return profiles


def show(console: Console, folder: Path) -> None:
    """Analyse a run's folder and show the front; the folder's name comes last."""
    from analysis.report import report
    from analysis.tables import front_table

    made = report(folder)
    console.print(front_table(made.front))
    for note in made.notes:
        console.print(note, markup=False)
    screen.files(console, made.files)
    console.print(str(folder), soft_wrap=True, markup=False)


def _measure(
    console: Console,
    sweep: Sweep,
    prepared: dict[str, Prepared],
    profiles: dict[str, Profile],
    to_do: plan.Plan,
    store: Store,
    clock: Clock,
) -> None:
    manifest = store.manifest()
    session: dict[str, Any] = {"started_at": _now(), "driver": _driver()}
    opened = testbeds.open_testbed(
        sweep.testbed,
        profiles.values(),
        shape_at=sweep.shape_at,
        edge_cpu=sweep.edge_cpu,
        threads=sweep.threads or 1,
    )
    with closing(opened) as bed:
        manifest["testbed"] = bed.label
        session["testbed"] = bed.facts
        with (
            closing(Crew(bed, prepared, sweep.backends, sweep.sample)) as crew,
            screen.Progress(console, to_do) as progress,
        ):
            try:
                crew.start()
                session["hosts"] = crew.facts()
                _tell_versions(console, session["hosts"])
                if not bed.is_local:
                    session["bare_link"] = _bare_link(console, crew, sweep, profiles)
            except FAULTS as error:
                raise TestbedError(f"the workers did not start: {error}") from error
            store.drop_failed()
            manifest["sessions"] = [*manifest.get("sessions", []), session]
            store.write_manifest(manifest)
            try:
                Runner(crew, store, profiles, sweep.link_tolerance, progress, clock).run(to_do)
            finally:
                session["ended_at"] = _now()
                session["link"] = link_facts(profiles, crew.shaped)
                session["shaping"] = _if_there(crew.shaper.facts)
                session["sampling"] = _if_there(crew.sampling)
                session["trials"] = clock.trials
                session["measuring_s"] = round(clock.measuring, 3)
                session["probing_s"] = round(clock.probing, 3)
                store.write_manifest(manifest)


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


def _bare_link(console: Console, crew: Crew, sweep: Sweep, profiles: Mapping[str, Profile]) -> dict[str, Any]:
    """The real link before anything is emulated on it, and which profiles it cannot be made to follow."""
    link = crew.bare_link()
    console.print(f"the link itself: {in_words(link)}", markup=False)
    for profile in profiles.values():
        for line in prospects(profile, link, sweep.link_tolerance):
            console.print(f"attention: {line}", markup=False)
    return {"rtt_s": link.rtt_s, "rate_bps": link.rate_bps, "rate_back_bps": link.rate_back_bps}


def _hosts(sweep: Sweep) -> dict[str, Any] | None:
    """What of a testbed file decides what is measured."""
    if sweep.testbed == THIS_MACHINE:
        return None
    kept = ("name", "ssh", "data_address", "data_interface", "device", "threads", "python")
    members = inventory.load(Path(sweep.testbed)).roles
    return {role: {key: getattr(member, key) for key in kept} for role, member in members.items()}


def _check_same(
    store: Store, sweep: Sweep, prepared: Mapping[str, Prepared], profiles: Mapping[str, Profile]
) -> None:
    """A run goes on only with what it was begun with. Raises SpecError."""
    manifest = store.manifest()
    if manifest.get("testbed_hosts") != _hosts(sweep):
        raise SpecError(f"{store.folder} was made when {sweep.testbed} said something else: start a new run")
    for name, now in prepared.items():
        then = manifest["models"].get(name, {})
        for what in ("weights_digest", "graph_digest"):
            if then.get(what) != now.manifest[what]:
                raise SpecError(
                    f"{store.folder} was made with another {what.split('_')[0]} of {name}: start a new run"
                )
    for name, profile_now in profiles.items():
        if manifest["profiles"].get(name) != profile_now.record():
            raise SpecError(
                f"{store.folder} was made when profile {name} said something else: start a new run"
            )


def _manifest(
    sweep: Sweep, prepared: Mapping[str, Prepared], profiles: Mapping[str, Profile]
) -> dict[str, Any]:
    return {
        "pareto": __version__,
        "created_at": _now(),
        "sweep": sweep.model_dump(mode="json"),
        "models": {name: it.manifest for name, it in prepared.items()},
        "profiles": {name: it.record() for name, it in profiles.items()},
        "testbed": sweep.testbed,
        "testbed_hosts": _hosts(sweep),
        "sessions": [],
    }


def _driver() -> dict[str, Any]:
    return {
        "hostname": platform.node(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in _PACKAGES},
    }


def _run_name(sweep: Sweep) -> str:
    model = sweep.models[0] if len(sweep.models) == 1 else f"{len(sweep.models)}-models"
    netem = Path(sweep.netems[0]).stem if len(sweep.netems) == 1 else f"{len(sweep.netems)}-profiles"
    return f"{model}-{netem}-{datetime.now().astimezone():%Y%m%d-%H%M%S}"


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")

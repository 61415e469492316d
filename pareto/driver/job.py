"""A job: a checked sweep with all that is prepared for it, and what runs its trials."""

from __future__ import annotations

import importlib.util
import re
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pareto import PROFILES
from pareto.analysis.naming import file_stems
from pareto.basics.console import Doing
from pareto.basics.console import console as standard_output
from pareto.driver.fleet import cluster
from pareto.driver.runner import Runner, Tally, Watcher
from pareto.hosts.access import require_testbed
from pareto.hosts.inventory import SIMULATED, THIS_MACHINE
from pareto.hosts.testbed import Testbed
from pareto.partitions.recipe import squashed
from pareto.simulated.world import load
from pareto.sweep import foreseen, plan
from pareto.sweep.networks import links_of, networks_of
from pareto.sweep.sweep import Sweep
from pareto.trial import start
from pareto.trial.any_workers import AnyWorkers
from pareto.trial.store import Store
from pareto.trial.workers import Workers

if TYPE_CHECKING:
    from rich.console import Console

    from pareto.models.prepare import Prepared
    from pareto.simulated.workers import SimulatedModel

_BUILDER = re.compile(r"^def (\w+)\(", re.MULTILINE)


class Job:
    """A sweep with its networks and models, which are prepared, and what runs it on a testbed or in a simulation."""

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
        take seconds; but not for a model that cannot be, nor before a user's own codec is tried. Other hosts are logged
        in to when the input is known to be good. Raises UserError, TestbedError.
        """
        self.console = console or standard_output()
        self.tally = Tally(at_once=len(sweep.testbeds))
        self.began = began
        self.simulation = None
        if sweep.simulated:
            from pareto.simulated.workers import Simulation

            self.simulation = Simulation(load(next(iter(sweep.testbeds.values()))), began)
        elif not dry_run and sweep.cluster is None:
            for testbed in dict.fromkeys(sweep.testbeds.values()):
                require_testbed(testbed, sweep.edge_cpu, sweep.alone, sweep.edge_memory)
        if sweep.cluster is not None:
            cluster.security("--cluster", sweep.cluster, sweep.tls_files)  # what is missing is said at once
        elif sweep.fleet and not dry_run:
            cluster.require()
        # A fleet's testbeds have clocks of their own.
        self.now = self.simulation.clock if self.simulation and not sweep.fleet else time.monotonic
        self._links = links_of(sweep)
        self.networks = networks_of(sweep, self._links)
        self.sweep = sweep
        self.prepared: dict[str, Prepared] = {}
        self._models: Mapping[str, Prepared] | Mapping[str, SimulatedModel] = (
            self.prepared if self.simulation is None else self.simulation.models
        )
        self._opened: tuple[Testbed, Workers] | None = None
        launch = launch and sweep.testbed == THIS_MACHINE and not sweep.fleet and not dry_run
        with ExitStack() as undo:
            if launch and all(map(may_be_model, sweep.models)) and not any(each.own for each in sweep.coding):
                self._launch(undo)
            # It imports torch, which takes as long as the workers take for it.
            from pareto.models.prepare import canonical

            self.sweep = canonical(sweep)
            self.facts = self._prepare()
            """The facts that the plan needs, by model."""
            self._undo = undo.pop_all()

    def close(self) -> None:
        """Put back what was opened early, if it is still open."""
        self._undo.close()

    def _launch(self, undo: ExitStack) -> None:
        """Build the testbed and have the workers begin to start. Raises TestbedError."""
        bed = undo.enter_context(closing(self.testbed()))
        workers = undo.enter_context(closing(self._of_testbed(bed)))
        with start.unbroken(bed):
            workers.launch()
        self._opened = bed, workers

    def _prepare(self) -> dict[str, foreseen.ModelFacts]:
        from pareto.models.prepare import prepare, recipe
        from pareto.partitions import model as partitioned
        from pareto.partitions.registry import canonical as canonical_name
        from pareto.sweep import splits

        sweep, links = self.sweep, self._links
        points = {
            name: partitioned.describe(recipe(name, sweep))[0] for name in map(canonical_name, sweep.models)
        }
        # Before anything is made of the models: bad input must not cost minutes.
        chosen = {name: splits.find(name, of, sweep.points, links) for name, of in points.items()}
        measured = {name: splits.to_measure(name, of, sweep, links) for name, of in points.items()}
        with Doing(self.console) as doing:
            for name, wanted in measured.items():
                if self.simulation is not None:
                    self.simulation.prepare(name, sweep)
                else:
                    self.prepared[name] = prepare(name, sweep, wanted, doing.show)
        facts = {}
        for name, model in self._models.items():
            notes = (splits.ends_note(set(measured[name]).difference(chosen[name])), *model.facts.notes)
            facts[name] = replace(model.facts, splits=measured[name], notes=notes)
        plan.check_fits(sweep, facts)
        return facts

    @property
    def asked(self) -> foreseen.Asked:
        return self.sweep, self.facts, self.networks

    @property
    def records(self) -> dict[str, dict[str, Any]]:
        """By model, what the manifest records of it."""
        return {name: model.manifest for name, model in self._models.items()}

    def profiles(self, store: Store) -> dict[str, Path]:
        """By model, the folder of its model profile in a run's own."""
        return {name: store.folder / PROFILES.name / stem for name, stem in file_stems(*self.facts).items()}

    @property
    def name(self) -> str:
        """The name of the run that begins now."""
        model, netem = (
            next(iter(named)) if len(named) == 1 else f"{len(named)}-{what}"
            for named, what in ((self.facts, "models"), (self.networks, "profiles"))
        )
        kind = f"-{SIMULATED}" if self.simulation is not None else ""
        return f"{model}-{netem}{kind}-{datetime.now().astimezone():%Y%m%d-%H%M%S}"

    def testbed(self) -> Testbed:
        """Open it; where it is launched already, that one. Raises TestbedError."""
        if self.simulation is not None:
            return self.simulation.testbed(self._links + 1)
        if self._opened is not None:
            return self._opened[0]
        profiles = [profile for network in self.networks.values() for profile in network]
        return start.testbed_of(self.sweep, profiles, self.console.print)

    def workers(self, bed: Testbed, session: int) -> AnyWorkers:
        """Those of a testbed. session: how many the run had before."""
        if self.simulation is None:
            return self._opened[1] if self._opened is not None else self._of_testbed(bed)
        from pareto.simulated.workers import SimulatedWorkers

        return SimulatedWorkers(self.simulation, bed.links, edge_cpu=self.sweep.edge_cpu, session=session)

    def _of_testbed(self, bed: Testbed) -> Workers:
        sweep = self.sweep
        how = sweep.sample, sweep.tcp, sweep.allocators[0], sweep.own_backends
        return Workers(bed, self.prepared, sweep.transports, *how)

    def runner(
        self, workers: AnyWorkers, store: Store, watcher: Watcher, testbed: str, starts: int = 0
    ) -> Runner:
        """testbed: its name. starts: how often the run's workers have started."""
        of_job = self.networks, self.sweep, watcher, self.tally, self.now
        return Runner(workers, store, *of_job, testbed, starts)


def may_be_model(name: str) -> bool:
    """Whether a model may have this name, known without torch, which takes seconds to import: by the functions in the
    text of torchvision's models. Others are about to be refused by `partitions.registry`."""
    file, is_file, _ = name.partition(".py")
    if is_file:
        return Path(f"{file}.py").is_file()
    spec = importlib.util.find_spec("torchvision")
    sources = (Path(spec.origin).parent / "models").rglob("*.py") if spec and spec.origin else ()
    texts = (source.read_text("utf-8") for source in sources)
    names = {squashed(builder) for text in texts for builder in _BUILDER.findall(text)}
    return squashed(name).startswith("yolo") or squashed(name) in names

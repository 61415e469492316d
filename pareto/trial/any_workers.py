"""The workers of a plan's trials as the runner knows them, whatever they run on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from pareto.hosts.testbed import Link
from pareto.protocol.trial_messages import Progress, WrongOutput
from pareto.remote.link import probe
from pareto.remote.link.profile import Profile
from pareto.sweep.bounds import Crossing
from pareto.sweep.cell import Cell
from pareto.sweep.plan import Trial
from pareto.trial import devices
from pareto.trial.result import TrialResult

RECENT_S = 2.0
"""A probe after one trial that is no older serves as the probe before the next trial."""


class AnyWorkers(Protocol):
    """The workers of a real or a simulated testbed. Methods raise connection.FAULTS, and TestbedError when the hosts
    cannot work together at all."""

    links: tuple[Link, ...]
    shaped: dict[str, dict[str, Any]]
    """By network and link, what the shaper read back."""

    def start(self) -> None:
        return

    def close(self) -> None:
        return

    def facts(self) -> dict[str, dict[str, Any]]:
        """By role, what the manifest records of a host."""

    def lost(self) -> str:
        """Why the testbed must be built or reached again, after a fault; empty where it is there."""
        return ""

    def ready(self, cell: Cell, network: Sequence[Profile]) -> None:
        """Load the cell's model on all hosts, put each link's profile in force, and warm the connections."""

    def probed(
        self, link: Link, profile: Profile, tolerance: probe.Tolerance
    ) -> tuple[probe.Probed, probe.Span]:
        """A reading of the link now with its verdict, and the part of its traces that passed meanwhile."""

    def idle_crossing_s(self, link: Link, crossing: Crossing) -> float | None:
        """Seconds in which a request's bytes and its result's cross the idle link now at the latest; None where that is
        not measured."""
        return None

    def crossings(
        self, cell: Cell, network: Sequence[Profile], seen: Sequence[probe.Span] | None = None
    ) -> list[Crossing]:
        """The load of a request of the cell on each link that it crosses."""

    def trial(
        self,
        trial: Trial,
        network: Sequence[Profile],
        sampled: Callable[[dict[str, Any], Progress | None], None] | None = None,
    ) -> TrialResult | WrongOutput:
        """The result of a trial. sampled: gets the devices' latest samples, about once a second, and how far it is."""

    def samples(self) -> dict[str, devices.Series]:
        """By role, the sensors' samples since the last call."""
        return {}

    def sampling(self) -> dict[str, Any] | None:
        """By role, what sampling itself took; None where nothing was sampled."""
        return None

    def sending(self) -> dict[str, Any] | None:
        """The record of the models and inputs sent to the hosts; None where they are simulated."""
        return None

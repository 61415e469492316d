"""What a simulated testbed is made of: how fast hosts compute, how much that varies, and what goes wrong."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pareto.hosts.host import EDGE, SERVER, TestbedError
from pareto.hosts.inventory import SIMULATED
from pareto.link import units
from pareto.sweep import quantity

Floats = npt.NDArray[np.float64]
Share = Annotated[float, quantity(units.share, "share"), Field(ge=0, le=1)]
TIMES = ["model", "host", "unit", "seconds"]
"""The columns of a file of compute times. Units count from 1: unit k lies between the points k - 1 and k."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Speed(_Part):
    """How fast a host computes: FLOPs at a rate, and a fixed time for each unit."""

    gflops: float = Field(default=20.0, gt=0, le=1e9)
    per_unit: Annotated[float, quantity(units.delay_s, "per_unit")] = Field(default=20e-6, ge=0, le=60)


class Noise(_Part):
    """How compute times vary, as factors around 1: of each request, of each trial, common to a round.

    normal: 1 + size z. lognormal: exp(size z). heavy: exp(size t), where t is Student's with 3 degrees of freedom and
    has the variance 1.
    """

    kind: Literal["normal", "lognormal", "heavy"] = "lognormal"
    request: Share = 0.03
    trial: Share = 0.02
    round: Share = 0.01

    def factors(self, draws: np.random.Generator, size: float, count: tuple[int, ...]) -> Floats:
        """So many of them."""
        if not size:
            return np.ones(count)
        if self.kind == "normal":
            return np.maximum(0.05, 1 + size * draws.standard_normal(count))
        spread = draws.standard_t(3, count) / math.sqrt(3) if self.kind == "heavy" else None
        return np.exp(size * (draws.standard_normal(count) if spread is None else np.clip(spread, -20, 20)))


class LinkTruth(_Part):
    """What the link really does: a share of each rate, and a delay added each way to what the profile asks."""

    rate: Annotated[float, quantity(units.share, "rate")] = Field(default=1.0, gt=0, le=10)
    delay: Annotated[float, quantity(units.delay_s, "delay")] = Field(default=0.0, ge=0, le=60)


class Faults(_Part):
    """Shares of trials that fail because a host ends, and whose output is wrong. lost: a host that is gone for good
    once `after` trials have begun."""

    failed: Share = 0.0
    invalid: Share = 0.0
    lost: str | None = None
    after: int = Field(default=0, ge=0)


class Load(_Part):
    """Something else at work on a host in these rounds: its stages take so many times as long, but not alone."""

    factor: float = Field(default=2.0, ge=1, le=100)
    rounds: tuple[int, ...] = ()


class World(_Part):
    """A simulated testbed. loads: by role. requests: the most that a phase has; fewer make long studies quick."""

    hosts: dict[str, Speed] = Field(default_factory=dict)
    times: Path | None = None
    noise: Noise = Noise()
    link: LinkTruth = LinkTruth()
    faults: Faults = Faults()
    loads: dict[str, Load] = Field(default_factory=dict)
    requests: int = Field(default=5000, ge=2, le=5000)
    seed: int = Field(default=0, ge=0)

    _times: dict[tuple[str, str, int], float] = {}

    def speed(self, role: str) -> Speed:
        return self.hosts.get(role) or _USUAL.get(role, Speed())

    def unit_times_s(self, role: str, model: str, flops: Iterable[int]) -> list[float]:
        """Seconds of each unit of a model on a host, one image: as the file of times says, else by its FLOPs."""
        speed = self.speed(role)
        return [
            self._times.get((model, role, unit), speed.per_unit + each / (1e9 * speed.gflops))
            for unit, each in enumerate(flops, start=1)
        ]

    def label(self, roles: Sequence[str]) -> str:
        """`simulated: edge 5, server 100 GFLOP/s`."""
        each = ", ".join(f"{role} {self.speed(role).gflops:g}" for role in roles)
        return f"{SIMULATED}: {each} GFLOP/s" + (", times from a file" if self.times else "")

    def record(self) -> dict[str, Any]:
        """For manifests: what decides the figures."""
        times = [[*key, seconds] for key, seconds in sorted(self._times.items())]
        return {**self.model_dump(mode="json", exclude={"times"}), "times": times}


_USUAL = {EDGE: Speed(gflops=5.0, per_unit=50e-6), SERVER: Speed(gflops=100.0, per_unit=10e-6)}
"""About a Raspberry Pi 4 and a desktop processor."""


def load(name: str) -> World:
    """The world of `simulated` or `simulated:FILE`. Raises TestbedError, one line."""
    file = name.partition(":")[2]
    if not file:
        if name != SIMULATED:
            raise TestbedError(f"--testbed {name}: simulated, or simulated:FILE with what is simulated")
        return World()
    path = Path(file).expanduser()
    try:
        fields = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(fields, dict):
            raise TestbedError(f"{path} must map {', '.join(World.model_fields)} to values")
        world = World.model_validate(fields)
        if world.times is not None:
            world._times.update(_read_times(path.parent / world.times.expanduser()))
    except (OSError, UnicodeDecodeError) as error:
        raise TestbedError(f"cannot read the simulated testbed {path}: {error}") from None
    except yaml.YAMLError as error:
        raise TestbedError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    except ValidationError as error:
        fault = error.errors()[0]
        where, message = ".".join(map(str, fault["loc"])), fault["msg"]
        if fault["type"] == "extra_forbidden":
            message = "unknown key; docs/simulated.md has them all"
        raise TestbedError(f"{path}: {where}: {message[0].lower()}{message[1:]}") from None
    return world


def _read_times(path: Path) -> dict[tuple[str, str, int], float]:
    """Seconds by model, host and unit. Raises TestbedError, OSError."""
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames is None or not set(TIMES) <= set(reader.fieldnames):
            raise TestbedError(f"{path} must have the columns {', '.join(TIMES)}")
        times = {}
        for number, row in enumerate(reader, start=2):
            try:
                seconds = float(row["seconds"])
                if not 0 <= seconds <= 3600:
                    raise ValueError
                times[row["model"], row["host"], int(row["unit"])] = seconds
            except (TypeError, ValueError):
                raise TestbedError(
                    f"{path}:{number}: unit is a number from 1 on, seconds one from 0 to 3600"
                ) from None
    return times

"""A simulated testbed: how fast hosts compute, how much that varies, and what goes wrong."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, PrivateAttr

from pareto.analysis.statistics.samples import Floats
from pareto.basics import files
from pareto.basics.yaml_file import Keys, YamlFile, quantity
from pareto.hosts.host import EDGE, SERVER, TestbedError
from pareto.hosts.inventory import SIMULATED
from pareto.protocol.constants import MOST_REQUESTS
from pareto.protocol.errors import UserError
from pareto.remote.link import units
from pareto.sweep.profile_files import MOST_TRACE_BYTES

Share = Annotated[float, quantity(units.share, plain=True), Field(ge=0, le=1)]
Factor = Annotated[float, quantity(units.share, plain=True), Field(gt=0, le=10)]
TIMES = ["model", "host", "unit", "seconds"]
"""The columns of a file of compute times. Units count from 1: unit k lies between the points k - 1 and k."""


class Speed(Keys):
    """How fast a host computes: FLOPs at a rate, and a fixed time for each unit."""

    WHAT: ClassVar[str] = "a host"
    gflops: float = Field(default=20.0, gt=0, le=1e9)
    per_unit: Annotated[float, quantity(units.delay_s, plain=True)] = Field(default=20e-6, ge=0, le=60)


class Noise(Keys):
    """How compute times vary, as factors around 1: of each request, of each trial, common to a round.

    normal: 1 + size z. lognormal: exp(size z). heavy: exp(size t), where t is Student's with 3 degrees of freedom and
    has the variance 1.
    """

    WHAT: ClassVar[str] = "noise"
    kind: Literal["normal", "lognormal", "heavy"] = "lognormal"
    request: Share = 0.03
    trial: Share = 0.02
    round: Share = 0.01

    def factors(self, draws: np.random.Generator, size: float, count: tuple[int, ...]) -> Floats:
        """An array of such factors, of shape `count`."""
        if not size:
            return np.ones(count)
        if self.kind == "normal":
            return np.maximum(0.05, 1 + size * draws.standard_normal(count))
        spread = draws.standard_t(3, count) / math.sqrt(3) if self.kind == "heavy" else None
        return np.exp(size * (draws.standard_normal(count) if spread is None else np.clip(spread, -20, 20)))


class LinkTruth(Keys):
    """The real link: a share of each rate, and a delay in seconds added each way to what the profile asks."""

    WHAT: ClassVar[str] = "link"
    rate: Factor = 1.0
    delay: Annotated[float, quantity(units.delay_s, plain=True)] = Field(default=0.0, ge=0, le=60)


class Faults(Keys):
    """Shares of trials in which a host ends, or the output is wrong. lost: a host gone for good `after` trials."""

    WHAT: ClassVar[str] = "faults"
    failed: Share = 0.0
    invalid: Share = 0.0
    lost: str | None = None
    after: int = Field(default=0, ge=0)


class Load(Keys):
    """Something else at work on a host in these rounds: its stages take so many times as long, but not alone."""

    WHAT: ClassVar[str] = "a load"
    factor: float = Field(default=2.0, ge=1, le=100)
    rounds: tuple[int, ...] = ()


class CodecStep(Keys):
    """A step of a codec: MB of its input a second, on a host of 100 GFLOP/s, and the share of it that comes out.

    The output of a step that gives numbers fewer bits follows from the payload; its share is what the next step gets.
    """

    WHAT: ClassVar[str] = "a step of a codec"
    encode: float = Field(default=1000.0, gt=0, le=1e6)
    decode: float = Field(default=2000.0, gt=0, le=1e6)
    share: Annotated[float, quantity(units.share, plain=True)] = Field(default=0.7, gt=0, le=1.5)


class World(Keys):
    """A simulated testbed. loads: by role. codecs: by step. engines: the share of its time in eager that a stage takes
    by each. requests: the most of a phase; fewer make studies quick. real_time: the share of its time that a
    simulation really takes, as for trying out a fleet."""

    WHAT: ClassVar[str] = "a simulated testbed"
    hosts: dict[str, Speed] = Field(default_factory=dict)
    times: Path | None = None
    noise: Noise = Noise()
    link: LinkTruth = LinkTruth()
    faults: Faults = Faults()
    loads: dict[str, Load] = Field(default_factory=dict)
    codecs: dict[str, CodecStep] = Field(default_factory=dict)
    engines: dict[str, Factor] = Field(default_factory=dict)
    requests: int = Field(default=MOST_REQUESTS, ge=2, le=MOST_REQUESTS)
    seed: int = Field(default=0, ge=0)
    real_time: Share = 0.0

    _times: dict[tuple[str, str, int], float] = PrivateAttr(default_factory=dict)

    def speed(self, role: str) -> Speed:
        return self.hosts.get(role) or _USUAL.get(role, Speed())

    def slowdown(self, role: str, number: int) -> float:
        """How many times as long a host's stages take in a round of this number."""
        load = self.loads.get(role, Load())
        return load.factor if number in load.rounds else 1.0

    def codec_step(self, name: str) -> CodecStep:
        return self.codecs.get(name) or _USUAL_STEPS.get(name, CodecStep())

    def engine_share(self, name: str) -> float:
        """The share of its time in eager that a stage takes by an engine."""
        return self.engines.get(name) or _USUAL_ENGINES.get(name, 1.0)

    def unit_times_s(self, role: str, model: str, flops: Iterable[int]) -> list[float]:
        """Seconds of each unit of a model on a host, one image: as the file of times says, else by its FLOPs."""
        speed = self.speed(role)
        return [
            self._times.get((model, role, unit), speed.per_unit + each / (1e9 * speed.gflops))
            for unit, each in enumerate(flops, start=1)
        ]

    def label(self, roles: Sequence[str]) -> str:
        """The testbed in words, as in `simulated: edge 5, server 100 GFLOP/s`."""
        each = ", ".join(f"{role} {self.speed(role).gflops:g}" for role in roles)
        return f"{SIMULATED}: {each} GFLOP/s" + (", times from a file" if self.times else "")

    def record(self) -> dict[str, Any]:
        """The facts that decide the figures, for the manifest."""
        times = [[*key, seconds] for key, seconds in sorted(self._times.items())]
        return {**self.model_dump(mode="json", exclude={"times", "real_time"}), "times": times}


_USUAL = {EDGE: Speed(gflops=5.0, per_unit=50e-6), SERVER: Speed(gflops=100.0, per_unit=10e-6)}
"""About a Raspberry Pi 4 and a desktop processor."""
_USUAL_STEPS = {
    name: CodecStep(encode=encode, decode=decode, share=share)
    for name, encode, decode, share in (
        *(("fp16", 40_000, 30_000, 0.5), ("bf16", 30_000, 30_000, 0.5), ("int8", 3500, 20_000, 0.25)),
        *(("uint4", 2500, 7000, 0.125), ("zstd", 300, 1200, 0.65), ("lz4", 900, 4000, 0.75)),
        *(("blosc2", 270, 2200, 0.85), ("jpeg", 130, 100, 0.15), ("webp", 33, 100, 0.05)),
        ("png", 14, 53, 0.6),
    )
}
"""About what they do on one core of a server (docs/notes/performance.md)."""

_USUAL_ENGINES = {"compile": 0.5, "onnx": 0.4}
"""About what MobileNetV2 takes on one core (docs/notes/engines.md)."""


def load(name: str) -> World:
    """The world of `simulated` or `simulated:FILE`. Raises TestbedError, one line."""
    file = name.partition(":")[2]
    if not file:
        if name != SIMULATED:
            raise TestbedError(f"--testbed {name}: simulated, or simulated:FILE with what is simulated")
        return World()
    path = Path(file).expanduser()
    world = YamlFile(path, "simulated testbed", TestbedError).read(World, "seed: 7, for a start")
    if world.times is not None:
        world._times.update(_read_times(path.parent / world.times.expanduser()))
    return world


def _read_times(path: Path) -> dict[tuple[str, str, int], float]:
    """The seconds in a CSV file, by model, host and unit. Raises TestbedError."""
    try:
        text = files.text(path, "compute times", MOST_TRACE_BYTES)
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
    except (UserError, csv.Error) as error:
        raise TestbedError(f"{error}" if isinstance(error, UserError) else f"{path}: {error}") from None
    times = {}
    for number, row in enumerate(rows, start=2):
        if not row.keys() >= set(TIMES):
            raise TestbedError(f"{path} must have the columns {', '.join(TIMES)}")
        try:
            times[row["model"], row["host"], int(row["unit"])] = seconds = float(row["seconds"])
            if not 0 <= seconds <= 3600:
                raise ValueError
        except (TypeError, ValueError):
            words = "unit is a number from 1 on, seconds one from 0 to 3600"
            raise TestbedError(f"{path}:{number}: {words}") from None
    return times

"""What was asked: a sweep and its cells, validated before anything heavy is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from pareto.link import library, units
from pareto.link.probe import Tolerance

BACKENDS = ("tcp", "rpc")


class SpecError(ValueError):
    """Bad input: one line that says what is wrong and what to do."""


def _listed(value: Any) -> Any:
    """Lists may be written with commas: `tcp,rpc`."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return [value] if isinstance(value, int) else value


def _share(value: Any) -> Any:
    """`10%` or 0.1."""
    return (
        units.share(value, "tolerance") if isinstance(value, str) and value.strip().endswith("%") else value
    )


def _seconds(what: str) -> BeforeValidator:
    """`2ms`, or seconds as a number (from a manifest)."""
    return BeforeValidator(lambda value: units.delay_s(value, what) if isinstance(value, str) else value)


def _unless_off(value: Any) -> Any:
    """`off`, which YAML takes for false, is none."""
    return None if value in ("off", False) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_listed), Field(min_length=1)]
Numbers = Annotated[tuple[int, ...], BeforeValidator(_listed), Field(min_length=1)]


class Sweep(BaseModel):
    """A sweep as asked for, by options or by a file whose keys are the options' names."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    models: Names = Field(alias="model")
    netems: Names = Field(default=("none",), alias="netem")
    backends: Names = Field(default=BACKENDS, alias="backend")
    points: Literal["all"] | Numbers = "all"
    granularity: Literal["block"] = "block"
    trials: int = Field(default=3, ge=1, le=1000)
    batch_sizes: Numbers = Field(default=(1,), alias="batch_size")
    weights: str = "seeded"
    seed: int = Field(default=0, ge=0, lt=2**63)
    testbed: str = "local"
    edge_cpu: float = Field(default=1.0, ge=0.05, le=1.0)
    threads: int | None = Field(default=None, ge=1, le=256)
    sample: Annotated[float | None, _seconds("sample"), BeforeValidator(_unless_off)] = Field(
        default=0.2, ge=0.01, le=60
    )
    tolerance: Annotated[float, BeforeValidator(_share)] = Field(default=0.10, gt=0, lt=1)
    rtt_floor: Annotated[float, _seconds("rtt_floor")] = Field(default=0.002, ge=0, lt=10)
    shape_at: Literal["both", "edge"] = "both"
    quick: bool = False

    @property
    def link_tolerance(self) -> Tolerance:
        return Tolerance(self.tolerance, self.rtt_floor, self.tolerance)


@dataclass(frozen=True)
class Cell:
    """One combination to measure. `point` counts the units that run on the edge."""

    model: str
    point: int
    point_name: str
    backend: str
    netem: str
    batch_size: int
    codec: str = "none"

    @property
    def id(self) -> str:
        return f"{self.model}-k{self.point:02d}-{self.backend}-{self.netem}-b{self.batch_size}"


def sweep(fields: dict[str, Any], source: str = "") -> Sweep:
    """A checked sweep from options' names and values. Raises SpecError."""
    try:
        asked = Sweep.model_validate(fields)
    except ValidationError as error:
        raise SpecError(_first_fault(error, source)) from None
    for backend in asked.backends:
        if backend not in BACKENDS:
            raise SpecError(f"unknown backend {backend!r}: there are {' and '.join(BACKENDS)}")
    for name in asked.netems:
        library.load(name)
    if any(size < 1 for size in asked.batch_sizes):
        raise SpecError("--batch-size counts images: 1 or more")
    if asked.testbed != "local":
        for option, given in (("--edge-cpu", asked.edge_cpu < 1), ("--threads", asked.threads is not None)):
            if given:
                raise SpecError(
                    f"{option} is for the local testbed: leave it out ({asked.testbed} says threads itself)"
                )
    return asked


def read_file(path: Path) -> dict[str, Any]:
    """The options that a sweep file gives. Raises SpecError."""
    try:
        fields = yaml.safe_load(path.read_text())
    except OSError as error:
        raise SpecError(f"cannot read the sweep {path}: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise SpecError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(fields, dict):
        raise SpecError(f"{path} must map options to values, as in `model: [mobilenetv2]`")
    return fields


def _first_fault(error: ValidationError, source: str) -> str:
    fault = error.errors()[0]
    option = str(fault["loc"][0]) if fault["loc"] else ""
    where = f"{source}: " if source else ""
    if fault["type"] == "extra_forbidden":
        known = ", ".join(field.alias or name for name, field in Sweep.model_fields.items())
        return f"{where}unknown key {option!r}: use {known}"
    name = option if source else f"--{option.replace('_', '-')}"
    if fault["type"] == "missing":
        return f"{where}{name} is missing: say which model to sweep, as in --model mobilenetv2"
    if option == "points":
        return f"{where}{name} {fault['input']!r}: write all, or numbers such as 0,7,14"
    return f"{where}{name} {fault['input']!r}: {fault['msg'][0].lower()}{fault['msg'][1:]}"

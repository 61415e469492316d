"""A model profile: what each unit of a model takes on each device, and what each backend adds on each link.

`./pareto.sh partitions MODEL --times` makes one, in a folder of its own. A network profile is another thing: delay and
rate of a link.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from pareto.analysis.backend_cost import BackendCost
from pareto.analysis.runs import reading
from pareto.analysis.runs.manifest import fitting, read_json
from pareto.analysis.schema import BACKENDS, CODECS, PROFILE, Table
from pareto.analysis.statistics.samples import Floats
from pareto.basics import files
from pareto.basics.escaping import spreadsheet
from pareto.protocol.errors import UserError, one_line

Quartet = tuple[float, float, float, float]
"""Median, its 95 % interval (low, high), and the 5 % quantile."""

FACTS = "profile.json"
WHOLE = "whole"
"""The name in the row of all units run as one stage."""
TIMES = ["median_s", "low_s", "high_s", "least_s"]
OF_WHOLE = ["outside_s", "after_pause_s"]
OF_UNITS = ["flops", "parameters", "parameter_bytes", "activation_bytes"]
_NEEDED = {
    PROFILE: [],
    BACKENDS: ["payload_bytes", "trip_s", "link_s"],
    CODECS: ["wire_bytes", "encode_s", "encode_least_s"],
}
"""By table, the columns without which a row says nothing, but may be empty by the schema."""
_Known = TypeVar("_Known", "UnitTimes", "CodecTimes", BackendCost)
_TEXTS = ("model", "graph_digest", "granularity", "input", "made_at", "backends_at")
_SHAPE: dict[str, Any] = {
    **dict.fromkeys(_TEXTS, str),
    "input_bytes": float,
    "result_bytes": float,
    "hosts": {"*": {"threads": float, "peak_flops": float, "peak_bytes_s": float, "core": float}},
}


@dataclass(frozen=True, eq=False)
class UnitTimes:
    """The seconds of a batch on one device, of each unit: columns of `profile.csv` (`analysis.schema.PROFILE`).

    whole_s: `TIMES` of all units run as one stage without marks. peak_bytes: empty where it is not known; as
    units_energy_j, in J a run of each by itself.
    """

    role: str
    device: str
    batch_size: int
    threads: int
    cpu: float
    median_s: Floats
    low_s: Floats
    high_s: Floats
    least_s: Floats
    whole_s: Quartet
    outside_s: float = 0.0
    peak_bytes: Floats = field(default_factory=lambda: np.empty(0))
    energy_j: float = float("nan")
    units_energy_j: Floats = field(default_factory=lambda: np.empty(0))
    after_pause_s: float = 0.0

    @property
    def difference(self) -> float:
        """By how much the sum of the units is off the stage run whole, as a share of the latter."""
        return float(self.median_s.sum() / self.whole_s[0] - 1) if self.whole_s[0] else 0.0


@dataclass(frozen=True, eq=False)
class CodecTimes:
    """The times and bytes of a codec on one device: columns of `codecs.csv` (`analysis.schema.CODECS`), for a batch at
    each point (NaN: it is not used there, as at the last, where nothing crosses)."""

    role: str
    batch_size: int
    codec: str
    payload_bytes: Floats
    wire_bytes: Floats
    wire_least_bytes: Floats
    encode_s: Floats
    encode_least_s: Floats
    decode_s: Floats
    decode_least_s: Floats


@dataclass(frozen=True, eq=False)
class ModelProfile:
    """The facts and times of a model on the devices of a testbed, without any trial.

    points: name and payload bytes for one image of each point, so one more than there are units, of which `OF_UNITS`
    are. hosts: by role, the device's facts, with what it reaches at best (`peak_flops` a second, `peak_bytes_s`).
    made_at: ISO 8601, UTC. backends_at: when backends were measured, if that was for another model; empty: then, too.
    """

    model: str
    graph_digest: str
    granularity: str
    input: str
    points: tuple[tuple[str, int], ...]
    result_bytes: int
    flops: Floats
    parameters: Floats
    parameter_bytes: Floats
    activation_bytes: Floats
    times: tuple[UnitTimes, ...]
    backends: tuple[BackendCost, ...]
    hosts: Mapping[str, Mapping[str, Any]]
    made_at: str
    codecs: tuple[CodecTimes, ...] = ()
    backends_at: str = ""

    @property
    def units(self) -> tuple[str, ...]:
        """The name of each unit: of the point at which it ends."""
        return tuple(name for name, _ in self.points[1:])

    @property
    def payload_bytes(self) -> Floats:
        """The bytes that cross at each point, for one image."""
        return np.array([nbytes for _, nbytes in self.points], dtype=np.float64)

    def moved_bytes(self, batch_size: int) -> Floats:
        """The least bytes that each unit moves for a batch: its input and parameters, and what it makes."""
        of_image = self.payload_bytes[:-1] + self.activation_bytes
        return np.asarray(batch_size * of_image + self.parameter_bytes)

    @property
    def roles(self) -> tuple[str, ...]:
        """The hosts with times, in the order of the chain."""
        return tuple(dict.fromkeys(times.role for times in self.times))

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        return tuple(sorted({times.batch_size for times in self.times}))

    def of(self, role: str, batch_size: int) -> UnitTimes:
        """The times of a host at a batch size. Raises UserError."""
        key = {"role": role, "batch_size": batch_size}
        return self._one(self.times, "times of", "{role} at batch size {batch_size}", key)

    def coding(self, role: str, batch_size: int, codec: str) -> CodecTimes:
        """The times and bytes of a codec on a host at a batch size. Raises UserError."""
        key = {"codec": codec, "role": role, "batch_size": batch_size}
        words = "{codec} on {role} at batch size {batch_size}"
        return self._one(self.codecs, "times of the codec", words, key)

    def cost(self, link: str, backend: str) -> BackendCost:
        """The cost of a backend on a link. Raises UserError."""
        key = {"backend": backend, "link": link}
        return self._one(self.backends, "cost of", "{backend} on {link}", key)

    def _one(self, among: Sequence[_Known], what: str, words: str, key: Mapping[str, Any]) -> _Known:
        """The one of them whose fields are these. Raises UserError, which says what there is."""
        for each in among:
            if key.items() <= vars(each).items():
                return each
        there = ", ".join(words.format_map(vars(each)) for each in among) or "none"
        raise UserError(f"the profile of {self.model} has no {what} {words.format_map(key)}: it has {there}")

    def write(self, folder: Path, under: Path | None = None) -> tuple[Path, ...]:
        """The paths of its files, each written whole or not at all. under: as of `files.write`. Raises UserError."""
        points = [str(point) for point in range(len(self.points))]
        tables = {PROFILE: self._unit_rows(), BACKENDS: [vars(each) | each.figures for each in self.backends]}
        if self.codecs:
            tables[CODECS] = [{**vars(each), "host": each.role, "point": points} for each in self.codecs]
        facts = {
            **{name: getattr(self, name) for name in _TEXTS},
            "input_bytes": self.points[0][1],
            "result_bytes": self.result_bytes,
            "hosts": {role: dict(each) for role, each in self.hosts.items()},
        }
        try:
            (under or folder).mkdir(parents=True, exist_ok=True)
            texts = {table.file: _csv(table, rows) for table, rows in tables.items()}
            texts[FACTS] = json.dumps(facts, indent=1) + "\n"
            return tuple(files.write(folder / name, text, under=under) for name, text in texts.items())
        except OSError as error:
            raise UserError(f"cannot write the profile into {folder}: {error.strerror}") from None

    def _unit_rows(self) -> Iterator[dict[str, Any]]:
        """Columns of each device's rows, the first of which is of the whole."""
        nothing = np.full(len(self.units), np.nan)
        work = {name: [getattr(self, name).sum(), *getattr(self, name)] for name in OF_UNITS}
        work |= {"unit_name": [WHOLE, *self.units], "payload_bytes": [np.nan, *self.payload_bytes[1:]]}
        for times in self.times:
            peaks, energies_j = (
                of if len(of) else nothing for of in (times.peak_bytes, times.units_energy_j)
            )
            wholes = zip(TIMES, times.whole_s, strict=True)
            yield {
                **{**vars(times), "host": times.role, "unit": range(len(self.points)), **work},
                **{name: [getattr(times, name), *nothing] for name in OF_WHOLE},
                **{name: [whole, *getattr(times, name)] for name, whole in wholes},
                "peak_bytes": [peaks.max(), *peaks],
                "energy_j": [times.energy_j, *energies_j],
            }


def _csv(table: Table, rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows, by columns, as CSV with every digit: counts of operations have more than nine."""
    columns = [*table.columns]
    frames = [pd.DataFrame(each, columns=columns) for each in rows] or [pd.DataFrame(columns=columns)]
    frame = pd.concat(frames).dropna(subset=_NEEDED[table])
    return str(spreadsheet(frame).to_csv(index=False, lineterminator="\n"))


def read(folder: Path) -> ModelProfile:
    """The model profile in a folder, which anybody may have made. Raises UserError, one line."""
    facts, path = _facts(folder / FACTS), folder / PROFILE.file
    units = _frame(folder, PROFILE).fillna({"outside_s": 0.0, "after_pause_s": 0.0, "payload_bytes": 0.0})
    if units.empty:
        raise UserError(f"{path} has no rows")
    ordered = units.sort_values("unit", kind="stable")
    groups = dict(iter(ordered.groupby(["host", "batch_size"], sort=False)))
    first = next(iter(groups.values()))
    for (role, batch_size), group in groups.items():
        if list(group["unit"]) != list(range(len(first))) or len(first) < 2:
            raise UserError(f"{path}: {role} at batch size {batch_size} must have each unit once, from 0 on")
        if list(group["unit_name"]) != list(first["unit_name"]):
            raise UserError(f"{path}: its hosts have different units")
        if group[TIMES].isna().any(axis=None) or first[OF_UNITS].isna().any(axis=None):
            raise UserError(f"{path}: {role} at batch size {batch_size} lacks figures of a unit")
    of_units = first.iloc[1:]
    points = [
        ("input", facts["input_bytes"]),
        *zip(of_units["unit_name"], of_units["payload_bytes"], strict=True),
    ]
    return ModelProfile(
        **{name: facts[name] for name in (*_TEXTS, "hosts")},
        points=tuple((str(name), int(nbytes)) for name, nbytes in points),
        result_bytes=int(facts["result_bytes"]),
        **{name: of_units[name].to_numpy(dtype=np.float64) for name in OF_UNITS},
        times=tuple(map(_times, groups.values())),
        backends=tuple(_costs(folder)),
        codecs=tuple(_codecs(folder, len(points))) if reading.is_there(folder, CODECS) else (),
    )


def _facts(path: Path) -> dict[str, Any]:
    try:
        facts, faults = fitting({"backends_at": "", **read_json(path)}, _SHAPE)
    except FileNotFoundError:
        raise UserError(f"{path.parent} is not a model profile: there is no {path.name}") from None
    except files.StoreError:
        raise
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or one_line(error)
        raise UserError(f"{path} is not a model profile: {why}") from None
    if missing := [name for name in _SHAPE if facts.get(name) is None]:
        why = f"{(faults or missing)[0]} is missing, or not what it must be"
        raise UserError(f"{path} is not a model profile: {why}")
    if hidden := [name for name in _TEXTS if not facts[name].isprintable()]:
        raise UserError(f"{path}: {hidden[0]} has characters that cannot be seen")
    return facts


def _times(rows: pd.DataFrame) -> UnitTimes:
    whole, units = rows.iloc[0], rows.iloc[1:]
    known: dict[str, Any] = {name: int(whole[name]) for name in ("batch_size", "threads")}
    known |= {name: float(whole[name]) for name in ("cpu", "energy_j", *OF_WHOLE)}
    known |= {name: units[name].to_numpy(dtype=np.float64) for name in TIMES}
    for name, column in (("peak_bytes", "peak_bytes"), ("units_energy_j", "energy_j")):
        if units[column].notna().any():
            known[name] = units[column].to_numpy(dtype=np.float64)
    whole_s = tuple(whole[TIMES].astype(float))
    return UnitTimes(str(whole["host"]), str(whole["device"]), **known, whole_s=whole_s)


def _costs(folder: Path) -> Iterator[BackendCost]:
    frame = _frame(folder, BACKENDS)
    for (link, backend), group in frame.groupby(["link", "backend"], sort=False):
        yield BackendCost(str(link), str(backend), *group.iloc[:, 2:].to_numpy(dtype=np.float64).T)


def _codecs(folder: Path, points: int) -> Iterator[CodecTimes]:
    frame, path = _frame(folder, CODECS), folder / CODECS.file
    if not frame["point"].isin([str(point) for point in range(points - 1)]).all():
        raise UserError(f"{path}: its points are 0 to {points - 2}")
    for (role, batch_size, codec), group in frame.groupby(["host", "batch_size", "codec"], sort=False):
        if group["point"].duplicated().any():
            raise UserError(f"{path}: {codec} on {role} at batch size {batch_size} has a point twice")
        figures = group.set_index(group.pop("point").astype(int)).iloc[:, 3:].reindex(range(points))
        yield CodecTimes(str(role), int(batch_size), str(codec), *figures.to_numpy(dtype=np.float64).T)


def _frame(folder: Path, table: Table) -> pd.DataFrame:
    """A table's rows. Raises UserError where one lacks a needed figure."""
    frame: pd.DataFrame = reading.read(folder, table)[0].to_pandas()
    if frame[_NEEDED[table]].isna().any(axis=None):
        raise UserError(f"{folder / table.file}: a row lacks a figure: {', '.join(_NEEDED[table])}")
    return frame

"""A model profile: what each unit of a model takes on each device, and what each backend adds on each link.

`./pareto.sh partitions MODEL --times` makes one, in a folder of its own: `profile.csv`, `backends.csv`, with codecs
`codecs.csv`, and the rest in `profile.json`.
A network profile is another thing: delay and rate of a link.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

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
TIMES = ("median_s", "low_s", "high_s", "least_s")
OF_UNITS = ("flops", "parameters", "parameter_bytes", "activation_bytes")
_OF_PAYLOADS = tuple(each.name for each in fields(BackendCost))[2:]
_TEXTS = ("model", "graph_digest", "granularity", "input", "made_at", "backends_at")
_SHAPE: dict[str, Any] = {
    **dict.fromkeys(_TEXTS, str),
    "input_bytes": float,
    "result_bytes": float,
    "hosts": {"*": {"threads": float, "peak_flops": float, "peak_bytes_s": float, "core": float}},
}


@dataclass(frozen=True, eq=False)
class UnitTimes:
    """How long each unit takes on one device, at one batch size. Seconds a batch.

    cpu: the share of a core that the device gets; with less than 1, times are processor time over that share. median_s,
    low_s, high_s: the median with its 95 % interval, such that the medians add up to the median run. least_s: the 5 %
    quantile. whole_s: the same four of all units run as one stage without marks. outside_s: what a run takes besides: a
    GPU's copies and waits. after_pause_s: how much longer a run takes after the host waited; less than 0 under a quota.
    peak_bytes: of each unit. energy_j: of a run of the whole. NaN: not known.
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
    after_pause_s: float = 0.0

    @property
    def difference(self) -> float:
        """By how much the sum of the units is off the stage run whole, as a share of the latter."""
        return float(self.median_s.sum() / self.whole_s[0] - 1) if self.whole_s[0] else 0.0


@dataclass(frozen=True, eq=False)
class CodecTimes:
    """The times and bytes of a codec on one device, for a batch at each point (NaN: it is not used there).

    The last point has none: nothing crosses there. encode_s, decode_s: medians of a few runs; encode_least_s,
    decode_least_s: the least of them. wire_bytes: what it sends of `payload_bytes`; wire_least_bytes: the least that it
    sends of any payload of the run, NaN where that is not known.
    """

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


_OF_CODECS = tuple(each.name for each in fields(CodecTimes))[3:]


@dataclass(frozen=True, eq=False)
class ModelProfile:
    """The facts and times of a model on the devices of a testbed, without any trial.

    points: name and payload bytes for one image of each point, so one more than there are units. input_bytes,
    result_bytes: for one image. flops, parameters, parameter_bytes, activation_bytes: of each unit, for one image.
    hosts: by role, the device's facts, with what it reaches at best (`peak_flops` a second, `peak_bytes_s`).
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
        for times in self.times:
            if (times.role, times.batch_size) == (role, batch_size):
                return times
        there = ", ".join(f"{times.role} at batch size {times.batch_size}" for times in self.times)
        raise UserError(
            f"the profile of {self.model} has no times of {role} at batch size {batch_size}: {there}"
        )

    def coding(self, role: str, batch_size: int, codec: str) -> CodecTimes:
        """The times and bytes of a codec on a host at a batch size. Raises UserError."""
        for times in self.codecs:
            if (times.role, times.batch_size, times.codec) == (role, batch_size, codec):
                return times
        there = ", ".join(dict.fromkeys(times.codec for times in self.codecs)) or "none"
        raise UserError(
            f"the profile of {self.model} has no times of the codec {codec} on {role} at batch size {batch_size}: it "
            f"has {there}"
        )

    def cost(self, link: str, backend: str) -> BackendCost:
        """The cost of a backend on a link. Raises UserError."""
        for cost in self.backends:
            if (cost.link, cost.backend) == (link, backend):
                return cost
        there = ", ".join(f"{cost.backend} on {cost.link}" for cost in self.backends) or "nothing"
        raise UserError(f"the profile of {self.model} has no cost of {backend} on {link}: it has {there}")

    def write(self, folder: Path, under: Path | None = None) -> tuple[Path, ...]:
        """Write its files, each whole or not at all; their paths. under: as of `files.write`. Raises UserError."""
        tables = [(PROFILE, self._unit_rows()), (BACKENDS, self._backend_rows())]
        tables += [(CODECS, self._codec_rows())] if self.codecs else []
        facts = {
            **{name: getattr(self, name) for name in _TEXTS},
            "input_bytes": self.points[0][1],
            "result_bytes": self.result_bytes,
            "hosts": {role: dict(each) for role, each in self.hosts.items()},
        }
        try:
            texts = {table.file: _csv(table.columns, rows) for table, rows in tables}
            texts[FACTS] = json.dumps(facts, indent=1) + "\n"
            return tuple(files.write(folder / name, text, under=under) for name, text in texts.items())
        except OSError as error:
            raise UserError(f"cannot write the profile into {folder}: {error.strerror}") from None

    def _unit_rows(self) -> Iterator[dict[str, Any]]:
        totals = {name: getattr(self, name).sum() for name in OF_UNITS}
        for times in self.times:
            known = {name: getattr(times, name) for name in ("device", "batch_size", "threads", "cpu")}
            same = {"host": times.role, **known}
            of_whole = {name: getattr(times, name) for name in ("outside_s", "after_pause_s", "energy_j")}
            whole = dict(zip(TIMES, times.whole_s, strict=True)) | totals | of_whole
            peaks = times.peak_bytes if len(times.peak_bytes) else np.full(len(self.units), np.nan)
            yield {**same, "unit": 0, "unit_name": WHOLE, **whole, "peak_bytes": peaks.max()}
            for number, (name, payload_bytes) in enumerate(self.points[1:]):
                figures = {column: getattr(times, column)[number] for column in TIMES}
                figures |= {column: getattr(self, column)[number] for column in OF_UNITS}
                figures |= {"payload_bytes": payload_bytes, "peak_bytes": peaks[number]}
                yield {**same, "unit": number + 1, "unit_name": name, **figures}

    def _backend_rows(self) -> Iterator[dict[str, Any]]:
        for cost in self.backends:
            unknown = np.full(len(cost.payload_bytes), np.nan)
            arrays = [getattr(cost, name) for name in _OF_PAYLOADS]
            for figures in zip(*(each if len(each) else unknown for each in arrays), strict=True):
                yield dict(zip(BACKENDS.columns, (cost.link, cost.backend, *figures), strict=True))

    def _codec_rows(self) -> Iterator[dict[str, Any]]:
        for times in self.codecs:
            same = {"host": times.role, "batch_size": times.batch_size, "codec": times.codec}
            for point in np.flatnonzero(np.isfinite(times.encode_s)):
                figures = {name: getattr(times, name)[point] for name in _OF_CODECS}
                yield {**same, "point": str(point), **figures}


def _csv(columns: Sequence[str], rows: Iterator[dict[str, Any]]) -> str:
    """Rows as CSV with every digit: counts of operations have more than nine."""
    table = spreadsheet(pd.DataFrame(list(rows), columns=list(columns)))
    return str(table.to_csv(index=False, lineterminator="\n"))


def read(folder: Path) -> ModelProfile:
    """The model profile in a folder, which anybody may have made. Raises UserError, one line."""
    path = folder / FACTS
    try:
        content = read_json(path)
    except FileNotFoundError:
        raise UserError(f"{folder} is not a model profile: there is no {FACTS}") from None
    except files.StoreError:
        raise
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or one_line(error)
        raise UserError(f"{path} is not a model profile: {why}") from None
    facts, faults = fitting({"backends_at": "", **content}, _SHAPE)
    if missing := [name for name in _SHAPE if facts.get(name) is None]:
        raise UserError(
            f"{path} is not a model profile: {(faults or missing)[0]} is missing, or not what it must be"
        )
    for name in _TEXTS:
        if not facts[name].isprintable():
            raise UserError(f"{path}: {name} has characters that cannot be seen")
    units, path = _frame(folder, PROFILE), folder / PROFILE.file
    if units.empty:
        raise UserError(f"{path} has no rows")
    groups = [
        (key, group.sort_values("unit")) for key, group in units.groupby(["host", "batch_size"], sort=False)
    ]
    first = groups[0][1]
    for (role, batch_size), group in groups:
        if list(group["unit"]) != list(range(len(first))) or len(first) < 2:
            raise UserError(f"{path}: {role} at batch size {batch_size} must have each unit once, from 0 on")
        if list(group["unit_name"]) != list(first["unit_name"]):
            raise UserError(f"{path}: its hosts have different units")
        unmeasured = group[list(TIMES)].isna().any(axis=None)
        if unmeasured or first[[*OF_UNITS]].isna().any(axis=None):
            raise UserError(f"{path}: {role} at batch size {batch_size} lacks figures of a unit")
    of_units = first.iloc[1:]
    payloads = of_units["payload_bytes"].fillna(0)
    points = [("input", facts["input_bytes"]), *zip(of_units["unit_name"], payloads, strict=True)]
    return ModelProfile(
        **{name: facts[name] for name in _TEXTS},
        points=tuple((str(name), int(nbytes)) for name, nbytes in points),
        result_bytes=int(facts["result_bytes"]),
        **{name: of_units[name].to_numpy(dtype=np.float64) for name in OF_UNITS},
        times=tuple(_times(group) for _, group in groups),
        backends=tuple(_costs(folder)),
        hosts=facts["hosts"],
        codecs=tuple(_codecs(folder, len(points))) if reading.is_there(folder, CODECS) else (),
    )


def _times(rows: pd.DataFrame) -> UnitTimes:
    whole, units = rows.iloc[0], rows.iloc[1:]
    peak = units["peak_bytes"].to_numpy(dtype=np.float64)
    return UnitTimes(
        role=str(whole["host"]),
        device=str(whole["device"]),
        batch_size=int(whole["batch_size"]),
        threads=int(whole["threads"]),
        cpu=float(whole["cpu"]),
        **{name: units[name].to_numpy(dtype=np.float64) for name in TIMES},
        whole_s=tuple(float(whole[name]) for name in TIMES),  # type: ignore[arg-type]
        outside_s=float(np.nan_to_num(whole["outside_s"])),
        peak_bytes=np.empty(0) if np.isnan(peak).all() else peak,
        energy_j=float(whole["energy_j"]),
        after_pause_s=float(np.nan_to_num(whole["after_pause_s"])),
    )


def _costs(folder: Path) -> Iterator[BackendCost]:
    frame = _frame(folder, BACKENDS)
    if frame[["payload_bytes", "trip_s", "link_s"]].isna().any(axis=None):
        raise UserError(f"{folder / BACKENDS.file}: a payload lacks a figure")
    for (link, backend), group in frame.groupby(["link", "backend"], sort=False):
        figures = (group[name].to_numpy(dtype=np.float64) for name in _OF_PAYLOADS)
        yield BackendCost(str(link), str(backend), *figures)


def _codecs(folder: Path, points: int) -> Iterator[CodecTimes]:
    frame, path = _frame(folder, CODECS), folder / CODECS.file
    if frame[["wire_bytes", "encode_s", "encode_least_s"]].isna().any(axis=None):
        raise UserError(f"{path}: a codec lacks a figure")
    if not frame["point"].isin([str(point) for point in range(points - 1)]).all():
        raise UserError(f"{path}: its points are 0 to {points - 2}")
    for (role, batch_size, codec), group in frame.groupby(["host", "batch_size", "codec"], sort=False):
        if group["point"].duplicated().any():
            raise UserError(f"{path}: {codec} on {role} at batch size {batch_size} has a point twice")
        arrays = np.full((len(_OF_CODECS), points), np.nan)
        arrays[:, group["point"].astype(int)] = group[[*_OF_CODECS]].to_numpy(dtype=np.float64).T
        yield CodecTimes(str(role), int(batch_size), str(codec), *arrays)


def _frame(folder: Path, table: Table) -> pd.DataFrame:
    frame: pd.DataFrame = reading.read(folder, table)[0].to_pandas()
    return frame

"""results/<run>/: the manifest, a row a trial and one for each host in it, every request's times, the devices' sensors,
every probe of the links.

trials.csv alone decides what is done: a row reaches the disk before the next trial starts, and a row cut short
by a crash is dropped on the next opening.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pareto.spec import ALONG, Cell

TRIAL_COLUMNS = (
    *(
        "run",
        "model",
        "point",
        "point_name",
        "backend",
        "netem",
        "batch_size",
        "codec",
        "in_flight_asked",
        "round",
        "status",
        "reason",
    ),
    *("latency_s", "latency_p95_s", "edge_s", "serialize_s", "network_s", "middle_s", "server_s"),
    *("edge_slowdown", "server_slowdown"),
    *("latency_bound_s", "throughput_ips", "throughput_bound_ips", "bound_by", "in_flight"),
    *("probed_latency_bound_s", "probed_throughput_bound_ips"),
    *("busiest", "busiest_utilization", "loaded_latency_s", "loaded_latency_p95_s"),
    *("sequential_ips", "pipeline_gain"),
    *("payload_bytes", "result_bytes", "latency_requests", "throughput_requests"),
    *("max_abs_error", "top1", "top1_images"),
    *(
        "rtt_s",
        "rate_bps",
        "loaded_rate_bps",
        "link_seed",
        "retransmits",
        "dropped_packets",
        "trace_from_s",
        "trace_to_s",
    ),
    *("congestion", "tcp_connections", "tcp_retransmits", "tcp_cwnd_packets", "tcp_rtt_s", "tcp_min_rtt_s"),
    "tcp_delivery_rate_bps",
    *("edge_cpu_percent", "server_cpu_percent", "edge_rss_bytes", "server_rss_bytes"),
    *("edge_peak_rss_bytes", "server_peak_rss_bytes", "edge_temperature_c", "server_temperature_c"),
    *("edge_frequency_hz", "server_frequency_hz", "edge_throttled", "server_throttled"),
    *("edge_steal_percent", "server_steal_percent", "edge_others_percent", "server_others_percent"),
    *(
        "edge_wait_percent",
        "server_wait_percent",
        "edge_core_percent",
        "server_core_percent",
        "strangers_percent",
        "full_cores",
    ),
    *(
        "edge_energy_j",
        "server_energy_j",
        "edge_active_energy_j",
        "server_active_energy_j",
        "edge_gpu_percent",
        "server_gpu_percent",
    ),
    *("edge_gpu_memory_bytes", "server_gpu_memory_bytes", "edge_gpu_s", "server_gpu_s"),
    *("started_at", "wall_s", "restart"),
)
_CELL_COLUMNS = ("model", "point", "backend", "netem", "batch_size", "codec", "in_flight_asked")
STAGE_COLUMNS = (
    *("run", *_CELL_COLUMNS, "round", "position", "host", "first_unit", "last_unit"),
    *(
        "compute_s",
        "best_s",
        "baseline_s",
        "slowdown",
        "utilization",
        "bubble_s",
        "payload_bytes",
        "transfer_s",
        "return_s",
    ),
    *(
        "cpu_percent",
        "rss_bytes",
        "peak_rss_bytes",
        "weights_bytes",
        "temperature_c",
        "throttled",
        "energy_j",
        "active_energy_j",
    ),
    *("steal_percent", "others_percent", "wait_percent", "core_percent"),
)
LINK_COLUMNS = (
    *("at", "model", "netem", "link", "trial", "when", "verdict", "reason"),
    *("asked_rtt_s", "asked_rate_bps", "asked_rate_back_bps", "rtt_s", "rate_bps", "rate_back_bps"),
    *("asked_loss", "asked_loss_back", "datagrams", "loss", "loss_back", "position_s"),
)
_FILES = {"trials.csv": TRIAL_COLUMNS, "stages.csv": STAGE_COLUMNS, "link.csv": LINK_COLUMNS}
Row = dict[str, Any]


class StoreError(ValueError):
    """A results folder that cannot be used: one line that says why."""


class Store:
    """One run's folder, open for appending."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def create(cls, out: Path, run: str, manifest: Mapping[str, Any]) -> Store:
        """A new run. Raises StoreError if the folder cannot be written."""
        store = cls(_unused(out / run))
        try:
            (store.folder / "requests").mkdir(parents=True)
            store.write_manifest(manifest)
            _append(store.folder / "trials.csv", [TRIAL_COLUMNS])
            _append(store.folder / "stages.csv", [STAGE_COLUMNS])
            _append(store.folder / "link.csv", [LINK_COLUMNS])
        except OSError as error:
            raise StoreError(
                f"cannot write results to {out}: {error.strerror} (choose another --out)"
            ) from None
        return store

    @classmethod
    def resume(cls, folder: Path) -> Store:
        """A run that was begun. Raises StoreError."""
        if not (folder / "manifest.json").exists() or not (folder / "trials.csv").exists():
            raise StoreError(f"{folder} is not a run to resume: it has no manifest.json or no trials.csv")
        store = cls(folder)
        try:
            for name, columns in _FILES.items():
                _drop_torn_line(folder / name)
                with (folder / name).open(newline="") as file:
                    if next(csv.reader(file), None) != list(columns):
                        raise StoreError(
                            f"{folder / name} has other columns than this version writes: start a new run"
                        )
        except OSError as error:
            raise StoreError(f"cannot write to {folder}: {error.strerror}") from None
        return store

    def discard_if_empty(self) -> None:
        """Remove the folder of a run that measured nothing."""
        if not self.rows():
            shutil.rmtree(self.folder)

    @property
    def run(self) -> str:
        return self.folder.name

    def manifest(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "manifest.json").read_text()))

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        draft = self.folder / "manifest.json.new"
        draft.write_text(json.dumps(manifest, indent=2) + "\n")
        draft.rename(self.folder / "manifest.json")

    def rows(self) -> list[dict[str, str]]:
        return self._read("trials.csv")

    def starts(self) -> int:
        """How often workers were started for it."""
        return max((int(row["restart"] or 0) for row in self.rows()), default=0)

    def done(self) -> frozenset[tuple[Cell, int]]:
        """Cells and rounds that were measured. A failed trial was not: it is missing, and is done again."""
        return frozenset((_cell(row), int(row["round"])) for row in self.rows() if row["status"] != "failed")

    def append_trial(self, row: Row) -> None:
        _append(self.folder / "trials.csv", [_line(row, TRIAL_COLUMNS)])

    def append_stages(self, rows: Iterable[Row]) -> None:
        """What each host did in a trial. Before the trial's own row: without that they do not count."""
        _append(self.folder / "stages.csv", [_line(row, STAGE_COLUMNS) for row in rows])

    def append_link(self, row: Row) -> None:
        _append(self.folder / "link.csv", [_line(row, LINK_COLUMNS)])

    def write_requests(self, cell: Cell, number: int, phases: Mapping[str, Mapping[str, list[Any]]]) -> None:
        """Every request of a trial, in order: requests/<cell>-r<round>.parquet."""
        import pyarrow as pa
        from pyarrow import parquet

        tables = [
            pa.table({"phase": [phase] * len(columns["started_s"]), **columns}, schema=_request_schema(pa))
            for phase, columns in phases.items()
        ]
        parquet.write_table(
            pa.concat_tables(tables), self.folder / "requests" / f"{cell.id}-r{number:02d}.parquet"
        )

    def write_devices(self, cell: Cell, number: int, series: Mapping[str, Mapping[str, list[Any]]]) -> None:
        """What each host's sensors said during a trial, host by host, in order: devices/<cell>-r<round>.parquet.

        A column that a host has no sensor for may be left out. Nothing is written if no host has any.
        """
        import pyarrow as pa
        from pyarrow import parquet

        if not series:
            return
        schema = _device_schema(pa)
        tables = []
        for role, columns in series.items():
            if unknown := set(columns) - set(schema.names):
                raise KeyError(f"not a column: {', '.join(sorted(unknown))}")
            samples = len(columns["at_s"])
            absent = dict.fromkeys(schema.names, [None] * samples)
            tables.append(pa.table({**absent, "host": [role] * samples, **columns}, schema=schema))
        folder = self.folder / "devices"
        folder.mkdir(exist_ok=True)
        parquet.write_table(pa.concat_tables(tables), folder / f"{cell.id}-r{number:02d}.parquet")

    def drop_failed(self) -> None:
        """Make room for the trials that are done again: each cell has one row a round."""
        kept = [row for row in self.rows() if row["status"] != "failed"]
        self._replace("trials.csv", kept)
        done = {_trial(row) for row in kept}
        self._replace("stages.csv", [row for row in self._read("stages.csv") if _trial(row) in done])

    def _read(self, name: str) -> list[dict[str, str]]:
        with (self.folder / name).open(newline="") as file:
            return list(csv.DictReader(file))

    def _replace(self, name: str, rows: Sequence[Mapping[str, str]]) -> None:
        if len(rows) == len(self._read(name)):
            return
        draft, columns = self.folder / f"{name}.new", _FILES[name]
        draft.unlink(missing_ok=True)
        _append(draft, [columns, *([row[column] for column in columns] for row in rows)])
        draft.rename(self.folder / name)


def _trial(row: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(row[column] for column in (*_CELL_COLUMNS, "round"))


def _request_schema(pa: Any) -> Any:
    seconds = ("started_s", "finished_s", "edge_s", "serialize_s", "server_s")
    middle = ("middle_s", pa.list_(pa.float64()))
    return pa.schema([("phase", pa.string()), *((name, pa.float64()) for name in seconds), middle])


def _device_schema(pa: Any) -> Any:
    whole = ("rss_bytes", "throttled", "gpu_memory_bytes")
    measured = (
        *(
            "at_s",
            "cpu_percent",
            "rss_bytes",
            "temperature_c",
            "frequency_hz",
            "throttled",
            "energy_j",
            "power_w",
        ),
        *("gpu_percent", "gpu_memory_bytes", "gpu_clock_hz"),
        *("busy_s", "others_s", "steal_s", "waited_s", "throttled_s"),
    )
    types = ((name, pa.int64() if name in whole else pa.float64()) for name in measured)
    return pa.schema([("host", pa.string()), *types])


def _cell(row: Mapping[str, str]) -> Cell:
    return Cell(
        row["model"],
        tuple(map(int, row["point"].split(ALONG))),
        row["point_name"],
        row["backend"],
        row["netem"],
        int(row["batch_size"]),
        row["codec"],
        row["in_flight_asked"],
    )


def _line(row: Row, columns: tuple[str, ...]) -> list[str]:
    unknown = set(row) - set(columns)
    if unknown:
        raise KeyError(f"not a column: {', '.join(sorted(unknown))}")
    return [_text(row.get(column)) for column in columns]


def _text(value: Any) -> str:
    """Empty for what was not measured; six digits are more than any of these measurements has."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _append(path: Path, lines: Iterable[Iterable[str]]) -> None:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(lines)
    with path.open("a", newline="") as file:
        file.write(buffer.getvalue())
        file.flush()
        os.fsync(file.fileno())


def _drop_torn_line(path: Path) -> None:
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        with path.open("r+b") as file:
            file.truncate(len(whole))


def _unused(folder: Path) -> Path:
    candidate, number = folder, 2
    while candidate.exists():
        candidate, number = folder.with_name(f"{folder.name}-{number}"), number + 1
    return candidate

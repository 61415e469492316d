"""A run folder read back: `trials.csv` and `stages.csv` as typed frames, `manifest.json` as far as figures need it."""

from __future__ import annotations

import csv
import io
import json
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.errors import AnalysisError
from analysis.points import cuts

log = logging.getLogger(__name__)

TEXT = (
    *("run", "model", "point_name", "backend", "netem", "codec", "in_flight_asked", "status", "reason"),
    *("bottleneck", "host", "congestion"),
    "started_at",
)
WHOLE = ("batch_size", "round", "position")
# Bits in hex, not quantities: kept as written.
VERBATIM = ("edge_throttled", "server_throttled", "throttled")
# fmt: off
COLUMNS = (
    "run", "model", "point", "point_name", "backend", "netem", "batch_size", "codec", "in_flight_asked", "round",
    "status", "reason",
    "latency_s", "latency_p95_s", "edge_s", "serialize_s", "network_s", "middle_s", "server_s", "latency_bound_s",
    "throughput_ips", "throughput_bound_ips", "bottleneck", "in_flight",
    "sequential_ips", "pipeline_gain",
    "payload_bytes", "result_bytes", "latency_requests", "throughput_requests", "max_abs_error",
    "top1", "top1_images", "rtt_s", "rate_bps", "retransmits",
    "congestion", "tcp_retransmits", "tcp_cwnd_packets", "tcp_rtt_s", "tcp_min_rtt_s", "tcp_delivery_rate_bps",
    "edge_cpu_percent", "server_cpu_percent", "edge_rss_bytes", "server_rss_bytes",
    "edge_peak_rss_bytes", "server_peak_rss_bytes", "edge_temperature_c", "server_temperature_c",
    "edge_frequency_hz", "server_frequency_hz", "edge_throttled", "server_throttled",
    "edge_energy_j", "server_energy_j", "edge_gpu_percent", "server_gpu_percent",
    "edge_gpu_memory_bytes", "server_gpu_memory_bytes", "edge_gpu_s", "server_gpu_s",
    "started_at", "wall_s",
)
# Runs made before these were written lack them: there they are empty, as not measured.
LATER = (
    "in_flight_asked", "sequential_ips", "pipeline_gain",
    "congestion", "tcp_retransmits", "tcp_cwnd_packets", "tcp_rtt_s", "tcp_min_rtt_s", "tcp_delivery_rate_bps",
    "middle_s", "bottleneck", "top1", "top1_images",
    "edge_peak_rss_bytes", "server_peak_rss_bytes", "server_temperature_c", "edge_frequency_hz",
    "server_frequency_hz", "server_throttled", "edge_gpu_percent", "edge_gpu_memory_bytes",
    "server_gpu_memory_bytes", "edge_gpu_s", "server_gpu_s",
)
STAGE_COLUMNS = (
    "run", "model", "point", "backend", "netem", "batch_size", "codec", "in_flight_asked", "round", "position", "host",
    "first_unit", "last_unit", "compute_s", "best_s", "utilization", "bubble_s",
    "payload_bytes", "transfer_s", "return_s", "cpu_percent", "rss_bytes", "peak_rss_bytes", "weights_bytes",
    "temperature_c", "throttled", "energy_j",
)
# fmt: on
STATUSES = ("ok", "invalid", "failed")


class DatasetError(AnalysisError):
    """A run folder that cannot be analysed; the message is one line for the user."""


def load(runs: Sequence[Path]) -> pd.DataFrame:
    """The trials of one or several run folders, one row a trial, in the order of the files.

    Columns are `COLUMNS`: text (empty text where nothing was written; `point` is text too, to be sorted by
    `analysis.points.order`), whole numbers for batch_size and round, floats for every measurement (NaN = not
    measured, nor by a run older than the column). A last line that a killed writer left unfinished is left out. An
    empty `run` becomes the folder's name.

    Raises `DatasetError` if a `trials.csv` is missing or malformed.
    """
    frames = [_trials(run) for run in runs]
    return pd.concat(frames, ignore_index=True) if frames else _typed([], COLUMNS, Path())


def stages(run: Path) -> pd.DataFrame:
    """`stages.csv` of a run folder: one row for each host that took part in a trial, in the order of the file.

    Columns are `STAGE_COLUMNS`, typed as in `load`; empty for a run older than the file. Raises `DatasetError` if it
    is malformed.
    """
    path = run / "stages.csv"
    return _typed(
        _read(path, STAGE_COLUMNS, ("in_flight_asked",)) if path.exists() else [], STAGE_COLUMNS, path
    )


def manifest(run: Path) -> dict[str, Any]:
    """`manifest.json` of a run folder; empty if it is missing or unreadable, as figures can do without it."""
    try:
        read = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return read if isinstance(read, dict) else {}


def _trials(run: Path) -> pd.DataFrame:
    path = run / "trials.csv"
    frame = _typed(_read(path, COLUMNS, LATER), COLUMNS, path)
    unknown = sorted(set(frame["status"]) - set(STATUSES))
    if unknown:
        raise DatasetError(f"{path}: status {unknown[0]!r} is none of {', '.join(STATUSES)}")
    return frame


def _read(path: Path, columns: Sequence[str], later: Sequence[str] = ()) -> list[dict[str, str]]:
    """The finished rows of a CSV file, as text; empty in the columns `later` where it has none."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DatasetError(f"{path}: {error.strerror or error}") from error
    # A row is finished once its newline is on disk: without it, even the last field may be cut short.
    finished = raw[: raw.rfind(b"\n") + 1]
    torn = len(finished) < len(raw)
    try:
        lines = csv.reader(io.StringIO(finished.decode("utf-8-sig"), newline=""))
        header = next(lines, [])
        missing = [column for column in columns if column not in header and column not in later]
        if missing:
            raise DatasetError(f"{path}: no column {', '.join(missing[:3])}{' ...' if missing[3:] else ''}")
        rows = [(lines.line_num, fields) for fields in lines if fields]
    except (UnicodeDecodeError, csv.Error) as error:
        raise DatasetError(f"{path}: not a CSV file: {error}") from error
    # A quoted newline in `reason` lets a row be torn and yet end in one.
    if rows and len(rows[-1][1]) < len(header):
        rows.pop()
        torn = True
    if torn:
        log.warning("%s: the last line is unfinished and left out", path)
    for number, fields in rows:
        if len(fields) != len(header):
            raise DatasetError(f"{path}, line {number}: {len(fields)} fields instead of {len(header)}")
    return [dict.fromkeys(later, "") | dict(zip(header, fields, strict=True)) for _, fields in rows]


def _typed(rows: list[dict[str, str]], columns: Sequence[str], path: Path) -> pd.DataFrame:
    frame: pd.DataFrame = pd.DataFrame(rows, columns=list(columns), dtype=object)
    for column in columns:
        frame[column] = _column(frame[column], f"{path}: column {column}")
    frame["run"] = frame["run"].replace("", path.parent.name)
    frame["setup"] = ""
    frame["in_flight_asked"] = frame["in_flight_asked"].replace("", "auto")
    return frame


def _column(written: pd.Series, where: str) -> pd.Series:
    try:
        if written.name == "point":
            return written.map(_point).astype(str)
        if written.name in WHOLE:
            return written.map(int).astype("int64")
        if written.name in TEXT or written.name in VERBATIM:
            return written.astype(str)
        return written.map(_number).astype("float64")
    except ValueError as error:
        raise DatasetError(f"{where}: {error}") from error


def _point(text: str) -> str:
    cuts(text)
    return text


def _number(text: str) -> float:
    return float(text) if text else math.nan

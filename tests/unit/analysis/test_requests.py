"""The latency of single requests, cell by cell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pareto.analysis.runs.load import load
from pareto.analysis.runs.requests import COLUMNS, request_latencies
from pareto.analysis.schema import REQUESTS
from pareto.protocol.errors import UserError
from pareto.sweep.cell import Cell
from pareto.trial.store import Store
from tests.unit.example_run import write
from tests.unit.refusals import refusal

CELLS = [
    Cell("net", (7,), "features.6", "tcp", "wifi", 1),
    Cell("net", (7,), "features.6", "tcp:a", "wifi", 1),
    Cell("net", (12,), "features.11", "rpc", "wifi", 8, in_flight="4"),
    Cell("net", (3, 10), "a+b", "tcp", "wifi+lan", 1),
]


def row(cell: Cell, number: int, run: str, status: str = "ok") -> dict[str, Any]:
    names = ("model", "point", "backend", "netem", "batch_size", "codec")
    of_cell = {name: getattr(cell, name) for name in names} | {"in_flight_asked": cell.in_flight}
    return {"run": run, **of_cell, "round": number, "status": status}


def phase(latencies_s: np.ndarray) -> dict[str, list[Any]]:
    started = np.cumsum(latencies_s)
    columns = {"started_s": started, "finished_s": started + latencies_s}
    columns |= dict.fromkeys(("edge_s", "serialize_s", "server_s"), latencies_s / 3)
    return {name: values.tolist() for name, values in columns.items()} | {"middle_s": [[]] * len(latencies_s)}


def keep(folder: Path, cell: Cell, number: int, latencies_s: np.ndarray) -> None:
    """As the harness does. Its throughput phase has other times, which are none of the latency."""
    (folder / "requests").mkdir(parents=True, exist_ok=True)
    Store(folder).write_parts(
        REQUESTS, cell, number, {"latency": phase(latencies_s), "throughput": phase(1000 * latencies_s)}
    )


def test_quantiles_are_those_of_all_rounds_and_runs_together(tmp_path: Path) -> None:
    rng, numbers = np.random.default_rng(3), (1, 2, 12)
    kept: dict[Cell, list[np.ndarray]] = {cell: [] for cell in CELLS}
    for name in ("one", "two"):
        for cell in CELLS:
            for number in numbers:
                kept[cell].append(rng.lognormal(-3, 0.3, 150))
                keep(tmp_path / name, cell, number, kept[cell][-1])
        write(tmp_path / name, [row(cell, number, name) for number in numbers for cell in CELLS])
    found = request_latencies([tmp_path / name for name in ("one", "two")])
    assert list(found) == COLUMNS
    keys = list(zip(found["point"], found["backend"], strict=True))
    assert keys == [("7", "tcp"), ("7", "tcp:a"), ("12", "rpc"), ("3+10", "tcp")], (
        "in their order: of wifi first"
    )
    for cell, latencies_s in kept.items():
        told = found.iloc[keys.index((cell.point, cell.backend))]
        assert told[["trials", "without_requests", "requests"]].tolist() == [6, 0, 900]
        quantiles = [told[f"latency_p{percent}_s"] for percent in (50, 90, 95, 99)]
        assert quantiles == pytest.approx(
            np.quantile(np.concatenate(latencies_s), [0.5, 0.9, 0.95, 0.99]), rel=1e-9
        )
        assert told["slowest_s"] == pytest.approx(np.max(latencies_s), rel=1e-9)
    pd.testing.assert_frame_equal(request_latencies(str(tmp_path), load(tmp_path)), found)


def test_only_valid_trials_count_and_what_is_missing_is_told(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        keep(tmp_path, CELLS[0], number, np.full(20, float(number)))
    keep(tmp_path, CELLS[1], 1, np.ones(20))
    statuses = enumerate(("ok", "invalid", "failed", "ok"), 1)
    rows = [row(CELLS[0], number, "r", status) for number, status in statuses]
    write(tmp_path, [*rows, row(CELLS[1], 1, "r", "failed"), row(CELLS[2], 1, "r")])
    found = request_latencies(tmp_path)
    counts = found[["backend", "trials", "without_requests", "requests"]].to_numpy().tolist()
    assert counts == [["tcp", 2, 1, 20], ["rpc", 1, 1, 0]]
    assert found["latency_p50_s"][0] == pytest.approx(1)
    assert found.loc[1, ["latency_p50_s", "slowest_s", "slow"]].isna().all()
    assert request_latencies(write(tmp_path / "none", [])).empty


def test_slow_requests_are_counted_and_stay_in_and_a_damaged_file_is_named(tmp_path: Path) -> None:
    """The rows do not name their run: it is found by its folder."""
    latencies_s = np.random.default_rng(2).normal(1, 0.01, 100)
    latencies_s[[3, 50]] = 5.0
    latencies_s[7] = 0.1
    keep(tmp_path, CELLS[0], 1, latencies_s)
    (told,) = request_latencies(write(tmp_path, [row(CELLS[0], 1, "")])).to_dict("records")
    assert (told["slow"], told["requests"], told["slowest_s"]) == (2, 100, pytest.approx(5))
    (file,) = (tmp_path / "requests").iterdir()
    file.write_bytes(file.read_bytes()[:-9])
    assert "k07-tcp-wifi-b1-r01.parquet" in refusal(UserError, request_latencies, tmp_path)

"""results/<run>/: nothing lost, nothing twice, nothing invented."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.runs import reading
from pareto.analysis.schema import DEVICES, LINKS, REQUESTS, STAGES, TRIALS
from pareto.sweep.cell import Cell
from pareto.trial.store import Store, StoreError
from tests import REPOSITORY, rows_of
from tests.unit.refusals import refusal

CELL = Cell("mobilenet_v2", (7,), "features.6", "tcp", "none", 1)


def trial(number: int, status: str = "ok", cell: Cell = CELL, **fields: Any) -> dict[str, Any]:
    row = {**cell.columns, "point_name": cell.point_name}
    return {"run": "r", "round": number, "testbed": "local", "status": status, **row, **fields}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.create(tmp_path, "run", {"sweep": {}})


def reopened(store: Store) -> Store:
    """As by another process, later."""
    store.close()
    return Store.resume(store.folder)


def table(store: Store, folder: str) -> tuple[str, dict[str, list[Any]]]:
    """The name of the only file in this folder, and its columns."""
    (file,) = (store.folder / folder).iterdir()
    return file.name, parquet.read_table(file).to_pydict()


@pytest.mark.parametrize(
    ("status", "fields", "left_out"),
    [
        ("ok", {"max_abs_error": math.inf}, "max_abs_error"),
        ("invalid", {"max_abs_error": math.inf, "reason": "wrong"}, "max_abs_error"),
        ("ok", {"latency_s": 1e300, "throughput_ips": 1.0}, "latency_s"),
        ("latency only", {"edge_s": -1.0}, "edge_s"),
        ("ok", {"rate_bps": 1e17}, "rate_bps"),
        ("failed", {"full_cores": "e\u202edge", "reason": "lost"}, "full_cores"),
        ("ok", {"busiest": "somebody"}, "busiest"),
    ],
)
def test_what_no_report_would_read_is_left_out_and_does_not_count(
    store: Store, status: str, fields: dict[str, Any], left_out: str
) -> None:
    store.append_trial(trial(1, status, restart=1, **fields))
    (row,) = reading.read(store.folder, TRIALS)[0].to_pylist()
    assert not row[left_out]
    assert row["status"] == (status if status == "failed" else "invalid")
    assert row["reason"].startswith(fields.get("reason", left_out))
    assert (row["throughput_ips"] or 1.0) == fields.get("throughput_ips", 1.0)
    placed = {name: value for name, value in trial(1).items() if name not in ("status", "point_name")}
    store.append_stages([{**placed, "position": 0, "host": "edge"}])
    store.append_link({name: placed[name] for name in LINKS.columns if name in placed} | {"rtt_s": math.inf})
    for each in (STAGES, LINKS):
        reading.read(store.folder, each)


def test_the_columns_are_the_documented_ones_and_others_are_a_mistake(store: Store) -> None:
    for fields in ({"status": "fine"}, {"round": "x"}, {"point": "seven"}, {"model": ""}):
        with pytest.raises(StoreError, match=next(iter(fields))):
            store.append_trial({**trial(1), **fields})
    with pytest.raises(KeyError, match="latency_ms"):
        store.append_trial(trial(1, latency_ms=1))
    with pytest.raises(KeyError, match="power_mw"):
        store.write_parts(DEVICES, CELL, 1, {"edge": {"at_s": [1.0], "power_mw": [2.0]}})
    for each in (TRIALS, STAGES, LINKS):
        assert (store.folder / each.file).read_text() == ",".join(each.columns) + "\n"


def test_no_row_is_written_twice(store: Store) -> None:
    store.append_trial(trial(1, "failed"))
    store.append_trial(trial(2))
    again = reopened(store)
    again.drop_unsound()
    again.append_trial(trial(1, "invalid"))
    before = (store.folder / "trials.csv").read_bytes()
    for number in (1, 2):
        with pytest.raises(StoreError, match="none is written twice"):
            again.append_trial(trial(number))
    assert (store.folder / "trials.csv").read_bytes() == before


def test_a_second_writer_is_refused_until_the_first_is_done(store: Store) -> None:
    """Then it removes the drafts of one that was killed, and nothing else."""
    store.append_trial(trial(1))
    torn = b"half a ro"
    with (store.folder / "trials.csv").open("ab") as file:
        file.write(torn)
    ours = ("manifest.json.new", "trials.csv.new", "requests/net-k07-tcp-none-b1-r02.parquet.new")
    theirs = ("notes.new", "requests/notes.new", "front.csv")
    for name in (*ours, *theirs):
        (store.folder / name).touch()
    with pytest.raises(StoreError, match=f"process {os.getpid()} on "):
        Store.resume(store.folder)
    assert (store.folder / "trials.csv").read_bytes().endswith(torn)
    assert Store.read(store.folder).done() == {(CELL, 1)}
    again = reopened(store)
    assert again.done() == {(CELL, 1)}
    again.close()
    assert not (store.folder / ".lock").exists()
    assert [name for name in (*ours, *theirs) if (store.folder / name).exists()] == [*theirs]


def test_what_a_host_says_stays_one_line_of_bounded_length(store: Store) -> None:
    """A row is a line: what a crash cuts short is known by its missing end."""
    store.append_trial(trial(1, "failed", reason="one\ntwo\r\nthree \udc80" + "x" * 200_000))
    (row,) = reopened(store).rows()
    assert row["reason"].startswith("one two three \\udc80x")
    assert len(row["reason"]) < 3000


def test_what_a_host_says_is_no_formula(store: Store) -> None:
    store.append_trial(trial(1, "failed", reason="=HYPERLINK(1)", network_s=-0.5))
    store.append_trial(trial(2, "invalid", reason='RTT 231 ms, asked "200 ms"', latency_s=0.123456789))
    store.append_trial(trial(3, retransmits=0, server_s=None))
    names = ["reason", "network_s", "latency_s", "retransmits", "server_s", "edge_energy_j"]
    assert [[row[name] for name in names] for row in store.rows()] == [
        ["'=HYPERLINK(1)", "-0.5", "", "", "", ""],
        ['RTT 231 ms, asked "200 ms"', "", "0.123457", "", "", ""],
        ["", "", "", "0", "", ""],  # what was not measured is never zero
    ]


def test_a_row_cut_short_by_a_crash_is_missing_not_half_there(store: Store) -> None:
    store.append_trial(trial(1))
    store.append_trial(trial(2))
    path = store.folder / "trials.csv"
    path.write_bytes(path.read_bytes()[:-25])
    again = reopened(store)
    assert again.done() == {(CELL, 1)}
    again.append_trial(trial(2))
    assert [row["round"] for row in rows_of(path)] == ["1", "2"]


def test_resuming_does_trials_again_of_which_no_figure_counts(store: Store) -> None:
    for number, status in enumerate(("ok", "failed", "invalid", "latency only"), 1):
        store.append_stages([stage(number, "edge")])
        store.append_trial(trial(number, status))
    again = reopened(store)
    assert again.done() == {(CELL, 1), (CELL, 4)}
    again.drop_unsound()
    assert [row["status"] for row in again.rows()] == ["ok", "latency only"]
    again.append_stages([stage(3, "edge")])
    again.append_trial(trial(3))
    assert again.take_back(CELL, 3), "it is measured again: neither row nor stages are left"
    assert [row["round"] for row in again.rows()] == ["1", "4"]
    assert hosts_of(again) == [("1", "edge"), ("4", "edge")]
    again.append_trial(trial(3))
    assert again.done() == {(CELL, 1), (CELL, 3), (CELL, 4)}


def test_requests_are_kept_in_order_and_a_backend_under_two_names_has_files_of_its_own(store: Store) -> None:
    columns = {name: [3.0, 1.0] for name in ("started_s", "finished_s", "edge_s", "serialize_s")}
    phase = {**columns, "middle_s": [[], [0.25]], "server_s": [None, 0.5]}
    store.write_parts(REQUESTS, CELL, 2, {"latency": phase, "throughput": phase})
    name, kept = table(store, "requests")
    assert name == "mobilenet_v2-k07-tcp-none-b1-r02.parquet"
    assert kept["phase"] == ["latency"] * 2 + ["throughput"] * 2
    assert kept["server_s"] == [None, 0.5] * 2
    assert kept["middle_s"] == [[], [0.25]] * 2
    first, second = (replace(CELL, backend=f"tcp:{label}") for label in "ab")
    for cell in (first, second):
        store.append_trial(trial(1, cell=cell))
        store.write_parts(REQUESTS, cell, 1, {"latency": phase})
    assert store.done() == {(first, 1), (second, 1)}
    written = {file.name for file in (store.folder / "requests").iterdir()} - {name}
    assert written == {f"mobilenet_v2-k07-tcp.{label}-none-b1-r01.parquet" for label in "ab"}


def stage(number: int, host: str, **fields: Any) -> dict[str, Any]:
    named = {key: value for key, value in trial(number).items() if key not in ("point_name", "status")}
    return {**named, "position": 0, "host": host, **fields}


def hosts_of(store: Store) -> list[tuple[str, str]]:
    return [(row["round"], row["host"]) for row in rows_of(store.folder / "stages.csv")]


def test_stages_without_their_trial_do_not_outlive_a_crash(store: Store) -> None:
    for number in (1, 2, 3):
        store.append_stages([stage(number, "edge", utilization=0.5), stage(number, "server")])
        if number < 3:
            store.append_trial(trial(number, "failed" if number == 1 else "ok"))
    again = reopened(store)
    again.drop_unsound()
    assert hosts_of(again) == [("2", "edge"), ("2", "server")]


@pytest.mark.parametrize(
    "change",
    [
        {"in_flight": "8"},
        {"prefetch": 2},
        {"allocator": "edge=default"},
        {"load": "poisson:15/s"},
        {"codec": "int8:channel+zstd:3"},
        {"engine": "edge=onnx+server=compile"},
        {"cuts": (3, 12), "point_name": "features.2+features.11", "backend": "rpc", "netem": "wifi+lte"},
        {"codec": "int8/zstd:3"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_cells_that_differ_are_told_apart(store: Store, change: dict[str, Any]) -> None:
    other = replace(CELL, **change)
    store.append_trial(trial(1))
    store.append_trial(trial(1, cell=other))
    assert store.done() == {(CELL, 1), (other, 1)}
    assert CELL.id != other.id and not {":", "/"} & {*other.id}


def test_sensors_are_kept_host_by_host(store: Store) -> None:
    store.write_parts(DEVICES, CELL, 1, {})
    assert not (store.folder / "devices").exists(), "without sensors there is no file"
    edge = {"at_s": [5.0, 5.5], "rss_bytes": [100, None], "throttled": [0, 4], "energy_j": [1.5, 2.0]}
    server = {"at_s": [99.0], "gpu_clock_hz": [1.4e9]}
    store.write_parts(DEVICES, CELL, 2, {"edge": edge, "server": server})
    name, kept = table(store, "devices")
    assert name == "mobilenet_v2-k07-tcp-none-b1-r02.parquet"
    readme = (REPOSITORY / "results" / "README.md").read_text()
    assert [name for name in kept if f"`{name}`" not in readme] == []
    assert len(kept) == 20
    of_both = {"host": ["edge", "edge", "server"], "at_s": [5.0, 5.5, 99.0], "power_w": [None] * 3}
    of_one = {"rss_bytes": [100, None, None], "throttled": [0, 4, None], "gpu_clock_hz": [None, None, 1.4e9]}
    assert kept.items() >= (of_both | of_one).items()
    store.write_parts(DEVICES, CELL, 3, {"edge": edge})
    assert len(list((store.folder / "devices").iterdir())) == 2


def test_a_run_has_a_folder_of_its_own_or_why_not_is_one_line(
    tmp_path: Path, store: Store, snapshot: SnapshotAssertion
) -> None:
    """Of a run of another version the columns are others: rows of two kinds in one table would shift each other's."""
    assert [Store.create(tmp_path, "run", {}).folder.name for _ in range(2)] == ["run-2", "run-3"]
    (tmp_path / "file").write_text("")
    store.append_trial(trial(1))
    trials = store.folder / "trials.csv"
    trials.write_text(trials.read_text().replace(",dropped_packets", ""))
    said = [
        refusal(StoreError, Store.create, tmp_path / "file", "run", {}),
        refusal(StoreError, Store.resume, tmp_path),
        refusal(StoreError, reopened, store),
    ]
    named = (tmp_path / "file", tmp_path, trials)
    assert all(str(path) in line for path, line in zip(named, said, strict=True))
    assert said == snapshot
    # One that measured nothing leaves nothing.
    assert store.folder.exists()
    other = Store.create(tmp_path / "made" / "for it", "other", {})
    other.append_link({"model": "m", "netem": "none"})
    other.close()
    assert not (tmp_path / "made").exists()

"""The benchmark's tables: 80 columns, without colour, nothing feigned."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from analysis.statistics.median import interval
from pareto import profile_files
from pareto.bench import running, table
from pareto.bench.asked import WAYS, Way
from pareto.bench.measuring import SHARES, Sample
from pareto.bench.summary import overheads, rows
from pareto.hosts.host import TestbedError

LABELLED = (*map(Way, ("floor", "tcp")), Way("rpc", 16, alone=True), Way("asyncio"))
SLOWER = {"floor": 1.0, "tcp": 1.5, "rpc:16": 28.0, "asyncio": 2.0}
SIZES = (4_000, 200_000, 3_200_000, 128_000_000)


def sample(nbytes: int, way: str, number: int, busy: float = 0.0) -> Sample:
    """A machine that gets slower from round to round, the same for all ways."""
    trip_s = (45e-6 + nbytes * 0.3e-9) * SLOWER[way] * (1 + number / 10) * (1 + 400 * busy)
    alone = Sample("veth", nbytes, way, number, 0.1, busy, 9, trip_s, 1.1 * trip_s)
    if busy:
        return alone
    return replace(
        alone, payloads=8, stream_s=4 * trip_s, near_cpu_s=trip_s, far_cpu_s=2 * trip_s, sent_bytes=8 * nbytes
    )


def samples(rounds: int, *, busy: bool = False) -> list[Sample]:
    return [
        sample(nbytes, way.label, number, share)
        for number in range(rounds)
        for nbytes in SIZES
        for way in reversed(LABELLED)
        for share in (SHARES if busy and nbytes < 100_000 else SHARES[:1])
    ]


def printed(some: list[Sample]) -> str:
    out = Console(file=io.StringIO(), width=80, highlight=False)
    told = rows(some, LABELLED)
    table.place(out, told, overheads(told))
    assert isinstance(out.file, io.StringIO)
    text = out.file.getvalue()
    assert "\x1b" not in text
    assert "…" not in text
    assert max(len(line) for line in text.splitlines()) <= 80
    return text


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_ratios_do_not_feel_the_drift() -> None:
    tcp = next(row for row in rows(samples(15), LABELLED) if (row.nbytes, row.way) == (4_000, "tcp"))
    assert tcp.trip_to_floor is not None
    assert tcp.trip_to_floor.low == pytest.approx(1.5)
    assert tcp.trip_to_floor.high == pytest.approx(1.5)
    assert tcp.trip_s.low is not None
    assert tcp.trip_s.median / tcp.trip_s.low > 1.2
    assert tcp.rounds == 15


def test_all_of_it_fits(snapshot: SnapshotAssertion) -> None:
    text = printed(samples(15, busy=True))
    shown = lines(text)
    # 46.2 µs in round 0, a tenth more in each after it: its interval is interpolated between two of them.
    low, high = interval([46.2 * (1 + 0.1 * number) for number in range(15)]) or (0.0, 0.0)
    assert f"4 kB floor 78.5 µs {low:.1f} µs {high:.1f} µs" in shown
    assert any(line.startswith("tcp ") and line.endswith("1.50 1.50 1.50") for line in shown)
    assert text == snapshot


def test_what_was_not_measured_has_no_column(snapshot: SnapshotAssertion) -> None:
    without_floor = [replace(it, payloads=None) for it in samples(3) if it.way != "floor"]
    text = printed(without_floor)
    assert "stream" not in text
    assert "floor" not in text
    assert text == snapshot


def test_processor_time_is_of_both_ends() -> None:
    row = rows([sample(1_000_000, "tcp", 0)], LABELLED)[0]
    trip_s = row.trip_s.median
    assert row.cpu_s_per_gb is not None
    assert row.bytes_per_s is not None
    assert row.cpu_s_per_gb.median == pytest.approx(3 * trip_s / 8e6 * 1e9)
    assert row.bytes_per_s.median == pytest.approx(8e6 / (4 * trip_s))
    assert row.trip_to_floor is None


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (23.14e-6, "23.1 µs"),
        (99.97e-6, "100 µs"),
        (0.0012, "1.20 ms"),
        (1.678, "1.68 s"),
        (-4e-8, "-0.040 µs"),
    ],
)
def test_durations(value: float, shown: str) -> None:
    assert table.duration(value) == shown


def test_each_way_and_column_is_explained() -> None:
    out = Console(file=io.StringIO(), width=80, highlight=False)
    table.explain(out, WAYS, busy=True)
    assert isinstance(out.file, io.StringIO)
    text = " ".join(out.file.getvalue().split())
    for name, words in table.MEANING.items():
        assert f"{name} {words}" in text
    out = Console(file=io.StringIO(), width=80, highlight=False)
    table.explain(out, ("floor", "rpc"), busy=False)
    assert isinstance(out.file, io.StringIO)
    assert not {"naive", "asyncio", "busy"} & set(out.file.getvalue().split())


@pytest.mark.parametrize(("netem", "off"), [("20ms-100mbit", True), ("none", False)])
def test_a_link_that_is_not_what_was_asked_is_told(
    netem: str, off: bool, snapshot: SnapshotAssertion
) -> None:
    """The floor's 4 kB take 50 us here: as they should where nothing is asked, and not on a link of 20 ms."""
    line = table.link(rows(samples(7), LABELLED), profile_files.load(netem))
    assert ("trust nothing" in line) == off
    assert line == snapshot
    assert (
        table.link(rows([it for it in samples(2) if it.way != "floor"], LABELLED), profile_files.load(netem))
        == ""
    )


def test_where_results_cannot_be_written_is_known_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TestbedError, match="--out"):
        running.make(tmp_path / "file" / "folder")
    running.make(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []

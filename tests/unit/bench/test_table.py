"""The benchmark's tables: 80 columns, without colour, nothing feigned."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from analysis.statistics.samples import interval
from pareto import profile_files
from pareto.bench import run, table
from pareto.bench.request import WAYS
from pareto.bench.table import Sample
from pareto.hosts.host import TestbedError

SLOWER = {"floor": 1.0, "tcp": 1.5, "rpc:basic": 28.0, "asyncio": 2.0}
SIZES = (4_000, 200_000, 3_200_000, 128_000_000)


def sample(nbytes: int, way: str, number: int) -> Sample:
    """A machine that gets slower from round to round, the same for all ways."""
    trip_s = (45e-6 + nbytes * 0.3e-9) * SLOWER[way] * (1 + number / 10)
    streamed = {"payloads": 8, "stream_s": 4 * trip_s, "near_cpu_s": trip_s, "far_cpu_s": 2 * trip_s}
    return Sample(
        "veth", nbytes, way, number, 0.1, 9, trip_s, 1.1 * trip_s, **streamed, sent_bytes=8 * nbytes
    )


def samples(rounds: int) -> list[Sample]:
    return [
        sample(nbytes, way, number)
        for number in range(rounds)
        for nbytes in SIZES
        for way in reversed(SLOWER)
    ]


def printed(some: list[Sample]) -> str:
    out = Console(file=io.StringIO(), width=80, highlight=False)
    out.print(table.table(table.rows(some, tuple(SLOWER))))
    assert isinstance(out.file, io.StringIO)
    text = out.file.getvalue()
    assert "\x1b" not in text
    assert "…" not in text
    assert max(len(line) for line in text.splitlines()) <= 80
    return text


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


@pytest.mark.parametrize(
    ("count", "rank"), [(6, 1), (8, 1), (9, 2), (10, 2), (15, 4), (20, 6), (25, 8), (30, 10), (100, 40)]
)
def test_the_interval_of_a_median_is_between_those_of_the_tables(count: int, rank: int) -> None:
    """Conover, table of the confidence interval for a median, 95 %: the tabled ranks hold it more often than that."""
    values = list(range(1, count + 1))
    figure = table.figure(values[1::2] + values[::2])
    assert figure is not None
    assert figure["median"] == (count + 1) / 2
    assert figure["low"] is not None and figure["high"] is not None
    assert rank <= figure["low"] < rank + 1
    assert figure["low"] + figure["high"] == pytest.approx(count + 1)


@pytest.mark.parametrize("count", range(1, 6))
def test_fewer_than_six_samples_have_no_interval(count: int) -> None:
    assert table.figure([3.0] * count) == {"median": 3.0, "low": None, "high": None}


def test_ratios_do_not_feel_the_drift() -> None:
    rows = table.rows(samples(15), tuple(SLOWER))
    tcp = next(row for row in rows if (row["nbytes"], row["way"]) == (4_000, "tcp"))
    assert tcp["trip_to_floor"] == pytest.approx({"median": 1.5, "low": 1.5, "high": 1.5})
    assert tcp["rate_to_floor"] == pytest.approx({"median": 2 / 3, "low": 2 / 3, "high": 2 / 3})
    assert tcp["trip_s"]["median"] / tcp["trip_s"]["low"] > 1.2
    assert tcp["rounds"] == 15
    assert json.loads(json.dumps(rows)) == rows


def test_all_of_it_fits(snapshot: SnapshotAssertion) -> None:
    text = printed(samples(15))
    # 46.2 µs in round 0, a tenth more in each after it: its interval is interpolated between two of them.
    low, high = interval([46.2 * (1 + 0.1 * number) for number in range(15)]) or (0.0, 0.0)
    assert any(line.startswith(f"4 kB floor 78.5 µs {low:.1f} µs {high:.1f} µs") for line in lines(text))
    assert any(line.startswith("tcp ") and " 1.50 1.50 1.50 " in line for line in lines(text))
    assert text == snapshot


def test_what_was_not_measured_has_no_column(snapshot: SnapshotAssertion) -> None:
    nothing = {"payloads": None, "stream_s": None, "near_cpu_s": None, "far_cpu_s": None, "sent_bytes": None}
    text = printed([replace(one, **nothing) for one in samples(3) if one.way != "floor"])
    assert "MB/s" not in text
    assert "floor" not in text
    assert text == snapshot


def test_processor_time_is_of_both_ends() -> None:
    (row,) = table.rows([sample(1_000_000, "tcp", 0)], tuple(SLOWER))
    trip_s = row["trip_s"]["median"]
    assert row["cpu_s_per_gb"]["median"] == pytest.approx(3 * trip_s / 8e6 * 1e9)
    assert row["bytes_per_s"]["median"] == pytest.approx(8e6 / (4 * trip_s))
    assert row["trip_to_floor"] is None


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
    table.explain(out, WAYS)
    assert isinstance(out.file, io.StringIO)
    text = " ".join(out.file.getvalue().split())
    for name, words in table.MEANING.items():
        assert f"{name} {words}" in text
    out = Console(file=io.StringIO(), width=80, highlight=False)
    table.explain(out, ("floor", "rpc"))
    assert isinstance(out.file, io.StringIO)
    assert not {"naive", "asyncio"} & set(out.file.getvalue().split())


@pytest.mark.parametrize(("netem", "off"), [("20ms-100mbit", True), ("none", False)])
def test_a_link_that_is_not_what_was_asked_is_told(
    netem: str, off: bool, snapshot: SnapshotAssertion
) -> None:
    """The floor's 4 kB take 50 us here: as they should where nothing is asked, and not on a link of 20 ms."""
    link, ways = profile_files.load(netem), tuple(SLOWER)
    line = run.link(table.rows(samples(7), ways), link)
    assert ("trust nothing" in line) == off
    assert line == snapshot
    assert run.link(table.rows([one for one in samples(2) if one.way != "floor"], ways), link) == ""


def test_where_results_cannot_be_written_is_known_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TestbedError, match="--out"):
        run.make(tmp_path / "file" / "folder")
    run.make(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []

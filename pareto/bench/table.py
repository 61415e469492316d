"""What `bench transport` prints: the figures of its samples, and one table of 80 columns that needs no colour."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

from analysis.statistics.samples import interval
from pareto.bench.request import FLOOR, WAYS

Row = dict[str, Any]
MEANING = {
    FLOOR: "the same bytes over a plain connected socket into a buffer that is there, one thread an end, no frames.",
    "tcp, rpc": "this project's backends and their variants, as a sweep uses them, with a stage that computes nothing.",
    "naive": "pickle behind a length, `buf += part` (64 kB parts into a bytearray: the kindest form of it).",
    "asyncio": "what floor does, by an event loop at both ends.",
    "round trip": "from sending a payload to four bytes that answer it; median of a round's trips, then of the rounds.",
    "from, to": "the 95 % interval of the median before them, by order statistics; empty below six rounds.",
    "x floor": "how many times the floor's round trip of the same round; 1 is as good as can be.",
    "MB/s": "10^6 bytes a second of payloads one after another, each answered; 4 are under way, more where delay x "
    "rate asks for it.",
    "of floor": "the share of the floor's rate in the same round; 1 is as good as can be.",
    "CPU s/GB": "processor seconds of both ends together for 10^9 bytes so streamed.",
}
"""What each way does, and what each column says."""

_FIGURES = ("trip_s", "trip_mean_s", "trip_to_floor", "bytes_per_s", "rate_to_floor", "cpu_s_per_gb")


@dataclass(frozen=True)
class Sample:
    """One way, once: the median round trip of `trips`, and a stream of `payloads` if there was one.

    Processor time is of the stream, sent_bytes what the near end's interface sent meanwhile.
    """

    place: str
    nbytes: int
    way: str
    round: int
    started_s: float
    trips: int
    trip_s: float
    trip_mean_s: float
    payloads: int | None = None
    stream_s: float | None = None
    near_cpu_s: float | None = None
    far_cpu_s: float | None = None
    sent_bytes: int | None = None


def rows(samples: Sequence[Sample], ways: Sequence[str]) -> list[Row]:
    """A row for each size and way of one place: `place`, `nbytes`, `way`, `rounds`, and a figure for each of _FIGURES.

    A figure is {median, low, high}, or None where it was not measured or there is no floor to compare with.
    `trip_s` is of each round's median trip, `trip_mean_s` of its mean. Ratios are paired by round.
    """
    streams = ("payloads", "stream_s", "near_cpu_s", "far_cpu_s")  # None where nothing was streamed
    frame = pd.DataFrame([asdict(sample) for sample in samples]).astype(dict.fromkeys(streams, float))
    streamed = frame["nbytes"] * frame["payloads"]
    frame["bytes_per_s"] = streamed / frame["stream_s"]
    frame["cpu_s_per_gb"] = (frame["near_cpu_s"] + frame["far_cpu_s"]) / streamed * 1e9
    floor = frame[frame["way"] == FLOOR].set_index(["nbytes", "round"])[["trip_s", "bytes_per_s"]]
    frame = frame.join(floor.add_suffix("_floor"), on=["nbytes", "round"])
    frame["trip_to_floor"] = frame["trip_s"] / frame["trip_s_floor"]
    frame["rate_to_floor"] = frame["bytes_per_s"] / frame["bytes_per_s_floor"]
    groups = dict(iter(frame.groupby(["nbytes", "way"])))
    return [
        {
            "place": samples[0].place,
            "nbytes": nbytes,
            "way": way,
            "rounds": len(groups[nbytes, way]),
            **{name: figure(groups[nbytes, way][name].dropna().tolist()) for name in _FIGURES},
        }
        for nbytes in sorted(frame["nbytes"].unique().tolist())
        for way in ways
        if (nbytes, way) in groups
    ]


def figure(values: Sequence[float]) -> dict[str, float | None] | None:
    """The median of some values and its 95 % interval, which takes six of them; None of no values."""
    if not values:
        return None
    low, high = interval(values) or (None, None)
    return {"median": statistics.median(values), "low": low, "high": high}


def explain(out: Console, ways: Iterable[str]) -> None:
    """Print one sentence for each of these ways, without their variants, and for each column."""
    grid, wanted = Table.grid(padding=(0, 2, 0, 0)), set(ways)
    grid.add_column(no_wrap=True)
    for name, words in MEANING.items():
        of = set(WAYS) & set(name.split(", "))
        if not of or of & wanted:
            grid.add_row(name, words)
    out.print(grid)


def table(rows: Sequence[Row]) -> Table:
    """The rows of one place, without the columns in which nothing stands."""
    titles = (
        "size",
        "way",
        "round\ntrip",
        "from",
        "to",
        "x\nfloor",
        "from",
        "to",
        "MB/s",
        "of\nfloor",
        "CPU\ns/GB",
    )
    lines, before = [], None
    for row in rows:
        name = "" if row["nbytes"] == before else size(row["nbytes"])
        before = row["nbytes"]
        ratio, share = (None, None) if row["way"] == FLOOR else (row["trip_to_floor"], row["rate_to_floor"])
        rate, cpu = row["bytes_per_s"], row["cpu_s_per_gb"]
        rest = (digits(rate["median"] / 1e6) if rate else "", *_shown(share)[:1], *_shown(cpu)[:1])
        lines.append((name, row["way"], *_shown(row["trip_s"], duration), *_shown(ratio), *rest))
    table = Table(box=None, padding=(0, 1, 0, 0))
    used = [column for column in range(len(titles)) if any(line[column] for line in lines)]
    for column in used:
        table.add_column(titles[column], justify="left" if column < 2 else "right", no_wrap=True)
    for line in lines:
        table.add_row(*(line[column] for column in used))
    return table


def _shown(
    figure: Mapping[str, float | None] | None, show: Callable[[float], str] | None = None
) -> list[str]:
    """The median and both ends of the interval, empty where there is none."""
    values = [figure[key] if figure else None for key in ("median", "low", "high")]
    return ["" if value is None else (show or digits)(value) for value in values]


def size(nbytes: int) -> str:
    """`4 kB`, `3.2 MB`: powers of ten, as sizes are given."""
    scale, unit = next((one for one in ((10**6, "MB"), (10**3, "kB")) if nbytes >= one[0]), (1, "B"))
    return f"{nbytes / scale:g} {unit}"


def duration(seconds: float) -> str:
    """Three digits and a unit: `23.1 µs`."""
    scale, unit = next((one for one in ((1.0, "s"), (1e-3, "ms")) if abs(seconds) >= one[0]), (1e-6, "µs"))
    return f"{digits(seconds / scale)} {unit}"


def digits(value: float) -> str:
    """Three digits: 0.987, 1.20, 45.6, 789, 12345."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:#.3g}".rstrip(".") if abs(value) >= 1 else f"{value:.3f}"

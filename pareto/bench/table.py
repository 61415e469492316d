"""What the user reads of the benchmark: tables of 80 columns that need no colour."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from rich.console import Console
from rich.table import Table

from pareto.bench.asked import FLOOR, WAYS
from pareto.bench.effort import needs_s
from pareto.bench.figures import Figure
from pareto.bench.measuring import ALONE, ALWAYS, HALF
from pareto.bench.summary import Overhead, Row
from pareto.link.probe import Tolerance
from pareto.link.profile import Profile

MEANING = {
    "floor": "the same bytes over a plain connected socket into a buffer that is there, one thread an end, no frames.",
    "tcp, rpc": "this project's backends and their variants, as a sweep uses them, with a stage that computes nothing.",
    "naive": "pickle behind a length, `buf += part` (64 kB parts into a bytearray: the kindest form of it).",
    "asyncio": "what floor does, by an event loop at both ends.",
    "round trip": "from sending a payload to four bytes that answer it; median of a round's trips, then of the rounds.",
    "from, to": "the 95 % interval of the median before them, by order statistics; empty below six rounds.",
    "x floor": "how many times the floor's round trip of the same round; 1 is as good as can be.",
    "stream": "payloads one after another, each answered, in 10^6 bytes a second; 4 are under way, more where "
    "delay x rate asks for it.",
    "of floor": "the share of the floor's rate in the same round; 1 is as good as can be.",
    "CPU": "processor seconds of both ends together for 10^9 bytes of the stream.",
    "busy": "mean round trips beside a thread of pure Python at both ends that wants the interpreter's lock half of "
    "the time, or always.",
    "fixed, per MB": "the line time = fixed + per MB x size through all round trips of a way, with standard errors; "
    "off: its largest deviation from a point.",
}

_ALLOWED = Tolerance(rtt_fraction=0.10, rtt_floor_s=0.002)
"""Of the floor's round trip, which holds what two ordinary programs take."""
_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def explain(out: Console, ways: Iterable[str], *, busy: bool) -> None:
    """One sentence for each way that was asked for, and for each column."""
    asked = set(ways)
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for name, words in MEANING.items():
        of = set(WAYS) & set(name.split(", "))
        if (not of or of & asked) and (busy or name != "busy"):
            table.add_row(name, words)
    out.print(table)


def place(out: Console, rows: Sequence[Row], overheads: Sequence[Overhead]) -> None:
    """Every table of one place. `rows` and `overheads` are of that one alone."""
    alone = [row for row in rows if row.busy == ALONE]
    out.print(_trips(alone))
    if any(row.bytes_per_s for row in alone):
        out.print()
        out.print(_streams(alone))
    if any(row.busy for row in rows):
        out.print()
        out.print(_busy(rows))
    if overheads:
        out.print()
        out.print(_lines(overheads))


def link(told: Sequence[Row], profile: Profile) -> str:
    """Whether the link is what it was asked to be, by the floor's smallest round trip."""
    floor = min((row for row in told if row.way == FLOOR), key=lambda row: row.nbytes, default=None)
    if floor is None:
        return ""
    took_s, asked_s = floor.trip_s.median, needs_s(profile, floor.nbytes)
    off = abs(took_s - asked_s) > _ALLOWED.rtt_s(asked_s)
    verdict = " - the link is off, trust nothing of this place" if off else ""
    return (
        f"the link: {duration(took_s)} for {size(floor.nbytes)} and an answer, "
        f"asked {duration(asked_s)}{verdict}"
    )


def size(nbytes: int) -> str:
    """`4 kB`, `3.2 MB`: powers of ten, as sizes are given."""
    for scale, unit in ((10**6, "MB"), (10**3, "kB")):
        if nbytes >= scale:
            return f"{nbytes / scale:g} {unit}"
    return f"{nbytes} B"


def duration(seconds: float) -> str:
    """Three digits and a unit: `23.1 µs`."""
    scale, unit = next((it for it in _TIMES if abs(seconds) >= it[0]), _TIMES[-1])
    return f"{digits(seconds / scale)} {unit}"


def digits(value: float) -> str:
    """Three of them: 0.987, 1.20, 45.6, 789, 12345."""
    return (
        f"{value:.0f}"
        if abs(value) >= 100
        else f"{value:#.3g}".rstrip(".")
        if abs(value) >= 1
        else f"{value:.3f}"
    )


def _trips(rows: Sequence[Row]) -> Table:
    lines = []
    for first, row in _by_size(rows):
        compared = ("", "", "") if row.way == FLOOR else _of(row.trip_to_floor, digits)
        lines.append((first, row.way, *_of(row.trip_s, duration), *compared))
    return _table(("size", "way", "round trip", "from", "to", "x floor", "from", "to"), lines)


def _streams(rows: Sequence[Row]) -> Table:
    lines = []
    for first, row in _by_size([row for row in rows if row.bytes_per_s]):
        rate = _of(row.bytes_per_s, lambda value: digits(value / 1e6))
        compared = ("", "", "") if row.way == FLOOR else _of(row.rate_to_floor, digits)
        lines.append((first, row.way, *rate, *compared, _of(row.cpu_s_per_gb, digits)[0]))
    names = ("size", "way", "stream MB/s", "from", "to", "of floor", "from", "to", "CPU s/GB")
    return _table(names, lines)


def _busy(rows: Sequence[Row]) -> Table:
    """Round trips again, with a thread that wants the interpreter's lock: means, for it meets only some of them."""
    shown = {(row.nbytes, row.way, row.busy): row.trip_mean_s.median for row in rows}
    tried = {row.nbytes for row in rows if row.busy}
    lines = []
    for first, row in _by_size([row for row in rows if row.busy == ALONE and row.nbytes in tried]):
        alone, half, always = (shown[row.nbytes, row.way, share] for share in (ALONE, HALF, ALWAYS))
        times = [(duration(held), digits(held / alone)) for held in (half, always)]
        lines.append((first, row.way, duration(alone), *chain.from_iterable(times)))
    return _table(("size", "way", "mean trip", "busy half", "x alone", "busy always", "x alone"), lines)


def _lines(overheads: Sequence[Overhead]) -> Table:
    lines = []
    for one in overheads:
        it = one.line
        each = [duration(value) for value in (it.a_s, it.a_error_s, it.b_s * 1e6, it.b_error_s * 1e6)]
        lines.append(("line", one.way, *each, f"{it.worst:.0%}"))
    return _table(("", "way", "fixed", "+-", "per MB", "+-", "off"), lines)


def _table(names: Sequence[str], lines: Sequence[Sequence[str]]) -> Table:
    """Without the columns that nothing is in."""
    table = Table(box=None, pad_edge=False)
    used = [number for number in range(len(names)) if any(line[number] for line in lines)]
    for number in used:
        table.add_column(names[number], justify="left" if number < 2 else "right", no_wrap=True)
    for line in lines:
        table.add_row(*(line[number] for number in used))
    return table


def _by_size(rows: Sequence[Row]) -> Iterable[tuple[str, Row]]:
    """Each row with its size, which is said once."""
    before = None
    for row in rows:
        yield ("" if row.nbytes == before else size(row.nbytes)), row
        before = row.nbytes


def _of(figure: Figure | None, show: Callable[[float], str]) -> tuple[str, str, str]:
    """A figure and its interval, empty where there is none."""
    if figure is None:
        return "", "", ""
    low, high = (show(value) if value is not None else "" for value in (figure.low, figure.high))
    return show(figure.median), low, high

"""Reading a trace: a table of steps (CSV), or mahimahi's list of delivery times.

Each error is one line that names the file, and the line where there is one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby, zip_longest
from pathlib import Path

from pareto.errors import UserError
from pareto.link import units
from pareto.link.profile import Direction, check_rate
from pareto.link.trace import Step, Trace

# mahimahi lets 1500 bytes of IP pass at a time. Rates here are on the wire, Ethernet's header included: counted with
# it, what passes is one full packet here too.
PACKET_BYTES = 1514
BIN_MS = 10  # long enough that a rate means something, short beside any transfer worth measuring

_LAST_ROW = "a last row with a time alone: there it begins again"
_TIMES = "a line for each packet with the millisecond at which it passes, as mahimahi has it"


def read(path: Path, delay_s: float | None = None) -> Trace:
    """The trace in a file: a table if its name ends in ``.csv``, else delivery times as mahimahi has them.

    A table has the columns `at`, and `rate` or `delay` or both, whose cells have units; or `at_s`, `rate_bps`,
    `delay_s`, whose cells have none. Rate 0 is an outage. Its last row has a time alone: there it begins again.

    Delivery times are whole milliseconds, one a line, each for one packet of 1500 bytes; the last is the period. What
    passes in 10 ms becomes the rate of these 10 ms.

    `delay_s` is the delay of every step of a trace that has none of its own (None: 0). Raises UserError.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the trace {path}: {error}") from None
    if not any(line.strip() for line in lines):
        raise UserError(f"{path}: the trace is empty")
    read_steps = _from_table if path.suffix.lower() == ".csv" else _from_times
    period_s, steps = read_steps(path, lines, delay_s)
    try:
        return Trace(path.name, period_s, tuple(steps))
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None


def _from_table(path: Path, lines: Sequence[str], delay_s: float | None) -> tuple[float, list[Step]]:
    rows = [
        (number, [cell.strip().strip('"') for cell in line.split(",")])
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.startswith("#")
    ]
    if len(rows) < 3:
        raise UserError(f"{path}: a trace has a header, a row for each step, and {_LAST_ROW}")
    (number, header), *body = rows
    columns = _columns(path, number, header)
    if delay_s is not None and "delay" in columns:
        raise UserError(f"{path}:{number}: the trace has delays of its own: leave delay out beside it")
    steps: list[Step] = []
    for number, cells in body:
        try:
            values = _row(header, cells, last=number == body[-1][0])
            at_s = values["at"]
            if steps and not at_s > steps[-1].at_s:
                raise ValueError(f"time {cells[columns.index('at')]} is not after the row before")
            if not steps and at_s != 0:
                raise ValueError("a trace begins at time 0")
        except ValueError as error:
            raise UserError(f"{path}:{number}: {error}") from None
        steps.append(Step(at_s, values.get("delay", delay_s or 0.0), values.get("rate")))
    return steps.pop().at_s, steps


def _columns(path: Path, number: int, header: Sequence[str]) -> list[str]:
    """What each column of a table is: `at`, `rate` or `delay`."""
    for name in header:
        if name not in _CELLS:
            raise UserError(f"{path}:{number}: unknown column {name!r}: use {', '.join(_CELLS)}")
    columns = [_CELLS[name][0] for name in header]
    if len(set(columns)) < len(columns):
        raise UserError(f"{path}:{number}: two columns of the trace say the same")
    if "at" not in columns or len(columns) == 1:
        raise UserError(f"{path}:{number}: a trace has the column at, and rate or delay or both")
    return columns


def _row(header: Sequence[str], cells: Sequence[str], *, last: bool) -> dict[str, float]:
    """What a row says: `at`, `rate`, `delay`. Raises ValueError."""
    if len(cells) > len(header):
        raise ValueError(f"{len(cells)} cells are more than the header's {len(header)}")
    values = {}
    for name, text in zip_longest(header, cells, fillvalue=""):
        column, parse = _CELLS[name]
        if last and column != "at":
            if text:
                raise ValueError(f"a trace has {_LAST_ROW}")
        elif not text:
            raise ValueError(f"{name} is empty: only the last row has a time alone")
        else:
            values[column] = parse(text)
    if values.get("rate"):
        check_rate(values["rate"])
    Direction(delay_s=values.get("delay", 0.0))  # its range
    return values


def _rate(text: str) -> float:
    return 0.0 if text == "0" else units.rate_bps(text)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number, in a column whose name has the unit") from None


_CELLS: dict[str, tuple[str, Callable[[str], float]]] = {
    "at": ("at", lambda text: units.delay_s(text, "at")),
    "rate": ("rate", _rate),
    "delay": ("delay", units.delay_s),
    "at_s": ("at", _number),
    "rate_bps": ("rate", _number),
    "delay_s": ("delay", _number),
}


def _from_times(path: Path, lines: Sequence[str], delay_s: float | None) -> tuple[float, list[Step]]:
    times: list[int] = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not (text.isascii() and text.isdigit() and len(text) <= 15):
            raise UserError(
                f"{path}:{number}: {text[:40]!r} is no time: a trace is a table (.csv), or {_TIMES}"
            )
        if times and int(text) < times[-1]:
            raise UserError(f"{path}:{number}: time {text} is before the line above, {times[-1]}")
        times.append(int(text))
    period = times[-1]
    if not period:
        raise UserError(f"{path}:{len(lines)}: the last time is when the trace begins again: more than 0")
    # Packets pass at the end of their millisecond, so that those of the last belong to the period.
    passed = Counter(max(time - 1, 0) // BIN_MS for time in times)
    rates: list[tuple[int, float]] = []
    end = 0
    for begin, packets in sorted((index * BIN_MS, packets) for index, packets in passed.items()):
        if begin > end:
            rates.append((end, 0.0))
        end = min(begin + BIN_MS, period)
        rate = packets * PACKET_BYTES * 8 * 1000 / (end - begin)
        try:
            check_rate(rate)
        except UserError as error:
            raise UserError(f"{path}: at {begin} ms: {error}") from None
        rates.append((begin, rate))
    changes = (next(same) for _, same in groupby(rates, key=lambda one: one[1]))
    return period / 1000, [Step(begin / 1000, delay_s or 0.0, rate) for begin, rate in changes]

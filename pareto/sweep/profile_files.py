"""Profiles and traces: by name, from files, and from names that say it all. Hosts get theirs from the driver."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Tag

from pareto import DATA
from pareto.basics import files
from pareto.basics.yaml_file import Keys, YamlFile, quantity
from pareto.protocol.errors import UserError
from pareto.protocol.validation import bare_name
from pareto.remote.link import units
from pareto.remote.link.profile import NETEM_TBF, PACKET_BYTES, Bucket, Direction, Gilbert, Profile
from pareto.remote.link.trace import Step, Trace

PROFILES = DATA / "netem_profiles"
SYNTAX = (
    "a name such as 80ms, 20mbit, 80ms-20mbit or 10ms-100mbit-1% "
    "(delay, rate, loss, in this order; units us ms s, kbit mbit gbit, %)"
)
MOST_TRACE_BYTES = 1 << 26
BIN_MS = 10
"""The deliveries of so many milliseconds become one rate: short beside any transfer worth measuring."""
DELIVERY_BYTES = PACKET_BYTES
"""One delivery on the wire: mahimahi lets 1500 bytes of IP pass at a time, rates here count Ethernet's header too."""


def names() -> list[str]:
    """The profiles that have a file, sorted."""
    return sorted(path.stem for path in PROFILES.glob("*.yaml"))


def load(name_or_path: str) -> Profile:
    """The profile of that name, else of that YAML file, else as the name itself says: ``80ms-20mbit`` shapes edge to
    server and leaves the way back alone. Raises UserError."""
    text = name_or_path.strip()
    if (name := text.casefold()) in names():
        return read(PROFILES / f"{name}.yaml")
    if is_file(text):
        if not Path(text).exists():
            raise UserError(f"there is no file {text}{_instead(Path(text).stem)}")
        return read(Path(text))
    return Profile(name) if name == "none" else Profile(text, _from_name(text))


def is_file(name: str) -> bool:
    return "/" in name or name.strip().endswith((".yaml", ".yml"))


_NAME_PARTS = {"delay_s": units.delay_s, "rate_bps": units.rate_bps, "loss": units.share}
"""In the order in which a name has them."""


def _from_name(name: str) -> Direction:
    values: dict[str, Any] = {}
    for part in name.split("-"):
        for field, parse in _NAME_PARTS.items():
            with suppress(ValueError):
                values.setdefault(field, parse(part))
    in_order = [field for field in _NAME_PARTS if field in values]
    if list(values) == in_order and len(values) == len(name.split("-")):
        try:
            return _passable(Direction(**values))
        except UserError as error:
            raise UserError(f"netem profile {name!r}: {error}") from None
    raise UserError(f"there is no netem profile {name!r}{_instead(name)}")


def _instead(name: str) -> str:
    """A hint at what to write in place of a name that is none, or of a file that is not there."""
    known = names()
    near = difflib.get_close_matches(name.casefold(), known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}."
    return f": {hint} Or write {SYNTAX}, or a YAML file's path"


def read(path: Path) -> Profile:
    """The profile in a file like ``edge_to_server: {delay: 200ms, rate: 5mbit}``; a direction that is left out is
    unshaped. Raises UserError with the file and the line."""
    file = YamlFile(path, "netem profile")
    keys = file.read(_Profile, "'edge_to_server: {delay: 200ms, rate: 5mbit}'")
    out, back = (_direction(file, way, getattr(keys, way)) for way in ("edge_to_server", "server_to_edge"))
    with file.blaming():
        given = keys.model_dump(include={"burst_bytes", "latency_s"}, exclude_none=True)
        if given and keys.shaper != NETEM_TBF:
            raise UserError(f"{bare_name(next(iter(given)))} needs 'shaper: {NETEM_TBF}'")
        if keys.offset_s is not None and out.trace is back.trace is None:
            raise UserError("offset needs a trace: it is where traces begin")
        bucket = Bucket(**given) if keys.shaper == NETEM_TBF else None
        return Profile(path.stem, out, back, bucket, keys.offset_s or 0.0)


def _direction(file: YamlFile, name: str, keys: _Direction) -> Direction:
    fields = dict(keys)
    if keys.trace is not None:
        with file.blaming(name, "trace"):
            delay_s = fields.pop("delay_s") if "delay_s" in keys.model_fields_set else None
            fields |= {"trace": read_trace(file.path.parent / keys.trace, delay_s), "delay_s": 0.0}
    with file.blaming(name, "loss"):
        if isinstance(keys.loss, _Bursts):
            fields["loss"] = Gilbert(**dict(keys.loss))
    with file.blaming(name):
        direction = _passable(Direction(**fields))
        return direction if direction.rate_bps is None else direction.with_line(direction.rate_bps)


def _passable(direction: Direction) -> Direction:
    if max(direction.mean_loss, direction.corrupt) == 1:
        raise UserError("loss or corrupt of 100%: a link that lets nothing pass is no link")
    return direction


_Delay = Annotated[float, quantity(units.delay_s)]
_Rate = Annotated[float, quantity(units.rate_bps)]
_Share = Annotated[float, quantity(units.share)]
_Size = Annotated[int, quantity(units.size_bytes)]


class _Bursts(Keys):
    WHAT: ClassVar[str] = "bursty loss"
    good_to_bad: _Share
    bad_to_good: _Share
    in_bad: _Share = 1.0
    in_good: _Share = 0.0


class _Direction(Keys):
    WHAT: ClassVar[str] = "a direction"
    delay_s: _Delay = 0.0
    rate_bps: _Rate | None = None
    trace: str | None = None
    jitter_s: _Delay = 0.0
    jitter_correlation: _Share = 0.0
    loss: Annotated[
        Annotated[_Share, Tag("share")] | Annotated[_Bursts, Tag("bursts")],
        Discriminator(lambda value: "bursts" if isinstance(value, dict) else "share"),
    ] = 0.0
    duplicate: _Share = 0.0
    reorder: _Share = 0.0
    corrupt: _Share = 0.0
    limit_bytes: _Size | None = None
    overhead_bytes: Annotated[int, quantity(units.size_bytes, plain=True)] = 0
    atm: bool = False


class _Profile(Keys):
    WHAT: ClassVar[str] = "the profile"
    edge_to_server: _Direction = _Direction()
    server_to_edge: _Direction = _Direction()
    shaper: Literal["netem", "netem+tbf"] = "netem"
    burst_bytes: _Size | None = None
    latency_s: _Delay | None = None
    offset_s: _Delay | None = None


_LAST_ROW = "a last row with a time alone: there it begins again"
_TIMES = "a line for each packet with the millisecond at which it passes, as mahimahi has it"


def read_trace(path: Path, delay_s: float | None = None) -> Trace:
    """The trace in a file: a table if its name ends in ``.csv``, else delivery times as mahimahi has them.

    A table has the columns `at`, and `rate` or `delay` or both, whose cells have units; or `at_s`, `rate_bps`,
    `delay_s`, whose cells have none. Rate 0 is an outage. Its last row has a time alone: there it begins again.
    Delivery times are whole milliseconds, one a line, each for one packet of 1500 bytes; the last is the period.
    delay_s: of every step of a trace that has none of its own (None: 0). Raises UserError.
    """
    lines = files.text(path, "trace", MOST_TRACE_BYTES).splitlines()
    if not any(line.strip() for line in lines):
        raise UserError(f"{path}: the trace is empty")
    read_steps = _from_table if path.suffix.lower() == ".csv" else _from_times
    period_s, steps = read_steps(path, lines, delay_s)
    with _naming(path):
        return Trace(path.name, period_s, tuple(steps))


@contextmanager
def _naming(path: Path, line: int | None = None) -> Iterator[None]:
    """Turns a ValueError into a UserError that names the file, and the line where there is one to blame."""
    try:
        yield
    except ValueError as error:
        raise UserError(f"{path}: {error}" if line is None else f"{path}:{line}: {error}") from None


def _from_table(path: Path, lines: Sequence[str], delay_s: float | None) -> tuple[float, list[Step]]:
    rows = [
        (number, [cell.strip().strip('"') for cell in line.split(",")])
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.startswith("#")
    ]
    if len(rows) < 3:
        raise UserError(f"{path}: a trace has a header, a row for each step, and {_LAST_ROW}")
    (number, header), *body = rows
    with _naming(path, number):
        columns = _columns(header)
        if delay_s is not None and "delay" in columns:
            raise ValueError("the trace has delays of its own: leave delay out beside it")
    steps: list[Step] = []
    for number, cells in body:
        with _naming(path, number):
            values = _row(header, cells, last=number == body[-1][0])
            at_s = values["at"]
            if steps and not at_s > steps[-1].at_s:
                raise ValueError(f"time {cells[columns.index('at')]} is not after the row before")
            if not steps and at_s != 0:
                raise ValueError("a trace begins at time 0")
        steps.append(Step(at_s, values.get("delay", delay_s or 0.0), values.get("rate")))
    return steps.pop().at_s, steps


def _columns(header: Sequence[str]) -> list[str]:
    """The kind of each column of a table: `at`, `rate` or `delay`. Raises ValueError."""
    for name in header:
        if name not in _CELLS:
            raise ValueError(f"unknown column {name!r}: use {', '.join(_CELLS)}")
    columns = [_CELLS[name][0] for name in header]
    if len(set(columns)) < len(columns):
        raise ValueError("two columns of the trace say the same")
    if "at" not in columns or len(columns) == 1:
        raise ValueError("a trace has the column at, and rate or delay or both")
    return columns


def _row(header: Sequence[str], cells: Sequence[str], *, last: bool) -> dict[str, float]:
    """The row's `at`, `rate` and `delay`, as far as the table has them. Raises ValueError."""
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
    Direction(values.get("delay", 0.0), values.get("rate") or None)  # their ranges
    return values


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number, in a column whose name has the unit") from None


_CELLS: dict[str, tuple[str, Callable[[str], float]]] = {
    "at": ("at", lambda text: units.delay_s(text, "at")),
    "rate": ("rate", lambda text: 0.0 if text == "0" else units.rate_bps(text)),
    "delay": ("delay", units.delay_s),
    "at_s": ("at", _number),
    "rate_bps": ("rate", _number),
    "delay_s": ("delay", _number),
}
"""By a column's name: what it is, and the reader of its cells."""


def _from_times(path: Path, lines: Sequence[str], delay_s: float | None) -> tuple[float, list[Step]]:
    times: list[int] = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        with _naming(path, number):
            if not (text.isascii() and text.isdigit() and len(text) <= 15):
                raise ValueError(f"{text[:40]!r} is no time: a trace is a table (.csv), or {_TIMES}")
            if times and int(text) < times[-1]:
                raise ValueError(f"time {text} is before the line above, {times[-1]}")
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
        rate = packets * DELIVERY_BYTES * 8 * 1000 / (end - begin)
        with _naming(Path(f"{path}: at {begin} ms")):
            Direction(rate_bps=rate)  # its range
        rates.append((begin, rate))
    changes = (next(same) for _, same in groupby(rates, key=lambda pair: pair[1]))
    return period / 1000, [Step(begin / 1000, delay_s or 0.0, rate) for begin, rate in changes]

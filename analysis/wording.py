"""How rates, times, sizes, differences and points are written in sentences."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from analysis.fronts.quality import SAME_OUTPUT, WORDS
from analysis.fronts.quality import percent as percent_of
from analysis.points import cuts

EDGE = "all on the edge"
SERVER = "all on the server"
KEEP = "keep everything on the edge"
ALONE = {"edge-only": "the edge alone", "server-only": "the server alone"}
"""The networks that are none: a single host was measured, which stands where others have the edge."""


def duration(seconds: float) -> str:
    """`41 ms`, `1.23 s`: three digits."""
    for scale, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * scale >= 1:
            return f"{_digits(seconds * scale, 3)} {unit}"
    return f"{_digits(seconds * 1e6, 3)} µs"


def rate(bps: float, digits: int = 2) -> str:
    """`23 Mbit/s`, `1.2 Gbit/s`."""
    if bps == math.inf:
        return "no limit"
    for scale, unit in ((1e9, "Gbit/s"), (1e6, "Mbit/s")):
        if float(_digits(bps / scale, digits)) >= 1:
            return f"{_digits(bps / scale, digits)} {unit}"
    return f"{_digits(bps / 1e3, digits)} kbit/s"


def percent(share: float) -> str:
    """`12 %`, `0.4 %`: two digits."""
    return f"{_digits(share * 100, 2)} %"


def more(share: float, comparative: str, multiple: str) -> str:
    """`12 % longer`; from twice as much on, `3.3 times as long`."""
    return f"{percent(share)} {comparative}" if share < 1 else f"{_digits(1 + share, 2)} times {multiple}"


def _digits(value: float, digits: int) -> str:
    """The value with that many significant digits, without zeros at the end: 0.0412 as 0.041, 5.04 as 5."""
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(abs(float(f"{value:.{digits - 1}e}"))))
    decimals = max(0, digits - 1 - exponent)
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text


def place(row: Mapping[Hashable, Any]) -> str:
    """Where the model is cut: `all on the edge`, `all on the server`, or `7 (features.6)`; over what, by what codec and
    engine.
    """
    by = f" by {row['engine']}" if row.get("engine") else ""
    if row["payload_bytes"] == 0:
        return f"{ALONE.get(str(row.get('netem')), EDGE)}{by}"
    over = f" over {row['backend']}" if row["backend"] else ""
    codec = str(row.get("codec") or "none")
    over += (f" with {codec}" if codec != "none" else "") + by
    if set(cuts(row["point"])) == {0}:
        return f"{SERVER}{over}"
    name = str(row["point_name"] or "")
    named = f" ({name})" if name and name != row["point"] else ""
    return f"{row['point']}{named}{over}"


def order(row: Mapping[Hashable, Any]) -> str:
    """What to do: `keep everything on the edge`, `send the input to the server over tcp`, `cut at 7 (a.6) over tcp`."""
    where = place(row)
    if where.startswith(EDGE):
        return f"{KEEP}{where.removeprefix(EDGE)}"
    if where.startswith(SERVER):
        return f"send the input to the server{where.removeprefix(SERVER)}"
    return f"cut at {where}"


def sent(row: Mapping[Hashable, Any], input_type: str = "") -> str:
    """What a request sends: `sends 151 kB of uint8`, `sends 98 kB`; nothing where nothing crosses, or in a chain.

    With a codec what it makes of that, and what it costs in accuracy. input_type: dtypes of the inputs, empty where
    they are not known.
    """
    points = cuts(row["point"])
    if not row["payload_bytes"] > 0 or (len(points) > 1 and set(points) != {0}):
        return ""
    size = nbytes(row["payload_bytes"])
    if str(row.get("codec") or "none") != "none":
        return _encoded(row, size)
    if set(points) != {0} or not input_type:
        return f"sends {size}"
    return f"sends {size} of {' and '.join(input_type.rsplit(', ', 1))}"


def _encoded(row: Mapping[Hashable, Any], size: str) -> str:
    """`sends 25 kB for 98 kB, agreement 98.5 %`."""
    wire = float(row.get("wire_bytes", math.nan))
    sends = f"sends {size}" if math.isnan(wire) else f"sends {nbytes(wire)} for {size}"
    if row.get("output_error", math.nan) <= SAME_OUTPUT:
        return sends
    accuracy = float(row.get("accuracy", math.nan))
    word = WORDS.get(str(row.get("accuracy_of")), "accuracy")
    return f"{sends}, {word} {'not measured' if math.isnan(accuracy) else f'{percent_of(accuracy)} %'}"


def nbytes(count: float) -> str:
    """`288 bytes`, `98 kB`, `1.6 MB`: three digits."""
    if count < 1e3:
        return f"{count:.0f} bytes"
    for scale, unit in ((1e9, "GB"), (1e6, "MB")):
        if count >= scale:
            return f"{_digits(count / scale, 3)} {unit}"
    return f"{_digits(count / 1e3, 3)} kB"


def doing(row: Mapping[Hashable, Any]) -> str:
    """What pays: `keeping everything on the edge`, `sending the input to the server`, `a cut at 7 (features.6)`."""
    verb, _, rest = order(row).partition(" ")
    return {"keep": "keeping", "send": "sending", "cut": "a cut"}[verb] + f" {rest}"


def interval(low: float, high: float, say: Callable[[float], str]) -> str:
    """` (95 %: 20 to 27 Mbit/s)`, or nothing where there is none."""
    if math.isnan(low):
        return ""
    one, other = say(low), say(high)
    number, _, unit = one.partition(" ")
    return f" (95 %: {number if other.endswith(f' {unit}') else one} to {other})"


def ms(seconds: float, sign: str = "-") -> str:
    """Milliseconds with two decimals, three where two would hide what is there."""
    value = 1e3 * seconds
    return f"{value:{sign}.2f}" if abs(value) >= 0.1 or not value else f"{value:{sign}.3f}"


def percentage(value: float, sign: str = "-") -> str:
    """A percentage without its sign: two digits, or all those before the point."""
    return f"{value:{sign}.0f}" if abs(value) >= 10 else f"{value:{sign}.2g}"

"""Differences, intervals and points as sentences have them; quantities are in `pareto.remote.link.units`."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from pareto.analysis.fronts.quality import SAME_OUTPUT, WORDS
from pareto.analysis.fronts.quality import percent as percent_of
from pareto.analysis.runs.points import NONE, cuts
from pareto.remote.link.units import digits_of, nbytes, percent

EDGE = "all on the edge"
SERVER = "all on the server"
KEEP = "keep everything on the edge"
ALONE = {"edge-only": "the edge alone", "server-only": "the server alone"}
"""The networks that are none: a single host was measured, which stands where others have the edge."""


def more(share: float, comparative: str, multiple: str) -> str:
    """`12 % longer`; from twice as much on, `3.3 times as long`."""
    return f"{percent(share)} {comparative}" if share < 1 else f"{digits_of(1 + share, 2)} times {multiple}"


def place(row: Mapping[Hashable, Any]) -> str:
    """Where the model is cut: `all on the edge`, `all on the server`, or `7 (features.6)`; over what, by what codec and
    engine.
    """
    by = f" by {row['engine']}" if row.get("engine") else ""
    if row["payload_bytes"] == 0:
        return f"{ALONE.get(str(row.get('netem')), EDGE)}{by}"
    over = f" over {row['backend']}" if row["backend"] != NONE else ""
    codec = str(row.get("codec") or "none")
    over += (f" with {codec}" if codec != "none" else "") + by
    if set(cuts(row["point"])) == {0}:
        return f"{SERVER}{over}"
    name = str(row["point_name"] or "")
    named = f" ({name})" if name and name != row["point"] else ""
    return f"{row['point']}{named}{over}"


def order(row: Mapping[Hashable, Any]) -> str:
    """Advice: `keep everything on the edge`, `send the input to the server over tcp`, `cut at 7 (a.6) over tcp`."""
    where = place(row)
    for begin, instead in ((EDGE, KEEP), (SERVER, "send the input to the server")):
        if where.startswith(begin):
            return f"{instead}{where.removeprefix(begin)}"
    return f"cut at {where}"


def sent(row: Mapping[Hashable, Any], input_type: str = "") -> str:
    """The bytes of a request in words: `sends 151 kB of uint8`, `sends 25 kB for 98 kB, agreement 98.5 %`.

    Empty where nothing crosses, and in a chain, unless the server runs the whole model. input_type: dtypes of the
    inputs, empty where they are not known.
    """
    points = set(cuts(row["point"]))
    if not row["payload_bytes"] > 0 or (len(cuts(row["point"])) > 1 and points != {0}):
        return ""
    sends = f"sends {nbytes(row['payload_bytes'])}"
    if str(row.get("codec") or "none") == "none":
        of = f" of {' and '.join(input_type.rsplit(', ', 1))}" if points == {0} and input_type else ""
        return f"{sends}{of}"
    wire, accuracy = (float(row.get(name, math.nan)) for name in ("wire_bytes", "accuracy"))
    if not math.isnan(wire):
        sends = f"sends {nbytes(wire)} for {nbytes(row['payload_bytes'])}"
    if row.get("output_error", math.nan) <= SAME_OUTPUT:
        return sends
    word = WORDS.get(str(row.get("accuracy_of")), "accuracy")
    return f"{sends}, {word} {'not measured' if math.isnan(accuracy) else f'{percent_of(accuracy)} %'}"


def doing(row: Mapping[Hashable, Any]) -> str:
    """A placement: `keeping everything on the edge`, `sending the input to the server`, `a cut at 7 (a.6)`."""
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

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
FORMS = ("place", "order", "doing")
ALONE = {"edge-only": "the edge alone", "server-only": "the server alone"}
"""The networks that are none: a single host was measured, which stands where others have the edge."""


def more(share: float, comparative: str, multiple: str) -> str:
    """`12 % longer`; from twice as much on, `3.3 times as long`."""
    return f"{percent(share)} {comparative}" if share < 1 else f"{digits_of(1 + share, 2)} times {multiple}"


def forms(row: Mapping[Hashable, Any]) -> dict[str, str]:
    """Where the model is cut, over what, by what codec and engine: as a `place` (`7 (features.6) over tcp with int8 by
    onnx`, `all on the edge`), as advice (`order`: `keep everything on the edge`), as what is done (`doing`); and the
    host that has it all: its `end`, `EDGE` or `SERVER`, empty for a cut.
    """
    over = f" over {row['backend']}" if row["backend"] != NONE else ""
    codec = str(row.get("codec") or NONE)
    over += f" with {codec}" if codec != NONE else ""
    name = str(row["point_name"] or "")
    named = f" ({name})" if name and name != row["point"] else ""
    end, at = "", f"{row['point']}{named}"
    said = at, f"cut at {at}", f"a cut at {at}"
    if row["payload_bytes"] == 0:
        end, over, alone = EDGE, "", ALONE.get(str(row.get("netem")))
        said = (alone,) * 3 if alone else (EDGE, KEEP, KEEP.replace("keep", "keeping"))
    elif set(cuts(row["point"])) == {0}:
        end, said = SERVER, (SERVER, "send the input to the server", "sending the input to the server")
    over += f" by {row['engine']}" if row.get("engine") else ""
    return {"end": end} | {form: f"{text}{over}" for form, text in zip(FORMS, said, strict=True)}


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

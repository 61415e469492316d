"""`manifest.json` of a run folder, as far as figures and comparisons need it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pareto.basics import files
from pareto.basics.escaping import short
from pareto.sweep.options import FIELDS, Option

FILE = "manifest.json"
MOST_BYTES = 1 << 26
MOST_DEPTH = 32
"""Depth of mappings within each other: a few kilobytes of brackets are more than Python's own stack can hold."""
MOST_NUMBER = 1e20
"""The largest number: seeds, and bytes of memory, are less."""
NAMED = 3
"""Faults that are named; the others are counted."""
EACH = "*"
"""Any key in a shape: of a host, a model, a profile."""
_MISSING = object()
_WAY = dict.fromkeys(("delay_s", "jitter_s", "rate_bps"), float)
_LINK = dict.fromkeys(("rtt_s", "rate_bps", "rate_back_bps"), float)
_HOST = dict.fromkeys(("memory_bytes", "idle_power_w", "threads"), float) | {"energy_leaves_out": str}
_POINT = {"name": str, "payload_bytes": float, "edge_flops": float}
_MODEL = {
    **dict.fromkeys(("weights", "weights_digest", "graph_digest", "source_digest", "input"), str),
    "points": [_POINT],
    "own_codecs": {EACH: dict.fromkeys(("source_digest", "weights_digest"), str)},
    "dataset": {"name": str, "inputs": {EACH: {"digest": str}}},
}
_SESSION = {
    "testbed": {"on_one_core": [[str]]},
    "testbed_name": str,
    "hosts": {EACH: _HOST},
    "bare_links": {EACH: _LINK},
    "driver": {"packages": {}},
    "again": [{"trial": str, "reason": str}],
    "allocator_cost": [{"model": str, "point": str, "batch_size": float, "times": {EACH: float}}],
}


def _of_option(option: Option) -> Any:
    """The shape of an option's value in a manifest; null where it has none."""
    if option.takes_several:
        return [float if option.default == (1,) else str]
    is_number = option.unit or option.takes in (int, float)
    return bool if option.takes is bool else float if is_number else str


SHAPE: dict[str, Any] = {
    "testbed": str,
    "created_at": str,
    # Before it was a factor, `prefetch` was a number.
    "sweep": {name: _of_option(option) for name, option in FIELDS.items() if name != "prefetch"},
    "networks": {EACH: [str]},
    "profiles": {EACH: {"edge_to_server": _WAY, "server_to_edge": _WAY}},
    "models": {EACH: _MODEL},
    "own_backends": {EACH: str},
    "sessions": [_SESSION],
}
"""The types of what the analysis counts with or takes apart. All else it only shows."""


def manifest(run: Path) -> dict[str, Any]:
    """A run's manifest, as `read_manifest` reads it."""
    return read_manifest(run)[0]


def read_manifest(run: Path) -> tuple[dict[str, Any], list[str]]:
    """A run's manifest without what is not of its `SHAPE`; and a line about what was skipped.

    Empty if it is missing or unreadable, as figures can do without it.
    """
    try:
        content = read_json(run / FILE)
    except FileNotFoundError:
        return {}, []
    except (files.StoreError, OSError, ValueError) as error:
        own = isinstance(error, files.StoreError)
        fault = str(error) if own else f"{run / FILE}: {short(str(error), 100)}"
        return {}, [f"{fault}: skipped, so it is not known how that run was made"]
    fit, faults = fitting(content, SHAPE)
    if not faults:
        return fit, []
    more = f" and {len(faults) - NAMED} more" if len(faults) > NAMED else ""
    return fit, [f"{run / FILE}: {', '.join(faults[:NAMED])}{more} skipped: not of the expected type"]


def read_json(path: Path) -> dict[str, Any]:
    """The mapping in a JSON file that anybody may have made: of bounded size, depth and numbers.

    Raises ValueError, `files.StoreError`, OSError.
    """
    text = files.read(path.parent, path.name, most_bytes=MOST_BYTES).decode("utf-8")
    try:
        content = json.loads(text, parse_constant=_countable, parse_float=_countable, parse_int=_countable)
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError("it is not a mapping")
    if _is_deeper(content, MOST_DEPTH):
        raise ValueError("its values are nested too deeply")
    json.dumps(content, ensure_ascii=False).encode()  # a half of a surrogate pair is no text
    return content


def _countable(text: str) -> float:
    number = int(text) if text.lstrip("-").isdecimal() else float(text)
    if not abs(number) <= MOST_NUMBER:
        raise ValueError("it has a number that cannot be counted with")
    return number


def _is_deeper(value: Any, depth: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return depth == 0 or any(_is_deeper(each, depth - 1) for each in inner)


def fitting(content: dict[str, Any], shape: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The mapping without what is not of its shape, whose form is that of `SHAPE`; and the paths of that.

    Where a number or text is expected there may be null as well; where more is, that is as if it were missing.
    """
    faults: list[str] = []

    def fit(value: Any, shape: Any, path: str) -> Any:
        """The value without what is not of its shape; `_MISSING` if that is all of it."""
        if isinstance(shape, dict) and isinstance(value, dict):
            each = {
                key: fit(part, shape.get(key, shape.get(EACH)), f"{path}.{key}")
                for key, part in value.items()
            }
            return {key: part for key, part in each.items() if part is not _MISSING}
        if isinstance(shape, list) and isinstance(value, list):
            parts = [fit(part, shape[0], f"{path}[{number}]") for number, part in enumerate(value)]
            return [part for part in parts if part is not _MISSING]
        if value is None:
            return _MISSING if isinstance(shape, dict | list) else None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if shape is None or (
            is_number if shape is float else shape in (str, bool) and isinstance(value, shape)
        ):
            return value
        faults.append(short(path[1:], 80))
        return _MISSING

    return fit(content, shape, ""), faults


def within(value: Any, *keys: str) -> Any:
    """A value deep in a manifest; None where it is not."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def section(value: Any, *keys: str) -> dict[str, Any]:
    """A mapping deep in a manifest; empty where there is none."""
    inner = within(value, *keys)
    return inner if isinstance(inner, dict) else {}


def sessions(manifest: Mapping[str, Any]) -> list[Any]:
    """The records of a run's sessions, one after another; empty where there is none."""
    each = manifest.get("sessions")
    return each if isinstance(each, list) else []


def input_type(manifests: Iterable[Mapping[str, Any]], model: str) -> str:
    """The dtypes of the inputs that runs fed a model with; empty text where they do not say, or not the same."""
    types = {dtype for manifest in manifests if (dtype := within(manifest, "models", model, "input"))}
    return str(types.pop()) if len(types) == 1 else ""


def directions(manifest: Mapping[str, Any], profile: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A profile's settings for the way from edge to server and for the way back; empty where it has none."""
    out, back = (section(manifest, "profiles", profile, way) for way in ("edge_to_server", "server_to_edge"))
    return out, back


def common_profiles(manifests: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The network profiles that mean the same in every run that has them, by name."""
    known: dict[str, list[Any]] = {}
    for manifest in manifests:
        for name, profile in section(manifest, "profiles").items():
            known.setdefault(name, []).append(profile)
    return {name: same[0] for name, same in known.items() if same.count(same[0]) == len(same)}

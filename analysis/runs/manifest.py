"""`manifest.json` of a run folder, as far as figures and comparisons need it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def manifest(run: Path) -> dict[str, Any]:
    """Empty if it is missing or unreadable, as figures can do without it."""
    try:
        read = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return read if isinstance(read, dict) else {}


def within(value: Any, *keys: str) -> Any:
    """A value deep in a manifest that another version may have written; None where it is not."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def input_type(manifests: Iterable[Mapping[str, Any]], model: str) -> str:
    """The dtype of the images that runs fed a model with; empty text where they do not say, or not the same.

    A run that is older than the choice had float32.
    """
    told = [(it, section(it, "models", model)) for it in manifests]
    found = {of.get("input") or within(it, "sweep", "input") or "float32" for it, of in told if of}
    return str(found.pop()) if len(found) == 1 else ""


def section(value: Any, *keys: str) -> dict[str, Any]:
    """A mapping deep in a manifest; empty where there is none."""
    found = within(value, *keys)
    return found if isinstance(found, dict) else {}

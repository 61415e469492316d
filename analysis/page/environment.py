"""Where and with what runs were made, as their manifests say; what they do not say is named as missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from itertools import chain
from typing import Any

from pareto.analysis.runs.comparable import (
    NOT_RECORDED,
    chosen,
    measured,
    remarks,
    reported,
    roles,
    title,
    words,
)
from pareto.analysis.runs.load import Run
from pareto.analysis.runs.manifest import leaves, section, sessions
from pareto.analysis.tables.columns import Column

MOST = 40
"""How many different environments, and models of one, are shown in full."""
_OF_RUN = (
    *(("", name) for name in ("testbed", "shaper", "congestion", "initial_window", "seed", "pareto")),
    *(("driver", name) for name in ("hostname", "kernel", "python", "packages")),
)


def environments(runs: Sequence[Run]) -> dict[str, Any]:
    """The hosts that each run was made on, for the page's template; runs made on the same hosts are shown together."""
    groups: dict[str, tuple[dict[str, Any], list[Run]]] = {}
    for run in runs:
        content = _content(run.manifest)
        groups.setdefault(repr(content), (content, []))[1].append(run)
    shown = []
    for content, alike in list(groups.values())[:MOST]:
        names = ", ".join(run.folder.name for run in alike) if len(runs) > 1 else ""
        shown.append({**content, "names": names, "made": [("made", _dates(alike))]})
    return {"environments": shown, "more_environments": max(len(groups) - MOST, 0)}


def _dates(runs: Sequence[Run]) -> str:
    """The time when the runs were made: one date, or the first and the last."""
    dates = sorted(_date(str(run.manifest["created_at"])) for run in runs if run.manifest.get("created_at"))
    if not dates:
        return NOT_RECORDED
    return dates[0] if len(set(dates)) == 1 else f"{dates[0]} to {dates[-1]}"


def _date(text: str) -> str:
    """`2026-11-22 09:46 UTC`, to the minute; what is no such date as it stands."""
    with suppress(ValueError):
        return f"{datetime.fromisoformat(text).astimezone(timezone.utc):%Y-%m-%d %H:%M} UTC"
    return text


def _content(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a manifest; none if it could not be read."""
    if not manifest:
        return {"facts": []}
    each, models = sessions(manifest), section(manifest, "models")
    known = chosen(manifest) | measured(manifest) | remarks(manifest)
    facts = [(title(fact), words(known.get(fact, NOT_RECORDED))) for fact in _OF_RUN]
    every = (section(session, "hosts", role) for session in each for role in roles(each))
    names = [name for name in dict.fromkeys(chain.from_iterable(every)) if name != "pid"]
    heads = [name.removesuffix("_bytes").replace("_", " ") for name in names]
    hosts = [
        Column(role, [_words(name, reported(each, "hosts", role, name)) for name in names])
        for role in roles(each)
    ]
    return {
        "facts": [*facts, ("sessions", str(len(each) or NOT_RECORDED))],
        "hosts": [Column("", heads), *hosts] if hosts else [],
        "models": [(name, list(_model(section(record)))) for name, record in list(models.items())[:MOST]],
        "more_models": max(len(models) - MOST, 0),
    }


def _words(name: str, value: Any) -> str:
    is_size = name.endswith("_bytes") and isinstance(value, int | float)
    return f"{value / 2**30:.1f} GiB" if is_size else words(value)


def _model(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for path, value in leaves(record, ("points",)):
        text = " x ".join(map(str, value)) if isinstance(value, list) else str(value)
        yield path.replace("_", " "), words(None) if value is None else text

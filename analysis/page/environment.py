"""Where and with what runs were made, as their manifests say; what they do not say is named as missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any

from analysis.runs.load import Run
from analysis.runs.manifest import section, sessions, within
from analysis.tables.columns import Column

MISSING = "not recorded"
NONE = "none known"
"""The run looked for it, and there was none."""
MOST = 40
"""How many different environments, and models of one, are shown in full."""
HOST_FACTS = {
    "hostname": "name",
    "machine": "architecture",
    "cpu": "CPU",
    "cores": "cores",
    "governor": "governor",
    "memory_bytes": "memory",
    "kernel": "kernel",
    "python": "Python",
    "torch": "torch",
    "torchvision": "torchvision",
    "threads": "threads",
    "device": "device",
    "cuda": "CUDA",
    "congestion_control": "congestion control by default",
    "sensors": "sensors",
    "idle_power_w": "idle power",
}
_SENSED = {
    "cpu_percent": "CPU load",
    "rss_bytes": "memory",
    "energy_j": "energy",
    "temperature_c": "temperature",
}
MODEL_FACTS = {
    "weights": "weights",
    "weights_digest": "digest of the weights",
    "graph_digest": "digest of the graph",
    "source_digest": "digest of the source file",
    "traced_by": "traced by",
    "granularity": "granularity",
    "input": "input",
    "input_shape": "input shape",
}


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
        return MISSING
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
    each = sessions(manifest)
    models = section(manifest, "models")
    return {
        "facts": list(_facts(manifest, each)),
        "hosts": _hosts(each),
        "models": [(name, list(_model(section(facts)))) for name, facts in list(models.items())[:MOST]],
        "more_models": max(len(models) - MOST, 0),
    }


def _facts(manifest: Mapping[str, Any], each: Sequence[Any]) -> Iterator[tuple[str, str]]:
    beds = [section(session, "testbed") for session in each]
    yield "testbed", _text(manifest.get("testbed"))
    yield "link made by", _distinct(bed.get("shaper") for bed in beds)
    yield "congestion control", _distinct(bed.get("congestion_control") for bed in beds)
    windows = (bed.get("initial_window_segments") for bed in beds)
    yield "initial window", _distinct(f"{segments} segments" for segments in windows if segments)
    yield "seed", _text(within(manifest, "sweep", "seed"))
    yield "pareto", _text(manifest.get("pareto"))
    drivers = [section(session, "driver") for session in each]
    yield "driver", _distinct(_driver(driver) for driver in drivers if driver)
    yield "sessions", _text(len(each) or None)


def _driver(driver: Mapping[str, Any]) -> str:
    packages = sorted(section(driver, "packages").items())
    parts = (
        driver.get("hostname"),
        f"kernel {_text(driver.get('kernel'))}",
        f"Python {_text(driver.get('python'))}",
        ", ".join(f"{name} {version}" for name, version in packages),
    )
    return ", ".join(str(part) for part in parts if part)


def _hosts(each: Sequence[Any]) -> list[Column]:
    """A column with the facts' names and one for each host; none if no host is known."""
    roles = list(dict.fromkeys(role for session in each for role in section(session, "hosts")))
    columns = [Column("", list(HOST_FACTS.values()))] if roles else []
    for role in roles:
        hosts = [section(session, "hosts", role) for session in each]
        columns.append(Column(role, [_distinct(_fact(host, key) for host in hosts) for key in HOST_FACTS]))
    return columns


def _fact(host: Mapping[str, Any], key: str) -> Any:
    value = host.get(key)
    if value is None:
        return NONE if key in host else None
    if key == "memory_bytes":
        return f"{value / 2**30:.1f} GiB"
    if key == "cores" and isinstance(value, list):
        return _cores(value, host.get("cores_of_machine"))
    if key == "idle_power_w":
        return f"{value:.3g} W"
    if isinstance(value, Mapping):
        return ", ".join(f"{_SENSED.get(name, name)} by {source}" for name, source in sorted(value.items()))
    return ", ".join(map(str, value)) if isinstance(value, list) else value


def _cores(numbers: Sequence[Any], of: Any) -> str:
    """The cores of a machine that a host has: `core 1 of 2`, `cores 1 to 4 of 8`, `all 4`."""
    if not numbers or not all(isinstance(each, int) for each in numbers):
        return MISSING
    first, last, many = min(numbers), max(numbers), len(numbers)
    if not isinstance(of, int):  # a run of an earlier version: the kernel's number alone, which begins at 0
        return f"1 (number {first})" if many == 1 else f"{many} (numbers {first} to {last})"
    if many == of:
        return f"all {of}" if of > 1 else "the only one"
    if many == 1:
        return f"core {first + 1} of {of}"
    return f"cores {first + 1} to {last + 1} of {of}" if last - first + 1 == many else f"{many} of {of}"


def _model(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, name in MODEL_FACTS.items():
        yield name, _text(facts.get(key))
    yield "images", _text(within(facts, "dataset", "name"))
    for batch, inputs in sorted(section(facts, "dataset", "inputs").items()):
        yield f"digest of the input, batch size {batch}", _text(within(inputs, "digest"))


def _distinct(values: Iterable[Any]) -> str:
    """The words of the sessions, separated by a slash where they differ."""
    known = dict.fromkeys(str(value) for value in values if value not in (None, ""))
    return " / ".join(known) or MISSING


def _text(value: Any) -> str:
    if isinstance(value, list):
        return " x ".join(map(str, value))
    return MISSING if value is None or value == "" else str(value)

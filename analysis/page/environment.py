"""Where and with what runs were made, as their manifests say; what they do not say is told to be missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from analysis.findings import Run
from analysis.page.grid import Column, table
from analysis.page.markup import Html, element, joined, pairs

MISSING = "not recorded"
NONE = "none known"
"""The run looked for it and found nothing."""
MOST = 40
"""Different environments, and models of one, that are told in full."""
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


def environment(runs: Sequence[Run]) -> Html:
    """What each run was made on; runs that were made on the same are told together."""
    told: dict[Html, list[Run]] = {}
    for run in runs:
        told.setdefault(_told(run.manifest), []).append(run)
    parts = []
    for body, alike in list(told.items())[:MOST]:
        names = element("h3", ", ".join(run.folder.name for run in alike)) if len(runs) > 1 else Html()
        parts.append(joined([names, pairs(_made(alike)), body]))
    if len(told) > MOST:
        parts.append(
            element(
                "p", f"{len(told) - MOST} other environments are not told here: see each run's manifest.json."
            )
        )
    return joined(parts) if parts else element("p", f"No run: {MISSING}.")


def _made(runs: Sequence[Run]) -> Iterator[tuple[str, str]]:
    """When; of many runs the first and the last."""
    dates = sorted(str(run.manifest["created_at"]) for run in runs if run.manifest.get("created_at"))
    yield "made", (dates[0] if len(set(dates)) == 1 else f"{dates[0]} to {dates[-1]}") if dates else MISSING


def _told(manifest: Mapping[str, Any]) -> Html:
    if not manifest:
        return element(
            "p", "manifest.json is missing or unreadable: nothing is known of where this run was made."
        )
    sessions = [session for session in _list(manifest.get("sessions")) if isinstance(session, Mapping)]
    parts = [pairs(_facts(manifest, sessions)), _hosts(sessions), *_models(manifest)]
    return joined(parts)


def _facts(manifest: Mapping[str, Any], sessions: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    sweep, beds = _map(manifest.get("sweep")), [_map(session.get("testbed")) for session in sessions]
    yield "testbed", _text(manifest.get("testbed"))
    yield "link made by", _distinct(bed.get("shaper") for bed in beds)
    yield "congestion control", _distinct(bed.get("congestion_control") for bed in beds)
    yield "initial window", _distinct(bed.get("initial_window_segments") for bed in beds)
    yield "seed", _text(sweep.get("seed"))
    yield "pareto", _text(manifest.get("pareto"))
    drivers = [_map(session.get("driver")) for session in sessions]
    yield "driver", _distinct(_driver(driver) for driver in drivers if driver)
    yield "sessions", _text(len(sessions) or None)


def _driver(driver: Mapping[str, Any]) -> str:
    packages = ", ".join(
        f"{name} {version}" for name, version in sorted(_map(driver.get("packages")).items())
    )
    known = (
        driver.get("hostname"),
        f"kernel {_text(driver.get('kernel'))}",
        f"Python {_text(driver.get('python'))}",
        packages,
    )
    return ", ".join(str(part) for part in known if part)


def _hosts(sessions: Sequence[Mapping[str, Any]]) -> Html:
    """A column for each host."""
    facts = [_map(session.get("hosts")) for session in sessions]
    roles = list(dict.fromkeys(role for session in facts for role in session))
    if not roles:
        return element("p", f"Hosts: {MISSING}.")
    columns = [Column("", list(HOST_FACTS.values()))]
    for role in roles:
        of_role = [_map(session.get(role)) for session in facts]
        columns.append(Column(role, [_distinct(_fact(each, key) for each in of_role) for key in HOST_FACTS]))
    return table(columns, "Hosts", class_="facts")


def _fact(host: Mapping[str, Any], key: str) -> Any:
    value = host.get(key)
    if value is None:
        return NONE if key in host else None
    if key == "memory_bytes":
        return f"{value / 2**30:.1f} GiB"
    if key == "idle_power_w":
        return f"{value:.3g} W"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {source}" for name, source in sorted(value.items()))
    return ", ".join(map(str, value)) if isinstance(value, list) else value


def _models(manifest: Mapping[str, Any]) -> Iterator[Html]:
    models = _map(manifest.get("models"))
    if not models:
        yield element("p", f"Models, weights, graphs: {MISSING}.")
        return
    for name, facts in list(models.items())[:MOST]:
        of_model = _map(facts)
        rows = [(told, _text(of_model.get(key))) for key, told in MODEL_FACTS.items()]
        dataset = _map(of_model.get("dataset"))
        rows.append(("images", _text(dataset.get("name"))))
        for batch, inputs in sorted(_map(dataset.get("inputs")).items()):
            digest = _text(_map(inputs).get("digest"))
            rows.append((f"digest of the input, batch size {batch}", digest))
        yield element(
            "details", element("summary", f"{name}: weights, graph and input by their digests"), pairs(rows)
        )
    if len(models) > MOST:
        yield element("p", f"{len(models) - MOST} more models: see manifest.json.")


def _distinct(values: Iterable[Any]) -> str:
    """What sessions say; several things where they differ."""
    known = dict.fromkeys(str(value) for value in values if value not in (None, ""))
    return " / ".join(known) or MISSING


def _text(value: Any) -> str:
    if isinstance(value, list):
        return " x ".join(map(str, value))
    return MISSING if value is None or value == "" else str(value)


def _map(value: Any) -> Mapping[str, Any]:
    """A part of a manifest that another version may have written otherwise."""
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []

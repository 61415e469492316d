"""Which runs may be pooled: those whose settings agree in all that changes what a trial measures.

Settings are looked at where they matter: a model's weights only for its own trials, a profile's content only for the
trials under it. Name, date, seed, and how many rounds do not matter: weights that are drawn from a seed, and noise for
images, take as long whatever the seed.
"""

from __future__ import annotations

import hashlib
import json
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from analysis.runs.manifest import section, within
from pareto.errors import UserError

KEY = ["run", "model", "netem", "batch_size"]
"""What decides a trial's setup."""
NOT_TOLD = "not told"
SIMULATED = "simulated"
"""A manifest's key, and the setup of its trials: nothing of such a run was measured."""
SWEEP = ("edge_cpu", "threads", "slow_start_after_idle", "shape_at", "quick")
HOST = ("torch", "cpu", "device", "cuda", "threads", "governor")
IN_FORCE = {"congestion": "congestion_control", "initial_window": "initial_window_segments"}
"""Options, and what the testbed told: to ask for what is usual anyway changes nothing."""
LABEL_LIMIT = 24

Trials = tuple[str, str, str, int]
"""Values of `KEY`."""
Settings = dict[str, dict[str, Any]]
"""By what they are settings of (nothing in particular, a model, a profile) and by name."""
Differing = tuple[tuple[str, str, Any], ...]
"""What they are of, name and value: of the settings that are not the same everywhere."""


@dataclass(frozen=True)
class Setups:
    """The setup of each kind of trial that has one, by the values of `KEY`; and what tells them apart, a line each."""

    labels: Mapping[Trials, str] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def of(self, rows: pd.DataFrame) -> pd.Series:
        """The setup of each row (trials, or stages of them); empty text where nothing differs."""
        if not self.labels:
            return pd.Series("", index=rows.index, dtype="str")
        groups = rows.groupby(KEY, sort=False)
        labels = [self.labels.get(key, "") for key in _kinds(rows)]
        return pd.Series(np.array(labels, dtype=object)[groups.ngroup()], index=rows.index, dtype="str")


def setups(manifests: Mapping[str, Mapping[str, Any]], trials: pd.DataFrame) -> Setups:
    """Tell the trials of several runs apart by their runs' manifests (by the run's name; empty: there is none).

    A setup is called after the one setting that tells it from the others (`edge_cpu=0.25`), else by a letter: the same
    one for all trials that have the settings of the same earlier run. A run without a manifest is a setup of its own.
    Setups of simulated runs are called `simulated`, too. Raises UserError where these are joined with real ones.
    """
    simulated = [run for run, manifest in manifests.items() if manifest.get(SIMULATED)]
    if not simulated:
        return _setups(manifests, trials)
    if real := [run for run in manifests if run not in simulated]:
        raise UserError(
            f"simulated runs ({some(simulated)}) are not joined with real ones ({some(real)}): report on them apart"
        )
    found = _setups(manifests, trials)
    labels = {kind: f"{SIMULATED} {found.labels.get(kind, '')}".strip() for kind in _kinds(trials)}
    return Setups(labels, found.notes)


def _setups(manifests: Mapping[str, Mapping[str, Any]], trials: pd.DataFrame) -> Setups:
    if len(manifests) < 2:
        return Setups()
    kinds = _kinds(trials)
    told = {kind: _settings(manifests[kind[0]], *kind[1:]) for kind in kinds if manifests[kind[0]]}
    differing = _differing(told.values())
    found = {kind: _of(told[kind], differing) if kind in told else _unknown(kind[0]) for kind in kinds}
    found = {kind: settings for kind, settings in found.items() if settings}
    naming, labels = _named_by_one(found)
    labels = labels or _lettered(found)
    return Setups(labels, tuple(_notes(found, labels, naming)))


def _kinds(rows: pd.DataFrame) -> list[Trials]:
    return list(rows[KEY].drop_duplicates().itertuples(index=False, name=None))


def _settings(manifest: Mapping[str, Any], model: str, netem: str, batch_size: int) -> Settings:
    about = dict(manifest)
    of_model = section(about, "models", model)
    network = within(about, "networks", netem)
    network = network if isinstance(network, list) else netem.split("+")
    found = {
        "": _of_run(about),
        model: _of_model(of_model, section(about, "sweep")),
        f"{model} at batch size {batch_size}": _of_images(of_model, batch_size),
        f"profile {netem}": {
            f"link {number} {name}": value
            for number, profile in enumerate(network, 1)
            for name, value in _leaves(within(about, "profiles", str(profile)) or NOT_TOLD)
        },
    }
    return {scope: {name: _plain(value) for name, value in named.items()} for scope, named in found.items()}


def _of_run(about: dict[str, Any]) -> dict[str, Any]:
    sweep = section(about, "sweep")
    sessions = about.get("sessions")
    sessions = sessions if isinstance(sessions, list) else []
    found = {name: sweep.get(name, NOT_TOLD) for name in SWEEP}
    found["threads"] = found["threads"] or 1
    for name, fact in IN_FORCE.items():
        found[name] = _all(sessions, "testbed", fact) or sweep.get(name, NOT_TOLD)
    roles = dict.fromkeys(role for session in sessions for role in section(session, "hosts"))
    found["hosts"] = len(roles) or sweep.get("hosts", NOT_TOLD) or 2
    for what in HOST:
        for role in roles:
            found[f"{role} {what}"] = _all(sessions, "hosts", role, what)
    found["shaper"] = _all(sessions, "testbed", "shaper")
    found["testbed"] = about.get("testbed", NOT_TOLD)
    return found


def _all(sessions: list[Any], *keys: str) -> Any:
    """What a run's sessions tell; of several values each."""
    values = list(
        dict.fromkeys(_plain(value) for session in sessions if (value := within(session, *keys)) is not None)
    )
    return values[0] if len(values) == 1 else " and ".join(map(str, values)) or None


def _of_model(told: dict[str, Any], sweep: dict[str, Any]) -> dict[str, Any]:
    weights = told.get("weights")
    found = {
        "input": told.get("input", sweep.get("input", "float32")),
        "dataset": within(told, "dataset", "name") or sweep.get("dataset", NOT_TOLD),
        "weights": weights if weights == "seeded" else told.get("weights_digest", NOT_TOLD),
        "graph": told.get("graph_digest", NOT_TOLD),
        "source": told.get("source_digest"),
    }
    if isinstance(points := told.get("points"), list):
        return found | {"points": [(within(it, "name"), within(it, "payload_bytes")) for it in points]}
    # Cut otherwise, the same number may be another point.
    return found | {name: sweep.get(name, NOT_TOLD) for name in ("granularity", "live_tensors", "fold")}


def _of_images(told: dict[str, Any], batch_size: int) -> dict[str, Any]:
    noise = within(told, "dataset", "name") == "synthetic"
    fed = section(told, "dataset", "inputs", str(batch_size))
    return {"images": fed.get("images" if noise else "digest", NOT_TOLD)}


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """`edge_to_server.delay_s` and its value. A name is none of a profile's content."""
    if not isinstance(value, dict):
        yield path or "content", value
        return
    for key, inner in value.items():
        if path or key != "name":
            yield from _leaves(inner, f"{path}.{key}" if path else key)


def _plain(value: Any) -> Any:
    """A value as it is, but of a list or mapping the digest."""
    if isinstance(value, list | dict):
        return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
    return value


def _differing(told: Iterable[Settings]) -> dict[str, list[str]]:
    """The names of settings with several values, by what they are of, in the order of preference for a label."""
    by_scope: dict[str, list[dict[str, Any]]] = {}
    for settings in told:
        for scope, named in settings.items():
            by_scope.setdefault(scope, []).append(named)
    return {
        scope: [
            name
            for name in dict.fromkeys(name for named in several for name in named)
            if len({named.get(name, NOT_TOLD) for named in several}) > 1
        ]
        for scope, several in by_scope.items()
    }


def _of(settings: Settings, differing: Mapping[str, list[str]]) -> Differing:
    return tuple(
        (scope, name, named.get(name, NOT_TOLD))
        for scope, named in settings.items()
        for name in differing[scope]
    )


def _unknown(run: str) -> Differing:
    return (("", "manifest.json", f"missing in {run}"),)


def _named_by_one(found: Mapping[Trials, Differing]) -> tuple[str, dict[Trials, str]]:
    """The first setting that alone tells all apart, and each kind of trials named after it; empty if none does."""
    for scope, name, _ in next(iter(found.values()), ()):
        values = {
            kind: next((v for s, n, v in settings if (s, n) == (scope, name)), NOT_TOLD)
            for kind, settings in found.items()
        }
        alone = {(kind[1:], value) for kind, value in values.items()}
        together = {(kind[1:], settings) for kind, settings in found.items()}
        labels = {kind: f"{name}={_words(value)}" for kind, value in values.items()}
        if len(alone) == len(together) and max(map(len, labels.values())) <= LABEL_LIMIT:
            return name, labels
    return "", {}


def _lettered(found: Mapping[Trials, Differing]) -> dict[Trials, str]:
    first: dict[tuple[Any, Differing], str] = {}
    like = {kind: first.setdefault((kind[1:], settings), kind[0]) for kind, settings in found.items()}
    letters = dict(zip(dict.fromkeys(like.values()), _letters(), strict=False))
    return {kind: letters[run] for kind, run in like.items()}


def _letters() -> Iterator[str]:
    """a, b, ..., z, aa, ab, ..."""
    yield from string.ascii_lowercase
    for first in _letters():
        yield from (first + second for second in string.ascii_lowercase)


def _notes(found: Mapping[Trials, Differing], labels: Mapping[Trials, str], naming: str) -> Iterator[str]:
    if not labels:
        return
    members = _grouped((label, kind[0]) for kind, label in labels.items())
    each = "; ".join(f"{label}: {some(runs)}" for label, runs in members.items())
    yield f"settings differ, so these runs are not pooled: {each}"
    told = [(setting, labels[kind]) for kind, settings in found.items() for setting in settings]
    for scope, name in dict.fromkeys(setting[:2] for setting, _ in told):
        if name == naming:
            continue  # its values are the setups' names
        having = _grouped((_words(value), label) for (s, n, value), label in told if (s, n) == (scope, name))
        values = "; ".join(f"{value} in {some(names)}" for value, names in having.items())
        yield f"{f'{scope}: ' if scope else ''}{name} is {values}"


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """What belongs to each first one, each once."""
    groups: dict[str, list[str]] = {}
    for one, other in pairs:
        members = groups.setdefault(one, [])
        if other not in members:
            members.append(other)
    return groups


def some(names: Sequence[str]) -> str:
    """The first three, and how many more."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _words(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if value is None:
        return "not set"
    text = str(value)
    return text[:8] if len(text) == 64 and set(text) <= set(string.hexdigits) else text

"""Which runs, and testbeds of a run, may be pooled: those that agree in all that changes what a trial measures.

Settings are looked at where they matter: a model's weights only for its own trials, a profile's content only for the
trials under it. Name, date, seed, and how many rounds do not matter: weights that are drawn from a seed, and noise for
images, take as long whatever the seed.
"""

from __future__ import annotations

import hashlib
import json
import string
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count, product
from typing import Any

import numpy as np
import pandas as pd

from analysis.engines import EAGER, told
from analysis.runs.manifest import leaves, section, sessions, within
from pareto.errors import UserError
from pareto.options import PHASES

SIMULATED = "simulated"
"""A manifest's key, and the setup of its trials: nothing of such a run was measured."""
KEY = ["run", "testbed", "model", "netem", "batch_size"]
"""What decides a trial's setup."""
NOT_RECORDED, NOT_SET = "not recorded", "not set"
OPTIONS = ("edge_cpu", "threads", "slow_start_after_idle", "shape_at", "quick")
HOST = ("torch", "cpu", "device", "cuda", "threads", "governor")
IN_FORCE = {"congestion": "congestion_control", "initial_window": "initial_window_segments"}
"""Options, and where the testbed reports what was in force: to ask for what is usual anyway changes nothing."""
LABEL_LIMIT = 24
TUNED = "tuned"
"""The allocator of hosts of which nothing else is said: freed memory is kept."""
_BED = "testbed="
_FACTORS = {"prefetch=": ("prefetch_asked", "0"), "allocator=": ("allocator", TUNED), "": ("engine", EAGER)}
"""What trials of one run may differ by: how its value is named in setups, its column and the usual value. Where any
trial has another one, setups say each trial's, in this order."""

Trials = tuple[str, str, str, str, int]
"""Values of `KEY`."""
Settings = dict[str, dict[str, Any]]
"""Values by their scope (nothing in particular, a model, a profile) and name."""
Differing = dict[tuple[str, str], Any]
"""Values by scope and name, of the settings that are not the same everywhere."""


@dataclass(frozen=True)
class Setups:
    """The setup of each kind of trial that has one, by the values of `KEY`; and what tells them apart, a line each.

    factors: the names of `_FACTORS` of which any trial has another value than the usual one.
    """

    labels: Mapping[Trials, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    factors: Sequence[str] = ()

    def of(self, rows: pd.DataFrame) -> pd.Series:
        """The setup of each row (trials, or stages of them); empty text where nothing differs."""
        plain = pd.Series("", index=rows.index, dtype="str")
        if not self.labels and not self.factors:
            return plain
        if "testbed" not in rows:  # a search has one
            rows = rows.assign(testbed=rows["run"].map({kind[0]: kind[1] for kind in self.labels}).fillna(""))
        groups = rows.groupby(KEY, sort=False)
        labels = [self.labels.get(key, "") for key in _kinds(rows)]
        setup = pd.Series(np.array(labels, dtype=object)[groups.ngroup()], index=rows.index, dtype="str")
        for name in self.factors:
            setup = setup.where(setup == "", setup + " ") + name + told(rows, *_FACTORS[name])
        return setup

    def with_factors(self, rows: pd.DataFrame) -> Setups:
        """The same, and the factors of which any of these rows has another value than the usual one."""
        unusual = {name for name, factor in _FACTORS.items() if (told(rows, *factor) != factor[1]).any()}
        return replace(self, factors=[name for name in _FACTORS if name in unusual.union(self.factors)])


def setups(manifests: Mapping[str, Mapping[str, Any]], trials: pd.DataFrame) -> Setups:
    """Tell the trials of several runs and testbeds apart by the runs' manifests (by the run's name; empty: there is
    none).

    A setup is called after the one setting that tells it from the others (`edge_cpu=0.25`), else by a letter: the same
    one for all trials that have the settings of the same earlier run. The testbeds of a single run have their own names
    (`testbed=lab1+lab3`). A run without a manifest is a setup of its own.
    Setups of simulated runs are called `simulated`, too. Raises UserError where these are joined with real ones.
    """
    kinds = _kinds(trials)
    is_apart = len(manifests) > 1 or (all(manifests.values()) and len({kind[1] for kind in kinds}) > 1)
    result = _setups(manifests, kinds) if is_apart else Setups()
    result = result.with_factors(trials)
    simulated = [run for run, manifest in manifests.items() if manifest.get(SIMULATED)]
    if not simulated:
        return result
    if real := [run for run in manifests if run not in simulated]:
        raise UserError(
            f"simulated runs ({some(simulated)}) are not joined with real ones ({some(real)}): report on them apart"
        )
    labels = {kind: f"{SIMULATED} {result.labels.get(kind, '')}".strip() for kind in kinds}
    return replace(result, labels=labels)


def factors_of(setup: str) -> tuple[str, int, str]:
    """The engine of trials that have this setup in a run by itself, which has no other settings to tell apart than its
    testbeds'; how many requests were to be decoded ahead; and the hosts' allocators."""
    parts = [part for part in setup.split() if part != SIMULATED and not part.startswith(_BED)]
    pairs = ((next(name for name in _FACTORS if part.startswith(name)), part) for part in parts)
    named = {name: part.removeprefix(name) for name, part in pairs}
    ahead, allocator, engine = (named.get(name, usual) for name, (_, usual) in _FACTORS.items())
    return engine, int(ahead), allocator


def without_factors(setups: pd.Series) -> pd.Series:
    """The setups without what they say of factors, at their ends: what hosts and settings have in common."""
    return setups.str.replace(r"(?:^| )(?:prefetch|allocator)=\S+", "", regex=True)


def with_factors_filled(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with the usual values of factors where a run of an earlier version did not write any."""
    return rows.assign(**{factor[0]: told(rows, *factor) for factor in _FACTORS.values()})


def _kinds(rows: pd.DataFrame) -> list[Trials]:
    return list(rows[KEY].drop_duplicates().itertuples(index=False, name=None))


def _setups(manifests: Mapping[str, Mapping[str, Any]], kinds: Sequence[Trials]) -> Setups:
    known = {kind: _settings(manifests[kind[0]], *kind[1:]) for kind in kinds if manifests[kind[0]]}
    of_one_run = len(manifests) == 1
    differing = _differing(known.values())
    apart: dict[Trials, Differing] = {}
    for kind in kinds:
        if kind not in known:
            apart[kind] = {("", "manifest.json"): f"missing in {kind[0]}"}
        elif settings := {
            (scope, name): named.get(name, NOT_RECORDED)
            for scope, named in known[kind].items()
            for name in differing[scope]
        }:
            apart[kind] = settings
    naming, labels = ("", _by_testbeds(apart)) if of_one_run else _named_by_one(apart)
    labels = labels or _lettered(apart)
    return Setups(labels, tuple(_notes(apart, labels, naming, "testbeds" if of_one_run else "runs")))


def _settings(manifest: Mapping[str, Any], testbed: str, model: str, netem: str, batch_size: int) -> Settings:
    """What decides what the trials of one model, network and batch size measure on a testbed."""
    of_model, sweep = section(manifest, "models", model), section(manifest, "sweep")
    images = section(of_model, "dataset", "inputs", str(batch_size))
    is_noise = within(of_model, "dataset", "name") == "synthetic"
    network = within(manifest, "networks", netem)
    network = network if isinstance(network, list) else netem.split("+")
    settings = {
        "": _of_run(manifest, sweep, of_testbed(manifest, testbed)),
        model: _of_model(of_model),
        f"{model} at batch size {batch_size}": {
            "images": images.get("images" if is_noise else "digest", NOT_RECORDED)
        },
        f"profile {netem}": {
            f"link {number} {path or 'content'}": value
            for number, profile in enumerate(network, 1)
            for path, value in leaves(within(manifest, "profiles", str(profile)) or NOT_RECORDED)
            if path != "name"
        },
        **{
            f"codec {name} of {model}": {
                f"{name} source": codec.get("source_digest"),
                f"{name} weights": codec.get("weights_digest"),
            }
            for name, codec in section(of_model, "own_codecs").items()
        },
    }
    return {
        scope: {name: _hashable(value) for name, value in named.items()} for scope, named in settings.items()
    }


def of_testbed(manifest: Mapping[str, Any], testbed: str) -> list[Any]:
    """What a run's sessions wrote on one testbed; of a run of an earlier version, which had one, all of it."""
    return [
        session for session in sessions(manifest) if within(session, "testbed_name") in (None, "", testbed)
    ]


def _of_run(manifest: Mapping[str, Any], sweep: Mapping[str, Any], each: Sequence[Any]) -> dict[str, Any]:
    settings = {name: sweep.get(name, NOT_RECORDED) for name in OPTIONS}
    settings |= {name: sweep.get(name) for name in PHASES}  # a version without them did as without them
    settings["threads"] = settings["threads"] or 1
    ahead = sweep.get("prefetch", 0)  # since it is a factor, each trial has its own
    settings["prefetch"] = ahead if isinstance(ahead, int) else 0
    for name, fact in IN_FORCE.items():
        settings[name] = _over(each, "testbed", fact) or sweep.get(name, NOT_RECORDED)
    roles = dict.fromkeys(role for session in each for role in section(session, "hosts"))
    settings["hosts"] = len(roles) or sweep.get("hosts", NOT_RECORDED) or 2
    settings |= {f"{role} {fact}": _over(each, "hosts", role, fact) for fact in HOST for role in roles}
    settings["shaper"] = _over(each, "testbed", "shaper")
    settings["testbed"] = manifest.get("testbed", NOT_RECORDED)
    return settings


def _over(each: Sequence[Any], *keys: str) -> Any:
    """What a run's sessions report under these keys; where they do not agree, all of it."""
    values = dict.fromkeys(
        _hashable(value) for session in each if (value := within(session, *keys)) is not None
    )
    return next(iter(values)) if len(values) == 1 else " and ".join(map(str, values)) or None


def _of_model(model: Mapping[str, Any]) -> dict[str, Any]:
    weights = model.get("weights")
    return {
        "input": model.get("input", NOT_RECORDED),
        "dataset": within(model, "dataset", "name") or NOT_RECORDED,
        "weights": weights if weights == "seeded" else model.get("weights_digest", NOT_RECORDED),
        "graph": model.get("graph_digest", NOT_RECORDED),
        "source": model.get("source_digest"),
        # Cut elsewhere, the same number is another point.
        "points": [(within(cut, "name"), within(cut, "payload_bytes")) for cut in model.get("points") or ()],
    }


def _hashable(value: Any) -> Any:
    """A value as it is, but of a list or mapping the digest."""
    if isinstance(value, list | dict):
        return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
    return value


def _differing(known: Iterable[Settings]) -> dict[str, list[str]]:
    """The names of settings with several values, by their scope, in the order of preference for a label."""
    by_scope: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for settings in known:
        for scope, named in settings.items():
            by_scope[scope].append(named)
    return {
        scope: [
            name
            for name in dict.fromkeys(chain.from_iterable(several))
            if len({named.get(name, NOT_RECORDED) for named in several}) > 1
        ]
        for scope, several in by_scope.items()
    }


def _named_by_one(apart: Mapping[Trials, Differing]) -> tuple[str, dict[Trials, str]]:
    """The first setting that alone tells all apart, and each kind of trials named after it; empty if none does."""
    together = {(kind[2:], tuple(settings.items())) for kind, settings in apart.items()}
    for key in next(iter(apart.values()), {}):
        values = {kind: settings.get(key, NOT_RECORDED) for kind, settings in apart.items()}
        alone = {(kind[2:], value) for kind, value in values.items()}
        labels = {kind: f"{key[1]}={_words(value)}" for kind, value in values.items()}
        if len(alone) == len(together) and max(map(len, labels.values())) <= LABEL_LIMIT:
            return key[1], labels
    return "", {}


def _by_testbeds(apart: Mapping[Trials, Differing]) -> dict[Trials, str]:
    """Each kind of trials of one run, named after the testbeds that are alike in it: if there are many, after one."""
    alike: dict[Any, dict[str, None]] = defaultdict(dict)
    for kind, settings in apart.items():
        alike[kind[2:], tuple(settings.items())][kind[1]] = None
    names = {key: ["_".join(name.split()) for name in sorted(beds)] for key, beds in alike.items()}
    texts = {key: "+".join(beds) for key, beds in names.items()}
    texts = {
        key: text if len(text) <= LABEL_LIMIT else f"{names[key][0]}+{len(names[key]) - 1}"
        for key, text in texts.items()
    }
    return {
        kind: f"{_BED}{texts[kind[2:], tuple(settings.items())].removesuffix('+0')}"
        for kind, settings in apart.items()
    }


def _lettered(apart: Mapping[Trials, Differing]) -> dict[Trials, str]:
    first: dict[Any, tuple[str, str]] = {}
    like = {
        kind: first.setdefault((kind[2:], tuple(settings.items())), kind[:2])
        for kind, settings in apart.items()
    }
    letters = dict(zip(dict.fromkeys(like.values()), _letters(), strict=False))
    return {kind: letters[run] for kind, run in like.items()}


def _letters() -> Iterator[str]:
    """a, b, ..., z, aa, ab, ..."""
    return ("".join(each) for n in count(1) for each in product(string.ascii_lowercase, repeat=n))


def _notes(
    apart: Mapping[Trials, Differing], labels: Mapping[Trials, str], naming: str, what: str
) -> Iterator[str]:
    """A line on what is not pooled, `runs` or `testbeds`, and one on each setting that differs."""
    if not labels:
        return
    members = grouped((label, kind[1] if what == "testbeds" else kind[0]) for kind, label in labels.items())
    each = "; ".join(f"{label}: {some(names)}" for label, names in members.items())
    yield f"settings differ, so these {what} are not pooled: {each}"
    for scope, name in dict.fromkeys(chain.from_iterable(apart.values())):
        if name == naming:
            continue  # its values are the setups' names
        having = grouped(
            (_words(settings[scope, name]), labels[kind])
            for kind, settings in apart.items()
            if (scope, name) in settings
        )
        values = "; ".join(f"{value} in {some(names)}" for value, names in having.items())
        yield f"{f'{scope}: ' if scope else ''}{name} is {values}"


def grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """What belongs to each first one, each once."""
    groups: dict[str, dict[str, None]] = defaultdict(dict)
    for one, other in pairs:
        groups[one][other] = None
    return {one: list(others) for one, others in groups.items()}


def some(names: Sequence[str]) -> str:
    """The first three names, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _words(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if value is None:
        return NOT_SET
    text = str(value)
    return text[:8] if len(text) == 64 and set(text) <= set(string.hexdigits) else text

"""The runs, and testbeds of a run, that may be pooled: they agree in all that `runs.comparable` looks at."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count, product
from typing import Any

import numpy as np
import pandas as pd

from pareto.analysis.naming import SIMULATED, some
from pareto.analysis.runs import comparable
from pareto.analysis.runs.comparable import NOT_RECORDED, Fact, Facts, grouped, title, words
from pareto.protocol.errors import UserError

KEY = ["run", "testbed", "model", "netem", "batch_size"]
"""The columns that decide a trial's setup."""
LABEL_LIMIT = 24

Trials = tuple[str, str, str, str, int]
"""Values of `KEY`."""


@dataclass(frozen=True)
class Setups:
    """The setup of each kind of trial that has one, by the values of `KEY`; and what tells them apart, a line each."""

    labels: Mapping[Trials, str] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def on(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The rows (trials, or stages of them) with `setup`, empty text where nothing differs."""
        setup = pd.Series("", index=rows.index, dtype="str")
        if self.labels:
            keyed = rows
            if "testbed" not in rows:  # a search has one
                beds = {kind[0]: kind[1] for kind in self.labels}
                keyed = rows.assign(testbed=rows["run"].map(beds).fillna(""))
            labels = np.array([self.labels.get(kind, "") for kind in _kinds(keyed)], dtype=object)
            setup = pd.Series(labels[keyed.groupby(KEY, sort=False).ngroup()], index=rows.index, dtype="str")
        return rows.assign(setup=setup)


def setups(manifests: Mapping[str, Mapping[str, Any]], trials: pd.DataFrame) -> Setups:
    """Tell the trials of several runs and testbeds apart by the runs' manifests (by the run's name; empty: there is
    none).

    A setup is called after the one setting that tells it from the others (`edge_cpu=0.25`), those of a single run after
    their testbeds (`testbed=lab1+lab3`); where that does not do, by a letter: the same one for all trials that have the
    settings of the same earlier run. A run without a manifest is a setup of its own.
    Setups of simulated runs are called `simulated`, too. Raises UserError where these are joined with real ones.
    """
    kinds = _kinds(trials)
    is_apart = len(manifests) > 1 or (all(manifests.values()) and len({kind[1] for kind in kinds}) > 1)
    result = _setups(manifests, kinds) if is_apart else Setups()
    simulated = [run for run, manifest in manifests.items() if manifest.get(SIMULATED)]
    real = [run for run in manifests if run not in simulated]
    if simulated and real:
        raise UserError(
            f"simulated runs ({some(simulated)}) are not joined with real ones ({some(real)}): report on them apart"
        )
    labels = {kind: f"{SIMULATED} {result.labels.get(kind, '')}".strip() for kind in kinds}
    return replace(result, labels=labels) if simulated else result


def _kinds(rows: pd.DataFrame) -> list[Trials]:
    return list(rows[KEY].drop_duplicates().itertuples(index=False, name=None))


def _setups(manifests: Mapping[str, Mapping[str, Any]], kinds: Sequence[Trials]) -> Setups:
    known = {
        kind: comparable.comparable(manifests[kind[0]], *kind[1:]) for kind in kinds if manifests[kind[0]]
    }
    differing = comparable.differing(known.values())
    apart: dict[Trials, Facts] = {}
    for kind in kinds:
        facts = known.get(kind, {("", "manifest.json"): f"missing in {kind[0]}"})
        if own := {fact: facts[fact] for fact in (differing if kind in known else facts) if fact in facts}:
            apart[kind] = own
    if not apart:
        return Setups()
    of_one_run = len(manifests) == 1
    naming, labels = _labels(apart, of_one_run=of_one_run)
    members = grouped((label, kind[1] if of_one_run else kind[0]) for kind, label in labels.items())
    each = "; ".join(f"{label}: {some(names)}" for label, names in members.items())
    others = [fact for fact in dict.fromkeys(chain.from_iterable(apart.values())) if fact != naming]
    notes = comparable.told(others, [(labels[kind], facts) for kind, facts in apart.items()])
    what = "testbeds" if of_one_run else "runs"
    return Setups(labels, (f"settings differ, so these {what} are not pooled: {each}", *notes))


def _labels(apart: Mapping[Trials, Facts], *, of_one_run: bool) -> tuple[Fact | None, dict[Trials, str]]:
    """The setup of each kind of trials, and the fact that setups are named after, if one tells all apart."""
    alike = {kind: (kind[2:], *facts.items()) for kind, facts in apart.items()}
    choices: dict[Fact | None, dict[Trials, str]] = {}
    if of_one_run:
        beds = grouped((same, kind[1]) for kind, same in alike.items())
        choices[None] = {kind: f"testbed={'+'.join(sorted(beds[same]))}" for kind, same in alike.items()}
    else:
        for fact in next(iter(apart.values())):
            values = {kind: words(facts.get(fact, NOT_RECORDED)) for kind, facts in apart.items()}
            choices[fact] = {kind: f"{title(fact)}={value}" for kind, value in values.items()}
    for naming, labels in choices.items():
        alone = {(kind[2:], label) for kind, label in labels.items()}
        if len(alone) == len(set(alike.values())) and max(map(len, labels.values())) <= LABEL_LIMIT:
            return naming, labels
    first: dict[Any, tuple[str, str]] = {}
    earliest = {kind: first.setdefault(same, kind[:2]) for kind, same in alike.items()}
    # a, b, ..., z, aa, ab, ...
    letters = ("".join(each) for n in count(1) for each in product(string.ascii_lowercase, repeat=n))
    letter = dict(zip(dict.fromkeys(earliest.values()), letters, strict=False))
    return None, {kind: letter[run] for kind, run in earliest.items()}

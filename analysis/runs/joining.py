"""Several runs as one data set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from analysis.findings import Run
from analysis.runs import stages, trials
from analysis.runs.folders import Runs, folders
from analysis.runs.manifest import within
from analysis.runs.setups import SIMULATED, some

VERSIONS = {
    "pareto": ("pareto",),
    "torch on the driver": ("driver", "packages", "torch"),
    "the driver": ("driver", "hostname"),
}
"""Where they are in a manifest, or in one of its sessions."""


@dataclass(frozen=True)
class Joined:
    """Runs, their trials and stages as `analysis.runs` reads them, and what a reader must know, a line each."""

    runs: list[Run]
    trials: pd.DataFrame
    stages: pd.DataFrame
    notes: list[str]


def joined(runs: Runs) -> Joined:
    """Join runs. Those with other settings are told apart by the column `setup` (`analysis.runs.setups`).

    Notes: what the setups differ in, what of the files does not count, and which versions the runs were made with, if
    with several. Raises
    `UserError` for what is no run, is malformed, or is the same run twice, under whatever path.
    """
    where = folders(runs)
    read = trials.told_apart(where)
    found = [Run(folder, manifest) for folder, manifest in read.manifests.items()]
    notes = [*read.notes, *_simulated(found), *_versions(found)]
    return Joined(found, read.trials, stages.of(where, read.setups), notes)


def _simulated(runs: Sequence[Run]) -> Iterator[str]:
    if any(run.manifest.get(SIMULATED) for run in runs):
        yield f"{SIMULATED}: nothing of this was measured; compute times are stated, links are arithmetic"


def _versions(runs: Sequence[Run]) -> Iterator[str]:
    for what, keys in VERSIONS.items():
        having: dict[str, list[str]] = {}
        for run in runs:
            sessions = run.manifest.get("sessions")
            tellers = [run.manifest, *(sessions if isinstance(sessions, list) else [])]
            told = {str(value) for teller in tellers if (value := within(teller, *keys)) is not None}
            for value in sorted(told):
                having.setdefault(value, []).append(run.folder.name)
        if len(having) > 1:
            each = "; ".join(f"{value} in {some(names)}" for value, names in having.items())
            yield f"{what} differs between runs: {each}"

"""What an analysis found: everything that tables, figures and the page are made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from analysis.runs.load import Run as Run
from analysis.runs.manifest import within
from analysis.runs.setups import SIMULATED


@dataclass
class Findings:
    """Frames by the functions that make them; sentences of one line each.

    answers: where to cut, and from what condition on elsewhere. warnings: what makes figures unsure, with advice.
    verdicts: backends in pairs. notes: what could not be shown. files: what was written.
    """

    runs: list[Run]
    trials: pd.DataFrame
    stages: pd.DataFrame
    links: pd.DataFrame
    front: pd.DataFrame
    hypervolumes: pd.DataFrame
    attainment: pd.DataFrame
    overhead: pd.DataFrame
    paired: pd.DataFrame
    drifts: pd.DataFrame
    objectives: tuple[str, ...]
    where: str = ""
    answers: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    verdicts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)

    @property
    def on_one_machine(self) -> bool:
        """Whether the hosts of a run are parts of the machine that the harness runs on."""
        return any(within(run.manifest, "sweep", "testbed") == "local" for run in self.runs)

    @property
    def simulated(self) -> bool:
        """Whether nothing of this was measured. Simulated runs are never joined with real ones."""
        return any(run.manifest.get(SIMULATED) for run in self.runs)

"""What each host did in each trial: `stages.csv` as a typed frame."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from analysis.runs import reading, trials
from analysis.runs.folders import Runs, folders
from analysis.runs.setups import Setups
from analysis.schema import STAGES

log = logging.getLogger(__name__)


def stages(runs: Runs) -> pd.DataFrame:
    """One row for each host that took part in a trial, in the order of the files; none for a run older than the file.

    Columns are `analysis.schema.STAGE_COLUMNS` and `setup`, typed and named as in `analysis.runs.trials.load`.
    Raises `UserError` as that does.
    """
    where = folders(runs)
    return of(where, trials.told_apart(where).setups if len(where) > 1 else Setups())


def of(where: Sequence[Path], setups: Setups) -> pd.DataFrame:
    """The stages of these folders, their trials' setups being known."""
    rows, _, notes = trials.frame([folder for folder in where if reading.is_there(folder, STAGES)], STAGES)
    for note in notes:
        log.warning("%s", note)
    rows["setup"] = setups.of(rows)
    return rows

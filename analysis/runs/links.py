"""The probes of run folders: `link.csv` as a typed frame."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from analysis.runs import reading
from analysis.schema import LINKS, TEXT

ONE_LINK = "edge-server"
"""The link of two hosts, and of a run that is older than the column."""


def load(runs: Sequence[Path]) -> pd.DataFrame:
    """The probes of every link of these run folders with their verdicts, one row a probe, in the order of the files.

    Columns are `run`, the folder's name, and `analysis.schema.LINK_COLUMNS`: text (empty text where nothing was
    written), and floats for what was asked and measured (NaN = not asked, not measured, nor by a run older than the
    column). A run without the file has no rows; a last line that a killed writer left unfinished is left out.

    Raises `UserError` if a file is malformed.
    """
    parts = [
        reading.read(run, LINKS)[0].to_pandas().assign(run=run.resolve().name)
        for run in runs
        if reading.is_there(run, LINKS)
    ]
    columns = ["run", *LINKS.columns]
    if not parts:
        types = {column: "str" if column in TEXT else "float64" for column in columns}
        return pd.DataFrame(columns=columns).astype(types)
    frame = pd.concat(parts, ignore_index=True)[columns]
    return frame.assign(link=frame["link"].mask(frame["link"] == "", ONE_LINK))

"""The energy of communication: what a byte that crosses costs the edge beyond its stage.

Above idle the edge is taken to draw for an image (its power while it computes) x (the seconds of its stage) + (the
joules of a byte) x (the bytes that it sends, after the codec, whose work is communication too). The power is that of
the point where nothing crosses, in the same round, and taken to be the same for all units: one that draws more shows
as communication. Nothing is known of the server, to which something crosses wherever it computes.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from pareto.analysis.runs.points import CELL, CONDITION, NONE, ROUND, STANDS_FOR, in_every_codec, pooled
from pareto.analysis.runs.standing import stands
from pareto.analysis.statistics.significance import median_intervals, medians, padded

COLUMNS = [f"crossing_{end}j_per_byte" for end in ("", "low_", "high_")]
_OF_COMPUTING = ["edge_active_energy_j", "edge_s", "decode_s"]
UNKNOWN = (
    "it is not known what a byte that crosses costs the edge: that needs its idle power, and the energy of the whole "
    "model on it in the same rounds"
)
_NEEDED = [*CELL, *ROUND, "status", STANDS_FOR, *_OF_COMPUTING, "wire_bytes", "payload_bytes"]


def with_crossing(front: pd.DataFrame, trials: pd.DataFrame) -> pd.DataFrame:
    """The rows of a front with `COLUMNS`: J per byte, the median over rounds, and from 6 rounds on its 95 % interval.
    Less than 0 is noise, or units that draw less than the mean."""
    known = trials.loc[stands(trials) & trials["edge_active_energy_j"].notna()]
    known = pooled(in_every_codec(known.filter([*dict.fromkeys(_NEEDED)])))
    same = [*dict.fromkeys([*CONDITION, *ROUND])]
    alone = known.loc[known["backend"] == NONE, [*same, *_OF_COMPUTING]]
    rows = known.merge(alone, on=same, suffixes=("", "_alone"))
    files_s = rows["decode_s_alone"].fillna(0)  # to make pixels of a request's files: as long at each point
    share = (rows["edge_s"] + files_s) / (rows["edge_s_alone"] + files_s)
    beyond_j = rows["edge_active_energy_j"] - share * rows["edge_active_energy_j_alone"]
    sent = rows["wire_bytes"].fillna(rows["payload_bytes"]) / rows["batch_size"]
    rows = rows[CELL].assign(per_byte=beyond_j / sent.where(sent > 0)).dropna(subset="per_byte")
    number = rows.groupby(CELL, dropna=False, observed=True).ngroup()
    table = padded(rows["per_byte"].to_numpy(), number.to_numpy(), number.nunique())
    made = dict(zip(COLUMNS, (medians(table), *median_intervals(table)), strict=True))
    found = rows[CELL].groupby(number).first().assign(**made)
    return front.assign(**dict.fromkeys(COLUMNS, np.nan)) if found.empty else front.merge(found, "left", CELL)


def lacks(front: pd.DataFrame) -> bool:
    """Whether no point has `COLUMNS` though the edge's energy is known."""
    return bool(front["edge_energy_j"].notna().any() and front[COLUMNS[0]].isna().all())

"""How busy each step of the chain is: the stages on the hosts, and the links between them."""

from __future__ import annotations

from itertools import pairwise

import pandas as pd

from analysis.keys import CELL, TRIAL
from analysis.neutral import pooled
from analysis.points import hosts

FIGURES = ["compute_s", "utilization", "bubble_s", "payload_bytes", "transfer_s", "return_s"]
STEPS = [*CELL, "place", "step", "share", "idle_s"]


def medians(stages: pd.DataFrame, trials: pd.DataFrame) -> pd.DataFrame:
    """One row for each cell and host that took part in it: medians of `FIGURES` over the trials that are `ok`.

    Takes the frames of `analysis.runs.trials`. Keyed by `analysis.fronts.front.CELL`, `position` and `host`.
    """
    ok = pooled(stages.merge(trials.loc[trials["status"] == "ok", TRIAL], on=TRIAL), trials)
    return ok.groupby([*CELL, "position", "host"], dropna=False)[FIGURES].median().reset_index()


def stage_times(rows: pd.DataFrame, stages: pd.DataFrame) -> pd.DataFrame:
    """Rows of the front with a column for each host between edge and server: `middle1_s`, ..., its compute time."""
    between = stages[stages["host"].str.startswith("middle")]
    if between.empty:
        return rows
    times: pd.DataFrame = between.pivot_table(index=CELL, columns="host", values="compute_s", dropna=False)
    return rows.merge(times.add_suffix("_s").reset_index(), how="left", on=CELL)


def steps(rows: pd.DataFrame, stages: pd.DataFrame) -> pd.DataFrame:
    """Every step of some rows of the front, from `medians`: one row for each cell and step, in the chain's order.

    `step` is named as in the column `bound_by`: a host, or a link and the way on it. `share`: of the time in which
    it is busy with many requests in flight; a stage's as measured, a link's from what the profile's rate needs for
    one request. `idle_s`: a stage's idle time between two requests, the bubble; NaN for links.
    """
    found = stages.merge(rows[[*CELL, "throughput_ips"]], on=CELL).to_dict("records")
    table = []
    for row in found:
        cell = {name: row[name] for name in CELL}
        chain, place = hosts(row["point"]), 3 * row["position"]
        table.append(
            cell
            | {"place": place, "step": row["host"], "share": row["utilization"], "idle_s": row["bubble_s"]}
        )
        links = dict(pairwise(chain))
        if row["host"] in links and row["transfer_s"] >= 0:
            requests_per_s = row["throughput_ips"] / row["batch_size"]
            for way, occupied_s in (("out", row["transfer_s"]), ("back", row["return_s"])):
                place += 1
                step = f"{row['host']}-{links[row['host']]} {way}"
                table.append(cell | {"place": place, "step": step, "share": occupied_s * requests_per_s})
    return pd.DataFrame(table, columns=STEPS)

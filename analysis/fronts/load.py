"""Points under requests that arrive by themselves: what these took, how many missed, and whether an SLO holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from pareto.analysis import naming, schema
from pareto.analysis.naming import condition_title, count, some
from pareto.analysis.runs.points import CELL, CONDITION, sorted_cells
from pareto.analysis.runs.requests import load_latencies_s, request_files
from pareto.analysis.runs.treatments import backend_of
from pareto.analysis.schema import USUAL, cell_name
from pareto.analysis.statistics.doubt import Doubt
from pareto.analysis.statistics.samples import Floats
from pareto.remote.link.units import digits_of, percent
from pareto.sweep import load
from pareto.sweep.load import NO, OPEN, UNSTABLE, YES

SURE = 0.95
"""The confidence of each verdict, on its side."""
MEDIANS = ["offered_ips", "completed_ips", "goodput_ips"]
QUANTILES = {"load_latency_s": 0.5, "load_latency_p95_s": 0.95, "load_latency_p99_s": 0.99}
SUMS = [
    *("load_requests", "dropped_requests", "missed_requests", "independent_requests"),
    *("rounds", "unstable_rounds"),
]
COLUMNS = [
    *CELL,
    *("slo", "point_name", *MEDIANS, *QUANTILES, *SUMS),
    *("missed_share", "missed_low", "missed_high", "holds"),
]
NEEDED = [
    *("offered_ips", "completed_ips", "stability", "slo"),
    *("load_requests", "missed_requests", "independent_requests"),
]
"""The columns of trials by which the highest rates are known."""
_BY = [*CONDITION, "slo"]
SUSTAINED = [*CELL, "slo", "point_name", "sustained_ips", "refused_ips", "closed_ips", "rounds"]


def loads(trials: pd.DataFrame, folders: Sequence[Path] = ()) -> pd.DataFrame:
    """One row for each cell with a load that has figures that can be trusted; columns `COLUMNS`.

    Rates are medians over rounds; requests, those that were dropped or missed, and quantiles of the latency are of all
    rounds together. A quantile is empty where the requests are too few, or were dropped. folders: of the runs.
    missed_low, missed_high: the ends of the share's interval, each with a confidence of 95 % (Clopper and Pearson, "The
    use of confidence or fiducial limits", Biometrika 26, 1934), of as many requests as are worth independent ones.
    holds: `yes` if fewer missed than the SLO allows, `no` if more did or the backlog grew in most rounds, `open` if the
    requests do not tell.
    """
    if "load_requests" not in trials:
        return pd.DataFrame(columns=COLUMNS)
    told = trials[~trials["load"].isin([USUAL["load"], *load.FOUND]) & trials["completed_ips"].notna()]
    if told.empty:
        return pd.DataFrame(columns=COLUMNS)
    files = request_files(folders)
    where = [files.get(cell_name(row), {}).get((row["run"], row["round"])) for row in told.to_dict("records")]
    # A copy: each column has been a block of its own since it was read, and pandas warns whoever adds one to so many.
    told = told.copy().assign(
        backend=backend_of(told), unstable_rounds=told["stability"].eq(UNSTABLE), rounds=1, file=where
    )
    by = told.groupby([*CELL, "slo"], dropna=False, observed=True)
    rows = by[MEDIANS].median().join(by[SUMS].sum()).join(by["point_name"].first()).reset_index()
    each_s = [np.concatenate([*map(load_latencies_s, of.dropna()), []]) for _, of in by["file"]]
    for name, q in QUANTILES.items():
        # One of the values, so that none is made of a request that was dropped.
        made = [np.quantile(of, q, method="higher") if len(of) >= load.NEEDED[q] else np.nan for of in each_s]
        rows[name] = np.where(np.isfinite(made), made, np.nan)
    grew = 2 * rows["unstable_rounds"] > rows["rounds"]
    rows = sorted_cells(_judged(rows, grew).reindex(columns=COLUMNS))
    # The loads of what is the same but for them by their rates: as texts 5/s would come after 15/s.
    apart = [[name for name in CONDITION if name != "load"], CONDITION]
    same, own = (rows.groupby([*names, "slo"], dropna=False, observed=True) for names in apart)
    keys = pd.DataFrame({"same": same.ngroup(), "rate": own["offered_ips"].transform("median")})
    return rows.loc[keys.sort_values(["same", "rate"], kind="stable").index].reset_index(drop=True)


def tried(trials: pd.DataFrame) -> pd.DataFrame:
    """A row for each trial of a cell whose highest rate is looked for: which cell it is, and in requests a second the
    rate, and what the closed loop did; holds is empty where the trial tells nothing.
    """
    found = trials[trials["load"].isin(load.FOUND)] if "load_requests" in trials else trials[:0]
    if found.empty:
        return pd.DataFrame(columns=[*schema.CELL, "rate", "holds", "closed"])
    found = found.sort_values("round", kind="stable").copy()  # as in `loads`
    found = _judged(found, found["stability"].astype("str").eq(UNSTABLE))
    return found[[*schema.CELL]].assign(
        rate=found["offered_ips"] / found["batch_size"],
        holds=found["holds"].where(found["completed_ips"].notna(), ""),
        closed=found["throughput_ips"] / found["batch_size"],
    )


def sustained(trials: pd.DataFrame) -> pd.DataFrame:
    """One row for each cell whose highest rate was looked for; columns `SUSTAINED`.

    sustained_ips: the highest rate at which the SLO held, 0 where it held at none; refused_ips: the lowest above
    it at which it did not, or was not sure to; empty where none was refused. closed_ips: of the closed loop.
    """
    if (each := tried(trials)).empty:
        return pd.DataFrame(columns=SUSTAINED)
    about = trials.loc[each.index, ["setup", "point_name", "slo", "payload_bytes"]]
    rows = each.join(about)
    rows["backend"] = backend_of(rows)
    images = rows["rate"] * rows["batch_size"]
    rows["refused"] = images.where(rows["holds"].isin([NO, OPEN]))
    lowest = rows.groupby(CELL, observed=True)["refused"].transform("min").fillna(np.inf)
    rows["held"] = images.where(rows["holds"].eq(YES) & images.lt(lowest))
    by = rows.groupby(CELL, observed=True)
    made = by.agg(
        sustained_ips=("held", "max"),
        refused_ips=("refused", "min"),
        closed=("closed", "median"),
        rounds=("rate", "size"),
        point_name=("point_name", "first"),
        slo=("slo", "first"),
    ).reset_index()
    made["closed_ips"] = made["closed"] * made["batch_size"]
    made["sustained_ips"] = made["sustained_ips"].fillna(0.0)
    return sorted_cells(made.reindex(columns=SUSTAINED))


def _judged(rows: pd.DataFrame, grew: pd.Series) -> pd.DataFrame:
    """The rows with the share that missed, the ends of its interval, and whether the SLO holds. grew: where the backlog
    did, so that it would not for longer."""
    texts = rows["slo"].astype("str").where(rows["slo"].notna(), "")
    allowed = np.array([load.slo(text).share if text else np.nan for text in texts], dtype=float)
    share = rows["missed_requests"] / rows["load_requests"].where(texts.ne(""))
    low, high = share_ends(*np.array([share, rows["independent_requests"]], dtype=float))
    holds = np.select([np.isnan(allowed), grew, high <= allowed, low > allowed], ["", NO, YES, NO], OPEN)
    return rows.assign(missed_share=share, missed_low=low, missed_high=high, holds=holds)


def share_ends(share: Floats, number: Floats) -> tuple[Floats, Floats]:
    """The lower and the upper end of a share of so many independent requests, each with a confidence of `SURE`."""
    from scipy.special import betaincinv

    hits = share * number
    low = np.where(hits > 0, betaincinv(np.maximum(hits, 1e-9), number - hits + 1, 1 - SURE), 0.0)
    high = np.where(hits < number, betaincinv(hits + 1, np.maximum(number - hits, 1e-9), SURE), 1.0)
    unknown = np.isnan(share) | np.isnan(number)
    return np.where(unknown, np.nan, low), np.where(unknown, np.nan, high)


def sentences(rows: pd.DataFrame) -> Iterator[str]:
    """A line for each condition with an SLO: at which points it holds, and how many the requests leave open."""
    for (*_, slo), of in rows[rows["holds"] != ""].groupby(_BY, dropna=False, observed=True, sort=False):
        points, holding = count(len(of), "point"), of[of["holds"] == YES].sort_values("load_latency_s")
        if len(holding):
            where = some([naming.cell_name(row) for row in holding.to_dict("records")])
            text = f"{slo} holds at {where}, of {points}"
        else:
            least = of.loc[of["missed_share"].idxmin()]
            missed = f"fewest miss at {naming.cell_name(least)}, {percent(least['missed_share'])}"
            text = f"{slo} is sure to hold at none of {points}; {missed}"
        if left := int(of["holds"].eq(OPEN).sum()):
            text += (
                f"; at {count(left, 'point')} the requests do not tell: more rounds (--trials), or --phase"
            )
        yield f"{condition_title(of.iloc[0])}: {text}"


def rate_sentences(rows: pd.DataFrame) -> Iterator[str]:
    """A line for each condition whose highest rates were looked for: the highest of all, and where."""
    for (*_, slo), of in rows.groupby(_BY, dropna=False, observed=True, sort=False):
        best, points = of.loc[of["sustained_ips"].idxmax()], count(len(of), "point")
        text = f"{condition_title(best)}: {slo} holds"
        if best["sustained_ips"]:
            refused, most = best["refused_ips"], digits_of(best["sustained_ips"], 3)
            then = f"not at {digits_of(refused, 3)}" if pd.notna(refused) else "and none was refused"
            where = f"{naming.cell_name(best)}, the most of {points}"
            yield f"{text} up to {most} images/s, {then}, at {where}"
        else:
            yield f"{text} at no rate that was tried, at none of {points}"


def doubts(trials: pd.DataFrame) -> Iterator[Doubt]:
    """Yield that trials have no figures under load, and that a backlog grew."""
    if "load_fault" not in trials:
        return
    late = trials[trials["load_fault"].str.startswith(load.LATE, na=False)]
    if len(late):
        head = f"{count(len(late), 'trial')} without figures under load"
        cure = "let the edge have a core that is free, or offer less (--load)"
        yield Doubt(head, f"requests arrived late: at most {1e3 * late['lateness_s'].max():.3g} ms", (cure,))
    growing = int(trials["stability"].eq(UNSTABLE).sum())
    if growing:
        yield Doubt(
            f"the backlog grew in {count(growing, 'trial')}",
            "so their latency is as long as the phase lets it become: those points are beyond their capacity",
        )

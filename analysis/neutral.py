"""Where nothing crosses a link all backends do the same: one point, of no backend, measured under each as a control."""

from __future__ import annotations

import pandas as pd

from analysis.keys import TRIAL

NONE = ""
"""The backend of such a point, and the place of one in tables that have it."""
_OF_POINT = ["model", "setup", "point"]
_ONE = [*(name for name in TRIAL if name != "backend"), "position", "host"]
"""What is the same for all that one round says of a point (of a host at that point, in the frame of the stages)."""
_SUMS = ("latency_requests", "throughput_requests")


def pooled(rows: pd.DataFrame, trials: pd.DataFrame | None = None) -> pd.DataFrame:
    """The trials with one for each round of a point where nothing crosses; its backend is empty text.

    Each of its figures is the mean of what that round's valid trials have, under whatever backend: they are the same
    treatment, so that the mean errs least. Where none is valid the first stands for all. `controls` is how many trials
    it is made of, `controls_valid` how many of these are valid; both are empty for trials that stay as they are.

    rows: trials, or their stages; trials: those of the stages, which tell where nothing crosses (payload_bytes is 0).
    What is pooled stays as it is.
    """
    is_control = controls(rows, trials)
    if not is_control.any():
        return rows
    rows, is_control = rows.reset_index(drop=True), is_control.to_numpy()
    kept = rows[is_control]
    counted = kept.assign(is_ok=kept["status"] == "ok") if "status" in kept else None
    round_ = kept.groupby(
        [name for name in _ONE if name in kept], dropna=False, observed=True, sort=False
    ).ngroup()
    if "status" in kept:
        is_ok = kept["status"] == "ok"
        kept = kept[is_ok | ~is_ok.groupby(round_).transform("any")]
    groups = kept.groupby(round_.loc[kept.index], sort=False)
    one = groups.head(1).copy()
    figures = [name for name in kept.select_dtypes("number") if name not in _ONE]
    sums = [name for name in figures if name in _SUMS]
    in_order = round_.loc[one.index]
    one[figures] = groups[figures].mean().loc[in_order].to_numpy()
    one[sums] = groups[sums].sum(min_count=1).loc[in_order].to_numpy()
    if isinstance(rows["backend"].dtype, pd.CategoricalDtype):
        rows["backend"] = rows["backend"].astype("str")
    one["backend"] = NONE
    one = one.astype(rows.dtypes)
    if counted is not None:
        numbers = counted.groupby(round_, sort=False)["is_ok"].agg(["size", "sum"]).loc[in_order]
        one["controls"], one["controls_valid"] = numbers["size"].to_numpy(), numbers["sum"].to_numpy()
    found: pd.DataFrame = pd.concat([rows[~is_control], one]).sort_index()
    return found.reset_index(drop=True)


def controls(rows: pd.DataFrame, trials: pd.DataFrame | None = None) -> pd.Series:
    """Which rows are of a point where nothing crosses, and were measured under a backend; arguments as of `pooled`."""
    of = rows if trials is None else trials
    nothing = pd.Series(False, index=rows.index)
    if "payload_bytes" not in of:
        return nothing
    keys = [name for name in _OF_POINT if name in rows and name in of]
    points = of.loc[of["payload_bytes"] == 0, keys].astype("str").drop_duplicates()
    if points.empty:
        return nothing
    # First by the point alone, which leaves few: half a million rows are told apart by several texts.
    near = rows["point"].isin(points["point"]) & (rows["backend"] != NONE)
    own = pd.MultiIndex.from_frame(rows.loc[near, keys].astype("str"))
    nothing[near] = own.isin(pd.MultiIndex.from_frame(points))
    return nothing

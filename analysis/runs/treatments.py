"""Treatments: what is the same one under several names, and what was measured once and counts for several.

Where nothing crosses a link all backends and codecs do the same: that is one point of no backend, measured under each
as a control, and a row of every codec.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from pareto.analysis.runs.points import BUT_CODEC, EAGER, NO_CODEC, NONE, TRIAL, by_role, cuts, hosts, of_role
from pareto.analysis.runs.standing import stands, statuses
from pareto.analysis.schema import BETWEEN, STANDS

STANDS_FOR, AT_WORK = "stands_for", "codec_at_work"
"""Columns: the codecs that a trial's cell stands for; in a row of one of them, the codec that was measured."""
_OF_POINT = ["model", "setup", "point"]
_OF_ROUND = [*(name for name in TRIAL if name != "backend"), "testbed", "position", "host"]
"""The columns that a point's rows of one round share (those of a host there, in the frame of the stages)."""
_SUMS = ("latency_requests", "throughput_requests")


def pooled(rows: pd.DataFrame, trials: pd.DataFrame | None = None) -> pd.DataFrame:
    """The trials with one for each round of a point where nothing crosses, of the backend `NONE`.

    Each of its figures is the mean of what that round's trials have that can be trusted, under whatever backend: they
    are the same treatment, so the mean errs least. Where none is valid the first stands for all. `controls` is how many
    trials it is made of, `controls_valid` how many of these are valid; both are empty for trials that stay as they are,
    as do those that are pooled already.

    rows: trials, or their stages; trials: those of the stages, which tell where nothing crosses (payload_bytes is 0).
    """
    is_control = nothing_crosses(rows, trials) & (rows["backend"] != NONE)
    if not is_control.any():
        return rows
    rows, is_control = rows.reset_index(drop=True), is_control.to_numpy()
    kept = rows[is_control]
    shared = [name for name in _OF_ROUND if name in kept]
    round_ = kept.groupby(shared, dropna=False, observed=True, sort=False).ngroup()
    is_ok = stands(kept) if "status" in kept else pd.Series(True, index=kept.index)
    counted = round_[is_ok | ~is_ok.groupby(round_).transform("any")]
    first = counted[~counted.duplicated()]
    # A run leaves most columns empty, and so they stay.
    numbers = kept.select_dtypes("number").dropna(axis=1, how="all")
    figures = [name for name in numbers if name not in _OF_ROUND]
    sums = [name for name in _SUMS if name in figures]
    groups = kept.loc[counted.index, figures].groupby(counted, sort=False)
    means = groups.mean().loc[first]
    means[sums] = groups[sums].sum(min_count=1).loc[first]
    made = {name: means[name].to_numpy() for name in figures} | {"backend": NONE}
    if "status" in kept:
        valid = is_ok.groupby(round_).agg(["size", "sum"]).loc[first]
        made["controls"], made["controls_valid"] = valid.to_numpy().T
        has = [stands(kept, figure).groupby(round_).any().loc[first] for figure in STANDS]
        made["status"] = np.where(valid["sum"] > 0, statuses(*has), kept.loc[first.index, "status"])
    # Written into place: joining two tables of a hundred columns takes three times as long.
    stays = ~is_control
    stays[first.index] = True
    one = rows[stays].reset_index(drop=True)
    columns = {}
    for name, values in made.items():
        old = one[name] if name in one else pd.Series(np.nan, index=one.index)
        dtype = "str" if isinstance(old.dtype, pd.CategoricalDtype) else old.dtype
        of_all = old.astype(dtype).to_numpy(copy=True)
        of_all[is_control[stays]] = values
        columns[name] = pd.Series(of_all, dtype=dtype)
    return one.assign(**columns)


def nothing_crosses(rows: pd.DataFrame, trials: pd.DataFrame | None = None) -> pd.Series:
    """Whether nothing crosses at each row's point; arguments as of `pooled`."""
    of = rows if trials is None else trials
    nothing = pd.Series(False, index=rows.index)
    is_empty = of.get("payload_bytes", pd.Series(np.nan, index=of.index)) == 0
    # First by the point alone, which leaves few: half a million rows are told apart by several texts.
    near = rows["point"].isin(of.loc[is_empty, "point"])
    keys = [name for name in _OF_POINT if name in rows and name in of]
    points = pd.MultiIndex.from_frame(of.loc[is_empty, keys].astype("str").drop_duplicates())
    nothing[near] = pd.MultiIndex.from_frame(rows.loc[near, keys].astype("str")).isin(points)
    return nothing


def backend_of(rows: pd.DataFrame, trials: pd.DataFrame | None = None) -> pd.Series:
    """The backend of each row, `NONE` where nothing crosses; arguments as of `pooled`."""
    return rows["backend"].astype("str").mask(nothing_crosses(rows, trials), NONE)


def each_once(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of a front with each cell once, where it is a row of several codecs: of the one that was measured, if
    that is among them."""
    key = [*rows.columns.intersection(BUT_CODEC), AT_WORK, "backend", "point"]
    stands_in = rows["codec"].astype("str").ne(rows[AT_WORK].astype("str"))
    first = rows.loc[stands_in.sort_values(kind="stable").index, key].drop_duplicates()
    return rows[rows.index.isin(first.index)]


def in_every_codec(trials: pd.DataFrame, *, together: bool = False) -> pd.DataFrame:
    """The trials, once for each codec that their cell stands for: what is measured once competes with every one of
    these codecs' points. `AT_WORK` is then the codec that was measured.

    Where nothing crosses, that is every codec, also those of other runs; a codec that has such rows of its own keeps
    them, and under one with no other rows they are left out. The rows stay in their order. together: all codecs compete
    with each other, so that there each row stands for itself, and is of no codec where nothing crosses.
    """
    if together:
        return trials.assign(codec=trials["codec"].astype("str").mask(nothing_crosses(trials), NO_CODEC))
    rows, own = trials, trials["codec"].astype("str")
    if STANDS_FOR in rows:
        meant = rows[STANDS_FOR].astype("str").fillna("")
        meant = meant.where(meant != "", own)
        if meant.ne(own).any():
            named = {names: names.split(BETWEEN) for names in meant.unique()}
            rows = _in_codecs(rows, meant.map(named)).assign(**{STANDS_FOR: ""})
            own = rows["codec"]
    if own.nunique() < 2:
        return rows
    of = [name for name in BUT_CODEC if name in rows]
    group = rows.groupby(of, dropna=False, observed=True, sort=False).ngroup()
    kinds = pd.DataFrame({"group": group, "alone": nothing_crosses(rows), "codec": own})
    number = kinds.groupby([*kinds], sort=False).ngroup()
    each: dict[tuple[int, bool, str], list[str]] = {}
    for one, known in (kinds := kinds.drop_duplicates()).groupby("group"):
        here, crossing = (known.loc[known["alone"] == alone, "codec"].tolist() for alone in (True, False))
        each |= {(one, False, codec): [codec] for codec in crossing}
        for codec in here:
            # One codec's rows stand for all: those without a codec, where there are any.
            is_plain = codec == min(here, key=NO_CODEC.__ne__)
            lacking = [other for other in crossing if is_plain and other not in here]
            each[one, True, codec] = [codec] * (codec in crossing or not crossing) + lacking
    if all(codecs == [codec] for (*_, codec), codecs in each.items()):
        return rows
    codecs = pd.Series([each[key] for key in kinds.itertuples(index=False, name=None)], dtype=object)
    return _in_codecs(rows, codecs.take(number).set_axis(rows.index))


def _in_codecs(rows: pd.DataFrame, codecs: pd.Series) -> pd.DataFrame:
    """The rows, once for each of their codecs."""
    at_work = rows[AT_WORK if AT_WORK in rows else "codec"].astype("str")
    every = rows.assign(**{AT_WORK: at_work, "codec": codecs})[codecs.str.len() > 0]
    return every.explode("codec", ignore_index=True).astype({"codec": "str"})


def at_work(rows: pd.DataFrame) -> pd.Series:
    """The engines that run the units of each trial: `edge=onnx+server=onnx`, of the hosts that have any.

    Trials of one point that have the same here are the same treatment.
    """
    named = rows[["model", "point", "engine"]].astype("str")
    alone = named[nothing_crosses(rows)].drop_duplicates("model", keep="last")
    last = {model: cuts(point)[0] for model, point in zip(alone["model"], alone["point"], strict=True)}
    works = named.drop_duplicates()
    each = zip(works["model"], works["point"], works["engine"], strict=True)
    works = works.assign(work=[_at_work(engine, point, last.get(model)) for model, point, engine in each])
    return named.merge(works, how="left")["work"].set_axis(rows.index)


def work_names(rows: pd.DataFrame) -> pd.Series:
    """`at_work` in short: `onnx` where all working hosts have it, `edge=onnx` where the others are eager."""
    works = at_work(rows)
    return works.map({work: _short(work) for work in works.unique()})


def _short(work: str) -> str:
    named = by_role(work)
    if len(set(named.values())) <= 1:
        return next(iter(named.values()), EAGER)
    return "+".join(f"{role}={name}" for role, name in named.items() if name != EAGER)


def _at_work(engine: str, point: str, last: int | None) -> str:
    ends = [0, *cuts(point), last]
    working = [
        f"{role}={of_role(engine, role)}"
        for role, first, end in zip(hosts(point), ends, ends[1:], strict=False)
        if first != end
    ]
    return "+".join(working)

"""Trials to cells: medians over rounds, their ranges and intervals; and the cells that a search struck off."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pareto.analysis.fronts import energy, load, quality
from pareto.analysis.runs.points import CELL, CONDITION, NO_CODEC, NONE, ROUND, TRIAL, order, sorted_cells
from pareto.analysis.runs.standing import MEASURED, SETTLED, fewest, is_struck, stands
from pareto.analysis.runs.treatments import AT_WORK, STANDS_FOR, pooled
from pareto.analysis.statistics.samples import LEAST_VALUES, Ints, flagged
from pareto.analysis.statistics.significance import median_intervals, padded

MEDIANS = [
    *("latency_s", "throughput_ips", "latency_bound_s", "throughput_bound_ips"),
    *("sequential_ips", "pipeline_gain", "busiest_utilization"),
    *("latency_p95_s", "loaded_latency_s", "loaded_latency_p95_s"),
    *("edge_s", "encode_s", "decode_s", "serialize_s", "network_s", "middle_s", "server_s"),
    *("payload_bytes", "wire_bytes", "edge_rss_bytes", "edge_peak_rss_bytes", "goodput_ips"),
]
ENERGIES = [f"{device}_{energy.WHOLE}" for device in energy.DEVICES]
ACTIVES = [f"{device}_{energy.ACTIVE}" for device in energy.DEVICES]
WIRE = "wire_bytes_per_image"
SUSTAINED = "sustained_ips"
OF_CELL = (quality.LEVEL, WIRE, SUSTAINED)
"""Properties of a cell that no trial varies in: the same in each round and resample."""
STEPS = ["bound_by", "busiest"]
"""Columns that name a step: that of most rounds."""
_MEDIANS = [*MEDIANS, *ENERGIES, *ACTIVES, "agreement", "output_error", quality.MEAN_IOU, quality.MAP50]
_IMAGES = ["top1_images", "agreement_images"]
_FIGURES = [*_MEDIANS, *STEPS, "top1", *_IMAGES, *quality.MARKS.values()]
NEEDED = [
    *dict.fromkeys([*TRIAL, *ROUND, "status", "point_name", STANDS_FOR, AT_WORK, SETTLED, *_FIGURES]),
    *("controls", "controls_valid", *load.NEEDED),
]
"""The columns of trials that cells are made of, as far as trials have them."""
EFFICIENCIES = {
    "latency_efficiency": ("latency_bound_s", "latency_s"),
    "throughput_efficiency": ("throughput_ips", "throughput_bound_ips"),
}
"""Bound over measured, or measured over bound: 1 is ideal."""
BOUNDS = {"latency_bound_s": "latency_s", "throughput_bound_ips": "throughput_ips"}
"""The column of each bound, and of what it bounds."""
SPREADS = {"latency_s": "latency_{}_s", "throughput_ips": "throughput_{}_ips"}
"""Figures with a range, an interval and outliers, and the pattern of the columns of range and interval."""
ENDS = ["least", "most", "low", "high"]
OF_TRIALS = [
    *(*CELL, AT_WORK, "point_order", "point_name", "rounds", "excluded", "trials", "left_out"),
    *(*MEDIANS, *STEPS, "top1", "top1_images", *quality.COLUMNS, WIRE, SUSTAINED, *EFFICIENCIES),
    *(name.format(end) for name in SPREADS.values() for end in ENDS),
    "outliers",
]
OF_ENERGY = [*ENERGIES, *ACTIVES, energy.WHOLE, energy.ACTIVE, "energy_of"]
"""The columns of `cells`, those of energies apart."""
STRUCK_BOUNDS = {"least_latency_s": "latency_s", "most_throughput_ips": "throughput_ips"}
"""Columns beside the front: the bound of a cell without a trial."""
_COUNTS = ("rounds", "excluded", "trials", "left_out")


def cells(trials: pd.DataFrame) -> pd.DataFrame:
    """One row per cell (`CONDITION`, backend, point), sorted by them, points by their cuts.

    The columns of `analysis.fronts.front.front` that say what was measured: all but those of the constraint, the
    front and the resamples. Only figures that can be trusted count (`runs.standing`).
    """
    number = trials.groupby(CELL, dropna=False, observed=True).ngroup().to_numpy()
    is_ok = stands(trials).to_numpy()
    figures, of_ok = trials.reindex(columns=_FIGURES).loc[is_ok], number[is_ok]
    # Medians of a figure and of its bound are over the same trials.
    for bound, figure in BOUNDS.items():
        figures[bound] = figures[bound].where(figures[figure].notna())
    ok = figures.groupby(of_ok)

    first = np.unique(number, return_index=True)[1]
    rows: pd.DataFrame = trials[CELL].iloc[first].reset_index(drop=True)
    at_work = trials[AT_WORK if AT_WORK in trials else "codec"].iloc[first].reset_index(drop=True)
    rows["point_order"] = order(rows["point"])
    # A trial that failed early may not have learnt its point's name.
    rows["point_name"] = trials["point_name"].groupby(number).max()
    both = ok[[*SPREADS]].count().reindex(rows.index, fill_value=0)
    rows["rounds"] = fewest(*both.to_numpy().T)
    rows["excluded"] = np.bincount(number, minlength=len(rows)) - rows["rounds"]
    counts = trials.reindex(columns=["controls", "controls_valid"])
    made, valid = counts["controls"].fillna(1), counts["controls_valid"].fillna(stands(trials).astype(float))
    rows["trials"] = made.groupby(number).sum().astype(int)
    rows["left_out"] = rows["trials"] - valid.groupby(number).sum().astype(int)
    rows = rows.join(ok[_MEDIANS].median()).join(ok[_IMAGES].max())
    hits = (figures["top1"] * figures["top1_images"]).groupby(of_ok).sum()
    rows["top1"] = hits / ok["top1_images"].sum()
    for name in STEPS:
        rows[name] = _most_frequent(figures[name], of_ok).reindex(rows.index, fill_value="").astype("str")
    for name in quality.MARKS.values():
        texts = figures[name].astype(object).fillna("").astype("str").groupby(of_ok)
        rows[name] = texts.first().where(texts.nunique() == 1)
    rows[AT_WORK] = at_work.astype("str").where(rows["payload_bytes"].ne(0), NO_CODEC)
    # Without a codec what crosses is the payload; runs from before there were codecs do not say so.
    same = quality.is_none(rows["codec"]) | rows["payload_bytes"].eq(0)
    rows["wire_bytes"] = rows["wire_bytes"].mask(rows["wire_bytes"].isna() & same, rows["payload_bytes"])
    rows[WIRE] = rows["wire_bytes"] / rows["batch_size"]
    found = load.sustained(trials).reindex(columns=[*CELL, SUSTAINED])
    rows[SUSTAINED] = rows[CELL].merge(found, how="left")[SUSTAINED] if len(found) else np.nan
    rows = _with_spreads(quality.with_quality(rows), figures, of_ok)
    rows["energy_of"], rows[energy.WHOLE], rows[energy.ACTIVE] = "", np.nan, np.nan
    for _, of in rows.groupby(CONDITION, dropna=False, observed=True):
        devices, rows.loc[of.index, energy.WHOLE] = energy.counted(of)
        rows.loc[of.index, "energy_of"] = devices
        rows.loc[of.index, energy.ACTIVE] = energy.charged(devices, of, of, energy.ACTIVE)
    for column, (above, below) in EFFICIENCIES.items():
        rows[column] = rows[above] / rows[below]
    return sorted_cells(rows)


def _most_frequent(texts: pd.Series, number: Ints) -> pd.Series:
    """The most frequent text by the number of its cell, the first by the alphabet of several.

    A trial that counts for its latency alone has empty text, which does not count.
    """
    named = pd.DataFrame({"cell": number, "text": texts.astype(object).fillna("").to_numpy()})
    counts = named[named["text"] != ""].groupby(["cell", "text"]).size()
    most = counts.sort_values(ascending=False, kind="stable").reset_index().drop_duplicates("cell")
    return most.set_index("cell")["text"]


def _with_spreads(rows: pd.DataFrame, figures: pd.DataFrame, number: Ints) -> pd.DataFrame:
    """The rows with range and interval of the medians, and how many rounds are outliers in any of them; NaN where
    unknown. number: of which row each of the figures is.
    """
    outlying = np.zeros(len(figures), dtype=bool)
    for column, name in SPREADS.items():
        least, most, low, high = (name.format(end) for end in ENDS)
        values, of_cells = figures[column].to_numpy(), figures[column].groupby(number)
        rows[least], rows[most] = of_cells.min(), of_cells.max()
        rows[low], rows[high] = median_intervals(padded(values, number, len(rows)))
        for members in of_cells.indices.values():
            outlying[members] |= flagged(values[members])
    outliers = pd.Series(outlying).groupby(number).sum().where(rows["rounds"] >= LEAST_VALUES)
    return rows.assign(outliers=outliers)


def with_struck(front: pd.DataFrame, trials: pd.DataFrame, struck_off: pd.DataFrame) -> pd.DataFrame:
    """The rows of a front, and one for each cell that was struck off: on no front, with what was measured of it.

    Further columns: `SETTLED`, and `STRUCK_BOUNDS` of cells without a trial. A cell that another run has measured keeps
    its row. As it is where nothing was struck off.
    """
    if struck_off.empty:
        return front
    bounds = struck_off["how"].eq("physics")
    named = struck_off.assign(
        backend=struck_off["backend"].where(struck_off["payload_bytes"] > 0, NONE),
        **{SETTLED: struck_off["how"]},
        **{column: struck_off[of].where(bounds) for column, of in STRUCK_BOUNDS.items()},
    ).drop_duplicates(CELL)[[*CELL, "point_name", SETTLED, *STRUCK_BOUNDS]]
    measured = cells(pooled(trials[is_struck(trials)])).drop(columns="point_name")
    rows = named.merge(measured, on=CELL, how="left")
    rows = rows.merge(front[CELL], on=CELL, how="left", indicator="there").query("there == 'left_only'")
    rows = rows.reindex(columns=[*front, SETTLED, *STRUCK_BOUNDS]).assign(feasible=True)
    for name, dtype in front.dtypes.items():
        empty = 0 if name in _COUNTS else {"bool": False, "str": ""}.get(str(dtype))
        if empty is not None:
            rows[name] = rows[name].astype(object).where(rows[name].notna(), empty).astype(dtype)
    both = pd.concat([front.assign(**{SETTLED: MEASURED}), rows], ignore_index=True)
    both["point_order"] = order(both["point"])
    return sorted_cells(both)[[*front.columns, SETTLED, *STRUCK_BOUNDS]]

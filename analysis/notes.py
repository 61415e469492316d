"""What a reader should not have to find in the figures, one line each."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from analysis.escaping import short
from analysis.schema import STATUSES

DATA = ["model", "batch_size", "codec", "top1_images"]
"""Trials that saw the same images and sent them the same way, so that they must have the same top-1."""


def best_points(rows: pd.DataFrame, name: str) -> Iterator[str]:
    """Of the rows of one figure: the best feasible points of all backends, what sets the throughput's bound there, and
    which step was busiest.

    Nothing for a run that does not know what sets the bound.
    """
    if "feasible" in rows:
        rows = rows[rows["feasible"].astype(bool)]
    measured = rows[(rows["bound_by"] != "") & rows[["latency_s", "throughput_ips"]].notna().all(axis=1)]
    if measured.empty:
        return
    most = measured.loc[measured["throughput_ips"].idxmax()]
    least = measured.loc[measured["latency_s"].idxmin()]
    same = least.name == most.name
    lowest = ", where latency is lowest, too" if same else ""
    text = f"{name}: by the medians, most images/s at {_placed(most)}{lowest}, {_held_back(most)}"
    yield text if same else f"{text}; lowest latency at {_placed(least)}, {_held_back(least)}"


def _held_back(row: pd.Series) -> str:
    """`bound by edge-server out (busiest: edge, 86%)`, or without a name where these are the same."""
    if not row.get("busiest"):
        return f"bound by {row['bound_by']}"
    busy = "busy" if row["busiest"] == row["bound_by"] else f"busiest: {row['busiest']},"
    return f"bound by {row['bound_by']} ({busy} {row['busiest_utilization']:.0%})"


def _placed(row: pd.Series) -> str:
    """Where nothing crosses, it does not matter over what."""
    return f"point {row['point']} (all on the edge)" if row["payload_bytes"] == 0 else _named(row)


def nothing_valid(trials: pd.DataFrame, name: str) -> str:
    """What became of the trials of a figure that left nothing to draw."""
    counts = trials["status"].value_counts()
    text = ", ".join(f"{counts.get(status, 0)} {status}" for status in STATUSES)
    reasons = trials.loc[trials["reason"] != "", "reason"].value_counts()
    # A reason may be a traceback of many lines: a note is one.
    often = f"; most often: {short(reasons.index[0])}" if len(reasons) else ""
    return f"{name}: no figures: {text}{often}"


def energies_of_different_devices(rows: pd.DataFrame, name: str) -> Iterator[str]:
    """Why the rows of one figure have no figure of their energy, although some was measured."""
    charged = rows[rows["on_energy_front"].groupby(rows["codec"]).transform("any")]
    if charged["energy_of"].nunique() > 1:
        yield f"{name}: no energy figure: its codecs count different devices"


def _named(row: pd.Series) -> str:
    return f"point {row['point']} over {row['backend']}"


def differing_top1(trials: pd.DataFrame) -> Iterator[str]:
    """A line for each model and codec whose points do not classify the same images equally well."""
    measured = trials[(trials["status"] == "ok") & trials["top1"].notna()]
    for (model, _, codec, images), same in measured.groupby(DATA, dropna=False):
        if same["top1"].nunique() > 1:
            worst, best = same.loc[same["top1"].idxmin()], same.loc[same["top1"].idxmax()]
            sent = f" with codec {codec}" if codec not in ("", "none") else ""
            yield (
                f"{model}{sent}: top-1 of the same {images:.0f} images is {worst['top1']:.1%} at {_named(worst)} and "
                f"{best['top1']:.1%} at {_named(best)}: a split alone must not change it"
            )

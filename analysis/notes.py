"""What a reader should not have to find in the figures, one line each."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

DATA = ["model", "batch_size", "codec", "top1_images"]
"""Trials that saw the same images and sent them the same way, so that they must have the same top-1."""


def bottlenecks(rows: pd.DataFrame, name: str) -> Iterator[str]:
    """Of the rows of one figure: what bounds the throughput at the best points of all backends.

    Nothing for a run that is older than the column.
    """
    measured = rows[(rows["bottleneck"] != "") & rows[["latency_s", "throughput_ips"]].notna().all(axis=1)]
    if measured.empty:
        return
    most = measured.loc[measured["throughput_ips"].idxmax()]
    least = measured.loc[measured["latency_s"].idxmin()]
    text = f"{name}: most images/s at {_named(most)}, where {most['bottleneck']} is the bottleneck"
    if least.name == most.name:
        yield f"{text}; so is the lowest latency"
    else:
        yield f"{text}; lowest latency at {_named(least)}, where {least['bottleneck']} is"


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

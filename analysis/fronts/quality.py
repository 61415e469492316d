"""Codecs' cost in quality: each cell's accuracy, how sure it is, and which cells it cannot tell apart.

Quality belongs to a cell, not to a trial: the same images through the same codec at the same cut give the same classes,
over whatever backend and network.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd

from pareto.analysis.naming import NONE, model_title
from pareto.analysis.runs.manifest import within
from pareto.analysis.runs.treatments import AT_WORK
from pareto.analysis.statistics.samples import share_interval, shares_differ

TOP1, AGREEMENT, MEAN_IOU, MAP50 = "top1", "agreement", "mean_iou", "map50"
WORDS = {TOP1: "top-1", AGREEMENT: "agreement", MEAN_IOU: "mean IoU", MAP50: "mAP at 0.5"}
"""The kinds of accuracy, of which the first that is known counts, and how each is called."""
MARKS = {TOP1: "wrong_images", AGREEMENT: "changed_images"}
"""The columns that say which images count against it, a hexadecimal digit for each four."""
LEVEL = "accuracy_level"
"""The column that accuracy is compared by."""
LIMITS = frozenset({"accuracy", LEVEL, *WORDS, "output_error", "accuracy_low"})
"""The columns by which a constraint says how much quality is enough."""
_OF_MODEL = ("accuracy", "accuracy_images", "accuracy_low", "accuracy_high", LEVEL)
COLUMNS = (
    *("agreement", "agreement_images", "output_error", MEAN_IOU, MAP50),
    *("accuracy", "accuracy_of", "accuracy_images", "accuracy_low", "accuracy_high", LEVEL),
)
GROUP = ["model", "batch_size", "engine", "prefetch_asked", "allocator", "setup"]
"""Within these, cells are compared in quality."""
SAME_OUTPUT = 1e-6
"""An output that differs by less, relative to itself, differs by float32's rounding alone."""


def is_none(codecs: pd.Series) -> pd.Series:
    """Mask of the rows without a codec."""
    return codecs.astype("str") == NONE


def codec_name(codec: object) -> str:
    """The codec's name, `no codec` without one."""
    return "no codec" if codec == NONE else str(codec)


def right_by_chance(trials: pd.DataFrame, manifests: Mapping[str, Mapping[str, Any]]) -> pd.Series:
    """Mask of trials whose `top1` says nothing, as the weights are random. manifests: by the runs' names."""
    seeded = [name for name, of in manifests.items() if within(of, "sweep", "weights") == "seeded"]
    chance: pd.Series = trials["run"].isin(seeded) & trials[TOP1].notna()
    return chance


def with_quality(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells with `COLUMNS`. `cells`: one row a cell, with what is known of its quality, of several codecs.

    - agreement: 1 where neither codec nor engine changes results; not for a model that has a mean IoU or mAP.
    - accuracy: `top1` where all cells with a valid trial of one model have it, else `agreement`, else `mean_iou` or
      `map50`; `accuracy_of` says which. It is that of all cells of the same point and codec together.
    - accuracy_low, accuracy_high: 95 % interval by the number of images (`share_interval`); none
      of a mean IoU and an mAP, which are no shares of images: there every difference counts.
    - accuracy_level: the best accuracy of a cell from which this one's cannot be told apart (`_levels`).
    """
    cells = cells.reset_index(drop=True)
    is_same = is_none(cells["codec"]) | cells["payload_bytes"].eq(0)
    # An engine may change the results without a codec, too.
    is_same = (is_same & ~cells["output_error"].gt(SAME_OUTPUT)) | cells["output_error"].le(SAME_OUTPUT)
    is_same &= cells["rounds"] > 0
    has_other = cells[[MEAN_IOU, MAP50]].notna().any(axis=1).groupby(cells["model"]).transform("any")
    cells["agreement"] = cells["agreement"].mask(cells["agreement"].isna() & is_same & ~has_other, 1.0)
    groups = cells.assign(same=is_same).groupby(GROUP, dropna=False, observed=True)
    parts = [_of_model(rows) for _, rows in groups]
    made = pd.concat(parts) if parts else pd.DataFrame(columns=["accuracy_of", *_OF_MODEL])
    return cells.assign(**{name: made[name] for name in COLUMNS if name not in cells})


def _of_model(rows: pd.DataFrame) -> pd.DataFrame:
    """The accuracy of one model's cells. rows: with `same`, whether they must have the whole model's output."""
    cells = rows[rows["rounds"] > 0]
    of = TOP1 if len(cells) and cells[TOP1].notna().all() else ""
    of = of or next((name for name in (AGREEMENT, MEAN_IOU, MAP50) if rows[name].notna().any()), "")
    made = pd.DataFrame(np.nan, rows.index, _OF_MODEL).assign(accuracy_of=of)
    if not of:
        return made
    number = cells.groupby(["codec", "point"], dropna=False, observed=True).ngroup().to_numpy()
    images = cells[f"{of}_images"] if of in MARKS else pd.Series(np.nan, cells.index)
    weight = images.where(cells[of].notna()).fillna(0.0)
    marks = cells[MARKS[of]] if of in MARKS else pd.Series("", cells.index)
    marks = marks.astype(object).fillna("").astype("str").groupby(number)
    hits = (cells[of] * weight).fillna(0.0)
    groups = cells.assign(hits=hits, weight=weight, mean=cells[of], images=images).groupby(number)
    places = groups[["hits", "weight"]].sum().join(groups[["mean", "agreement"]].mean())
    places["images"], places["same"] = groups["images"].max(), groups["same"].all()
    # Images count one by one only where all cells of a place mark the same.
    places["marks"] = marks.first().where(marks.nunique() == 1, "")
    # Not counted, they weigh alike.
    share = (places["hits"] / places["weight"]).where(places["weight"] > 0, places["mean"])
    ends = np.array(share_interval(share.to_numpy(), places["images"].to_numpy()))
    if of == AGREEMENT:
        places["same"] &= share == 1
        ends = np.where(places["same"], share, ends)
    levels = _levels(places.assign(share=share), one=of == AGREEMENT)
    made.loc[cells.index, [*_OF_MODEL]] = np.column_stack([share, places["images"], *ends, levels])[number]
    return made


def _levels(places: pd.DataFrame, *, one: bool) -> list[float]:
    """The best share of the places that each one cannot be told apart from: ties have one level.

    places: a row each, with its `share` of so many `images`, its `agreement` with the whole model, whether it has the
    `same` output, and the images that count against it (`marks`). one: whether the share is then 1 by necessity.

    From the best downwards: a place that differs (`shares_differ`) from the best of its level
    begins the next. Where the number of images is not known, every difference counts.
    """
    result, best = [np.nan] * len(places), None
    rows = places.to_dict("records")
    for number in np.lexsort((~places["same"], -places["share"])):
        row = rows[number]
        if not np.isnan(row["share"]):
            best = row if best is None or _differ(best, row, one and best["same"]) else best
            result[number] = best["share"]
    return result


def _differ(best: Mapping[Hashable, Any], other: Mapping[Hashable, Any], certain: bool) -> bool:
    """Whether the best is better than the other, of as many of the same images as both have."""
    images = float(np.nanmin([best["images"], other["images"], np.inf]))
    if certain or not np.isfinite(images):
        return bool(best["share"] > other["share"])
    # Images that count for one only are wrong with one of the two, and changed by one of them.
    changed = np.nan_to_num(1 - best["agreement"] + (1 - other["agreement"]), nan=np.inf)
    apart = min(2 - best["share"] - other["share"], changed)
    if best["marks"] and len(best["marks"]) == len(other["marks"]) and best["images"] == other["images"]:
        with suppress(ValueError):  # what is read from a file may be anything
            apart = (int(best["marks"], 16) ^ int(other["marks"], 16)).bit_count() / images
    return shares_differ(best["share"], other["share"], images, float(apart))


def span(values: pd.Series) -> str:
    """`98.5 %`, or `97 to 99.5 %` where they differ: what is known of some shares."""
    known = values.dropna()
    if known.empty:
        return "not measured"
    least, most = (percent(float(value)) for value in (known.min(), known.max()))
    return f"{least} %" if least == most else f"{least} to {most} %"


def percent(share: float) -> str:
    """A share in percent; 100 only if it is all."""
    digits = 1 if share <= 0.9994 or share == 1 else 3
    text = f"{100 * share:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def name_of(rows: pd.DataFrame) -> str:
    """`top-1 of 400 images`, `agreement of 200 images`: what `accuracy` is in these rows; empty where not measured."""
    kinds = [WORDS[kind] for kind in rows["accuracy_of"].dropna().unique() if kind]
    counts = rows["accuracy_images"].dropna()
    images = f" of {counts.max():.0f} images" if len(counts) else ""
    return " or ".join(kinds) + images if kinds else ""


def in_words(objectives: Sequence[str], rows: pd.DataFrame) -> str:
    """`latency, accuracy (agreement of 200 images)`: the objectives, with what accuracy is in these rows."""
    known = {"accuracy": f"accuracy ({name_of(rows) or 'not measured'})"}
    return ", ".join(known.get(name, name) for name in objectives)


def sentences(front: pd.DataFrame) -> Iterator[str]:
    """A line for each model and codec: what it costs in accuracy, over its points, and what is not known."""
    crossing = front[(front["rounds"] > 0) & front["payload_bytes"].gt(0) & front["codec"].eq(front[AT_WORK])]
    for _, of_model in crossing.groupby(GROUP, dropna=False, observed=True):
        plain = of_model[is_none(of_model["codec"])]
        for codec, rows in of_model.drop(plain.index).groupby("codec", observed=True):
            yield f"{_titled(rows, front)}, codec {codec}: {_cost(rows, plain)}"


def of_engines(front: pd.DataFrame) -> Iterator[str]:
    """A line for each model and setup whose engine changes the results without a codec: what that costs."""
    changed = front[(front["rounds"] > 0) & is_none(front["codec"]) & (front["output_error"] > SAME_OUTPUT)]
    for _, rows in changed.groupby(GROUP, dropna=False, observed=True):
        yield f"{_titled(rows, front)}: it changes the results, {_cost(rows, rows.head(0))}"


def _titled(rows: pd.DataFrame, front: pd.DataFrame) -> str:
    batch = f"batch size {rows['batch_size'].iloc[0]}" if front["batch_size"].nunique() > 1 else ""
    return model_title(rows.iloc[0], "codec", "in_flight_asked", batch=batch)


def _cost(rows: pd.DataFrame, plain: pd.DataFrame) -> str:
    known = rows.dropna(subset=["accuracy"])
    if known.empty:
        return "what it costs in accuracy was not measured, so it is on no front that accuracy decides"
    text = f"{name_of(known)} {span(known['accuracy'])}"
    if known["accuracy_of"].iloc[0] == TOP1 and plain["accuracy"].notna().any():
        text += f", without a codec {span(plain['accuracy'])}"
    worst = known.loc[known["accuracy_low"].fillna(known["accuracy"]).idxmin()]
    if worst["accuracy_low"] < worst["accuracy_high"]:
        low, high = (percent(float(worst[f"accuracy_{end}"])) for end in ("low", "high"))
        text += f"; least at point {worst['point']} (95 %: {low} to {high} %)"
    if known["output_error"].le(SAME_OUTPUT).all():
        return f"{text}; it gives the same output"
    if known[LEVEL].ge(plain[LEVEL].max()).all():
        changes = (known["output_error"] > SAME_OUTPUT).any()
        return f"{text}; so few images cannot tell it from no codec" if changes else text
    unknown = known["accuracy_images"].isna().any()
    return f"{text}; of how many images is not known, so every difference counts" if unknown else text

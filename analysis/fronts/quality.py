"""Codecs' cost in quality: each cell's accuracy, how sure it is, and which cells it cannot tell apart.

Quality belongs to a cell, not to a trial: the same images through the same codec at the same cut give the same classes,
over whatever backend and network.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pareto.analysis.naming import NONE, unusual
from pareto.analysis.runs.manifest import within
from pareto.analysis.runs.points import AT_WORK
from pareto.analysis.statistics import shares
from pareto.analysis.statistics.samples import Bools, Floats

TOP1, AGREEMENT, MEAN_IOU, MAP50 = "top1", "agreement", "mean_iou", "map50"
WORDS = {TOP1: "top-1", AGREEMENT: "agreement", MEAN_IOU: "mean IoU", MAP50: "mAP at 0.5"}
"""The kinds of accuracy, of which the first that is known counts, and how each is called."""
MARKS = {TOP1: "wrong_images", AGREEMENT: "changed_images"}
"""The columns that say which images count against it, a hexadecimal digit for each four."""
LEVEL = "accuracy_level"
"""The column that accuracy is compared by."""
LIMITS = frozenset({"accuracy", LEVEL, *WORDS, "output_error", "accuracy_low"})
"""The columns by which a constraint says how much quality is enough."""
COLUMNS = (
    *(
        "agreement",
        "agreement_images",
        "output_error",
        MEAN_IOU,
        MAP50,
        "accuracy",
        "accuracy_of",
        "accuracy_images",
    ),
    *("accuracy_low", "accuracy_high", LEVEL),
)
GROUP = ["model", "batch_size", "engine", "prefetch_asked", "allocator", "setup"]
"""Within these, cells are compared in quality."""
SAME_OUTPUT = 1e-6
"""An output that differs by less, relative to itself, differs by float32's rounding alone."""


def is_none(codecs: pd.Series) -> pd.Series:
    """Mask of the rows without a codec."""
    return codecs.astype("str").isin(["", NONE])


def right_by_chance(trials: pd.DataFrame, manifests: Mapping[str, Mapping[str, Any]]) -> pd.Series:
    """Mask of trials whose `top1` says nothing, as the weights are random. manifests: by the runs' names."""
    seeded = [
        name for name, manifest in manifests.items() if within(manifest, "sweep", "weights") == "seeded"
    ]
    chance: pd.Series = trials["run"].isin(seeded) & trials[TOP1].notna()
    return chance


def codec_name(codec: object) -> str:
    """The codec's name, `no codec` without one."""
    return "no codec" if str(codec) in ("", "none") else str(codec)


def with_quality(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells with `COLUMNS`. `cells`: one row a cell, with what is known of its quality, of several codecs.

    - agreement: 1 where neither codec nor engine changes results; not for a model that has a mean IoU or mAP.
    - accuracy: `top1` where all cells with a valid trial of one model have it, else `agreement`, else `mean_iou` or
      `map50`; `accuracy_of` says which. It is that of all cells of the same point and codec together.
    - accuracy_low, accuracy_high: 95 % interval by the number of images (`analysis.statistics.shares.interval`); none
      of a mean IoU and an mAP, which are no shares of images: there every difference counts.
    - accuracy_level: the best accuracy of a cell from which this one's cannot be told apart (`levels`).
    """
    cells = cells.reset_index(drop=True)
    is_same = is_none(cells["codec"]) | cells["payload_bytes"].eq(0)
    # An engine may change the results without a codec, too.
    is_same = (is_same & ~cells["output_error"].gt(SAME_OUTPUT)) | cells["output_error"].le(SAME_OUTPUT)
    is_same &= cells["rounds"] > 0
    cells = cells.assign(**{name: cells.get(name, np.nan) for name in (MEAN_IOU, MAP50)})
    has_other = cells[[MEAN_IOU, MAP50]].notna().any(axis=1).groupby(cells["model"]).transform("any")
    is_one = is_same & ~has_other
    cells["agreement"] = cells["agreement"].where(cells["agreement"].notna() | ~is_one, 1.0)
    parts = [
        _of_model(rows, is_same[rows.index]) for _, rows in cells.groupby(GROUP, dropna=False, observed=True)
    ]
    made = pd.concat(parts) if parts else pd.DataFrame(columns=list(COLUMNS))
    return cells.assign(**{name: made[name] for name in COLUMNS if name not in cells})


def _of_model(rows: pd.DataFrame, is_same: pd.Series) -> pd.DataFrame:
    """`COLUMNS` of the cells of one model. is_same: which of them must have the whole model's output."""
    measured = rows[rows["rounds"] > 0]
    of = TOP1 if len(measured) and measured[TOP1].notna().all() else ""
    of = of or next((name for name in (AGREEMENT, MEAN_IOU, MAP50) if rows[name].notna().any()), "")
    figures = ["accuracy", "accuracy_images", "accuracy_low", "accuracy_high", LEVEL]
    made = pd.DataFrame(np.nan, rows.index, figures).assign(accuracy_of=of)
    if not of:
        return made
    of_place = measured.groupby(["codec", "point"], dropna=False, observed=True).ngroup().to_numpy()
    values = measured[of].to_numpy(float)
    images = measured[f"{of}_images"].to_numpy(float) if of in MARKS else np.full(len(values), np.nan)
    weights = np.where(np.isnan(values), 0.0, np.nan_to_num(images))
    places = pd.DataFrame(
        {"hits": values * weights, "weights": weights, "mean": values, "images": images}
        | {"agreement": measured["agreement"].to_numpy(float)}
    ).groupby(of_place)
    hits, weight = places[["hits", "weights"]].sum().to_numpy().T
    mean, agreement = places[["mean", "agreement"]].mean().to_numpy().T
    # Not counted, they weigh alike.
    with np.errstate(invalid="ignore"):
        share = np.where(weight > 0, hits / weight, mean)
    known = places["images"].max().to_numpy()
    same = np.bincount(of_place, ~is_same[measured.index]) == 0
    # Images count one by one only where all cells of a place mark the same.
    marks = measured[MARKS[of]] if MARKS.get(of) in measured else pd.Series("", index=measured.index)
    texts = marks.astype(object).fillna("").astype("str").groupby(of_place)
    one_text = texts.first().where(texts.nunique() == 1, "").tolist()
    low, high = shares.interval(share, known)
    if of == AGREEMENT:
        same &= share == 1
        low, high = (np.where(same, share, end) for end in (low, high))
    compared = np.column_stack([share, known, 1 - agreement])
    reached = levels(compared, same, one=of == AGREEMENT, marks=one_text)
    made.loc[measured.index, figures] = np.column_stack([share, known, low, high, reached])[of_place]
    return made


def levels(figures: Floats, same: Bools, *, one: bool, marks: Sequence[str] = ()) -> Floats:
    """The best accuracy of the cells that each one cannot be told apart from: ties have one level.

    figures: cells x (share of images, number of images, share of images whose top class is not the whole model's).
    same: which have the output of the whole model. one: whether the share is 1 of these by necessity. marks: of each
    cell, which images count against it (`MARKS`), or empty text.

    From the best downwards: a cell that differs (`analysis.statistics.shares.differ`) from the best of its level begins
    the next. Where the number of images is not known, every difference counts.
    """
    result = np.full(len(figures), np.nan)
    best = -1
    for cell in np.lexsort((~same, -figures[:, 0])):
        if np.isnan(figures[cell, 0]):
            continue
        apart = _apart(marks[best], marks[cell]) if marks and best >= 0 else None
        if best < 0 or _differ(figures[best], figures[cell], bool(one and same[best]), apart):
            best = int(cell)
        result[cell] = figures[best, 0]
    return result


def _apart(one: str, other: str) -> int | None:
    """The number of images that count against one of two cells only; None where that is not known."""
    if not one or len(one) != len(other):
        return None
    try:
        return (int(one, 16) ^ int(other, 16)).bit_count()
    except ValueError:  # what is read from a file may be anything
        return None


def _differ(best: Floats, other: Floats, certain: bool, counted: int | None = None) -> bool:
    """Whether the best is better than the other. counted: images that count against one of them only."""
    images = np.nanmin([best[1], other[1], np.inf])
    if certain or not np.isfinite(images):
        return bool(best[0] > other[0])
    if counted is not None and best[1] == other[1]:
        return shares.differ(float(best[0]), float(other[0]), float(images), counted / images)
    # Images that count for one only are wrong with one of the two, and changed by one of them.
    apart = min(2 - best[0] - other[0], np.nan_to_num(best[2] + other[2], nan=np.inf))
    return shares.differ(float(best[0]), float(other[0]), float(images), float(apart))


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
    kinds = [kind for kind in rows["accuracy_of"].dropna().unique() if kind]
    counts = rows["accuracy_images"].dropna()
    images = f" of {counts.max():.0f} images" if len(counts) else ""
    return " or ".join(WORDS[kind] for kind in kinds) + images if kinds else ""


def in_words(objectives: Sequence[str], rows: pd.DataFrame) -> str:
    """`latency, accuracy (agreement of 200 images)`: the objectives, with what accuracy is in these rows."""
    return ", ".join(
        f"{name} ({name_of(rows) or 'not measured'})" if name == "accuracy" else name for name in objectives
    )


def sentences(front: pd.DataFrame) -> Iterator[str]:
    """A line for each model and codec: what it costs in accuracy, over its points, and what is not known."""
    crossing = front[(front["rounds"] > 0) & front["payload_bytes"].gt(0) & front["codec"].eq(front[AT_WORK])]
    for _, of_model in crossing.groupby([*GROUP], dropna=False, observed=True):
        plain = of_model[is_none(of_model["codec"])]
        for codec, rows in of_model[~is_none(of_model["codec"])].groupby("codec", observed=True):
            yield f"{_titled(rows, front)}, codec {codec}: {_cost(rows, plain)}"


def of_engines(front: pd.DataFrame) -> Iterator[str]:
    """A line for each model and setup whose engine changes the results without a codec: what that costs."""
    measured = front[(front["rounds"] > 0) & is_none(front["codec"])]
    for _, rows in measured[measured["output_error"] > SAME_OUTPUT].groupby(
        GROUP, dropna=False, observed=True
    ):
        yield f"{_titled(rows, front)}: it changes the results, {_cost(rows, rows.head(0))}"


def _titled(rows: pd.DataFrame, front: pd.DataFrame) -> str:
    first = rows.iloc[0]
    parts = [str(first["model"])]
    parts += [f"batch size {first['batch_size']}"] if front["batch_size"].nunique() > 1 else []
    parts += unusual(first, "codec", "in_flight_asked")
    return ", ".join([*parts, *filter(None, [str(first["setup"])])])


def _cost(rows: pd.DataFrame, plain: pd.DataFrame) -> str:
    known = rows.dropna(subset=["accuracy"])
    if known.empty:
        return "what it costs in accuracy was not measured, so it is on no front that accuracy decides"
    of = str(known["accuracy_of"].iloc[0])
    worst = known.loc[known["accuracy_low"].fillna(known["accuracy"]).idxmin()]
    text = f"{name_of(known)} {span(known['accuracy'])}"
    if of == TOP1 and plain["accuracy"].notna().any():
        text += f", without a codec {span(plain['accuracy'])}"
    if math.isfinite(worst["accuracy_low"]) and worst["accuracy_low"] < worst["accuracy_high"]:
        low, high = (percent(float(worst[f"accuracy_{end}"])) for end in ("low", "high"))
        text += f"; least at point {worst['point']} (95 %: {low} to {high} %)"
    of_none = plain[LEVEL].max() if plain[LEVEL].notna().any() else math.nan
    if known["output_error"].le(SAME_OUTPUT).all():
        text += "; it gives the same output"
    elif known[LEVEL].ge(of_none).all():
        text += (
            "; so few images cannot tell it from no codec"
            if (known["output_error"] > SAME_OUTPUT).any()
            else ""
        )
    elif known["accuracy_images"].isna().any():
        text += "; of how many images is not known, so every difference counts"
    return text

"""The fronts, and the latency beyond the bound, in the terminal and in a log: legible at 80 columns, without colour."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from pareto.analysis.costs import MIN_PAYLOADS, MIN_POINTS, NOISE
from pareto.analysis.fronts import energy
from pareto.analysis.fronts.front import over_codecs
from pareto.analysis.fronts.objectives import ACCURACY, DEFAULT, chosen
from pareto.analysis.fronts.quality import (
    AGREEMENT,
    LEVEL,
    MAP50,
    MEAN_IOU,
    TOP1,
    WORDS,
    codec_name,
    in_words,
    is_none,
    name_of,
)
from pareto.analysis.naming import ANY_NOTE, backend_name, condition_title, count, time_unit
from pareto.analysis.points import AT_WORK, BUT_CODEC, CONDITION, each_once, hosts, short_step
from pareto.analysis.tables.columns import (
    UNKNOWN,
    Column,
    by_backend,
    figure,
    figures,
    framed,
    number,
    once,
    spans,
    starts,
    sureness,
)

_HEADS = {TOP1: "top-1", AGREEMENT: "agree", MEAN_IOU: "mIoU", MAP50: "mAP50"}
_MS, _MS_PER_MB = 1e3, 1e9
"""From seconds, and from seconds a byte."""


def front_table(front: pd.DataFrame, objectives: Sequence[str] = DEFAULT, where: str = "") -> RenderableType:
    """One table a condition: for each backend, the points on its front.

    front: of `analysis.front`; objectives, where: those that it was made with: a table of others than the usual
    ones says so. A point where nothing crosses stands by itself, under `any`. A star marks the points on the front of
    all backends together. Figures that were not measured have no column; see `_has_room` for those that give way.
    The table fits the width of the console that it is printed to: it shortens names first.
    """
    tables = [_table(rows, objectives, where) for _, rows in front.groupby(CONDITION, dropna=False)]
    return Group(*tables) if tables else Text("no trials")


def _has_room(rows: pd.DataFrame, points: pd.DataFrame, objectives: Sequence[str]) -> set[str]:
    """The optional columns that are shown: those that were measured, as far as 80 characters have room."""
    measured = {
        "energy": points["energy_of"].iloc[0] != "",
        "top1": points[_quality(points)].notna().any(),
        "bound_by": points["bound_by"].ne("").any(),
        "loaded": "loaded-latency" in objectives,
    }
    has = {name for name, is_there in measured.items() if is_there}
    two_hosts = len(hosts(str(points["point"].iloc[0]))) == 2
    if points["busiest"].ne("").any() and two_hosts and not has & {"energy", "top1", "loaded"}:
        has.add("busiest")
    several = rows.loc[(rows["rounds"] > 0) & rows["backend"].ne(""), "backend"].nunique() > 1
    if several and not ("bound_by" in has and has & {"energy", "top1"}):
        has.add("p all")
    is_full = "bound_by" in has and (has >= {"energy", "top1"} or has >= {"busiest", "p all"})
    if points["pipeline_gain"].notna().any() and not is_full and "loaded" not in has:
        has.add("gain")
    return has


def _table(rows: pd.DataFrame, objectives: Sequence[str], where: str) -> RenderableType:
    title = condition_title(rows.iloc[0])
    points = rows[rows["on_backend_front"]]
    if points.empty:
        return Text(f"{title}: {_why_empty(rows, objectives, where)}\n")
    has = _has_room(rows, points, objectives)
    points = by_backend(points, "latency_s")
    which, chain = energy.judged_by(rows), hosts(str(points["point"].iloc[0]))
    excluded = int(rows["left_out"].sum())
    notes = {
        f"front of {in_words(objectives, rows)}": set(objectives) != set(DEFAULT),
        f"where {where}": where,
        "* on the front of all backends": True,
        ANY_NOTE: (points["backend"] == "").any(),
        "eff = share of the physical bound": True,
        f"sure = probability of being on the backend's front{', all = on that of all' * ('p all' in has)}": True,
        "loaded = latency at these images/s": "loaded" in has,
        "gain = images/s as a multiple of those with one in flight": "gain" in has,
        "bound by = the step that sets the bound of images/s": "bound_by" in has,
        "busiest = the step that was busy for the greatest share of the time, %": "busiest" in has,
        _links(chain): points["bound_by"].str.contains("-").any(),
        f"J = energy per image{' above idle' * (which == energy.ACTIVE)}, {points['energy_of'].iloc[0]}": "energy"
        in has,
        _quality_note(points): True,
        f"{count(excluded, 'trial')} left out": excluded,
    }
    groups = starts(points["backend"])
    shown = [note for note, is_needed in notes.items() if is_needed]
    return framed(_columns(points, has, which, len(chain)), f"{title}: Pareto front", shown, groups)


def _columns(points: pd.DataFrame, has: set[str], which: str, chain: int) -> list[Column]:
    unit, scale = time_unit(float(points["latency_s"].max()))
    digits = 3 if unit == "s" else 2
    # A long label is folded, not cut: its end may be all that tells it apart.
    whole = {"no_wrap": points["backend"].str.len().max() <= len("backend")}
    # May be narrowed too: its cells, not the column, refuse to wrap.
    names: list[Any] = [Text(str(name), no_wrap=True, overflow="ellipsis") for name in points["point_name"]]
    stars = ["*" if on_front else " " for on_front in points["on_front"]]
    steps = [short_step(step, chain) or UNKNOWN for step in points["bound_by"]]
    busiest = [
        f"{short_step(step, chain)} {figure(share * 100, 0)}" if step else UNKNOWN
        for step, share in zip(points["busiest"], points["busiest_utilization"], strict=True)
    ]
    joules = [figure(value, 3 if value < 10 else 2) for value in points[which]]
    columns = {
        "": [
            Column("backend", once(points["backend"].map(backend_name)), look=whole),
            Column(
                "point",
                [f"{of}{star}" for of, star in zip(points["point"], stars, strict=True)],
                kind="point",
            ),
            Column("name", names, look={"min_width": 4, "overflow": "ellipsis"}),
            number("latency", points["latency_s"] * scale, digits, unit),
            number("bound", points["latency_bound_s"] * scale, digits, unit),
            number("eff", points["latency_efficiency"] * 100, 0, "%"),
            number("img", points["throughput_ips"], 2, "/s"),
            number("eff", points["throughput_efficiency"] * 100, 0, "%"),
        ],
        "loaded": [number("loaded", points["loaded_latency_s"] * scale, digits, unit)],
        "gain": [number("gain", points["pipeline_gain"], 1, "x")],
        "bound_by": [Column("bound", steps, "by", look={"no_wrap": True, "overflow": "ellipsis"})],
        "busiest": [Column("busiest", busiest, "%", look={"no_wrap": True, "overflow": "ellipsis"})],
        "energy": [Column("J", joules, kind="number")],
        "top1": [number(_HEADS[_quality(points)], points[_quality(points)] * 100, 1, "%")],
        "p": [_sure("%", points["probability"])],
        "p all": [_sure("all", points["probability_all"])],
    }
    return [column for name, some in columns.items() if name in has | {"", "p"} for column in some]


def _sure(unit: str, shares: pd.Series) -> Column:
    return Column("sure", [sureness(share) for share in shares], unit, "number")


def _quality(points: pd.DataFrame) -> str:
    """The column of what a codec costs, `agreement` or the like where no label says what is right; without one,
    `top1`.
    """
    with_codec = ~is_none(points["codec"])
    if not with_codec.any() or points[TOP1].notna().all():
        return TOP1
    return next((name for name in (AGREEMENT, MEAN_IOU, MAP50) if points[name].notna().any()), AGREEMENT)


def _quality_note(points: pd.DataFrame) -> str:
    """The meaning of that column; of a codec whose cost in quality is not known, a word that it is not."""
    column = _quality(points)
    if points[column].notna().any():
        if column in (MEAN_IOU, MAP50):
            return f"{_HEADS[column]} = {WORDS[column]} against the whole model without a codec"
        images = points[f"{column}_images"].dropna()
        shown = {TOP1: "top-1", AGREEMENT: "agree = same top class as the whole model without a codec,"}[
            column
        ]
        return f"{shown} of {_images(images)}" if len(images) else shown.rstrip(",")
    codec = str(points["codec"].iloc[0])
    return "" if codec in ("", "none") else f"what {codec} costs in accuracy was not measured"


def _why_empty(rows: pd.DataFrame, objectives: Sequence[str], where: str) -> str:
    """The reason why no point is on a front."""
    measured = rows[rows["rounds"] > 0]
    if measured.empty:
        return f"no valid trial, {int(rows['left_out'].sum())} left out"
    feasible = measured[measured["feasible"].astype(bool)]
    if feasible.empty:
        return "no point satisfies the constraint" + (f" {where}" if where else "")
    unknown = [each.name for each in chosen(objectives) if feasible[each.column].isna().all()]
    if unknown:
        return f"no front: {', '.join(unknown)} not known"
    return f"no front: no point has all of {', '.join(objectives)}"


def _links(chain: Sequence[str]) -> str:
    """The hosts that the numbered links of a chain join; empty text where there is only one link."""
    joined = [f"link {number}: {near}-{far}" for number, (near, far) in enumerate(pairwise(chain), 1)]
    return ", ".join(joined) if len(joined) > 1 else ""


def _images(counts: pd.Series) -> str:
    """`320 images`, or the span where some points saw more of the data than others."""
    least, most = int(counts.min()), int(counts.max())
    return f"{most} images" if least == most else f"{least} to {most} images"


def codecs_table(
    front: pd.DataFrame, objectives: Sequence[str] = DEFAULT, where: str = ""
) -> RenderableType | None:
    """One table for each condition that was measured with several codecs, of the front over all of them; None
    without any.

    Arguments as of `front_table`. Accuracy is among the objectives, unless the constraint says how much is enough.
    """
    tables = [
        _codecs_table(rows, over_codecs(objectives, where), where)
        for _, rows in front.groupby(BUT_CODEC, dropna=False)
        if (rows.loc[rows["backend"] != "", ["codec", AT_WORK]].nunique() > 1).all()
    ]
    return Group(*tables) if tables else None


def _codecs_table(rows: pd.DataFrame, objectives: Sequence[str], where: str) -> RenderableType:
    title = condition_title({**rows.iloc[0].to_dict(), "codec": ""})
    rows = each_once(rows)
    points = rows[rows["on_codec_front"].astype(bool)].sort_values("latency_s", kind="stable")
    if points.empty:
        return Text(f"{title}, over all codecs: {_why_empty(rows, objectives, where)}\n")
    unit, scale = time_unit(float(points["latency_s"].max()))
    ties = points["accuracy"].ne(points[LEVEL]) & points["accuracy"].notna()
    unknown = sorted(set(rows.loc[rows["accuracy"].isna() & (rows["rounds"] > 0), "codec"]))
    notes = [
        f"front of {in_words(objectives, rows)}",
        f"where {where}" if where else "",
        "" if ACCURACY in objectives else f"accuracy = {name_of(rows) or 'not measured'}",
        "* the images cannot tell it from the best of those that are near" if ties.any() else "",
        f"not here, as what they cost in accuracy was not measured: {', '.join(unknown)}" if unknown else "",
        "95 % = interval of the accuracy by the number of images",
        "sure = probability of being on this front",
        ANY_NOTE if (points["backend"] == "").any() else "",
    ]
    names: list[Any] = [Text(str(name), no_wrap=True, overflow="ellipsis") for name in points["point_name"]]
    accuracies = [
        f"{figure(value * 100, 1)}{'*' if tied else ' '}"
        for value, tied in zip(points["accuracy"], ties, strict=True)
    ]
    codecs = [
        codec_name(codec) if backend else UNKNOWN
        for codec, backend in zip(points[AT_WORK], points["backend"], strict=True)
    ]
    columns = [
        Column("codec", codecs),
        Column("backend", [backend_name(backend) for backend in points["backend"]]),
        Column("point", list(points["point"].astype(str)), kind="point"),
        Column("name", names, look={"min_width": 4, "overflow": "ellipsis"}),
        number("latency", points["latency_s"] * scale, 3 if unit == "s" else 2, unit),
        number("img", points["throughput_ips"], 2, "/s"),
        number("wire", points["wire_bytes_per_image"] / 1e3, 1, "kB/img"),
        Column("accuracy", accuracies, "%", "number"),
        Column("95 %", spans(points["accuracy_low"] * 100, points["accuracy_high"] * 100, 1), "%", "number"),
        _sure("%", points["codec_probability"]),
    ]
    return framed(columns, f"{title}: Pareto front over all codecs", notes)


def overhead_table(rows: pd.DataFrame) -> RenderableType:
    """One table a condition, with a line for each backend, from the frame of `analysis.costs.overhead`."""
    tables = []
    for _, group in rows.groupby(CONDITION, dropna=False):
        ordered = by_backend(group, "points")
        columns = [
            Column("backend", list(ordered["backend"]), look={"min_width": 7}),
            *overhead_columns(ordered),
            number("resid.", ordered["residual_s"] * _MS, 2, "ms"),
            number("eff", ordered["latency_efficiency"] * 100, 1, "%"),
        ]
        if ordered["goodput_efficiency"].notna().any():
            columns.append(number("TCP", ordered["goodput_efficiency"] * 100, 1, "%"))
        tables.append(framed(columns, f"{condition_title(group.iloc[0])}: overhead beyond the bound"))
    return Group(*tables, Text(f"{_overhead_notes(rows)}\n")) if tables else Group()


def overhead_columns(rows: pd.DataFrame) -> list[Column]:
    """The columns that terminal and page share: points, a (ms), b (ms/MB), their intervals, TCP's headers."""
    columns = [number("points", rows["points"], 0)]
    for head, column, scale, unit in (("a", "a_s", _MS, "ms"), ("b", "b_s_per_byte", _MS_PER_MB, "ms/MB")):
        name, _, per = column.partition("_")
        low, high = (rows[f"{name}_{end}_{per}"] * scale for end in ("low", "high"))
        cells = zip(figures(rows[column] * scale, 2), rows["note"].fillna(""), strict=True)
        hidden = ["noise" if NOISE[column] in note else cell for cell, note in cells]
        columns.append(Column(head, hidden, unit, "number"))
        columns.append(Column("95 %", spans(low, high, 2), unit, "number"))
    if rows["headers_s_per_byte"].notna().any():
        columns.append(number("headers", rows["headers_s_per_byte"] * _MS_PER_MB, 2, "ms/MB"))
    return columns


def _overhead_notes(rows: pd.DataFrame) -> str:
    """The meaning of the columns, once for all tables."""
    efficiency = "eff = share of the physical bound, median"
    if rows["goodput_efficiency"].notna().any():
        efficiency += "; TCP = of that at TCP's goodput"
    notes = {
        "latency over its bound = a + b x bytes, of payload and result": True,
        "headers = what TCP's headers make of b": rows["headers_s_per_byte"].notna().any(),
        "resid. = median distance from the line": True,
        efficiency: True,
        "noise: hidden by the noise of the rounds": any(
            rows["note"].fillna("").str.contains(hidden).any() for hidden in NOISE.values()
        ),
        f"-: no line through fewer than {MIN_PAYLOADS} payloads, no interval with fewer than {MIN_POINTS} points": (
            (rows["points"] < MIN_POINTS) | (rows["payloads"] < MIN_PAYLOADS)
        ).any(),
    }
    return "; ".join(note for note, is_needed in notes.items() if is_needed)

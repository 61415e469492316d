"""The front in the terminal and in a log: legible at 80 columns and without colour."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from analysis.fronts import energy
from analysis.fronts.objectives import DEFAULT, chosen
from analysis.naming import ANY_NOTE, backend_name, backends, condition_title, time_unit
from analysis.points import CONDITION, hosts, short_step
from analysis.tables.look import figure, framed


def front_table(front: pd.DataFrame, objectives: Sequence[str] = DEFAULT, where: str = "") -> RenderableType:
    """One table per model and profile (and batch size, codec, depth): for each backend, the points on its front.

    A point where nothing crosses stands by itself, under `any`. It is on the fronts of all whose points do not beat it.

    Columns: backend, point, name, latency, its bound and efficiency, throughput (images/s), its efficiency and its gain
    over one request in flight, which step sets its bound, which was busiest, energy (J per image), top-1 accuracy, p,
    the probability that the point is on its backend's front (empty with too few rounds), and p all, of being on that of
    all backends, where there are several; the latency under load if it is an objective. What was not measured has no
    column. Nor, for want of room beside what sets the bound, have: the busiest step in a chain, and with energy, top-1
    or the latency under load; the gain with this one, with both energy and top-1, and with both the busiest step and
    p all; p all with energy or top-1. A star marks the points on the front of all backends
    together. Takes the frame of `analysis.front`, and the `objectives` and the constraint that it was made with: a
    table of others than the usual ones says so. Fits the width of the console it is printed to, shortening
    names first.
    """
    tables: list[RenderableType] = []
    for _, rows in front.groupby(CONDITION, dropna=False):
        tables.append(_table(rows, objectives, where))
    return Group(*tables) if tables else Text("no trials")


def _table(rows: pd.DataFrame, objectives: Sequence[str], where: str) -> RenderableType:
    first = rows.iloc[0]
    title = condition_title(first)
    points = rows[rows["on_backend_front"]]
    excluded = int(rows["left_out"].sum())
    if points.empty:
        return Text(f"{title}: {_why_empty(rows, objectives, where)}\n")
    energy_of, which = str(points["energy_of"].iloc[0]), energy.judged_by(rows)
    has_bound_by, has_top1 = points["bound_by"].ne("").any(), points["top1"].notna().any()
    chain = hosts(str(first["point"]))
    has_loaded = "loaded-latency" in objectives
    has_busiest = points["busiest"].ne("").any() and len(chain) == 2
    has_busiest = has_busiest and not (energy_of or has_top1 or has_loaded)
    several = rows.loc[(rows["rounds"] > 0) & rows["backend"].ne(""), "backend"].nunique() > 1
    has_overall = several and not (has_bound_by and (energy_of or has_top1))
    has_gain = points["pipeline_gain"].notna().any() and not (
        has_loaded or (has_bound_by and ((energy_of and has_top1) or (has_busiest and has_overall)))
    )
    notes = [
        f"front of {', '.join(objectives)}" if set(objectives) != set(DEFAULT) else "",
        f"where {where}" if where else "",
        "* on the front of all backends",
        ANY_NOTE if (points["backend"] == "").any() else "",
        "eff = share of the physical bound",
        f"p = probability of being on the backend's front{', p all = on that of all' if has_overall else ''}",
        "loaded = latency at these images/s" if has_loaded else "",
        "gain = images/s as a multiple of those with one in flight" if has_gain else "",
        "bound by = the step that sets the bound of images/s" if has_bound_by else "",
        "busiest = the step that was busy for the greatest share of the time, %" if has_busiest else "",
        _links(chain) if points["bound_by"].str.contains("-").any() else "",
        f"J = energy per image{' above idle' if which == energy.ACTIVE else ''}, {energy_of}"
        if energy_of
        else "",
        f"top-1 of {_images(points['top1_images'])}" if has_top1 else "",
        f"{excluded} trial{'s' if excluded > 1 else ''} excluded" if excluded else "",
    ]
    unit, scale = time_unit(float(points["latency_s"].max()))
    time_digits = 3 if unit == "s" else 2
    table = framed(f"{title}: Pareto front", "; ".join(note for note in notes if note))
    # A long label is folded, not cut: its end may be all that tells it apart.
    table.add_column("backend", overflow="fold", no_wrap=points["backend"].str.len().max() <= len("backend"))
    table.add_column("point", justify="right", no_wrap=True)
    # May be narrowed too: its cells, not the column, refuse to wrap.
    table.add_column("name", min_width=4)
    for header in (f"latency\n{unit}", f"bound\n{unit}", "eff\n%", "img\n/s", "eff\n%"):
        table.add_column(header, justify="right", no_wrap=True)
    if has_loaded:
        table.add_column(f"loaded\n{unit}", justify="right", no_wrap=True)
    if has_gain:
        table.add_column("gain\nx", justify="right", no_wrap=True)
    if has_bound_by:
        table.add_column("bound\nby", no_wrap=True)
    if has_busiest:
        table.add_column("busiest\n%", no_wrap=True)
    measured = (*(["J"] if energy_of else []), *(["top-1\n%"] if has_top1 else []))
    for header in (*measured, "p", *(["p\nall"] if has_overall else [])):
        table.add_column(header, justify="right", no_wrap=True)
    for backend in backends(points):
        of_backend = points[points["backend"] == backend].sort_values("latency_s").to_dict("records")
        for number, row in enumerate(of_backend):
            table.add_row(
                "" if number else backend_name(backend),
                f"{row['point']}{'*' if row['on_front'] else ' '}",
                Text(str(row["point_name"]), no_wrap=True, overflow="ellipsis"),
                figure(row["latency_s"] * scale, time_digits),
                figure(row["latency_bound_s"] * scale, time_digits),
                figure(row["latency_efficiency"] * 100, 0),
                figure(row["throughput_ips"], 2),
                figure(row["throughput_efficiency"] * 100, 0),
                *([figure(row["loaded_latency_s"] * scale, time_digits)] if has_loaded else []),
                *([figure(row["pipeline_gain"], 1)] if has_gain else []),
                *([short_step(row["bound_by"], len(chain)) or "-"] if has_bound_by else []),
                *([_busiest(row, len(chain))] if has_busiest else []),
                *([figure(row[which], 3 if row[which] < 10 else 2)] if energy_of else []),
                *([figure(row["top1"] * 100, 1)] if has_top1 else []),
                figure(row["probability"], 2),
                *([figure(row["probability_all"], 2)] if has_overall else []),
            )
        table.add_section()
    return table


def _busiest(row: Mapping[Hashable, Any], chain: int) -> str:
    """`edge 86`; a dash where it is not known."""
    if not row["busiest"]:
        return "-"
    return f"{short_step(row['busiest'], chain)} {figure(row['busiest_utilization'] * 100, 0)}"


def _why_empty(rows: pd.DataFrame, objectives: Sequence[str], where: str) -> str:
    """Why no point is on a front."""
    measured = rows[rows["rounds"] > 0]
    if measured.empty:
        return f"no valid trial, {int(rows['left_out'].sum())} excluded"
    feasible = measured[measured["feasible"].astype(bool)]
    if feasible.empty:
        return "no point satisfies the constraint" + (f" {where}" if where else "")
    unknown = [each.name for each in chosen(objectives) if feasible[each.column].isna().all()]
    return (
        f"no front: {', '.join(unknown)} not measured"
        if unknown
        else (f"no front: no point has all of {', '.join(objectives)}")
    )


def _links(chain: Sequence[str]) -> str:
    """Which hosts the numbered links of a chain join; nothing where there is but one link."""
    joined = [f"link {number}: {near}-{far}" for number, (near, far) in enumerate(pairwise(chain), 1)]
    return ", ".join(joined) if len(joined) > 1 else ""


def _images(counts: pd.Series) -> str:
    """`320 images`, or the span where some points saw more of the data than others."""
    least, most = int(counts.min()), int(counts.max())
    return f"{most} images" if least == most else f"{least} to {most} images"

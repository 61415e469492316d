"""One table of what was measured, least latency first: of all conditions, as the terminal shows it, and of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from rich.console import RenderableType
from rich.text import Text

from pareto.analysis.fronts import energy
from pareto.analysis.fronts.objectives import ACCURACY, DEFAULT, chosen
from pareto.analysis.fronts.quality import in_words, is_none, name_of
from pareto.analysis.naming import ANY_NOTE, backend_name, condition_title, count, time_unit, unusual
from pareto.analysis.runs.points import CONDITION, NONE, hosts, short_step, undivided
from pareto.analysis.tables.columns import UNKNOWN, Column, Framed, number, starts, sureness

MOST_ROWS = 24
"""The most points of which all are shown: beyond it, those that are on a front or that an answer names."""
WIDTH = 80
MOST_WHOLE = 24
"""Characters of a condition's cell that is never broken."""
NAMED = 3
"""An answer names so many of the fastest."""
_HEADS = {
    "model": "model",
    "netem": "network",
    "batch_size": "batch",
    "codec": "codec",
    "engine": "engine",
    "in_flight_asked": "in flight",
    "prefetch_asked": "prefetch",
    "allocator": "allocator",
    "setup": "setup",
}
_GIVE_WAY = ("bound", "name", "eff", "accuracy")
"""The columns that are left out where 80 characters have no room for them, first to last."""


def overview(
    front: pd.DataFrame,
    objectives: Sequence[str] = DEFAULT,
    where: str = "",
    *,
    simulated: bool = False,
    every: bool = False,
) -> Framed:
    """The table: for each condition its points, least latency first; a star marks those on the front.

    front: of `analysis.fronts.front.front`, made with these objectives and constraint. Unless `every` point is wanted,
    beyond `MOST_ROWS` only those on a front, the whole model on either host and the fastest are shown; of more than
    half as many conditions, the fastest point of each. Columns say how the conditions differ; what is the same for all
    stands in the title.
    """
    measured = front[front["rounds"] > 0]
    allowed = measured[measured["feasible"].astype(bool)]
    shown, which = chosen_points(allowed, len(allowed) if every else MOST_ROWS)
    apart = [name for name in CONDITION if front[name].nunique(dropna=False) > 1]
    same = {name: "" if name in apart else value for name, value in front.iloc[0][CONDITION].items()}
    columns = _fitting([*_condition_columns(shown, apart), *_columns(shown, objectives, every=every)])
    heads = {column.head for column in columns}
    has_front = bool(allowed["on_front"].any())
    unsure = allowed["probability_all"].isna()
    notes = {
        "simulated: nothing of this was measured": simulated,
        f"{len(shown)} of {len(measured)} points are shown{which}": len(shown) < len(measured),
        f"where {where}": where,
        f"* on the front of {in_words(objectives, allowed)}": has_front or not every,
        "sure = probability of being on it": not unsure.all(),
        "no `sure`: too few or too noisy rounds, or points without a figure": unsure.all(),
        ANY_NOTE: (shown["backend"] == NONE).any(),
        "eff = share of the physical bound": True,
        _left_out(front): front["left_out"].any(),
        "bound by = the step that sets the bound of images/s": "bound" in heads,
        f"accuracy = {name_of(allowed)}": every and "accuracy" in heads and ACCURACY not in objectives,
        why_empty(front, objectives, where): every and not has_front,
    }
    groups = starts(shown["at"]) if apart and len(shown) > shown["at"].nunique() else []
    title = condition_title(front.iloc[0]) if every else _title(same)
    return Framed(columns, title, [note for note, is_needed in notes.items() if is_needed], groups)


def of_each(
    front: pd.DataFrame, objectives: Sequence[str] = DEFAULT, where: str = ""
) -> list[RenderableType]:
    """A table for each condition, of all its points; of one without any, the reason."""
    return [
        overview(rows, objectives, where, every=True)
        if (rows["feasible"].astype(bool) & (rows["rounds"] > 0)).any()
        else Text(f"{condition_title(rows.iloc[0])}: {why_empty(rows, objectives, where)}\n")
        for _, rows in front.groupby(CONDITION, dropna=False)
    ]


def why_empty(rows: pd.DataFrame, objectives: Sequence[str], where: str) -> str:
    """The reason why no point is on a front."""
    measured = rows[rows["rounds"] > 0]
    if measured.empty:
        return f"no valid trial, {int(rows['left_out'].sum())} left out"
    feasible = measured[measured["feasible"].astype(bool)]
    if feasible.empty:
        return "no point satisfies the constraint" + (f" {where}" if where else "")
    unknown = [each.name for each in chosen(objectives) if feasible[each.column].isna().all()]
    return (
        f"no front: {', '.join(unknown)} not known"
        if unknown
        else f"no point has all of {', '.join(objectives)}"
    )


def chosen_points(rows: pd.DataFrame, most: int = MOST_ROWS) -> tuple[pd.DataFrame, str]:
    """The rows that are shown, in their order; and which these are, unless all."""
    # Categories and texts alike: in the order in which every table has the conditions.
    ordered = rows.assign(at=rows.groupby(CONDITION, dropna=False).ngroup()).sort_values(
        ["at", "latency_s"], kind="stable"
    )
    if len(ordered) <= most:
        return ordered, ""
    place = ordered.groupby("at").cumcount()
    if ordered["at"].nunique() > most // 2:
        return ordered[place == 0], ": of each condition the fastest"
    ends = pd.Series(False, index=ordered.index)
    for _, of_condition in ordered.groupby("at"):
        ends[of_condition.index] = undivided(of_condition)
    kept = ordered["on_front"].astype(bool) | ends | (place < NAMED)
    return ordered[kept], ": those on a front, the fastest, and the whole model on either host"


def _title(same: dict[Any, Any]) -> str:
    """`mobilenet_v2 at wifi, batch size 1`, without what differs."""
    if all(same.values()):
        return condition_title(same)
    named = [str(same["model"] or "several models")]
    named[0] += f" at {same['netem']}" if same["netem"] else ""
    named += [f"batch size {same['batch_size']}"] if same["batch_size"] else []
    return ", ".join(filter(None, [*named, *unusual(same), str(same["setup"])]))


def _condition_columns(rows: pd.DataFrame, apart: Sequence[str]) -> list[Column]:
    """A column for each thing that conditions differ in, written where it changes."""
    made = []
    for place, name in enumerate(apart):
        # What stands left of it changes too: else a codec would seem to be of the network above.
        keys = rows[list(apart[: place + 1])].itertuples(index=False, name=None)
        begins = starts(pd.Series(["\t".join(map(str, key)) for key in keys], dtype=object))
        cells = [str(value) if begin else "" for value, begin in zip(rows[name], begins, strict=True)]
        # A name gives way before a setup is broken in the middle of a word.
        whole = {"no_wrap": True} if max(map(len, cells), default=0) <= MOST_WHOLE else {}
        made.append(Column(_HEADS[name], cells, look=whole))
    return made


def _columns(rows: pd.DataFrame, objectives: Sequence[str], *, every: bool) -> list[Column]:
    unit, scale = time_unit(float(rows["latency_s"].max()) if len(rows) else 0.0)
    chain = len(hosts(str(rows["point"].iloc[0]))) if len(rows) else 2
    names: list[Any] = [Text(str(name), no_wrap=True, overflow="ellipsis") for name in rows["point_name"]]
    stars = ["*" if on_front else " " for on_front in rows["on_front"]]
    columns = [
        Column("backend", [backend_name(backend) for backend in rows["backend"]]),
        Column(
            "point",
            [f"{point}{star}" for point, star in zip(rows["point"], stars, strict=True)],
            kind="point",
        ),
        Column("name", names, look={"min_width": 6, "overflow": "ellipsis"}),
        number("latency", rows["latency_s"] * scale, 3 if unit == "s" else 2, unit),
        number("eff", rows["latency_efficiency"] * 100, 0, "%"),
        number("images", rows["throughput_ips"], 2, "/s"),
        number("eff", rows["throughput_efficiency"] * 100, 0, "%"),
        Column("bound", [short_step(step, chain) or UNKNOWN for step in rows["bound_by"]], "by"),
    ]
    lossy = every and not is_none(rows["codec"]).all()
    if lossy or rows["codec"].nunique() > 1 or ACCURACY in objectives:
        columns.append(number("accuracy", rows["accuracy"] * 100, 1, "%"))
    if {"energy", "active-energy"} & set(objectives):
        columns.append(number("J", rows[energy.judged_by(rows)], 2))
    if "loaded-latency" in objectives:
        columns.append(number("loaded", rows["loaded_latency_s"] * scale, 2, unit))
    columns.append(Column("sure", [sureness(share) for share in rows["probability_all"]], "%", "number"))
    return [column for column in columns if column.kind == "text" or set(column.cells) - {UNKNOWN}]


def _fitting(columns: list[Column]) -> list[Column]:
    """The columns without those that give way where a line has no room for all."""
    for head in (*_GIVE_WAY, ""):
        if not head or sum(map(_width, columns)) + 1 <= WIDTH:
            break
        columns = [column for column in columns if column.head != head]
    return columns


def _width(column: Column) -> int:
    cells = ["" if column.head == "name" else str(cell) for cell in column.cells]
    return 1 + max(
        10 if column.head == "name" else 0, len(column.head), len(column.unit), *map(len, cells), 0
    )


def _left_out(front: pd.DataFrame) -> str:
    # Where nothing crosses, a cell stands for several codecs, and its trials are in the row of each.
    once_each = front.drop_duplicates([name for name in (*CONDITION, "backend", "point") if name != "codec"])
    number_out = int((front if front["codec"].nunique() == 1 else once_each)["left_out"].sum())
    return f"{count(number_out, 'trial')} left out, as invalid or failed: trials.csv says why"

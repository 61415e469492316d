"""The tables of a report: its points, the front over all codecs, overheads, testbeds; the columns of all points."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from pareto.analysis.costs import MIN_PAYLOADS, MIN_POINTS, NOISE
from pareto.analysis.fronts import energy
from pareto.analysis.fronts.front import over_codecs
from pareto.analysis.fronts.objectives import ACCURACY, DEFAULT, chosen
from pareto.analysis.fronts.quality import LEVEL, codec_name, in_words, is_none, name_of
from pareto.analysis.naming import ANY_NOTE, backend_name, condition_title, count, unusual
from pareto.analysis.runs.comparable import of_testbed
from pareto.analysis.runs.load import Run
from pareto.analysis.runs.manifest import section
from pareto.analysis.runs.points import BUT_CODEC, CONDITION, NONE, hosts, round_of, short_step, undivided
from pareto.analysis.runs.standing import stands
from pareto.analysis.runs.treatments import AT_WORK, each_once
from pareto.analysis.statistics.significance import MEASURES
from pareto.analysis.tables.table import (
    ELLIPSIS,
    UNKNOWN,
    Column,
    Table,
    by_backend,
    numbers,
    starts,
    sureness,
    times,
    written,
)

MOST_ROWS = 24
"""The most points of which all are shown: beyond it, those that are on a front or that an answer names."""
WIDTH, NAME = 80, 10
"""Characters of a line, and of a point's name that is not cut."""
MOST_WHOLE = 24
"""Characters of a condition's cell that is never broken."""
NAMED = 3
"""An answer names so many of the fastest."""
_HEADS = dict(zip(CONDITION, CONDITION, strict=True)) | {
    **{"netem": "network", "batch_size": "batch"},
    **{"in_flight_asked": "in flight", "prefetch_asked": "prefetch"},
}
_POINT = ["backend", "point", "name", "latency"]
_GIVE_WAY = ("bound-by", "p95", "name", "latency-interval", "of-bound", "accuracy")
"""The columns that are left out where 80 characters have no room for them, first to last."""
NOTES = {
    "latency-interval": "95 % = interval of the median over rounds",
    "latency-eff": "eff = share of the physical bound",
    "of-bound": "of bound = what was reached of the physical bounds of latency and images/s",
    "bound-by": "bound by = the step that sets the bound of images/s",
    "crossing": "crossing = what a MB that crosses costs the edge, above its idle power and its stage",
    "sure": "sure = probability of being on the front",
}
"""The meanings of columns, by their names."""
_OVERHEAD: tuple[tuple[Any, ...], ...] = (
    ("points", "points", "", 0),
    ("a", "a_s", "ms", 2, 1e3),
    ("95 %", "a_{}_s", "ms", 2, 1e3),
    ("b", "b_s_per_byte", "ms/MB", 2, 1e9),
    ("95 %", "b_{}_s_per_byte", "ms/MB", 2, 1e9),
    ("headers", "headers_s_per_byte", "ms/MB", 2, 1e9),
    ("resid.", "residual_s", "ms", 2, 1e3),
    ("eff", "latency_efficiency", "%", 1, 100),
    ("TCP", "goodput_efficiency", "%", 1, 100),
)
"""The columns of a backend's line, as `numbers` takes them."""
_OF_TESTBEDS = (
    "latency, throughput = how much more its rounds have than those of the others of equal hardware (the median over "
    "models and networks)",
    "testbeds.csv has each, with its interval",
)


def points(
    rows: pd.DataFrame, sure: str = "probability_all", longest_s: float | None = None
) -> dict[str, Column]:
    """By name the columns that tables of points have, as far as the rows do.

    sure: the column of the probability. longest_s: the time whose unit all have, by default the longest.
    """
    time = times(float(rows["latency_s"].max()) if longest_s is None else longest_s)
    figures: dict[str, tuple[Any, ...]] = {
        "latency": ("latency", "latency_s", *time),
        "latency-interval": ("95 %", "latency_{}_s", *time),
        "p95": ("p95", "latency_p95_s", *time),
        "latency-eff": ("eff", "latency_efficiency", "%", 0, 100),
        "bound": ("bound", "latency_bound_s", *time),
        "images": ("images", "throughput_ips", "/s"),
        "images-interval": ("95 %", "throughput_{}_ips", "/s"),
        "images-eff": ("eff", "throughput_efficiency", "%", 0, 100),
        "wire": ("wire", "wire_bytes_per_image", "kB/img", 1, 1e-3),
        "accuracy": ("accuracy", "accuracy", "%", 1, 100),
        "accuracy-interval": ("95 %", "accuracy_{}", "%", 1, 100),
        "energy": ("energy", energy.judged_by(rows), "J"),
        "crossing": ("crossing", "crossing_j_per_byte", "J/MB", 2, 1e6),
        "crossing-interval": ("95 %", "crossing_{}_j_per_byte", "J/MB", 2, 1e6),
        "loaded": ("loaded", "loaded_latency_s", *time),
    }
    marks = rows["on_front"].astype(bool).map({True: "*", False: " "}) if "on_front" in rows else ""
    chain = len(hosts(str(rows["point"].iloc[0]))) if len(rows) else 2
    steps = [short_step(step, chain) or UNKNOWN for step in rows.get("bound_by", ())]
    sured = [sureness(share) for share in rows.get(sure, ())]
    reached = rows.reindex(columns=["latency_efficiency", "throughput_efficiency"]).to_numpy() * 100
    shares = [" ".join(written(each, 0) for each in both) for both in reached.tolist()]
    columns = {
        "of-bound": Column("of bound", ["" if each == "- -" else each for each in shares], "%", "number"),
        "backend": Column("backend", [*rows["backend"].map(backend_name)]),
        "point": Column("point", [*(rows["point"].astype("str") + marks)], kind="point"),
        "name": Column("name", [*rows["point_name"].astype("str")], look=ELLIPSIS),
        "bound-by": Column("bound by", steps),
        "sure": Column("sure", sured, "%", "number"),
    }
    known = {name: of for name, of in figures.items() if of[1].format("low") in rows}
    return columns | {name: numbers(rows, *of) for name, of in known.items()}


def overview(
    front: pd.DataFrame,
    objectives: Sequence[str] = DEFAULT,
    where: str = "",
    *,
    simulated: bool = False,
    most: int = MOST_ROWS,
) -> Table:
    """The table: for each condition its points, least latency first; a star marks those on the front.

    front: of `analysis.fronts.front.front`, made with these objectives and constraint. Beyond so many (`most`) points
    only those on a front, the whole model on either host and the fastest are shown; of more than half as many
    conditions, the fastest point of each. Columns say how the conditions differ; what is the same for all stands in
    the title.
    """
    measured = front[front["rounds"] > 0]
    allowed = measured[measured["feasible"].astype(bool)]
    title, apart = sameness(front)
    if allowed.empty:
        return Table(f"{title}: {why_empty(front, objectives, where)}")
    shown, which = chosen_points(allowed, most)
    is_energy = {"energy", "active-energy"} & set(objectives)
    wanted = {
        **dict.fromkeys([*_POINT, "latency-interval", "p95", "images", "of-bound", "bound-by"], True),
        "accuracy": not is_none(shown["codec"]).all() or ACCURACY in objectives,
        **dict.fromkeys(("energy", "crossing", "crossing-interval"), is_energy),
        "loaded": "loaded-latency" in objectives,
        "sure": True,
    }
    made = points(shown)
    known = {name: made[name] for name, is_wanted in wanted.items() if is_wanted and name in made}
    columns = fitting(condition_columns(shown, apart) | known)
    has_front, unsure = bool(allowed["on_front"].any()), allowed["probability_all"].isna().all()
    # Where nothing crosses, a cell stands for several codecs, and its trials are in the row of each.
    left_out = int(each_once(front)["left_out"].sum())
    notes = {
        "simulated: nothing of this was measured": simulated,
        f"{len(shown)} of {len(measured)} points are shown{which}": len(shown) < len(measured),
        f"where {where}": where,
        f"* on the front of {in_words(objectives, allowed)}": has_front,
        NOTES["sure"]: not unsure,
        "no `sure`: too few or too noisy rounds, or points without a figure": unsure,
        ANY_NOTE: (shown["backend"] == NONE).any(),
        NOTES["latency-interval"]: "latency-interval" in columns,
        NOTES["of-bound"]: "of-bound" in columns,
        f"{count(left_out, 'trial')} left out, as invalid or failed: trials.csv says why": left_out,
        NOTES["bound-by"]: "bound-by" in columns,
        NOTES["crossing"]: "crossing" in columns,
        f"accuracy = {name_of(allowed)}": "accuracy" in columns and ACCURACY not in objectives,
        why_empty(front, objectives, where): not has_front,
    }
    groups = starts(shown["at"]) if apart and len(shown) > shown["at"].nunique() else []
    return Table(title, columns.values(), notes, groups)


def sameness(rows: pd.DataFrame) -> tuple[str, list[str]]:
    """The title that says what is the same for all rows, and the columns of `CONDITION` in which they differ."""
    apart = [name for name in CONDITION if rows[name].nunique(dropna=False) > 1]
    same = {name: "" if name in apart else value for name, value in rows.iloc[0][CONDITION].items()}
    where_to, size = f" at {same['netem']}" * bool(same["netem"]), f"batch size {same['batch_size']}"
    parts = [f"{same['model'] or 'several models'}{where_to}", size * bool(same["batch_size"])]
    title = ", ".join(filter(None, [*parts, *unusual(same), str(same["setup"])]))
    return title if apart else condition_title(same), apart


def codecs_tables(front: pd.DataFrame, objectives: Sequence[str] = DEFAULT, where: str = "") -> list[Table]:
    """A table for each condition that was measured with several codecs, of the front over all of them.

    front, objectives, where: as of `overview`. Accuracy is among the objectives, unless the constraint says how much is
    enough.
    """
    return [
        _codecs_table(rows, over_codecs(objectives, where), where)
        for _, rows in front.groupby(BUT_CODEC, dropna=False)
        if (rows.loc[rows["backend"] != NONE, ["codec", AT_WORK]].nunique() > 1).all()
    ]


def _codecs_table(rows: pd.DataFrame, objectives: Sequence[str], where: str) -> Table:
    title = condition_title({**rows.iloc[0].to_dict(), "codec": ""})
    rows = each_once(rows)
    on_front = rows[rows["on_codec_front"].astype(bool)].sort_values("latency_s", kind="stable")
    if on_front.empty:
        return Table(f"{title}, over all codecs: {why_empty(rows, objectives, where)}")
    ties = on_front["accuracy"].ne(on_front[LEVEL]) & on_front["accuracy"].notna()
    unknown = sorted(set(rows.loc[rows["accuracy"].isna() & (rows["rounds"] > 0), "codec"]))
    made = points(on_front.drop(columns="on_front"), "codec_probability")
    nothing = on_front["backend"] == NONE
    notes = {
        f"front of {in_words(objectives, rows)}": True,
        f"where {where}": where,
        f"accuracy = {name_of(rows) or 'not measured'}": ACCURACY not in objectives,
        "* the images cannot tell it from the best of those that are near": ties.any(),
        f"not here, as what they cost in accuracy was not measured: {', '.join(unknown)}": unknown,
        "95 % = interval of the accuracy by the number of images": made["accuracy-interval"].says_something,
        "sure = probability of being on this front": made["sure"].says_something,
        ANY_NOTE: nothing.any(),
    }
    accuracies = zip(made["accuracy"].cells, ties, strict=True)
    columns = [
        Column("codec", [*on_front[AT_WORK].map(codec_name).mask(nothing, UNKNOWN)]),
        *(made[name] for name in (*_POINT, "images", "wire")),
        Column("accuracy", [f"{cell}{'*' if tied else ' '}" for cell, tied in accuracies], "%", "number"),
        *(made[name] for name in ("accuracy-interval", "sure")),
    ]
    return Table(f"{title}: Pareto front over all codecs", columns, notes)


def why_empty(rows: pd.DataFrame, objectives: Sequence[str], where: str) -> str:
    """The reason why no point is on a front."""
    measured = rows[rows["rounds"] > 0]
    if measured.empty:
        return f"no valid trial, {int(rows['left_out'].sum())} left out"
    feasible = measured[measured["feasible"].astype(bool)]
    if feasible.empty:
        return f"no point satisfies the constraint {where}".strip()
    unknown = [each.name for each in chosen(objectives) if feasible[each.column].isna().all()]
    known = f"no point has all of {', '.join(objectives)}"
    return f"no front: {', '.join(unknown)} not known" if unknown else known


def chosen_points(rows: pd.DataFrame, most: int = MOST_ROWS) -> tuple[pd.DataFrame, str]:
    """The rows that are shown, in their order; and which these are, unless all."""
    # Categories and texts alike: in the order in which every table has the conditions.
    placed = rows.assign(at=rows.groupby(CONDITION, dropna=False).ngroup())
    ordered = placed.sort_values(["at", "latency_s"], kind="stable")
    if len(ordered) <= most:
        return ordered, ""
    place = ordered.groupby("at").cumcount()
    if ordered["at"].nunique() > most // 2:
        return ordered[place == 0], ": of each condition the fastest"
    ends = pd.concat([undivided(of_condition) for _, of_condition in ordered.groupby("at")])
    kept = ordered["on_front"].astype(bool) | ends | (place < NAMED)
    return ordered[kept], ": those on a front, the fastest, and the whole model on either host"


def condition_columns(rows: pd.DataFrame, apart: Sequence[str]) -> dict[str, Column]:
    """A column for each thing that conditions differ in, written where it changes."""
    made = {}
    for place, name in enumerate(apart):
        # What stands left of it changes too: else a codec would seem to be of the network above.
        texts = rows[apart[: place + 1]].astype("str")
        cells = [*texts[name].where(texts.ne(texts.shift()).any(axis=1), "")]
        # A name gives way before a setup is broken in the middle of a word.
        whole = {"no_wrap": True} if max(map(len, cells), default=0) <= MOST_WHOLE else {}
        made[name] = Column(_HEADS[name], cells, look=whole)
    return made


def fitting(columns: dict[str, Column], give_way: Iterable[str] = _GIVE_WAY) -> dict[str, Column]:
    """The columns that say something, without those that give way where a line has no room for all."""
    columns = {name: column for name, column in columns.items() if column.says_something}
    for least in give_way:
        widths = [min(column.width, NAME if name == "name" else WIDTH) for name, column in columns.items()]
        if sum(widths) + len(widths) < WIDTH:
            break
        columns = {name: column for name, column in columns.items() if name != least}
    return columns


def overhead_tables(rows: pd.DataFrame) -> list[Table]:
    """A table for each condition, with a line for each backend, from the frame of `analysis.costs.overhead`; below the
    last one what their columns mean.
    """
    each = [by_backend(group, "points") for _, group in rows.groupby(CONDITION, dropna=False)]
    return [
        Table(
            f"{condition_title(group.iloc[0])}: overhead beyond the bound",
            [Column("backend", [*group["backend"]], look={"min_width": 7}), *overhead_columns(group)],
            _of_overhead(rows) if place == len(each) else {},
        )
        for place, group in enumerate(each, 1)
    ]


def overhead_columns(rows: pd.DataFrame) -> list[Column]:
    """The points of each line, its coefficients with their intervals, TCP's headers, and what is left."""
    columns = {of: numbers(rows, head, of, *rest) for head, of, *rest in _OVERHEAD}
    for of, why in NOISE.items():
        known = zip(columns[of].values, rows["note"].fillna(""), strict=True)
        values = ["noise" if why in note else value for value, note in known]
        columns[of] = replace(columns[of], values=values)
    return list(columns.values())


def _of_overhead(rows: pd.DataFrame) -> dict[str, bool]:
    has_line = rows["residual_s"].notna().any()
    hidden = rows["note"].fillna("").str.contains("|".join(NOISE.values()))
    few = (rows["points"] < MIN_POINTS) | (rows["payloads"] < MIN_PAYLOADS)
    least = f"fewer than {MIN_PAYLOADS} payloads, no interval with fewer than {MIN_POINTS} points"
    return {
        "latency over its bound = a + b x bytes, of payload and result": has_line,
        "headers = what TCP's headers make of b": rows["headers_s_per_byte"].notna().any(),
        "resid. = median distance from the line": has_line,
        "eff = share of the physical bound, median": True,
        "TCP = of that at TCP's goodput": rows["goodput_efficiency"].notna().any(),
        "noise: hidden by the noise of the rounds": hidden.any(),
        f"no line through {least}": few.any(),
    }


def testbeds_table(runs: Sequence[Run], trials: pd.DataFrame, differences: pd.DataFrame) -> Table | None:
    """The table, a row for each testbed; None of one testbed.

    trials: of `analysis.runs.load`; differences: of `analysis.statistics.testbeds`.
    """
    if "testbed" not in trials or trials["testbed"].nunique() < 2:
        return None
    by_testbed = trials.assign(in_round=round_of(trials), valid=stands(trials)).groupby("testbed")
    counts = by_testbed.agg(rounds=("in_round", "nunique"), trials=("valid", "size"), valid=("valid", "sum"))
    setups = by_testbed["setup"].unique().map(lambda each: "; ".join(filter(None, each)))
    # Of each host, by its role, what the last session on the testbed recorded.
    facts = {
        name: {
            role: section(session, "hosts", role)
            for run in runs
            if set(run.names) & set(of["run"])
            for session in of_testbed(run.manifest, str(name))
            for role in section(session, "hosts")
        }
        for name, of in by_testbed
    }
    columns = [
        Column("testbed", [*counts.index]),
        Column("setup", [*setups]),
        Column("hosts", [_joined(facts[name], "hostname") for name in counts.index]),
        Column("hardware", [_joined(facts[name], "cpu", "cuda") for name in counts.index]),
        *(Column(head, [*counts[head].astype("str")], kind="number") for head in counts),
    ]
    medians = differences.groupby(["measure", "testbed"])["difference_percent"].median()
    for measure in MEASURES:
        if measure in medians.index:
            apart = medians[measure].reindex(counts.index)
            cells = [f"{'+' * (value > 0)}{written(value, 1)}" for value in apart]
            columns.append(Column(measure, cells, "%", "number"))
    return Table(f"{len(counts)} testbeds", columns, dict.fromkeys(_OF_TESTBEDS, len(medians)))


def _joined(facts: Mapping[str, Mapping[str, Any]], *keys: str) -> str:
    """`edge pi4; server gpu1`; what is the same on all hosts once."""
    each = {
        role: ", ".join(str(host[key]) for key in keys if host.get(key)) or UNKNOWN
        for role, host in facts.items()
    }
    if len(set(each.values())) == 1:
        return next(iter(each.values()))
    return "; ".join(f"{role} {text}" for role, text in each.items()) or UNKNOWN

"""The results of comparing backends, or runs, in plain words: a line for each condition."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import pandas as pd

from pareto.analysis.comparing.paired import ALL
from pareto.analysis.fronts.quality import codec_name
from pareto.analysis.naming import condition_title, count, transport
from pareto.analysis.points import CONDITION
from pareto.analysis.statistics import significance
from pareto.analysis.wording import ms, percentage

Row = Mapping[Hashable, Any]


def verdicts(rows: pd.DataFrame, struck_off: pd.DataFrame | None = None) -> Iterator[str]:
    """A line for each condition and pair of backends, codecs or engines, from the frame of
    `analysis.comparing.paired.paired`.

    struck_off: the cells that a search struck off (`analysis.runs.struck`), whose trials are in no pair.
    """
    against_base = "backend" in rows
    searched: set[tuple[Hashable, ...]] = set()
    if struck_off is not None:
        searched = set(struck_off[CONDITION].itertuples(index=False, name=None))
    pairs = [*rows.columns.intersection([*CONDITION, "backend"]), "first", "other"]
    for _, of_pair in rows.groupby(pairs, dropna=False, observed=True, sort=False):
        is_all = of_pair["point"] == ALL
        (row,) = of_pair[is_all].to_dict("records")
        row |= {"codec": row.get("codec", "")}
        if row["pairs"] or row["throughput_pairs"]:
            over = f" over {row['backend']}" if against_base and rows["backend"].nunique() > 1 else ""
            parts = (_latency(row), "" if against_base else _overhead(row), _points(of_pair[~is_all]))
            yield f"{condition_title(row)}{over}: {'; '.join(filter(None, (*parts, _throughput(row), _same(row))))}"
        elif not against_base:
            why = "no point that crosses the link has valid trials of both in one round"
            if tuple(row[name] for name in CONDITION) in searched:
                why = "after what the search struck off no point that crosses the link is left over both"
            yield f"{condition_title(row)}: {row['first']} and {row['other']} not compared: {why}"


def _same(row: Row) -> str:
    """A note on two names of one transport."""
    of_first = transport(str(row["first"]))
    is_label = "backend" not in row and of_first == transport(str(row["other"]))
    return f"both are {of_first}" if is_label else ""


def _latency(row: Row) -> str:
    """The difference over all points."""
    first, other = (codec_name(row[name]) if not row["codec"] else row[name] for name in ("first", "other"))
    difference_s, low_s, high_s = (row[f"latency_{end}_s"] for end in ("difference", "low", "high"))
    if math.isnan(difference_s):
        return f"no latencies of {first} and {other} in one round that can be trusted"
    span = f"{count(row['points'], 'point')} x {count(row['rounds'], 'round')}"
    if row["pairs"] != row["points"] * row["rounds"]:
        span = f"{count(row['pairs'], 'pair')} at {count(row['points'], 'point')}"
    span = f"by the points, {span}" if row["interval_over"] == "points" else span
    share = f"{percentage(abs(row['latency_difference_percent']))} %"
    way = "longer" if difference_s >= 0 else "shorter"
    taken = f"{ms(abs(difference_s))} ms ({share}) {way} than {first}"
    if math.isnan(low_s):
        return f"{other} took {taken}, {span}: too few rounds for an interval, may be chance"
    if low_s <= 0 <= high_s:
        seen = f"no difference seen over all points between {first} and {other}: {ms(difference_s)} ms"
        return f"{seen} (95 %: {ms(low_s)} to {ms(high_s)} ms; {span})"
    near_s, far_s = sorted((abs(low_s), abs(high_s)))
    return f"{other} takes {taken} (95 %: {ms(near_s)} to {ms(far_s)} ms; {span})"


def _overhead(row: Row) -> str:
    """The difference without what the stages' own times differed by, which is seldom the backend's doing."""
    difference_s, low_s, high_s = (row[f"overhead_{end}_s"] for end in ("difference", "low", "high"))
    if math.isnan(low_s):
        return ""
    return f"beyond stages and link {ms(difference_s)} ms ({ms(low_s)} to {ms(high_s)} ms)"


def _points(points: pd.DataFrame) -> str:
    """The points at which the interval is without 0, each by itself; and what the test at the best point says."""
    points = points[points["latency_low_s"].notna()]
    if points.empty:
        return ""
    apart = points[(points["latency_low_s"] > 0) | (points["latency_high_s"] < 0)]
    sides = []
    for sign, way in ((1, "longer"), (-1, "shorter")):
        those = apart[apart["latency_difference_s"] * sign > 0]
        if len(those):
            most = those.loc[those["latency_difference_s"].abs().idxmax()]
            near, far = sorted(abs(most[end]) for end in ("latency_low_s", "latency_high_s"))
            by = f"{ms(abs(most['latency_difference_s']))} ms ({ms(near)} to {ms(far)}) {way}"
            several = f"{len(those)} points, most at " if len(those) > 1 else "point "
            sides.append(f"{most['other']} takes {by} at {several}{most['point']}")
    text = f"apart at {len(apart) or 'none'} of {count(len(points), 'point')}"
    if sides and (by_chance := round(significance.ALPHA * len(points))):
        text += f" (by chance at about {by_chance})"
    text += f": {', '.join(sides)}" if sides else ""
    (tested,) = points[points["tested"]].to_dict("records") or [{}]
    if not tested:
        return text
    if tested["rounds"] < tested["rounds_needed"]:
        return (
            f"{text}; a verdict at the best point, {tested['point']}, takes {tested['rounds_needed']} rounds"
        )
    found = "significant" if tested["latency_significant"] else "not significant"
    return f"{text}; at the best point, {tested['point']}, the difference is {found}"


def _throughput(row: Row) -> str:
    share, low, high = (row[f"throughput_{name}_percent"] for name in ("difference", "low", "high"))
    if math.isnan(share):
        return ""
    images = f"{row['other']} has {percentage(abs(share))} % {'more' if share >= 0 else 'fewer'} images/s"
    if math.isnan(low):
        return images
    if low <= 0 <= high:
        span = f"{percentage(low)} to {percentage(high)} %"
        return f"no difference seen in images/s: {percentage(share, '+')} % ({span})"
    near, far = sorted((abs(low), abs(high)))
    return f"{images} ({percentage(near)} to {percentage(far)} %)"


MOST_NAMED = 4
"""Points that a sentence names; of more it gives the number."""


def conclusions(differences: pd.DataFrame, fronts: pd.DataFrame) -> Iterator[str]:
    """A line for each condition, from the frames of `analysis.comparing.between_runs`."""
    of_fronts = {tuple(row[key] for key in CONDITION): row for row in fronts.to_dict("records")}
    for _, rows in differences.groupby(CONDITION, dropna=False, observed=True, sort=False):
        first = rows.iloc[0]
        front = of_fronts.get(tuple(first[CONDITION]))
        parts = [_latency_change(rows), _throughput_change(rows), *([_front_change(front)] if front else [])]
        yield f"{condition_title(first)}: {'; '.join(part for part in parts if part)}"


def _latency_change(rows: pd.DataFrame) -> str:
    rows = rows[rows["latency_difference_s"].notna()]
    if rows.empty:
        return "no point has latencies in both runs that can be trusted"
    sure = rows[rows["latency_significant"]]
    faster, slower = ((sure["latency_difference_s"] * sign > 0).sum() for sign in (-1, 1))
    share = percentage(rows["latency_difference_percent"].median(), "+")
    median = f"median {ms(rows['latency_difference_s'].median(), '+')} ms ({share} %)"
    median += f" over {count(len(rows), 'point')}"
    if rows["note"].ne("").all():
        return (
            f"too few rounds to tell, it takes {rows['rounds_needed'].iloc[0]} in each run; by the medians "
            f"latency {median.removeprefix('median ')}"
        )
    if faster and slower:
        return f"B is faster at {faster}, slower at {slower} points significantly: {median}"
    if sure_points := faster or slower:
        change = "faster" if faster else "slower"
        at = "all" if sure_points == len(rows) else f"{sure_points} of {len(rows)}"
        return f"B is {change} at {at} points significantly: {median}"
    few = rows["note"].ne("").sum()
    untold = f" ({few} with too few rounds to tell)" if few else ""
    return f"no significant difference in latency: {median}{untold}"


def _throughput_change(rows: pd.DataFrame) -> str:
    rows = rows[rows["throughput_difference_percent"].notna()]
    if rows.empty:
        return ""
    text = f"images/s {percentage(rows['throughput_difference_percent'].median(), '+')} %"
    if rows["note"].ne("").all():
        return text
    sure = rows[rows["throughput_significant"]]
    more, less = ((sure["throughput_difference_percent"] * sign > 0).sum() for sign in (1, -1))
    if more and less:
        return f"{text}, {more} points significantly more, {less} less"
    return f"{text}, {more + less} significantly" if more or less else f"{text}, none significantly"


def _front_change(row: Mapping[Hashable, Any]) -> str:
    if math.isnan(row["hypervolume_ratio"]):
        return f"front: {row['note']}"
    text = f"front: its hypervolume is {row['hypervolume_ratio']:.3g} times that of A"
    if math.isnan(row["ratio_low"]):
        text += f" ({row['note']})"
    else:
        text += f" ({row['ratio_low']:.3g} to {row['ratio_high']:.3g})"
    for change, words in (
        ("enter", ("enters", "enter")),
        ("may_enter", ("may enter", "may enter")),
        ("leave", ("leaves", "leave")),
        ("may_leave", ("may leave", "may leave")),
    ):
        if named := str(row[change]):
            points = named.split("; ")
            who = ", ".join(points) if len(points) <= MOST_NAMED else count(len(points), "point")
            text += f"; {who} {words[len(points) > 1]} it"
    return text

"""What the comparison of two runs says, in plain words: a line for each condition."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import pandas as pd

from analysis.comparing.words import ms, percent
from analysis.keys import CONDITION
from analysis.naming import condition_title, count

MOST_NAMED = 4
"""Points that a sentence names; of more it tells how many."""


def sentences(differences: pd.DataFrame, fronts: pd.DataFrame) -> Iterator[str]:
    """From the frames of `analysis.comparing.between_runs` and `analysis.comparing.front_changes`."""
    of_fronts = {tuple(row[key] for key in CONDITION): row for row in fronts.to_dict("records")}
    for _, rows in differences.groupby(CONDITION, dropna=False, observed=True, sort=False):
        first = rows.iloc[0]
        front = of_fronts.get(tuple(first[CONDITION]))
        parts = [_latency(rows), _throughput(rows), *([_front(front)] if front else [])]
        yield f"{condition_title(first)}: {'; '.join(part for part in parts if part)}"


def _latency(rows: pd.DataFrame) -> str:
    sure = rows[rows["latency_significant"]]
    faster, slower = ((sure["latency_difference_s"] * sign > 0).sum() for sign in (-1, 1))
    middle = rows.loc[
        rows["latency_difference_s"].notna(), ["latency_difference_s", "latency_difference_percent"]
    ]
    share = percent(middle["latency_difference_percent"].median(), "+")
    median = f"median {ms(middle['latency_difference_s'].median(), '+')} ms ({share} %)"
    median += f" over {count(len(rows), 'point')}"
    if rows["note"].ne("").all():
        return (
            f"too few rounds to tell, it needs {rows['rounds_needed'].iloc[0]} in each run: latency {median}"
        )
    if faster and slower:
        return f"B is faster at {faster}, slower at {slower} points significantly: {median}"
    if sure_points := faster or slower:
        way = "faster" if faster else "slower"
        at = "all" if sure_points == len(rows) else f"{sure_points} of {len(rows)}"
        return f"B is {way} at {at} points significantly: {median}"
    few = rows["note"].ne("").sum()
    untold = f" ({few} with too few rounds to tell)" if few else ""
    return f"no significant difference in latency: {median}{untold}"


def _throughput(rows: pd.DataFrame) -> str:
    differences = rows["throughput_difference_percent"].dropna()
    if differences.empty:
        return ""
    text = f"images/s {percent(differences.median(), '+')} %"
    if rows["note"].ne("").all():
        return text
    sure = rows[rows["throughput_significant"]]
    more, less = ((sure["throughput_difference_percent"] * sign > 0).sum() for sign in (1, -1))
    if more and less:
        return f"{text}, {more} points significantly more, {less} less"
    return f"{text}, {more + less} significantly" if more or less else f"{text}, none significantly"


def _front(row: Mapping[Hashable, Any]) -> str:
    if math.isnan(row["hypervolume_ratio"]):
        return f"front: {row['note']}"
    text = f"front: hypervolume x {row['hypervolume_ratio']:.3g}"
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
            text += f"; {who} {words[len(points) > 1]}"
    return text

"""The results of comparing backends, or runs, in plain words: a line for each condition."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

import pandas as pd

from pareto.analysis.comparing.paired import ALL
from pareto.analysis.fronts.quality import codec_name
from pareto.analysis.naming import condition_title, count, transport
from pareto.analysis.runs.points import CONDITION
from pareto.analysis.statistics import significance
from pareto.analysis.wording import ms, percentage

Row = Mapping[Hashable, Any]
MOST_NAMED = 4
"""Points that a sentence names; of more it gives the number."""


def verdicts(rows: pd.DataFrame, struck_off: pd.DataFrame | None = None) -> Iterator[str]:
    """A line for each condition and pair of backends, codecs or engines, from the frame of
    `analysis.comparing.paired.paired`.

    struck_off: the cells that a search struck off (`runs.load.struck`), whose trials are in no pair.
    """
    of_backends = "backend" not in rows
    searched = [] if struck_off is None else [*struck_off[CONDITION].itertuples(index=False, name=None)]
    pairs = [*rows.columns.intersection([*CONDITION, "backend"]), "first", "other"]
    for _, of_pair in rows.groupby(pairs, dropna=False, observed=True, sort=False):
        is_all = of_pair["point"] == ALL
        (row,) = of_pair[is_all].to_dict("records")
        row |= {name: codec_name(row[name]) for name in ("first", "other")} | {"codec": row.get("codec", "")}
        if row["pairs"] or row["throughput_pairs"]:
            over = f" over {row['backend']}" if not of_backends and rows["backend"].nunique() > 1 else ""
            parts = [_latency(row), _points(of_pair[~is_all]), _throughput(row)]
            if of_backends:
                difference, low, high = (row[f"overhead_{end}_s"] for end in ("difference", "low", "high"))
                if not math.isnan(low):  # without the stages' own times, which are seldom the backend's doing
                    parts[0] += f"; beyond stages and link {ms(difference)} ms ({ms(low)} to {ms(high)} ms)"
                kind = transport(row["first"])
                parts += [f"both are {kind}"] if kind == transport(row["other"]) else []
            yield f"{condition_title(row)}{over}: {'; '.join(filter(None, parts))}"
        elif of_backends:
            why = "no point that crosses the link has valid trials of both in one round"
            if tuple(row[name] for name in CONDITION) in searched:
                why = "after what the search struck off no point that crosses the link is left over both"
            yield f"{condition_title(row)}: {row['first']} and {row['other']} not compared: {why}"


def _ends(low: float, high: float, say: Callable[[float], str]) -> str:
    """`1.20 to 3.40`: the ends of an interval, without their sign where it is without 0."""
    return " to ".join(map(say, (low, high) if low <= 0 <= high else sorted((abs(low), abs(high)))))


def _latency(row: Row) -> str:
    """The difference over all points."""
    first, other = row["first"], row["other"]
    difference_s, low_s, high_s = (row[f"latency_{end}_s"] for end in ("difference", "low", "high"))
    if math.isnan(difference_s):
        return f"no latencies of {first} and {other} in one round that can be trusted"
    span = f"{count(row['points'], 'point')} x {count(row['rounds'], 'round')}"
    if row["pairs"] != row["points"] * row["rounds"]:
        span = f"{count(row['pairs'], 'pair')} at {count(row['points'], 'point')}"
    span = f"by the points, {span}" if row["interval_over"] == "points" else span
    sure = f"95 %: {_ends(low_s, high_s, ms)} ms; {span}"
    if low_s <= 0 <= high_s:
        return (
            f"no difference seen over all points between {first} and {other}: {ms(difference_s)} ms ({sure})"
        )
    share = percentage(abs(row["latency_difference_percent"]))
    taken = (
        f"{ms(abs(difference_s))} ms ({share} %) {'longer' if difference_s >= 0 else 'shorter'} than {first}"
    )
    if math.isnan(low_s):
        return f"{other} took {taken}, {span}: too few rounds for an interval, may be chance"
    return f"{other} takes {taken} ({sure})"


def _points(points: pd.DataFrame) -> str:
    """At how many points the interval is without 0, the most of these, and what the test at the best point says."""
    points = points[points["latency_low_s"].notna()]
    if points.empty:
        return ""
    apart = points[(points["latency_low_s"] > 0) | (points["latency_high_s"] < 0)]
    text = f"apart at {len(apart) or 'none'} of {count(len(points), 'point')}"
    if len(apart):
        by_chance = round(significance.ALPHA * len(points))
        text += f" (by chance at about {by_chance})" if by_chance else ""
        most = apart.loc[apart["latency_difference_s"].abs().idxmax()]
        difference_s, is_longer = most["latency_difference_s"], most["latency_difference_s"] > 0
        way, same = (
            "longer" if is_longer else "shorter",
            (apart["latency_difference_s"] > 0).eq(is_longer).sum(),
        )
        by = f"{ms(abs(difference_s))} ms ({_ends(most['latency_low_s'], most['latency_high_s'], ms)}) {way}"
        text += f", {same} of them {way}" if same < len(apart) else ""
        text += (
            f": {most['other']} takes {by} at point {most['point']}{', the most' if len(apart) > 1 else ''}"
        )
    for row in points[points["tested"]].to_dict("records"):
        best = f"the best point, {row['point']},"
        if row["rounds"] < row["rounds_needed"]:
            return f"{text}; a verdict at {best} takes {row['rounds_needed']} rounds"
        found = "significant" if row["latency_significant"] else "not significant"
        text += f"; at {best} the difference is {found}"
    return text


def _throughput(row: Row) -> str:
    share, low, high = (row[f"throughput_{name}_percent"] for name in ("difference", "low", "high"))
    if math.isnan(share):
        return ""
    ends = _ends(low, high, percentage)
    if low <= 0 <= high:
        return f"no difference seen in images/s: {percentage(share, '+')} % ({ends} %)"
    images = f"{row['other']} has {percentage(abs(share))} % {'more' if share >= 0 else 'fewer'} images/s"
    return images if math.isnan(low) else f"{images} ({ends} %)"


def conclusions(differences: pd.DataFrame, fronts: pd.DataFrame) -> Iterator[str]:
    """A line for each condition, from the frames of `analysis.comparing.between_runs`."""
    of_fronts = {tuple(row[key] for key in CONDITION): row for row in fronts.to_dict("records")}
    for _, rows in differences.groupby(CONDITION, dropna=False, observed=True, sort=False):
        front = of_fronts.get(tuple(rows.iloc[0][CONDITION]))
        parts = [_latency_change(rows), _throughput_change(rows), _front_change(front) if front else ""]
        yield f"{condition_title(rows.iloc[0])}: {'; '.join(filter(None, parts))}"


def _sure(rows: pd.DataFrame, measure: str, unit: str, less: str, more: str) -> str:
    """`11 faster, 2 slower`: how many points differ significantly, and which way."""
    sure = rows.loc[rows[f"{measure}_significant"], f"{measure}_difference_{unit}"]
    ways = ((less, (sure < 0).sum()), (more, (sure > 0).sum()))
    return ", ".join(f"{word} at {number}" for word, number in ways if number)


def _latency_change(rows: pd.DataFrame) -> str:
    rows = rows[rows["latency_difference_s"].notna()]
    if rows.empty:
        return "no point has latencies in both runs that can be trusted"
    share = percentage(rows["latency_difference_percent"].median(), "+")
    median = (
        f"{ms(rows['latency_difference_s'].median(), '+')} ms ({share} %) over {count(len(rows), 'point')}"
    )
    few = rows["note"].ne("").sum()
    if few == len(rows):
        needed = rows["rounds_needed"].iloc[0]
        return f"too few rounds to tell, it takes {needed} in each run; by the medians latency {median}"
    if sure := _sure(rows, "latency", "s", "faster", "slower"):
        return f"B is {sure} of {count(len(rows), 'point')} significantly: median {median}"
    untold = f" ({few} with too few rounds to tell)" if few else ""
    return f"no significant difference in latency: median {median}{untold}"


def _throughput_change(rows: pd.DataFrame) -> str:
    rows = rows[rows["throughput_difference_percent"].notna()]
    if rows.empty:
        return ""
    text = f"images/s {percentage(rows['throughput_difference_percent'].median(), '+')} %"
    if rows["note"].ne("").all():
        return text
    sure = _sure(rows, "throughput", "percent", "fewer", "more")
    return (
        f"{text}, significantly {sure} of {count(len(rows), 'point')}"
        if sure
        else f"{text}, none significantly"
    )


def _front_change(row: Row) -> str:
    if math.isnan(row["hypervolume_ratio"]):
        return f"front: {row['note']}"
    sure = (
        row["note"] if math.isnan(row["ratio_low"]) else f"{row['ratio_low']:.3g} to {row['ratio_high']:.3g}"
    )
    text = f"front: its hypervolume is {row['hypervolume_ratio']:.3g} times that of A ({sure})"
    words = {"enter": ("enters", "enter"), "may_enter": ("may enter",) * 2}
    words |= {"leave": ("leaves", "leave"), "may_leave": ("may leave",) * 2}
    for change, (one, several) in words.items():
        if points := str(row[change]).split("; ") if row[change] else []:
            who = ", ".join(points) if len(points) <= MOST_NAMED else count(len(points), "point")
            text += f"; {who} {several if len(points) > 1 else one} it"
    return text

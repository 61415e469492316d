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
from pareto.analysis.wording import ms, percentage

Row = Mapping[Hashable, Any]


def verdicts(rows: pd.DataFrame, struck_off: pd.DataFrame | None = None) -> Iterator[str]:
    """A line for each condition and pair of backends, codecs or engines, from the frame of
    `analysis.comparing.paired.paired`.

    struck_off: the cells that a search struck off (`analysis.runs.struck`), whose trials are in no pair.
    """
    searched: set[tuple[Hashable, ...]] = set()
    if struck_off is not None:
        searched = set(struck_off[CONDITION].itertuples(index=False, name=None))
    if "backend" in rows:
        yield from _against_base(rows)
        return
    for row in rows[rows["point"] == ALL].to_dict("records"):
        is_searched = tuple(row[name] for name in CONDITION) in searched
        yield f"{condition_title(row)}: {_verdict(row, is_searched=is_searched)}"


def _against_base(rows: pd.DataFrame) -> Iterator[str]:
    """The lines of codecs, or of engines, which are compared over one backend."""
    several = rows["backend"].nunique() > 1
    pairs = [*rows.columns.intersection([*CONDITION, "backend"]), "first", "other"]
    for _, of_pair in rows[rows["pairs"] > 0].groupby(pairs, dropna=False, observed=True, sort=False):
        (row,) = of_pair[of_pair["point"] == ALL].to_dict("records")
        most = ""
        if "codec" not in row:
            row |= {"codec": "", "first": codec_name(row["first"])}
        else:
            most = _most(of_pair[of_pair["point"] != ALL])
        over = f" over {row['backend']}" if several else ""
        parts = (_latency(row), most, _faster(row), _throughput(row))
        yield f"{condition_title(row)}{over}: {'; '.join(part for part in parts if part)}"


def _most(points: pd.DataFrame) -> str:
    """At which point they differ most, as the difference of engines hangs on what they run: one at least is needed."""
    points = points[points["latency_difference_percent"].notna()]
    if len(points) < 2:
        return ""
    row = points.loc[points["latency_difference_percent"].abs().idxmax()]
    share = f"{percentage(abs(row['latency_difference_percent']))} %"
    sure = "significantly" if row["latency_significant"] else "not significantly"
    longer = "longer" if row["latency_difference_percent"] > 0 else "shorter"
    return f"most at point {row['point']}: {share} {longer}, {sure}"


def _verdict(row: Row, *, is_searched: bool) -> str:
    first, other = row["first"], row["other"]
    if not row["pairs"] and is_searched:
        left = "no point that crosses the link is left over both"
        return f"{first} and {other} not compared: after what the search struck off {left}"
    if not row["pairs"]:
        return f"{first} and {other} not compared: no point that crosses the link has valid trials of both in one round"
    same = f"; both are {transport(first)}" if transport(first) == transport(other) else ""
    parts = (_latency(row), _overhead(row), _faster(row), _throughput(row))
    return "; ".join(part for part in parts if part) + same


def _latency(row: Row) -> str:
    first, other = row["first"], row["other"]
    difference_s, low_s, high_s = (
        row[name] for name in ("latency_difference_s", "latency_low_s", "latency_high_s")
    )
    if math.isnan(difference_s):
        return f"no latencies of {first} and {other} in one round that can be trusted"
    share = f"{percentage(abs(row['latency_difference_percent']))} %"
    span = f"{count(row['points'], 'point')} x {count(row['rounds'], 'round')}"
    if row["pairs"] != row["points"] * row["rounds"]:
        span = f"{count(row['pairs'], 'pair')} at {count(row['points'], 'point')}"
    longer = difference_s >= 0
    floor = " and the noise floor" if row["latency_floor_percent"] else ""
    by = f"by the {row['interval_over']}{floor}, {span}"
    taken = f"{ms(abs(difference_s))} ms ({share}) {'longer' if longer else 'shorter'} than {first}"
    if math.isnan(low_s):
        return f"{other} took {taken} over {span}: too few rounds for an interval, may be chance"
    if low_s <= 0 <= high_s:
        seen = f"no difference seen between {first} and {other}: {ms(difference_s)} ms"
        return f"{seen}, 95 % interval {ms(low_s)} to {ms(high_s)} ms {by}"
    near_s, far_s = (low_s, high_s) if longer else (-high_s, -low_s)
    return f"{other} takes {taken}, 95 % interval {ms(near_s)} to {ms(far_s)} ms {by}"


def _overhead(row: Row) -> str:
    """The difference without what the stages' own times differed by, which is seldom the backend's doing."""
    difference_s, low_s, high_s = (
        row[name] for name in ("overhead_difference_s", "overhead_low_s", "overhead_high_s")
    )
    if math.isnan(low_s):
        return ""
    return f"beyond stages and link {ms(difference_s)} ms ({ms(low_s)} to {ms(high_s)} ms)"


def _faster(row: Row) -> str:
    """At how many points each is faster, and at how many of them by more than chance."""
    at = []
    for who in ("first", "other"):
        if points := row[f"{who}_faster"]:
            sure = row[f"{who}_surely_faster"]
            at.append(
                f"{row[who]} at {count(points, 'point')}" + (f" ({sure} significantly)" if sure else "")
            )
    if not at:
        return ""
    text = f"faster by the medians: {', '.join(at)}"
    if row["rounds"] < row["rounds_needed"]:
        return f"{text}; to be sure at a single point takes {row['rounds_needed']} rounds"
    return text if row["latency_significant"] else f"{text}, at none significantly"


def _throughput(row: Row) -> str:
    share, low, high = (row[f"throughput_{name}_percent"] for name in ("difference", "low", "high"))
    if math.isnan(share):
        return ""
    if math.isnan(low):
        return _images(row, share)
    sure = [
        f"{row[who]} at {row[f'{who}_surely_more']}"
        for who in ("first", "other")
        if row[f"{who}_surely_more"]
    ]
    more = f"; significantly more: {', '.join(sure)}" if sure else ""
    if low <= 0 <= high:
        span = f"{percentage(low)} to {percentage(high)} %"
        if not sure:
            return f"no difference seen in images/s: {percentage(share, '+')} % ({span})"
        return f"images/s {percentage(share, '+')} % ({span}{more})"
    near, far = (low, high) if share >= 0 else (-high, -low)
    return f"{_images(row, share)} ({percentage(near)} to {percentage(far)} %{more})"


def _images(row: Row, share: float) -> str:
    return f"{row['other']} has {percentage(abs(share))} % {'more' if share >= 0 else 'fewer'} images/s"


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

"""What the paired comparison of backends says, in plain words."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import pandas as pd

from analysis.comparing.paired import ALL
from analysis.comparing.words import ms, percent
from analysis.naming import condition_title, count, transport

Row = Mapping[Hashable, Any]


def verdicts(rows: pd.DataFrame) -> Iterator[str]:
    """A line for each condition and pair of backends, from the frame of `analysis.comparing.paired.paired`."""
    for row in rows[rows["point"] == ALL].to_dict("records"):
        yield f"{condition_title(row)}: {_verdict(row)}"


def _verdict(row: Row) -> str:
    first, other = row["first"], row["other"]
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
    share = f"{percent(abs(row['latency_difference_percent']))} %"
    span = f"over {count(row['points'], 'point')} x {count(row['rounds'], 'round')}"
    if row["pairs"] != row["points"] * row["rounds"]:
        span = f"over {count(row['pairs'], 'pair')} at {count(row['points'], 'point')}"
    longer = difference_s >= 0
    floor = " and the noise floor" if row["latency_floor_percent"] else ""
    interval = f"95 % interval over {row['interval_over']}{floor}"
    told = f"{ms(abs(difference_s))} ms ({share}) {'longer' if longer else 'shorter'} than {first}"
    if math.isnan(low_s):
        return f"{other} took {told} {span}: too few rounds for an interval, may be chance"
    if low_s <= 0 <= high_s:
        seen = f"no difference seen between {first} and {other}: {ms(difference_s)} ms"
        return f"{seen}, {interval} {ms(low_s)} to {ms(high_s)} ms, {span}"
    near_s, far_s = (low_s, high_s) if longer else (-high_s, -low_s)
    return f"{other} takes {told}, {interval} {ms(near_s)} to {ms(far_s)} ms, {span}"


def _overhead(row: Row) -> str:
    """The same without what the stages' own times differed by, which is seldom the backend's doing."""
    difference_s, low_s, high_s = (
        row[name] for name in ("overhead_difference_s", "overhead_low_s", "overhead_high_s")
    )
    if math.isnan(low_s):
        return ""
    return f"beyond stages and link {ms(difference_s)} ms, {ms(low_s)} to {ms(high_s)} ms"


def _faster(row: Row) -> str:
    """At how many points, and how many of them are more than chance."""
    at = []
    for who in ("first", "other"):
        if points := row[f"{who}_faster"]:
            sure = row[f"{who}_surely_faster"]
            at.append(f"{row[who]} at {points}" + (f" ({sure} significantly)" if sure else ""))
    if not at:
        return ""
    text = f"faster by the medians: {', '.join(at)}"
    if row["rounds"] < row["rounds_needed"]:
        return f"{text}; too few rounds to tell at a single point: needs {row['rounds_needed']}"
    return text if row["latency_significant"] else f"{text}, at none significantly"


def _throughput(row: Row) -> str:
    share, low, high = (row[f"throughput_{name}_percent"] for name in ("difference", "low", "high"))
    if math.isnan(share):
        return ""
    if math.isnan(low):
        return f"images/s {percent(share, '+')} %"
    sure = [
        f"{row[who]} at {row[f'{who}_surely_more']}"
        for who in ("first", "other")
        if row[f"{who}_surely_more"]
    ]
    more = f" (significantly more: {', '.join(sure)})" if sure else ""
    if low <= 0 <= high:
        span = f"{percent(low)} to {percent(high)} %"
        if not sure:
            return f"no difference seen in images/s: {percent(share, '+')} %, {span}"
        return f"images/s {percent(share, '+')} %, {span}{more}"
    span = f"{percent(low, '+')} to {percent(high, '+')} %"
    return f"images/s {percent(share, '+')} %, {span}{more}"

"""What the paired comparison of backends says, in plain words."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import pandas as pd

from analysis.comparing.paired import ALL
from analysis.naming import condition_title, transport

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
    share = f"{_percent(abs(row['latency_difference_percent']))} %"
    span = f"over {_count(row['points'], 'point')} x {_count(row['rounds'], 'round')}"
    if row["pairs"] != row["points"] * row["rounds"]:
        span = f"over {_count(row['pairs'], 'pair')} at {_count(row['points'], 'point')}"
    longer = difference_s >= 0
    interval = f"95 % interval over {row['interval_over']}"
    told = f"{_ms(abs(difference_s))} ms ({share}) {'longer' if longer else 'shorter'} than {first}"
    if math.isnan(low_s):
        return f"{other} took {told} {span}: too few rounds for an interval, may be chance"
    if low_s <= 0 <= high_s:
        seen = f"no difference seen between {first} and {other}: {_ms(difference_s)} ms"
        return f"{seen}, {interval} {_ms(low_s)} to {_ms(high_s)} ms, {span}"
    near_s, far_s = (low_s, high_s) if longer else (-high_s, -low_s)
    return f"{other} takes {told}, {interval} {_ms(near_s)} to {_ms(far_s)} ms, {span}"


def _overhead(row: Row) -> str:
    """The same without what the stages' own times differed by, which is seldom the backend's doing."""
    difference_s, low_s, high_s = (
        row[name] for name in ("overhead_difference_s", "overhead_low_s", "overhead_high_s")
    )
    if math.isnan(low_s):
        return ""
    return f"beyond stages and link {_ms(difference_s)} ms, {_ms(low_s)} to {_ms(high_s)} ms"


def _faster(row: Row) -> str:
    at = [f"{row[who]} at {row[f'{who}_faster']}" for who in ("first", "other") if row[f"{who}_faster"]]
    return f"faster: {', '.join(at)}" if at else ""


def _throughput(row: Row) -> str:
    percent, low, high = (row[f"throughput_{name}_percent"] for name in ("difference", "low", "high"))
    if math.isnan(percent):
        return ""
    if math.isnan(low):
        return f"images/s {_percent(percent, '+')} %"
    if low <= 0 <= high:
        return f"no difference in images/s: {_percent(percent, '+')} %, {_percent(low)} to {_percent(high)} %"
    return f"images/s {_percent(percent, '+')} %, {_percent(low, '+')} to {_percent(high, '+')} %"


def _ms(seconds: float) -> str:
    """Two digits behind the point, three where they would hide what is there."""
    ms = 1e3 * seconds
    return f"{ms:.2f}" if abs(ms) >= 0.1 or not ms else f"{ms:.3f}"


def _percent(value: float, sign: str = "-") -> str:
    return f"{value:{sign}.0f}" if abs(value) >= 10 else f"{value:{sign}.2g}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"

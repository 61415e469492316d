"""Advice in the terminal and in a log: legible at 80 columns and without colour."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from pareto.analysis.advice.advise import Advice, sentence
from pareto.analysis.advice.crossovers import DELAYS_S, RATES_BPS
from pareto.analysis.naming import ANY_NOTE, NONE, backend_name, point_label, time_unit
from pareto.analysis.tables.columns import UNKNOWN, Column, Framed, framed, number, spans, sureness
from pareto.analysis.wording import EDGE, SERVER
from pareto.remote.link.units import duration, percent, rate

SHOWN = 3
"""How many of the best points are shown, beside the whole model on either host."""


def advice_table(advice: Advice) -> RenderableType:
    """The sentence; the best points with latency, images/s (95 % intervals) and the probability of being the best;
    from what condition on another is better; and how far predictions were off where they could be tested.
    """
    lines = [*_elsewhere(advice), *_trust(advice)]
    return Group(Text(f"{sentence(advice)}\n", style="bold"), _table(advice), Text("\n".join([*lines, ""])))


def _table(advice: Advice) -> Framed:
    choices = advice.ranking.choices
    whole = [next((choice for choice in choices if choice.end == end), choices[0]) for end in (EDGE, SERVER)]
    shown = [*dict.fromkeys([*choices[:SHOWN], *whole])]
    rows = pd.DataFrame(map(vars, shown))
    unit, scale = time_unit(rows["latency_s"].max())
    digits = 3 if unit == "s" else 2
    low, high = rows["latency_low_s"] * scale, rows["latency_high_s"] * scale
    codecs = [
        codec if backend != NONE else UNKNOWN
        for codec, backend in zip(rows["codec"], rows["backend"], strict=True)
    ]
    names = [
        f"{each.point} {each.end}" if each.end else point_label(each.point, each.point_name) for each in shown
    ]
    columns = [
        Column("point", names, look={"min_width": 8}),
        Column("backend", [backend_name(backend) for backend in rows["backend"]]),
        *([Column("codec", codecs)] if set(codecs) - {"none", UNKNOWN} else []),
        *([Column("engine", list(rows["engine"]))] if rows["engine"].any() else []),
        number("latency", rows["latency_s"] * scale, digits, unit),
        Column("95 %", spans(low, high, digits), kind="number"),
        number("images", rows["throughput_ips"], 2, "/s"),
        Column("95 %", spans(rows["throughput_low_ips"], rows["throughput_high_ips"], 2), kind="number"),
        Column("sure", [sureness(share) for share in rows["probability"]], "%", "number"),
    ]
    if low.isna().all():
        columns = [column for column in columns if column.head != "95 %"]
    notes = ["sure = probability of being the best", ANY_NOTE if rows["backend"].eq(NONE).any() else ""]
    if low.notna().any() and not advice.ranking.profile:
        notes.append("95 % = by the rounds, and by how much predictions are off")
    return framed(columns, f"Best for {advice.objective}", notes)


def _elsewhere(advice: Advice) -> Iterator[str]:
    network = advice.network
    for along, here, say, ends in (
        ("rate", f"At {duration(network.delay_s)}", rate, RATES_BPS),
        ("delay", f"At {rate(network.rate_bps)}", duration, DELAYS_S),
    ):
        sentences = [
            f"{advice.ranking.by_cell[switch.cell].place} is better {switch.when(say)}"
            for switch in advice.ranking.crossovers
            if switch.along == along
        ]
        none = f"no other point is better at any {along} from {say(ends[0])} to {say(ends[1])}"
        if along in advice.ranking.unsure_along:
            here += ", among the measured points"
        yield f"{here}, {'; '.join(sentences) or none}."


def _trust(advice: Advice) -> Iterator[str]:
    validation, names = advice.validation, ", ".join(advice.measured)
    median, worst, _ = validation.errors[advice.objective]
    if advice.extrapolated:
        yield f"This network is beyond what was measured ({names})."
    if math.isnan(median):
        yield f"Predicted from {names}; how well could not be tested."
        return
    off = f"off by {percent(median)} (median), {percent(worst)} (worst), at {validation.cells} points"
    if validation.held_out:
        yield f"Predictions are from {names}; of each from the others they were {off}."
    else:
        yield (
            f"Predictions are from {names} alone; of itself they were {off}. How they do elsewhere is not known."
        )

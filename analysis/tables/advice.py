"""Advice by runs, and by a prediction of every split, in the terminal and in a log: at 80 columns, without colour."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from pareto.analysis.advice.advise import Advice
from pareto.analysis.advice.advise import title as workload_title
from pareto.analysis.advice.crossovers import DELAYS_S, RATES_BPS
from pareto.analysis.figures.look import evenly
from pareto.analysis.naming import ANY_NOTE, NONE, point_label
from pareto.analysis.prediction.predicted import FRONT, RULES, behind
from pareto.analysis.statistics.significance import MEASURES
from pareto.analysis.tables.report import NAMED, points
from pareto.analysis.tables.table import UNKNOWN, Column, Table, numbers, times
from pareto.analysis.wording import EDGE, SERVER, forms, more
from pareto.remote.link.units import duration, percent, rate

MOST = 12
"""Splits of a predicted front that are shown: of more, these at even distances."""


def advice_table(advice: Advice) -> RenderableType:
    """The sentence; the best points, and the whole model on either host, with latency, images/s (95 % intervals) and
    the probability of being the best; from what condition on another is better; and how far predictions were off where
    they could be tested.
    """
    choices = advice.ranking.choices
    whole = [choices[choices["end"] == end].head(1) for end in (EDGE, SERVER)]
    rows = pd.concat([choices[:NAMED], *whole])
    rows = rows[~rows.index.duplicated()]
    made, nothing = points(rows, "probability"), rows["backend"].eq(NONE)
    names = [
        f"{point} {end}" if end else point_label(point, name)
        for point, end, name in zip(rows["point"], rows["end"], rows["point_name"], strict=True)
    ]
    codecs = rows["codec"].mask(nothing, UNKNOWN)
    columns = [
        Column("point", names, look={"min_width": 8}),
        made["backend"],
        *([Column("codec", [*codecs])] if set(codecs) - {"none", UNKNOWN} else []),
        Column("engine", [*rows["engine"]]),
        *(made[name] for name in ("latency", "latency-interval", "images", "images-interval", "sure")),
    ]
    by_prediction = rows["latency_low_s"].notna().any() and not advice.ranking.profile
    notes = {
        "sure = probability of being the best": made["sure"].says_something,
        ANY_NOTE: nothing.any(),
        "95 % = by the rounds, and by how much predictions are off": by_prediction,
    }
    lines = "\n".join([*_elsewhere(advice), *_trust(advice), ""])
    table = Table(f"Best for {advice.objective}", columns, notes)
    return Group(Text(f"{advice}\n", style="bold"), table, Text(lines))


def _elsewhere(advice: Advice) -> Iterator[str]:
    network, ranking = advice.network, advice.ranking
    for along, here, say, ends in (
        ("rate", f"At {duration(network.delay_s)}", rate, RATES_BPS),
        ("delay", f"At {rate(network.rate_bps)}", duration, DELAYS_S),
    ):
        switches = [switch for switch in ranking.crossovers if switch.along == along]
        better = [
            f"{ranking.choices['place'].loc[each.cell]} is better {each.when(say)}" for each in switches
        ]
        none = f"no other point is better at any {along} from {say(ends[0])} to {say(ends[1])}"
        among = ", among the measured points" if along in ranking.unsure_along else ""
        yield f"{here}{among}, {'; '.join(better) or none}."


def _trust(advice: Advice) -> Iterator[str]:
    validation, names = advice.validation, ", ".join(advice.measured)
    median, worst, _ = validation.errors[advice.objective]
    if advice.extrapolated:
        yield f"This network is beyond what was measured ({names})."
    off = f"off by {percent(median)} (median), {percent(worst)} (worst), at {validation.cells} points"
    if math.isnan(median):
        yield f"Predicted from {names}; how well could not be tested."
    elif validation.held_out:
        yield f"Predictions are from {names}; of each from the others they were {off}."
    else:
        yield f"Predictions are from {names} alone; of itself they were {off}. How they do elsewhere is not known."


def predicted_table(rows: pd.DataFrame) -> Table:
    """A row for each split of the front, least latency first, and for each rule's; ± is a standard deviation.

    rows: of one case, as `analysis.prediction.predicted.predicted` makes them.
    """
    front = rows[rows["chosen_by"] == FRONT]
    few = front.iloc[evenly(range(len(front)), MOST)]
    shown = pd.concat([few, rows[rows["chosen_by"] != FRONT]])
    off = {f"{name}_off": shown[of] * shown[f"{name}_error"] for name, of in MEASURES.items()}
    shown, made = shown.assign(**off), points(shown)
    columns = [
        Column("split", [*shown["chosen_by"].astype("str")], look={"no_wrap": True}),
        *(made[name] for name in ("backend", "point", "name", "latency")),
        numbers(shown, "±", "latency_off", *times(float(shown["latency_s"].max()))),
        made["images"],
        numbers(shown, "±", "throughput_off", "/s"),
    ]
    notes = {
        "front = no split is better in latency and images/s": True,
        "greedy = cuts move from even places as long as that balances the stages": True,
        "even = as many units on each host": True,
        "± = a standard deviation": True,
        ANY_NOTE: shown["backend"].eq(NONE).any(),
        f"{len(few)} of the front's {len(front)} are shown": len(few) < len(front),
    }
    starts = [place == len(few) for place in range(len(shown))]
    return Table(f"Predicted: {_title(rows.iloc[0])}", columns, notes, starts)


def answers(rows: pd.DataFrame) -> list[str]:
    """`predicted_advice` for the latency, and for the throughput where that is another split."""
    found = rows.loc[rows["chosen_by"] == FRONT, ["point", "backend"]].to_numpy().tolist()
    wanted = list(MEASURES) if found[0] != found[-1] else ["latency"]
    return [predicted_advice(rows, objective) for objective in wanted]


def predicted_advice(rows: pd.DataFrame, objective: str) -> str:
    """A sentence of advice for `latency` or `throughput`, with its worth beside the whole model on one host.

    A difference that is less than the standard deviation of both figures together is too close to tell.
    """
    of_latency, column, error = objective == "latency", MEASURES[objective], f"{objective}_error"
    best = rows[rows["chosen_by"] == FRONT].iloc[0 if of_latency else -1]
    value, spread = float(best[column]), float(best[column] * best[error])
    worth = []
    for end in (EDGE, SERVER):
        # A codec that is not at work there has no such split.
        for row in rows[rows["chosen_by"] == end].head(1).to_dict("records"):
            whole = float(row[column])
            if row["point"] == best["point"] or not (value < whole if of_latency else value > whole):
                continue
            if abs(value - whole) < math.hypot(spread, whole * row[error]):
                worth.append(f"too close to {end} to tell")
            elif of_latency:
                worth.append(f"{percent(1 - value / whole)} less than {end}")
            else:
                worth.append(more(value / whole - 1, f"more than {end}", f"as much as {end}"))
    figure = (
        f"{duration(value)} ± {duration(spread)}" if of_latency else f"{value:.3g} ± {spread:.2g} images/s"
    )
    told = ", ".join([figure, *filter(None, [" and ".join(worth)])])
    return f"{_title(best)}: {forms(best.to_dict())['order']}: {told} (predicted)"


def _title(row: pd.Series) -> str:
    """`mobilenet_v2 at lte, batch size 8, int8`: what is the same for all splits of a case."""
    return workload_title({**row, "setup": ""}, row["netem"])


def sentences(rows: pd.DataFrame, splits: int, hosts: int) -> Iterator[str]:
    """How many of all splits are on the front, and how far each rule is behind it."""
    front = rows[rows["chosen_by"] == FRONT]
    are = "is" if len(front) == 1 else "are"
    among = " of those that satisfy the constraint" if "feasible" in rows else ""
    yield f"{len(front)} of the {splits} splits over {hosts} hosts {are} on the predicted front{among}."
    for rule in RULES:
        for row in rows[rows["chosen_by"] == rule].head(1).to_dict("records"):
            longer, fewer = behind(row, front)
            parts = [f"takes {more(longer, 'longer', 'as long')}"] if longer else []
            parts += [f"gives {percent(fewer)} fewer images/s"] if fewer else []
            said = f"beside a split of the front it {' and '.join(parts)}" if parts else "on the front"
            said = said if row.get("feasible", True) else "does not satisfy the constraint"
            at = "" if rule in (EDGE, SERVER) else f" ({row['point']})"
            yield f"{rule}{at}: {said}."

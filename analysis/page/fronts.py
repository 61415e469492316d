"""The front as tables, one a condition, and what the chart needs beyond them; costs and hypervolumes below."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pareto.analysis.advice.advise import title
from pareto.analysis.figures.marks import FILLS, LOG_RANGE, STATE_WORDS, states
from pareto.analysis.findings import Findings
from pareto.analysis.fronts.answer import KNOWN, summaries
from pareto.analysis.fronts.quality import in_words, is_none
from pareto.analysis.naming import backend_name, backends, condition_title, count, time_unit
from pareto.analysis.page.best_map import Maps
from pareto.analysis.points import CONDITION, NONE, SETTLED, hosts, short_step, struck_off
from pareto.analysis.tables.columns import UNKNOWN, Column, by_backend, figures, number, spans, sureness
from pareto.analysis.tables.front import overhead_columns

MOST_CELLS = 4000
"""How many points the tables show together: with more, no telephone opens the page."""
MOST_ROWS = 500
"""How many rows the tables of costs and hypervolumes have."""
MOST_TIES = 6
KEYS = {
    "model": "model",
    "netem": "profile",
    "batch_size": "batch size",
    "codec": "codec",
    "in_flight_asked": "in flight",
    "setup": "setup",
}
"""The names on the page of a condition's keys."""
PLANE = {"latency", "throughput"}
"""The objectives whose front is a staircase in the chart."""
_ALL, _OWN, _DOMINATED, _INFEASIBLE = "all", "own", UNKNOWN, "ruled out"
_LATENCY, _THROUGHPUT, _POINT = "latency", "throughput", "point"
"""Under which heads a point's figures stand beside it in the chart."""
_SURE = {"probability", "probability_all"}
_TIME, _IPS = "time", "images/s"
"""Units whose scale and decimals depend on the rows."""
_FIGURES: tuple[tuple[str, str, str, float, int, str, str], ...] = (
    ("latency", "latency_s", _TIME, 1, 0, "median", _LATENCY),
    ("95 %", "latency_low_s latency_high_s", _TIME, 1, 0, "95 %", _LATENCY),
    ("bound", "latency_bound_s", _TIME, 1, 0, "bound", _LATENCY),
    ("eff.", "latency_efficiency", "%", 100, 1, "efficiency", _LATENCY),
    ("throughput", "throughput_ips", _IPS, 1, 0, "median", _THROUGHPUT),
    ("95 %", "throughput_low_ips throughput_high_ips", _IPS, 1, 0, "95 %", _THROUGHPUT),
    ("bound", "throughput_bound_ips", _IPS, 1, 0, "bound", _THROUGHPUT),
    ("eff.", "throughput_efficiency", "%", 100, 1, "efficiency", _THROUGHPUT),
    ("gain", "pipeline_gain", "x", 1, 2, "gain", _THROUGHPUT),
    ("bound by", "bound_by", "", 1, 0, "bound by", _THROUGHPUT),
    ("busiest", "busiest", "", 1, 0, "busiest", _THROUGHPUT),
    ("busy", "busiest_utilization", "%", 100, 0, "busiest step's share", _THROUGHPUT),
    ("under load", "loaded_latency_s", _TIME, 1, 0, "median at full throughput", _LATENCY),
    ("edge", "edge_s", _TIME, 1, 0, "edge", _LATENCY),
    ("encode", "encode_s", _TIME, 1, 0, "encode", _LATENCY),
    ("decode", "decode_s", _TIME, 1, 0, "decode", _LATENCY),
    ("serialize", "serialize_s", _TIME, 1, 0, "serialize", _LATENCY),
    ("network", "network_s", _TIME, 1, 0, "network", _LATENCY),
    ("middle", "middle_s", _TIME, 1, 0, "middle", _LATENCY),
    ("server", "server_s", _TIME, 1, 0, "server", _LATENCY),
    ("p95", "latency_p95_s", _TIME, 1, 0, "95th percentile", _LATENCY),
    ("payload", "payload_bytes", "kB", 1e-3, 1, "payload", _POINT),
    ("energy", "energy_j", "J, {devices}", 1, 3, "energy", _POINT),
    ("above idle", "active_energy_j", "J, {devices}", 1, 3, "energy above idle", _POINT),
    ("edge memory", "edge_peak_rss_bytes", "MB", 1e-6, 0, "edge memory", _POINT),
    ("top-1", "top1", "%", 100, 1, "top-1", _POINT),
    ("agreement", "agreement", "%", 100, 1, "agreement with the whole model", _POINT),
    ("output error", "output_error", "%", 100, 2, "relative error of the output", _POINT),
    ("wire", "wire_bytes_per_image", "kB per image", 1e-3, 1, "bytes per image on the wire", _POINT),
    ("over codecs", "on_codec_front", "", 1, 0, "front over all codecs", _POINT),
    ("rounds", "rounds", "", 1, 0, "rounds", _POINT),
    ("left out", "left_out", "", 1, 0, "trials left out", _POINT),
    ("outliers", "outliers", "", 1, 0, "outliers", _POINT),
    ("sure", "probability", "%", 1, 0, "sure of its own front", _POINT),
    ("sure, all", "probability_all", "%", 1, 0, "sure of the front of all", _POINT),
    ("ties", "ties", "", 1, 0, "ties", _POINT),
)
"""A point's figures: head; column, or the two ends of an interval; unit, scale, decimals; and what it is called beside
the chart, under which head. Columns of text have no use for scale and decimals."""


def fronts(findings: Findings) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fronts as the template shows them, and the charts' data for the script.

    With more than `MOST_CELLS` points only those that are, or may be, on a front get a row; if these are still too
    many, the last conditions have none. The text says so.
    """
    rows, note = _fewer(findings.front)
    names = backends(rows)
    groups = rows.groupby(CONDITION, dropna=False, observed=True)
    conditions = [by_backend(group, "point") for _, group in groups]
    is_plane = set(findings.objectives) == PLANE
    about = [
        "In the chart the best corner is the upper left; "
        f"filled points are on their backend's front{', the staircase' if is_plane else ''}.",
        ""
        if is_plane
        else f"This front is in {in_words(findings.objectives, findings.front)}: "
        "in latency and throughput alone it is no staircase.",
        note,
    ]
    shown = {
        "about": " ".join(filter(None, about)),
        "conditions": [_condition(group) for group in conditions],
        "tables": list(_tables(findings)),
    }
    maps = Maps(findings)
    charts = [
        {
            **_chart(group, names),
            "stairs": is_plane,
            "answer": _answer(group.iloc[0], findings.answers),
            "map": maps.place(group.iloc[0]),
        }
        for group in conditions
    ]
    return shown, {
        "backends": list(map(backend_name, names)),
        "any": names.index(NONE) if NONE in names else None,
        "states": [[STATE_WORDS[state], fill] for state, fill in FILLS.items()],
        "log_range": LOG_RANGE,
        "charts": charts,
        "maps": maps.made,
    }


def _answer(row: pd.Series, answers: Sequence[str]) -> int | None:
    """The answer of a condition, by the title that it begins with; None if there is none. One that chooses
    an engine is that of this engine's setup.
    """
    netem = str(row["netem"])
    setup, _, engine = str(row["setup"]).rpartition(" ")
    of_engines = f"{title({**row, 'setup': setup}, netem)}: "
    chosen = re.compile(rf" by (\S+=)?{re.escape(engine)}\b" if engine else "$^")
    for place, answer in enumerate(answers):
        if answer.startswith(f"{title(row, netem)}: "):
            return place
        if answer.startswith(of_engines) and chosen.search(answer):
            return place
    return None


def _fewer(front: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The rows that there is room for, and a sentence on the others."""
    if len(front) <= MOST_CELLS:
        return front, ""
    likely = front[front["on_backend_front"] | (front["probability"] > 0)]
    kept = [group for _, group in likely.groupby(CONDITION, dropna=False, observed=True)]
    several = len(kept)
    while kept and sum(map(len, kept)) > MOST_CELLS:
        kept.pop()
    rows = pd.concat(kept) if kept else front.iloc[:0]
    note = f"{len(rows)} of {len(front)} points are shown here: those that are, or may be, on a front"
    if len(kept) < several:
        note += f", of the first {len(kept)} of {several} conditions"
    return rows, f"{note}. All are in front.csv."


def _condition(rows: pd.DataFrame) -> dict[str, Any]:
    setup = rows.iloc[0]["setup"]
    return {
        "title": condition_title(rows.iloc[0]),
        "about": _about(rows) + (f" Setup: {setup}." if setup else ""),
        "has_chart": bool((rows["rounds"] > 0).any()),
        "columns": columns(rows),
    }


def _about(rows: pd.DataFrame) -> str:
    """The number of rounds and of points, and what was left out."""
    off = struck_off(rows)
    counts = sorted({int(rounds) for rounds in rows.loc[~off, "rounds"] if rounds})
    excluded = int(rows["left_out"].sum())
    if not counts:
        return f"No valid trial: {count(excluded, 'trial')} left out, so there is nothing to draw."
    span = f"{counts[0]} to {counts[-1]} rounds" if len(counts) > 1 else f"{counts[0]} rounds"
    parts = [
        f"{'One round' if counts == [1] else f'Medians over {span}'}; {count(int((~off).sum()), 'point')}."
    ]
    parts += (
        [f"The search struck off {off.sum()} more, which take no part in any front."] if off.any() else []
    )
    parts += [f"{count(excluded, 'trial')} left out, as invalid or failed."] if excluded else []
    if rows["latency_low_s"].isna().all():
        parts.append("Too few rounds for 95 % intervals.")
    return " ".join(parts)


def columns(rows: pd.DataFrame) -> list[Column]:
    """Every figure of some rows of one condition. A figure that none of them has gets no column."""
    names = Column("name", [str(name) or UNKNOWN for name in rows["point_name"]])
    return [
        Column("backend", [backend_name(backend) for backend in rows["backend"]]),
        Column("point", [str(point) for point in rows["point"]], kind="point"),
        *([names] if set(names.cells) != {UNKNOWN} else []),
        Column("front", _places(rows), detail="front", group=_POINT),
        *_figures(rows),
    ]


def _figures(rows: pd.DataFrame) -> Iterator[Column]:
    """Yield the columns of `_FIGURES` with a known cell."""
    # By the least latency: its parts are smaller still.
    time, per_second = time_unit(float(rows["latency_s"].min()))
    devices = next((str(names) for names in rows["energy_of"] if names), "")
    chain = len(hosts(str(rows["point"].iloc[0])))
    words: dict[str, Callable[[str], str]] = {
        "bound_by": lambda step: short_step(step, chain),
        "busiest": lambda step: short_step(step, chain),
        "ties": _few,
        "on_codec_front": str,
    }
    hidden: set[str] = (
        set() if (~is_none(rows["codec"])).any() else {"agreement", "output_error", "wire_bytes_per_image"}
    )
    if hidden and (rows["on_codec_front"] == rows["on_front"]).all():
        hidden.add("on_codec_front")
    rows = rows.assign(on_codec_front=np.where(rows["on_codec_front"].astype(bool), _ALL, ""))
    for head, names, unit, scale, decimals, detail, group in _FIGURES:
        column, *high = names.split()
        if column in hidden:
            continue
        if column in words:
            cells = [words[column](str(text)) if text else UNKNOWN for text in rows[column].fillna("")]
            if set(cells) != {UNKNOWN}:
                yield Column(head, cells, detail=detail, group=group)
            continue
        if rows[column].isna().all():
            continue
        if unit == _TIME:
            unit, scale, decimals = time, per_second, 4 if time == "s" else 2
        elif unit == _IPS:
            decimals = _decimals(rows["throughput_ips"])
        values = [rows[name].astype(float) * scale for name in (column, *high)]
        if column in _SURE:
            yield Column(head, list(map(sureness, values[0])), unit, "number", detail, group)
            continue
        cells = spans(values[0], values[1], decimals) if high else figures(values[0], decimals)
        yield Column(head, cells, unit.format(devices=devices), "number", detail, group)


def _decimals(values: pd.Series, least: int = 2, most: int = 4) -> int:
    """The number of decimals that leave the smallest value three significant digits."""
    positive = values[values > 0]
    return least if positive.empty else min(most, max(least, 2 - math.floor(math.log10(positive.min()))))


def _places(rows: pd.DataFrame) -> list[str]:
    """A word for each point: whether it is on the front of all, of its backend, or of none; or what struck it off."""
    places = rows[["feasible", "on_front", "on_backend_front"]].itertuples(index=False)
    named = [
        (_ALL if overall else _OWN if own else _DOMINATED) if allowed else _INFEASIBLE
        for allowed, overall, own in places
    ]
    how = [by if off else "" for by, off in zip(rows.get(SETTLED, named), struck_off(rows), strict=True)]
    return [f"struck off by {by}" if by else place for by, place in zip(how, named, strict=True)]


def _few(ties: str) -> str:
    each = ties.split("; ")
    return ties if len(each) <= MOST_TIES else f"{'; '.join(each[:MOST_TIES])}; {len(each) - MOST_TIES} more"


def _chart(rows: pd.DataFrame, names: Sequence[str]) -> dict[str, Any]:
    """The places of a table's points, row by row: x and y with their intervals, the backend's place, which front,
    and how full the mark is.
    """
    unit, scale = time_unit(float(rows["latency_s"].min()))
    figures = [
        *(("latency_s", scale), ("throughput_ips", 1.0), ("latency_low_s", scale), ("latency_high_s", scale)),
        *(("throughput_low_ips", 1.0), ("throughput_high_ips", 1.0)),
    ]
    places = [[short(value * by) for value in rows[column]] for column, by in figures]
    backend = [names.index(str(name)) for name in rows["backend"]]
    fronts = [{_ALL: 2, _OWN: 1, _INFEASIBLE: -1}.get(place, 0) for place in _places(rows)]
    fills = [FILLS[state] for state in states(rows)]
    first = rows.iloc[0]
    return {
        "keys": {name: str(first[key]) for key, name in KEYS.items()},
        "unit": unit,
        "points": [list(point) for point in zip(*places, backend, fronts, fills, strict=True)],
    }


def short(value: float) -> float | None:
    """The value with six digits, more than any screen shows; None for NaN."""
    return None if math.isnan(value) else float(f"{value:.6g}")


def _tables(findings: Findings) -> Iterator[dict[str, Any]]:
    """Yield the tables of hypervolumes, of what they cost, of what a search struck off, and of overheads."""
    volumes, costs = findings.hypervolumes, findings.overhead
    if not volumes.empty:
        shown = volumes.head(MOST_ROWS)
        ends = zip(shown["hypervolume_low"], shown["hypervolume_high"], strict=True)
        known = [UNKNOWN if pd.isna(low) or pd.isna(high) else f"{low:.5g}..{high:.5g}" for low, high in ends]
        yield {
            **_table_of(volumes, "What the fronts are worth", "Hypervolume"),
            "about": "The hypervolume of a front is what it dominates up to the reference: the more, the better.",
            "columns": [
                *_named(shown),
                Column("hypervolume", [f"{value:.5g}" for value in shown["hypervolume"]], kind="number"),
                Column("95 %", known, kind="number"),
                number("rounds", shown["rounds"], 0),
                Column("reference", [str(reference) for reference in shown["reference"]]),
            ],
        }
    if len(costs_of_answers := summaries(findings.progress)):
        shown = costs_of_answers.head(MOST_ROWS)
        yield {
            **_table_of(costs_of_answers, "What the answers cost", "Time until the front was known"),
            "about": (
                f"known after: from then on the front by the medians so far was worth {KNOWN:.0%} of the final one's "
                "hypervolume, at the final medians. Times are those of trials, with a search's model profiles."
            ),
            "columns": [
                Column("condition", [condition_title(row) for row in shown[CONDITION].to_dict("records")]),
                Column("run", [str(run) for run in shown["run"]]),
                Column("cells", ["search" if search else "all" for search in shown["search"]]),
                number("trials", shown["trials"], 0),
                number("took", shown["took_s"], 0, "s"),
                number("known after", shown["known_s"], 0, "s"),
            ],
        }
    if len(findings.struck):
        shown = findings.struck.head(MOST_ROWS)
        yield {
            **_table_of(findings.struck, "What the search struck off", "Cells that were struck off"),
            "about": (
                "physics: the cell has no trial, and latency and images/s are its bound, which another cell was "
                "measured to beat. rounds: another cell was better in differences within rounds, and they are the "
                "medians of its trials. p: the probability that this is chance, at most."
            ),
            "columns": [
                *_named(shown),
                Column("point", [str(point) for point in shown["point"]]),
                Column("by", [str(how) for how in shown["how"]]),
                number("after round", shown["round"], 0),
                number("latency", shown["latency_s"] * 1e3, 2, "ms"),
                number("throughput", shown["throughput_ips"], 2, "images/s"),
                Column("beaten by", [f"{row.by_backend} {row.by_point}" for row in shown.itertuples()]),
                Column("p", [f"{chance:.1g}" for chance in shown["probability"]], kind="number"),
            ],
        }
    if not costs.empty:
        shown = costs.head(MOST_ROWS)
        yield {
            **_table_of(costs, "Latency beyond the bound", "Overhead beyond the bound"),
            "about": (
                "Latency over its bound, as a line over the bytes that cross: a for every request, b for every "
                "megabyte. It is all that the bound leaves out, the backend and what the machine itself costs; "
                "headers is what of b the headers of TCP are; noise: hidden by the noise of the rounds."
            ),
            "columns": [
                *_named(shown),
                *overhead_columns(shown),
                number("eff.", shown["latency_efficiency"] * 100, 1, "%"),
            ],
        }


def _table_of(rows: pd.DataFrame, head: str, caption: str) -> dict[str, Any]:
    is_cut = len(rows) > MOST_ROWS
    more = f", the first {MOST_ROWS} of {len(rows)} rows" if is_cut else ""
    return {"head": head, "caption": f"{caption}{more}", "is_cut": is_cut}


def _named(rows: pd.DataFrame) -> Iterator[Column]:
    yield Column("condition", [condition_title(row) for row in rows[CONDITION].to_dict("records")])
    yield Column("backend", [str(backend) for backend in rows["backend"]])

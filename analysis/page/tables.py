"""The page's other tables: frames as columns of text, the link, what does not count, and where runs were made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from pareto.analysis.costs import payload_share
from pareto.analysis.findings import Findings
from pareto.analysis.fronts.answer import summaries
from pareto.analysis.naming import condition_title, time_unit
from pareto.analysis.runs.comparable import NOT_SET, chosen, made, measured, remarks, words
from pareto.analysis.runs.load import Run
from pareto.analysis.runs.manifest import section
from pareto.analysis.runs.points import CONDITION
from pareto.analysis.tables.report import overhead_columns
from pareto.analysis.tables.table import UNKNOWN, Column, numbers

MOST_ROWS = 500
"""How many rows a table has, beside that of the points."""
LONG = 4000
"""How many characters of a reason the page holds. A traceback has as many; a program's output may have millions."""
UNITS = {
    "_s": ("s", 1.0),
    "_ips": ("/s", 1.0),
    "_bps": ("Mbit/s", 1e-6),
    "_bytes": ("kB", 1e-3),
    "_j": ("J", 1.0),
    "_percent": ("%", 1.0),
    "": ("", 1.0),
}
"""By the end of a column's name its unit on the page, and how many of it make one of the column's."""
_LINK = ("rtt_s", "rate_bps", "rate_back_bps", "loss", "loss_back")
_VOLUMES = ("backend", "hypervolume", "hypervolume_low", "hypervolume_high", "rounds", "reference")
_ANSWERS = ("run", "search", "trials", "took_s", "known_s")
_STRUCK = (
    *("backend", "point", "how", "round", "latency_s", "throughput_ips"),
    *("by_backend", "by_point", "probability"),
)


def plain(
    rows: pd.DataFrame, names: Iterable[str], time: tuple[str, float] | None = None
) -> Iterator[Column]:
    """Yield columns of a frame under their own names; numbers with four digits, in the unit that the name ends in.

    time: the unit of times, and how many of it make a second; without one each column has that in which it reads best.
    """
    for name in names:
        values = rows[name]
        if values.dtype == bool or not pd.api.types.is_numeric_dtype(values):
            told = values.astype(object).replace({True: "yes", False: "no", "": UNKNOWN}).fillna(UNKNOWN)
            cells = [*told.astype("str")]
            yield Column(name.replace("_", " "), cells, kind="point" if name == "point" else "text")
            continue
        end = next(end for end in UNITS if name.endswith(end))
        unit, scale = (time or time_unit(float(values.max()))) if end == "_s" else UNITS[end]
        head = name.removesuffix(end).replace("_", " ")
        yield Column(head, [*map(_digits, values * scale)], unit, "number")


def _digits(value: float) -> str:
    if not np.isfinite(value):
        return UNKNOWN
    is_tiny = 0 < abs(value) < 1e-4
    return f"{value:.2g}" if is_tiny else np.format_float_positional(value, 4, fractional=False, trim="-")


def others(findings: Findings) -> dict[str, list[Column]]:
    """The tables of what fronts are worth, what answers cost, what a search struck off, and overheads."""
    frames = {
        "volumes": (findings.hypervolumes, _VOLUMES),
        "answers": (summaries(findings.progress), _ANSWERS),
        "struck": (findings.struck, _STRUCK),
        "overhead": (findings.overhead, ("backend",)),
    }
    shown = {name: (rows.head(MOST_ROWS), names) for name, (rows, names) in frames.items() if len(rows)}
    return {
        name: [
            Column("condition", [condition_title(row) for row in rows[CONDITION].to_dict("records")]),
            *plain(rows, names),
            *(overhead_columns(rows) if name == "overhead" else ()),
        ]
        for name, (rows, names) in shown.items()
    }


def link(findings: Findings) -> list[Column]:
    """The link of each profile as asked and as probed: the median (least to most), on the wire."""
    rows = findings.links
    if rows.empty:
        return []
    manifests = {name: run.manifest for run in findings.runs for name in run.names}
    pairs = zip(rows["run"], rows["netem"], strict=True)
    share = [payload_share(manifests.get(str(run), {}), str(netem)) for run, netem in pairs]
    rows = rows.assign(rate_bps=rows["rate_bps"] / share, rate_back_bps=rows["rate_back_bps"] / share)
    names = [name for what in _LINK for name in (f"asked_{what}", what) if name in rows]
    known = [name for name in names if rows[name].notna().any()]
    ok = rows["verdict"] == "ok"
    groups = rows.assign(ok=ok, off=~ok).groupby(["netem", "link"], dropna=False, observed=True)
    three = zip(*(plain(groups[known].agg(how), known) for how in ("median", "min", "max")), strict=True)
    counts = groups[["ok", "off"]].sum().reset_index()
    return [
        *plain(counts, ("netem", "link")),
        *(
            replace(each, values=[*map(_spanned, each.cells, low.cells, high.cells)])
            for each, low, high in three
        ),
        *(numbers(counts, f"probes {name}", name, digits=0) for name in ("ok", "off")),
    ]


def _spanned(middle: str, low: str, high: str) -> str:
    return middle if low == high else f"{middle} ({low} to {high})"


def reasons(rows: pd.DataFrame, *by: str) -> list[Column]:
    """The reasons why rows do not count, the most frequent first, each in its first wording: numbers in it differ."""
    if rows.empty:
        return []
    texts = rows["reason"].astype("str").str.strip().replace("", "no reason was written")
    more = (texts.str.len() - LONG).map(lambda more: f"\n... {more} characters more" if more > 0 else "")
    kinds = texts.str[:LONG].str.replace(r"\d+(?:\.\d+)?", "#", regex=True).rename("kind")
    each = rows[[*by]].assign(reason=texts.str[:LONG] + more)
    groups = each.groupby([*by, kinds], sort=False, observed=True)["reason"]
    found = groups.agg(**{"how often": "size", "reason": "first"}).reset_index()
    shown = found.sort_values("how often", ascending=False, kind="stable").head(MOST_ROWS)
    return [*plain(shown, ("how often", *by, "reason"))]


def environment(run: Run) -> dict[str, dict[str, str]]:
    """The facts of a run's manifest in words, by subject (run, hosts, models, profiles); none without a manifest."""
    manifest: Mapping[str, Any] = run.manifest
    if not manifest:
        return {}
    own = made(manifest, section(manifest, "models"), section(manifest, "profiles"), exactly=True)
    told: dict[str, dict[str, str]] = {}
    for (subject, name), value in (chosen(manifest) | measured(manifest) | remarks(manifest) | own).items():
        if value is not False and (text := words(value)) != NOT_SET:
            told.setdefault(subject or "run", {})[name.replace("_", " ")] = text
    return told

"""The page's other tables: frames as columns of text, the link, what does not count, and where runs were made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from pareto.analysis.tables.columns import UNKNOWN, Column, number
from pareto.analysis.tables.front import overhead_columns

MOST_ROWS = 500
"""How many rows a table has, beside that of the points."""
MOST_RUNS = 40
"""How many runs' environments are shown."""
LONG = 4000
"""How many characters of a reason the page holds. A traceback has as many; a program's output may have millions."""
UNITS = {
    "_s": ("s", 1.0),
    "_ips": ("/s", 1.0),
    "_bps": ("Mbit/s", 1e-6),
    "_bytes": ("kB", 1e-3),
    "_j": ("J", 1.0),
    "_percent": ("%", 1.0),
}
"""By the end of a column's name its unit on the page, and how many of it make one of the column's."""
_LINK = ("rtt_s", "rate_bps", "rate_back_bps", "loss", "loss_back")
_VOLUMES = ("backend", "hypervolume", "hypervolume_low", "hypervolume_high", "rounds", "reference")
_STRUCK = (
    "backend",
    "point",
    "how",
    "round",
    "latency_s",
    "throughput_ips",
    "by_backend",
    "by_point",
    "probability",
)


def plain(
    rows: pd.DataFrame, names: Iterable[str], time: tuple[str, float] | None = None
) -> Iterator[Column]:
    """Yield columns of a frame under their own names; numbers with four digits, in the unit that the name ends in.

    time: the unit of times, and how many of it make a second; without one each column has that in which it reads best.
    """
    for name in names:
        head, values = name.replace("_", " "), rows[name]
        if not pd.api.types.is_numeric_dtype(values) or values.dtype == bool:
            told = values.replace({True: "yes", False: "no"}) if values.dtype == bool else values
            cells = [str(value) if value == value and value != "" else UNKNOWN for value in told]
            yield Column(head, cells, kind="point" if name == "point" else "text")
            continue
        end = next((end for end in UNITS if name.endswith(end)), "")
        unit, scale = UNITS.get(end, ("", 1.0))
        if end == "_s":
            unit, scale = time or time_unit(float(values.max()))
        numbers = list(map(_digits, values * scale))
        yield Column(head.removesuffix(end.replace("_", " ")), numbers, unit, "number")


def _digits(value: float) -> str:
    if not np.isfinite(value):
        return UNKNOWN
    is_tiny = 0 < abs(value) < 1e-4
    return f"{value:.2g}" if is_tiny else np.format_float_positional(value, 4, fractional=False, trim="-")


def others(findings: Findings) -> dict[str, list[Column]]:
    """The tables of what fronts are worth, what answers cost, what a search struck off, and overheads."""
    costs = findings.overhead
    of = {
        "volumes": (findings.hypervolumes, _VOLUMES),
        "answers": (summaries(findings.progress), ("run", "search", "trials", "took_s", "known_s")),
        "struck": (findings.struck, _STRUCK),
        "overhead": (costs, ("backend",)),
    }
    shown = {name: (rows.head(MOST_ROWS), names) for name, (rows, names) in of.items() if len(rows)}
    return {
        name: [
            Column("condition", [condition_title(row) for row in rows[CONDITION].to_dict("records")]),
            *plain(rows, names),
            *(overhead_columns(rows) if name == "overhead" else ()),
        ]
        for name, (rows, names) in shown.items()
    }


def link(findings: Findings) -> dict[str, Any]:
    """The link of each profile as asked and as probed, on the wire, and why probes were off."""
    rows = findings.links
    if rows.empty:
        return {}
    manifests = {name: run.manifest for run in findings.runs for name in run.names}
    pairs = zip(rows["run"], rows["netem"], strict=True)
    share = [payload_share(manifests.get(str(run), {}), str(netem)) for run, netem in pairs]
    rows = rows.assign(rate_bps=rows["rate_bps"] / share, rate_back_bps=rows["rate_back_bps"] / share)
    known = [
        name
        for what in _LINK
        for name in (f"asked_{what}", what)
        if name in rows and rows[name].notna().any()
    ]
    groups = rows.groupby(["netem", "link"], dropna=False, observed=True)
    three = zip(*(plain(groups[known].agg(how), known) for how in ("median", "min", "max")), strict=True)
    spans = [
        Column(each.head, list(map(_spanned, each.cells, low.cells, high.cells)), each.unit, "number")
        for each, low, high in three
    ]
    ok = groups["verdict"].agg(lambda verdicts: (verdicts == "ok").sum())
    off = rows[rows["verdict"] != "ok"]
    return {
        "columns": [
            *plain(ok.index.to_frame(), ("netem", "link")),
            *spans,
            number("probes ok", ok, 0),
            number("probes off", groups.size() - ok, 0),
        ],
        "off": len(off),
        "probes": len(rows),
        "reasons": reasons(off, "netem"),
    }


def _spanned(middle: str, low: str, high: str) -> str:
    return middle if low == high else f"{middle} ({low} to {high})"


def reasons(rows: pd.DataFrame, *by: str) -> list[Column]:
    """The reasons why rows do not count, the most frequent first, each in its first wording: numbers in it differ."""
    if rows.empty:
        return []
    texts = rows["reason"].astype("str").str.strip().replace("", "no reason was written")
    more = (texts.str.len() - LONG).map(lambda more: f"\n... {more} characters more" if more > 0 else "")
    kinds = texts.str[:LONG].str.replace(r"\d+(?:\.\d+)?", "#", regex=True).rename("kind")
    groups = rows.assign(reason=texts.str[:LONG] + more).groupby([*by, kinds], sort=False, observed=True)[
        "reason"
    ]
    found = groups.agg(["size", "first"]).sort_values("size", ascending=False, kind="stable").reset_index()
    shown = found.head(MOST_ROWS).rename(columns={"size": "how often", "first": "reason"})
    return list(plain(shown, ("how often", *by, "reason")))


def environments(runs: Sequence[Run]) -> list[tuple[str, str, dict[str, dict[str, str]]]]:
    """Each run's name, when it was made, and what is recorded by subject: of the run, hosts, models, profiles."""
    return [
        (run.folder.name, str(run.manifest.get("created_at", "")), _told(run.manifest))
        for run in runs[:MOST_RUNS]
    ]


def _told(manifest: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The facts of a manifest in words, by subject; none of one that could not be read."""
    own = made(manifest, section(manifest, "models"), section(manifest, "profiles"), exactly=True)
    told: dict[str, dict[str, str]] = {}
    for (subject, name), value in (chosen(manifest) | measured(manifest) | remarks(manifest) | own).items():
        if manifest and value is not False and (text := words(value)) != NOT_SET:
            told.setdefault(subject or "run", {})[name.replace("_", " ")] = text
    return told

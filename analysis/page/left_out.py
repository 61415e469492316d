"""Trials that do not count, each with its reason."""

from __future__ import annotations

import pandas as pd

from analysis.page.fronts import KEYS
from analysis.page.grid import Column, table
from analysis.page.markup import Html, element, joined

MOST_TRIALS = 200
MOST_KINDS = 50
SHORT = 160
"""Characters of a reason that are read at a glance; the rest opens."""
LONG = 4000
"""Of a reason. A traceback has as many; what a program poured out may have millions."""


def left_out(trials: pd.DataFrame) -> Html:
    """Every trial that is invalid or failed; of more than `MOST_TRIALS`, the first, and all counted by reason."""
    bad = trials[trials["status"] != "ok"]
    if trials.empty:
        return element("p", "No trial has ended yet.")
    if bad.empty:
        return element("p", f"None: all {len(trials)} trials are ok.")
    counts = bad["status"].value_counts()
    told = ", ".join(f"{counts[status]} {status}" for status in sorted(counts.index, reverse=True))
    parts = [element("p", f"{len(bad)} of {len(trials)} trials: {told}. They are in no figure above.")]
    if len(bad) > MOST_TRIALS:
        parts.append(_kinds(bad))
        parts.append(
            element(
                "p",
                f"Below are the first {MOST_TRIALS} of {len(bad)}; all are in trials.csv, by their status.",
                class_="cut",
            )
        )
    return joined([*parts, _each(bad.head(MOST_TRIALS))])


def _kinds(bad: pd.DataFrame) -> Html:
    """How often each reason, whatever numbers it holds."""
    reasons = bad["reason"].map(lambda reason: _line(reason)[:SHORT])
    kinds = reasons.str.replace(r"\d+(?:\.\d+)?", "#", regex=True)
    grouped = bad.assign(reason=reasons, kind=kinds).groupby(["status", "kind"], observed=True)
    counted = grouped["reason"].agg(["size", "first"]).sort_values("size", ascending=False, kind="stable")
    shown = counted.head(MOST_KINDS).reset_index()
    caption = "Reasons by how often they occur, with an example of each"
    if len(counted) > len(shown):
        caption += f"; the first {len(shown)} of {len(counted)}"
    columns = [
        Column("trials", [str(count) for count in shown["size"]], kind="number"),
        Column("status", list(shown["status"])),
        Column("reason", list(shown["first"])),
    ]
    return table(columns, caption)


def _each(bad: pd.DataFrame) -> Html:
    varying = [key for key in ("run", *KEYS) if key in bad and bad[key].nunique(dropna=False) > 1]
    keys = ["model", "netem", *(key for key in varying if key not in ("model", "netem"))]
    columns = [
        *(Column(KEYS.get(key, key), bad[key].astype(str).tolist()) for key in keys),
        Column("backend", bad["backend"].astype(str).tolist()),
        Column("point", bad["point"].astype(str).tolist(), kind="point"),
        Column("round", bad["round"].astype(str).tolist(), kind="number"),
        Column("status", bad["status"].astype(str).tolist()),
        Column("reason", [reason(text) for text in bad["reason"].astype(str)]),
    ]
    return table(columns, "Trials that do not count", class_="reasons")


def reason(text: str) -> Html:
    """A line; what is longer opens."""
    line = _line(text)
    if len(line) <= SHORT and "\n" not in text.strip():
        return joined([line or "no reason was written"])
    kept = text.strip()[:LONG]
    more = len(text.strip()) - len(kept)
    ending = f"\n... {more} characters more, in trials.csv" if more else ""
    head = line if len(line) <= SHORT else f"{line[:SHORT]}..."
    return element("details", element("summary", head), element("pre", kept + ending))


def _line(text: str) -> str:
    """The line that says it: of a traceback the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    return lines[-1] if lines[0].startswith("Traceback") else " ".join(lines)

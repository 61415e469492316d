"""The link's verdict: what each profile asked for, and what the probes measured."""

from __future__ import annotations

import pandas as pd

from analysis.page.grid import UNKNOWN, Column, spanned, table
from analysis.page.markup import Html, element, items, joined

LINK = ["netem", "link"]
MOST_REASONS = 20


def link(links: pd.DataFrame) -> Html:
    """A row for each profile and link, from the probes of `link.csv`; reasons of those that were off, with counts."""
    if links.empty:
        return element("p", "No probe of the link was recorded.")
    rows = [
        _row(str(netem), str(name), probes)
        for (netem, name), probes in links.groupby(LINK, dropna=False, observed=True)
    ]
    heads = [head for head in rows[0] if any(row[head] != UNKNOWN for row in rows)]
    columns = [
        Column(head, [row[head] for row in rows], kind="number" if head.startswith("probes") else "text")
        for head in heads
    ]
    off = links[links["verdict"] != "ok"]
    told = (
        element("p", "No probe was off.")
        if off.empty
        else joined([element("p", f"{len(off)} of {len(links)} probes were off:"), _reasons(off)])
    )
    about = (
        "Every trial has probes of the link before and after it. Measured rates are of payload: "
        "TCP's headers take about 4 % more."
    )
    caption = "Asked of the link, and measured: the median of the probes (least to most)"
    return joined([element("p", about), table(columns, caption, class_="link"), told])


def _row(netem: str, name: str, probes: pd.DataFrame) -> dict[str, str]:
    ok = int((probes["verdict"] == "ok").sum())
    row = {"profile": netem, "link": name}
    for what, column, show in (
        ("round trip", "rtt_s", seconds),
        ("rate out", "rate_bps", rate),
        ("rate back", "rate_back_bps", rate),
        ("loss out", "loss", share),
        ("loss back", "loss_back", share),
    ):
        for prefix, told in (("asked_", "asked"), ("", "measured")):
            values = probes.get(f"{prefix}{column}", pd.Series(dtype=float))
            row[f"{what} {told}"] = spanned(pd.to_numeric(values, errors="coerce"), show)
    return row | {"probes ok": str(ok), "probes off": str(len(probes) - ok)}


def _reasons(off: pd.DataFrame) -> Html:
    """Most frequent first; the numbers in them differ from probe to probe, so the first stands for its kind."""
    kinds = off["reason"].astype(str).str.replace(r"\d+(?:\.\d+)?", "#", regex=True)
    groups = (
        off.assign(kind=kinds)
        .groupby(["netem", "kind"], sort=False, observed=True)["reason"]
        .agg(["first", "size"])
    )
    ordered = groups.sort_values("size", ascending=False, kind="stable").reset_index()
    lines = [
        f"{row['netem']}, {row['size']} x: {row['first'] or 'no reason given'}"
        for row in ordered.head(MOST_REASONS).to_dict("records")
    ]
    more = len(ordered) - len(lines)
    return items([*lines, *([f"{more} more kinds of reasons: see link.csv"] if more else [])])


def seconds(value: float) -> str:
    return f"{value * 1e3:.4g} ms" if value < 1 else f"{value:.4g} s"


def rate(value: float) -> str:
    for size, unit in ((1e9, "Gbit/s"), (1e6, "Mbit/s")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e3:.3g} kbit/s"


def share(value: float) -> str:
    return f"{value:.2%}"

"""Was the link what was requested? Every probe of a run over what the verdict allows; and one link over time."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from pareto.analysis.costs import bands
from pareto.analysis.figures import heads, style
from pareto.analysis.figures.drawing import Drawing, caption, origin
from pareto.analysis.figures.style import ALARM, LEVEL_COLOURS, SMALL_PT, entry
from pareto.analysis.naming import count
from pareto.analysis.runs.load import ONE_LINK

MOST_ROWS = 6
"""The profiles and links that fit one figure. For more there are several figures."""
MOST_DOTS = 2000
"""The most dots of a panel: of more probes only one in so many is drawn, but every one that is off."""
FAR = 2.0
"""Readings further off than this many tolerances stand at the panel's edge, so that they do not flatten all others."""
_OFF, _FINE = ALARM, "0.2"
_KEY = ["netem", "link"]
_DIRECTIONS = (
    ("rate_bps", "edge to server", LEVEL_COLOURS[0], "o"),
    ("rate_back_bps", "server to edge", LEVEL_COLOURS[1], "s"),
)


@dataclass(frozen=True)
class Quantity:
    """A column of readings, with those of what was asked and allowed; `blamed`: how a verdict's reason names it."""

    column: str
    asked: str
    least: str
    most: str
    title: str
    unit: str
    scale: float
    blamed: tuple[str, ...]


QUANTITIES = (
    Quantity("rtt_s", "asked_rtt_s", "rtt_least_s", "rtt_most_s", "RTT", "ms", 1e3, ("RTT", "echo")),
    Quantity(
        *("rate_bps", "rate_payload_bps", "rate_least_bps", "rate_most_bps"),
        *("out", "Mbit/s", 1e-6, ("rate edge to server",)),
    ),
    Quantity(
        *("rate_back_bps", "rate_back_payload_bps", "rate_back_least_bps", "rate_back_most_bps"),
        *("back", "Mbit/s", 1e-6, ("rate server to edge",)),
    ),
)


def link_asked_drawings(links: pd.DataFrame, manifests: Mapping[str, Mapping[str, Any]]) -> list[Drawing]:
    """One drawing a run, or several if it has more than `MOST_ROWS` profiles and links; none without probes.

    `links`: of `analysis.runs.load.links`; `manifests`: by the run's name, for tolerances and jitter.
    """
    if links.empty:
        return []
    made = []
    for run, probes in links.groupby("run", sort=False):
        manifest = manifests.get(str(run), {})
        data = link_asked_data(probes, manifest)
        rows = list(data.groupby(_KEY).groups)
        parts = [rows[start : start + MOST_ROWS] for start in range(0, len(rows), MOST_ROWS)]
        for number, part in enumerate(parts, 1):
            shown = data[pd.MultiIndex.from_frame(data[_KEY]).isin(part)].reset_index(drop=True)
            name = [str(run)] if links["run"].nunique() > 1 else []
            name += [str(number)] if len(parts) > 1 else []
            text = caption(*_sentences(shown, origin([manifest])))
            draw = functools.partial(link_asked_figure, shown)
            made.append(Drawing("link-asked", draw, shown, text, tuple(name)))
    return made


def link_asked_data(probes: pd.DataFrame, manifest: Mapping[str, Any]) -> pd.DataFrame:
    """The probes of one run with `probe`, their number in the order of the run, and the columns of `bands`."""
    return bands(probes.assign(probe=range(1, len(probes) + 1)), manifest).reset_index(drop=True)


def link_asked_figure(data: pd.DataFrame, width: str = "page") -> Figure:
    """Draw a line of panels for each profile (and link, in a chain): round trip (ms), rates (Mbit/s of payload).

    `data`: of `link_asked_data`. To the right the number of the probe; the line is what was asked, the band what the
    verdict allows, a cross what it did not. Above a panel: the median, and how far it is from what was asked.
    """
    rows = list(data.groupby(_KEY))
    shown = [QUANTITIES[0], *(one for one in QUANTITIES[1:] if data[one.asked].notna().any())]
    with style.blank(width, 0.75 + (1.05 if width == "page" else 1.0) * len(rows)) as figure:
        grid = figure.subplots(len(rows), len(shown), sharex=True, squeeze=False)
        for line, ((netem, link), probes) in zip(grid, rows, strict=True):
            for axes, quantity in zip(line, shown, strict=True):
                _draw(axes, probes, quantity, width)
            _name_row(line[0], str(netem), str(link), probes)
        for axes in grid[-1]:
            axes.set_xlim(1 - 0.02 * len(data), 1.02 * len(data))
            axes.xaxis.set_major_locator(MaxNLocator(2 if width == "column" else 5, integer=True))
        figure.supxlabel("probe of the run, in order", fontsize=SMALL_PT + 0.5)
        figure.align_ylabels()
        heads.figure_head(figure, "The link as requested and as measured", _legend(data))
    return figure


def _name_row(axes: Axes, netem: str, link: str, probes: pd.DataFrame) -> None:
    off = int((probes["verdict"] == "off").sum())
    name = netem if link == ONE_LINK else f"{netem}, {link}"
    every = count(len(probes), "probe")
    text = f"{name}: {off} of {every} off" if off else f"{name}: {every}, all ok"
    heading = axes.annotate(
        text, (0, 1), (0, 11), xycoords="axes fraction", textcoords="offset points", va="bottom",
        fontsize=SMALL_PT + 0.5, fontweight="bold", color=style.ink(_OFF) if off else "black", annotation_clip=False,
    )  # fmt: skip
    heading.set_in_layout(False)  # it may be longer than its panel is wide; the titles keep its height free


def _draw(axes: Axes, probes: pd.DataFrame, quantity: Quantity, width: str) -> None:
    wanted, least, most, read = (
        probes[column] * quantity.scale
        for column in (quantity.asked, quantity.least, quantity.most, quantity.column)
    )
    axes.tick_params(labelsize=SMALL_PT)
    if wanted.isna().all():
        axes.set_axis_off()  # it was not asked for; the panels of other lines keep their columns
        return
    axes.set_ylabel(f"{quantity.title} ({quantity.unit})", fontsize=SMALL_PT)
    at = probes["probe"]
    if wanted.nunique() == 1 and most.notna().all():
        axes.axhspan(float(least.min()), float(most.max()), color="0.88", linewidth=0, zorder=1)
        axes.axhline(float(wanted.iloc[0]), color="0.35", linewidth=0.9, zorder=2)
    else:
        axes.plot(at, wanted, color="0.35", linewidth=0.9, zorder=2)
    low, high = _limits(wanted, least, most, read)
    axes.set_ylim(low, high)
    off = _blamed(probes, quantity)
    inside = read.between(low, high)
    fine = inside & ~off
    fine &= fine.cumsum() % max(1, -(-int(fine.sum()) // MOST_DOTS)) == 0
    size = 1.6 if len(probes) > 150 else 2.4
    axes.plot(at[fine], read[fine], "o", color=_FINE, markersize=size, markeredgewidth=0, zorder=3)
    bottom, top = pd.Series(low, index=read.index), pd.Series(high, index=read.index)
    for those, y, marker in (
        (inside & off, read, "X"), (off & read.isna(), bottom, "X"),
        (read > high, top, "^"), (read < low, bottom, "v"),
    ):  # fmt: skip
        if those.any():  # without any, what is not clipped would draw the layout to the figure's corner
            axes.plot(
                at[those], y[those], marker, color=_OFF, markersize=4.5, markeredgecolor="white", markeredgewidth=0.3,
                clip_on=False, linestyle="", zorder=4,
            )  # fmt: skip
    axes.yaxis.set_major_locator(MaxNLocator(3, min_n_ticks=2))
    median = _middle(read, wanted, quantity)
    title = f"\nmedian {median}" if width == "page" else f"\n{median.partition(' (')[0]}"
    axes.set_title(title, loc="left", fontsize=SMALL_PT, fontweight="normal", pad=3)


def _limits(wanted: pd.Series, least: pd.Series, most: pd.Series, read: pd.Series) -> tuple[float, float]:
    every = pd.concat([wanted, least, most, read]).dropna()
    low, high = float(every.min()), float(every.max())
    if (most > least).any():
        allowed = max(float((most - wanted).max()), 1e-12)
        low = max(low, float(wanted.min()) - FAR * allowed)
        high = min(high, float(wanted.max()) + FAR * allowed)
    room = 0.08 * (high - low or abs(high) or 1.0)
    return low - room, high + room


def _blamed(probes: pd.DataFrame, quantity: Quantity) -> pd.Series:
    """The probes that are off by this quantity, as their reason says."""
    named = probes["reason"].map(lambda reason: any(word in reason for word in quantity.blamed))
    blamed: pd.Series = named & (probes["verdict"] == "off")
    return blamed


def _middle(read: pd.Series, wanted: pd.Series, quantity: Quantity) -> str:
    """The median and how far it is from what was asked: a round trip in its unit, a rate in percent."""
    median, target = float(read.median()), float(wanted.median())
    if np.isnan(median):
        return "not measured"
    in_percent = f" ({100 * (median / target - 1):+.1f} %)" if target else ""
    away = f" ({median - target:+.2g} {quantity.unit})" if quantity is QUANTITIES[0] else in_percent
    return f"{median:.4g} {quantity.unit}{away}".replace("-", "\N{MINUS SIGN}").replace(
        "\N{MINUS SIGN}0.0 %", "+0.0 %"
    )


def _legend(data: pd.DataFrame) -> list[Any]:
    entries: list[Any] = [
        entry("measured", marker="o", color=_FINE, markersize=3),
        entry("requested", color="0.35", linewidth=0.9, linestyle="-"),
    ]
    if data["rtt_most_s"].notna().any():
        entries.append(Patch(color="0.88", label="tolerance"))
    if (data["verdict"] == "off").any():
        entries.append(entry("off", marker="X", color=_OFF, markersize=4.5))
    return entries


def _sentences(data: pd.DataFrame, testbed: str) -> Iterator[str]:
    profiles = sorted(data["netem"].unique())
    off = int((data["verdict"] == "off").sum())
    yield (
        f"Every probe of the link, requested against measured: {count(len(data), 'probe')} of "
        f"{count(len(profiles), 'profile')} ({', '.join(profiles)}), "
        + (f"{len(data) - off} ok and {off} off" if off else "all ok")
    )
    yield "A probe is taken before and after a trial; one that is off is taken once more, and the second counts"
    yield (
        "Rates are of payload, from the edge out and back, requested and measured alike. Above each panel: the median, "
        "and at page width how far it is from what was requested"
    )
    if data["rtt_most_s"].notna().any():
        yield "The band is what the verdict allows: the tolerance, and the profile's jitter"
    if off:
        yield "Crosses: off, by the quantity that the verdict names; triangles: further off than the panel"
    if data["position_s"].notna().any():
        yield "Where a trace changes the link, the line is its mean, and no band is drawn"
    if len(lossy := data.dropna(subset=["asked_loss", "loss"])):
        lost, wanted = lossy["loss"].mean(), lossy["asked_loss"].mean()
        yield f"Packets lost out, mean of all samples: {100 * lost:.2f} %, requested {100 * wanted:.2f} %"
    yield f"Testbed: {testbed}" if testbed else ""


def link_figure(rows: Mapping[str, Sequence[float | None]], title: str) -> Figure:
    """Draw two panels over `at_s`: `rtt_s` within `asked_rtt_least_s` and `asked_rtt_most_s`; payload rates in both
    directions beside `asked_rate_bps` and `asked_rate_back_bps`. Seconds and bit/s; None where nothing is known.
    """
    known = {name: np.array(column, dtype=float) for name, column in rows.items()}  # None becomes NaN
    at = known["at_s"]
    with style.blank("page", 3.4) as figure:
        above, below = figure.subplots(2, sharex=True)
        least, most = (1e3 * known[f"asked_rtt_{which}_s"] for which in ("least", "most"))
        above.fill_between(at, least, most, color="0.85", linewidth=0)
        above.plot(at, (least + most) / 2, color="0.5", linewidth=1, label="requested")
        above.plot(at, 1e3 * known["rtt_s"], "o", color=_FINE, markersize=3, label="measured")
        above.set_ylabel("round trip (ms)")
        above.legend(loc="upper right", ncols=2)
        for column, label, colour, marker in _DIRECTIONS:
            wanted, measured = (known[name] / 1e6 for name in (f"asked_{column}", column))
            if np.isfinite(wanted).any():
                below.plot(at, wanted, color=colour, linewidth=1)
                below.plot(at, measured, marker, color=colour, markersize=3, label=label)
        if below.lines:
            below.legend(loc="upper right", ncols=2)
        else:
            below.text(0.5, 0.5, "no rate was requested", transform=below.transAxes, ha="center", color="0.4")
        below.set_ylabel("payload (Mbit/s)")
        below.set_xlabel("time (s)")
        for axes in (above, below):
            axes.set_ylim(0, 1.35 * max(axes.dataLim.y1, 1e-3))  # room for the legend
            axes.grid(visible=True)
        above.set_title(title, loc="left")
    return figure

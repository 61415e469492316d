"""One backend, codec or engine against another, point by point: how much longer a request takes, and how many images a
second less.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pareto.analysis.comparing.paired import ALL, KEYS, MIN_BLOCKS, What, compared
from pareto.analysis.engines import EAGER, engines, without_engine
from pareto.analysis.figures import heads, style
from pareto.analysis.figures.axes import MANY, STRIP_PT, in_order, label_points, places, strip
from pareto.analysis.figures.drawing import Drawing, caption, conditions
from pareto.analysis.figures.style import (
    LEVEL_COLOURS,
    MARKERS,
    SMALL_PT,
    CodecLook,
    Series,
    codec_looks,
    entry,
    looks,
)
from pareto.analysis.fronts.quality import codec_name
from pareto.analysis.naming import backends, subject, time_unit
from pareto.analysis.points import CELL
from pareto.analysis.standing import stands

SIGNIFICANT, UNSURE = "significant", "not significant"
INTERVAL, RANGE = "95 % interval", "range"

_HEAD_IN = 0.7
"""The height of a usual head, for which there is room. Many codecs and backends have a higher one."""
MARKS = {
    SIGNIFICANT: ("significant (corrected)", True, "-"),
    UNSURE: ("not significant (corrected)", False, "-"),
    INTERVAL: ("median and 95 % interval", True, "-"),
    RANGE: ("too few rounds: median and range", False, ":"),
}
"""The marks of a difference, by what is known of it: words of the legend, whether it is filled, its whiskers."""


@dataclass(frozen=True)
class Measure:
    """A figure that is compared: the columns of its difference and of its ends, all in one unit."""

    name: str
    middle: str
    low: str
    high: str
    less_is_better: bool


LATENCY = Measure("latency", "latency_difference_s", "latency_low_s", "latency_high_s", True)
THROUGHPUT = Measure(
    "throughput", "throughput_difference_percent", "throughput_low_percent", "throughput_high_percent", False
)


RELATIVE = replace(
    LATENCY, middle="latency_difference_percent", low="latency_low_percent", high="latency_high_percent"
)
"""Codecs and engines differ by most of the latency at one point and by little at another, which only shares show
together."""
KINDS: dict[What, str] = {"backend": "paired", "codec": "paired-codecs", "engine": "paired-engines"}


def paired_drawing(
    paired: pd.DataFrame, trials: pd.DataFrame, testbed: str = "", what: What = "backend"
) -> Drawing | None:
    """The drawing of one condition; None without two backends, codecs or engines with trials in one round.

    `paired`: of `analysis.comparing.paired.paired`, and `what` as there; `trials`: of `analysis.load`, the same
    conditions.
    """
    data = paired_data(paired, trials, what)
    if data.empty:
        return None
    counted = _counted(trials)
    text = caption(*_sentences(data), conditions(counted, testbed))
    return Drawing(KINDS[what], lambda width: paired_figure(data, counted, width=width), data, text)


def paired_data(paired: pd.DataFrame, trials: pd.DataFrame, what: What = "backend") -> pd.DataFrame:
    """The data of the figure, one row a point and pair: the columns of `paired`, and some more.

    point_name. latency_mark, throughput_mark: what is known of the difference, one of `MARKS`. Where that is `RANGE`,
    there are too few rounds for an interval, and the low and high columns are the least and the greatest difference.
    """
    points = paired[(paired["point"] != ALL) & (paired["pairs"] > 0)].reset_index(drop=True)
    if points.empty:
        return points
    points = points.merge(_ranges(trials, what), how="left", on=[*KEYS[what], "first", "other", "point"])
    for measure in (_latency(points), THROUGHPUT):
        has_interval = points[measure.low].notna() & points[measure.high].notna()
        for end in (measure.low, measure.high):
            points[end] = points[end].where(has_interval, points.pop(f"{end}_range"))
        points[f"{measure.name}_mark"] = np.where(has_interval, _known(points, measure), RANGE)
    ordered = in_order(points)
    return points.iloc[places(points, ordered).argsort(kind="stable")].reset_index(drop=True)


def _latency(data: pd.DataFrame) -> Measure:
    return RELATIVE if _against_base(data) else LATENCY


def _against_base(data: pd.DataFrame) -> bool:
    """Whether the pairs are of codecs, or of engines, over one backend each."""
    return "backend" in data


def paired_figure(data: pd.DataFrame, counted: pd.DataFrame, *, width: str = "page") -> Figure:
    """Draw two panels over the points: the difference in latency (ms or s; of codecs and engines, %) and in throughput
    (%), other - first.

    `data`: of `paired_data`. Above the upper panel stands the latency's difference in % of the first's. `counted`:
    of each cell, for the footnote.
    """
    points = in_order(data)
    first = data.iloc[0]
    of_base = _against_base(data)
    is_engine = of_base and "codec" in data
    levels = looks(counted["engine"].unique(), [EAGER]) if is_engine else codec_looks(counted)
    pairs = list(_pairs_of_base(data, levels) if of_base else _pairs(data, levels))
    latency = _latency(data)
    longest = float(data[[latency.middle, latency.low, latency.high]].abs().max(axis=None))
    unit, scale = ("%", 1.0) if of_base else time_unit(longest)
    with style.blank(width, 4.6 if width == "page" else 4.2, counted) as figure:
        above, below = figure.subplots(2, sharex=True, height_ratios=(4, 3))
        for axes, measure, factor in ((above, latency, scale), (below, THROUGHPUT, 1.0)):
            axes.axhline(0, color="0.25", linewidth=0.8, zorder=1.5)
            for place, pair in enumerate(pairs):
                shift = 0.7 * (place - (len(pairs) - 1) / 2) / len(pairs)
                _draw(axes, pair, places(pair.rows, points) + shift, measure, factor)
            axes.grid(True, axis="y")
            axes.margins(y=0.08)
            if len(pairs) == 1:
                _tell_sides(axes, first["first"], first["other"], measure, width)
        difference = f"{first['other']} − {first['first']}" if len(pairs) == 1 else "difference"  # noqa: RUF001
        above.set_ylabel(f"latency:\n{difference} ({unit})")
        below.set_ylabel("throughput:\n" + f"{difference} (%)")
        strip_pt = 0.0
        if len(pairs) == 1 and not of_base:
            texts = [_percent(value) for value in data["latency_difference_percent"]]
            strip_pt = strip(above, list(places(data, points)), texts, len(points), width)
        if strip_pt:
            above.annotate(
                f"% of {first['first']}", (0, 1), (-3, STRIP_PT), xycoords="axes fraction", textcoords="offset points",
                fontsize=SMALL_PT, color="0.35", ha="right", va="bottom", annotation_clip=False,
            )  # fmt: skip
        label_points(below, points)
        what, base = "Engines" if is_engine else "Codecs", codec_name(first["first"])
        several = f"{what} against {base}" if of_base else "Backends against each other"
        versus = several if len(pairs) > 1 else f"{first['other']} against {base}"
        head_in = heads.head(above, f"{versus}: {subject(first)}", _legend(data, pairs), strip_pt)
        heads.grow(figure, max(0.0, head_in - _HEAD_IN))
    return figure


def _pairs_of_base(data: pd.DataFrame, levels: Mapping[str, CodecLook]) -> Iterator[Series]:
    """Yield each codec, or engine, backend by backend, in its colour."""
    over = backends(data)
    for level, look in levels.items():
        for place, backend in enumerate(over):
            own = data[(data["other"] == level) & (data["backend"] == backend)]
            if len(own):
                label = f"{level} over {backend}" if len(over) > 1 else level
                marker = MARKERS[(look.place + place * len(levels)) % len(MARKERS)]
                yield Series(label, own, look.colour, marker, "-", backend, level)


def _pairs(data: pd.DataFrame, codecs: Mapping[str, CodecLook]) -> Iterator[Series]:
    """Yield each pair of backends, codec by codec: in the codec's colour where there are several codecs, in one that no
    backend has where there are not.
    """
    several = data["codec"].nunique() > 1
    pairs = data[["first", "other"]].drop_duplicates()
    for place, (first, other) in enumerate(pairs.itertuples(index=False)):
        for codec, look in codecs.items():
            own = data[(data["first"] == first) & (data["other"] == other) & (data["codec"] == codec)]
            if len(own):
                number = look.place + place * len(codecs)
                yield Series(
                    f"{other} − {first}" + (f", {codec_name(codec)}" if several else ""),  # noqa: RUF001
                    own,
                    look.colour if several else LEVEL_COLOURS[place % len(LEVEL_COLOURS)],
                    MARKERS[number % len(MARKERS)],
                    "-",
                    codec=codec,
                )


def _draw(axes: Axes, pair: Series, x: pd.Series, measure: Measure, factor: float) -> None:
    for kind, those in pair.rows.groupby(f"{measure.name}_mark"):
        _, is_filled, line = MARKS[str(kind)]
        middle = those[measure.middle] * factor
        ends = np.vstack([middle - those[measure.low] * factor, those[measure.high] * factor - middle])
        bars = axes.errorbar(
            x[those.index], middle, yerr=ends.clip(min=0), elinewidth=0.9, capsize=0 if line == ":" else 1.6, zorder=3,
            **_mark(pair, is_filled, 4 if len(pair.rows) <= MANY else 2),
        )  # fmt: skip
        for bar in bars[2]:
            bar.set_linestyle(line)


def _mark(pair: Series, is_filled: bool, size: float = 4) -> dict[str, Any]:
    return pair.mark(size, markerfacecolor=pair.colour if is_filled else "white")


def _legend(data: pd.DataFrame, pairs: Sequence[Series]) -> list[Line2D]:
    several = len(pairs) > 1
    entries = [entry(pair.label, **_mark(pair, True)) for pair in pairs] if several else []
    pair = Series("", data, "0.3", "o", "-") if several else pairs[0]
    present = _marks(data)
    for kind, (label, is_filled, line) in MARKS.items():
        if kind in present:
            entries.append(entry(label, **_mark(pair, is_filled) | {"linestyle": line, "linewidth": 0.9}))
    return entries


def _marks(data: pd.DataFrame) -> set[str]:
    return {*data["latency_mark"], *data["throughput_mark"]}


def _tell_sides(axes: Axes, first: str, other: str, measure: Measure, width: str) -> None:
    """Write which backend is faster on which side of zero."""
    up, down = (first, other) if measure.less_is_better else (other, first)
    between = "\n" if width == "column" else " "
    for y, who, place in ((1, up, "top"), (0, down, "bottom")):
        axes.annotate(
            f"{who}{between}faster", (1, y), (3, 0), xycoords="axes fraction", textcoords="offset points",
            ha="left", va=place, fontsize=SMALL_PT, color="0.35", rotation=90,
        )  # fmt: skip


def _percent(value: float) -> str:
    if np.isnan(value):
        return ""
    text = f"{value:+.0f}" if abs(value) >= 9.95 else f"{value:+.1f}"
    return text.replace("-", "\N{MINUS SIGN}")


def _ranges(trials: pd.DataFrame, what: What) -> pd.DataFrame:
    """The least and the greatest difference of a round, for each pair and point, and its name."""
    ranges = []
    latency = (LATENCY, "latency_s") if what == "backend" else (RELATIVE, "latency_percent")
    for pair, pairs in compared(trials, what):
        by_point = pairs.groupby("point")
        ends: dict[str, Any] = {}
        for measure, column in (latency, (THROUGHPUT, "throughput_percent")):
            ends[f"{measure.low}_range"] = by_point[column].min()
            ends[f"{measure.high}_range"] = by_point[column].max()
        ranges.append(
            pd.DataFrame(ends).reset_index().assign(**{str(key): value for key, value in pair.items()})
        )
    keys = [*KEYS[what], "point"]
    named = trials.assign(setup=without_engine(trials)) if what == "engine" else trials
    names = named.groupby(keys, dropna=False)["point_name"].max().reset_index()
    return pd.concat(ranges, ignore_index=True).merge(names, how="left", on=keys)


def _known(points: pd.DataFrame, measure: Measure) -> list[str]:
    """A word for each row: whether the difference is significant; `INTERVAL` where no test can tell."""
    # With fewer rounds than that a test says no whatever it is shown, which is no finding.
    enough = points["pairs"] >= points["rounds_needed"]
    return [
        INTERVAL if not can_tell else SIGNIFICANT if is_significant else UNSURE
        for can_tell, is_significant in zip(enough, points[f"{measure.name}_significant"], strict=True)
    ]


def _counted(trials: pd.DataFrame) -> pd.DataFrame:
    """One row a cell, with the number of its valid trials and of the others."""
    ok = stands(trials)
    both = stands(trials, "latency") & stands(trials, "throughput")
    counted = trials[CELL].assign(
        engine=engines(trials), rounds=ok, left_out=~ok, excluded=~both, trials=True
    )
    return counted.groupby([*CELL, "engine"], dropna=False).sum().reset_index()


def _sentences(data: pd.DataFrame) -> Iterator[str]:
    """Yield what the marks mean."""
    versus = ", ".join(dict.fromkeys(f"{row.other} - {codec_name(row.first)}" for row in data.itertuples()))
    shares = " in percent" if _against_base(data) else ""
    yield (
        f"Differences of latency and throughput{shares}, {versus}: medians of the differences of two trials of one "
        "round at one partition point"
    )
    marks = _marks(data)
    if marks - {RANGE}:
        yield "Whiskers are 95 % intervals of the median"
    if RANGE in marks:
        which = "Dotted whiskers" if marks - {RANGE} else "Whiskers"
        yield (
            f"{which} are the range of the rounds, which is no interval: with fewer than {MIN_BLOCKS} rounds there is "
            "none, and a difference may be chance"
        )
    tests, needed = int(data["tests"].max()), data["rounds_needed"].max()
    if marks & {SIGNIFICANT, UNSURE}:
        yield (
            "Filled: significant at 5 %, by a signed-rank test corrected by Holm for all "
            f"{tests} tests; hollow: not"
        )
    if INTERVAL in marks:
        yield (
            f"No significance is stated where there are fewer than {needed:.0f} rounds: a test among {tests} could not "
            "find any, and single intervals say nothing of all points together"
        )

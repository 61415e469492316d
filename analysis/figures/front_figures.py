"""Fronts: latency against throughput, of one condition and across profiles; and both against accuracy or energy."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Polygon

from pareto.analysis.figures import layout
from pareto.analysis.figures.drawing import POINT, Nothing, Told, told
from pareto.analysis.figures.layout import FIGURES, MOST_LABELS, On, Scheme
from pareto.analysis.figures.marks import FILLS, STATE_WORDS, states
from pareto.analysis.figures.style import NEUTRAL, Series, entry, evenly, faded
from pareto.analysis.fronts import energy, quality
from pareto.analysis.fronts.indicators import staircase
from pareto.analysis.naming import IN_WORDS, cell_name, point_label, some, subject
from pareto.analysis.runs.points import BUT_CODEC, CONDITION, NONE, cuts, each_once, undivided
from pareto.analysis.statistics.samples import Floats

MARKER_PT = 4.5
LEAST_SHARE = 0.3
"""Axes are shared where the points of every panel take up at least this share of them."""
MOST_CORNERS = 300
"""How many corners a band's edge has: many rounds give thousands, closer together than a printed line is wide."""
ENDS = {
    name: [f"{figure}_{end}_{unit}" for end in ("low", "high", "least", "most")]
    for name in FIGURES
    for figure, unit in [name.split("_")]
}
"""The ends of a figure's 95 % interval, and of its range over the rounds."""
_GREY = Series("", "0.3", "o")
_OF_SEARCH = ("settled", "least_latency_s", "most_throughput_ips")
_DATA = [
    *(*POINT, *FIGURES, "loaded_latency_s", *ENDS["latency_s"], *ENDS["throughput_ips"]),
    *("on_backend_front", "on_fronts_of", "on_front", "probability", "ties"),
]
_ACCURACY = ["accuracy", "accuracy_of", "accuracy_images", "accuracy_low", "accuracy_high", quality.LEVEL]
_ACCURACY += ["wire_bytes_per_image", "on_codec_front", "codec_probability", "codec_ties"]
_ENERGY = [energy.WHOLE, energy.ACTIVE, "energy_of", "on_energy_front"]
Row = dict[Any, Any]


def front(
    on: On,
    rows: pd.DataFrame,
    scheme: Scheme,
    attainment: pd.DataFrame | None = None,
    title: str | None = None,
) -> Told:
    """The points of one condition, latency to the right, throughput upwards: the best corner is the upper left.

    A backend's staircase bounds what its points attain; marks are filled by `marks.states`. Bars are 95 % intervals of
    what is or may be on a front, dotted the range of rounds too few for one; a band is what 5 % and 95 % of the
    resamples attain, of `fronts.indicators.attainment`. Raises `Nothing`.
    """
    measured, narrow = rows.dropna(subset=list(FIGURES)), layout.is_narrow(on)
    if measured.empty:
        raise Nothing("nothing to draw: no valid trial")
    (axes,) = layout.panels(on, 1, 1, 2.2 if narrow else 3.4)
    _fit(axes, measured, scheme)
    entries = _plane(axes, measured, scheme, attainment)
    bounds = rows.reindex(columns=list(_OF_SEARCH[1:])).astype(float).dropna().drop_duplicates()
    if len(bounds):
        tick: dict[str, Any] = {"marker": "|", "markersize": 5, "color": "0.5", "linestyle": ""}
        x, y = bounds["least_latency_s"] * scheme.per_s, bounds["most_throughput_ips"]
        axes.plot(x, y, **tick, zorder=1.5, scalex=False, scaley=False)
        entries["struck"] = entry("bound of one struck off", **tick)
    axes.set(xlabel=scheme.label("latency_s"), ylabel=scheme.label("throughput_ips"))
    title = f"Latency and throughput: {subject(rows.iloc[0])}" if title is None else title
    layout.head(on, axes, title, list(entries.values()), rows)
    _label(axes, measured, scheme, MOST_LABELS, named=not narrow)
    what = "Latency against throughput of every partition point: up and left is better"
    return told(what, rows, scheme.testbed, *_marks(rows, scheme)), rows[_columns(rows)]


def fronts(
    on: On,
    rows: pd.DataFrame,
    scheme: Scheme,
    attainment: pd.DataFrame | None = None,
    title: str | None = None,
) -> Told:
    """A panel for each profile of one model (and batch size, and depth), drawn as `front` is, in order of latency.

    Latency, and throughput, have the same axis in all panels if every panel's points fill enough of it (`LEAST_SHARE`).
    """
    groups, narrow = list(_panels(rows)), layout.is_narrow(on)
    owns = [group.dropna(subset=list(FIGURES)) for _, group in groups]
    if not any(map(len, owns)):
        raise Nothing("nothing to draw: no valid trial")
    columns = min(2 if narrow else 3, len(groups))
    lines = -(-len(groups) // columns)
    every = layout.panels(on, lines, columns, 0.3 + (1.4 if narrow else 1.9) * lines, count=len(groups))
    common = {name: pd.concat(owns) for name in FIGURES if _is_shared(owns, scheme, name)}
    entries: dict[str, Line2D] = {}
    for number, (axes, (name, _), own) in enumerate(zip(every, groups, owns, strict=True)):
        axes.set_title(name, loc="left", fontsize="medium", pad=3)
        if own.empty:
            axes.text(0.5, 0.5, "no valid trial", transform=axes.transAxes, ha="center", color="0.4")
            axes.set(xticks=[], yticks=[])
            continue
        _fit(axes, own, scheme, common)
        entries |= _plane(axes, own, scheme, attainment, 3.2 if narrow else 4.0)
        is_first, is_last = number % columns == 0, number + columns >= len(groups)
        axes.set_ylabel(("images/s" if narrow else scheme.label("throughput_ips")) if is_first else "")
        axes.set_xlabel(scheme.label("latency_s") if is_last else "")
        axes.tick_params(labelleft=is_first or "throughput_ips" not in common)
        axes.tick_params(labelbottom=is_last or "latency_s" not in common)
    title = f"Fronts of {rows['model'].iloc[0]} across profiles" if title is None else title
    layout.head(on, every[0], title, list(entries.values()), rows)
    for axes, own in zip(every, owns, strict=True):
        if len(own):
            _label(axes, own, scheme, 3 if narrow else 5, named=False)
    free = [name.split("_")[0] for name in FIGURES if name not in common]
    mind = f"Each panel has its own axis of {' and '.join(free)}" if free else "All panels share their axes"
    text = told("The fronts across profiles", rows, scheme.testbed, mind, *_marks(rows, scheme))
    return text, rows[_columns(rows)]


def _columns(rows: pd.DataFrame) -> list[str]:
    """The columns of the figure's data; those of a search only where there was one."""
    return [*_DATA, *(column for column in _OF_SEARCH if column in rows)]


def _panels(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Title and rows of each panel, from the quickest profile to the slowest, at last those without a valid trial."""
    by = ["netem", *(name for name in BUT_CODEC[2:] if rows[name].nunique() > 1)]
    groups = [group for _, group in rows.groupby(by, dropna=False, sort=True)]
    medians = pd.Series([group["latency_s"].median() for group in groups])
    for place in medians.sort_values(kind="stable").index:
        first = groups[place].iloc[0]
        words = {name: IN_WORDS[name].format(first[name]) for name in by if name in IN_WORDS}
        words |= {"batch_size": f"batch size {first['batch_size']}"}
        yield ", ".join(filter(None, (str(words.get(name, first[name])) for name in by))), groups[place]


def _is_shared(owns: list[pd.DataFrame], scheme: Scheme, name: str) -> bool:
    """Whether all panels may have the same axis for a figure."""
    placed = [np.log(own[name]) if scheme.logarithmic[name] else own[name] for own in owns if len(own)]
    spans = [float(np.ptp(each)) for each in placed]
    return min(filter(None, spans), default=math.inf) >= LEAST_SHARE * float(np.ptp(pd.concat(placed)))


def _contending(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the points on their backend's front, or perhaps on it."""
    return rows[states(rows) != "dominated"]


def _fit(
    axes: Axes, own: pd.DataFrame, scheme: Scheme, common: dict[str, pd.DataFrame] | None = None
) -> None:
    """Set both axes for these rows, or for those that panels share."""
    for axis, name in zip("xy", FIGURES, strict=True):
        rows = (common or {}).get(name, own)
        values = rows[name]
        if scheme.uncertainty == "box":
            low, high, least, most = (_contending(rows)[end] for end in ENDS[name])
            values = pd.concat([values, low.fillna(least), high.fillna(most)])
        layout.fit_axis(axes, axis, values * scheme.scale(name), scheme.logarithmic[name])


def _plane(
    axes: Axes,
    rows: pd.DataFrame,
    scheme: Scheme,
    attainment: pd.DataFrame | None,
    marker_pt: float = MARKER_PT,
) -> dict[str, Line2D]:
    """Draw all but labels on axes with limits. Returns the legend's entries by their texts."""
    axes.grid(True)
    is_plane, entries = _in_plane(rows), dict[str, Line2D]()
    crossing = [one for one in scheme.series if len(one.of(rows))]
    for one in [*crossing, *([NEUTRAL] if (rows["backend"] == NONE).any() else [])]:
        own = one.of(rows)
        has_line = is_plane and (one is not NEUTRAL or not crossing)
        if has_line:
            if scheme.uncertainty == "band" and attainment is not None:
                _band(axes, own, scheme, attainment, one.colour)
            steps = _stairs(axes, _on_its_front(rows, one), scheme)
            axes.plot(*steps, linestyle=one.line, color=one.colour, linewidth=1.2, zorder=2)
        if scheme.uncertainty == "box":
            _intervals(axes, _contending(own), scheme, one.colour)
        for state, those in own.groupby(states(own)):
            look = _look(one, str(state), marker_pt) | {"zorder": 3 if state == "dominated" else 4}
            axes.plot(those["latency_s"] * scheme.per_s, those["throughput_ips"], **look)
        label = one.label if one is NEUTRAL else f"{one.label} front{_cost(own)}"
        line = {"linestyle": one.line} if has_line else {}
        entries[label] = entry(label, **_look(one, "front", marker_pt) | line)
    if scheme.uncertainty == "box":
        known = _contending(rows)[[*ENDS["latency_s"][:1], *ENDS["latency_s"][2:3]]].notna().any()
        words, dots = ("95 % interval", "-") if known.iloc[0] else ("range of the rounds", ":")
        if known.any() and rows["rounds"].max() > 1:
            entries["interval"] = entry(words, color="0.3", linewidth=0.7, linestyle=dots)
    for state in ("unsure", "dominated"):
        if state in set(states(rows)):
            entries[state] = entry(STATE_WORDS[state], **_look(_GREY, state, marker_pt))
    return entries


def _in_plane(rows: pd.DataFrame) -> bool:
    """Whether the front is of latency and throughput, as it is unless rows tell other `objectives`: another front is no
    staircase in this plane.
    """
    return "objectives" not in rows or set(rows["objectives"]) <= {"latency+throughput", "throughput+latency"}


def _on_its_front(rows: pd.DataFrame, one: Series) -> pd.DataFrame:
    """The points on a series' front: its own, and where nothing crosses those that are a corner of it."""
    is_on, nothing = rows["on_backend_front"].astype(bool), rows["backend"] == NONE
    if one is NEUTRAL:
        return rows[nothing & is_on]
    corner = rows["on_fronts_of"].str.split("; ").map(lambda names: one.backend in names)
    is_on = is_on.where(~nothing, corner) & rows["backend"].isin([one.backend, NONE])
    return rows[is_on & (rows["codec"].fillna("") == one.codec)]


def _stairs(axes: Axes, corners: pd.DataFrame, scheme: Scheme) -> tuple[Floats, Floats]:
    x, y = corners["latency_s"].to_numpy() * scheme.per_s, corners["throughput_ips"].to_numpy()
    return staircase(x, y, right=axes.get_xlim()[1], bottom=axes.get_ylim()[0])


def _intervals(axes: Axes, rows: pd.DataFrame, scheme: Scheme, colour: str) -> None:
    """Draw thin bars: 95 % intervals from end to end, or dotted the range over rounds that are too few for one."""
    known = rows[[*ENDS["latency_s"][:2], *ENDS["throughput_ips"][:2]]].notna().all(axis=1)
    for those, first, line in ((rows[known], 0, "-"), (rows[~known & (rows["rounds"] > 1)], 2, ":")):
        look: dict[str, Any] = {"colors": colour, "linewidths": 0.7, "linestyles": line, "zorder": 2.6}
        left, right = (those[end] * scheme.per_s for end in ENDS["latency_s"][first : first + 2])
        axes.hlines(those["throughput_ips"], left, right, **look)
        bottom, top = (those[end] for end in ENDS["throughput_ips"][first : first + 2])
        axes.vlines(those["latency_s"] * scheme.per_s, bottom, top, **look)


def _band(axes: Axes, own: pd.DataFrame, scheme: Scheme, attainment: pd.DataFrame, colour: str) -> None:
    """Draw what between 5 % and 95 % of the resamples attain; nothing without surfaces of these two objectives."""
    if not {*FIGURES, "percent"} <= {*attainment}:
        return
    same = [*CONDITION, "backend"]
    surfaces = attainment[attainment[same].eq(own.iloc[0][same]).all(axis=1)]
    corners = [surfaces[surfaces["percent"] == percent] for percent in (5, 95)]
    corners = [each.iloc[evenly(range(len(each)), MOST_CORNERS)] for each in corners]
    if all(map(len, corners)):
        best, worst = (np.column_stack(_stairs(axes, each, scheme)) for each in corners)
        axes.add_patch(
            Polygon(np.vstack([best, worst[::-1]]), color=colour, alpha=0.13, linewidth=0, zorder=1.5)
        )


def _look(one: Series, state: str, marker_pt: float = MARKER_PT) -> dict[str, Any]:
    """The look of points of one state: full, pale, hollow; and small where dominated."""
    look = one.mark(marker_pt, markerfacecolor=faded(one.colour, FILLS[state]))
    return look if state != "dominated" else look | {"markersize": 0.8 * marker_pt, "alpha": 0.5}


def _cost(own: pd.DataFrame) -> str:
    """` (agreement 97 to 98.5 %)` of a lossy codec, whose front is never shown without what it costs."""
    own = own[~quality.is_none(own["codec"])]
    if own.empty or "accuracy" not in own or own["output_error"].le(quality.SAME_OUTPUT).all():
        return ""
    kinds = [quality.WORDS[kind] for kind in own["accuracy_of"].unique() if kind in quality.WORDS]
    known = kinds and own["accuracy"].notna().any()
    return f" ({kinds[0]} {quality.span(own['accuracy'])})" if known else " (accuracy not measured)"


def _rows_of(rows: pd.DataFrame, scheme: Scheme) -> list[tuple[Series, Row]]:
    """Each point with its series, by latency."""
    every = [(one, row) for one in (*scheme.series, NEUTRAL) for row in one.of(rows).to_dict("records")]
    return sorted(every, key=lambda pair: float(pair[1]["latency_s"]))


def _label(axes: Axes, rows: pd.DataFrame, scheme: Scheme, most: int, *, named: bool) -> None:
    """Label some points: on the front of all, then on a backend's, then those that leave the model to one host."""
    whole = set(rows.loc[undivided(rows), "point"])
    ranks: list[list[tuple[Series, Row]]] = [[], [], []]
    for one, row in _rows_of(rows, scheme):
        if row["on_backend_front"] or row["point"] in whole:
            ranks[0 if row["on_front"] else 1 if row["on_backend_front"] else 2].append((one, row))
    shown: list[tuple[Series, Row]] = []
    for rank in ranks:
        shown += evenly(rank, most - len(shown))
    labels = []
    for one, row in shown:
        name = str(row["point_name"]) if named and len(cuts(row["point"])) == 1 else ""
        ink = tuple(0.7 * part for part in faded(one.colour, 1))
        at = row["latency_s"] * scheme.per_s, row["throughput_ips"]
        labels.append((*at, point_label(row["point"], name), ink))
    layout.place_labels(axes, labels, rows[list(FIGURES)].to_numpy(dtype=float) * [scheme.per_s, 1])


def _marks(rows: pd.DataFrame, scheme: Scheme) -> Iterator[str]:
    """Yield what the marks mean, and what must be known to read them."""
    contending = _contending(rows.dropna(subset=list(FIGURES)))
    if not _in_plane(rows):
        yield f"The front is that of {quality.in_words(rows['objectives'].iloc[0].split('+'), rows)}"
    if (ruled_out := ~rows["feasible"].astype(bool) & (rows["rounds"] > 0)).any():
        yield f"{ruled_out.sum()} points do not meet the condition"
    if scheme.uncertainty == "box" and contending["latency_low_s"].notna().any():
        yield "Bars: 95 % intervals"
    elif scheme.uncertainty == "box" and (contending["rounds"] > 1).any():
        yield "Dotted: the range of too few rounds"
    if scheme.uncertainty == "band" and _in_plane(rows):
        yield "Bands: 5 to 95 % of resamples"
    ties = dict[str, None]()
    for row in rows[rows["on_backend_front"] & rows["ties"].fillna("").ne("")].to_dict("records"):
        at = f" at {row['netem']}" if rows["netem"].nunique() > 1 else ""
        ties |= {
            " and ".join(sorted((cell_name(row), other))) + at: None for other in str(row["ties"]).split("; ")
        }
    if ties:
        yield f"Not to be told apart: {some(list(ties), 2)}"


def third(
    on: On, rows: pd.DataFrame, scheme: Scheme, kind: str, note: str = "", title: str | None = None
) -> Told:
    """Accuracy or energy (`kind`) upwards, over latency and over throughput: filled and numbered on the front of all
    three, hollow where dominated. note: whose energy it is, of `fronts.energy.note`. Raises `Nothing`.
    """
    narrow, is_energy = layout.is_narrow(on), kind == "energy"
    column = energy.judged_by(rows) if is_energy else "accuracy"
    measured = rows.dropna(subset=[*FIGURES, column])
    measured = measured.assign(third=measured[column] * (1 if is_energy else 100))
    if is_energy and measured.empty:
        raise Nothing("energy: no device's energy is known of every point")
    if not is_energy and measured.loc[measured["backend"] != NONE, "codec"].nunique() < 2:
        raise Nothing("accuracy: fewer than two codecs have an accuracy")
    is_on, over = ("on_energy_front", "all three") if is_energy else ("on_codec_front", "all codecs")
    shown, drawn = each_once(measured), [*scheme.series, NEUTRAL]
    every = layout.panels(on, *((2, 1, 3.8) if narrow else (1, 2, 2.8)), sharey=not narrow)
    for axes, name in zip(every, FIGURES, strict=True):
        layout.fit_axis(axes, "x", shown[name] * scheme.scale(name), scheme.logarithmic[name])
        axes.grid(True)
        axes.set_xlabel(scheme.label(name))
        for one in drawn:
            for is_best, those in one.of(shown).groupby(is_on):
                look = _look(one, "front" if is_best else "dominated") | {"zorder": 4 if is_best else 3}
                axes.plot(those[name] * scheme.scale(name), those["third"], **look)
        if is_energy:
            layout.fit_axis(axes, "y", shown["third"])
        else:  # shares that lie close together are compared by their differences, up to 100 %
            axes.margins(y=0.12)
            axes.set_yticks([tick for tick in axes.get_yticks() if tick <= 100])
    above_idle = ", above idle" if column == energy.ACTIVE else ""
    word = quality.WORDS.get(str(measured["accuracy_of"].iloc[0]), "accuracy")
    for axes in every if narrow else every[:1]:
        axes.set_ylabel(f"energy (J per image{above_idle})" if is_energy else f"{word} (%)")
    costs = {one: "" if is_energy else f": {quality.span(one.of(shown)['accuracy'])}" for one in drawn}
    entries = [entry(one.label + costs[one], **one.mark(MARKER_PT)) for one in drawn if len(one.of(shown))]
    entries.append(entry(f"on the front of {over}", **_look(_GREY, "front")))
    entries.append(entry("dominated", **_look(_GREY, "dominated")))
    title = f"Latency, throughput and {kind}: {subject(rows.iloc[0])}" if title is None else title
    layout.head(on, every[0], title, entries, rows)
    best = evenly([pair for pair in _rows_of(shown, scheme) if pair[1][is_on]], MOST_LABELS)
    for axes, name in zip(every, FIGURES, strict=True):
        scale = scheme.scale(name)
        labels = [(row[name] * scale, row["third"], str(row["point"]), one.colour) for one, row in best]
        layout.place_labels(axes, labels, shown[[name, "third"]].to_numpy(dtype=float) * [scale, 1])
    unknown = sorted(set(rows.loc[rows["accuracy"].isna() & (rows["rounds"] > 0), "codec"]))
    lacking = (
        f"Accuracy not measured: {some(unknown)}" if unknown else f"Accuracy: {quality.name_of(measured)}"
    )
    what = f"Latency, throughput and {kind} of every partition point"
    text = told(what, rows, scheme.testbed, note if is_energy else lacking, f"Filled: on the front of {over}")
    return text, measured.reindex(columns=[*POINT, *FIGURES, *(_ENERGY if is_energy else _ACCURACY)])

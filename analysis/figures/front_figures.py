"""Fronts: latency against throughput, of one condition and across profiles; and both against accuracy or energy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from pareto.analysis.figures import layout
from pareto.analysis.figures.drawing import POINT, Nothing, Told
from pareto.analysis.figures.layout import FIGURES, MOST_LABELS, On, Scheme
from pareto.analysis.figures.look import FILLS, STATE_WORDS, states
from pareto.analysis.figures.style import NEUTRAL, Series, entry, evenly, faded
from pareto.analysis.fronts import energy, quality
from pareto.analysis.fronts.indicators import staircase
from pareto.analysis.naming import IN_WORDS, cell_name, point_label, some, subject
from pareto.analysis.runs.points import BUT_CODEC, CONDITION, NONE, cuts, each_once, undivided
from pareto.analysis.statistics.samples import Floats

MARKER_PT = 4.5
LEAST_SHARE = 0.3
"""Axes are shared where the points of every panel take up at least this share of them."""
_OF = ("low", "high", "least", "most")
_ENDS = {name: [name.replace("_", f"_{end}_") for end in _OF] for name in FIGURES}
"""The ends of a figure's 95 % interval, and of its range over the rounds."""
_DRAWN = {"latency_s": ("x", "left", "right"), "throughput_ips": ("y", "bottom", "top")}
_GREY = Series("", "0.3", "o")
_BOUNDS = ["least_latency_s", "most_throughput_ips"]
"""The bounds of a point that a search struck off without a trial."""
_DATA = [
    *(*POINT, *FIGURES, "loaded_latency_s", *_ENDS["latency_s"], *_ENDS["throughput_ips"]),
    *("on_backend_front", "on_fronts_of", "on_front", "probability", "ties"),
]
_ACCURACY = ["accuracy", "accuracy_of", "accuracy_images", "accuracy_low", "accuracy_high", quality.LEVEL]
_ACCURACY += ["wire_bytes_per_image", "on_codec_front", "codec_probability", "codec_ties"]
_ENERGY = [energy.WHOLE, energy.ACTIVE, "energy_of", "on_energy_front"]


def front(on: On, rows: pd.DataFrame, scheme: Scheme, attainment: pd.DataFrame | None = None) -> Told:
    """The points, latency to the right, throughput upwards: the best corner is the upper left. Rows of several profiles
    (or batch sizes, ...) have a panel each, in order of latency, with one axis for all panels of a figure of which
    every panel's points fill enough (`LEAST_SHARE`).

    A backend's staircase bounds what its points attain; marks are filled by `look.states`. Bars are 95 % intervals of
    what is or may be on a front, dotted the range of rounds too few for one; a band is what 5 % and 95 % of the
    resamples attain, of `fronts.indicators.attainment`. Raises `Nothing`.
    """
    groups, narrow = _panels(rows), layout.is_narrow(on)
    owns = {title: _placed(group, scheme) for title, group in groups.items()}
    placed = pd.concat(owns.values())
    if placed.empty:
        raise Nothing("nothing to draw: no valid trial")
    alone, wide = len(groups) == 1, 2 if narrow else 3
    columns = min(wide, len(groups))
    lines = -(-len(groups) // columns)
    height_in = (2.2 if narrow else 3.4) if alone else 0.3 + (1.4 if narrow else 1.9) * lines
    panels = layout.panels(on, lines, columns, height_in, count=len(groups))
    common = {name: placed for name in FIGURES if _is_shared(owns, scheme, name)}
    marker_pt, most = (MARKER_PT, MOST_LABELS) if alone else (3.2, 3) if narrow else (4.0, 5)
    entries, labels = dict[str, Line2D](), []
    for number, (axes, (title, own)) in enumerate(zip(panels, owns.items(), strict=True)):
        first, last = number % columns == 0, number + columns >= len(groups)
        axes.set_title("" if alone else title, loc="left", fontsize="medium", pad=3)
        if own.empty:
            axes.text(0.5, 0.5, "no valid trial", transform=axes.transAxes, ha="center", color="0.4")
            axes.set(xticks=[], yticks=[])
            continue
        for axis, (name, drawn) in zip("xy", _DRAWN.items(), strict=True):
            layout.fit_axis(axes, axis, common.get(name, own)[[*drawn]], scheme.logarithmic[name])
        entries |= _plane(axes, own, scheme, attainment, marker_pt)
        rate = "images/s" if narrow and not alone else scheme.label("throughput_ips")
        axes.set(ylabel=rate if first else "", xlabel=scheme.label("latency_s") if last else "")
        axes.tick_params(labelleft=first or "throughput_ips" not in common)
        axes.tick_params(labelbottom=last or "latency_s" not in common)
        of_panel = _labels(own, scheme, most, named=alone and not narrow)
        labels.append((axes, of_panel, own[["x", "y"]].to_numpy()))
    free = [name.split("_")[0] for name in FIGURES if name not in common]
    mind = f"Each panel has its own axis of {' and '.join(free)}" if free else "All panels share their axes"
    title, words = f"Fronts of {rows['model'].iloc[0]} across profiles", ["The fronts across profiles", mind]
    if alone:
        title = f"Latency and throughput: {subject(rows.iloc[0])}"
        words = ["Latency against throughput of every partition point: up and left is better"]
    words += _marks(rows, placed, scheme)
    data = rows[[*_DATA, *(column for column in ("settled", *_BOUNDS) if column in rows)]]
    return Told(title, words, data, [*entries.values()], rows, scheme.testbed, labels)


def _panels(rows: pd.DataFrame) -> Mapping[str, pd.DataFrame]:
    """Title and rows of each panel, from the quickest profile to the slowest, at last those without a valid trial."""
    by = ["netem", *(name for name in BUT_CODEC[2:] if rows[name].nunique() > 1)]
    words = {"netem": "{}", "setup": "{}", "batch_size": "batch size {}", **IN_WORDS}
    groups = [group for _, group in rows.groupby(by, dropna=False)]
    groups.sort(key=lambda group: float(np.nan_to_num(group["latency_s"].median(), nan=math.inf)))
    titles = [[words[name].format(group[name].iloc[0]) for name in by] for group in groups]
    return {", ".join(filter(None, title)): group for title, group in zip(titles, groups, strict=True)}


def _placed(rows: pd.DataFrame, scheme: Scheme) -> pd.DataFrame:
    """The rows with both figures, and how each is drawn: `state`; x and y; and the ends of bars, if it is or may be on
    a front: of 95 % intervals (`sure`), or of ranges over the rounds."""
    rows = rows.dropna(subset=list(FIGURES))
    placed = rows.assign(state=states(rows), is_plane=_in_plane(rows))
    placed["sure"] = rows[[*_ENDS["latency_s"][:2], *_ENDS["throughput_ips"][:2]]].notna().all(axis=1)
    barred = (placed["state"] != "dominated") & (placed["sure"] | (rows["rounds"] > 1))
    for name, (at, *drawn) in _DRAWN.items():
        placed[at] = rows[name] * scheme.scale(name)
        for end, sure, spread in zip(drawn, _ENDS[name][:2], _ENDS[name][2:], strict=True):
            known = rows[sure].where(placed["sure"], rows[spread]).astype(float) * scheme.scale(name)
            placed[end] = known.where(barred & (scheme.uncertainty == "box"))
    return placed


def _in_plane(rows: pd.DataFrame) -> bool:
    """Whether the front is of latency and throughput: another one is no staircase in this plane."""
    return "objectives" not in rows or set(rows["objectives"]) <= {"latency+throughput", "throughput+latency"}


def _is_shared(owns: Mapping[str, pd.DataFrame], scheme: Scheme, name: str) -> bool:
    """Whether all panels may have the same axis for a figure."""
    values = [own[name] for own in owns.values() if len(own)]
    values = [np.log(each) for each in values] if scheme.logarithmic[name] else values
    spans = [float(np.ptp(each)) for each in values]
    return min(filter(None, spans), default=math.inf) >= LEAST_SHARE * float(np.ptp(pd.concat(values)))


def _plane(
    axes: Axes, rows: pd.DataFrame, scheme: Scheme, attainment: pd.DataFrame | None, marker_pt: float
) -> dict[str, Line2D]:
    """Draw all but labels on axes with limits. Returns the legend's entries by their texts."""
    axes.grid(True)
    entries, crossing = dict[str, Line2D](), (rows["backend"] != NONE).any()
    for one, own in scheme.of_each(rows):
        line: dict[str, Any] = {}
        if rows["is_plane"].all() and (one is not NEUTRAL or not crossing):
            line = {"linestyle": one.line}
            corner = rows["on_fronts_of"].str.split("; ").map(lambda names, one=one: one.backend in names)
            corner &= rows["codec"] == one.codec
            corners = rows[corner if crossing else rows["on_backend_front"].astype(bool)]
            axes.plot(*_stairs(axes, corners, scheme), color=one.colour, linewidth=1.2, zorder=2, **line)
            if scheme.uncertainty == "band" and attainment is not None and {*FIGURES} <= {*attainment}:
                same = own.iloc[0][[*CONDITION, "backend"]]
                surfaces = attainment[attainment[[*same.index]].eq(same).all(axis=1)]
                edges = [surfaces[surfaces["percent"] == percent] for percent in (5, 95)]
                if all(map(len, edges)):
                    best, worst = (np.column_stack(_stairs(axes, edge, scheme)) for edge in edges)
                    look: dict[str, Any] = {"color": one.colour, "alpha": 0.13, "linewidth": 0, "zorder": 1.5}
                    axes.fill(*np.vstack([best, worst[::-1]]).T, **look)
        for sure, bars in own.dropna(subset=["left", "top"]).groupby("sure"):
            look = {"colors": one.colour, "linewidths": 0.7, "zorder": 2.6}
            look["linestyles"] = "-" if sure else ":"
            axes.hlines(bars["y"], bars["left"], bars["right"], **look)
            axes.vlines(bars["x"], bars["bottom"], bars["top"], **look)
        for state, those in own.groupby("state"):
            axes.plot(those["x"], those["y"], **_look(one, str(state), marker_pt))
        label = one.label if one is NEUTRAL else f"{one.label} front{_cost(own)}"
        entries[label] = entry(label, **_look(one, "front", marker_pt) | line)
    bars = rows[rows["left"].notna() & (rows["rounds"] > 1)]
    if len(bars):
        words, dashes = ("95 % interval", "-") if bars["sure"].any() else ("range of the rounds", ":")
        entries["interval"] = entry(words, color="0.3", linewidth=0.7, linestyle=dashes)
    for state in ("unsure", "dominated"):
        if state in set(rows["state"]):
            entries[state] = entry(STATE_WORDS[state], **_look(_GREY, state, marker_pt))
    struck = rows.reindex(columns=_BOUNDS).astype(float).dropna().drop_duplicates()
    if len(struck):
        look = {"marker": "|", "markersize": 5, "color": "0.5", "linestyle": "", "zorder": 1.5}
        axes.plot(*(struck * [scheme.per_s, 1]).to_numpy().T, **look, scalex=False, scaley=False)
        entries["struck"] = entry("bound of one struck off", **look)
    return entries


def _stairs(axes: Axes, corners: pd.DataFrame, scheme: Scheme) -> tuple[Floats, Floats]:
    x, y = corners["latency_s"].to_numpy() * scheme.per_s, corners["throughput_ips"].to_numpy()
    return staircase(x, y, right=axes.get_xlim()[1], bottom=axes.get_ylim()[0])


def _look(one: Series, state: str, marker_pt: float = MARKER_PT) -> dict[str, Any]:
    """The look of points of one state: full, pale, hollow; and small where dominated."""
    look = one.mark(marker_pt, markerfacecolor=faded(one.colour, FILLS[state]), zorder=4)
    small = {"markersize": 0.8 * marker_pt, "alpha": 0.5, "zorder": 3}
    return look | (small if state == "dominated" else {})


def _cost(own: pd.DataFrame) -> str:
    """` (agreement 97 to 98.5 %)` of a lossy codec, whose front is never shown without what it costs."""
    own = own[~quality.is_none(own["codec"])]
    if own.empty or "accuracy" not in own or own["output_error"].le(quality.SAME_OUTPUT).all():
        return ""
    kinds = [quality.WORDS[kind] for kind in own["accuracy_of"].unique() if kind in quality.WORDS]
    known = kinds and own["accuracy"].notna().any()
    return f" ({kinds[0]} {quality.span(own['accuracy'])})" if known else " (accuracy not measured)"


def _labels(
    rows: pd.DataFrame, scheme: Scheme, most: int, *, named: bool
) -> list[tuple[float, float, str, Any]]:
    """Labels of some points: on the front of all, then on a backend's, then those that leave the model to one host."""
    every = pd.concat(own.assign(colour=one.colour) for one, own in scheme.of_each(rows))
    every = every.sort_values("latency_s", kind="stable")
    whole = every["point"].isin(rows.loc[undivided(rows), "point"])
    ranks = np.select([every["on_front"], every["on_backend_front"], whole], [0, 1, 2], 3)
    shown: list[Mapping[Any, Any]] = []
    for rank in range(3):
        shown += evenly(every[ranks == rank].to_dict("records"), most - len(shown))
    return [
        (
            row["x"], row["y"],
            point_label(row["point"], row["point_name"] if named and len(cuts(row["point"])) == 1 else ""),
            tuple(0.7 * part for part in faded(row["colour"], 1)),
        )
        for row in shown
    ]  # fmt: skip


def _marks(rows: pd.DataFrame, placed: pd.DataFrame, scheme: Scheme) -> Iterator[str]:
    """Yield what the marks mean, and what must be known to read them."""
    is_plane = placed["is_plane"].all()
    if not is_plane:
        yield f"The front is that of {quality.in_words(rows['objectives'].iloc[0].split('+'), rows)}"
    if (ruled_out := ~rows["feasible"].astype(bool) & (rows["rounds"] > 0)).any():
        yield f"{ruled_out.sum()} points do not meet the condition"
    bars = placed[placed["left"].notna()]
    if bars["sure"].any():
        yield "Bars: 95 % intervals"
    elif (bars["rounds"] > 1).any():
        yield "Dotted: the range of too few rounds"
    if scheme.uncertainty == "band" and is_plane:
        yield "Bands: 5 to 95 % of resamples"
    ties = dict[str, None]()
    for row in rows[rows["on_backend_front"] & rows["ties"].fillna("").ne("")].to_dict("records"):
        at = f" at {row['netem']}" if rows["netem"].nunique() > 1 else ""
        ties |= {" and ".join(sorted((cell_name(row), each))) + at: None for each in row["ties"].split("; ")}
    if ties:
        yield f"Not to be told apart: {some(list(ties), 2)}"


def third(on: On, rows: pd.DataFrame, scheme: Scheme, kind: str, note: str = "") -> Told:
    """Accuracy or energy (`kind`) upwards, over latency and over throughput: filled and numbered on the front of all
    three, hollow where dominated. note: whose energy it is, of `fronts.energy.note`. Raises `Nothing`.
    """
    narrow, is_energy = layout.is_narrow(on), kind == "energy"
    column = energy.judged_by(rows) if is_energy else "accuracy"
    measured = rows.dropna(subset=[*FIGURES, column])
    if is_energy and measured.empty:
        raise Nothing("energy: no device's energy is known of every point")
    if not is_energy and measured.loc[measured["backend"] != NONE, "codec"].nunique() < 2:
        raise Nothing("accuracy: fewer than two codecs have an accuracy")
    is_on, over = ("on_energy_front", "all three") if is_energy else ("on_codec_front", "all codecs")
    shown = each_once(measured).assign(third=measured[column] * (1 if is_energy else 100))
    shown["state"] = np.where(shown[is_on], "front", "dominated")
    every = pd.concat(own.assign(colour=one.colour) for one, own in scheme.of_each(shown))
    best = every[every["state"] == "front"].sort_values("latency_s")
    numbered, labels = evenly(best.to_dict("records"), MOST_LABELS), []
    word = quality.WORDS.get(str(measured["accuracy_of"].iloc[0]), "accuracy")
    word = f"energy (J per image{', above idle' * (column == energy.ACTIVE)})" if is_energy else f"{word} (%)"
    panels = layout.panels(on, *((2, 1, 3.8) if narrow else (1, 2, 2.8)), sharey=not narrow)
    for axes, name in zip(panels, FIGURES, strict=True):
        scale = scheme.scale(name)
        for one, own in scheme.of_each(shown):
            for state, those in own.groupby("state"):
                axes.plot(those[name] * scale, those["third"], **_look(one, str(state)))
        layout.fit_axis(axes, "x", shown[name] * scale, scheme.logarithmic[name])
        axes.grid(True)
        axes.set(xlabel=scheme.label(name), ylabel=word if narrow or name == FIGURES[0] else "")
        texts = [(row[name] * scale, row["third"], row["point"], row["colour"]) for row in numbered]
        labels.append((axes, texts, shown[[name, "third"]].to_numpy() * [scale, 1]))
    for axes in panels:
        if is_energy:
            layout.fit_axis(axes, "y", shown["third"])
        else:  # shares that lie close together are compared by their differences, up to 100 %
            axes.margins(y=0.12)
            axes.set_yticks([tick for tick in axes.get_yticks() if tick <= 100])
    entries = [
        entry(one.label + ("" if is_energy else f": {quality.span(own['accuracy'])}"), **one.mark(MARKER_PT))
        for one, own in scheme.of_each(shown)
    ]
    for state, words in (("front", f"on the front of {over}"), ("dominated", "dominated")):
        entries.append(entry(words, **_look(_GREY, state)))
    unknown = sorted(set(rows.loc[rows["accuracy"].isna() & (rows["rounds"] > 0), "codec"]))
    if not is_energy:
        known = f"Accuracy: {quality.name_of(measured)}"
        note = f"Accuracy not measured: {some(unknown)}" if unknown else known
    what = f"Latency, throughput and {kind}"
    caption = (f"{what} of every partition point", note, f"Filled: on the front of {over}")
    data = measured.reindex(columns=[*POINT, *FIGURES, *(_ENERGY if is_energy else _ACCURACY)])
    return Told(f"{what}: {subject(rows.iloc[0])}", caption, data, entries, rows, scheme.testbed, labels)

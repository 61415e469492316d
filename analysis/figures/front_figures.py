"""Fronts: latency against throughput, of one condition and across profiles; and both against accuracy or energy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from pareto.analysis.figures import layout
from pareto.analysis.figures.drawing import POINT, Nothing, Told
from pareto.analysis.figures.layout import MOST_LABELS, On, entry
from pareto.analysis.figures.look import FILLS, STATE_WORDS, evenly, states
from pareto.analysis.figures.style import FIGURES, NEUTRAL, Scheme, Series, faded
from pareto.analysis.fronts import energy, quality
from pareto.analysis.fronts.cells import STRUCK_BOUNDS
from pareto.analysis.fronts.indicators import staircase
from pareto.analysis.naming import IN_WORDS, cell_name, point_label, some, subject
from pareto.analysis.runs.points import BUT_CODEC, CONDITION, NONE, cuts, undivided
from pareto.analysis.runs.treatments import each_once
from pareto.analysis.statistics.samples import Floats

MARKER_PT = 4.5
LEAST_SHARE = 0.3
"""Axes are shared where the points of every panel take up at least this share of them."""
_ENDS = {
    name: [name.replace("_", f"_{end}_") for end in ("low", "high", "least", "most")] for name in FIGURES
}
"""The ends of a figure's 95 % interval, and of its range over the rounds."""
_SIDES = {"latency_s": ("x", "left", "right"), "throughput_ips": ("y", "bottom", "top")}
"""The columns of a figure and of the ends of its bar, as they are drawn."""
_GREY = Series("", "0.3", "o")
_DATA = [
    *(*POINT, *FIGURES, "loaded_latency_s", *_ENDS["latency_s"], *_ENDS["throughput_ips"]),
    *("on_backend_front", "on_fronts_of", "on_front", "probability", "ties"),
]
_THIRD = {
    "energy": [energy.WHOLE, energy.ACTIVE, "energy_of", "on_energy_front"],
    "accuracy": [
        *("accuracy", "accuracy_of", "accuracy_images", "accuracy_low", "accuracy_high", quality.LEVEL),
        *("wire_bytes_per_image", "on_codec_front", "codec_probability", "codec_ties"),
    ],
}


def front(on: On, rows: pd.DataFrame, scheme: Scheme, attainment: pd.DataFrame | None = None) -> Told:
    """The points, latency to the right, throughput upwards, and a staircase that bounds each backend's. Rows of several
    profiles (or batch sizes, ...) have a panel each, in order of latency, with one axis for all panels of a figure of
    which every panel's points fill enough (`LEAST_SHARE`). attainment: of `fronts.indicators`. Raises `Nothing`.
    """
    owns, narrow = {title: _placed(group, scheme) for title, group in _panels(rows)}, layout.is_narrow(on)
    placed = pd.concat(owns.values())
    if placed.empty:
        raise Nothing("nothing to draw: no valid trial")
    # The front of other objectives is no staircase in this plane.
    objectives = "+".join(rows.get("objectives", pd.Series(["latency+throughput"])).unique())
    is_plane = set(objectives.split("+")) == {"latency", "throughput"}
    alone, columns = len(owns) == 1, min(2 if narrow else 3, len(owns))
    lines = -(-len(owns) // columns)
    height_in = (2.2 if narrow else 3.4) if alone else 0.3 + (1.4 if narrow else 1.9) * lines
    marker_pt, most = (MARKER_PT, MOST_LABELS) if alone else (3.2, 3) if narrow else (4.0, 5)
    common, labels = {name for name in FIGURES if _is_shared(owns.values(), scheme, name)}, []
    panels = layout.panels(on, lines, columns, height_in, count=len(owns))
    for number, (axes, (title, own)) in enumerate(zip(panels, owns.items(), strict=True)):
        axes.set_title("" if alone else title, loc="left", fontsize="medium", pad=3)
        if own.empty:
            axes.text(0.5, 0.5, "no valid trial", transform=axes.transAxes, ha="center", color="0.4")
            axes.set(xticks=[], yticks=[])
            continue
        for axis, (name, drawn) in zip("xy", _SIDES.items(), strict=True):
            every = placed if name in common else own
            layout.fit_axis(axes, axis, every[[*drawn]], scheme.logarithmic[name])
        _plane(axes, own, scheme, marker_pt, is_plane=is_plane, attainment=attainment)
        first, last = number % columns == 0, number + columns >= len(owns)
        rate = "images/s" if narrow and not alone else scheme.label("throughput_ips")
        axes.set(ylabel=rate if first else "", xlabel=scheme.label("latency_s") if last else "")
        axes.tick_params(labelleft=first or "throughput_ips" not in common)
        axes.tick_params(labelbottom=last or "latency_s" not in common)
        whole = own["point"].isin(own.loc[undivided(own), "point"])
        ranks = np.select([own["on_front"], own["on_backend_front"], whole], [0, 1, 2], 3)
        texts = _labelled(own.assign(rank=ranks), scheme, most, named=alone and not narrow)
        labels.append((axes, texts[["x", "y", "text", "colour"]].to_numpy(), own[["x", "y"]].to_numpy()))
    title, words = f"Fronts of {rows['model'].iloc[0]} across profiles", ["The fronts across profiles"]
    free = " and ".join(name.split("_")[0] for name in FIGURES if name not in common)
    words.append(f"Each panel has its own axis of {free}" if free else "All panels share their axes")
    if alone:
        title = f"Latency and throughput: {subject(rows.iloc[0])}"
        words = ["Latency against throughput of every partition point: up and left is better"]
    words += _marks(rows, placed, scheme, is_plane=is_plane)
    data = rows[[*_DATA, *(column for column in ("settled", *STRUCK_BOUNDS) if column in rows)]]
    return Told(title, words, data, rows, scheme.testbed, labels)


def _panels(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield title and rows of each panel, from the quickest profile to the slowest, last those with no valid trial."""
    by = ["netem", *(name for name in BUT_CODEC[2:] if rows[name].nunique() > 1)]
    words = {"netem": "{}", "setup": "{}", "batch_size": "batch size {}", **IN_WORDS}
    groups = [group for _, group in rows.groupby(by, dropna=False)]
    for group in sorted(groups, key=lambda of: float(np.nan_to_num(of["latency_s"].median(), nan=math.inf))):
        yield ", ".join(filter(None, (words[name].format(group[name].iloc[0]) for name in by))), group


def _placed(rows: pd.DataFrame, scheme: Scheme) -> pd.DataFrame:
    """The rows with both figures, and how each is drawn: `state`; x and y; and the ends of bars, if it is or may be on
    a front: of 95 % intervals (`sure`), or of ranges over the rounds."""
    rows = rows.dropna(subset=FIGURES)
    sure = rows[[*_ENDS["latency_s"][:2], *_ENDS["throughput_ips"][:2]]].notna().all(axis=1)
    placed = rows.assign(state=states(rows), sure=sure)
    barred = (placed["state"] != "dominated") & (sure | (rows["rounds"] > 1)) & (scheme.uncertainty == "box")
    for name, (at, *ends) in _SIDES.items():
        interval, spread = rows[_ENDS[name][:2]], rows[_ENDS[name][2:]]
        known = np.where(sure.to_numpy()[:, None], interval, spread).astype(float) * scheme.scale(name)
        placed[at], placed[ends] = rows[name] * scheme.scale(name), known
        placed.loc[~barred, ends] = math.nan
    return placed


def _is_shared(owns: Iterable[pd.DataFrame], scheme: Scheme, name: str) -> bool:
    """Whether all panels may have the same axis for a figure."""
    values = [own[name] for own in owns if len(own)]
    values = [np.log(each) for each in values] if scheme.logarithmic[name] else values
    spans = [float(np.ptp(each)) for each in values]
    return min(filter(None, spans), default=math.inf) >= LEAST_SHARE * float(np.ptp(pd.concat(values)))


def _plane(
    axes: Axes, rows: pd.DataFrame, scheme: Scheme, marker_pt: float, *, is_plane: bool,
    attainment: pd.DataFrame | None,
) -> None:  # fmt: skip
    """Draw all but labels on axes with limits."""
    axes.grid(True)
    crossing = (rows["backend"] != NONE).any()
    look: dict[str, Any]
    for one, own in scheme.of_each(rows):
        line: dict[str, Any] = {}
        if is_plane and (one is not NEUTRAL or not crossing):
            line = {"linestyle": one.line}
            corner = rows["on_fronts_of"].str.split("; ").map(lambda names, one=one: one.backend in names)
            corner &= rows["codec"] == one.codec
            corners = rows[corner if crossing else rows["on_backend_front"].astype(bool)]
            axes.plot(*_stairs(axes, corners, scheme).T, color=one.colour, linewidth=1.2, zorder=2, **line)
            if scheme.uncertainty == "band" and attainment is not None and {*FIGURES} <= {*attainment}:
                same = own.iloc[0][[*CONDITION, "backend"]]
                surfaces = attainment[attainment[[*same.index]].eq(same).all(axis=1)]
                best, worst = (surfaces[surfaces["percent"] == percent] for percent in (5, 95))
                if len(best) and len(worst):
                    outline = [_stairs(axes, best, scheme), _stairs(axes, worst, scheme)[::-1]]
                    axes.fill(*np.vstack(outline).T, color=one.colour, alpha=0.13, linewidth=0, zorder=1.5)
        for sure, bars in own.dropna(subset=["left", "top"]).groupby("sure"):
            look = {
                "colors": one.colour,
                "linewidths": 0.7,
                "zorder": 2.6,
                "linestyles": "-" if sure else ":",
            }
            axes.hlines(bars["y"], bars["left"], bars["right"], **look)
            axes.vlines(bars["x"], bars["bottom"], bars["top"], **look)
        for state, those in own.groupby("state"):
            axes.plot(those["x"], those["y"], **_look(one, str(state), marker_pt))
        label = one.label if one is NEUTRAL else f"{one.label} front{_cost(own)}"
        entry(axes, label, **_look(one, "front", marker_pt) | line)
    bars = rows[rows["left"].notna() & (rows["rounds"] > 1)]
    if len(bars):
        words, dashes = ("95 % interval", "-") if bars["sure"].any() else ("range of the rounds", ":")
        entry(axes, words, color="0.3", linewidth=0.7, linestyle=dashes)
    for state in ("unsure", "dominated"):
        if state in set(rows["state"]):
            entry(axes, STATE_WORDS[state], **_look(_GREY, state, marker_pt))
    struck = rows.reindex(columns=list(STRUCK_BOUNDS)).astype(float).dropna().drop_duplicates()
    if len(struck):
        look = {"marker": "|", "markersize": 5, "color": "0.5", "linestyle": "", "zorder": 1.5}
        look["label"] = "bound of one struck off"
        axes.plot(*(struck * [scheme.per_s, 1]).to_numpy().T, **look, scalex=False, scaley=False)


def _stairs(axes: Axes, corners: pd.DataFrame, scheme: Scheme) -> Floats:
    x, y = corners["latency_s"].to_numpy() * scheme.per_s, corners["throughput_ips"].to_numpy()
    return np.column_stack(staircase(x, y, right=axes.get_xlim()[1], bottom=axes.get_ylim()[0]))


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


def _labelled(rows: pd.DataFrame, scheme: Scheme, most: int, *, named: bool = False) -> pd.DataFrame:
    """The rows that have a label, at most so many: by their `rank` (below 3), evenly by latency; with `text`, and a
    `colour` dark enough for letters."""
    parts = [
        own.assign(colour=[tuple(0.7 * part for part in faded(one.colour, 1))] * len(own))
        for one, own in scheme.of_each(rows)
    ]
    every, shown = pd.concat(parts).sort_values("latency_s", kind="stable"), list[int]()
    for rank in range(3):
        places = np.flatnonzero(every["rank"] == rank)
        shown += evenly(places.tolist(), most - len(shown))
    those = every.iloc[shown]
    names = those["point_name"].where(named & (those["point"].map(cuts).map(len) == 1), "")
    return those.assign(text=[*map(point_label, those["point"], names)])


def _marks(rows: pd.DataFrame, placed: pd.DataFrame, scheme: Scheme, *, is_plane: bool) -> Iterator[str]:
    """Yield what the marks mean, and what must be known to read them."""
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
    tied = rows[rows["on_backend_front"] & rows["ties"].fillna("").ne("")]
    several = rows["netem"].nunique() > 1
    pairs = dict.fromkeys(
        " and ".join(sorted((cell_name(row), each))) + f" at {row['netem']}" * several
        for row in tied.to_dict("records")
        for each in row["ties"].split("; ")
    )
    if pairs:
        yield f"Not to be told apart: {some([*pairs], 2)}"


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
    if is_energy:
        is_on, over, factor = "on_energy_front", "all three", 1
        word = f"energy (J per image{', above idle' * (column == energy.ACTIVE)})"
    else:
        is_on, over, factor = "on_codec_front", "all codecs", 100
        word = f"{quality.WORDS.get(str(measured['accuracy_of'].iloc[0]), 'accuracy')} (%)"
        unknown = sorted(set(rows.loc[rows["accuracy"].isna() & (rows["rounds"] > 0), "codec"]))
        note = f"Accuracy: {quality.name_of(measured)}"
        note = f"Accuracy not measured: {some(unknown)}" if unknown else note
    shown = each_once(measured).assign(third=measured[column] * factor)
    for name in FIGURES:
        shown[_SIDES[name][0]] = shown[name] * scheme.scale(name)
    shown = shown.assign(state=np.where(shown[is_on], "front", "dominated"))
    texts = _labelled(shown.assign(rank=np.where(shown[is_on], 0, 3)), scheme, MOST_LABELS)
    panels = layout.panels(on, *((2, 1, 3.8) if narrow else (1, 2, 2.8)), sharey=not narrow)
    for axes, name, at in zip(panels, FIGURES, "xy", strict=True):
        for one, own in scheme.of_each(shown):
            for state, those in own.groupby("state"):
                axes.plot(those[at], those["third"], **_look(one, str(state)))
            cost = "" if is_energy else f": {quality.span(own['accuracy'])}"
            entry(axes, one.label + cost, **one.mark(MARKER_PT))
        entry(axes, f"on the front of {over}", **_look(_GREY, "front"))
        entry(axes, "dominated", **_look(_GREY, "dominated"))
        layout.fit_axis(axes, "x", shown[at], scheme.logarithmic[name])
        axes.grid(True)
        axes.set(xlabel=scheme.label(name), ylabel=word if narrow or name == FIGURES[0] else "")
    for axes in panels:
        if is_energy:
            layout.fit_axis(axes, "y", shown["third"])
        else:  # shares that lie close together are compared by their differences, up to 100 %
            axes.margins(y=0.12)
            axes.set_yticks([tick for tick in axes.get_yticks() if tick <= 100])
    labels = [
        (axes, texts[[at, "third", "point", "colour"]].to_numpy(), shown[[at, "third"]].to_numpy())
        for axes, at in zip(panels, "xy", strict=True)
    ]
    what = f"Latency, throughput and {kind}"
    words = (f"{what} of every partition point", note, f"Filled: on the front of {over}")
    data = measured.reindex(columns=[*POINT, *FIGURES, *_THIRD[kind]])
    return Told(f"{what}: {subject(rows.iloc[0])}", words, data, rows, scheme.testbed, labels)

"""Where to cut as the network changes: the best point over delay and rate, measured and predicted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.advice import predict
from analysis.advice.best import CLOSE, OTHER, SAME, best
from analysis.advice.network import Network, networks
from analysis.advice.observed import NEEDED, WORKLOAD, observe
from analysis.advice.predict import Predictor, best_on_grid
from analysis.figures.areas import FINENESS, Cell, areas, cell_name, colours_of, draw_areas, hatch
from analysis.figures.drawing import Drawing, conditions
from analysis.figures.labels import label, place_labels, settle
from analysis.figures.log_scale import Scale
from analysis.figures.style import COLOURS, SMALL_PT, blank, figure_head, footnote, styled
from analysis.findings import Findings
from analysis.fronts.dominance import Floats
from analysis.naming import family, place, transport
from pareto.errors import UserError

WRITTEN = 20
"""Every so-manieth of them, each way, is written beside the figure."""
_TITLES = {"latency": "Lowest latency", "throughput": "Highest throughput"}
_MARKERS = {"": "h", "tcp": "o", "rpc": "s"}
_VARIANT_MARKERS = {"tcp": "8", "rpc": "D"}
_EDGES: dict[str, tuple[str, float, Literal["-", ":"]]] = {
    "": ("black", 0.9, "-"),
    SAME: ("black", 0.9, "-"),
    CLOSE: ("black", 1.1, ":"),
    OTHER: (COLOURS[3], 2.2, "-"),
}
_DOT_PT = {"column": 12.0, "page": 13.0}
_PANEL_PT = {"column": (190.0, 120.0), "page": (205.0, 150.0)}
"""About the size of a panel: which names fit an area must be known before the legend is made."""


def best_map_drawings(found: Findings) -> Iterator[Drawing]:
    """One for each model, batch size, codec, depth and setup of two hosts that some networks were measured of."""
    for _, rows in found.front.groupby(WORKLOAD, dropna=False):
        trials = found.trials.reindex(columns=NEEDED).merge(rows[WORKLOAD].drop_duplicates())
        runs = set(trials["run"].unique())
        manifests = [run.manifest for run in found.runs if run.folder.resolve().name in runs]
        try:
            known = networks(manifests or [run.manifest for run in found.runs])
        except UserError:
            continue
        # What a condition asks of a measured network cannot be asked of a predicted one.
        predictor = None if found.where else _predictor(trials, found.stages, known)
        testbed = "; ".join(dict.fromkeys(str(it.get("testbed") or "") for it in manifests))
        name = [str(rows["model"].iloc[0])]
        for column, letter in (("batch_size", "b"), ("codec", ""), ("in_flight_asked", "d"), ("setup", "")):
            name += [f"{letter}{rows[column].iloc[0]}"] if found.front[column].nunique() > 1 else []
        if drawing := best_map_drawing(rows, known, predictor, testbed, [part for part in name if part]):
            yield drawing


def best_map_drawing(
    rows: pd.DataFrame,
    known: Mapping[str, Network],
    predictor: Predictor | None = None,
    testbed: str = "",
    name: Sequence[str] = (),
) -> Drawing | None:
    """Of one model, batch size, codec and depth, over the profiles of one or several runs.

    `rows`: of `analysis.fronts.front.front`; `known`: of `analysis.advice.network.networks`; `predictor`: of
    `analysis.advice.predict`, for the same. None for a chain, and where fewer than two networks are known and nothing
    is predicted. `name`: as in the names of the files; by default the model.
    """
    found = best(rows, known, predictor)
    if found.empty or (predictor is None and found["netem"].nunique() < 2):
        return None
    data = found.assign(what="measured")
    if predictor is not None:
        data = pd.concat([data, *_written(predictor, *_scales(found))], ignore_index=True)
    named = tuple(name) or (str(rows["model"].iloc[0]),)

    def draw(width: str) -> Figure:
        return best_map_figure(found, predictor, rows, width=width)

    shown = rows[rows["netem"].isin(found["netem"])]
    absent = sorted(set(rows["netem"]) - set(found["netem"]))
    return Drawing("best-map", named, draw, data, f"{_told(found, absent)} {conditions(shown, testbed)}")


def _predictor(trials: pd.DataFrame, stages: pd.DataFrame, known: Mapping[str, Network]) -> Predictor | None:
    try:
        return predict.predictor(observe(predict.advisable(trials, known), stages, known))
    except UserError:
        return None


def best_map_figure(
    found: pd.DataFrame,
    predictor: Predictor | None = None,
    rows: pd.DataFrame | None = None,
    *,
    width: str = "page",
) -> Figure:
    """A map for the latency and one for the throughput: rate to the right, round-trip delay upwards, both logarithmic.

    `found`: of `analysis.advice.best.best`. A mark at each measured profile holds the number of its best point; the
    areas behind are what `predictor` puts first, the way back not shaped. `rows`: of the front, for the title and the
    footnote.
    """
    delays, rates = _scales(found)
    page = width == "page"
    maps = {
        objective: areas(predictor, delays, rates, objective)
        for objective in _TITLES
        if predictor is not None
    }
    colours = colours_of([cell for one in maps.values() for cell in one.cells])
    with styled(width):
        figure = blank(width, 3.6 if page else 5.4)
        panels = figure.subplots(*((1, 2) if page else (2, 1)), sharex=True, sharey=True)
        unnamed, titled = set[Cell](), set[Cell]()
        marks = []
        for axes, objective in zip(panels, _TITLES, strict=True):
            here = found[found["objective"] == objective]
            dots = np.column_stack([rates.at(here["rate_bps"]), delays.at(here["delay_s"])])
            marks.append((axes, here, dots))
            axes.set_title(_TITLES[objective], loc="left", fontsize="medium", fontweight="normal")
            _frame(axes, delays, rates)
            if objective in maps:
                small = draw_areas(axes, maps[objective], colours, dots, _PANEL_PT[width])
                unnamed |= small
                titled |= set(maps[objective].cells) - small
            _dots(axes, here, dots, _DOT_PT[width])
        for axes in panels[:1] if page else panels:
            axes.set_ylabel("round-trip delay (ms)")
        for axes in panels if page else panels[1:]:
            axes.set_xlabel("rate, edge to server (Mbit/s)")
        entries = _legend(found) + [
            Patch(
                facecolor=colours[cell],
                hatch=hatch(cell),
                edgecolor="0.4",
                linewidth=0.4,
                label=cell_name(cell),
            )
            for cell in sorted(unnamed - titled, key=list(colours).index)
        ]
        title = "Best partition point by network"
        if rows is not None:
            title += f": {rows['model'].iloc[0]}"
            footnote(figure, rows[rows["netem"].isin(found["netem"])])
        figure_head(figure, title, entries)
        settle(figure)
        for axes, here, dots in marks:
            _name_dots(axes, here, dots, _DOT_PT[width])
    return figure


def _scales(found: pd.DataFrame) -> tuple[Scale, Scale]:
    """Of delay (s) and rate (bit/s): a good deal more than what was measured, and a hundredfold at least."""
    delays, rates = found["delay_s"], found["rate_bps"]
    return (
        Scale.around(delays[delays > 0], (0.001, 0.2), strip_low=bool((delays == 0).any())),
        Scale.around(rates[np.isfinite(rates)], (1e6, 1e9), strip_high=bool(np.isinf(rates).any())),
    )


def _frame(axes: Axes, delays: Scale, rates: Scale) -> None:
    axes.set(xlim=(0, 1), ylim=(0, 1))
    rates.show(axes, "x", 1e6, {math.inf: "no limit"})
    delays.show(axes, "y", 1e-3, {0.0: "0"})


def _marker(backend: str) -> str:
    """That of the backend; its variants share another."""
    markers = _MARKERS if transport(backend) == family(backend) else _VARIANT_MARKERS
    return markers.get(family(backend), "D")


def _dots(axes: Axes, marks: pd.DataFrame, dots: Floats, size_pt: float) -> None:
    for (x, y), mark in zip(dots, marks.to_dict("records"), strict=True):
        colour, thick, line = _EDGES[mark["prediction"]]
        axes.scatter(
            x, y, s=size_pt**2, marker=_marker(mark["backend"]), facecolor="white",
            edgecolor=colour, linewidths=thick, linestyle=line, zorder=5, clip_on=False,
        )  # fmt: skip
        axes.text(
            x,
            y,
            mark["point"],
            ha="center",
            va="center_baseline",
            fontsize=SMALL_PT,
            fontweight="bold",
            zorder=6,
        )


def _name_dots(axes: Axes, marks: pd.DataFrame, dots: Floats, size_pt: float) -> None:
    texts, directions = [], []
    for (x, y), mark in zip(dots, marks.to_dict("records"), strict=True):
        name = str(mark["netem"])
        if mark["prediction"] == OTHER:
            name += f"\npredicted {cell_name((mark['predicted_point'], mark['predicted_backend']))}"
            if not math.isnan(mark["behind_percent"]):
                name += f", {mark['behind_percent']:.0f} % worse"
        texts.append(label(axes, x, y, name, "black"))
        texts[-1].set(fontsize=SMALL_PT, zorder=4)
        directions.append(-np.pi / 2 if y > 0.25 else np.pi / 2)
    place_labels(axes, texts, directions, markers=dots, marker_pt=size_pt + 2)


def _legend(found: pd.DataFrame) -> list[Any]:
    entries: list[Any] = []
    look: dict[str, Any] = {"linestyle": "", "color": "white", "markersize": 7}
    for backend in sorted(set(found["backend"]), key=place):
        told = f"measured best: {backend}" if backend else "measured best: nothing crosses"
        entries.append(
            Line2D(
                [],
                [],
                **look,
                marker=_marker(backend),
                markeredgecolor="black",
                label=told,
            )
        )
    if (found["prediction"] != "").any():
        entries.append(Patch(facecolor="0.88", edgecolor="0.4", linewidth=0.4, label="area: predicted best"))
    for prediction, told in (
        (CLOSE, "prediction differs, no more than chance may"), (OTHER, "prediction differs"),
    ):  # fmt: skip
        if (found["prediction"] == prediction).any():
            colour, thick, line = _EDGES[prediction]
            entries.append(
                Patch(facecolor="white", edgecolor=colour, linewidth=thick, linestyle=line, label=told)
            )
    return entries


def _written(predictor: Predictor, delays: Scale, rates: Scale) -> list[pd.DataFrame]:
    """The background as rows."""
    delays_s, rates_bps = (
        scale.values(count)[WRITTEN // 2 :: WRITTEN]
        for scale, count in zip((delays, rates), FINENESS, strict=True)
    )
    at = pd.DataFrame(
        {"delay_s": np.repeat(delays_s, len(rates_bps)), "rate_bps": np.tile(rates_bps, len(delays_s))}
    )
    written = []
    for objective in _TITLES:
        cells = predictor.cells.iloc[best_on_grid(predictor, delays_s, rates_bps, objective).ravel()]
        named = {
            "predicted_point": cells["point"].to_numpy(),
            "predicted_backend": cells["backend"].to_numpy(),
        }
        written.append(at.assign(objective=objective, what="predicted", **named))
    return written


def _told(found: pd.DataFrame, absent: Sequence[str]) -> str:
    sentences = [
        "The best partition point at each network, for latency and for throughput, over the rate from edge to server "
        "and the delay that a round trip gets, both logarithmic",
        "Marks: measured, at the profiles; the number is the point with the best median, the shape its backend. Point "
        "0 leaves the whole model to the server",
    ]
    if (found["prediction"] != "").any():
        sentences.append(
            "Areas: predicted, from the measured stage times of all profiles and what each backend adds, the network "
            "by arithmetic (delays, payload over rate), the way back not shaped. Far from the marks they are "
            "extrapolated; hatched: a backend other than tcp"
        )
        counts = found["prediction"].value_counts()
        told = [
            f"{counts.get(prediction, 0)} {words}"
            for prediction, words in (
                (SAME, "as measured"), (CLOSE, "another point whose interval overlaps (or is not known)"),
                (OTHER, "another, and worse"),
            )
            if counts.get(prediction, 0)
        ]  # fmt: skip
        sentences.append(f"At the marks themselves the prediction names: {', '.join(told)}")
    if absent:
        sentences.append(
            f"Not on the map, as their delay or rate is not one number or TCP does not fill it: {', '.join(absent)}"
        )
    return " ".join(f"{sentence}." for sentence in sentences)

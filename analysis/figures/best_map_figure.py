"""Where to cut as the network changes: the best point over delay and rate, measured and predicted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from pareto.analysis.advice import predict
from pareto.analysis.advice.best import CLOSE, OTHER, SAME, best
from pareto.analysis.advice.observed import NEEDED, OVER_CODECS, WORKLOAD, observe, workloads
from pareto.analysis.advice.predict import Predictor, best_on_grid
from pareto.analysis.advice.rivals import absent
from pareto.analysis.figures import heads, style
from pareto.analysis.figures.areas import (
    FINENESS,
    UNDECIDED,
    Cell,
    areas,
    cell_name,
    colours_of,
    draw_areas,
    hatch,
    soften,
    undecided,
)
from pareto.analysis.figures.axes import Scale
from pareto.analysis.figures.drawing import Drawing, caption, conditions, origin
from pareto.analysis.figures.labels import Label, place_labels, settle
from pareto.analysis.figures.style import ALARM, SMALL_PT, entry
from pareto.analysis.findings import Findings
from pareto.analysis.fronts import quality
from pareto.analysis.fronts.where import Where
from pareto.analysis.naming import family, place, transport
from pareto.analysis.points import NO_CODEC, each_once, in_every_codec
from pareto.analysis.prediction.network import Network, networks
from pareto.analysis.statistics.samples import Floats
from pareto.protocol.errors import UserError

WRITTEN = 20
"""The data beside the figure have one in so many of the delays, and of the rates."""
_TITLES = {"latency": "Lowest latency", "throughput": "Highest throughput"}
_MARKERS = {"": "h", "tcp": "o", "rpc": "s"}
_VARIANT_MARKERS = {"tcp": "8", "rpc": "D"}
_EDGES: dict[str, tuple[str, float, Literal["-", ":"]]] = {
    "": ("black", 0.9, "-"),
    SAME: ("black", 0.9, "-"),
    CLOSE: ("black", 1.1, ":"),
    OTHER: (ALARM, 2.2, "-"),
}
_DOT_PT = {"column": 12.0, "page": 13.0}
_PANEL_PT = {"column": (190.0, 120.0), "page": (205.0, 150.0)}
"""About the size of a panel: which names fit an area must be known before the legend is made."""
_THIN: dict[str, Any] = {"edgecolor": "0.4", "linewidth": 0.4}


def best_map_drawings(findings: Findings) -> Iterator[Drawing]:
    """Yield a drawing for each model, batch size, codec, depth and setup of two hosts with measured networks; and where
    there are several codecs, one over all that cost no accuracy, or that the constraint admits.
    """
    every = in_every_codec(findings.trials.reindex(columns=NEEDED))
    for _, rows in findings.front.groupby(OVER_CODECS, dropna=False):
        if rows.loc[rows["backend"] != "", "codec"].nunique() > 1:
            yield from _over_codecs(findings, rows)
    for _, rows in findings.front.groupby(WORKLOAD, dropna=False):
        trials = every.merge(rows[WORKLOAD].drop_duplicates())
        runs = set(trials["run"].unique())
        manifests = [run.manifest for run in findings.runs if runs.intersection(run.names)]
        try:
            known = networks(manifests or [run.manifest for run in findings.runs])
        except UserError:
            continue
        # What a condition asks of a measured network cannot be asked of a predicted one.
        predictor, errors = (None, {}) if findings.where else _predictor(trials, findings.stages, known)
        name = [str(rows["model"].iloc[0])]
        for column, letter in (("batch_size", "b"), ("codec", ""), ("in_flight_asked", "d"), ("setup", "")):
            name += [f"{letter}{rows[column].iloc[0]}"] if findings.front[column].nunique() > 1 else []
        none = "" if predictor is None else absent(predictor.cells, trials, findings.struck)
        if drawing := best_map_drawing(rows, known, predictor, origin(manifests), none, errors=errors):
            yield replace(drawing, name=tuple(part for part in name if part))


def _over_codecs(findings: Findings, rows: pd.DataFrame) -> Iterator[Drawing]:
    """Yield the map of one workload over its codecs: the backend's name carries the codec's."""
    manifests = [run.manifest for run in findings.runs]
    try:
        known = networks(manifests)
    except UserError:
        return
    limit = Where.parse(findings.where)
    same = findings.trials.reindex(columns=NEEDED).merge(rows[OVER_CODECS].drop_duplicates())
    predictor, errors = None, dict[str, float]()
    for trials in workloads(same, over_codecs=True):
        predictor, errors = _predictor(trials, findings.stages, known)
    if predictor is not None:
        cells = predictor.cells
        if limit.columns - set(cells) - {"point", "backend", "codec"}:
            predictor = None  # of what a network decides
        else:
            admitted = limit.holds(cells) & ~_costs_accuracy(cells, limit)
            predictor = predictor.only(admitted.to_numpy()) if admitted.any() else None
    if predictor is not None:
        predictor = replace(predictor, cells=_with_codec(predictor.cells))
    admitted = rows["feasible"].astype(bool) & ~_costs_accuracy(rows, limit)
    shown = _with_codec(each_once(rows.assign(feasible=admitted)))
    left = sorted(set(rows.loc[admitted & (rows["backend"] != ""), "codec"]))
    words = f"Codecs: {', '.join(map(quality.codec_name, left))}"
    words += f", where {findings.where}" if findings.where else ""
    if not limit.columns & quality.LIMITS:
        words += "; those that cost accuracy take no part: --where admits them, such as agreement >= 0.99"
    lossy = rows[admitted & ~quality.is_none(rows["codec"]) & (rows["output_error"] > quality.SAME_OUTPUT)]
    costs = [f"{codec} {quality.span(of['accuracy'])}" for codec, of in lossy.groupby("codec", observed=True)]
    words += f". {quality.name_of(lossy)}: {', '.join(costs)}" if costs else ""
    if len(left) and (
        drawing := best_map_drawing(shown, known, predictor, origin(manifests), words, errors=errors)
    ):
        several = [name for name in OVER_CODECS[1:] if findings.front[name].nunique() > 1]
        yield replace(
            drawing,
            name=(str(rows["model"].iloc[0]), "codecs", *(str(rows[name].iloc[0]) for name in several)),
        )


def _costs_accuracy(cells: pd.DataFrame, limit: Where) -> pd.Series:
    """The cells that the images tell from no codec, or of which that is not known; none if a limit is set."""
    if limit.columns & quality.LIMITS:
        return pd.Series(False, index=cells.index)
    plain = cells.loc[quality.is_none(cells["codec"]), quality.LEVEL].max()
    worse: pd.Series = ~cells[quality.LEVEL].ge(plain)
    return worse


def _with_codec(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with the codec behind the backend's name, `tcp int8`."""
    plain = quality.is_none(rows["codec"]) | rows["backend"].eq("")
    backend = rows["backend"].astype("str")
    return rows.assign(backend=backend.where(plain, backend + " " + rows["codec"].astype("str")))


def best_map_drawing(
    rows: pd.DataFrame,
    known: Mapping[str, Network],
    predictor: Predictor | None = None,
    testbed: str = "",
    about: str = "",
    errors: Mapping[str, float] | None = None,
) -> Drawing | None:
    """The map of one model, batch size, codec and depth, over the profiles of one or several runs.

    `rows`: of `analysis.fronts.front.front`; `known`: of `analysis.prediction.network.networks`; `predictor`: of
    `analysis.advice.predict`, for the same. about: what competes, or what does not, in words. errors: of
    predictions, a standard deviation as a share, by objective. None for a chain, and where fewer than two
    networks are known and nothing is predicted.
    """
    winners = best(rows, known, predictor)
    if winners.empty or (predictor is None and winners["netem"].nunique() < 2):
        return None
    data = winners.assign(what="measured")
    if predictor is not None:
        data = pd.concat([data, *_written(predictor, *_scales(winners))], ignore_index=True)
    shown = rows[rows["netem"].isin(winners["netem"])]
    absent = sorted(set(rows["netem"]) - set(winners["netem"]))
    return Drawing(
        "best-map",
        lambda width: best_map_figure(winners, predictor, rows, errors=errors, width=width),
        data,
        caption(*_sentences(winners, absent), _fading(errors or {}), about, conditions(shown, testbed)),
    )


def _predictor(
    trials: pd.DataFrame, stages: pd.DataFrame, known: Mapping[str, Network]
) -> tuple[Predictor | None, dict[str, float]]:
    """The predictor of one workload, and its error in networks that it has not seen, by objective."""
    try:
        observed = observe(predict.advisable(trials, known), stages, known)
    except UserError:
        return None, {}
    tested = predict.validate(observed)
    errors = {objective: tested.spread(objective) for objective in _TITLES}
    return predict.predictor(observed), {
        name: error for name, error in errors.items() if math.isfinite(error)
    }


def _fading(errors: Mapping[str, float]) -> str:
    """The meaning of areas that fade."""
    each = " and ".join(f"{100 * error:.2g} % ({objective})" for objective, error in errors.items())
    text = (
        "Areas fade, and have falling lines, where the best of another point is behind by less than predictions "
        "are off: "
    )
    return text + each if each else ""


def best_map_figure(
    winners: pd.DataFrame,
    predictor: Predictor | None,
    rows: pd.DataFrame,
    *,
    errors: Mapping[str, float] | None = None,
    width: str = "page",
) -> Figure:
    """A map for the latency and one for the throughput: rate to the right, round-trip delay upwards, both logarithmic.

    `winners`: of `analysis.advice.best.best`. A mark at each measured profile holds the number of its best point; the
    areas behind are what `predictor` puts first, the way back not shaped; they fade where another point
    is behind by less than the objective's of the `errors`. `rows`: of the front, for the title and the
    footnote.
    """
    delays, rates = _scales(winners)
    page = width == "page"
    maps = {objective: areas(predictor, delays, rates, objective) for objective in _TITLES if predictor}
    colours = colours_of([cell for of_cells in maps.values() for cell in of_cells])
    shown = rows[rows["netem"].isin(winners["netem"])]
    with style.blank(width, 3.6 if page else 5.4, shown) as figure:
        panels = figure.subplots(*((1, 2) if page else (2, 1)), sharex=True, sharey=True)
        unnamed, titled = set[Cell](), set[Cell]()
        fades = False
        marks = []
        for axes, objective in zip(panels, _TITLES, strict=True):
            here = winners[winners["objective"] == objective]
            dots = np.column_stack([rates.at(here["rate_bps"]), delays.at(here["delay_s"])])
            marks.append((axes, here, dots))
            axes.set_title(_TITLES[objective], loc="left", fontsize="medium", fontweight="normal")
            axes.set(xlim=(0, 1), ylim=(0, 1))
            rates.show(axes, "x", 1e6, {math.inf: "no limit"})
            delays.show(axes, "y", 1e-3, {0.0: "0"})
            if objective in maps:
                small = draw_areas(axes, maps[objective], colours, dots, _PANEL_PT[width])
                unnamed |= small
                titled |= set(maps[objective]) - small
            if predictor and objective in (errors or {}):
                faded = undecided(predictor, delays, rates, objective, (errors or {})[objective])
                soften(axes, faded)
                fades |= bool(faded.any())
            _dots(axes, here, dots, _DOT_PT[width])
        for axes in panels[:1] if page else panels:
            axes.set_ylabel("round-trip delay (ms)")
        for axes in panels if page else panels[1:]:
            axes.set_xlabel("rate, edge to server (Mbit/s)")
        entries = _legend(winners) + [
            Patch(facecolor=colours[cell], hatch=hatch(cell), label=cell_name(cell), **_THIN)
            for cell in sorted(unnamed - titled, key=list(colours).index)
        ]
        if fades:
            entries.append(Patch(facecolor="0.96", hatch=UNDECIDED, label="too close to call", **_THIN))
        heads.figure_head(figure, _title(rows), entries)
        settle(figure)
        for axes, here, dots in marks:
            _name_dots(axes, here, dots, _DOT_PT[width])
    return figure


def _title(rows: pd.DataFrame) -> str:
    codecs = rows["codec"].unique()
    among = (
        ", over codecs" if len(codecs) > 1 else f", {codecs[0]}" if codecs[0] not in ("", NO_CODEC) else ""
    )
    return f"Best partition point by network: {rows['model'].iloc[0]}{among}"


def _scales(winners: pd.DataFrame) -> tuple[Scale, Scale]:
    """The scales of delay (s) and rate (bit/s): wider than what was measured, and at least a hundredfold."""
    delays, rates = winners["delay_s"], winners["rate_bps"]
    return (
        Scale.around(delays[delays > 0], (0.001, 0.2), strip_low=bool((delays == 0).any())),
        Scale.around(rates[np.isfinite(rates)], (1e6, 1e9), strip_high=bool(np.isinf(rates).any())),
    )


def _marker(backend: str) -> str:
    """The backend's marker. Its variants share another one."""
    backend = backend.partition(" ")[0]
    markers = _MARKERS if transport(backend) == family(backend) else _VARIANT_MARKERS
    return markers.get(family(backend), "D")


def _dots(axes: Axes, marks: pd.DataFrame, dots: Floats, size_pt: float) -> None:
    for (x, y), mark in zip(dots, marks.to_dict("records"), strict=True):
        colour, thick, line = _EDGES[mark["prediction"]]
        axes.scatter(
            x, y, s=size_pt**2, marker=_marker(mark["backend"]), facecolor="white",
            edgecolor=colour, linewidths=thick, linestyle=line, zorder=5, clip_on=False,
        )  # fmt: skip
        look: dict[str, Any] = {"ha": "center", "va": "center_baseline", "zorder": 6}
        axes.text(x, y, mark["point"], fontsize=SMALL_PT, fontweight="bold", **look)


def _name_dots(axes: Axes, marks: pd.DataFrame, dots: Floats, size_pt: float) -> None:
    labels = []
    for (x, y), mark in zip(dots, marks.to_dict("records"), strict=True):
        codec = str(mark["backend"]).partition(" ")[2]
        name = f"{mark['netem']}\n{codec}" if codec else str(mark["netem"])
        if mark["prediction"] == OTHER:
            name += f"\npredicted {cell_name((mark['predicted_point'], mark['predicted_backend']))}"
            if not math.isnan(mark["behind_percent"]):
                name += f", {mark['behind_percent']:.0f} % worse"
        labels.append(Label(x, y, name, "black", -np.pi / 2 if y > 0.25 else np.pi / 2))
    place_labels(axes, labels, markers=dots, marker_pt=size_pt + 2, zorder=4)


def _legend(winners: pd.DataFrame) -> list[Any]:
    entries: list[Any] = []
    for backend in sorted({str(backend).partition(" ")[0] for backend in winners["backend"]}, key=place):
        look = {"marker": _marker(backend), "color": "white", "markeredgecolor": "black", "markersize": 7}
        entries.append(entry(f"measured best: {backend or 'nothing crosses'}", **look))
    if (winners["prediction"] != "").any():
        entries.append(Patch(facecolor="0.88", label="area: predicted best", **_THIN))
    for prediction, words in (
        (CLOSE, "prediction differs, no more than chance may"), (OTHER, "prediction differs"),
    ):  # fmt: skip
        if (winners["prediction"] == prediction).any():
            colour, thick, line = _EDGES[prediction]
            entries.append(
                Patch(facecolor="white", edgecolor=colour, linewidth=thick, linestyle=line, label=words)
            )
    return entries


def _written(predictor: Predictor, delays: Scale, rates: Scale) -> list[pd.DataFrame]:
    """The predicted areas as rows, an objective at a time."""
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
        point, backend = (cells[column].to_numpy() for column in ("point", "backend"))
        named = {"predicted_point": point, "predicted_backend": backend}
        written.append(at.assign(objective=objective, what="predicted", **named))
    return written


def _sentences(winners: pd.DataFrame, absent: Sequence[str]) -> Iterator[str]:
    yield (
        "The best partition point at each network, for latency and for throughput, over the rate from edge to server "
        "and the delay that a round trip gets, both logarithmic"
    )
    yield (
        "Marks: measured, at the profiles; the number is the point with the best median, the shape its backend. Point "
        "0 leaves the whole model to the server"
    )
    if (winners["prediction"] != "").any():
        yield (
            "Areas: predicted, from the measured stage times of all profiles and what each backend adds, the network "
            "by arithmetic (delays, payload over rate), the way back not shaped. Far from the marks they are "
            "extrapolated; dots or rising lines: a backend other than tcp"
        )
        meanings = {
            SAME: "as measured",
            CLOSE: "another point whose interval overlaps (or is not known)",
            OTHER: "another, and worse",
        }
        counts = winners["prediction"].value_counts()
        named = [f"{counts[kind]} {words}" for kind, words in meanings.items() if counts.get(kind, 0)]
        yield f"At the marks themselves the prediction names, of {len(winners)} best points: {', '.join(named)}"
    if absent:
        yield f"Not on the map, as their delay or rate is not one number or TCP does not fill it: {', '.join(absent)}"

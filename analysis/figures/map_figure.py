"""Where to cut as the network changes: the best point over delay and rate, measured and predicted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from scipy import ndimage

from pareto.analysis.advice.observed import NEEDED, OVER_CODECS, WORKLOAD
from pareto.analysis.advice.predict import CLOSE, OTHER, SAME, Predictor, best, on_grid
from pareto.analysis.advice.workload import workloads as every_workload
from pareto.analysis.figures import layout
from pareto.analysis.figures.drawing import Nothing, Told, testbeds
from pareto.analysis.figures.layout import On, entry
from pareto.analysis.figures.style import ALARM, SMALL_PT
from pareto.analysis.findings import Findings
from pareto.analysis.fronts import quality
from pareto.analysis.fronts.where import Where
from pareto.analysis.naming import LETTERS, family, listed, place, some, transport
from pareto.analysis.page.best_map import BEYOND, LEAST, OBJECTIVES
from pareto.analysis.prediction.network import Network, networks
from pareto.analysis.runs.points import NO_CODEC, NONE, cuts
from pareto.analysis.runs.treatments import each_once
from pareto.analysis.statistics.samples import Floats, Ints
from pareto.protocol.errors import UserError

FINENESS = 200
"""How many delays, and how many rates, are computed; the data beside the figure have one in `WRITTEN`."""
WRITTEN = 10
UNDECIDED = "\\\\\\"
"""The hatch where two points are too close to call."""
_MARKERS = {NONE: "h", "tcp": "o", "rpc": "s"}
_EDGES: dict[str, tuple[str, float, Any, str]] = {
    "": ("black", 0.9, "-", ""),
    SAME: ("black", 0.9, "-", ""),
    CLOSE: ("black", 1.1, ":", "prediction differs, within chance"),
    OTHER: (ALARM, 2.2, "-", "prediction differs"),
}
"""The border of a mark by what is predicted there: colour, width, line, and words of the legend."""
_DOT_PT = 12.0
_THIN: dict[str, Any] = {"edgecolor": "0.4", "linewidth": 0.4}


def workloads(findings: Findings) -> Iterator[tuple[tuple[str, ...], pd.DataFrame]]:
    """Yield the name and the rows of the front of each map: of each model, batch size, codec, depth and setup of two
    hosts, and where there are several codecs, one over all that cost no accuracy, or that the constraint admits.
    """
    every = findings.front[[len(cuts(point)) == 1 for point in findings.front["point"]]]
    varied = {
        column: letter for column, letter in {**LETTERS, "setup": ""}.items() if every[column].nunique() > 1
    }
    for columns, word in ((OVER_CODECS, "codecs"), (WORKLOAD, "")):
        for _, rows in every.groupby(columns, dropna=False):
            if not word or _has_codecs(rows):
                factors = [f"{varied[name]}{rows[name].iloc[0]}" for name in varied if name in columns]
                yield tuple(filter(None, (str(rows["model"].iloc[0]), word, *factors))), rows


def _has_codecs(rows: pd.DataFrame) -> bool:
    return bool(rows.loc[rows["backend"] != NONE, "codec"].nunique() > 1)


def best_map(on: On, findings: Findings, workload: pd.DataFrame) -> Told:
    """A map for the latency and one for the throughput of a workload: rate to the right, round-trip delay upwards.

    Marks are the measured profiles, with the number of their best point; the areas behind are what is predicted, the
    way back not shaped, and fade where another point is behind by less than predictions err. Raises `Nothing`.
    """
    try:
        return draw_map(on, **known_of(findings, workload))
    except UserError as error:  # profiles of one name that differ, or of no constant delay and rate
        raise Nothing(f"best-map: {error}") from None


def draw_map(
    on: On,
    rows: pd.DataFrame,
    known: Mapping[str, Network],
    predictor: Predictor | None = None,
    errors: Mapping[str, float] | None = None,
    about: str = "",
    testbed: str = "",
) -> Told:
    """`best_map` of some rows of a front. known: what the profiles are. errors: of predictions, a standard deviation as
    a share, by objective. about: what competes, or does not, in words.
    """
    winners, errors, narrow = best(rows, known, predictor), errors or {}, layout.is_narrow(on)
    if winners.empty or (predictor is None and winners["netem"].nunique() < 2):
        raise Nothing("best-map: it takes two measured networks, or a prediction")
    delays, rates = _steps(winners["delay_s"], (0.001, 0.2)), _steps(winners["rate_bps"], (1e6, 1e9))
    grids = {name: on_grid(predictor, delays, rates, name) for name in OBJECTIVES if predictor}
    cells = pd.DataFrame()
    if predictor is not None:
        cells = _cells(predictor.cells, np.unique([which for which, *_ in grids.values()]))
    panels = layout.panels(on, *((2, 1, 5.0) if narrow else (1, 2, 3.2)), sharex=True, sharey=True)
    winners = winners.assign(
        x=winners["rate_bps"].clip(upper=rates[-1]), y=winners["delay_s"].clip(lower=delays[0])
    )
    _legend(panels[0], winners)
    labels = []
    for axes, (objective, heading) in zip(panels, OBJECTIVES.items(), strict=True):
        axes.set_title(heading, loc="left", fontsize="medium", fontweight="normal")
        axes.set(xscale="log", yscale="log", xlim=rates[[0, -1]], ylim=delays[[0, -1]])
        _ticks(axes, rates, delays, winners)
        here = winners[winners["objective"] == objective]
        dots = here[["x", "y"]].to_numpy(dtype=float)
        if objective in grids:
            which, _, behind = grids[objective]
            _draw_areas(axes, cells, which, rates, delays, dots)
            close = behind < errors.get(objective, 0)
            if close.any():
                axes.contourf(rates, delays, close, [0.5, 1.5], colors=["white"], alpha=0.6, zorder=1.4)
                look: dict[str, Any] = {"colors": "none", "hatches": [UNDECIDED], "zorder": 1.4}
                axes.contourf(rates, delays, close, [0.5, 1.5], **look).set(edgecolor="0.6", linewidth=0)
                axes.fill([], [], label="too close to call", facecolor="0.96", hatch=UNDECIDED, **_THIN)
        for mark in here.to_dict("records"):
            colour, thick, line, _ = _EDGES[mark["prediction"]]
            look = {"marker": _marker(mark["backend"]), "edgecolor": colour, "linewidths": thick, "zorder": 5}
            axes.scatter(mark["x"], mark["y"], _DOT_PT**2, "white", linestyle=line, clip_on=False, **look)
            look = {"fontsize": SMALL_PT, "fontweight": "bold", "ha": "center", "va": "center_baseline"}
            axes.text(mark["x"], mark["y"], mark["point"], zorder=6, **look)
        axes.set(ylabel="round-trip delay (ms)", xlabel="rate, edge to server (Mbit/s)")
        axes.label_outer()
        names = [(mark["x"], mark["y"], _said(mark), "black") for mark in here.to_dict("records")]
        labels.append((axes, names, dots, _DOT_PT / 2 + 1))
    codecs = rows["codec"].unique()
    codec = "over codecs" if len(codecs) > 1 else "" if codecs[0] == NO_CODEC else codecs[0]
    title = f"Best point by network: {', '.join(filter(None, (rows['model'].iloc[0], codec)))}"
    off = [f"{100 * error:.2g} % ({name})" for name, error in errors.items()]
    missing = sorted(set(rows["netem"]) - set(winners["netem"]))
    words = (
        "The best point by network: marks measured, areas predicted, extrapolated far from marks",
        about,
        f"Faded: closer than predictions err, {listed(off)}" if off else "",
        f"Not on the map: {some(missing)}" if missing else "",
    )
    data = [winners.drop(columns=["x", "y"]).assign(what="measured")]
    some_of = slice(WRITTEN // 2, None, WRITTEN)
    at_delay, at_rate = np.meshgrid(delays[some_of], rates[some_of], indexing="ij")
    for objective, (which, *_) in grids.items():
        number = which[some_of, some_of].ravel()
        of_cell = cells.loc[number, ["point", "backend"]].add_prefix("predicted_")
        of_cell = of_cell.assign(delay_s=at_delay.ravel(), rate_bps=at_rate.ravel(), what="predicted")
        data.append(of_cell.assign(objective=objective).iloc[number.argsort(kind="stable")])
    of_winners = rows[rows["netem"].isin(winners["netem"])]
    return Told(title, words, pd.concat(data, ignore_index=True), of_winners, testbed, labels)


def _cells(cells: pd.DataFrame, numbers: Ints) -> pd.DataFrame:
    """The cells of these numbers, the best somewhere: point, backend (with its codec), and how each is drawn.
    The later the cut, the darker; light enough for black letters. The hatch tells the backends of a point apart.
    """
    made = cells[["point", "backend"]].astype("str").loc[numbers]
    backend, made["codec"] = made["backend"].str.partition(" ")[[0, 2]].to_numpy().T
    variants = ["...." if family(each) == "tcp" else "////" for each in backend]
    made["hatch"] = np.where([transport(each) in (NONE, "tcp") for each in backend], "", variants)
    made["name"] = [_name(*of) for of in made[["point", "backend"]].to_numpy()]
    made = made.assign(cut=made["point"].astype(int)).sort_values(["cut", "backend"])
    place = made.groupby(["point", "codec"], sort=False).ngroup()
    shades = np.linspace(0.04, 0.5, place.max() + 1)[place]
    return made.assign(colour=[*map(tuple, colormaps["YlGnBu"](shades))])


def _name(point: str, backend: str) -> str:
    """`14 tcp`, or `21, all on the edge`."""
    return f"{point}, all on the edge" if backend == NONE else f"{point} {backend}"


def known_of(findings: Findings, rows: pd.DataFrame) -> dict[str, Any]:
    """The arguments of `draw_map`; over codecs the backends' names carry the codec's. Raises UserError."""
    limit, over_codecs, codec = Where.parse(findings.where), _has_codecs(rows), rows["codec"].iloc[0]
    trials = findings.trials.reindex(columns=NEEDED).merge(rows[OVER_CODECS].drop_duplicates())
    every = every_workload(replace(findings.joined, trials=trials), over_codecs=over_codecs, strict=False)
    workload = next(each for each in every if over_codecs or each.first["codec"] == codec)
    runs = set(workload.rows["run"])
    manifests = [run.manifest for run in findings.runs if runs.intersection(run.names)]
    known = networks(manifests or findings.manifests)
    workload = replace(workload, networks=known)
    about, errors, predictor, asked = "", dict[str, float](), None, limit.columns
    if not workload.unfit:
        cells = workload.predictor.cells
        admitted = pd.Series(True, index=cells.index)
        if over_codecs:
            asked, admitted = asked - {*cells, "point", "backend", "codec"}, ~_costs_accuracy(cells, limit)
        else:
            about = "" if asked else workload.absent
        # What a condition asks of a measured network cannot be asked of a predicted one.
        admitted &= not asked and limit.holds(cells)
        if admitted.any():
            predictor = workload.predictor.only(admitted.to_numpy(dtype=np.bool_))
            spreads = {name: workload.validation.spread(name) for name in OBJECTIVES}
            errors = {name: error for name, error in spreads.items() if math.isfinite(error)}
    if over_codecs:
        competes = rows["feasible"].astype(bool) & ~_costs_accuracy(rows, limit)
        left = rows[competes & (rows["backend"] != NONE)]
        if left.empty:
            raise UserError("no codec is admitted")
        lossy = ~quality.is_none(rows["codec"]) & (rows["output_error"] > quality.SAME_OUTPUT)
        by_codec = rows[competes & lossy].groupby("codec", observed=True)["accuracy"]
        costs = ", ".join(f"{codec} {quality.span(accuracies)}" for codec, accuracies in by_codec)
        about = f"Codecs: {', '.join(map(quality.codec_name, sorted(left['codec'].unique())))}"
        about += f"; {quality.name_of(rows[competes & lossy])}: {costs}" if costs else ""
        rows = _with_codec(each_once(rows.assign(feasible=competes)))
        predictor = predictor and replace(predictor, cells=_with_codec(predictor.cells))
    of_all = {"known": known, "testbed": testbeds(manifests), "about": about}
    return of_all | {"rows": rows, "predictor": predictor, "errors": errors}


def _costs_accuracy(cells: pd.DataFrame, limit: Where) -> pd.Series:
    """The cells that the images tell from no codec, or of which that is not known; none if a limit is set."""
    plain = cells.loc[quality.is_none(cells["codec"]), quality.LEVEL].max()
    return ~cells[quality.LEVEL].ge(plain) & (not limit.columns & quality.LIMITS)


def _with_codec(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with the codec behind the backend's name, `tcp int8`."""
    plain = quality.is_none(rows["codec"]) | rows["backend"].eq(NONE)
    backend = rows["backend"].astype("str")
    return rows.assign(backend=backend.where(plain, backend + " " + rows["codec"].astype("str")))


def _steps(values: pd.Series, otherwise: tuple[float, float]) -> Floats:
    """The steps of an axis around what was measured; what is 0 or without limit stands at its end."""
    inside = values[(values > 0) & np.isfinite(values)]
    low, high = (float(inside.min()), float(inside.max())) if len(inside) else otherwise
    low /= BEYOND * (4 if (values <= 0).any() else 1)
    high *= BEYOND * (4 if np.isinf(values).any() else 1)
    wider = max(1.0, math.sqrt(LEAST * low / high))
    return np.geomspace(low / wider, high * wider, FINENESS)


def _ticks(axes: Axes, rates: Floats, delays: Floats, winners: pd.DataFrame) -> None:
    """Write powers of ten in Mbit/s and ms, and at an end the words for what has no place on the axis."""
    unlimited, no_delay = np.isinf(winners["rate_bps"]).any(), (winners["delay_s"] == 0).any()
    for axis, values, unit, ends in (
        (axes.xaxis, rates, 1e6, {rates[-1]: "no limit"} if unlimited else {}),
        (axes.yaxis, delays, 1e-3, {delays[0]: "0"} if no_delay else {}),
    ):
        first, last = math.ceil(math.log10(values[0])), math.floor(math.log10(values[-1]))
        powers = [10.0**power for power in range(first, last + 1)]
        ticks = {
            at: f"{at / unit:g}" for at in powers if all(max(at / end, end / at) > 4 for end in ends)
        } | ends
        axis.set_ticks(list(ticks), list(ticks.values()))
        axis.set_ticks([], minor=True)


def _marker(backend: str) -> str:
    """The backend's marker; its variants share another one."""
    backend = backend.partition(" ")[0]
    return _MARKERS.get(backend, "8" if family(backend) == "tcp" else "D")


def _draw_areas(
    axes: Axes, cells: pd.DataFrame, grid: Ints, rates: Floats, delays: Floats, dots: Floats
) -> None:
    """Draw the areas and name each where it is widest, clear of marks, or in the legend if that has no room."""
    steps_pt = np.asarray(axes.bbox.size)[::-1] * 72 / axes.figure.dpi / FINENESS
    away_y, away_x = (
        np.abs(np.log(steps[:, None] / dots[:, side])) / np.log(steps[1] / steps[0]) * step_pt
        for steps, side, step_pt in ((delays, 1, steps_pt[0]), (rates, 0, steps_pt[1]))
    )
    near = ((away_y[:, None] < 22) & (away_x[None] < 34)).any(axis=2)
    for number, cell in cells.loc[np.unique(grid)].iterrows():
        inside, name = grid == number, cell["name"]
        if inside.all():
            axes.set_facecolor(cell["colour"])
        else:
            look: dict[str, Any] = {"colors": [cell["colour"]], "hatches": [cell["hatch"]], "zorder": 1}
            axes.contourf(rates, delays, inside, [0.5, 1.5], **look).set(edgecolor="0.55", linewidth=0)
            axes.contour(rates, delays, inside, [0.5], colors="0.35", linewidths=0.5, zorder=1.2)
        for angle, across in ((0, (2.2, 1.0)), (90, (1.0, 2.2))):
            # Texts are long: what counts is the room before and behind them.
            sampling = np.multiply(across, steps_pt)
            room_pt = ndimage.distance_transform_edt(np.pad(inside & ~near, 1), sampling=sampling)[1:-1, 1:-1]
            row, column = np.unravel_index(int(np.argmax(room_pt)), room_pt.shape)
            if room_pt[row, column] > max(1.8 * len(name), 9):
                look = {"fontsize": SMALL_PT + 0.5, "rotation": angle, "ha": "center", "va": "center"}
                axes.text(rates[column], delays[row], name, zorder=2, **look)
                break
        else:
            axes.fill([], [], label=name, facecolor=cell["colour"], hatch=cell["hatch"], **_THIN)


def _said(mark: Mapping[Any, Any]) -> str:
    """The label of a mark: its network, the codec, and what is predicted there if that is another point."""
    name = " ".join(filter(None, (str(mark["netem"]), str(mark["backend"]).partition(" ")[2])))
    if mark["prediction"] == OTHER:
        name += f"\npredicted {_name(mark['predicted_point'], mark['predicted_backend'])}"
        name += "" if math.isnan(mark["behind_percent"]) else f", {mark['behind_percent']:.0f} % worse"
    return name


def _legend(axes: Axes, winners: pd.DataFrame) -> None:
    look: dict[str, Any] = {"color": "white", "markeredgecolor": "black", "markersize": 7}
    for backend in sorted({str(backend).partition(" ")[0] for backend in winners["backend"]}, key=place):
        words = f"measured best: {'nothing crosses' if backend == NONE else backend}"
        entry(axes, words, marker=_marker(backend), **look)
    if (winners["prediction"] != "").any():
        axes.fill([], [], label="area: predicted best", facecolor="0.88", **_THIN)
    for kind in (CLOSE, OTHER):
        if (winners["prediction"] == kind).any():
            colour, thick, line, words = _EDGES[kind]
            axes.fill([], [], label=words, fc="white", edgecolor=colour, linewidth=thick, linestyle=line)

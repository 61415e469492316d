"""How often a request takes long: the share of the requests that take longer than a latency, alone and under load."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from pareto.analysis.figures import heads, style
from pareto.analysis.figures.axes import fit_axis
from pareto.analysis.figures.drawing import Drawing, caption
from pareto.analysis.figures.style import LINES, entry
from pareto.analysis.naming import place, subject, time_unit
from pareto.analysis.points import AT_WORK, CELL, NO_CODEC, NONE, each_once
from pareto.analysis.runs.requests import QUANTILES, latencies_s, request_files
from pareto.analysis.schema import cell_name
from pareto.analysis.standing import stands
from pareto.analysis.statistics.samples import Floats, needed
from pareto.protocol.errors import UserError

ALONE, LOADED = "one in flight", "under load"
STEPS = 200
"""How many corners a line has at most: more are closer together than it is wide."""
LEAST_SHARE = 0.004
"""The lower end of the axis, a little below what the 99th percentile needs."""
_TICKS = (1, 0.5, 0.1, 0.05, 0.01)
_MARKER_PT = 4.0
_DATA = ["phase", "share_slower", "latency_s", "percentile", "requests"]

log = logging.getLogger(__name__)


def tail_drawing(
    rows: pd.DataFrame, trials: pd.DataFrame, runs: Sequence[Path], conditions: str
) -> Drawing | None:
    """The drawing of one condition; None where no request of its points was kept.

    `rows`: of the front; `trials`: of the same condition; `runs`: their folders; `conditions` as of
    `drawing.conditions`.
    """
    try:
        data = tail_data(chosen_points(rows), trials, runs)
    except UserError as error:
        log.warning("no figure of the latency's tail: %s", error)
        return None
    if data.empty:
        return None
    text = caption(
        "The share of the requests that take longer than a latency, for each backend's point of the lowest latency and "
        "that of the highest throughput, and for the point where nothing crosses if it is on a front; requests of all "
        "rounds together",
        conditions,
        "Left: one request in flight. Right: many, those that began with all others on their way"
        if data["phase"].nunique() > 1
        else "",
        "Marks: the median, the 90th, 95th and 99th percentile, each only where there are enough requests to state it",
    )
    return Drawing("tail", lambda width: tail_figure(data, rows, width=width), data, text)


def chosen_points(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the lowest latency and of the highest throughput of each backend and codec.

    Where nothing crosses, a row is of no backend: it stands for itself. A cell that stands for several codecs is there
    once.
    """
    wanted = each_once(rows[rows["on_backend_front"].astype(bool)])
    groups = wanted.groupby(["backend", "codec"], dropna=False, observed=True)
    ordered = sorted(groups, key=lambda group: (place(str(group[0][0])), group[0][1] != NO_CODEC))
    best = [
        group.loc[[group["latency_s"].idxmin(), group["throughput_ips"].idxmax()]] for _, group in ordered
    ]
    chosen = pd.concat(best) if best else wanted
    return chosen.drop_duplicates(["backend", "codec", "point"])


def tail_data(chosen: pd.DataFrame, trials: pd.DataFrame, runs: Sequence[Path]) -> pd.DataFrame:
    """The corners of each line: `share_slower` of the `requests` take longer than `latency_s`; `percentile` is
    named where it is one of `QUANTILES` and can be stated. `phase`: `ALONE` or `LOADED`. Raises UserError.
    """
    files_of = request_files(runs)
    parts = []
    for cell in chosen.to_dict("records"):
        own = _trials_of(cell, trials)
        for phase, measure in ((ALONE, "latency"), (LOADED, "throughput")):
            found = [
                latencies_s(file, measure, _without_load(trial) if phase == LOADED else 0)
                for trial in own[stands(own, measure)].to_dict("records")
                if (file := files_of.get(cell_name(trial), {}).get((trial["run"], trial["round"])))
                and (phase == ALONE or trial["in_flight"] > 1)
            ]
            if found and len(every := np.concatenate(found)):
                parts.append(
                    _corners(every).assign(
                        phase=phase, requests=len(every), **{key: cell[key] for key in CELL}
                    )
                )
    return pd.concat(parts, ignore_index=True)[[*CELL, *_DATA]] if parts else pd.DataFrame()


def _trials_of(cell: Mapping[Hashable, Any], trials: pd.DataFrame) -> pd.DataFrame:
    """The trials that a row of the front was made of: where nothing crosses, those under every backend."""
    by_itself = {"codec"} if cell["backend"] else {"codec", "backend"}
    same = pd.Series(cell)[[name for name in CELL if name not in by_itself]]
    own = trials[trials[list(same.index)].eq(same).all(axis=1)]
    return own[own["codec"].isin([cell["codec"], cell[AT_WORK]])]


def _without_load(trial: Mapping[Hashable, Any]) -> int:
    """The number of requests of a throughput phase that found fewer than all others on their way."""
    ahead = trial.get("prefetch", 0)
    return int(trial["in_flight"]) + (0 if pd.isna(ahead) else int(ahead))


def _corners(latencies: Floats) -> pd.DataFrame:
    """Even steps of the logarithm of the share, and the quantiles that can be stated."""
    shares = np.geomspace(1, max(1 / len(latencies), LEAST_SHARE), min(STEPS, len(latencies)))
    stated = {1 - q: f"p{100 * q:g}" for q in QUANTILES.values() if len(latencies) >= needed(q)}
    every = np.sort(np.unique([*shares, *stated]))[::-1]
    return pd.DataFrame(
        {
            "share_slower": every,
            "latency_s": np.quantile(latencies, 1 - every),
            "percentile": [stated.get(share, "") for share in every],
        }
    )


def tail_figure(data: pd.DataFrame, rows: pd.DataFrame, *, width: str = "page") -> Figure:
    """Draw a panel for each phase of `tail_data`: latency to the right, the share of slower requests upwards,
    logarithmic. `rows`: of the front, for looks, title and footnote.
    """
    phases = [phase for phase in (ALONE, LOADED) if (data["phase"] == phase).any()]
    unit, scale = time_unit(float(data["latency_s"].max()))
    looks = {(one.backend, one.codec): one for one in style.series(rows)}
    shape = (1, len(phases)) if width == "page" else (len(phases), 1)
    with style.blank(width, 2.9 if width == "page" else 1.9 * len(phases), rows) as figure:
        panels = figure.subplots(*shape, squeeze=False, sharey=True).ravel()
        entries: dict[str, Line2D] = {}
        for axes, phase in zip(panels, phases, strict=True):
            shown = data[data["phase"] == phase]
            for (backend, codec), own in shown.groupby(["backend", "codec"], sort=False, observed=True):
                one = looks.get((str(backend), str(codec)))
                colour, marker = (
                    (one.colour, one.marker) if one else (style.NEUTRAL_COLOUR, style.NEUTRAL_MARKER)
                )
                points = list(
                    dict.fromkeys(data.loc[(data["backend"] == backend) & (data["codec"] == codec), "point"])
                )
                for point, line in own.groupby("point", sort=False):
                    look: dict[str, Any] = {
                        "color": colour,
                        "linestyle": LINES[points.index(point) % len(LINES)],
                    }
                    marked = line["percentile"].ne("").to_numpy().nonzero()[0]
                    axes.plot(
                        line["latency_s"] * scale, line["share_slower"], linewidth=1.2, marker=marker,
                        markersize=_MARKER_PT, markevery=list(marked), **look,
                    )  # fmt: skip
                    label = " ".join(
                        filter(None, (str(backend) or style.NEUTRAL, "" if codec == "none" else str(codec)))
                    )
                    named = f"{label}, point {point}" if backend != NONE else f"{label} (point {point})"
                    entries.setdefault(named, entry(named, marker=marker, markersize=_MARKER_PT, **look))
            _axes(axes, shown["latency_s"] * scale, f"latency, {phase} ({unit})")
        for axes in panels if width == "column" else panels[:1]:
            axes.set_ylabel("share of requests" + ("\n" if width == "column" else " ") + "that take longer")
        title = f"The latency's tail: {subject(rows.iloc[0])}"
        heads.grow(figure, heads.figure_head(figure, title, list(entries.values())))
    return figure


def _axes(axes: Axes, latencies: pd.Series, label: str) -> None:
    axes.grid(True)
    fit_axis(axes, "x", latencies, room=0.04)
    axes.set(yscale="log", ylim=(LEAST_SHARE, 1.15), xlabel=label)
    axes.yaxis.set_major_locator(FixedLocator(list(_TICKS)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))

"""The functions of `analysis.figures`: they check a frame, and return the figure or the caller's axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pareto.analysis.comparing.paired import What
from pareto.analysis.comparing.paired import paired as pairs
from pareto.analysis.costs import FIGURES, stage_medians
from pareto.analysis.engines import without_engine
from pareto.analysis.figures import attribution_figure as attributed
from pareto.analysis.figures import bound_figure as bounded
from pareto.analysis.figures.accuracy_figure import accuracy_drawing
from pareto.analysis.figures.cuts_figure import cuts_figure
from pareto.analysis.figures.drawing import Drawing
from pareto.analysis.figures.energy_figure import energy_figure
from pareto.analysis.figures.front_figure import draw_front, front_figure, fronts_figure
from pareto.analysis.figures.marks import UNCERTAINTIES
from pareto.analysis.figures.paired_figure import paired_drawing
from pareto.analysis.figures.payload_figure import payload_drawing
from pareto.analysis.figures.pipelining_figure import pipelining_drawing
from pareto.analysis.figures.rate_quality_figure import rate_quality_drawing
from pareto.analysis.figures.style import check_width, styled
from pareto.analysis.figures.tail_figure import tail_drawing
from pareto.analysis.figures.utilization_figure import utilization_figure
from pareto.analysis.findings import FIGURE
from pareto.analysis.fronts.front import front as front_of
from pareto.analysis.fronts.indicators import attainment
from pareto.analysis.fronts.quality import GROUP
from pareto.analysis.naming import subject
from pareto.analysis.points import CELL, NONE
from pareto.analysis.points import cuts as cuts_of
from pareto.analysis.runs.load import Runs, folders
from pareto.protocol.errors import UserError


def front(df: pd.DataFrame, ax: Axes | None = None, *, uncertainty: str = "none", width: str = "page") -> Any:
    """Latency against throughput, the front of each backend as a staircase, and how sure the points are.

    `df`: trials or front. uncertainty: `box` for the points' 95 % intervals; `band`, of trials, for what 5 % and 95 %
    of the resamples attain. Raises `UserError` if `df` is of several
    conditions or has no valid trial.

    >>> front(example()).axes[0].get_xlabel()
    'latency (ms)'
    """
    attained = _band(df, uncertainty)
    rows = _one(df, width)
    if ax is None:
        return front_figure(rows, attainment=attained, uncertainty=uncertainty, width=width)
    with styled(width):
        draw_front(ax, rows, attained, uncertainty)
    return ax


def fronts(df: pd.DataFrame, *, uncertainty: str = "none", width: str = "page") -> Figure:
    """The fronts of one model, a panel for each profile (and batch size and depth, if there are several).

    The rest is as of `front`.

    >>> slow = example(slower=4).assign(netem="lte")
    >>> import pandas as pd
    >>> [axes.get_title(loc="left") for axes in fronts(pd.concat([slow, example()])).axes]
    ['wifi', 'lte']
    """
    attained = _band(df, uncertainty)
    rows = _several(df, ["model"], width)
    return fronts_figure(rows, attainment=attained, uncertainty=uncertainty, width=width)


def attribution(df: pd.DataFrame, ax: Axes | None = None, *, backend: str = "", width: str = "page") -> Any:
    """Where the time of a request goes at each point: all backends beside each other, or `backend` alone.

    >>> attribution(example(), backend="rpc").axes[0].get_ylabel()
    'latency (ms)'
    """
    rows = _one(df, width)
    if backend:
        rows = rows[rows["backend"].isin([backend, NONE])]
        if backend not in set(rows["backend"]):
            raise UserError(f"attribution: no trial of backend {backend!r}")
    if ax is None:
        return attributed.attribution_figure(rows, width=width)
    with styled(width):
        attributed.draw_attribution(ax, rows, f"Latency by part: {subject(rows.iloc[0])}")
    return ax


def bound(df: pd.DataFrame, ax: Axes | None = None, *, measure: str = "latency", width: str = "page") -> Any:
    """How much of what is physically possible latency and throughput reach. On axes of yours, one of them: `measure`.

    >>> len(bound(example()).axes)
    2
    """
    rows = _one(df, width)
    measures = {each.name: each for each in bounded.MEASURES if len(bounded.known(rows, each))}
    if not measures or (ax is not None and measure not in measures):
        raise UserError(f"bound: no bound is known of {measure if ax is not None else 'any point'}")
    if ax is None:
        return bounded.bound_figure(rows, width=width)
    with styled(width):
        bounded.draw_bound(ax, rows, measures[measure])
    return ax


def tail(df: pd.DataFrame, runs: Runs, *, width: str = "page") -> Figure:
    """The share of requests that take longer than a latency, alone and under load. `df`: trials of `runs`.

    Raises `UserError` where no request was kept.
    """
    rows = _one(df, width)
    return _drawn("tail", tail_drawing(rows, df, folders(runs), ""), width)


def energy(df: pd.DataFrame, *, width: str = "page") -> Figure:
    """Latency, throughput and energy, each against each. Raises `UserError` where no energy is known."""
    charged = _one(df, width).dropna(subset=["energy_j"])
    if charged.empty:
        raise UserError("energy: no device's energy is known of every point")
    return energy_figure(charged, width=width)


def cuts(df: pd.DataFrame, *, width: str = "page") -> Figure:
    """The throughput of each pair of cuts of a chain of three hosts, and the step that sets its bound."""
    rows = _one(df, width)
    if len(cuts_of(str(rows["point"].iloc[0]))) != 2:
        raise UserError("cuts: for points of two cuts only, of a chain of three hosts")
    return cuts_figure(rows, width=width)


def utilization(df: pd.DataFrame, stages: pd.DataFrame, *, width: str = "page") -> Figure:
    """How busy each host and link is at the points on the front. `df`: trials; `stages`: of `analysis.stages`."""
    return utilization_figure(_one(df, width), stage_medians(stages, df), width=width)


def paired(df: pd.DataFrame, *, what: What = "backend", width: str = "page") -> Figure:
    """One backend against another at each point, in the same rounds; each codec against none if `what` is "codec", each
    engine against eager if it is "engine".

    `df`: trials. Raises `UserError` without two of them that have valid trials in one round.
    """
    _one(df.assign(setup=without_engine(df)) if what == "engine" else df, width)
    return _drawn("paired", paired_drawing(pairs(df, what), df, what=what), width)


def accuracy(df: pd.DataFrame, *, width: str = "page") -> Figure:
    """Latency, throughput and accuracy of every point and codec, each against each.

    Raises `UserError` where fewer than two codecs have an accuracy.

    >>> accuracy(example(codecs=("none", "int8"))).axes[1].get_xlabel()
    'agreement (%)'
    """
    return _drawn("accuracy", accuracy_drawing(_one(df, width), "", ""), width)


def rate_quality(df: pd.DataFrame, *, width: str = "page") -> Figure:
    """Accuracy over the bytes per image that cross the link, a line for each codec; all profiles together.

    Raises `UserError` where fewer than two codecs have both figures.

    >>> rate_quality(example(codecs=("none", "int8"))).axes[0].get_ylabel()
    'agreement (%)'
    """
    return _drawn("rate_quality", rate_quality_drawing(_several(df, GROUP, width)), width)


def payload(
    df: pd.DataFrame,
    stages: pd.DataFrame | None = None,
    manifest: Mapping[str, Any] | None = None,
    *,
    width: str = "page",
) -> Figure:
    """The payload at each point, and the share of the computing before it.

    `stages`: of `analysis.stages`, needed for chains, with trials as `df`. `manifest`: a run's, for input and FLOPs.
    """
    nothing = pd.DataFrame(columns=[*CELL, "position", "host", *FIGURES])
    staged = nothing if stages is None else stage_medians(stages, df)
    return _drawn("payload", payload_drawing(_one(df, width), staged, manifest), width)


def pipelining(df: pd.DataFrame, *, width: str = "page") -> Figure:
    """Images a second with one request in flight, and with many."""
    return _drawn("pipelining", pipelining_drawing(_one(df, width)), width)


def _band(df: pd.DataFrame, uncertainty: str) -> pd.DataFrame | None:
    """The attainment surfaces for a band. Raises `UserError` without trials, and if there is no such choice."""
    if uncertainty not in UNCERTAINTIES:
        raise UserError(f"no uncertainty {uncertainty!r} of a front: one of {', '.join(UNCERTAINTIES)}")
    if uncertainty != "band":
        return None
    if "status" not in df:
        raise UserError("the band of a front is made from trials: give them instead of the front")
    return attainment(df)


def _one(df: pd.DataFrame, width: str) -> pd.DataFrame:
    """The front of one condition. Raises `UserError` if nothing was measured, or there is no such width."""
    return _several(df, FIGURE, width)


def _several(df: pd.DataFrame, alike: list[str], width: str) -> pd.DataFrame:
    """The front. Raises `UserError` if one of these columns has several values, and as `_one` does."""
    check_width(width)
    rows = front_of(df) if "status" in df else df
    for column in alike:
        if rows[column].nunique() > 1:
            values = ", ".join(sorted(map(str, rows[column].unique())))
            raise UserError(
                f"one {column} in a figure, not {values}: filter first, df[df[{column!r}] == ...]"
            )
    if rows[["latency_s", "throughput_ips"]].isna().any(axis=1).all():
        raise UserError("nothing to draw: no valid trial")
    return rows


def _drawn(kind: str, drawing: Drawing | None, width: str) -> Figure:
    if drawing is None:
        raise UserError(f"{kind}: the trials do not have what it shows")
    return drawing.draw(width)


def example(slower: float = 1, codecs: Sequence[str] = ("none",)) -> pd.DataFrame:
    """A front of made-up figures, two backends and four points, to try a figure with.

    >>> sorted(example()["backend"].unique())
    ['', 'rpc', 'tcp']

    At the last point nothing crosses: it is of no backend.
    """
    made = [
        {
            "run": "example", "model": "toy", "netem": "wifi", "batch_size": 1, "codec": codec, "setup": "",
            "in_flight_asked": "auto", "backend": backend, "point": str(point), "point_name": f"layer{point}",
            "round": number, "status": "ok", "reason": "", "bound_by": "edge", "latency_s": latency_s,
            "latency_bound_s": 0.9 * latency_s, "edge_s": 0.5 * latency_s, "serialize_s": 0.1 * latency_s,
            "network_s": 0.2 * latency_s, "server_s": 0.2 * latency_s, "throughput_ips": 1.5 / latency_s,
            "throughput_bound_ips": 2 / latency_s, "payload_bytes": 1000.0 * (3 - point),
            "wire_bytes": 1000.0 * (3 - point) / place, "agreement": 1 - 0.01 * (place - 1),
            "agreement_images": 1000.0, "output_error": 0.02 * (place - 1),
        }
        for number in range(7)
        for backend, factor in (("tcp", 1.0), ("rpc", 1.1))
        for point in range(4)
        for place, codec in enumerate(codecs, 1)
        for latency_s in [slower / place * factor * (0.02 + 0.01 * abs(point - 2)) * (1 + 0.01 * number)]
    ]  # fmt: skip
    return front_of(pd.DataFrame(made), resamples=100)

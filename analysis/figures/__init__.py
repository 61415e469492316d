"""Figures for notebooks and papers, from the frames of `analysis.load` (trials) and `analysis.front`.

Each function returns a matplotlib figure, or draws on axes of yours and returns these. What is drawn has to be of one
model, profile, batch size and depth, unless it says otherwise. `width`: "page" (7 in) or "column" (3.4 in), as
printed. Every figure can be told apart in grey; nothing here writes files, which `./pareto.sh report` does.

>>> points = example()
>>> figure = front(points, width="column")
>>> figure.get_size_inches()[0].item()
3.4
>>> figure.savefig("front.pdf")  # doctest: +SKIP

On axes of yours, beside something else. The labels are placed in the layout that the figure has then, so make this the
last thing that you draw:

>>> from matplotlib.figure import Figure
>>> left, right = Figure(figsize=(7, 3), layout="constrained").subplots(1, 2)
>>> front(points, ax=left) is left
True
>>> bound(points, ax=right, measure="throughput").get_ylabel()
'throughput (images/s)'
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, overload

from analysis.naming import subject

if TYPE_CHECKING:
    # Whoever only asks for a name must not pay for matplotlib.
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ONE = ["model", "netem", "batch_size", "in_flight_asked", "setup"]
"""What one figure is of; backends and codecs are in it together."""


@overload
def front(
    df: pd.DataFrame, ax: None = None, *, attainment: pd.DataFrame | None = None, width: str = "page"
) -> Figure: ...
@overload
def front(
    df: pd.DataFrame, ax: Axes, *, attainment: pd.DataFrame | None = None, width: str = "page"
) -> Axes: ...
def front(
    df: pd.DataFrame, ax: Axes | None = None, *, attainment: pd.DataFrame | None = None, width: str = "page"
) -> Figure | Axes:
    """Latency against throughput, the front of each backend as a staircase, and how sure the points are.

    `df`: trials or front. `attainment`: of `analysis.fronts.indicators.attainment`, for a band behind the staircases.
    Raises `UserError` if `df` is of several conditions or has no valid trial.

    >>> front(example()).axes[0].get_xlabel()
    'latency (ms)'
    """
    from analysis.figures.front_figure import draw_front, front_figure
    from analysis.figures.style import styled

    rows = _one(df)
    if ax is None:
        return front_figure(rows, attainment=attainment, width=width)
    with styled(width):
        draw_front(ax, rows, attainment)
    return ax


def fronts(df: pd.DataFrame, *, attainment: pd.DataFrame | None = None, width: str = "page") -> Figure:
    """The fronts of one model, a panel for each profile (and batch size and depth, if there are several).

    >>> slow = example(slower=4).assign(netem="lte")
    >>> import pandas as pd
    >>> [axes.get_title(loc="left") for axes in fronts(pd.concat([slow, example()])).axes]
    ['wifi', 'lte']
    """
    from analysis.figures.fronts_figure import fronts_figure

    return fronts_figure(_several(df, ["model"]), attainment=attainment, width=width)


@overload
def attribution(df: pd.DataFrame, ax: None = None, *, backend: str = "", width: str = "page") -> Figure: ...
@overload
def attribution(df: pd.DataFrame, ax: Axes, *, backend: str = "", width: str = "page") -> Axes: ...
def attribution(
    df: pd.DataFrame, ax: Axes | None = None, *, backend: str = "", width: str = "page"
) -> Figure | Axes:
    """Where the time of a request goes at each point: a panel a backend, or `backend` alone.

    On axes of yours there is one panel: raises `UserError` if `df` has several backends and `backend` names none.

    >>> [axes.get_ylabel() for axes in attribution(example()).axes]
    ['tcp\\nlatency (ms)', 'rpc\\nlatency (ms)']
    >>> len(attribution(example(), backend="rpc").axes)
    1
    """
    from analysis.figures.attribution_figure import NAMED_POINTS, attribution_figure, draw_attribution
    from analysis.figures.style import series, styled
    from analysis.points import NONE
    from pareto.errors import UserError

    rows = _one(df)
    if backend:
        rows = rows[rows["backend"].isin([backend, NONE])]
    if backend and backend not in set(rows["backend"]):
        raise UserError(f"attribution: no trial of backend {backend!r}")
    if ax is None:
        return attribution_figure(rows, width=width)
    if len(found := list(series(rows))) > 1:
        raise UserError(
            f"attribution: one backend has room on one axes, not {len(found)}: name one, backend={found[0].label!r}"
        )
    with styled(width):
        draw_attribution([ax], rows, _title("Latency by part", rows), NAMED_POINTS[width])
    return ax


@overload
def bound(df: pd.DataFrame, ax: None = None, *, measure: str = "latency", width: str = "page") -> Figure: ...
@overload
def bound(df: pd.DataFrame, ax: Axes, *, measure: str = "latency", width: str = "page") -> Axes: ...
def bound(
    df: pd.DataFrame, ax: Axes | None = None, *, measure: str = "latency", width: str = "page"
) -> Figure | Axes:
    """Latency and throughput as measured, over what physics allows. On axes of yours, one of them: `measure`.

    >>> len(bound(example()).axes)
    2
    """
    from analysis.figures.bound_figure import MEASURES, bound_figure, draw_bound, known
    from analysis.figures.style import styled
    from pareto.errors import UserError

    rows = _one(df)
    measures = {each.name: each for each in MEASURES if len(known(rows, each))}
    if not measures or (ax is not None and measure not in measures):
        raise UserError(f"bound: no bound is known of {measure if ax is not None else 'any point'}")
    if ax is None:
        return bound_figure(rows, width=width)
    with styled(width):
        draw_bound(ax, rows, measures[measure])
    return ax


def energy(df: pd.DataFrame, *, width: str = "page") -> Figure:
    """Latency, throughput and energy, each against each. Raises `UserError` where no energy is known."""
    from analysis.figures.energy_figure import energy_figure
    from pareto.errors import UserError

    rows = _one(df)
    charged = rows[rows["energy_j"].notna()]
    if charged.empty:
        raise UserError("energy: no device's energy is known of every point")
    return energy_figure(charged, width=width)


def cuts(df: pd.DataFrame, *, width: str = "page") -> Figure:
    """Of a chain of three hosts: the throughput of every pair of cuts, and the step that sets its bound there."""
    from analysis.figures.cuts_figure import cuts_figure
    from analysis.points import cuts as cuts_of
    from pareto.errors import UserError

    rows = _one(df)
    if len(cuts_of(str(rows["point"].iloc[0]))) != 2:
        raise UserError("cuts: for points of two cuts only, of a chain of three hosts")
    return cuts_figure(rows, width=width)


def utilization(df: pd.DataFrame, stages: pd.DataFrame, *, width: str = "page") -> Figure:
    """How busy each host and link is at the points on the front. `df`: trials; `stages`: of `analysis.stages`."""
    from analysis.costs import stage_medians
    from analysis.figures.utilization_figure import utilization_figure

    return utilization_figure(_one(df), stage_medians(stages, df), width=width)


def paired(df: pd.DataFrame, *, width: str = "page") -> Figure:
    """One backend against another at each point, in the same rounds. `df`: trials.

    Raises `UserError` without two backends that have valid trials in one round.
    """
    from analysis.comparing.paired import paired as pairs
    from analysis.figures.paired_figure import paired_drawing

    _one(df)
    return _drawn("paired", paired_drawing(pairs(df), df), width)


def payload(
    df: pd.DataFrame,
    stages: pd.DataFrame | None = None,
    manifest: Mapping[str, Any] | None = None,
    *,
    width: str = "page",
) -> Figure:
    """What crosses at each point, and the share of the computing before it.

    `stages`: of `analysis.stages`, needed for chains, with trials as `df`. `manifest`: a run's, for input and FLOPs.
    """
    import pandas as pd

    from analysis.costs import FIGURES, stage_medians
    from analysis.figures.payload_figure import payload_drawing
    from analysis.points import CELL

    rows = _one(df)
    nothing = pd.DataFrame(columns=[*CELL, "position", "host", *FIGURES])
    staged = nothing if stages is None else stage_medians(stages, df)
    return _drawn("payload", payload_drawing(rows, staged, manifest), width)


def pipelining(df: pd.DataFrame, *, width: str = "page") -> Figure:
    """Images a second with one request in flight, and with many."""
    from analysis.figures.pipelining_figure import pipelining_drawing

    return _drawn("pipelining", pipelining_drawing(_one(df)), width)


def _one(df: pd.DataFrame) -> pd.DataFrame:
    """The front of one condition, of which something was measured."""
    return _several(df, ONE)


def _several(df: pd.DataFrame, alike: list[str]) -> pd.DataFrame:
    """The front, of which these columns are alike, and of which something was measured."""
    from analysis.fronts.front import front as front_of
    from pareto.errors import UserError

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


def _drawn(kind: str, drawing: Any, width: str) -> Figure:
    from pareto.errors import UserError

    if drawing is None:
        raise UserError(f"{kind}: the trials do not tell it")
    figure: Figure = drawing.draw(width)
    return figure


def _title(what: str, rows: pd.DataFrame) -> str:
    first = rows.iloc[0]
    return f"{what}: {subject(first)}"


def example(slower: float = 1) -> pd.DataFrame:
    """A front of made-up figures, two backends and four points, to try a figure with.

    >>> sorted(example()["backend"].unique())
    ['', 'rpc', 'tcp']

    At the last point nothing crosses: it is of no backend.
    """
    import pandas as pd

    from analysis.fronts.front import front as front_of

    made = [
        {
            "run": "example", "model": "toy", "netem": "wifi", "batch_size": 1, "codec": "none", "setup": "",
            "in_flight_asked": "auto", "backend": backend, "point": str(point), "point_name": f"layer{point}",
            "round": number, "status": "ok", "reason": "", "bound_by": "edge", "latency_s": latency_s,
            "latency_bound_s": 0.9 * latency_s, "edge_s": 0.5 * latency_s, "serialize_s": 0.1 * latency_s,
            "network_s": 0.2 * latency_s, "server_s": 0.2 * latency_s, "throughput_ips": 1.5 / latency_s,
            "throughput_bound_ips": 2 / latency_s, "payload_bytes": 1000.0 * (3 - point),
        }
        for number in range(7)
        for backend, factor in (("tcp", 1.0), ("rpc", 1.1))
        for point in range(4)
        for latency_s in [slower * factor * (0.02 + 0.01 * abs(point - 2)) * (1 + 0.01 * number)]
    ]  # fmt: skip
    return front_of(pd.DataFrame(made), resamples=100)

"""Figures for notebooks and papers, from the frames of `analysis.load` (trials) and `analysis.front`.

Each function returns a matplotlib figure, or draws on axes of yours (`ax`; several panels take a list of as many) and
returns these. The rows have to be of one model, profile, batch size and depth, unless the function says otherwise.
`width`: "page" (7 in) or "column" (3.4 in), as printed. `title`: of the figure, in place of its own. Every figure can
be told apart in grey; nothing here writes files, which `./pareto.sh report` does.

>>> from pareto.analysis.figures import attribution, example, front
>>> points = example()
>>> figure = front(points, width="column", title="A toy")
>>> figure.get_size_inches()[0].item()
3.4
>>> figure.savefig("front.pdf")  # doctest: +SKIP

On axes of yours, beside something else. The labels are placed in the layout that the figure has then, so make this the
last thing that you draw:

>>> from matplotlib.figure import Figure
>>> left, right = Figure(figsize=(7, 3), layout="constrained").subplots(1, 2)
>>> front(points, ax=left) is left
True
>>> attribution(points, ax=right).get_ylabel()
'latency (ms)'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from pareto.analysis.comparing.paired import What
    from pareto.analysis.runs.load import Runs

__all__ = [
    *("accuracy", "attribution", "energy", "example", "front", "fronts", "paired", "payload", "tail"),
    "utilization",
]


def front(df: pd.DataFrame, ax: Any = None, *, uncertainty: str = "box", **look: str) -> Any:
    """Latency against throughput, the front of each backend as a staircase, and how sure the points are.

    `df`: trials or front. uncertainty: `box` for the points' 95 % intervals; `band`, of trials, for what 5 % and 95 %
    of the resamples attain; `none`. Raises `UserError` if `df` is of several conditions or has no valid trial.
    """
    return _front(_rows(df), df, ax, uncertainty, look)


def fronts(df: pd.DataFrame, ax: Any = None, *, uncertainty: str = "box", **look: str) -> Any:
    """The fronts of one model, a panel for each profile (and batch size and depth, if there are several)."""
    return _front(_rows(df, ["model"]), df, ax, uncertainty, look)


def attribution(df: pd.DataFrame, ax: Any = None, *, backend: str = "", **look: str) -> Any:
    """Where the time of a request goes at each point: all backends beside each other, or `backend` alone."""
    from pareto.analysis.runs.points import NONE
    from pareto.protocol.errors import UserError

    rows = _rows(df)
    if backend and backend not in set(rows["backend"]):
        raise UserError(f"attribution: no trial of backend {backend!r}")
    rows = rows[rows["backend"].isin([backend, NONE])] if backend else rows
    return _drawn("point_figures.attribution", rows, ax, look)


def tail(df: pd.DataFrame, runs: Runs, ax: Any = None, **look: str) -> Any:
    """The share of requests that take longer than a latency, alone and under load. `df`: trials of `runs`."""
    from pareto.analysis.runs.load import folders

    return _drawn("reading_figures.tail", _rows(df), ax, look, trials=df, runs=folders(runs))


def energy(df: pd.DataFrame, ax: Any = None, **look: str) -> Any:
    """Energy over latency and over throughput. Raises `UserError` where no energy is known."""
    return _drawn("front_figures.third", _rows(df), ax, look, kind="energy")


def accuracy(df: pd.DataFrame, ax: Any = None, **look: str) -> Any:
    """Accuracy over latency and over throughput. Raises `UserError` where fewer than two codecs have one."""
    return _drawn("front_figures.third", _rows(df), ax, look, kind="accuracy")


def payload(
    df: pd.DataFrame, stages: pd.DataFrame | None = None, manifest: Mapping[str, Any] | None = None, ax: Any = None,
    **look: str,
) -> Any:  # fmt: skip
    """The payload at each point, and the share of the computing before it.

    `stages`: of `analysis.stages`, needed for chains, with trials as `df`. `manifest`: a run's, for input and FLOPs.
    """
    from pareto.analysis.costs import stage_medians

    staged = None if stages is None else stage_medians(stages, df)
    return _drawn("point_figures.payload", _rows(df), ax, look, stages=staged, manifest=manifest)


def utilization(df: pd.DataFrame, stages: pd.DataFrame, ax: Any = None, **look: str) -> Any:
    """How busy each host and link of a chain is at points on the front. `df`: trials; `stages`: `analysis.stages`."""
    from pareto.analysis.costs import stage_medians

    return _drawn("point_figures.utilization", _rows(df), ax, look, stages=stage_medians(stages, df))


def paired(df: pd.DataFrame, ax: Any = None, *, what: What = "backend", **look: str) -> Any:
    """One backend against another at each point, in the same rounds; each codec against none if `what` is "codec", each
    engine against eager if it is "engine". `df`: trials.
    """
    from pareto.analysis.comparing.paired import paired as pairs
    from pareto.analysis.runs.points import BUT_CODEC

    rows = _rows(df, [name for name in BUT_CODEC if name != what])
    return _drawn("point_figures.paired", rows, ax, look, rows=df, pairs=pairs(df, what), what=what)


def _front(rows: pd.DataFrame, df: pd.DataFrame, ax: Any, uncertainty: str, look: Mapping[str, str]) -> Any:
    from pareto.analysis.figures.look import UNCERTAINTIES
    from pareto.analysis.fronts.indicators import attainment
    from pareto.protocol.errors import UserError

    if uncertainty not in UNCERTAINTIES:
        raise UserError(f"no uncertainty {uncertainty!r} of a front: one of {', '.join(UNCERTAINTIES)}")
    if uncertainty == "band" and "status" not in df:
        raise UserError("the band of a front is made from trials: give them instead of the front")
    attained = attainment(df) if uncertainty == "band" else None
    return _drawn("front_figures.front", rows, ax, look, uncertainty, attainment=attained)


def _rows(df: pd.DataFrame, alike: list[str] | None = None) -> pd.DataFrame:
    """The front. Raises `UserError` if a column that is to be the same has several values, or nothing was measured."""
    from pareto.analysis.fronts.front import front as front_of
    from pareto.analysis.runs.points import BUT_CODEC
    from pareto.protocol.errors import UserError

    rows = front_of(df) if "status" in df else df
    for column in alike or BUT_CODEC:
        if rows[column].nunique() > 1:
            values = ", ".join(sorted(map(str, rows[column].unique())))
            raise UserError(
                f"one {column} in a figure, not {values}: filter first, df[df[{column!r}] == ...]"
            )
    if rows[["latency_s", "throughput_ips"]].isna().any(axis=1).all():
        raise UserError("nothing to draw: no valid trial")
    return rows


def _drawn(
    draw: str, front: pd.DataFrame, ax: Any, look: Mapping[str, str], uncertainty: str = "box", **of: Any
) -> Any:
    """The figure of that function, or the caller's axes, drawn on; it has the front as its `rows`, unless `of` has."""
    from pareto.analysis.figures import layout, style

    if wrong := look.keys() - {"width", "title"}:
        raise TypeError(f"no such argument of a figure: {', '.join(sorted(wrong))}")
    module, _, name = draw.partition(".")
    of = {"rows": front, "scheme": style.Scheme.of(front, uncertainty)} | of
    with style.styled(look.get("width", "page")):
        on = layout.Printed(look.get("width", "page")) if ax is None else ax
        told = getattr(import_module(f"{__name__}.{module}"), name)(on, **of)
        layout.finish(on, told, look.get("title"))
    return on


def example(slower: float = 1, codecs: Sequence[str] = ("none",)) -> pd.DataFrame:
    """A front of made-up figures, two backends and four points, to try a figure with.

    >>> sorted(example()["point"].unique())
    ['0', '1', '2', '3']

    At the last point nothing crosses: it is of no backend.
    """
    import pandas as pd

    from pareto.analysis.fronts.front import front as front_of
    from pareto.analysis.naming import USUAL

    levels = {"round": range(7), "backend": ("tcp", "rpc"), "cut": range(4), "codec": codecs}
    made = pd.MultiIndex.from_product(levels.values(), names=levels).to_frame(index=False)
    place, cut = made["codec"].map({codec: place for place, codec in enumerate(codecs, 1)}), made.pop("cut")
    factor = made["backend"].map({"tcp": 1.0, "rpc": 1.1}) / place * (1 + 0.01 * made["round"])
    took, sent = slower * factor * (0.02 + 0.01 * (cut - 2).abs()), 1000.0 * (3 - cut)
    made = made.assign(
        **{"run": "example", "model": "toy", "netem": "wifi", "batch_size": 1, **USUAL, "codec": made["codec"]},
        setup="", point=cut.astype("str"), point_name="layer" + cut.astype("str"), status="ok", reason="",
        bound_by="edge", latency_s=took, latency_bound_s=0.9 * took, edge_s=0.5 * took, serialize_s=0.1 * took,
        network_s=0.2 * took, server_s=0.2 * took, throughput_ips=1.5 / took, throughput_bound_ips=2 / took,
        payload_bytes=sent, wire_bytes=sent / place, agreement=1 - 0.01 * (place - 1), agreement_images=1000.0,
        output_error=0.02 * (place - 1),
    )  # fmt: skip
    return front_of(made)

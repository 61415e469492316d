"""Runs of the harness read back, from their folders alone: what `./pareto.sh report` writes, and a notebook works with.

`load` takes a run's folder, a folder of runs, a pattern such as `results/*`, or several of them. It gives a pandas
frame of one row a trial, in the columns of `results/README.md`; the example in this repository measured six points of
MobileNetV2, over two backends and three networks, in six rounds:

    >>> from pareto import analysis
    >>> trials = analysis.load("results/example")
    >>> trials.groupby(["netem", "backend"])["point"].nunique().unique()
    array([6])

From there on it is pandas. The functions of this package know which trials count (those whose status is `ok`), which
may be compared, and how sure the result is. `front` gives one row a point: medians over the rounds with their
intervals, and whether it is on the front, of `latency` and `throughput` or what else is asked for:

    >>> points = analysis.front(trials, ["latency", "payload"], where="latency_s < 500ms")
    >>> far = points[points["netem"] == "200ms-5mbit"]
    >>> far.loc[far["on_front"], "point"].unique().tolist()
    ['21']

At 200 ms nothing is faster than to keep all 21 units on the edge. `paired` sets the backends against each other within
each round, `hypervolumes` measures fronts as a whole, `requests` reads the latency of every single request (a quantile
that needs more of them is left empty), and `stages` what each host did:

    >>> pairs = analysis.paired(trials)
    >>> pairs.loc[pairs["point"] == "all", "rounds"].tolist()
    [6, 6, 6]
    >>> sizes = analysis.hypervolumes(trials).set_index(["netem", "backend"])["hypervolume"]
    >>> bool(sizes["lan-1gbit", "all"] >= sizes["lan-1gbit", "rpc"])
    True
    >>> bool(analysis.requests("results/example", trials)["latency_p99_s"].notna().any())
    False
    >>> analysis.stages("results/example")["host"].unique().tolist()
    ['edge', 'server']

Runs of other settings are never pooled: where a setting differs that changes what is measured, trials get a `setup`,
such as `edge_cpu=0.25`, which belongs to their condition like the model and the network do. `report` writes what the
command writes, and `figures` is the package of the figures. `pareto` itself gives the commands' conclusions:
`pareto.load`, `pareto.advise`, `pareto.compare`.

A folder that cannot be read raises `pareto.UserError`, a ValueError that says in one line what is wrong:

    >>> analysis.load("results/nowhere")
    Traceback (most recent call last):
    pareto.protocol.errors.UserError: results/nowhere: no such folder
"""

from __future__ import annotations

if __name__ == "analysis":
    raise ImportError("import it as pareto.analysis")

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pareto.analysis import figures as figures
    from pareto.analysis.comparing.paired import paired as paired
    from pareto.analysis.fronts.front import front as front
    from pareto.analysis.fronts.indicators import hypervolumes as hypervolumes
    from pareto.analysis.reporting import report as report
    from pareto.analysis.runs.load import load as load
    from pareto.analysis.runs.load import stages as stages
    from pareto.analysis.runs.requests import request_latencies

    requests = request_latencies

_WHERE = {
    "load": "pareto.analysis.runs.load:load",
    "stages": "pareto.analysis.runs.load:stages",
    "requests": "pareto.analysis.runs.requests:request_latencies",
    "front": "pareto.analysis.fronts.front:front",
    "hypervolumes": "pareto.analysis.fronts.indicators:hypervolumes",
    "paired": "pareto.analysis.comparing.paired:paired",
    "report": "pareto.analysis.reporting:report",
    "figures": "pareto.analysis.figures:",
}
__all__ = list(_WHERE)


def __getattr__(name: str) -> Any:
    """Import a function when it is first used: the package itself costs nothing to import."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, function = _WHERE[name].partition(":")
    found = globals()[name] = getattr(import_module(module), function) if function else import_module(module)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""Figures for notebooks and papers, from the frames of `analysis.load` (trials) and `analysis.front`.

Each function returns a matplotlib figure, or draws on axes of yours and returns these. The rows have to be of one
model, profile, batch size and depth, unless the function says otherwise. `width`: "page" (7 in) or "column" (3.4 in),
as printed. Every figure can be told apart in grey; nothing here writes files, which `./pareto.sh report` does.

>>> from pareto.analysis.figures import bound, example, front
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
'throughput\\n(% of its bound)'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pareto.analysis.figures.notebook import *  # noqa: F403 - for editors and type checkers

__all__ = [
    "accuracy", "attribution", "bound", "cuts", "energy", "example", "front", "fronts",  # noqa: F405
    "paired", "payload", "pipelining", "rate_quality", "tail", "utilization",  # noqa: F405
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """The function of that name. matplotlib is imported with the first of them, not with the package."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("pareto.analysis.figures.notebook"), name)

"""A link over time: round trip and rates as measured, over what was asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from analysis.figures.style import COLOURS, WIDTH_IN, styled

Column = Sequence[float | None]

_WAYS = (("rate_bps", "edge to server", 0, "o"), ("rate_back_bps", "server to edge", 1, "s"))


def link_figure(rows: Mapping[str, Column], title: str) -> Figure:
    """Two panels over `at_s`: `rtt_s` within `asked_rtt_least_s` and `asked_rtt_most_s`; payload rates each way beside
    `asked_rate_bps` and `asked_rate_back_bps`. Seconds and bit/s; None where nothing was measured or asked.
    """
    at = np.array(rows["at_s"], dtype=float)
    with styled():
        figure = Figure(figsize=(WIDTH_IN, 3.4), layout="constrained")
        above, below = figure.subplots(2, sharex=True)
        least, most = (1e3 * _values(rows[f"asked_rtt_{which}_s"]) for which in ("least", "most"))
        above.fill_between(at, least, most, color="0.85", linewidth=0)
        above.plot(at, (least + most) / 2, color="0.5", linewidth=1, label="asked")
        above.plot(at, 1e3 * _values(rows["rtt_s"]), "o", color=COLOURS[2], markersize=3, label="measured")
        above.set_ylabel("round trip (ms)")
        above.legend(loc="upper right", ncols=2)
        for column, label, colour, marker in _WAYS:
            asked, measured = (_values(rows[name]) / 1e6 for name in (f"asked_{column}", column))
            if np.isfinite(asked).any():
                below.plot(at, asked, color=COLOURS[colour], linewidth=1)
                below.plot(at, measured, marker, color=COLOURS[colour], markersize=3, label=label)
        if below.lines:
            below.legend(loc="upper right", ncols=2)
        else:
            below.text(0.5, 0.5, "no rate was asked", transform=below.transAxes, ha="center", color="0.4")
        below.set_ylabel("payload (Mbit/s)")
        below.set_xlabel("time (s)")
        for axes in (above, below):
            axes.set_ylim(0, 1.35 * max(axes.dataLim.y1, 1e-3))  # room for the legend
            axes.grid(visible=True)
        above.set_title(title, loc="left")
    return figure


def _values(column: Column) -> Any:
    return np.array([np.nan if value is None else value for value in column], dtype=float)

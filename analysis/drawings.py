"""Which figures some findings have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from analysis import costs
from analysis.figures.attribution_figure import attribution_drawing
from analysis.figures.best_map_figure import best_map_drawings
from analysis.figures.bound_figure import bound_drawing
from analysis.figures.cuts_figure import cuts_drawing
from analysis.figures.drawing import Drawing, conditions
from analysis.figures.energy_figure import energy_drawing
from analysis.figures.front_figure import front_drawing, fronts_drawing
from analysis.figures.link_asked_figure import link_asked_drawings
from analysis.figures.paired_figure import paired_drawing
from analysis.figures.payload_figure import payload_drawing
from analysis.figures.pipelining_figure import pipelining_drawing
from analysis.figures.utilization_figure import utilization_drawing
from analysis.findings import Findings
from analysis.fronts import energy
from analysis.points import CELL, CONDITION, cuts

FIGURE = ["model", "netem", "batch_size", "in_flight_asked", "setup"]
"""What one figure shows: all backends and codecs of it."""
_BUT_NETEM = [column for column in FIGURE if column != "netem"]
KINDS = (
    *("front", "fronts", "attribution", "utilization", "cuts", "energy", "bound", "paired", "payload"),
    *("pipelining", "best-map", "link-asked"),
)
"""What figures and tables in LaTeX show: how their files' names begin."""
MOST_CONDITIONS = 12
"""Of more conditions the figures of each are drawn only when asked for: they take seconds each."""


def drawings(found: Findings, *, each: bool) -> Iterator[Drawing]:
    """Every figure that the trials allow, of each condition (only if `each`) and over all of them.

    A condition with nothing but trials that are not `ok` has none.
    """
    about = found.runs[0].manifest if found.runs else {}
    testbed = testbeds(found)
    front = found.front.assign(objectives="+".join(found.objectives))
    if each:
        medians = costs.stage_medians(found.stages, found.trials)
        for key, rows in asked_for(front).groupby(FIGURE, dropna=False):
            if not rows[["latency_s", "throughput_ips"]].isna().any(axis=1).all():
                of_this = {
                    name: _of(frame, key)
                    for name, frame in (
                        ("trials", found.trials),
                        ("attainment", found.attainment),
                        ("paired", found.paired),
                        ("stages", medians),
                    )
                }
                yield from _of_condition(rows, of_this, figure_name(rows, front), testbed, about)
    for key, rows in asked_for(front).groupby(_BUT_NETEM, dropna=False):
        profiles = rows.dropna(subset=["latency_s", "throughput_ips"])["netem"].nunique()
        if rows["netem"].nunique() > 1 and profiles:
            attained = _of(found.attainment, key, _BUT_NETEM)
            name = tuple(part for part in figure_name(rows, front) if part != rows["netem"].iloc[0])
            yield fronts_drawing(rows, name, conditions(rows, testbed), attained)
    yield from best_map_drawings(found)
    if not found.simulated:  # nobody has measured those links
        yield from link_asked_drawings(
            found.links, {run.folder.resolve().name: run.manifest for run in found.runs}
        )


def asked_for(front: pd.DataFrame) -> pd.DataFrame:
    """The rows of conditions that `--where` leaves something of, and of those without a valid trial."""
    wanted = front["feasible"] | (front["rounds"] == 0)
    kept: pd.DataFrame = front[
        wanted.groupby([front[key] for key in CONDITION], dropna=False).transform("any")
    ]
    return kept


def tabled(found: Findings) -> Iterator[tuple[tuple[str, ...], pd.DataFrame, pd.DataFrame]]:
    """Of each condition that has a figure: its name, its rows of the front, and those of the pairs."""
    for key, rows in asked_for(found.front).groupby(CONDITION, dropna=False):
        if rows["rounds"].any():
            yield figure_name(rows, found.front), rows, _of(found.paired, key, CONDITION)


def testbeds(found: Findings) -> str:
    """Of all runs, each once."""
    told = (str(run.manifest.get("testbed") or "") for run in found.runs)
    return "; ".join(dict.fromkeys(name for name in told if name))


def _of_condition(
    rows: pd.DataFrame,
    frames: Mapping[str, pd.DataFrame],
    name: tuple[str, ...],
    testbed: str,
    about: Mapping[str, Any],
) -> Iterator[Drawing]:
    told, medians = conditions(rows, testbed), frames["stages"]
    yield front_drawing(rows, name, told, frames["attainment"])
    yield attribution_drawing(costs.stage_times(rows, medians), name, told)
    if medians.merge(rows.loc[rows["on_backend_front"], CELL], on=CELL)["utilization"].notna().any():
        yield utilization_drawing(rows, medians, name, told)
    if len(cuts(rows["point"].iloc[0])) == 2:
        yield cuts_drawing(rows, name, told)
    charged = rows[rows["on_energy_front"].groupby(rows["codec"]).transform("any")]
    if charged["energy_of"].nunique() == 1:
        yield energy_drawing(charged, name, told, energy.note(charged, about))
    for drawing in (
        bound_drawing(rows, name, told),
        paired_drawing(frames["paired"], frames["trials"], testbed, name),
        payload_drawing(rows, medians, about, name),
        pipelining_drawing(rows, testbed, name),
    ):
        if drawing is not None:
            yield drawing


def _of(frame: pd.DataFrame, key: tuple[Any, ...], columns: list[str] = FIGURE) -> pd.DataFrame:
    same = pd.Series(True, index=frame.index)
    for column, value in zip(columns, key, strict=True):
        same &= frame[column] == value
    return frame[same]


def figure_name(rows: pd.DataFrame, every: pd.DataFrame) -> tuple[str, ...]:
    """Model and profile; batch size, depth and setup where there are several."""
    first = rows.iloc[0]
    return (
        str(first["model"]),
        str(first["netem"]),
        *([f"b{first['batch_size']}"] if every["batch_size"].nunique() > 1 else []),
        *([f"d{first['in_flight_asked']}"] if every["in_flight_asked"].nunique() > 1 else []),
        *([str(first["setup"])] if first["setup"] else []),
        *([str(first["codec"])] if rows["codec"].nunique() < every["codec"].nunique() else []),
    )

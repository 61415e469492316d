"""Every figure that a report draws, of what its analysis found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from analysis import costs
from analysis.engines import without_engine
from analysis.figures.accuracy_figure import accuracy_drawing
from analysis.figures.answer_figure import answer_drawing
from analysis.figures.attribution_figure import attribution_drawing
from analysis.figures.best_map_figure import best_map_drawings
from analysis.figures.bound_figure import bound_drawing
from analysis.figures.cuts_figure import cuts_drawing
from analysis.figures.drawing import Drawing, conditions, origin, undrawn
from analysis.figures.energy_figure import energy_drawing
from analysis.figures.front_figure import front_drawing, fronts_drawing
from analysis.figures.link_figure import link_asked_drawings
from analysis.figures.paired_figure import paired_drawing
from analysis.figures.payload_figure import payload_drawing
from analysis.figures.pipelining_figure import pipelining_drawing
from analysis.figures.predicted_figure import predicted_drawing
from analysis.figures.rate_quality_figure import rate_quality_drawing
from analysis.figures.shown import part_of, worth_showing
from analysis.figures.tail_figure import tail_drawing
from analysis.figures.utilization_figure import utilization_drawing
from analysis.findings import FIGURE, Findings, figure_name
from analysis.fronts import energy
from analysis.fronts.front import over_codecs
from analysis.fronts.quality import GROUP
from analysis.points import competing, cuts

_BUT_NETEM = [column for column in FIGURE if column != "netem"]


def drawings(findings: Findings, *, each: bool, uncertainty: str = "none") -> Iterator[Drawing]:
    """Yield every figure that the trials allow, of each condition (only if `each`) and over all of them.

    A condition with nothing but trials that are not `ok` has none. uncertainty: what fronts show of it. Why another
    figure is missing goes into the findings (`undrawn`).
    """
    testbed = origin(run.manifest for run in findings.runs)
    front = findings.front.assign(objectives="+".join(findings.objectives))
    shown = worth_showing(front)
    if each:
        yield from _of_conditions(findings, front, shown, testbed, uncertainty)
        yield from _of_engines(findings, testbed)
    for key, rows in shown.groupby(_BUT_NETEM, dropna=False):
        if rows["netem"].nunique() > 1 and len(rows.dropna(subset=["latency_s", "throughput_ips"])):
            attained = part_of(findings.attainment, key, _BUT_NETEM)
            name = tuple(part for part in figure_name(rows, front) if part != rows["netem"].iloc[0])
            make = partial(fronts_drawing, rows, conditions(rows, testbed), attained, uncertainty)
            yield from (replace(fronts, name=name) for fronts in _tried(findings, make, *name))
    for _, rows in shown.groupby(GROUP, dropna=False):
        for drawing in _tried(findings, partial(rate_quality_drawing, rows, testbed)):
            several = [column for column in GROUP[1:] if front[column].nunique() > 1]
            yield replace(
                drawing, name=(str(rows["model"].iloc[0]), *(str(rows[c].iloc[0]) for c in several))
            )
    yield from _tried(findings, partial(best_map_drawings, findings))
    if not findings.simulated:  # nobody has measured those links
        manifests = {run.folder.resolve().name: run.manifest for run in findings.runs}
        yield from _tried(findings, partial(link_asked_drawings, findings.links, manifests))


def _tried(
    findings: Findings, make: Callable[..., Drawing | Iterable[Drawing] | None], *name: str
) -> list[Drawing]:
    """The figures that `make` makes. A fault of theirs is noted, and ends no report."""
    try:
        made = make()
        return [] if made is None else [made] if isinstance(made, Drawing) else [*made]
    except Exception as error:
        of = make.func if isinstance(make, partial) else make
        findings.undrawn.append(undrawn(" ".join((of.__name__.partition("_drawing")[0], *name)), error))
        return []


def _of_conditions(
    findings: Findings, front: pd.DataFrame, shown: pd.DataFrame, testbed: str, uncertainty: str
) -> Iterator[Drawing]:
    medians = costs.stage_medians(findings.stages, findings.trials)
    for key, rows in shown.groupby(FIGURE, dropna=False):
        if rows[["latency_s", "throughput_ips"]].notna().all(axis=1).any():
            name = figure_name(rows, front)
            attained = part_of(findings.attainment, key)
            every: list[Callable[[], Drawing | None]] = [
                partial(front_drawing, rows, conditions(rows, testbed), attained, uncertainty),
                *_of_condition(findings, key, rows, part_of(medians, key), testbed),
            ]
            for of in every:
                yield from (replace(drawing, name=name) for drawing in _tried(findings, of, *name))


def _of_engines(findings: Findings, testbed: str) -> Iterator[Drawing]:
    """Yield engines against each other: each is a setup, and has the figures of a condition by itself."""
    trials = competing(findings.trials)
    trials = trials.assign(own_setup=trials["setup"], setup=without_engine(trials))
    for key, pairs in findings.paired_engines.groupby(FIGURE, dropna=False):
        own = part_of(trials, key).drop(columns="setup").rename(columns={"own_setup": "setup"})
        for drawing in _tried(findings, partial(paired_drawing, pairs, own, testbed, "engine")):
            yield replace(drawing, name=figure_name(pairs, findings.paired_engines))


def _of_condition(
    findings: Findings, key: tuple[Any, ...], rows: pd.DataFrame, stages: pd.DataFrame, testbed: str
) -> Iterator[Callable[[], Drawing | None]]:
    """Yield what makes each figure of a condition."""
    manifest = findings.runs[0].manifest if findings.runs else {}
    text = conditions(rows, testbed)
    yield partial(attribution_drawing, costs.stage_times(rows, stages), text)
    yield partial(
        tail_drawing, rows, part_of(findings.trials, key), [run.folder for run in findings.runs], text
    )
    yield partial(utilization_drawing, rows, stages, text)
    if len(cuts(rows["point"].iloc[0])) == 2:
        yield partial(cuts_drawing, rows, text)
    charged = rows[rows["on_energy_front"].groupby(rows["codec"]).transform("any")]
    if charged["energy_of"].nunique() == 1:
        yield partial(energy_drawing, charged, text, energy.note(charged, manifest))
    yield partial(accuracy_drawing, rows, text, ", ".join(over_codecs(findings.objectives, findings.where)))
    yield partial(bound_drawing, rows, text)
    trials = competing(part_of(findings.trials, key))
    yield partial(paired_drawing, part_of(findings.paired, key), trials, testbed)
    yield partial(paired_drawing, part_of(findings.paired_codecs, key), trials, testbed, "codec")
    yield partial(payload_drawing, rows, stages, manifest)
    yield partial(pipelining_drawing, rows, testbed)
    if len(findings.prediction):
        yield partial(predicted_drawing, part_of(findings.prediction, key), text)
    yield partial(answer_drawing, part_of(findings.progress, key), text)

"""Every figure that a report draws, of what its analysis found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from pareto.analysis import costs
from pareto.analysis.engines import without_engine
from pareto.analysis.figures.accuracy_figure import accuracy_drawing
from pareto.analysis.figures.answer_figure import answer_drawing
from pareto.analysis.figures.attribution_figure import attribution_drawing
from pareto.analysis.figures.best_map_figure import best_map_drawings
from pareto.analysis.figures.bound_figure import bound_drawing
from pareto.analysis.figures.cuts_figure import cuts_drawing
from pareto.analysis.figures.drawing import Drawing, conditions, origin, undrawn
from pareto.analysis.figures.energy_figure import energy_drawing
from pareto.analysis.figures.front_figure import front_drawing, fronts_drawing
from pareto.analysis.figures.link_figure import link_asked_drawings
from pareto.analysis.figures.paired_figure import paired_drawing
from pareto.analysis.figures.payload_figure import payload_drawing
from pareto.analysis.figures.pipelining_figure import pipelining_drawing
from pareto.analysis.figures.predicted_figure import predicted_drawing
from pareto.analysis.figures.rate_quality_figure import rate_quality_drawing
from pareto.analysis.figures.shown import part_of, worth_showing
from pareto.analysis.figures.tail_figure import tail_drawing
from pareto.analysis.figures.utilization_figure import utilization_drawing
from pareto.analysis.findings import FIGURE, Findings, figure_name
from pareto.analysis.fronts import energy
from pareto.analysis.fronts.front import over_codecs
from pareto.analysis.fronts.quality import GROUP
from pareto.analysis.points import competing, cuts

_BUT_NETEM = [column for column in FIGURE if column != "netem"]
Named = tuple[tuple[str, ...], partial[Any]]
"""The name of a figure, empty where its drawing has one; and what makes its drawing, several, or None."""


def drawings(findings: Findings, *, each: bool, uncertainty: str = "none") -> Iterator[Drawing]:
    """Yield every figure that the trials allow, of each condition (only if `each`) and over all of them.

    A condition with nothing but trials that are not `ok` has none. uncertainty: what fronts show of it. Why another
    figure is missing goes into the findings (`undrawn`).
    """
    for name, make in _all(findings, each, uncertainty):
        try:
            made = make()
            several = [made] if isinstance(made, Drawing) else [*(made or ())]
        except Exception as error:  # a fault of one figure ends no report
            kind = make.func.__name__.partition("_drawing")[0]
            findings.undrawn.append(undrawn(" ".join((kind, *name)), error))
        else:
            yield from (replace(drawing, name=name or drawing.name) for drawing in several)


def _all(findings: Findings, each: bool, uncertainty: str) -> Iterator[Named]:
    testbed = origin(run.manifest for run in findings.runs)
    front = findings.front.assign(objectives="+".join(findings.objectives))
    shown = worth_showing(front)
    if each:
        medians = costs.stage_medians(findings.stages, findings.trials)
        for key, rows in shown.groupby(FIGURE, dropna=False):
            if rows[["latency_s", "throughput_ips"]].notna().all(axis=1).any():
                name, text = figure_name(rows, front), conditions(rows, testbed)
                yield name, partial(front_drawing, rows, text, part_of(findings.attainment, key), uncertainty)
                for make in _of_condition(findings, key, rows, part_of(medians, key), testbed):
                    yield name, make
        yield from _of_engines(findings, testbed)
    for key, rows in shown.groupby(_BUT_NETEM, dropna=False):
        if rows["netem"].nunique() > 1 and len(rows.dropna(subset=["latency_s", "throughput_ips"])):
            attained = part_of(findings.attainment, key, _BUT_NETEM)
            name = tuple(part for part in figure_name(rows, front) if part != rows["netem"].iloc[0])
            yield name, partial(fronts_drawing, rows, conditions(rows, testbed), attained, uncertainty)
    for _, rows in shown.groupby(GROUP, dropna=False):
        telling = [column for column in GROUP[1:] if front[column].nunique() > 1]
        name = (str(rows["model"].iloc[0]), *(str(rows[column].iloc[0]) for column in telling))
        yield name, partial(rate_quality_drawing, rows, testbed)
    yield (), partial(best_map_drawings, findings)
    if not findings.simulated:  # nobody has measured those links
        manifests = {run.folder.resolve().name: run.manifest for run in findings.runs}
        yield (), partial(link_asked_drawings, findings.links, manifests)


def _of_engines(findings: Findings, testbed: str) -> Iterator[Named]:
    """Yield engines against each other: each is a setup, and has the figures of a condition by itself."""
    trials = competing(findings.trials)
    trials = trials.assign(own_setup=trials["setup"], setup=without_engine(trials))
    for key, pairs in findings.paired_engines.groupby(FIGURE, dropna=False):
        own = part_of(trials, key).drop(columns="setup").rename(columns={"own_setup": "setup"})
        name = figure_name(pairs, findings.paired_engines)
        yield name, partial(paired_drawing, pairs, own, testbed, "engine")


def _of_condition(
    findings: Findings, key: tuple[Any, ...], rows: pd.DataFrame, stages: pd.DataFrame, testbed: str
) -> Iterator[partial[Any]]:
    """Yield what makes each figure of a condition but its front."""
    manifest = findings.runs[0].manifest if findings.runs else {}
    text, every = conditions(rows, testbed), part_of(findings.trials, key)
    trials = competing(every)
    yield partial(attribution_drawing, costs.stage_times(rows, stages), text)
    yield partial(tail_drawing, rows, every, [run.folder for run in findings.runs], text)
    yield partial(utilization_drawing, rows, stages, text)
    if len(cuts(rows["point"].iloc[0])) == 2:
        yield partial(cuts_drawing, rows, text)
    charged = rows[rows["on_energy_front"].groupby(rows["codec"]).transform("any")]
    if charged["energy_of"].nunique() == 1:
        yield partial(energy_drawing, charged, text, energy.note(charged, manifest))
    yield partial(accuracy_drawing, rows, text, ", ".join(over_codecs(findings.objectives, findings.where)))
    yield partial(bound_drawing, rows, text)
    yield partial(paired_drawing, part_of(findings.paired, key), trials, testbed)
    yield partial(paired_drawing, part_of(findings.paired_codecs, key), trials, testbed, "codec")
    yield partial(payload_drawing, rows, stages, manifest)
    yield partial(pipelining_drawing, rows, testbed)
    if len(findings.prediction):
        yield partial(predicted_drawing, part_of(findings.prediction, key), text)
    yield partial(answer_drawing, part_of(findings.progress, key), text)

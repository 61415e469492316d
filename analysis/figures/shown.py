"""The kinds of figures, and which a report draws of what its findings are; matplotlib is imported with the drawing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pandas as pd

from pareto.analysis.figures.drawing import Drawing, Told, testbeds
from pareto.analysis.findings import Findings, figure_name
from pareto.analysis.naming import USUAL
from pareto.analysis.runs.points import BUT_CODEC, CONDITION
from pareto.analysis.runs.standing import competing
from pareto.basics.escaping import short

KINDS = (
    *("front", "fronts", "attribution", "tail", "best-map", "payload"),
    *("load", "paired", "paired-codecs", "paired-engines", "accuracy", "energy", "utilization", "link-asked"),
)
"""The beginnings of the names of figures' and LaTeX tables' files."""
ASKED = KINDS[7:]
"""The kinds that only `--figures all` draws."""
GONE = ("answer", "bound", "cuts", "pipelining", "predicted", "rate-quality")
"""Kinds that earlier versions drew: a new report takes them away."""
MOST_CONDITIONS = 12
"""With more conditions than this the figures of each are drawn only on request: they take seconds each."""


def worth_showing(front: pd.DataFrame) -> pd.DataFrame:
    """The rows of the conditions with a feasible point, and of those without a valid trial."""
    wanted = front["feasible"] | (front["rounds"] == 0)
    by_condition = wanted.groupby([front[key] for key in CONDITION], dropna=False)
    kept: pd.DataFrame = front[by_condition.transform("any")]
    return kept


def latex_rows(findings: Findings) -> Iterator[tuple[tuple[str, ...], pd.DataFrame, pd.DataFrame]]:
    """Yield each condition that has a figure: its name, its rows of the front, and its rows of the pairs."""
    for key, rows in worth_showing(findings.front).groupby(CONDITION, dropna=False):
        if rows["rounds"].any():
            yield figure_name(rows, findings.front), rows, part_of(findings.paired, key, CONDITION)


def part_of(frame: pd.DataFrame, key: tuple[Any, ...], columns: list[str] = BUT_CODEC) -> pd.DataFrame:
    """The rows of a frame that belong to one figure. key: the values of these columns."""
    return frame[frame[columns].eq(pd.Series(key, columns)).all(axis=1)]


def drawings(
    findings: Findings, *, each: bool, every: bool = True, uncertainty: str = "box"
) -> Iterator[Drawing]:
    """Yield every figure that the trials may allow, of each condition with a valid trial (only if `each`) and over all
    of them. every: also the kinds of `ASKED`. uncertainty: what fronts show of it."""
    from pareto.analysis.figures.layout import printed

    try:
        for kind, name, draw, of in _all(findings, each, uncertainty) if len(findings.front) else ():
            if every or kind not in ASKED:
                yield Drawing(kind, partial(printed, partial(draw, **of)), name)
    except Exception as error:  # what is wrong with figures ends no report
        findings.undrawn.append(f"some figures are missing: {type(error).__name__}: {short(str(error))}")


def _all(
    findings: Findings, each: bool, uncertainty: str
) -> Iterator[tuple[str, tuple[str, ...], Callable[..., Told], dict[str, Any]]]:
    """Yield kind, name, and the function that draws it with its arguments."""
    from pareto.analysis import costs
    from pareto.analysis.figures import front_figures as fronts
    from pareto.analysis.figures import load_figure, map_figure, point_figures, reading_figures
    from pareto.analysis.figures.style import Scheme
    from pareto.analysis.fronts import energy

    front = findings.front.assign(objectives="+".join(findings.objectives))
    shown, testbed = worth_showing(front), testbeds(run.manifest for run in findings.runs)
    same = {"scheme": Scheme.of(front, uncertainty, testbed)}
    medians = costs.stage_medians(findings.stages, findings.trials) if each else pd.DataFrame()
    runs, manifest = [run.folder for run in findings.runs], next((run.manifest for run in findings.runs), {})
    for key, rows in shown.groupby(BUT_CODEC, dropna=False) if each else ():
        if not rows[["latency_s", "throughput_ips"]].notna().all(axis=1).any():
            continue
        name, trials, of = figure_name(rows, front), part_of(findings.trials, key), {"rows": rows, **same}
        stages, pairs = {"stages": part_of(medians, key)}, {"rows": competing(trials), **same}
        yield "front", name, fronts.front, {**of, "attainment": part_of(findings.attainment, key)}
        yield "attribution", name, point_figures.attribution, of | stages
        yield "tail", name, reading_figures.tail, {**of, "trials": trials, "runs": runs}
        yield "payload", name, point_figures.payload, {**of, **stages, "manifest": manifest}
        yield "paired", name, point_figures.paired, {**pairs, "pairs": part_of(findings.paired, key)}
        codecs = {"pairs": part_of(findings.paired_codecs, key), "what": "codec"}
        yield "paired-codecs", name, point_figures.paired, pairs | codecs
        yield "accuracy", name, fronts.third, {**of, "kind": "accuracy"}
        yield "utilization", name, point_figures.utilization, of | stages
        charged = rows[rows["on_energy_front"].groupby(rows["codec"]).transform("any")]
        if charged["energy_of"].nunique() == 1:
            of |= {"rows": charged, "kind": "energy", "note": energy.note(charged, manifest)}
            yield "energy", name, fronts.third, of
    # Each engine has the figures of a condition by itself; these set them against each other.
    trials, over = competing(findings.trials), [name for name in BUT_CODEC if name != "engine"]
    for key, pairs in findings.paired_engines.groupby(over, dropna=False) if each else ():
        of = {"pairs": pairs, "rows": part_of(trials, key, over), "what": "engine", **same}
        yield "paired-engines", figure_name(pairs, findings.paired_engines), point_figures.paired, of
    by = [column for column in BUT_CODEC if column != "load"]
    several = each and front["load"].ne(USUAL["load"]).any()
    for key, rows in shown.groupby(by, dropna=False) if several else ():
        of = {"rows": rows, "trials": part_of(findings.trials, key, by), **same}
        yield "load", figure_name(rows, front), load_figure.under_load, of
    by = [column for column in BUT_CODEC if column != "netem"]
    for key, rows in shown.groupby(by, dropna=False):
        if rows["netem"].nunique() > 1:
            name = tuple(part for part in figure_name(rows, front) if part != rows["netem"].iloc[0])
            of = {"rows": rows, "attainment": part_of(findings.attainment, key, by), **same}
            yield "fronts", name, fronts.front, of
    for name, rows in map_figure.workloads(findings):
        yield "best-map", name, map_figure.best_map, {"findings": findings, "workload": rows}
    if not findings.simulated:  # nobody has measured those links
        manifests = {run.folder.resolve().name: run.manifest for run in findings.runs}
        for name, probes in reading_figures.parts(findings.links, manifests):
            yield "link-asked", name, reading_figures.link, {"probes": probes, "testbed": testbed}

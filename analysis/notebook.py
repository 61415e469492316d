"""The commands on runs, for a notebook: from what `analysis.load` takes to an object that shows itself."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence

from rich.console import Console, RenderableType
from rich.text import Text

from pareto.analysis import findings
from pareto.analysis.advice import advise as advising
from pareto.analysis.advice.advise import Advice
from pareto.analysis.comparing.between_runs import Comparison
from pareto.analysis.comparing.between_runs import compare as compare
from pareto.analysis.figures.shown import worth_showing
from pareto.analysis.findings import Findings, Options
from pareto.analysis.fronts.objectives import DEFAULT
from pareto.analysis.prediction.network import Network
from pareto.analysis.runs.load import Runs, joined
from pareto.analysis.runs.points import CONDITION
from pareto.analysis.tables.advice import advice_table
from pareto.analysis.tables.compare import compare_table
from pareto.analysis.tables.front import codecs_tables
from pareto.analysis.tables.overview import of_each
from pareto.basics.escaping import terminal

WIDTH = 100
"""Characters of a line."""
MOST_TABLES = 12
"""With more conditions than this there is no table of each."""
_FORM = '<pre style="line-height: normal; overflow-x: auto; white-space: pre">{code}</pre>'


def html(*parts: RenderableType) -> str:
    """The HTML of what the terminal shows of these, below each other; text is escaped."""
    file = io.StringIO()
    console = Console(record=True, file=file, width=WIDTH, emoji=False, markup=False, highlight=False)
    for part in parts:
        console.print(part)
    return terminal(console.export_html(inline_styles=True, code_format=_FORM))


def of_findings(findings: Findings) -> str:
    """The HTML of the answers, the fronts, backends, codecs and engines apart, and what to be careful with."""
    shown = worth_showing(findings.front)
    parts: list[RenderableType] = [Text(line, style="bold") for line in findings.answers]
    if len(shown[CONDITION].drop_duplicates()) <= MOST_TABLES:
        asked = findings.objectives, findings.where
        parts += [*of_each(shown if len(shown) else findings.front, *asked), *codecs_tables(shown, *asked)]
    lines = (*findings.verdicts, *findings.codecs, *findings.engines, *findings.notes)
    parts += [Text(line) for line in (*lines, *(f"attention: {line.head}" for line in findings.doubts))]
    return html(*parts)


# Here, as tables are made of these classes and not the other way round.
Findings._repr_html_ = of_findings  # type: ignore[attr-defined]
Advice._repr_html_ = lambda advice: html(advice_table(advice))  # type: ignore[attr-defined]
Comparison._repr_html_ = lambda comparison: html(compare_table(comparison))  # type: ignore[attr-defined]


def find(runs: Runs, objectives: Sequence[str] = DEFAULT, where: str = "") -> Findings:
    """The findings of `report` in some runs: frames and sentences. Nothing is written.

    A notebook shows the answers, the fronts and what to be careful with. Raises `UserError`.
    """
    return findings.find(runs, Options(tuple(objectives), where, figures="none"))


def advise(
    runs: Runs,
    delay_s: float,
    rate_bps: float,
    delay_back_s: float = 0.0,
    rate_back_bps: float = math.inf,
    *,
    objective: str = "latency",
    where: str = "",
    model: str = "",
) -> Advice:
    """The best point in a network of this one-way delay and rate from edge to server, and back, by some runs.

    objective: `latency` or `throughput`; where: a constraint; model: which one, if the runs have several
    (`analysis.advice.advise.advise`). Text of it is the advice in a sentence. Raises `UserError`.
    """
    known = joined(runs)
    return advising.advise(
        known.trials,
        known.stages,
        [run.manifest for run in known.runs],
        Network(delay_s, rate_bps, delay_back_s, rate_back_bps),
        objective=objective,
        where=where,
        model=model,
        struck_off=known.struck,
    )

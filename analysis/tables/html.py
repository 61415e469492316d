"""Findings, advice and comparisons as a notebook shows them: the terminal's tables, with the answer first."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from pareto.analysis.figures.shown import worth_showing
from pareto.analysis.points import CONDITION
from pareto.analysis.tables.front import codecs_tables
from pareto.analysis.tables.overview import of_each
from pareto.basics.escaping import terminal

if TYPE_CHECKING:
    from pareto.analysis.findings import Findings

WIDTH = 100
"""Characters of a line."""
MOST_TABLES = 12
"""With more conditions than this there is no table of each."""
_FORM = '<pre style="line-height: normal; overflow-x: auto; white-space: pre">{code}</pre>'


def html(*parts: RenderableType) -> str:
    """The HTML of what the terminal shows of these, below each other; text is escaped."""
    console = Console(
        record=True,
        file=io.StringIO(),
        width=WIDTH,
        emoji=False,
        markup=False,
        highlight=False,
        soft_wrap=False,
    )
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

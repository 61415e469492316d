"""`report.md`: all that a report says and every table of it, as text that a browser, an editor and a diff can read."""

from __future__ import annotations

from collections.abc import Sequence

from pareto.analysis.figures.shown import worth_showing
from pareto.analysis.findings import Findings
from pareto.analysis.runs.points import CONDITION
from pareto.analysis.tables.load import load_tables
from pareto.analysis.tables.report import MOST_ROWS, codecs_tables, overhead_tables, overview, testbeds_table
from pareto.analysis.tables.table import Table
from pareto.basics.escaping import markdown

MOST_TABLES = 12
"""With more conditions than this there is no table of each: nobody reads so many."""


def written(findings: Findings) -> str:
    """The report: the answers, the table of the points, what makes figures unsure, comparisons, other tables."""
    asked, shown = (findings.objectives, findings.where), worth_showing(findings.front)
    names = ", ".join(run.folder.resolve().name for run in findings.runs)
    first = [overview(shown, *asked, simulated=findings.simulated)] if len(shown) else []
    first += load_tables(findings.loads, findings.rates, len(findings.front))
    beds = testbeds_table(findings.runs, findings.trials, findings.testbeds)
    others: list[Table] = []
    if 0 < len(shown[CONDITION].drop_duplicates()) <= MOST_TABLES:
        # The first table has every point, but for what it left out.
        if len(shown) > MOST_ROWS or not shown["rounds"].all():
            each = shown.groupby(CONDITION, dropna=False)
            others += [overview(rows, *asked, most=len(rows)) for _, rows in each]
        others += [*codecs_tables(shown, *asked), *overhead_tables(findings.overhead)]
    sections: list[tuple[str, Sequence[str | Table]]] = [
        ("", findings.answers or ["No answer: too little was measured to say where to cut."]),
        ("", first),
        ("Testbeds", [beds] if beds else []),
        ("Take care", findings.warnings),
        ("Backends compared", findings.verdicts),
        ("Codecs: what they win and cost", findings.codecs),
        ("Engines: what they win, and how long they take to start", findings.engines),
        ("Notes", findings.notes),
        ("Each condition", others),
    ]
    parts = [f"# {markdown(names)}\n"]
    for head, content in sections:
        parts += [f"## {head}\n"] if head and content else []
        lines = "".join(f"- {markdown(each)}\n" for each in content if isinstance(each, str))
        parts += [*filter(None, [lines]), *(each.markdown() for each in content if isinstance(each, Table))]
    return "\n".join(parts)

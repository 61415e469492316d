"""`report.md`: all that a report says and every table of it, as text that a browser, an editor and a diff can read."""

from __future__ import annotations

from collections.abc import Iterator

from pareto.analysis.figures.shown import worth_showing
from pareto.analysis.findings import Findings
from pareto.analysis.runs.points import CONDITION
from pareto.analysis.tables.columns import Framed
from pareto.analysis.tables.front import codecs_tables, overhead_tables
from pareto.analysis.tables.overview import MOST_ROWS, of_each, overview
from pareto.analysis.tables.testbeds import testbeds_table
from pareto.basics.escaping import markdown

MOST_TABLES = 12
"""With more conditions than this there is no table of each: nobody reads so many."""


def written(findings: Findings) -> str:
    """The report: the answers, the table of the points, what makes figures unsure, comparisons, other tables."""
    return "\n".join(_parts(findings))


def _parts(findings: Findings) -> Iterator[str]:
    yield f"# {markdown(', '.join(run.folder.resolve().name for run in findings.runs))}\n"
    yield from _list(findings.answers or ["No answer: too little was measured to say where to cut."])
    asked = findings.objectives, findings.where
    shown = worth_showing(findings.front)
    if len(shown):
        yield overview(shown, *asked, simulated=findings.simulated).markdown()
    beds = testbeds_table(findings.runs, findings.trials, findings.testbeds)
    if beds is not None:
        yield "## Testbeds\n"
        yield beds.markdown()
    for title, lines in (
        ("Take care", findings.warnings),
        ("Backends compared", findings.verdicts),
        ("Codecs: what they win and cost", findings.codecs),
        ("Engines: what they win, and how long they take to start", findings.engines),
        ("Notes", findings.notes),
    ):
        if lines:
            yield f"## {title}\n"
            yield from _list(lines)
    if 0 < len(shown[CONDITION].drop_duplicates()) <= MOST_TABLES:
        # The table above has every point, but for what it left out.
        tables = of_each(shown, *asked) if len(shown) > MOST_ROWS or not shown["rounds"].all() else []
        tables += [*codecs_tables(shown, *asked), *overhead_tables(findings.overhead)]
        if tables:
            yield "## Each condition\n"
        for table in tables:
            yield table.markdown() if isinstance(table, Framed) else f"{markdown(str(table))}\n"


def _list(lines: list[str]) -> Iterator[str]:
    yield "".join(f"- {markdown(line)}\n" for line in lines)

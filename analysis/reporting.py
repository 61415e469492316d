"""A report: tables, figures and the page of some run folders, from nothing but the folders. It can be made again."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from pareto.analysis import markdown
from pareto.analysis.figures.drawing import origin, save_all, stem, told_apart
from pareto.analysis.figures.look import drawn_as
from pareto.analysis.figures.shown import GONE, KINDS, MOST_CONDITIONS, drawings, latex_rows, worth_showing
from pareto.analysis.findings import Findings, Options, find
from pareto.analysis.fronts.front import KEPT
from pareto.analysis.naming import digest
from pareto.analysis.page.document import html
from pareto.analysis.runs.load import Runs, folders
from pareto.analysis.runs.points import CONDITION
from pareto.analysis.tables import latex
from pareto.basics import files
from pareto.protocol.errors import UserError

TABLES = {
    "front.csv": "front",
    "answers.csv": "answered",
    "hypervolume.csv": "hypervolumes",
    "attainment.csv": "attainment",
    "overhead.csv": "overhead",
    "paired.csv": "paired",
    "paired-codecs.csv": "paired_codecs",
    "paired-engines.csv": "paired_engines",
    "drift.csv": "drifts",
    "progress.csv": "progress",
    "prediction.csv": "prediction",
    "delta-rate.csv": "delta_rates",
    "testbeds.csv": "testbeds",
    "tails.csv": "tails",
    "loads.csv": "loads",
    "rates.csv": "rates",
}
"""Files, and which of the findings each holds."""
PAGE = "report.html"
TEXT = "report.md"
_OURS = re.compile(
    "|".join(map(re.escape, (*TABLES, PAGE, TEXT)))
    + rf"|figures/(?:{'|'.join((*KINDS, *GONE))})-[A-Za-z0-9.+-]+\.(?:pdf|png|svg|csv|txt|tex)"
)
"""Matches the name of everything that a report writes beneath its folder, except the list of it, `files.MADE`."""


def report(
    runs: Runs,
    out: Path | None = None,
    options: Options | None = None,
    before_figures: Callable[[Findings], None] | None = None,
    step: Callable[[str], None] = lambda words: None,
) -> Findings:
    """Analyse one run or several joined, and write a report into `out` (by default a single run's folder).

    First `TABLES` that hold something, `report.html` and `report.md`; then `figures/`: LaTeX tables, and each figure as
    PDF and PNG with its data and caption. The same runs give the same bytes. Whoever interrupts the drawing keeps all
    the rest, and the next report knows what to remove. before_figures: called when only figures are missing. step: gets
    what is done next. Raises UserError, OSError.
    """
    meant, options = folders(runs), options or Options()
    if out is None and len(meant) > 1:
        raise UserError(f"{len(meant)} runs are joined: say where their report goes")
    out = out or (meant[0].resolve() if meant[0].is_symlink() else meant[0])
    _refuse_links(out)
    findings = find(meant, options, step)
    step("writing tables and the page")
    conditions = len(worth_showing(findings.front)[CONDITION].drop_duplicates())
    each = options.figures == "all" or (options.figures == "auto" and conditions <= MOST_CONDITIONS)
    if options.figures != "none" and not each:
        findings.notes.append(
            f"{conditions} conditions: the figures of each are left out; --figures all draws them, --where fewer"
        )
    tex = _latex(findings, options.widths, options.look.columns) if each else {}
    tables = {file: getattr(findings, frame) for file, frame in TABLES.items()}
    tables = {file: table for file, table in tables.items() if file == "front.csv" or not table.empty}
    tables["front.csv"] = _without_empty(tables["front.csv"])
    # An earlier report may have answered another question. In somebody else's folder the list may name anything.
    files.claim(out, *tables, PAGE, TEXT, *tex, instead_of=filter(is_ours, files.made(out)))
    findings.files += [files.write_table(out / file, table) for file, table in tables.items()]
    findings.files.append(files.write(out / PAGE, html(findings)))
    findings.files.append(files.write(out / TEXT, markdown.written(findings)))
    findings.files += [files.write(out / name, text, under=out) for name, text in tex.items()]
    if before_figures is not None:
        before_figures(findings)
    if options.figures != "none":
        every, folder, widths = options.figures == "all", out / "figures", options.widths
        made = [*drawings(findings, each=each, every=every, uncertainty=options.uncertainty)]
        waiting = told_apart(made)
        with drawn_as(options.look):
            expected = [path for drawing in waiting for path in drawing.paths(folder, widths)]
            files.claim(out, *(str(path.relative_to(out)) for path in expected))
            findings.files += save_all(waiting, folder, widths, findings.undrawn.append, step)
    return findings


def _without_empty(front: pd.DataFrame) -> pd.DataFrame:
    """The front without the columns in which no row has anything, but for those that are always there."""
    other = front.columns.difference(KEPT, sort=False)
    held = (front[other].notna() & front[other].ne("")).any()
    return front.drop(columns=held.index[~held]) if len(front) else front


def _latex(findings: Findings, widths: Sequence[str], columns: Sequence[str]) -> dict[str, str]:
    """The LaTeX tables of each condition, at each width, by their files. columns: as of `front_latex`."""
    tables: dict[str, str] = {}
    made = origin(findings.manifests)
    for name, rows, pairs in latex_rows(findings):
        for width in widths:
            front = latex.front_latex(rows, made, width=width, chosen=columns)
            for kind, table in (("front", front), ("paired", latex.paired_latex(pairs, made, width=width))):
                file = f"figures/{stem(kind, name, width)}.tex"
                if file in tables:
                    file = f"figures/{stem(kind, (*name, digest(*name)), width)}.tex"
                tables |= {file: table} if table else {}
    return tables


def is_ours(name: str) -> bool:
    """Whether a report may write, and so remove, a file of that name beneath its folder."""
    return _OURS.fullmatch(name) is not None


def _refuse_links(out: Path) -> None:
    """Raise `files.StoreError` before anything is written: for a link, and for a table that no report wrote."""
    for where, prefix in ((out, ""), (out / "figures", "figures/")):
        files.refuse_other(where, "a folder", ": remove it, or write elsewhere (--out)")
        for name in files.listing(where):
            if name == files.MADE or is_ours(prefix + name):
                files.refuse_link(where / name)
    files.refuse_foreign(out, (*TABLES, PAGE, TEXT))

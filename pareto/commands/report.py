"""`report`: the analysis of runs on the screen and in their folders."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pareto import RESULTS
from pareto.analysis.fronts.objectives import objectives_of
from pareto.basics.escaping import say
from pareto.basics.files import StoreError, written, written_into
from pareto.commands import help as cli_help
from pareto.commands.help import CONCLUDE, JSON, OBJECTIVES, WHERE, argument, command, given, option, refuse
from pareto.commands.runs import last

if TYPE_CHECKING:
    from rich.console import Console

    from pareto.analysis.findings import Findings, Options

MOST_LINES = 12
"""The most answers, and warnings, in a terminal: nobody reads more there."""


@command(CONCLUDE, "report results/example", "report results/example --where 'latency_s < 200ms'")
def report(
    context: typer.Context,
    runs: list[Path] | None = argument("RUN", "Folders of runs.  [the last run]", None, cli_help.runs),
    objectives: str = OBJECTIVES,
    where: str = WHERE,
    width: str = option("page", "Width of the figures: page, column (of a two-column paper), or both."),
    figures: cli_help.Which = option("auto", cli_help.WHICH, kind="auto|all|none"),
    uncertainty: str = option(
        "box",
        "What fronts show beside how sure a mark is: the points' 95 % intervals, or a band.",
        kind="none|box|band",
    ),
    formats: str = option("pdf,png", "Of figures, with commas: pdf, png, svg.", "--format", kind="NAME,..."),
    title: str = option("auto", "Whether figures have a title.", kind="auto|none"),
    font: str = option("", "An installed font for the figures."),
    style: Path | None = option(None, "A file of matplotlib's settings for the figures.", kind="FILE"),
    columns: str = option(
        "",
        "Columns of the LaTeX tables of fronts, with commas, in their order: backend, point, latency, "
        "latency-interval, latency-eff, images, images-interval, images-eff, energy, sure, bound-by.  [what has room]",
        kind="NAME,...",
    ),
    profile: list[Path] | None = option(
        None,
        "A folder of a model profile: its predictions are compared with what was measured.",
        kind="FOLDER",
    ),
    export: list[str] | None = option(
        None, "Write all tables to a file, too: .sqlite, .xlsx; trials alone: .parquet.", kind="FILE"
    ),
    methods: bool = option(False, "Print only how the runs were made, in words for a paper.", "--methods"),
    out: Path | None = cli_help.out("Where it is written.  [the run's folder; joined-... for several]", None),
    json: bool = JSON,
) -> None:
    """Make the tables, figures and report.html of runs from their folders alone; several runs are joined."""
    from pareto.analysis.figures.look import Look
    from pareto.analysis.findings import Options
    from pareto.basics.console import console

    if methods:
        refuse(given(context) - {"--methods"}, "not with --methods, which prints words and nothing else")
    look = Look.checked(formats, title, font, style, columns)
    if look.columns:
        from pareto.analysis.tables.latex import check_columns

        check_columns(look.columns)
    if look.font or look.style:
        from pareto.analysis.figures.style import check_look  # imports matplotlib, which takes a second

        check_look(look)
    options = Options(
        objectives_of(objectives), where, width, figures, tuple(profile or ()), uncertainty, look
    )
    screen = console(aside=json)
    folders = run_folders(screen, runs, RESULTS) if runs else last(screen)
    if methods:
        print_methods(screen, folders)
        return
    from pareto.analysis.exporting import targets

    show(screen, folders, options, out, exports=targets(export or []), json=json)


def run_folders(console: Console, given: Sequence[Path], results: Path) -> list[Path]:
    """The folders of the runs among some paths or names, each once. Raises StoreError if there is none. Among several,
    a path that is no run (`results/*` may have such) is passed over, and that is printed."""
    runs, others = [], []
    for path in given:
        folder = next((at for at in (path, results / path) if (at / "trials.csv").is_file()), None)
        if folder is not None:
            runs.append(folder)
        elif len(given) == 1 or not path.exists():
            raise StoreError(f"there is no run {path}: give its folder, such as {results.name}/<run>")
        else:
            others.append(str(path))
    if not runs:
        raise StoreError("none of these is a run's folder: give some, such as results/<run>")
    if others:
        console.print(f"passed over, as no run: {', '.join(others)}")
    return list({folder.resolve(): folder for folder in runs}.values())


def show(
    console: Console,
    folders: Sequence[Path],
    options: Options,
    out: Path | None = None,
    later: str = "",
    exports: Sequence[Path] = (),
    *,
    json: bool = False,
) -> None:
    """Analyse runs, write the report and show it: the answers before figures are drawn, the folder at the end.

    later: the command that draws the figures when this is interrupted; without it, the same one. exports: where else
    the tables go (`analysis.exporting`). json: one object on standard output instead.
    """
    from pareto.basics.console import Doing, files

    with Doing(console, logs=False) as doing:  # pandas takes a second to import
        doing.show("reading the runs")
        from pareto.analysis import as_json
        from pareto.analysis.exporting import export
        from pareto.analysis.reporting import report

    target = out or (folders[0] if len(folders) == 1 else None)
    if target and target.is_symlink():  # the user named it so; a link within a run's folder is another matter
        target = target.resolve()
    target = target or _joined(folders)
    found = False

    def answers(findings: Findings) -> None:
        nonlocal found
        if not json:
            _show(console, findings)
        found = True

    try:
        with written_into(target), Doing(console, logs=False) as doing:
            made = report(folders, target, options, answers, doing.show)
    except KeyboardInterrupt:
        if found:
            again = later or "the same command"
            console.print(f"all tables are in {target}; draw its figures by: {again}", soft_wrap=True)
        raise
    for line in made.undrawn:
        console.print(f"attention: {line}; report it", soft_wrap=True)
    if not json:
        files(console, made.files)
        console.print(str(target), soft_wrap=True)
    for each in exports:
        with written(each, remedy=" (choose another --export)"):
            console.print(export(made, each), soft_wrap=True)
    if json:
        say(as_json.text(as_json.of_report(made, target)))


def print_methods(console: Console, folders: Sequence[Path]) -> None:
    """How some runs were made, as paragraphs for a paper, and their commands."""
    from pareto.analysis import methods as words
    from pareto.analysis.runs.load import joined

    runs = joined(folders)
    parts = (words.methods(runs), "\n".join(words.commands(runs)))
    console.print("\n\n".join(filter(None, parts)), soft_wrap=True, highlight=False)


def _show(console: Console, findings: Findings) -> None:
    """The answers, then one table, then what makes figures unsure in short: the rest is in the report's files."""
    from pareto.analysis.figures.shown import worth_showing
    from pareto.analysis.reporting import TEXT
    from pareto.analysis.statistics.doubt import cures
    from pareto.analysis.tables.load import load_tables
    from pareto.analysis.tables.report import overview
    from pareto.basics.console import ANSWER

    none = "no answer: too little was measured to say where to cut"
    answers = findings.answers or [*findings.notes[:1], none]
    for line in answers[:MOST_LINES]:
        console.print(line, style=ANSWER)
    if len(answers) > MOST_LINES:
        console.print(f"and {len(answers) - MOST_LINES} more answers: {TEXT} has them")
    shown = worth_showing(findings.front)
    if shown["rounds"].any():
        console.print()
        console.print(overview(shown, findings.objectives, findings.where, simulated=findings.simulated))
    for table in load_tables(findings.loads, findings.rates):
        console.print()
        console.print(table)
    for line in findings.remarks:
        console.print(line)
    heads = [doubt.head for doubt in findings.doubts[:MOST_LINES]]
    for line in filter(None, [findings.standing, *heads]):
        console.print(f"attention: {line}")
    if findings.doubts:
        console.print(f"{cures(findings.doubts) or 'more'} ({TEXT} says where)")


def _joined(folders: Sequence[Path]) -> Path:
    """The folder beside the runs for their joined report: the same runs have the same."""
    names = sorted(folder.resolve().name for folder in folders)
    digest = hashlib.sha256("/".join(names).encode()).hexdigest()[:8]
    return folders[0].parent / f"joined-{len(names)}-runs-{digest}"

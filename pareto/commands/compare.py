"""`compare`: a run against another, or against published results."""

from __future__ import annotations

from pathlib import Path

from pareto import RESULTS
from pareto.basics.escaping import say
from pareto.commands import help as cli_help
from pareto.commands.help import CONCLUDE, DEFAULT_OBJECTIVES, JSON, OBJECTIVES, WHERE, argument, command
from pareto.commands.report import run_folders
from pareto.protocol.errors import UserError


@command(CONCLUDE, "compare results/before results/after")
def compare(
    first: Path = argument("A", "A run's folder.", complete=cli_help.runs),
    second: Path = argument("B", "That of another, or published results: a file of sweeps/published/."),
    objectives: str = OBJECTIVES,
    where: str = WHERE,
    out: Path = cli_help.out("Where it is written.  [results/compare-A-B]"),
    json: bool = JSON,
) -> None:
    """Compare two runs over what both have: differences, how sure they are, what enters or leaves the front.

    With published results: whether their conclusions hold in the run.
    """
    from pareto.basics.console import console, files
    from pareto.commands import published

    screen = console(aside=json)
    if second.suffix in published.SUFFIXES:
        if where or json or objectives != DEFAULT_OBJECTIVES:
            raise UserError(f"--objectives, --where and --json are of two runs: leave them out with {second}")
        (folder,) = run_folders(screen, [first], RESULTS)
        published.compare(screen, folder, second, out)
        return
    from pareto.analysis import as_json
    from pareto.analysis.comparing import between_runs
    from pareto.analysis.page import comparison as page
    from pareto.analysis.tables.compare import compare_table, write

    before, after = (run_folders(screen, [run], RESULTS)[0] for run in (first, second))
    names = tuple(part.strip() for part in objectives.split(","))
    comparison = between_runs.compare(before, after, names, where)
    if json:
        say(as_json.text(as_json.of_comparison(comparison)))
    else:
        screen.print(compare_table(comparison))
    folder = out / f"compare-{before.resolve().name}-{after.resolve().name}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        made = [*write(comparison, folder), page.write(comparison, folder)]
        if not json:
            files(screen, made)
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror} (choose another --out)") from None

"""`compare`: a run against another, or against published results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pareto import COMMAND, DATA, RESULTS
from pareto.basics.escaping import say
from pareto.basics.files import written_into
from pareto.commands import help as cli_help
from pareto.commands.help import CONCLUDE, DEFAULT_OBJECTIVES, JSON, OBJECTIVES, WHERE, argument, command
from pareto.commands.report import run_folders
from pareto.protocol.errors import UserError

if TYPE_CHECKING:
    from pareto.analysis.comparing.published import Published

_OF_PUBLISHED = (".yaml", ".yml")
"""Endings that tell a file of published results from a run's folder."""


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

    screen = console(aside=json)
    is_published = second.suffix in _OF_PUBLISHED
    if is_published and (where or json or objectives != DEFAULT_OBJECTIVES):
        raise UserError(f"--objectives, --where and --json are of two runs: leave them out with {second}")
    (before,) = run_folders(screen, [first], RESULTS)
    if is_published:
        from pareto.analysis.comparing.published import beside
        from pareto.analysis.naming import SIMULATED
        from pareto.analysis.runs.manifest import manifest
        from pareto.analysis.tables import published as tables

        published = read(second)
        found = beside([before], published)
        name = (
            f"{before} (simulated: nothing was measured)" if manifest(before).get(SIMULATED) else str(before)
        )
        screen.print(tables.published_table(published, found, name, COMMAND))
        folder = out / f"compare-{before.resolve().name}-{second.stem}"
        with written_into(folder):
            files(screen, tables.write(found, folder))
        return
    from pareto.analysis import as_json
    from pareto.analysis.comparing import between_runs
    from pareto.analysis.page import comparison as page
    from pareto.analysis.tables.compare import compare_table, write

    (after,) = run_folders(screen, [second], RESULTS)
    names = tuple(part.strip() for part in objectives.split(","))
    comparison = between_runs.compare(before, after, names, where)
    if json:
        say(as_json.text(as_json.of_comparison(comparison)))
    else:
        screen.print(compare_table(comparison))
    folder = out / f"compare-{before.resolve().name}-{after.resolve().name}"
    with written_into(folder):
        folder.mkdir(parents=True, exist_ok=True)
        made = [*write(comparison, folder), page.write(comparison, folder)]
    if not json:
        files(screen, made)


def read(path: Path) -> Published:
    """The published results in a file; `sweeps/published/...` is found from every folder. Raises UserError, which names
    the line.
    """
    from pareto.analysis.comparing.published import Published
    from pareto.basics.yaml_file import YamlFile

    shipped = DATA / path
    there = shipped if shipped.is_file() and not path.exists() else path
    return YamlFile(there, "published results").read(
        Published, "a title, a link, a sweep and conclusions, as in sweeps/published/neurosurgeon.yaml"
    )

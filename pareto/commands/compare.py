"""`compare`: a run against another, or against published results."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pareto import COMMAND, DATA, RESULTS
from pareto.analysis.fronts.objectives import objectives_of
from pareto.basics.escaping import say
from pareto.basics.files import written_into
from pareto.commands import help as cli_help
from pareto.commands.help import CONCLUDE, JSON, OBJECTIVES, WHERE, argument, command, option
from pareto.commands.report import run_folders
from pareto.commands.runs import last
from pareto.protocol.errors import UserError

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from pareto.analysis.comparing.published import Published

_OF_PUBLISHED = (".yaml", ".yml")
"""Endings that tell a file of published results from a run's folder."""
_LIMIT = re.compile(r"\s*(latency_s|throughput_ips)\s*([<>])\s*(\d+\.?\d*|\.\d+)\s*x\s*")


@command(CONCLUDE, "compare results/before results/after")
def compare(
    first: Path | None = argument("A", "A run's folder.  [the last run but one]", None, cli_help.runs),
    second: Path | None = argument(
        "B", "That of another, or published results: a file of sweeps/published/.  [the last run]", None
    ),
    objectives: str = OBJECTIVES,
    where: str = WHERE,
    out: Path = cli_help.out("Where it is written.  [results/compare-A-B]"),
    fail_if: str = option(
        "", 'Exit with 1 where a point of B is surely so beside A: "latency_s > 1.1 x".', kind="LIMIT"
    ),
    json: bool = JSON,
) -> None:
    """Compare two runs over what both have: differences, how sure they are, what enters or leaves the front.

    With published results: whether their conclusions hold in the run.
    """
    from pareto.basics.console import console, files

    screen = console(aside=json)
    if first is None:
        first, second = last(screen, 2)
    elif second is None:
        (newest,) = last(screen)
        first, second = (newest, first) if first.suffix in _OF_PUBLISHED else (first, newest)
    is_published = second.suffix in _OF_PUBLISHED
    if is_published and (where or json or fail_if or objectives != cli_help.DEFAULT_OBJECTIVES):
        raise UserError(
            f"--objectives, --where, --fail-if and --json are of two runs: leave them out with {second}"
        )
    limit = _limit(fail_if) if fail_if else None
    (before,) = run_folders(screen, [first], RESULTS)
    if is_published:
        from pareto.analysis.comparing.published import beside
        from pareto.analysis.tables.compare import published_table, write

        published = read(second)
        if (own := before.resolve().name) in published.runs:
            published = published.of(own)
        found = beside([before], published)
        screen.print(published_table(published, found, named(before), COMMAND))
        folder = out / f"compare-{before.resolve().name}-{second.stem}"
        with written_into(folder):
            files(screen, write(found, folder))
        return
    from pareto.analysis import as_json
    from pareto.analysis.comparing import between_runs
    from pareto.analysis.page.document import write_comparison
    from pareto.analysis.tables.compare import compare_table, write

    (after,) = run_folders(screen, [second], RESULTS)
    comparison = between_runs.compare(before, after, objectives_of(objectives), where)
    if json:
        say(as_json.text(as_json.of_comparison(comparison)))
    else:
        screen.print(compare_table(comparison))
    folder = out / f"compare-{before.resolve().name}-{after.resolve().name}"
    with written_into(folder):
        folder.mkdir(parents=True, exist_ok=True)
        made = [*write(comparison, folder), write_comparison(comparison, folder)]
    if not json:
        files(screen, made)
    if limit is not None:
        every = comparison.differences
        raise typer.Exit(_judged(screen, fail_if, surely(every, *limit), every))


def surely(differences: pd.DataFrame, column: str, worse: str, factor: float) -> pd.DataFrame:
    """The points of a comparison whose figure is beyond a multiple of the first run's: the two differ by a test that
    counts all points, and the 95 % interval of the difference is beyond the limit.

    column: `latency_s` or `throughput_ips`. worse: `>` or `<`.
    """
    figure, limit = column.partition("_")[0], 100 * (factor - 1)
    low, high = (differences[f"{figure}_{end}_percent"] for end in ("low", "high"))
    is_beyond = low > limit if worse == ">" else high < limit
    return differences[differences[f"{figure}_significant"].eq(True) & is_beyond]


def _limit(text: str) -> tuple[str, str, float]:
    """The column, `>` or `<`, and the factor of a limit. Raises UserError."""
    found = _LIMIT.fullmatch(text)
    if found is None:
        raise UserError(f'--fail-if {text!r}: as in "latency_s > 1.1 x", or "throughput_ips < 0.9 x"')
    return found[1], found[2], float(found[3])


def _judged(screen: Console, limit: str, beyond: pd.DataFrame, every: pd.DataFrame) -> int:
    """The exit code: 1 if points are surely beyond the limit; and a line that says so, or what would be needed."""
    from pareto.analysis.naming import cell_title, some

    if len(beyond):
        screen.print(
            f"--fail-if {limit}: so at {some([*map(cell_title, beyond.to_dict('records'))])}", soft_wrap=True
        )
        return 1
    rounds = every[["first_rounds", "other_rounds"]].min(axis=1)
    few = int(rounds.lt(every["rounds_needed"]).sum())
    unknown = f"; at {few} of {len(every)} points rounds are too few to be sure of anything" if few else ""
    screen.print(f"--fail-if {limit}: surely so at no point{unknown}", soft_wrap=True)
    return 0


def named(run: Path) -> str:
    """A run's folder, and that nothing was measured where it is simulated."""
    from pareto.analysis.naming import SIMULATED
    from pareto.analysis.runs.manifest import manifest

    return f"{run}{' (simulated: nothing was measured)' if manifest(run).get(SIMULATED) else ''}"


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

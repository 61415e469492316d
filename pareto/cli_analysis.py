"""`report`, `compare`, `advise`: from the folders of runs alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from pareto import RESULTS

Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs.")]
Objectives = Annotated[
    str,
    typer.Option(
        help="What the front is of, with commas: latency, throughput, p95, energy, payload, edge-memory, edge-time."
    ),
]
Where = Annotated[
    str, typer.Option(help='Only points that satisfy this: "latency_s < 0.5 and edge_s < 50ms".')
]
Figures = Annotated[
    Literal["auto", "all", "none"],
    typer.Option(
        help="Which figures; auto: without those of each condition where there are many.",
        metavar="auto|all|none",
    ),
]
DEFAULT_OBJECTIVES = "latency,throughput"


def report(
    runs: Runs,
    objectives: Objectives = DEFAULT_OBJECTIVES,
    where: Where = "",
    width: Annotated[
        str, typer.Option(help="Of figures: page, column (of a two-column paper), or both.")
    ] = "page",
    figures: Figures = "auto",
    out: Annotated[
        Path | None,
        typer.Option(help="Where it is written.  [the run's folder; results/joined-... for several]"),
    ] = None,
) -> None:
    """The front, its tables, figures and report.html again, from folders alone; several runs are joined."""
    from analysis.reporting import asked
    from pareto import reporting, screen

    wanted = asked(objectives.split(","), where, width, figures)
    console = screen.console()
    reporting.show(console, reporting.run_folders(console, runs, RESULTS), wanted, out)


def compare(
    first: Annotated[Path, typer.Argument(metavar="A", help="A run's folder.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="The run that is compared with it.")],
    objectives: Objectives = DEFAULT_OBJECTIVES,
    where: Where = "",
    out: Annotated[Path | None, typer.Option(help="Where it is written.  [results/compare-A-B]")] = None,
) -> None:
    """Two runs over what both have: differences, how sure they are, and what enters or leaves the front."""
    from pareto import reporting, screen

    console = screen.console()
    folders = [reporting.run_folders(console, [run], RESULTS)[0] for run in (first, second)]
    names = tuple(part.strip() for part in objectives.split(","))
    reporting.compare(console, folders[0], folders[1], names, where, out or RESULTS)


def advise(
    runs: Runs,
    latency: Annotated[
        str, typer.Option("--latency", "--delay", help="Your network's one-way delay, such as 80ms.")
    ],
    rate: Annotated[str, typer.Option(help="Its rate from edge to server, such as 20mbit.")],
    latency_back: Annotated[str, typer.Option(help="The delay from server to edge.")] = "0ms",
    rate_back: Annotated[str, typer.Option(help="The rate from server to edge.  [not limited]")] = "",
    best: Annotated[
        str, typer.Option("--for", help="What is to be best: latency or throughput.")
    ] = "latency",
    where: Where = "",
    model: Annotated[str, typer.Option(help="Which model, if the runs have several.")] = "",
) -> None:
    """Which point to use in your network, the runner-up, how sure that is, and where another becomes better."""
    from pareto import reporting, screen

    network = reporting.network(latency, rate, latency_back, rate_back)
    console = screen.console()
    folders = reporting.run_folders(console, runs, RESULTS)
    reporting.advise(console, folders, network, best, where, model)

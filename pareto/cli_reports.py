"""The commands that conclude from runs: `report`, `compare` and `advise`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from pareto import RESULTS, cli_help
from pareto import options as declared
from pareto.errors import UserError

Runs = Annotated[
    list[Path],
    typer.Argument(metavar="RUN", help="Folders of runs.", autocompletion=cli_help.runs),
]
Objectives = Annotated[
    str,
    typer.Option(
        help="Objectives, with commas: latency, throughput, p95, energy, payload, wire, accuracy, edge-memory, "
        "edge-time."
    ),
]
Where = Annotated[
    str, typer.Option(help='Only points that satisfy this: "latency_s < 0.5 and edge_s < 50ms".')
]
Which = Literal["auto", "all", "none"]


def _which_figures(head: str | None) -> Any:
    return typer.Option(
        help="Which figures; auto leaves out those of single conditions if there are many conditions.",
        metavar="auto|all|none",
        rich_help_panel=head,
    )


Figures = Annotated[Which, _which_figures(declared.RESULTS)]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object instead of words and tables (docs/json.md).")
]
DEFAULT_OBJECTIVES = "latency,throughput"


def _given(context: typer.Context) -> set[str]:
    """The options that were typed."""
    typed = {
        option.opts[0]: context.get_parameter_source(option.name or "")
        for option in context.command.params
        if option.param_type_name == "option"
    }
    return {name for name, source in typed.items() if source is not None and source.name == "COMMANDLINE"}


def report(
    context: typer.Context,
    runs: Runs,
    objectives: Objectives = DEFAULT_OBJECTIVES,
    where: Where = "",
    width: Annotated[
        str, typer.Option(help="Width of the figures: page, column (of a two-column paper), or both.")
    ] = "page",
    figures: Annotated[Which, _which_figures(None)] = "auto",
    uncertainty: Annotated[
        str,
        typer.Option(
            metavar="none|box|band",
            help="What fronts show beside how sure a mark is: the points' 95 % intervals, or a band.",
        ),
    ] = "none",
    formats: Annotated[
        str, typer.Option("--format", help="Formats of the figures, with commas: pdf, png, svg.")
    ] = "pdf,png",
    title: Annotated[str, typer.Option(metavar="auto|none", help="Whether figures have a title.")] = "auto",
    font: Annotated[str, typer.Option(help="An installed font for the figures.", show_default=False)] = "",
    style: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file of matplotlib's settings for the figures.")
    ] = None,
    columns: Annotated[
        str,
        typer.Option(
            help="Columns of the LaTeX tables of fronts, with commas, in their order: backend, point, latency, "
            "latency-interval, latency-eff, images, images-interval, images-eff, energy, sure, bound-by.  [those that "
            "have room]",
            show_default=False,
        ),
    ] = "",
    profile: Annotated[
        list[Path] | None,
        typer.Option(
            help="A folder of a model profile: its predictions are compared with what was measured."
        ),
    ] = None,
    export: Annotated[
        list[str] | None,
        typer.Option(
            help="Write all tables to a file, too: .sqlite, .xlsx; trials alone: .parquet.",
            metavar="FILE",
        ),
    ] = None,
    methods: Annotated[
        bool, typer.Option("--methods", help="Print only how the runs were made, in words for a paper.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Where it is written.  [the run's folder; results/joined-... for several]"),
    ] = None,
    json: Json = False,
) -> None:
    """Make the tables, figures and report.html of runs from their folders alone; several runs are joined."""
    from analysis.figures.look import Look
    from analysis.findings import Options
    from pareto import reporting
    from pareto.console import console

    if methods and (others := _given(context) - {"--methods"}):
        raise UserError(f"--methods prints words and nothing else: leave {', '.join(sorted(others))} out")
    look = Look.checked(formats, title, font, style, columns)
    options = Options.checked(objectives.split(","), where, width, figures, profile or (), uncertainty, look)
    screen = console(aside=json)
    folders = reporting.run_folders(screen, runs, RESULTS)
    if methods:
        reporting.methods(screen, folders)
        return
    from analysis.exporting import targets

    reporting.show(screen, folders, options, out, exports=targets(export or []), json=json)


def compare(
    first: Annotated[Path, typer.Argument(metavar="A", help="A run's folder.")],
    second: Annotated[
        Path,
        typer.Argument(
            metavar="B",
            help="The folder of the run to compare with it, or published results: a file of sweeps/published/.",
        ),
    ],
    objectives: Objectives = DEFAULT_OBJECTIVES,
    where: Where = "",
    out: Annotated[Path | None, typer.Option(help="Where it is written.  [results/compare-A-B]")] = None,
    json: Json = False,
) -> None:
    """Compare two runs over what both have: differences, how sure they are, what enters or leaves the front.

    Of published results: whether their conclusions hold in the run.
    """
    from pareto import published, reporting
    from pareto.console import console

    screen = console(aside=json)
    if second.suffix in published.SUFFIXES:
        if where or objectives != DEFAULT_OBJECTIVES:
            raise UserError(
                f"--objectives and --where are of two runs: {second} says itself what it compares"
            )
        if json:
            raise UserError(f"--json is for two runs: leave it out with {second}")
        (folder,) = reporting.run_folders(screen, [first], RESULTS)
        published.compare(screen, folder, second, out or RESULTS)
        return
    folders = [reporting.run_folders(screen, [run], RESULTS)[0] for run in (first, second)]
    names = tuple(part.strip() for part in objectives.split(","))
    reporting.compare(screen, folders[0], folders[1], names, where, out or RESULTS, json=json)


def advise(
    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="RUN", help="Folders of runs.", show_default=False)
    ] = None,
    *,
    latency: Annotated[
        str, typer.Option("--latency", "--delay", help="Your network's one-way delay, such as 80ms.")
    ],
    rate: Annotated[str, typer.Option(help="Its rate from edge to server, such as 20mbit.")],
    latency_back: Annotated[str, typer.Option(help="The delay from server to edge.")] = "0ms",
    rate_back: Annotated[str, typer.Option(help="The rate from server to edge.  [not limited]")] = "",
    best: Annotated[
        str, typer.Option("--for", help="What counts as best: latency or throughput.")
    ] = "latency",
    where: Where = "",
    model: Annotated[str, typer.Option(help="Which model, if the runs have several.")] = "",
    profile: Annotated[
        Path | None,
        typer.Option(
            help="A folder of a model profile: choose among all splits by it; runs, if any, test it."
        ),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="With --profile: images per request.  [the profile's least]")
    ] = None,
    json: Json = False,
) -> None:
    """Name the point to use in your network, the next best, how sure that is, and where another is better."""
    from pareto import reporting
    from pareto.console import console

    network = reporting.network(latency, rate, latency_back, rate_back)
    screen = console(aside=json)
    if not runs and profile is None:
        raise UserError("give the folders of runs, such as results/<run>, or a model profile (--profile)")
    folders = reporting.run_folders(screen, runs, RESULTS) if runs else []
    if profile is None:
        if batch_size is not None:
            raise UserError(
                "--batch-size goes with --profile; of runs choose one by --where, as in batch_size == 8"
            )
        reporting.advise(screen, folders, network, best, where, model, json=json)
        return
    if model:
        raise UserError("--model is for runs: a model profile is of one model")
    reporting.advise_by_profile(screen, profile, folders, network, best, batch_size, where, json=json)

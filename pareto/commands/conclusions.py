"""The commands that conclude from runs: `report`, `compare` and `advise`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal

import typer

from pareto import RESULTS
from pareto.basics.escaping import say
from pareto.commands import help as cli_help
from pareto.commands.help import CONCLUDE, argument, command, given, option, refuse, takes
from pareto.protocol.errors import UserError
from pareto.sweep import options as declared

DEFAULT_OBJECTIVES = "latency,throughput"
_OBJECTIVES = option(
    DEFAULT_OBJECTIVES,
    "Objectives, with commas: latency, throughput, p95, energy, payload, wire, accuracy, edge-memory, edge-time.",
    kind="NAME,...",
)
_WHERE = option("", 'Only points that satisfy this: "latency_s < 0.5 and edge_s < 50ms".', kind="CONDITION")
Which = Literal["auto", "all", "none"]
_WHICH = "Which figures; auto leaves out those of single conditions if there are many conditions."
FIGURES = option("auto", _WHICH, kind="auto|all|none", head=declared.RESULTS)
JSON = option(False, "Print one JSON object instead of words and tables (docs/json.md).", "--json")
_FORESEEN = ("netem", "in_flight", *declared.OF_POINTS, *declared.OF_DEVICES)
_WITHOUT = "Without runs"


@command(CONCLUDE, "report results/example", "report results/example --where 'latency_s < 200ms'")
def report(
    context: typer.Context,
    runs: list[Path] = argument("RUN", "Folders of runs.", complete=cli_help.runs),
    objectives: str = _OBJECTIVES,
    where: str = _WHERE,
    width: str = option("page", "Width of the figures: page, column (of a two-column paper), or both."),
    figures: Which = option("auto", _WHICH, kind="auto|all|none"),
    uncertainty: str = option(
        "none",
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
    from pareto.commands import report as reporting

    if methods:
        refuse(given(context) - {"--methods"}, "not with --methods, which prints words and nothing else")
    look = Look.checked(formats, title, font, style, columns)
    if look.columns:
        from pareto.analysis.tables.latex import check_columns

        check_columns(look.columns)
    if look.font or look.style:
        from pareto.analysis.figures.style import check_look  # imports matplotlib, which takes a second

        check_look(look)
    options = Options.checked(objectives.split(","), where, width, figures, profile or (), uncertainty, look)
    screen = console(aside=json)
    folders = reporting.run_folders(screen, runs, RESULTS)
    if methods:
        reporting.methods(screen, folders)
        return
    from pareto.analysis.exporting import targets

    reporting.show(screen, folders, options, out, exports=targets(export or []), json=json)


@command(CONCLUDE, "compare results/before results/after")
def compare(
    first: Path = argument("A", "A run's folder.", complete=cli_help.runs),
    second: Path = argument("B", "That of another, or published results: a file of sweeps/published/."),
    objectives: str = _OBJECTIVES,
    where: str = _WHERE,
    out: Path = cli_help.out("Where it is written.  [results/compare-A-B]"),
    json: bool = JSON,
) -> None:
    """Compare two runs over what both have: differences, how sure they are, what enters or leaves the front.

    With published results: whether their conclusions hold in the run.
    """
    from pareto.basics.console import console, files
    from pareto.commands import published
    from pareto.commands import report as reporting

    screen = console(aside=json)
    if second.suffix in published.SUFFIXES:
        if where or json or objectives != DEFAULT_OBJECTIVES:
            raise UserError(f"--objectives, --where and --json are of two runs: leave them out with {second}")
        (folder,) = reporting.run_folders(screen, [first], RESULTS)
        published.compare(screen, folder, second, out)
        return
    from pareto.analysis import as_json
    from pareto.analysis.comparing import between_runs
    from pareto.analysis.page import comparison as page
    from pareto.analysis.tables.compare import compare_table, write

    before, after = (reporting.run_folders(screen, [run], RESULTS)[0] for run in (first, second))
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


@command(
    CONCLUDE,
    "advise results/example --latency 20ms --rate 30mbit",
    "advise --model mobilenetv2 --netem lte --hosts 3",
)
@takes(*_FORESEEN, head=_WITHOUT)
def advise(
    context: typer.Context,
    runs: list[Path] | None = argument("RUN", "Folders of runs.", None, cli_help.runs),
    *,
    latency: str = option("", "Your network's one-way delay, as 80ms.", "--latency", "--delay", kind="TIME"),
    rate: str = option("", "Its rate from edge to server, as 20mbit.", kind="RATE"),
    latency_back: str = option("0ms", "The delay from server to edge.", kind="TIME"),
    rate_back: str = option("", "The rate from server to edge.  [not limited]", kind="RATE"),
    best: str = option("latency", "What counts as best: latency or throughput.", "--for"),
    where: str = _WHERE,
    model: str = option("", "Which model, of several; without runs, any.", "--model", "-m", kind="MODEL"),
    profile: Path | None = option(None, "Choose among all splits by a model profile.", kind="FOLDER"),
    batch_size: str = option("", "Of predictions: images per request.  [1; a profile's least]", kind="N"),
    out: Path = cli_help.out("Where figures go, and in profiles/ times.  [results]", head=_WITHOUT),
    json: bool = JSON,
    **options: Any,
) -> None:
    """Name the point to use in your network, the next best, how sure that is, and where another is better.

    Without runs: predict the front among all splits in the networks of --netem, from times of a model's units, which
    --profile has or which are taken first. No trial is run.
    """
    from pareto.basics.console import console

    names, screen = given(context), console(aside=json)
    if not runs and ("--netem" in names or (model and profile is None)):
        of_network = {"--latency", "--latency-back", "--rate", "--rate-back", "--for", "--where"}
        refuse(names & of_network, "not without runs, where a network has a name, as in --netem 20ms-30mbit")
        if profile is not None:
            free = {"--profile", "--netem", "--batch-size", "--in-flight", "--out", "--json"}
            refuse(names - free, "not with --profile, which says this itself")
        typed = {"model": model or None, "batch_size": batch_size or None, **options}
        from pareto.commands import prediction as predicting

        predicting.run(screen, cli_help.typed(typed), profile, out, json=json)
        return
    of_units = {"--out", *(declared.OPTIONS[name].typed for name in _FORESEEN)}
    refuse(names & of_units, "only without runs, for networks by name (--netem)")
    if not runs and profile is None:
        raise UserError(
            "give the folders of runs, such as results/<run>, or a model profile (--profile), or a model (--model)"
        )
    if not latency or not rate:
        raise UserError("give --latency and --rate of your network, as in --latency 80ms --rate 20mbit")
    if batch_size and (profile is None or not batch_size.isdecimal()):
        raise UserError(
            "--batch-size goes with --profile; of runs choose one by --where, as in batch_size == 8"
        )
    from pareto.analysis.prediction.network import Network
    from pareto.commands import report as reporting
    from pareto.remote.link.units import delay_s, rate_bps

    try:
        network = Network(
            delay_s(latency, "--latency"),
            rate_bps(rate, "--rate"),
            delay_s(latency_back, "--latency-back"),
            rate_bps(rate_back, "--rate-back") if rate_back else math.inf,
        )
    except ValueError as error:
        raise UserError(str(error)) from None
    if profile is not None and model:
        raise UserError("--model is for runs: a model profile is of one model")
    folders = reporting.run_folders(screen, runs, RESULTS) if runs else []
    size = int(batch_size) if batch_size else None
    reporting.advise(screen, folders, network, best, where, model, profile, size, json=json)

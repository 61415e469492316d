"""The command line. A command imports what is heavy when it runs, so that `--help` is quick."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer

from analysis.escaping import terminal
from pareto import COMMAND, PROFILES, RESULTS, __version__, cli_fleet, cli_help, cli_hosts
from pareto import options as declared
from pareto.errors import UserError, in_plain_words
from pareto.hosts.host import SERVED
from pareto.options import OPTIONS

BEGAN = time.monotonic()
MEASURE, CONCLUDE, FORESEE, OF_HOSTS = (
    "Measure",
    "Conclude from runs",
    "Before a run",
    "Hosts, and this program",
)
"""Heads of the commands in `--help`."""

app = typer.Typer(
    cls=cli_help.Group,
    context_settings={"help_option_names": ["--help", "-h"]},
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Where should a DNN be split between an edge device and a server? Runs every partition point over raw "
    "sockets and PyTorch RPC under an emulated network, and computes the latency/throughput Pareto front.",
)


@app.callback(invoke_without_command=True)
def _options(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        typer.echo(f"pareto {__version__}")
        raise typer.Exit


Out = Annotated[
    Path,
    typer.Option(help="Where run folders go.  [results]", rich_help_panel=declared.RESULTS),
]
SweepFile = Annotated[Path | None, typer.Argument(help="A sweep file; options override it.")]
Resume = Annotated[
    Path | None,
    typer.Option(
        help="A run's folder: do only what is missing.",
        rich_help_panel=declared.EFFORT,
        autocompletion=cli_help.runs,
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print only the plan.", rich_help_panel=declared.EFFORT)
]
Runs = Annotated[
    list[Path],
    typer.Argument(metavar="RUN...", help="Folders of runs.", autocompletion=cli_help.runs),
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
Figures = Annotated[
    Literal["auto", "all", "none"],
    typer.Option(
        help="Which figures; auto leaves out those of single conditions if there are many conditions.",
        metavar="auto|all|none",
        rich_help_panel=declared.RESULTS,
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object instead of words and tables (docs/json.md).")
]
DEFAULT_OBJECTIVES = "latency,throughput"
OF_POINTS = ("granularity", "live_tensors", "fold", "input")
OF_DEVICES = (
    "batch_size",
    "backend",
    "testbed",
    "token_file",
    "hosts",
    "edge_cpu",
    "threads",
    "device",
    "weights",
    "sample",
)
NOT_BY_HAND = (
    "testbed",
    "cluster",
    "certificates",
    "edge_only",
    "server_only",
    "hosts",
    "edge_cpu",
    "device",
    "initial_window",
    "slow_start_after_idle",
    "shape_at",
)
OF_THE_LINK = ("hosts", "tolerance", "rtt_tolerance", "rtt_floor", "shape_at")


@app.command(cls=cli_help.Command, rich_help_panel=MEASURE)
@cli_help.takes(*OPTIONS)
def run(
    sweep: SweepFile = None,
    *,
    out: Out = RESULTS,
    resume: Resume = None,
    dry_run: DryRun = False,
    figures: Figures = "auto",
    **options: Any,
) -> None:
    """Sweep models over partition points, backends and network profiles."""
    _run(sweep, options, out, resume, dry_run=dry_run, figures=figures)


@app.command(cls=cli_help.Command, rich_help_panel=MEASURE)
@cli_help.takes(*(name for name in OPTIONS if name not in NOT_BY_HAND))
def connect(
    address: Annotated[
        str, typer.Argument(metavar="ADDRESS[:PORT]", help="Where serve listens: on the server.")
    ],
    sweep: SweepFile = None,
    *,
    out: Out = RESULTS,
    resume: Resume = None,
    dry_run: DryRun = False,
    figures: Figures = "auto",
    **options: Any,
) -> None:
    """Sweep between this machine, the edge, and one that runs serve: without SSH, the link as it is."""
    options["testbed"] = f"{SERVED}:{address}"
    _run(sweep, options, out, resume, dry_run=dry_run, figures=figures)


def _run(
    sweep: Path | None,
    options: dict[str, Any],
    out: Path,
    resume: Path | None,
    *,
    dry_run: bool,
    figures: str,
) -> NoReturn:
    folder = None
    if resume is None:
        from pareto.sweep import requested_sweep

        wanted = requested_sweep(sweep, options)
    else:
        from pareto.console import console
        from pareto.manifest import resumed_sweep
        from pareto.reporting import run_folders

        (folder,) = run_folders(console(), [resume], out)
        if sweep is not None:
            raise UserError("--resume takes its settings from the run: leave the sweep file out")
        wanted = resumed_sweep(folder, options)
    where = f"on the {wanted.alone} alone" if wanted.alone else f"at {','.join(wanted.netems)}"
    typer.echo(f"pareto: {','.join(wanted.models)} {where}")
    from pareto.run import run as run_sweep

    raise typer.Exit(run_sweep(wanted, out, folder, dry_run=dry_run, began=BEGAN, figures=figures))


def _given(context: typer.Context) -> set[str]:
    """The options that were typed."""
    typed = {
        option.opts[0]: context.get_parameter_source(option.name or "")
        for option in context.command.params
        if option.param_type_name == "option"
    }
    return {name for name, source in typed.items() if source is not None and source.name == "COMMANDLINE"}


@app.command(cls=cli_help.Command, rich_help_panel=CONCLUDE)
def report(
    context: typer.Context,
    runs: Runs,
    objectives: Objectives = DEFAULT_OBJECTIVES,
    where: Where = "",
    width: Annotated[
        str, typer.Option(help="Width of the figures: page, column (of a two-column paper), or both.")
    ] = "page",
    figures: Figures = "auto",
    uncertainty: Annotated[
        str,
        typer.Option(
            metavar="none|box|band",
            help="What fronts show beside how sure a mark is: the points' 95 % intervals, or a band.",
        ),
    ] = "none",
    formats: Annotated[
        str, typer.Option("--format", help="Formats of the figures, with commas: pdf, png, svg, pgf.")
    ] = "pdf,png",
    title: Annotated[str, typer.Option(metavar="auto|none", help="Whether figures have a title.")] = "auto",
    font: Annotated[str, typer.Option(help="An installed font for the figures.", show_default=False)] = "",
    style: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file of matplotlib's settings for the figures.")
    ] = None,
    profile: Annotated[
        list[Path] | None,
        typer.Option(
            help="A folder of a model profile: its predictions are compared with what was measured."
        ),
    ] = None,
    export: Annotated[
        list[str] | None,
        typer.Option(
            help="Write all tables to a file, too: .sqlite, .duckdb, .xlsx, trials alone .parquet; or "
            "mlflow[:EXPERIMENT].",
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
    columns: Annotated[
        str,
        typer.Option(
            help="Columns of the LaTeX tables of fronts, with commas, in their order: backend, point, latency, "
            "latency-interval, latency-eff, images, images-interval, images-eff, energy, sure, bound-by.  [those that "
            "have room]",
            show_default=False,
        ),
    ] = "",
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


@app.command(cls=cli_help.Command, rich_help_panel=CONCLUDE)
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


@app.command(cls=cli_help.Command, rich_help_panel=CONCLUDE)
def advise(
    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="[RUN]...", help="Folders of runs.", show_default=False)
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


@app.command(cls=cli_help.Command, rich_help_panel=FORESEE)
@cli_help.takes(*OF_POINTS)
def partitions(
    models: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="A model, your own net.py:build, several with commas, or all."),
    ],
    *,
    prove: Annotated[
        bool, typer.Option("--prove", help="Compare each point's split output with the whole model's.")
    ] = False,
    markdown: Annotated[
        Path | None, typer.Option(help="A Markdown file whose table of models to update.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where figures go.", show_default="results")] = RESULTS,
    json: Json = False,
    **options: Any,
) -> None:
    """Show what is inside a model: what crosses at each point, and what computes on either side of it."""
    from pareto.sweep import make_sweep

    wanted = make_sweep({"model": models, **options})
    from pareto import partitioning
    from pareto.console import console

    good = partitioning.run(console(aside=json), wanted, out, prove=prove, document=markdown, json=json)
    raise typer.Exit(0 if good else 1)


@app.command(cls=cli_help.Command, rich_help_panel=FORESEE)
@cli_help.takes(*OF_POINTS, *OF_DEVICES, "codec")
def profile(
    models: Annotated[
        str, typer.Argument(metavar="MODEL", help="A model, your own net.py:build, or several with commas.")
    ],
    *,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure also what was measured before on these devices.")
    ] = False,
    trace: Annotated[
        Path | None, typer.Option(help="A file for Perfetto to open: a row a device, a slice a unit.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Where profiles are kept.", show_default="results/profiles")
    ] = PROFILES,
    **options: Any,
) -> None:
    """Time each unit of a model on each device of a testbed, and what each backend adds on each link."""
    from pareto.sweep import make_sweep

    wanted = make_sweep({"model": models, **options})
    from pareto import profiling
    from pareto.console import console

    profiling.run(console(), wanted, out, fresh=fresh, trace=trace)


@app.command(cls=cli_help.Command, rich_help_panel=FORESEE)
@cli_help.takes("netem", "in_flight", *OF_POINTS, *OF_DEVICES, "codec")
def predict(
    models: Annotated[
        str, typer.Argument(metavar="MODEL", help="A model, your own net.py:build, or several with commas.")
    ],
    *,
    out: Annotated[
        Path, typer.Option(help="Where figures go, and model profiles are kept.", show_default="results")
    ] = RESULTS,
    json: Json = False,
    **options: Any,
) -> None:
    """Predict the front among all splits of a model, from times of its units: no trial is run."""
    from pareto.sweep import make_sweep

    wanted = make_sweep({"model": models, **options})
    from pareto import predicting
    from pareto.console import console

    predicting.run(console(aside=json), wanted, out, json=json)


netem_app = typer.Typer(
    cls=cli_help.Group,
    help="Network profiles: which there are, and what the link measures under them.",
    rich_markup_mode=None,
)
app.add_typer(netem_app, name="netem", rich_help_panel=MEASURE)


@netem_app.command("list", cls=cli_help.Command)
def netem_list() -> None:
    """List the profiles in netem_profiles/."""
    from pareto import profile_files
    from pareto.link.profile import describe

    names = profile_files.names()
    for name in names:
        typer.echo(f"{name:<{max(map(len, names))}}  {describe(profile_files.load(name))}")


@netem_app.command("check", cls=cli_help.Command)
@cli_help.takes(*OF_THE_LINK)
def netem_check(
    profiles: Annotated[
        list[str], typer.Argument(metavar="PROFILE...", help="Files, or names such as 80ms-20mbit.")
    ],
    *,
    testbed: cli_hosts.Testbed = "local",
    duration: Annotated[str, typer.Option(help="How long to probe each profile.")] = "5s",
    out: Annotated[Path, typer.Option(help="Where pictures go.", show_default="results")] = RESULTS,
    **options: Any,
) -> None:
    """Put profiles on the link and measure it: what each asks for against what it gives, with a picture."""
    from pareto.link import units
    from pareto.sweep import make_sweep, networks_to_check

    wanted = make_sweep({"model": "any", "netem": ",".join(profiles), "testbed": testbed, **options})
    try:
        seconds = units.delay_s(duration)
    except ValueError as error:
        raise UserError(f"--duration: {error}") from None
    from pareto import netem_check
    from pareto.console import console

    networks = networks_to_check(wanted)
    where = (wanted.testbed, wanted.shape_at)
    good = netem_check.check(console(), networks, seconds, wanted.link_tolerance, out, *where)
    raise typer.Exit(0 if good else 1)


bench_app = typer.Typer(
    cls=cli_help.Group, help="Benchmarks of the harness itself, on this machine.", rich_markup_mode=None
)
app.add_typer(bench_app, name="bench", rich_help_panel=OF_HOSTS)


@bench_app.callback()
def _bench() -> None:
    """With it, the one command there is keeps its name."""


@bench_app.command(cls=cli_help.Command)
def transport(
    places: Annotated[
        str, typer.Option(help="Where: loopback, veth, netem (the shaped links), with commas.")
    ] = "loopback,veth,netem",
    netem: Annotated[
        str, typer.Option(help="The shaped links: profiles, with commas.")
    ] = "10ms-100mbit,wifi",
    ways: Annotated[
        str, typer.Option(help="floor, tcp, rpc, their variants (tcp:4, tcp:tls, rpc:basic), naive, asyncio.")
    ] = "floor,tcp,rpc,naive",
    sizes: Annotated[str, typer.Option(help="Payloads, with commas.")] = "4kB,64kB,200kB,3MB,32MB",
    rounds: Annotated[
        int | None, typer.Option(help="Samples of each way, taken in turn.  [15; 3 with --quick]")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the order of measurements.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Few and short samples, for a first look.")] = False,
    out: Annotated[Path, typer.Option(help="Where the JSON file goes.", show_default="results")] = RESULTS,
) -> None:
    """Compare each way of moving tensors with a plain socket: round trips, streams, processor time."""
    from pareto.bench.request import request

    texts = {"places": places, "netem": netem, "ways": ways, "sizes": sizes}
    wanted = request(**texts, rounds=rounds, seed=seed, quick=quick)
    from pareto.bench import run
    from pareto.console import console

    typer.echo(run.run(console(), wanted, out))


app.add_typer(cli_hosts.app, name="hosts", rich_help_panel=OF_HOSTS)
app.add_typer(cli_fleet.app, name="fleet", rich_help_panel=OF_HOSTS)
for _command, _example in (
    (cli_hosts.doctor, "doctor --testbed lab.yaml"),
    (cli_hosts.serve, "serve --listen 192.0.2.1 --token-file token"),
):
    app.command(cls=cli_help.Command, rich_help_panel=OF_HOSTS, epilog=_example)(_command)


@app.command(cls=cli_help.Command, rich_help_panel=OF_HOSTS)
def completion(
    shell: Annotated[cli_help.Shell, typer.Argument(metavar="bash|zsh|fish", help="Your shell.")],
) -> None:
    """Print what makes your shell complete commands, options and names of networks with the Tab key."""
    typer.echo(cli_help.script(shell))


def main() -> int:
    """Run the command line; returns the exit code. Bad input is one line on stderr and 2."""
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    if logging.lastResort:
        logging.lastResort.setFormatter(_Warning())
    if cli_help.COMPLETE in os.environ:
        cli_help.complete(app)
    arguments = sys.argv[1:]
    if arguments in ([], ["netem"], ["hosts"], ["fleet"], ["bench"]):
        arguments.append("--help")
    if arguments[0].startswith("-") and arguments[0] not in ("--help", "-h", "--version"):
        arguments = ["run", *arguments]
    try:
        code = app(arguments, prog_name=COMMAND, standalone_mode=False)
    except typer.TyperException as usage:
        return _complain(in_plain_words(getattr(usage, "format_message", usage.__str__)()))
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted", file=sys.stderr)
        return 130
    except UserError as error:
        return _complain(str(error))
    return int(code or 0)


def _complain(message: str) -> int:
    print(f"error: {terminal(' '.join(message.split()))}", file=sys.stderr)
    return 2


class _Warning(logging.Formatter):
    """What the analysis logs, for a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return terminal(super().format(record))


def _interrupt(*_: Any) -> NoReturn:
    raise KeyboardInterrupt

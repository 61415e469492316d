"""Options in, one call out. Whatever is heavy is imported by the command that needs it: `--help` must be quick."""

from __future__ import annotations

import logging
import signal
import sys
import time
from getpass import getpass
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from analysis.escaping import terminal
from pareto import RESULTS, __version__, cli_analysis, cli_bench
from pareto.errors import UserError

BEGAN = time.monotonic()

app = typer.Typer(
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


Hosts = Annotated[
    int | None,
    typer.Option(help="Hosts of the local or simulated testbed, a chain from edge to server.  [2]"),
]
Granularity = Annotated[
    str | None, typer.Option(help="What lies between points: block, or op for every cut.  [block]")
]
LiveTensors = Annotated[int | None, typer.Option(help="The most tensors that may cross at a point.  [1]")]
Fold = Annotated[
    bool | None,
    typer.Option("--fold/--no-fold", help="At op, one point for equivalent neighbours.  [fold]"),
]
Input = Annotated[
    str | None,
    typer.Option(
        help="What the edge gets: uint8, a camera's bytes, or float32, normalised before.  [auto: uint8 for images]"
    ),
]


@app.command()
def run(
    sweep: Annotated[Path | None, typer.Argument(help="A sweep file; options override it.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Models, with commas: mobilenetv2,resnet50, or your own net.py:build.")
    ] = None,
    netem: Annotated[
        str | None,
        typer.Option(
            help="Network profiles: a file in netem_profiles/ or a name such as 80ms-20mbit; wifi+lte names one a "
            "link.  [none]"
        ),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(
            help="tcp, tcp:4 (over 4 connections), rpc, rpc:basic (over one), with commas; tcp:a,tcp:b is tcp under "
            "two names.  [tcp,rpc]"
        ),
    ] = None,
    points: Annotated[
        str | None,
        typer.Option(help="all, numbers, names or ranges: 0,features.7,9-12; for three hosts 3+7.  [all]"),
    ] = None,
    only: Annotated[
        bool | None,
        typer.Option("--only", help="Just --points: do not add all on the server and all on the edge."),
    ] = None,
    granularity: Granularity = None,
    live_tensors: LiveTensors = None,
    fold: Fold = None,
    input: Input = None,
    trials: Annotated[
        int | None, typer.Option(help="Rounds: trials of each cell.  [6; 1 with --quick]")
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(help="Add rounds until the points that may be on a front are within, such as 5%."),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="Add rounds as long as they fit into a time, such as 20min.")
    ] = None,
    batch_size: Annotated[str | None, typer.Option(help="Images per request, with commas: 1,8.  [1]")] = None,
    in_flight: Annotated[
        str | None,
        typer.Option(help="Requests in flight for the throughput, with commas: auto,1,8.  [auto]"),
    ] = None,
    congestion: Annotated[
        str | None, typer.Option(help="TCP's congestion control: cubic, bbr or reno.  [local: cubic]")
    ] = None,
    initial_window: Annotated[
        int | None, typer.Option(help="TCP's first window on the local testbed, in segments.  [100]")
    ] = None,
    slow_start_after_idle: Annotated[
        bool | None,
        typer.Option("--slow-start-after-idle", help="Have TCP begin anew after each pause.  [off]"),
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="seeded, pretrained, or a .safetensors or .pth file.  [seeded]")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="synthetic, cifar10, or folder: a folder for each class.  [synthetic]")
    ] = None,
    data_path: Annotated[Path | None, typer.Option(help="Where the data set lies.")] = None,
    images: Annotated[int | None, typer.Option(help="How many of its images are used.  [16]")] = None,
    testbed: Annotated[
        str | None,
        typer.Option(
            help="local; a file that names hosts; or simulated, simulated:FILE: nothing is measured.  [local]"
        ),
    ] = None,
    hosts: Hosts = None,
    edge_cpu: Annotated[
        float | None, typer.Option(help="Share of a core that a local edge gets.  [1.0]")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Compute threads on each host.  [1]")] = None,
    tolerance: Annotated[
        str | None, typer.Option(help="How far the link's rate may be off: a share of what was asked.  [2%]")
    ] = None,
    rtt_tolerance: Annotated[
        str | None, typer.Option(help="How far its round trip may be off, likewise.  [1%]")
    ] = None,
    rtt_floor: Annotated[
        str | None, typer.Option(help="How far its round trip may always be off.  [0.3ms]")
    ] = None,
    slowdown: Annotated[
        float | None,
        typer.Option(help="How many times as long as alone a stage may take in a valid trial.  [1.5]"),
    ] = None,
    sample: Annotated[
        str | None, typer.Option(help="How often the devices' sensors are read, or off.  [200ms]")
    ] = None,
    shape_at: Annotated[
        str | None,
        typer.Option(help="both, or edge: both directions shaped on the edge, with netem alone.  [both]"),
    ] = None,
    restart: Annotated[
        str | None,
        typer.Option(
            help="Fresh workers: never, each round, or every N rounds.  [never]",
            metavar="never|round|N",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="For weights, inputs and the order of trials.  [0]")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where run folders go.", show_default="results")] = RESULTS,
    resume: Annotated[Path | None, typer.Option(help="A run's folder: do only what is missing.")] = None,
    quick: Annotated[bool | None, typer.Option("--quick", help="One short round, for a first look.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan alone.")] = False,
    figures: cli_analysis.Figures = "auto",
) -> None:
    """Sweep models over partition points, backends and network profiles."""
    options = {
        "model": model,
        "netem": netem,
        "backend": backend,
        "points": points,
        "only": only,
        "granularity": granularity,
        "live_tensors": live_tensors,
        "fold": fold,
        "input": input,
        "dataset": dataset,
        "data_path": data_path,
        "images": images,
        "hosts": hosts,
        "trials": trials,
        "until": until,
        "budget": budget,
        "batch_size": batch_size,
        "in_flight": in_flight,
        "congestion": congestion,
        "initial_window": initial_window,
        "slow_start_after_idle": slow_start_after_idle,
        "weights": weights,
        "testbed": testbed,
        "edge_cpu": edge_cpu,
        "threads": threads,
        "tolerance": tolerance,
        "rtt_tolerance": rtt_tolerance,
        "rtt_floor": rtt_floor,
        "slowdown": slowdown,
        "sample": sample,
        "shape_at": shape_at,
        "restart": restart,
        "seed": seed,
        "quick": quick,
    }
    given = {name: value for name, value in options.items() if value is not None}
    from pareto import request

    folder = request.run_folder(resume, out) if resume is not None else None
    asked = request.sweep(sweep, given, folder)
    typer.echo(f"pareto: {','.join(asked.models)} at {','.join(asked.netems)}")
    from pareto import sweeping

    raise typer.Exit(sweeping.run(asked, out, folder, dry_run=dry_run, began=BEGAN, figures=figures))


for analysing in (cli_analysis.report, cli_analysis.compare, cli_analysis.advise):
    app.command()(analysing)


@app.command()
def partitions(
    models: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="A model, your own net.py:build, several with commas, or all."),
    ],
    granularity: Granularity = None,
    live_tensors: LiveTensors = None,
    fold: Fold = None,
    input: Input = None,
    prove: Annotated[
        bool, typer.Option("--prove", help="Compare each point's split output with the whole model's.")
    ] = False,
    markdown: Annotated[
        Path | None, typer.Option(help="A Markdown file whose table of models gets their rows.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where figures go.", show_default="results")] = RESULTS,
) -> None:
    """What is inside a model: what crosses at each point, and what computes on either side of it."""
    from pareto import spec

    options = {"granularity": granularity, "live_tensors": live_tensors, "fold": fold, "input": input}
    given = {name: value for name, value in options.items() if value is not None}
    asked = spec.sweep({"model": models, **given})
    from pareto import partitioning, screen

    good = partitioning.run(screen.console(), asked, out, prove=prove, document=markdown)
    raise typer.Exit(0 if good else 1)


netem_app = typer.Typer(
    help="Network profiles: what there is, and what one measures.",
    rich_markup_mode=None,
)
app.add_typer(netem_app, name="netem")


@netem_app.command("list")
def netem_list() -> None:
    """The profiles in netem_profiles/."""
    from pareto import profile_files
    from pareto.link.profile import describe

    names = profile_files.names()
    for name in names:
        typer.echo(f"{name:<{max(map(len, names))}}  {describe(profile_files.load(name))}")


@netem_app.command("check")
def netem_check(
    profiles: Annotated[
        list[str], typer.Argument(metavar="PROFILE...", help="Files, or names such as 80ms-20mbit.")
    ],
    testbed: Annotated[str, typer.Option(help="local, or a file that names hosts.")] = "local",
    hosts: Hosts = None,
    duration: Annotated[str, typer.Option(help="How long to probe each profile.")] = "5s",
    tolerance: Annotated[str, typer.Option(help="How far the link's rate may be off.")] = "2%",
    rtt_tolerance: Annotated[str, typer.Option(help="How far its round trip may be off.")] = "1%",
    rtt_floor: Annotated[str, typer.Option(help="How far its round trip may always be off.")] = "0.3ms",
    shape_at: Annotated[
        str, typer.Option(help="both, or edge: both directions there, with netem alone.")
    ] = "both",
    out: Annotated[Path, typer.Option(help="Where pictures go.", show_default="results")] = RESULTS,
) -> None:
    """Put profiles on the link and measure it: asked against measured, with a verdict and a picture over time."""
    from pareto import request, spec
    from pareto.link import units

    options = {
        "testbed": testbed,
        "tolerance": tolerance,
        "rtt_tolerance": rtt_tolerance,
        "rtt_floor": rtt_floor,
        "shape_at": shape_at,
    }
    asked = spec.sweep({"model": "any", "netem": ",".join(profiles), "hosts": hosts, **options})
    try:
        seconds = units.delay_s(duration)
    except ValueError as error:
        _refuse(f"--duration: {error}")
    from pareto import checking, screen

    loaded = request.networks_to_check(asked)
    where = (asked.testbed, asked.shape_at)
    good = checking.check(screen.console(), loaded, seconds, asked.link_tolerance, out, *where)
    raise typer.Exit(0 if good else 1)


hosts_app = typer.Typer(
    help="The hosts of a testbed file: pair with them, see them, set them up.",
    rich_markup_mode=None,
)
app.add_typer(hosts_app, name="hosts")
TestbedFile = Annotated[Path, typer.Option("--testbed", help="The testbed file.")]


@hosts_app.command("add")
def hosts_add(
    target: Annotated[
        str, typer.Argument(metavar="USER@ADDRESS", help="As for ssh; or local, for this machine.")
    ],
    role: Annotated[str, typer.Option(help="edge, middle or server.")],
    testbed: TestbedFile,
    name: Annotated[str, typer.Option(help="What to call it.  [its host name]")] = "",
    port: Annotated[int | None, typer.Option(help="Its SSH port.")] = None,
    user: Annotated[str, typer.Option(help="Whom to log in as.")] = "",
    key: Annotated[Path | None, typer.Option(help="The private key to use.")] = None,
    device: Annotated[str, typer.Option(help="cpu, or cuda:0 for the first GPU.")] = "cpu",
) -> None:
    """Pair with a host, once: check its key, put ours over, find its data interface, write it into the file."""
    from pareto.hosts import pairing

    wanted = pairing.Wanted(target, role, name, port, user, key, device)
    here = sys.stdin.isatty()
    pairing.add(
        wanted,
        testbed,
        pairing.Terminal(_say, typer.confirm if here else None, _ask if here else None),
    )


@hosts_app.command("list")
def hosts_list(testbed: TestbedFile) -> None:
    """The hosts of a testbed file, and whether they can be reached."""
    from pareto.hosts import inventory, lab, listing

    good = listing.show(inventory.load(testbed).members, lab.open_way, say=_say)
    raise typer.Exit(0 if good else 2)


@hosts_app.command("setup")
def hosts_setup(
    testbed: TestbedFile,
    host: Annotated[str, typer.Option(help="This one alone, by its name in the file.")] = "",
) -> None:
    """Make each host's Python environment, and install what shapes its link. A second time takes a second."""
    from pareto.hosts import inventory, lab, setup

    members = [it for it in inventory.load(testbed).members if host in ("", it.name)]
    if not members:
        _refuse(f"{testbed} has no host {host}" if host else f"{testbed} has no hosts: ./pareto.sh hosts add")
    ask = _ask if sys.stdin.isatty() else None
    raise typer.Exit(0 if setup.set_up(members, lab.open_way, say=_say, ask=ask) else 2)


app.add_typer(cli_bench.app, name="bench")


@app.command()
def doctor(
    testbed: Annotated[str, typer.Option(help="local, or a file that names hosts.")] = "local",
    repair: Annotated[
        bool, typer.Option("--repair", help="Remove what killed runs left on its machines.")
    ] = False,
) -> None:
    """What a testbed lacks for a sweep, with the command that mends it."""
    from pareto import doctor as examination
    from pareto import screen

    raise typer.Exit(0 if examination.examine(screen.console(), testbed, repair=repair) else 2)


def main() -> int:
    """Run the command line; returns the exit code. Bad input is one line on stderr and 2."""
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    if logging.lastResort:
        logging.lastResort.setFormatter(_Warning())
    arguments = sys.argv[1:]
    if arguments in ([], ["netem"], ["hosts"], ["bench"]):
        arguments.append("--help")
    if arguments[0].startswith("-") and arguments[0] not in ("--help", "-h", "--version"):
        arguments = ["run", *arguments]
    try:
        code = app(arguments, prog_name="./pareto.sh", standalone_mode=False)
    except typer.TyperException as usage:
        return _complain(getattr(usage, "format_message", usage.__str__)())
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted", file=sys.stderr)
        return 130
    except UserError as error:
        return _complain(str(error))
    return int(code or 0)


def _complain(message: str) -> int:
    print(f"error: {terminal(' '.join(message.split()))}", file=sys.stderr)
    return 2


def _refuse(message: str) -> NoReturn:
    raise typer.Exit(_complain(message))


def _say(text: str) -> None:
    """A line from what hosts said."""
    typer.echo(terminal(text))


class _Warning(logging.Formatter):
    """What the analysis logs, for a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return terminal(super().format(record))


def _ask(prompt: str) -> str:
    """What is typed unseen; Ctrl-D is a no."""
    try:
        return getpass(prompt)
    except EOFError:
        raise typer.Abort from None


def _interrupt(*_: Any) -> NoReturn:
    raise KeyboardInterrupt

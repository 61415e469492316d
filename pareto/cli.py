"""The command line. A command imports what is heavy when it runs, so that `--help` is quick."""

from __future__ import annotations

import errno
import functools
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from analysis.escaping import say, terminal
from pareto import COMMAND, PROFILES, RESULTS, __version__, cli_fleet, cli_help, cli_hosts, cli_reports
from pareto import options as declared
from pareto.errors import UserError, in_plain_words, lacks_memory
from pareto.options import OPTIONS

BEGAN = time.monotonic()
_OF_PATHS = (errno.ENAMETOOLONG, errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EDQUOT)
"""Faults of the folders and names that the user chose, wherever they are noticed."""
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
        say(f"pareto {__version__}")
        raise typer.Exit


OF_POINTS = ("granularity", "live_tensors", "fold", "input", "classes")
OF_DEVICES = (
    "batch_size",
    "backend",
    "testbed",
    "hosts",
    "edge_cpu",
    "threads",
    "device",
    "weights",
    "sample",
)
OF_THE_LINK = ("hosts", "tolerance", "rtt_tolerance", "rtt_floor", "shape_at")


Models = Annotated[
    str, typer.Argument(metavar="MODEL", help="A model, your own net.py:build, or several with commas.")
]


@app.command(cls=cli_help.Command, rich_help_panel=MEASURE)
@cli_help.takes(*OPTIONS)
def run(
    sweep: Annotated[
        Path | None, typer.Argument(metavar="SWEEP", help="A sweep file; options override it.")
    ] = None,
    *,
    out: Annotated[
        Path,
        typer.Option(help="Where run folders go.", show_default="results", rich_help_panel=declared.RESULTS),
    ] = RESULTS,
    resume: Annotated[
        Path | None,
        typer.Option(
            help="A run's folder: do only what is missing.",
            rich_help_panel=declared.EFFORT,
            autocompletion=cli_help.runs,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print only the plan.", rich_help_panel=declared.EFFORT)
    ] = False,
    figures: cli_reports.Figures = "auto",
    **options: Any,
) -> None:
    """Sweep models over partition points, backends and network profiles."""
    folder = None
    if resume is None:
        from pareto.checked_sweep import requested_sweep

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
    say(f"pareto: {','.join(wanted.models)} {where}")
    from pareto.run import run as run_sweep

    raise typer.Exit(run_sweep(wanted, out, folder, dry_run=dry_run, began=BEGAN, figures=figures))


for _report in (cli_reports.report, cli_reports.compare, cli_reports.advise):
    app.command(cls=cli_help.Command, rich_help_panel=CONCLUDE)(_report)


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
    json: cli_reports.Json = False,
    **options: Any,
) -> None:
    """Show what is inside a model: what crosses at each point, and what computes on either side of it."""
    from pareto.checked_sweep import make_sweep

    wanted = make_sweep({"model": models, **options})
    from pareto import partitioning
    from pareto.console import console

    good = partitioning.run(console(aside=json), wanted, out, prove=prove, document=markdown, json=json)
    raise typer.Exit(0 if good else 1)


@app.command(cls=cli_help.Command, rich_help_panel=FORESEE)
@cli_help.takes(*OF_POINTS, *OF_DEVICES, "codec")
def profile(
    models: Models,
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
    from pareto.checked_sweep import make_sweep

    wanted = make_sweep({"model": models, **options})
    from pareto import profiling
    from pareto.console import console

    profiling.run(console(), wanted, out, fresh=fresh, trace=trace)


@app.command(cls=cli_help.Command, rich_help_panel=FORESEE)
@cli_help.takes("netem", "in_flight", *OF_POINTS, *OF_DEVICES, "codec")
def predict(
    models: Models,
    *,
    out: Annotated[
        Path, typer.Option(help="Where figures go, and model profiles are kept.", show_default="results")
    ] = RESULTS,
    json: cli_reports.Json = False,
    **options: Any,
) -> None:
    """Predict the front among all splits of a model, from times of its units: no trial is run."""
    from pareto.checked_sweep import make_sweep

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
        say(f"{name:<{max(map(len, names))}}  {describe(profile_files.load(name))}")


@netem_app.command("check", cls=cli_help.Command)
@cli_help.takes(*OF_THE_LINK)
def netem_check(
    profiles: Annotated[
        list[str], typer.Argument(metavar="PROFILE", help="Files, or names such as 80ms-20mbit.")
    ],
    *,
    testbed: cli_hosts.Testbed = "local",
    duration: Annotated[str, typer.Option(help="How long to probe each profile.")] = "5s",
    out: Annotated[Path, typer.Option(help="Where pictures go.", show_default="results")] = RESULTS,
    **options: Any,
) -> None:
    """Put profiles on the link and measure it: what each asks for against what it gives, with a picture."""
    from pareto.checked_sweep import make_sweep
    from pareto.link import units
    from pareto.networks import networks_to_check

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


app.add_typer(cli_hosts.app, name="hosts", rich_help_panel=OF_HOSTS)
app.add_typer(cli_fleet.app, name="fleet", rich_help_panel=OF_HOSTS)
for _command, _example in (
    (cli_hosts.doctor, "doctor --testbed lab.yaml"),
    (cli_hosts.serve, "serve --listen 192.0.2.1"),
):
    app.command(cls=cli_help.Command, rich_help_panel=OF_HOSTS, epilog=_example)(_command)


@app.command(cls=cli_help.Command, rich_help_panel=OF_HOSTS)
def completion(
    shell: Annotated[cli_help.Shell, typer.Argument(metavar="bash|zsh|fish", help="Your shell.")],
) -> None:
    """Print what makes your shell complete commands, options and names of networks with the Tab key."""
    say(cli_help.script(shell))


@functools.cache
def commands() -> Any:
    """The commands as Typer reads them off their functions, which takes longer than a short command does."""
    return typer.main.get_command(app)


def main() -> int:
    """Run the command line; returns the exit code. Bad input is one line on stderr and 2."""
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    if logging.lastResort:
        logging.lastResort.setFormatter(_Warning())
    if cli_help.COMPLETE in os.environ:
        cli_help.complete(commands())
    arguments = sys.argv[1:]
    if arguments in ([], ["netem"], ["hosts"], ["fleet"]):
        arguments.append("--help")
    if arguments[0].startswith("-") and arguments[0] not in ("--help", "-h", "--version"):
        arguments = ["run", *arguments]
    try:
        code = commands()(arguments, prog_name=COMMAND, standalone_mode=False)
    except typer.TyperException as usage:
        return _complain(in_plain_words(getattr(usage, "format_message", usage.__str__)()))
    except (KeyboardInterrupt, typer.Abort):
        say("interrupted", aside=True)
        return 130
    except UserError as error:
        if lacks_memory(error):  # no fault of what the user gave
            raise
        return _complain(str(error))
    except OSError as error:
        if error.errno not in _OF_PATHS:
            raise
        return _complain(f"{error.filename or 'a file'}: {error.strerror}")
    return int(code or 0)


def _complain(message: str) -> int:
    say(f"error: {' '.join(message.split())}", aside=True)
    return 2


class _Warning(logging.Formatter):
    """What the analysis logs, for a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return terminal(super().format(record))


def _interrupt(*_: Any) -> NoReturn:
    raise KeyboardInterrupt

"""The command line. A command imports what is heavy when it runs, so that `--help` is quick."""

from __future__ import annotations

import errno
import functools
import logging
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import typer

from pareto import COMMAND, PROFILES, RESULTS, __version__
from pareto.basics.escaping import say, terminal
from pareto.commands import advise, backend, compare, hosts, report, runs, show
from pareto.commands import help as cli_help
from pareto.commands.help import FORESEE, MEASURE, app, argument, command, option, takes, typed
from pareto.protocol.errors import UserError, in_plain_words, lack_of_memory
from pareto.sweep import options as declared
from pareto.sweep.options import OPTIONS

BEGAN = time.monotonic()
_OF_PATHS = (errno.ENAMETOOLONG, errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EDQUOT)
"""Faults of the folders and names that the user chose, wherever they are noticed."""
_MOVED = {
    "predict": "advise --model MODEL --netem NETWORK",
    "profile": "partitions MODEL --times",
    "netem check": "doctor --link NETWORK",
    "completion": "--install-completion",
}
"""Commands as they are now, by what earlier versions called them."""
_OTHERS = (hosts, backend, runs, report, show, compare, advise)
"""Modules with the other commands."""
_TIMES = "With --times"


@app.callback(invoke_without_command=True)
def _options(version: bool = option(False, "Print the version.", "--version")) -> None:
    if version:
        say(f"pareto {__version__}")
        raise typer.Exit


@command(
    MEASURE,
    "--model mobilenetv2 --netem 80ms-20mbit --quick",
    "--model mobilenetv2 --netem lte,wifi --until 5%",
    "run sweeps/neurosurgeon.yaml --dry-run",
)
@takes(*OPTIONS)
def run(
    sweep: Path | None = argument("SWEEP", "A sweep file; options override it.", None),
    *,
    out: Path = cli_help.out("Where run folders go.  [results]", head=declared.RESULTS),
    resume: Path | None = option(
        None,
        "A run's folder: do only what is missing.",
        kind="RUN",
        head=declared.EFFORT,
        autocompletion=cli_help.runs,
    ),
    dry_run: bool = option(False, "Print only the plan.", "--dry-run", head=declared.EFFORT),
    figures: cli_help.Which = cli_help.FIGURES,
    **options: Any,
) -> None:
    """Sweep models over partition points, backends and network profiles."""
    folder = None
    if resume is None:
        from pareto.sweep.checked_sweep import requested_sweep

        wanted = requested_sweep(sweep, typed(options))
    else:
        from pareto.basics.console import console
        from pareto.driver.manifest import resumed_sweep

        (folder,) = report.run_folders(console(), [resume], out)
        if sweep is not None:
            raise UserError("--resume takes its settings from the run: leave the sweep file out")
        wanted = resumed_sweep(folder, typed(options))
    where = f"on the {wanted.alone} alone" if wanted.alone else f"at {','.join(wanted.netems)}"
    say(f"pareto: {','.join(wanted.models)} {where}")
    from pareto.commands.run import run as run_sweep

    raise typer.Exit(run_sweep(wanted, out, folder, dry_run=dry_run, began=BEGAN, figures=figures))


@command(cli_help.CONCLUDE, "artifact results/example --claims results/example/claims.yaml")
def artifact(
    runs: list[Path] = argument("RUN", "Folders of runs.", ..., cli_help.runs),
    claims: Path = option(..., "What the paper claims of them: a file as of `compare`.", kind="FILE"),
    out: Path = cli_help.out("A new folder, or a zip.  [results/artifact]", RESULTS / "artifact"),
) -> None:
    """Make one folder or zip of a paper's runs, with the source, sweeps, claims and verdicts, for its evaluation."""
    from pareto.basics.console import console
    from pareto.commands.artifact import make

    make(screen := console(), report.run_folders(screen, runs, RESULTS), claims, out)


@command(
    FORESEE,
    "partitions mobilenetv2",
    "partitions resnet50 --granularity op --prove",
    "partitions mobilenetv2 --times --testbed lab.yaml",
)
@takes("batch_size", *declared.OF_DEVICES, head=_TIMES)
@takes(*declared.OF_POINTS)
def partitions(
    context: typer.Context,
    models: str = argument("MODEL", "A model, your own net.py:build, several with commas, or all."),
    *,
    prove: bool = option(False, "Compare each point's split output with the whole model's.", "--prove"),
    markdown: Path | None = option(None, "A Markdown file whose table of models to update.", kind="FILE"),
    times: bool = option(False, "Time each unit on each device, and what each backend adds.", "--times"),
    fresh: bool = option(False, "Time also what was timed before.", "--fresh", head=_TIMES),
    trace: Path | None = option(
        None, "A file for Perfetto to open: a row a device, a slice a unit.", kind="FILE", head=_TIMES
    ),
    out: Path = cli_help.out("Where figures go, and in profiles/ times.  [results]"),
    json: bool = cli_help.JSON,
    **options: Any,
) -> None:
    """Show what is inside a model: what crosses at each point, and what computes on either side of it.

    With --times: what each unit takes on each device of a testbed, and what each backend adds on each link.
    """
    of_times = {"--batch-size", "--fresh", "--trace", *(OPTIONS[name].typed for name in declared.OF_DEVICES)}
    wrong, how = ({"--prove", "--markdown"}, "not") if times else (of_times, "only")
    cli_help.refuse(cli_help.given(context) & wrong, f"{how} with --times")
    from pareto.sweep.checked_sweep import make_sweep

    wanted = make_sweep({"model": models, **typed(options)})
    from pareto.basics.console import console
    from pareto.commands import partitions as partitioning
    from pareto.commands import unit_times

    if times:
        screen = console(aside=json)
        unit_times.run(screen, wanted, out / PROFILES.name, fresh=fresh, trace=trace, as_object=json)
        return
    good = partitioning.run(console(aside=json), wanted, out, prove=prove, document=markdown, json=json)
    raise typer.Exit(0 if good else 1)


@command(cli_help.group("netem", "Network profiles: which there are.", MEASURE), "netem list", name="list")
def netem_list() -> None:
    """List the profiles in netem_profiles/."""
    from pareto.remote.link.profile import describe
    from pareto.sweep import profile_files

    names = profile_files.names()
    for name in names:
        say(f"{name:<{max(map(len, names))}}  {describe(profile_files.load(name))}")


@functools.cache
def commands() -> Any:
    """The commands as Typer reads them off their functions, which takes longer than a short command does."""
    return typer.main.get_command(app)


def main() -> int:
    """Run the command line; returns the exit code. Bad input is one line on stderr and 2."""
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    if logging.lastResort:  # the analysis' log lines
        logging.lastResort.format = lambda record: terminal(record.getMessage())  # type: ignore[method-assign]
    words = sys.argv[1:]
    for old, new in _MOVED.items():
        if words[: len(old.split())] == old.split():
            return _complain(f"{old} is now {COMMAND} {new}")
    try:
        code = commands()(words, prog_name=Path(COMMAND).name, standalone_mode=False)
    except typer.TyperException as usage:
        return _complain(in_plain_words(getattr(usage, "format_message", usage.__str__)()))
    except (KeyboardInterrupt, typer.Abort):
        say("interrupted", aside=True)
        return 130
    except UserError as error:
        if lack_of_memory(error):  # no fault of what the user gave
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


def _interrupt(*_: Any) -> NoReturn:
    raise KeyboardInterrupt

"""The commands about a fleet that is more than one run's: `fleet certificates`, `fleet scheduler`, `fleet join`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from analysis.escaping import say
from pareto import cli_help
from pareto.errors import UserError

Certificates = Annotated[
    Path | None, typer.Option(help="With tls://: the folder that fleet certificates wrote.")
]
app = typer.Typer(
    cls=cli_help.Group,
    help="Testbeds on many machines, on which one sweep measures at once (run --cluster).",
    rich_markup_mode=None,
)


@app.command(cls=cli_help.Command)
def certificates(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where they go: a folder without any.")],
) -> None:
    """Write the certificate that lets a machine into a fleet, which each of its machines gets a copy of."""
    from pareto.fleet.certificates import write_certificates

    write_certificates(folder)
    say(f"{folder}/: copy it to each machine of the fleet; whoever has it may run code on all of them")


@app.command(cls=cli_help.Command)
def scheduler(
    listen: Annotated[str, typer.Option(metavar="ADDRESS", help="Where it listens: tls://HOST:PORT.")],
    certificates: Certificates = None,
) -> None:
    """Run the scheduler that testbeds join and sweeps are measured at, until Ctrl-C."""
    from pareto.fleet import cluster

    pems = cluster.checked("--listen", listen, certificates)
    cluster.require()
    cluster.serve(listen, pems, say)


@app.command(cls=cli_help.Command)
def join(
    scheduler: Annotated[str, typer.Option(metavar="ADDRESS", help="The scheduler: tls://HOST:PORT.")],
    testbed: Annotated[str, typer.Option(help="local, or a file that names hosts.")] = "local",
    certificates: Certificates = None,
) -> None:
    """Let the sweeps at a scheduler measure on a testbed of this machine's, until Ctrl-C."""
    from pareto.checked_sweep import make_sweep
    from pareto.fleet import cluster, member
    from pareto.fleet.testbeds import member_name, several, spelled_out, this_host
    from pareto.hosts.testbed import require_testbed

    pems = cluster.checked("--scheduler", scheduler, certificates)
    try:
        (testbed,) = several(spelled_out(testbed))
    except ValueError:
        raise UserError(f"--testbed {testbed}: name one testbed, and join once for each") from None
    wanted = make_sweep({"model": "any", "testbed": testbed})
    if not wanted.simulated:
        require_testbed(testbed)
    member.join(scheduler, pems, testbed, member_name(testbed, this_host()), say, stays=True)

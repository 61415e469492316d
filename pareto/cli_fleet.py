"""The commands about a fleet that is more than one run's: `fleet certificates`, `fleet scheduler`, `fleet join`."""

from __future__ import annotations

from pathlib import Path

from analysis.escaping import say
from pareto.cli_help import OF_HOSTS, argument, command, group, option
from pareto.errors import UserError

_CERTIFICATES = option(None, "With tls://: the folder that fleet certificates wrote.", kind="FOLDER")
app = group(
    "fleet", "Testbeds on many machines, on which one sweep measures at once (run --cluster).", OF_HOSTS
)


@command(app, "fleet certificates lab")
def certificates(
    folder: Path = argument("DIR", "Where they go: a folder without any."),
) -> None:
    """Write the certificate that lets a machine into a fleet, which each of its machines gets a copy of."""
    from pareto.fleet.certificates import write_certificates

    write_certificates(folder)
    say(f"{folder}/: copy it to each machine of the fleet; whoever has it may run code on all of them")


@command(app, "fleet scheduler --listen tls://192.0.2.1:8786 --certificates lab")
def scheduler(
    listen: str = option(..., "Where it listens: tls://HOST:PORT.", kind="ADDRESS"),
    certificates: Path | None = _CERTIFICATES,
) -> None:
    """Run the scheduler that testbeds join and sweeps are measured at, until Ctrl-C."""
    from pareto.fleet import cluster

    pems = cluster.checked("--listen", listen, certificates)
    cluster.require()
    cluster.serve(listen, pems, say)


@command(app, "fleet join --scheduler tls://192.0.2.1:8786 --certificates lab --testbed lab1.yaml")
def join(
    scheduler: str = option(..., "The scheduler: tls://HOST:PORT.", kind="ADDRESS"),
    testbed: str = option("local", "local, or a file that names hosts.", kind="FILE"),
    certificates: Path | None = _CERTIFICATES,
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

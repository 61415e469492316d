"""The commands about hosts: `hosts add`, `hosts list`, `hosts setup`, `doctor`, `serve`, and of fleets `fleet join`."""

from __future__ import annotations

import platform
import sys
from dataclasses import replace
from getpass import getpass
from pathlib import Path
from typing import Any

import typer

from pareto import COMMAND
from pareto.basics.escaping import say
from pareto.commands import help as cli_help
from pareto.commands.help import OF_HOSTS, argument, command, given, group, option, refuse, takes, typed
from pareto.protocol.errors import UserError
from pareto.sweep.options import OF_LINKS

fleet = group(
    "fleet", "Testbeds on many machines, on which one sweep measures at once (run --cluster).", OF_HOSTS
)
app = group("hosts", "The hosts of a testbed file: pair with them, see them, set them up.", OF_HOSTS)
_TESTBED = option(..., "The testbed file.", "--testbed", kind="FILE")
_LINK = "With --link"


@command(app, "hosts add pi@192.0.2.7 --role edge --testbed lab.yaml")
def add(
    target: str = argument("USER@ADDRESS", "As for ssh; or local, for this machine."),
    role: str = option(..., "edge, middle or server."),
    testbed: Path = _TESTBED,
    name: str = option("", "What to call it.  [its host name]"),
    port: int | None = option(None, "Its SSH port.", kind="N"),
    user: str = option("", "The user to log in as."),
    key: Path | None = option(None, "The private key; - reads the word that serve prints.", kind="FILE"),
    device: str = option("cpu", "cpu, or cuda:0 for the first GPU."),
    data_address: str = option(
        "", "Its address on the data link.  [the fastest that reaches the other host]", kind="ADDRESS"
    ),
) -> None:
    """Pair with a host, once: check its key, copy ours to it, find its data interface, write it into the file."""
    from pareto.hosts.inventory import PORT, HostEntry
    from pareto.hosts.setup import pair
    from pareto.hosts.ssh import testbed as ssh_testbed

    if PORT.search(target):
        raise UserError(f"{target}: a port is an option of its own, as in --port 2222")
    wanted = HostEntry(name, role, target, data_address, port=port, user=user, key=key, device=device)
    here = sys.stdin.isatty()
    terminal = pair.Terminal(say, typer.confirm if here else None, _ask if here else None)
    if key != Path("-"):
        pair.add(wanted, testbed, terminal, ssh_testbed.connect)
        return
    from pareto.hosts.setup import invitation

    line = _ask("what serve prints between echo and |: ") if here else sys.stdin.readline()
    invited = invitation.parse(line)
    kept = testbed.absolute().with_name(f"{testbed.stem}-{role}-{target.rpartition('@')[2]}.pem")
    wanted = replace(
        wanted, key=kept, host_key=invitation.public_line(invited.host_key), python=invited.python
    )
    with invitation.kept(invited, kept):
        pair.add(wanted, testbed, terminal, ssh_testbed.connect)


@command(app, "hosts list --testbed lab.yaml", name="list")
def list_(testbed: Path = _TESTBED) -> None:
    """List the hosts of a testbed file, and whether they can be reached."""
    from pareto.hosts import inventory
    from pareto.hosts.setup import hosts as setup
    from pareto.hosts.ssh import testbed as ssh_testbed

    good = setup.list_hosts(inventory.all_hosts(testbed), ssh_testbed.connect, say=say)
    raise typer.Exit(0 if good else 2)


@command(app, "hosts setup --testbed lab.yaml")
def setup(
    testbed: Path = _TESTBED,
    host: str = option("", "Only this one, by its name in the file."),
    engine: str = option("", "Install what this engine needs, too: onnx."),
) -> None:
    """Make each host's Python environment, and install what shapes its link. A second time takes a second."""
    from pareto.hosts import inventory
    from pareto.hosts.setup import hosts as setup
    from pareto.hosts.ssh import testbed as ssh_testbed

    hosts = [entry for entry in inventory.all_hosts(testbed) if host in ("", entry.name)]
    if not hosts:
        raise UserError(f"{testbed} has no {f'host {host}' if host else f'hosts: {COMMAND} hosts add'}")
    if engine not in ("", "onnx"):
        raise UserError(f"--engine {engine}: onnx alone needs packages of its own (docs/engines.md)")
    ask = _ask if sys.stdin.isatty() else None
    good = setup.set_up(hosts, ssh_testbed.connect, say=say, ask=ask, with_engines=engine != "")
    raise typer.Exit(0 if good else 2)


@command(OF_HOSTS, "doctor --testbed lab.yaml", "doctor --link 80ms-20mbit,lte --duration 10s")
@takes(*OF_LINKS, head=_LINK)
def doctor(
    context: typer.Context,
    *,
    testbed: str = option("local", "local, or a file that names hosts.", kind="FILE"),
    repair: bool = option(False, "Remove what killed runs left on its machines.", "--repair"),
    link: str = option("", "Measure the link under these networks, with a picture of each.", kind="NAME,..."),
    duration: str = option("5s", "How long to probe each network.", kind="TIME", head=_LINK),
    out: Path = cli_help.out("Where pictures go.  [results]", head=_LINK),
    **options: Any,
) -> None:
    """Show what a testbed lacks for a sweep, each with the command that fixes it; or what its link measures."""
    from pareto.basics.console import console

    if not link:
        refuse(given(context) - {"--testbed", "--repair"}, "only with --link")
        from pareto.commands import doctor as examination

        raise typer.Exit(0 if examination.examine(console(), testbed, repair=repair) else 2)
    refuse(given(context) & {"--repair"}, "not with --link")
    from pareto.remote.link.units import delay_s
    from pareto.sweep.checked_sweep import make_sweep

    wanted = make_sweep({"model": "any", "netem": link, "testbed": testbed, **typed(options)})
    seconds = delay_s(duration, "--duration")
    from pareto.commands import link_check

    raise typer.Exit(0 if link_check.check(console(), wanted, seconds, out) else 1)


@command(OF_HOSTS, "serve", "serve --listen 192.0.2.1:7410")
def serve(
    listen: str = option(
        "",
        "This machine's address towards the other one.  [the only one; any free port]",
        kind="ADDRESS[:PORT]",
    ),
) -> None:
    """Let another machine measure on this one: an SSH server of your own until Ctrl-C, and a line to paste there."""
    from pareto.hosts.setup import serve

    raise typer.Exit(serve.serve(listen, say))


@command(
    fleet,
    "fleet join --scheduler tls://192.0.2.1:8786 --testbed lab1.yaml --tls-ca-file ca.pem --tls-cert lab.pem "
    "--tls-key lab-key.pem",
)
def join(
    scheduler: str = option(..., "dask's scheduler: tls://HOST:PORT.", kind="ADDRESS"),
    testbed: str = option("local", "local, or a file that names hosts.", kind="FILE"),
    name: str = option("", "What rows call it.  [lab1@HOST for lab1.yaml]", kind="NAME"),
    tls_ca_file: Path | None = option(None, "The authority of its certificates.", kind="FILE"),
    tls_cert: Path | None = option(None, "This machine's certificate.", kind="FILE"),
    tls_key: Path | None = option(None, "Its key.", kind="FILE"),
) -> None:
    """Let the sweeps at a scheduler measure on a testbed of this machine's, until Ctrl-C."""
    from pareto.driver.fleet import cluster, member
    from pareto.hosts.access import require_testbed
    from pareto.sweep.checked_sweep import make_sweep

    let_in = cluster.security("--scheduler", scheduler, (tls_ca_file, tls_cert, tls_key))
    wanted = make_sweep({"model": "any", "testbed": testbed})
    if not wanted.simulated:
        require_testbed(wanted.testbed)
    member.join(scheduler, let_in, wanted.testbed, name or f"{wanted.testbed_name}@{platform.node()}", say)


def _ask(prompt: str) -> str:
    """The text that is typed unseen; Ctrl-D is a no."""
    try:
        return getpass(prompt)
    except EOFError:
        raise typer.Abort from None

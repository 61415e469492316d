"""The commands about hosts: `hosts add`, `hosts list`, `hosts setup`, `doctor` and `serve`."""

from __future__ import annotations

import sys
from dataclasses import replace
from getpass import getpass
from pathlib import Path
from typing import Annotated

import typer

from analysis.escaping import say
from pareto import COMMAND, cli_help
from pareto.errors import UserError

Testbed = Annotated[str, typer.Option(help="local, or a file that names hosts.")]
app = typer.Typer(
    cls=cli_help.Group,
    help="The hosts of a testbed file: pair with them, see them, set them up.",
    rich_markup_mode=None,
)
TestbedFile = Annotated[Path, typer.Option("--testbed", help="The testbed file.")]


@app.command(cls=cli_help.Command)
def add(
    target: Annotated[
        str, typer.Argument(metavar="USER@ADDRESS", help="As for ssh; or local, for this machine.")
    ],
    role: Annotated[str, typer.Option(help="edge, middle or server.")],
    testbed: TestbedFile,
    name: Annotated[str, typer.Option(help="What to call it.  [its host name]")] = "",
    port: Annotated[int | None, typer.Option(help="Its SSH port.")] = None,
    user: Annotated[str, typer.Option(help="The user to log in as.")] = "",
    key: Annotated[
        Path | None, typer.Option(help="The private key to use; - reads the word that serve prints.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, or cuda:0 for the first GPU.")] = "cpu",
    data_address: Annotated[
        str, typer.Option(help="Its address on the data link.  [the fastest that reaches the other host]")
    ] = "",
) -> None:
    """Pair with a host, once: check its key, copy ours to it, find its data interface, write it into the file."""
    from pareto.hosts import pairing, ssh_testbed
    from pareto.hosts.inventory import PORT, HostEntry

    if PORT.search(target):
        raise UserError(f"{target}: a port is an option of its own, as in --port 2222")
    wanted = HostEntry(name, role, target, data_address, port=port, user=user, key=key, device=device)
    here = sys.stdin.isatty()
    terminal = pairing.Terminal(say, typer.confirm if here else None, _ask if here else None)
    if key != Path("-"):
        pairing.add(wanted, testbed, terminal, ssh_testbed.connect)
        return
    from pareto.hosts import invitation

    invited = invitation.parse(
        _ask("what serve prints between echo and |: ") if here else sys.stdin.readline()
    )
    kept = testbed.absolute().with_name(f"{testbed.stem}-{role}-{target.rpartition('@')[2]}.pem")
    wanted = replace(wanted, key=kept, host_key=invited.host_line, python=invited.python)
    with invitation.kept(invited, kept):
        pairing.add(wanted, testbed, terminal, ssh_testbed.connect)


@app.command("list", cls=cli_help.Command)
def list_(testbed: TestbedFile) -> None:
    """List the hosts of a testbed file, and whether they can be reached."""
    from pareto.hosts import inventory, setup, ssh_testbed

    good = setup.list_hosts(inventory.all_hosts(testbed), ssh_testbed.connect, say=say)
    raise typer.Exit(0 if good else 2)


@app.command(cls=cli_help.Command)
def setup(
    testbed: TestbedFile,
    host: Annotated[str, typer.Option(help="Only this one, by its name in the file.")] = "",
    engine: Annotated[str, typer.Option(help="Install what this engine needs, too: onnx.")] = "",
) -> None:
    """Make each host's Python environment, and install what shapes its link. A second time takes a second."""
    from pareto.hosts import inventory, setup, ssh_testbed

    hosts = [entry for entry in inventory.all_hosts(testbed) if host in ("", entry.name)]
    if not hosts:
        raise UserError(
            f"{testbed} has no host {host}" if host else f"{testbed} has no hosts: {COMMAND} hosts add"
        )
    if engine not in ("", "onnx"):
        raise UserError(f"--engine {engine}: onnx alone needs packages of its own (docs/engines.md)")
    ask = _ask if sys.stdin.isatty() else None
    good = setup.set_up(hosts, ssh_testbed.connect, say=say, ask=ask, with_engines=engine != "")
    raise typer.Exit(0 if good else 2)


def doctor(
    testbed: Testbed = "local",
    repair: Annotated[
        bool, typer.Option("--repair", help="Remove what killed runs left on its machines.")
    ] = False,
) -> None:
    """Show what a testbed lacks for a sweep, each with the command that fixes it."""
    from pareto import doctor as examination
    from pareto.console import console

    raise typer.Exit(0 if examination.examine(console(), testbed, repair=repair) else 2)


def serve(
    listen: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS[:PORT]",
            help="This machine's address towards the other one.  [the only one; any free port]",
        ),
    ] = "",
) -> None:
    """Let another machine measure on this one: an SSH server of your own until Ctrl-C, and a line to paste there."""
    from pareto.hosts import serve

    raise typer.Exit(serve.serve(listen, say))


def _ask(prompt: str) -> str:
    """What is typed unseen; Ctrl-D is a no."""
    try:
        return getpass(prompt)
    except EOFError:
        raise typer.Abort from None

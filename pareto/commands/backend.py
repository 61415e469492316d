"""The command `backend check`: does a backend do what every backend must?"""

from __future__ import annotations

import time

import typer

from pareto.basics.escaping import say
from pareto.commands.help import MEASURE, argument, command, group
from pareto.protocol.errors import UserError

app = group("backend", "Backends: whether one of your own does what each must.", MEASURE)


@command(app, "backend check mine.py:Transport")
def check(
    backend: str = argument("BACKEND", "Your own mine.py:Transport, or one that is here, as tcp or zmq."),
) -> None:
    """Check a backend between two processes on this machine: what comes, in which order, and what a fault does."""
    from pareto.remote.backends import registry
    from pareto.testing.checks import CHECKS
    from pareto.testing.ends import verdict

    try:
        name = registry.parse(backend)
    except ValueError as error:
        raise UserError(str(error)) from None
    if own := registry.OWN.own(backend):
        own.digest()  # it can be read
    wrong = 0
    for words, each in CHECKS.items():
        began = time.monotonic()
        fault = verdict(backend, each)
        wrong += bool(fault)
        say(f"{'FAULT' if fault else 'ok':<6}{words}  ({time.monotonic() - began:.1f} s)")
        for line in fault.splitlines():
            say(f"      {line}")
    say(f"{name}: {len(CHECKS) - wrong} of {len(CHECKS)} checks are ok")
    raise typer.Exit(1 if wrong else 0)

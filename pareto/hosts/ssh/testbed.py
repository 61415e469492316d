"""A testbed of real hosts, as a testbed file describes it: reached by SSH, examined before anything is started."""

from __future__ import annotations

import functools
import getpass
import sys
from collections.abc import Container, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from functools import partial
from itertools import pairwise
from typing import Any

from pareto import COMMAND
from pareto.hosts import parcels
from pareto.hosts.connection import FAULTS, Connection, NotAdmitted, ThisMachine, Unreachable
from pareto.hosts.host import EDGE, End, Host, Say, TestbedError, to_stderr
from pareto.hosts.inventory import METER, HostEntry, Inventory
from pareto.hosts.leases import HostLeases
from pareto.hosts.session import SessionError, SessionLost
from pareto.hosts.setup import checkup
from pareto.hosts.setup.finding import Case, Finding
from pareto.hosts.shapers import who_shapes
from pareto.hosts.ssh import login
from pareto.hosts.ssh.connection import SshConnection
from pareto.hosts.ssh.keys import Keyring
from pareto.hosts.testbed import Link, Remote, Testbed, on_each, shaped_links

Examined = tuple[Case, Sequence[Finding], Remote]
"""A host that was reached: what it reports, what that means for a sweep, and how to reach it."""


def shaping(file: Inventory, shape_at: str = "both") -> list[tuple[str, ...]]:
    """The roles of the hosts that shape each link: in a chain of more than two hosts the one on the edge's side.

    So no host shapes two links, which it may have on one interface. Raises TestbedError as `Inventory.roles` does.
    """
    roles = list(file.roles)
    return [who_shapes(*pair, shape_at if len(roles) == 2 else EDGE) for pair in pairwise(roles)]


@functools.cache
def keyring() -> Keyring:
    """The user's own keys; a passphrase is asked for once."""
    return Keyring(getpass.getpass if sys.stdin.isatty() else None)


def connect(entry: HostEntry, keys: Keyring | None = None) -> Connection:
    """Log in to a host of a testbed file, with the user's keys by default. Raises Unreachable, TestbedError."""
    if entry.is_this_machine:
        return ThisMachine()
    who = login.resolve(entry)
    connection = SshConnection(who, keys or keyring())
    if printed := connection.run("true").out.strip():
        connection.close()
        raise Unreachable(
            f"{who}: its login shell says {printed.splitlines()[0][:40]!r} by itself: have its start-up file say "
            "nothing where there is no terminal"
        )
    return connection


def open_ssh_testbed(
    file: Inventory,
    *,
    shaped: bool,
    shape_at: str = "both",
    alone: str = "",
    wait_s: float = 0.0,
    say: Say = to_stderr,
) -> Testbed:
    """The testbed of a file. Raises TestbedError, with what the doctor would say, where no sweep would run.

    shaped: whether any profile asks for more than the link as it is. For the others see `open_local`.
    """
    entries = {alone: file.one(alone)} if alone else file.roles
    shapers = shaping(file, shape_at) if shaped else [()] * (len(entries) - 1)
    with ExitStack() as undo:
        try:
            connections = _logged_in(entries, undo)
            shapes = {role for roles in shapers for role in roles}
            fit = partial(_fit, file=file, shapes=shapes, alone=alone != "")
            hosts = on_each({role: partial(fit, each, role) for role, each in connections.items()})
            remotes = {EDGE if alone else role: remote for role, (_, _, remote) in hosts.items()}
            leases = HostLeases(remotes, wait_s, say)
            undo.callback(leases.close)
            try:
                leases.take()
            except FAULTS as error:
                raise TestbedError(f"the hosts cannot be held for this run: {error}") from error
            links = _links(hosts, shapers, undo)
        except Unreachable as error:
            raise TestbedError(str(error)) from error
        except (SessionError, SessionLost, TimeoutError) as error:
            raise TestbedError(f"the link cannot be shaped: {error}") from error
        label = ", ".join(
            f"{f'the {role} alone,' if alone else role} {remote.host.name} ({remote.host.device})"
            for role, (_, _, remote) in hosts.items()
        )
        facts, rest = _facts(hosts, links, shaped=shaped), undo.pop_all()
        bed = Testbed(remotes, links, label, facts, is_local=False, undo=rest, hold=leases.take)
        if links:
            bed.watch_links = leases.watch_links
        return bed


def _logged_in(entries: Mapping[str, HostEntry], undo: ExitStack) -> dict[str, Connection]:
    """The connections to all hosts, which `undo` closes. Raises Unreachable, TestbedError.

    All are logged in to at the same time, by keys that need no passphrase; then those for which the user must be asked.
    """
    unasked = Keyring()

    def log_in(entry: HostEntry, keys: Keyring) -> Connection:
        connection = connect(entry, keys)
        undo.callback(connection.close)
        return connection

    def log_in_unasked(entry: HostEntry) -> Connection | None:
        with suppress(NotAdmitted):
            return log_in(entry, unasked)
        return None

    admitted = on_each({role: partial(log_in_unasked, entry) for role, entry in entries.items()})
    return {role: admitted[role] or log_in(entry, keyring()) for role, entry in entries.items()}


def _fit(
    connection: Connection, role: str, *, file: Inventory, shapes: Container[str], alone: bool
) -> Examined:
    """A host that a sweep would run on; `shapes`: the roles that shape a link. Raises TestbedError, Unreachable."""
    case, findings = checkup.examine(connection, file, role, shaped=role in shapes, alone=alone)
    entry = case.entry
    fatal = next((finding for finding in findings if finding.fatal), None)
    if fatal is not None:
        fix = f"; fix it with: {fatal.fix}" if fatal.fix else ""
        raise TestbedError(
            f"{entry.name}: {fatal.what}: {fatal.words}{fix} (more: {COMMAND} doctor --testbed {file.path})"
        )
    interface = case.interface(case.sides[0]) if case.sides else "lo"
    folder, python = parcels.absolute(connection, entry.folder), str(case["executable"])
    meter = METER.own(entry.meter)
    host = Host(
        *(entry.name, entry.data_address, interface, folder, python, entry.device, entry.threads), meter=meter
    )
    return case, findings, Remote(host, connection)


def _links(
    hosts: Mapping[str, Examined], shapers: Sequence[tuple[str, ...]], undo: ExitStack
) -> tuple[Link, ...]:
    def end(role: str, number: int) -> End:
        case, _, _ = hosts[role]
        return End(role, case.sides[number].address, case.interface(case.sides[number]))

    ends = [(end(near, -1), end(far, 0)) for near, far in pairwise(hosts)]
    starts = {
        role: partial(remote.start_privileged, as_root=case["uid"] == 0)
        for role, (case, _, remote) in hosts.items()
    }
    # The interface is not ours alone; and the driver may reach one host through the other, or be one of them.
    return shaped_links(ends, shapers, starts, undo, filtered=True)


def _facts(hosts: Mapping[str, Examined], links: Sequence[Link], *, shaped: bool) -> dict[str, Any]:
    return {
        "kind": "hosts",
        "shaper": "netem" if shaped else "none",
        "hosts": {
            role: {
                **{key: getattr(case.entry, key) for key in ("name", "ssh", "data_address", "device")},
                "data_interface": remote.host.data_interface,
                "findings": [f"{finding.what}: {finding.words}" for finding in findings if finding.fix],
            }
            for role, (case, findings, remote) in hosts.items()
        },
        "links": [{"near": asdict(link.near), "far": asdict(link.far)} for link in links],
    }

"""`hosts setup` and `hosts list`: what the hosts of a testbed file need, put there once; and whether they have it."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial

from pareto.hosts import leases, parcels
from pareto.hosts.connection import Connection, Outcome, Unreachable
from pareto.hosts.host import Host, Say, TestbedError
from pareto.hosts.inventory import HostEntry
from pareto.hosts.setup import packages, privileged
from pareto.hosts.setup.packages import ReachedHost
from pareto.hosts.testbed import Remote, on_each
from pareto.protocol.errors import UserError

ANSWER_S = 30.0
"""How long `list_hosts` waits for all hosts together: a GPU's driver that nobody uses needs seconds to answer."""
_INSTALL_S = 300.0
"""How long a slow host may take to unpack and compile the program that shapes the link."""
Connect = Callable[[HostEntry], Connection]


def set_up(
    hosts: Sequence[HostEntry],
    connect: Connect,
    *,
    say: Say,
    ask: Callable[[str], str] | None,
    with_engines: bool = False,
) -> bool:
    """Set the hosts up side by side, with the host's name before each line; returns whether all of it is done.

    `ask` gets the user's password for sudo there, given a prompt; None where there is no terminal. Passwords come
    first, so that nobody has to wait for the question. with_engines: what engines need that come as packages, too.
    """
    saying = threading.Lock()

    def say_of(host: HostEntry, words: str) -> None:
        with saying:
            say(f"{host.name}: {words}")

    def reached(host: HostEntry) -> ReachedHost | None:
        try:
            return _reach(host, connect, partial(say_of, host))
        except (Unreachable, TestbedError) as error:
            say_of(host, f"not reached: {error}")
            return None

    def contained(site: ReachedHost, step: Callable[[], None]) -> None:
        """Do a step; where it fails that is said, and the other hosts go on."""
        try:
            step()
        except (UserError, Unreachable) as error:
            site.ready = False
            site.say(str(error))

    sites = [site for site in on_each({host: partial(reached, host) for host in hosts}).values() if site]
    try:
        for site in sites:
            contained(site, partial(_provide_helper, site, ask))
        provide = {site.entry: partial(packages.provide, site, with_engines) for site in sites}
        on_each({site.entry: partial(contained, site, provide[site.entry]) for site in sites})
    finally:
        for site in sites:
            site.connection.close()
    for site in sites:
        done = "set up" if site.changed else "set up already"
        site.say(done if site.ready else "not set up: see above")
    return len(sites) == len(hosts) and all(site.ready for site in sites)


def list_hosts(hosts: Sequence[HostEntry], connect: Connect, *, say: Say, within_s: float = ANSWER_S) -> bool:
    """Say a table with a line for each host; returns whether all are reachable."""
    states = dict.fromkeys(hosts, (False, f"no answer in {within_s:g} s"))
    states |= on_each({host: partial(_state, host, connect) for host in hosts}, within_s)
    rows = [("name", "role", "ssh", "data address", "device", "state")]
    for host, (_, words) in states.items():
        sides = ((host.data_address, host.data_interface), (host.next_address, host.next_interface))
        addresses = ", ".join(f"{own} ({card})" if card else own for own, card in sides if own)
        rows.append((host.name, host.role, host.ssh, addresses, host.device, words))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        say("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
    return all(reachable for reachable, _ in states.values())


def _state(host: HostEntry, connect: Connect) -> tuple[bool, str]:
    """Whether the host is reachable, and what to say of it."""
    try:
        site = _reach(host, connect, lambda words: None)
        with closing(site.connection):
            has_packages = packages.are_there(site)
            state = "set up" if has_packages and _helper_is_current(site) else "not set up"
            # Links that stay as they are can be measured without the helper.
            python = host.python or f"{site.venv}/bin/python"
            there = Host(host.name, host.data_address, host.data_interface, site.folder, python)
            used = leases.used(Remote(there, site.connection)) if has_packages else ""
    except (Unreachable, TestbedError) as error:
        return False, str(error)
    return True, f"reachable, {state}; {used}" if used else f"reachable, {state}"


def _reach(entry: HostEntry, connect: Connect, say: Say) -> ReachedHost:
    """Log in, and see as whom. Raises Unreachable, TestbedError."""
    connection = connect(entry)
    try:
        folder = parcels.absolute(connection, entry.folder)
        number, _, user = connection.run("id -u; id -un").out.strip().partition("\n")
    except BaseException:
        connection.close()
        raise
    return ReachedHost(entry, connection, say, folder, user, is_root=number == "0")


def _provide_helper(site: ReachedHost, ask: Callable[[str], str] | None) -> None:
    """Install the program that shapes the link. Raises TestbedError, Unreachable."""
    if _helper_is_current(site):
        return
    connection = site.connection
    if connection.run("command -v sudo").status != 0:
        raise TestbedError(
            "there is no sudo, by which the link is shaped: install it there (apt-get install sudo)"
        )
    script = privileged.install_script(site.user)
    name = f"pareto-link-{privileged.digest()}.tar"
    archive = parcels.ship(connection, site.folder, privileged.archive(), name)
    options, stdin = "-n", []
    if connection.run("sudo -n true").status != 0:
        if ask is None:
            by_hand = f"install-{privileged.digest()}-{site.user}.sh"
            path = parcels.ship(connection, site.folder, script.encode(), by_hand)
            raise TestbedError(
                "the program that shapes the link must be installed by root, and sudo asks for a password: "
                f"run there: sudo sh {shlex.quote(path)} {shlex.quote(archive)}"
            )
        password = ask(f"{site.entry.name}: password of {site.user} for sudo there, once: ")
        if not password:
            raise TestbedError("the program that shapes the link is not installed: no password was given")
        # -k: it reads the password from us in any case, so that nothing else can.
        options, stdin = "-k -S -p ''", [f"{password}\n".encode()]
    install = shlex.join(["/bin/sh", "-c", script, "sh", archive])
    outcome = connection.run(f"LC_ALL=C sudo {options} {install}", stdin, timeout_s=_INSTALL_S)
    if outcome.status != 0:
        raise TestbedError(f"the program that shapes the link is not installed: {outcome.words}")
    connection.run(f"rm -f {shlex.quote(archive)}")
    if not _helper_is_current(site):
        raise TestbedError(
            f"{privileged.SUDOERS} has no effect ({_helper_digest(site).words}): "
            "/etc/sudoers must end with @includedir /etc/sudoers.d, and no later line may ask for a password"
        )
    site.say("installed the program that shapes the link")
    site.changed = True


def _helper_is_current(site: ReachedHost) -> bool:
    """Whether the program that shapes the link can be started there, in the version that is here."""
    return site.is_root or _helper_digest(site).out.strip() == privileged.digest()


def _helper_digest(site: ReachedHost) -> Outcome:
    return site.connection.run(f"LC_ALL=C {privileged.COMMAND} --digest")

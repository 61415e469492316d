"""The testbed that is made of namespaces on this machine.

Its privileged half, the builder, is a child process (`pareto.hosts.local`), with its rights from `rights`. It takes
everything down when the driver ends, however that ends, and where a part of the testbed is gone: then another is built
in its place (`LocalTestbed.revive`).
"""

from __future__ import annotations

import getpass
import os
import select
import shlex
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import psutil

from pareto.hosts import host
from pareto.hosts.connection import FAULTS, ChildProcess, Connection, ThisMachine, Unreachable
from pareto.hosts.host import EDGE, End, Host, Say, TcpSettings, TestbedError, chain
from pareto.hosts.leases import hold_cores
from pareto.hosts.local import cpu, rights, tcp_pipe
from pareto.hosts.local.rights import OWN, Forbidden, Rights
from pareto.hosts.parcels import REPOSITORY
from pareto.hosts.session import Session, SessionError, SessionLost
from pareto.hosts.shapers import RelayShaper, who_shapes
from pareto.hosts.ssh.connection import SshConnection
from pareto.hosts.ssh.keys import Keyring, new_key
from pareto.hosts.ssh.login import Login
from pareto.hosts.testbed import Link, Remote, Testbed, shaped_links
from pareto.remote.link.units import nbytes

BUILD_TIMEOUT_S = 60.0
CHECK_TIMEOUT_S = 3.0
"""A builder that lives answers within this."""
EXPLAIN_S = 1.0
"""How long after a connection ends the builder may take to learn what else is gone."""
_ENTER = ("nsenter", "--user", "--mount", "--net", "--pid", "--preserve-credentials")
"""Users may enter a user namespace that they made, and are root there."""


@dataclass
class LocalTestbed(Testbed):
    """build: makes another of its kind. Raises TestbedError."""

    builder: Session = field(kw_only=True)
    build: Callable[[], LocalTestbed] = field(kw_only=True)

    def lost(self) -> str:
        deadline, words = time.monotonic() + EXPLAIN_S, ""
        while True:
            try:
                self.builder.request("check", CHECK_TIMEOUT_S)
            except (SessionError, SessionLost, TimeoutError) as fault:
                return str(fault)
            losses = (remote.connection.loss() for remote in self.remotes.values())
            words = words or next(filter(None, losses), "")
            if not words or time.monotonic() > deadline:
                return words
            time.sleep(0.05)

    def revive(self) -> None:
        """Make sure that all hosts answer; where one does not, build all anew. Raises Unreachable."""
        try:
            self.builder.request("check", CHECK_TIMEOUT_S)
            for remote in self.remotes.values():
                remote.renew()
            return
        except FAULTS as fault:
            words = self.lost() or str(fault)
        self.close()
        try:
            vars(self).update(vars(self.build()))
        except TestbedError as error:
            raise Unreachable(f"{words}; it could not be built again: {error}") from error


def open_local(
    *,
    hosts: int = 2,
    edge_cpu: float = 1.0,
    memory: int = 0,
    threads: int = 1,
    device: str = host.CPU,
    shaper: str = "auto",
    shape_at: str = "both",
    tcp: TcpSettings | None = None,
    alone: str = "",
    wait_s: float = 0.0,
    say: Say = host.to_stderr,
) -> LocalTestbed:
    """The testbed of a chain of so many hosts. Raises TestbedError.

    edge_cpu, memory: the share of a core, and the bytes, that the edge gets; 0: all of them. device: see
    `host.devices`. alone: the only host that is shown, as the edge of a chain without a link; what else is built stays
    unused. shaper: `netem`, `relay`, or `auto`: netem where the kernel has it. shape_at: `both` shapes what each host
    sends on that host; `edge` both directions of a link on its edge's side, with netem alone. wait_s, say: see
    `hold_cores`.
    """
    build = partial(open_local, **locals())  # with the same arguments
    roles = chain(hosts)
    computes_on = host.devices(device, roles)
    key, public = new_key()
    keyring = Keyring(only=key)
    with ExitStack() as undo:
        remotes: dict[str, Remote] = {}
        may = require_local(edge_cpu, memory)
        builder, pid, inside = start_builder(may)
        end = os.pidfd_open(pid)
        watch = threading.Thread(target=_cut_at_end, args=(end, remotes), name="testbed", daemon=True)
        watch.start()
        undo.callback(watch.join)
        undo.callback(builder.close)
        try:
            built = builder.request(
                "build",
                BUILD_TIMEOUT_S,
                hosts={role: {"cpu_share": 1.0, "memory": 0} for role in roles}
                | {EDGE: {"cpu_share": edge_cpu, "memory": memory}},
                user="" if inside else getpass.getuser(),
                public_key=public,
                shaper=shaper,
                tcp=asdict(tcp or TcpSettings()),
            )
            facts, spaces = built["facts"], built["logins"]
            logins = {role: _login(role, space, inside) for role, space in spaces.items()}
            for role, space in spaces.items():
                here = facts["hosts"][role]
                place = here["data_address"], here["data_interface"], space["cache"], sys.executable
                member = Host(role, *place, computes_on[role], threads, here["core"])
                remotes[role] = Remote(member, SshConnection(logins[role], keyring))
                undo.callback(remotes[role].connection.close)

            def helper(role: str) -> Session:
                connection: Connection
                if inside:
                    network = f"--net=/run/netns/{spaces[role]['namespace']}"
                    connection = ThisMachine([*inside, "nsenter", network, "--"])
                else:
                    connection = SshConnection(replace(logins[role], user="root"), keyring)
                undo.callback(connection.close)
                return Remote(remotes[role].host, connection).start_privileged(as_root=True)

            links = () if alone else _links(facts, builder, helper, shape_at, undo)
        except FAULTS as error:
            raise TestbedError(str(error)) from error
        cores = sorted({each["core"] for each in facts["hosts"].values()})
        undo.callback(hold_cores(cores, wait_s, say))
        return LocalTestbed(
            {EDGE: remotes[alone]} if alone else remotes,
            links,
            _label(facts, alone) + host.gpus_in_words(device, roles, alone),
            facts | {"rights": may.kind},
            is_local=True,
            undo=undo.pop_all(),
            builder=builder,
            build=build,
            watch_strangers=partial(cpu.watch_strangers, cores),
        )


def _cut_at_end(end: int, remotes: Mapping[str, Remote]) -> None:
    """Close the connections to hosts at the builder's end, by its pidfd: who waits for an answer hears of it."""
    select.select([end], [], [])
    os.close(end)
    for remote in list(remotes.values()):  # it may grow meanwhile
        remote.connection.close()


def start_builder(rights: Rights) -> tuple[Session, int, tuple[str, ...]]:
    """The privileged half, `pareto.hosts.local`, started; its process; and the argv prefix of what is to run in
    namespaces of its own. Raises TestbedError."""
    # -B: root must not leave its bytecode in the user's tree.
    argv = [*rights.prefix, sys.executable, "-B", "-m", "pareto.hosts.local"]
    errors = tempfile.TemporaryFile()  # noqa: SIM115  (its last line says why it ended)
    wire = ChildProcess(argv, cwd=REPOSITORY, errors=errors, preexec_fn=os.setpgrp)
    session, pid = Session("local testbed", wire), wire.process.pid
    if rights.kind != OWN:
        return session, pid, ()
    try:
        session.request("own", BUILD_TIMEOUT_S, uid=os.getuid())
        (first,) = psutil.Process(pid).children()
    except (*FAULTS, psutil.Error, ValueError) as error:
        session.close()
        raise TestbedError(f"the local testbed did not start: {error}") from error
    return session, pid, (*_ENTER, f"--target={first.pid}", "--")


def require_local(edge_cpu: float = 1.0, memory: int = 0) -> Rights:
    """By which right the local testbed can be built. edge_cpu: the edge's share of a core; memory: its bytes, 0: all.
    Raises TestbedError."""
    if rights.sshd() is None:
        raise host.not_installed("sshd", "openssh-server")
    try:
        return rights.find(cpu.refused(cpu.limited(edge_cpu, memory)))
    except Forbidden as forbidden:
        raise TestbedError(str(forbidden)) from None


def _login(role: str, space: dict[str, Any], inside: Sequence[str]) -> Login:
    there = (space["address"], space["port"])
    pipe = [sys.executable, "-I", "-S", "-B", tcp_pipe.__file__, *map(str, there)]
    proxy = shlex.join([*inside, *pipe]) if inside else ""
    return Login(role, *there, space["user"], space["host_key"], proxy_command=proxy)


def _links(
    facts: dict[str, Any], builder: Session, helper: Callable[[str], Session], shape_at: str, undo: ExitStack
) -> tuple[Link, ...]:
    """helper: starts a host's privileged helper, by its role."""
    ends = [(End(**link["near"]), End(**link["far"])) for link in facts["links"]]
    if facts["shaper"] != "relay":
        shaping = [who_shapes(near.role, far.role, shape_at) for near, far in ends]
        starts = {role: partial(helper, role) for role in facts["hosts"]}
        return shaped_links(ends, shaping, starts, undo, filtered=False)
    if shape_at != "both":
        raise TestbedError(f"--shape-at {shape_at} needs sch_netem, and this kernel has none: leave it out")
    return tuple(Link(*pair, RelayShaper(builder, number)) for number, pair in enumerate(ends))


def _label(facts: dict[str, Any], alone: str) -> str:
    if alone:
        return f"local: the {alone} alone, {facts['hosts'][alone]['cpu_share']:.0%} of a core"
    count = ("two", "three", "four", "five", "six", "seven", "eight")[len(facts["hosts"]) - 2]
    slow, held = facts["hosts"][EDGE]["cpu_share"], facts["hosts"][EDGE]["memory"]
    edge = f", edge at {slow:.0%} of a core" if slow < 1 else ""
    edge += f", with {nbytes(held)} of memory" if held else ""
    return f"local: {count} namespaces on one machine, {facts['shaper']}{edge}"

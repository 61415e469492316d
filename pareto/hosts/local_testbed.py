"""The testbed that is made of namespaces on this machine.

The privileged half is a child process (`pareto.hosts.local`), through sudo where the driver is not root. It
takes everything down when the driver ends, whichever way, and where a part of the testbed is gone: a testbed
lives as a whole or not at all. Then another is built in its place (`LocalTestbed.revive`).
"""

from __future__ import annotations

import getpass
import os
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from pareto.hosts import ssh
from pareto.hosts.host import EDGE, End, Host, TestbedError, chain
from pareto.hosts.keys import Keyring
from pareto.hosts.local import sshd
from pareto.hosts.local.cpu import Programs
from pareto.hosts.login import Login
from pareto.hosts.remote import Remote
from pareto.hosts.session import Heartbeat, PipeWire, Session, SessionError, SessionLost
from pareto.hosts.shaping import NetemShaper, NoShaper, RelayShaper, who_shapes
from pareto.hosts.shipping import REPOSITORY
from pareto.hosts.tcp_settings import TcpSettings
from pareto.hosts.testbed import Link, Testbed
from pareto.hosts.way import FAULTS, Unreachable

BUILD_TIMEOUT_S = 60.0
CHECK_TIMEOUT_S = 3.0
"""A keeper that lives answers within this."""
EXPLAIN_S = 1.0
"""How long after a connection the keeper may find out what else is gone."""


@dataclass
class LocalTestbed(Testbed):
    """build: makes another of its kind. Raises TestbedError."""

    keeper: Session = field(kw_only=True)
    build: Callable[[], LocalTestbed] = field(kw_only=True)

    __test__ = False

    def lost(self) -> str:
        """What has happened to it; empty where all its parts are there. Within some seconds."""
        deadline, words = time.monotonic() + EXPLAIN_S, ""
        while True:
            try:
                self.keeper.request("check", CHECK_TIMEOUT_S)
            except (SessionError, SessionLost, TimeoutError) as fault:
                return str(fault)
            if not words:
                words = next(filter(None, (remote.way.loss() for remote in self.remotes.values())), "")
            if not words or time.monotonic() > deadline:
                return words
            time.sleep(0.05)

    def revive(self) -> None:
        """Make sure that all hosts answer; where one does not, build all anew. Raises Unreachable."""
        words = self.lost()
        if not words:
            try:
                for remote in self.remotes.values():
                    remote.renew()
                return
            except Unreachable as fault:
                words = str(fault)
        self.close()
        try:
            vars(self).update(vars(self.build()))
        except TestbedError as error:
            raise Unreachable(f"{words}; it could not be built again: {error}") from error


def open_local(
    *,
    hosts: int = 2,
    edge_cpu: float = 1.0,
    threads: int = 1,
    shaper: str = "auto",
    shape_at: str = "both",
    tcp: TcpSettings | None = None,
) -> LocalTestbed:
    """Build a chain of so many hosts. `edge_cpu` is the share of a core that the edge gets. Raises TestbedError.

    `shaper`: `netem`, `relay`, `none`: plain links that cannot be shaped, or `auto`: netem where the kernel has it.
    `shape_at`: `both` shapes what each host sends on that host; `edge` both directions of a link on its edge's side,
    with netem alone.
    """
    build = partial(
        open_local, hosts=hosts, edge_cpu=edge_cpu, threads=threads, shaper=shaper, shape_at=shape_at, tcp=tcp
    )
    key, public = ssh.new_key()
    keyring = Keyring.of(key)
    with ExitStack() as undo:
        remotes: dict[str, Remote] = {}
        keeper, process = _open_keeper()
        end = os.pidfd_open(process.pid)
        watch = threading.Thread(target=_cut_at_end, args=(end, remotes), name="testbed", daemon=True)
        watch.start()
        undo.callback(watch.join)
        undo.callback(keeper.close)
        heartbeat = Heartbeat()
        undo.callback(heartbeat.stop)
        heartbeat.add(keeper)
        try:
            built = keeper.request(
                "build",
                BUILD_TIMEOUT_S,
                hosts=[{"name": it, "cpu_share": edge_cpu if it == EDGE else 1.0} for it in chain(hosts)],
                user=getpass.getuser(),
                public_key=public,
                shaper=shaper,
                tcp=asdict(tcp or TcpSettings()),
            )
            logins = {name: _login(name, told) for name, told in built["hosts"].items()}
            for name, told in built["hosts"].items():
                remotes[name] = Remote(_host(name, told, threads), ssh.Ssh(logins[name], keyring))
                undo.callback(remotes[name].close)
            links = _links(built, keeper, remotes, logins, keyring, heartbeat, shape_at, undo)
        except FAULTS as error:
            raise TestbedError(str(error)) from error
        return LocalTestbed(
            remotes,
            links,
            heartbeat,
            _label(built),
            _facts(built),
            is_local=True,
            undo=undo.pop_all(),
            keeper=keeper,
            build=build,
            # Under a quota the kernel's ticks do not tell (`pareto.devices`).
            strangers=partial(Strangers, keeper, sorted({told["core"] for told in built["hosts"].values()}))
            if edge_cpu == 1
            else None,
        )


class Strangers:
    """What programs that are none of this run's take of the hosts' cores, from now on."""

    def __init__(self, keeper: Session, cores: Sequence[int]) -> None:
        self._keeper = keeper
        self._cores = cores
        self._before = self._now()

    def percent(self) -> float:
        return self._now().strangers_percent(self._before, len(self._cores))

    def _now(self) -> Programs:
        return Programs(**self._keeper.request("programs", pid=os.getpid(), cores=self._cores))


def open_keeper() -> Session:
    """Start the privileged half: `pareto.hosts.local`."""
    return _open_keeper()[0]


def _open_keeper() -> tuple[Session, subprocess.Popen[bytes]]:
    errors = tempfile.TemporaryFile()  # noqa: SIM115  (its last line says why it ended)
    wire = PipeWire(_keeper_command(), cwd=REPOSITORY, errors=errors, preexec_fn=os.setpgrp)
    return Session("local testbed", wire), wire.process


def _cut_at_end(end: int, remotes: Mapping[str, Remote]) -> None:
    """Wait for the keeper's end, told by its pidfd, and close the connections to its hosts.

    Whoever waits for an answer hears of it at once, also where no last packet gets here. `remotes` may grow meanwhile.
    """
    select.select([end], [], [])
    os.close(end)
    for remote in list(remotes.values()):
        remote.close()


def require_local() -> None:
    """Find out before anything else whether the local testbed can be built. Raises TestbedError."""
    if sshd.binary() is None:
        raise TestbedError(
            "no sshd on this machine: install it (on Debian or Ubuntu: apt-get install openssh-server)"
        )
    if os.geteuid() == 0:
        return
    sudo = shutil.which("sudo")
    if sudo is None:
        raise TestbedError("the local testbed makes network namespaces: run as root, or install sudo")
    # Ask for the password, if one is needed, while there is a terminal in the foreground to ask on.
    ask = [sudo, "-v"] if sys.stdin.isatty() else [sudo, "-n", "true"]
    errors = None if sys.stdin.isatty() else subprocess.DEVNULL
    if subprocess.run(ask, check=False, stderr=errors).returncode:  # noqa: S603
        raise TestbedError(
            "the local testbed makes network namespaces: run as root, or as a user whom sudo lets"
        )


def _keeper_command() -> list[str]:
    """argv of the privileged half. `-B`: root must not leave its bytecode in the user's tree."""
    as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    return [*as_root, sys.executable, "-B", "-m", "pareto.hosts.local"]


def _login(name: str, told: dict[str, Any]) -> Login:
    return Login(name, told["address"], told["port"], told["user"], told["host_key"])


def _host(name: str, told: dict[str, Any], threads: int) -> Host:
    return Host(
        name,
        told["data_address"],
        told["data_interface"],
        told["cache"],
        sys.executable,
        threads=threads,
        core=told["core"],
        cpu_share=told["cpu_share"],
    )


def _links(
    built: dict[str, Any],
    keeper: Session,
    remotes: Mapping[str, Remote],
    logins: Mapping[str, Login],
    keyring: Keyring,
    heartbeat: Heartbeat,
    shape_at: str,
    undo: ExitStack,
) -> tuple[Link, ...]:
    ends = [(End(**told["near"]), End(**told["far"])) for told in built["links"]]
    if built["shaper"] == "none":
        return tuple(Link(near, far, NoShaper()) for near, far in ends)
    if built["shaper"] == "relay":
        if shape_at != "both":
            raise TestbedError(
                f"--shape-at {shape_at} needs sch_netem, and this kernel has none: leave it out"
            )
        return tuple(Link(near, far, RelayShaper(keeper, number)) for number, (near, far) in enumerate(ends))
    starts = {}
    shaping = [who_shapes(near.role, far.role, shape_at) for near, far in ends]
    for name in {role: None for roles in shaping for role in roles}:
        as_root = Remote(remotes[name].host, ssh.Ssh(replace(logins[name], user="root"), keyring))
        undo.callback(as_root.close)
        starts[name] = partial(as_root.start_privileged, as_root=True)
    links = []
    for (near, far), roles in zip(ends, shaping, strict=True):
        shaper = NetemShaper(near, far, {role: starts[role] for role in roles}, heartbeat, filtered=False)
        undo.callback(shaper.close)
        links.append(Link(near, far, shaper))
    return tuple(links)


def _facts(built: dict[str, Any]) -> dict[str, Any]:
    kept = ("data_address", "data_interface", "core", "cpu_share")
    return {
        "kind": "local",
        "shaper": built["shaper"],
        "on_one_core": built["on_one_core"],
        "relay_cores": built["relay_cores"],
        "congestion_control": built["congestion_control"],
        "initial_window_segments": built["initial_window_segments"],
        "sysctls": built["sysctls"],
        "hosts": {name: {k: told[k] for k in kept} for name, told in built["hosts"].items()},
        "links": built["links"],
    }


def _label(built: dict[str, Any]) -> str:
    count = ("two", "three", "four", "five", "six", "seven", "eight")[len(built["hosts"]) - 2]
    slow = built["hosts"][EDGE]["cpu_share"]
    edge = f", edge at {slow:.0%} of a core" if slow < 1 else ""
    shaper = "nothing shapes the links" if built["shaper"] == "none" else built["shaper"]
    return f"local: {count} namespaces on one machine, {shaper}{edge}"

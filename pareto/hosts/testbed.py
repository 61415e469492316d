"""The local testbed as the driver sees it: two hosts to log in to, and a link to shape.

The privileged half is a child process (`pareto.hosts.local`), through sudo where the driver is not root. It
takes everything down when the driver ends, whichever way.
"""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from typing import Any

from pareto.hosts import ssh
from pareto.hosts.local import sshd
from pareto.hosts.remote import REPOSITORY, Host, Remote
from pareto.hosts.session import Heartbeat, PipeWire, Session, SessionError, SessionLost
from pareto.hosts.shaping import NetemShaper, RelayShaper, Shaper

EDGE, SERVER = "edge", "server"
BUILD_TIMEOUT_S = 60.0


class TestbedError(Exception):
    """The testbed cannot be had; says what is missing and what to do about it."""

    __test__ = False  # not a test, whatever pytest makes of the name


@dataclass
class LocalTestbed:
    """Two namespaces on this machine, each with its sshd. Use `open_local`, then `close`."""

    keeper: Session
    remotes: dict[str, Remote]
    shaper: Shaper
    facts: dict[str, Any]
    heartbeat: Heartbeat
    label: str

    def close(self) -> None:
        """Log out and wait until everything is taken down."""
        self.heartbeat.stop()
        self.shaper.close()
        for remote in self.remotes.values():
            remote.close()
        self.keeper.close()


def open_local(
    *, edge_cpu: float = 1.0, threads: int = 1, shaper: str = "auto", shape_at: str = "both"
) -> LocalTestbed:
    """Build the testbed. `edge_cpu` is the share of a core that the edge gets. Raises TestbedError.

    `shape_at`: `both` shapes what each host sends on that host; `edge` both directions there, with netem alone.
    """
    key, public = ssh.new_key()
    keeper = open_keeper()
    heartbeat = Heartbeat()
    heartbeat.add(keeper)
    remotes: dict[str, Remote] = {}
    try:
        built = keeper.request(
            "build",
            BUILD_TIMEOUT_S,
            hosts=[{"name": EDGE, "cpu_share": edge_cpu}, {"name": SERVER, "cpu_share": 1.0}],
            user=getpass.getuser(),
            public_key=public,
            shaper=shaper,
        )
        for name, told in built["hosts"].items():
            remotes[name] = Remote(_host(name, told, threads), key)
        return LocalTestbed(
            keeper,
            remotes,
            _shaper(built, keeper, remotes, key, heartbeat, shape_at),
            {**_facts(built), "shape_at": shape_at},
            heartbeat,
            _label(built),
        )
    except BaseException as error:
        heartbeat.stop()
        for remote in remotes.values():
            remote.close()
        keeper.close()
        if isinstance(error, (SessionError, SessionLost, TimeoutError, ssh.Unreachable)):
            raise TestbedError(str(error)) from error
        raise


def open_keeper() -> Session:
    """Start the privileged half: `pareto.hosts.local`."""
    return Session("local testbed", PipeWire(_keeper_command(), cwd=REPOSITORY, preexec_fn=os.setpgrp))


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


def _host(name: str, told: dict[str, Any], threads: int) -> Host:
    return Host(
        login=ssh.Login(name, told["address"], told["port"], told["user"], told["host_key"]),
        data_address=told["data_address"],
        data_interface=told["data_interface"],
        cache=told["cache"],
        python=sys.executable,
        threads=threads,
        core=told["core"],
        cpu_share=told["cpu_share"],
    )


def _shaper(
    built: dict[str, Any],
    keeper: Session,
    remotes: dict[str, Remote],
    key: Any,
    heartbeat: Heartbeat,
    shape_at: str,
) -> Shaper:
    if built["shaper"] == "relay":
        if shape_at != "both":
            raise TestbedError(
                f"--shape-at {shape_at} needs sch_netem, and this kernel has none: leave it out"
            )
        return RelayShaper(keeper)
    helpers = {}
    for name in remotes if shape_at == "both" else (shape_at,):
        host = remotes[name].host
        as_root = Remote(replace(host, login=replace(host.login, user="root")), key)
        session = as_root.start("pareto.link")
        heartbeat.add(session)
        helpers[name] = (as_root, session)
    return NetemShaper(remotes, helpers)


def _facts(built: dict[str, Any]) -> dict[str, Any]:
    kept = ("data_address", "data_interface", "core", "cpu_share")
    return {
        "kind": "local",
        "shaper": built["shaper"],
        "congestion_control": built["congestion_control"],
        "initial_window_segments": built["initial_window_segments"],
        "sysctls": built["sysctls"],
        "hosts": {name: {k: told[k] for k in kept} for name, told in built["hosts"].items()},
    }


def _label(built: dict[str, Any]) -> str:
    slow = built["hosts"][EDGE]["cpu_share"]
    edge = f", edge at {slow:.0%} of a core" if slow < 1 else ""
    return f"local: two namespaces on one machine, {built['shaper']}{edge}"

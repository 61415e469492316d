"""A whole lab, and what the driver that uses it has: a key, known hosts, OpenSSH's configuration, a testbed file."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from pareto.hosts.local import journal
from pareto.hosts.ssh import connection as ssh
from tests.lab import wiring
from tests.lab.disk import Disk, new_key, write_secret
from tests.lab.host import LabHost, wait
from tests.program import pareto

MEMORY = Path("/dev/shm")  # noqa: S108  (a folder for root alone is made in it)
SOON_S = 1.0


def give_up_soon(patch: pytest.MonkeyPatch, *hosts: LabHost) -> None:
    """Have this process wait a second for these hosts, which are off, and for all others as long as ever."""
    connected, addresses = ssh._connected, {host.address for host in hosts}

    def connect(address: str, port: int, timeout_s: float) -> socket.socket:
        return connected(address, port, SOON_S if address in addresses else timeout_s)

    patch.setattr(ssh, "_connected", connect)


class Lab:
    """hosts: `pi` (edge), `gpu` (server), perhaps `mid` between them and `jump`. home: the driver's $HOME. key: its
    private key.
    """

    def __init__(self, folder: Path, hosts: Mapping[str, LabHost], key: Path) -> None:
        self.folder, self.hosts, self.key = folder, dict(hosts), key
        self.home = folder / "home"
        self.ssh_config, self.known_hosts = (self.home / ".ssh" / name for name in ("config", "known_hosts"))
        self._configure()
        self.know_hosts()

    def host(self, name: str) -> LabHost:
        return self.hosts[name]

    @property
    def environment(self) -> dict[str, str]:
        """For the driver's process: this home, and no agent."""
        kept = {name: value for name, value in os.environ.items() if name != "SSH_AUTH_SOCK"}
        return kept | {"HOME": str(self.home)}

    def testbed(self, name: str = "testbed.yaml", /, **overrides: Mapping[str, Any]) -> Path:
        """A testbed file. `gpu={"device": "cuda:0", "python": None}` sets one key of that host and leaves one out."""
        roles = {"pi": "edge", "mid": "middle", "gpu": "server"}
        hosts = {name: self._member(name, role) for name, role in roles.items() if name in self.hosts}
        for host, keys in overrides.items():
            merged = {**hosts.get(host, {}), **keys}
            hosts[host] = {key: value for key, value in merged.items() if value is not None}
        path = self.folder / name
        path.write_text(yaml.safe_dump({"hosts": hosts}, sort_keys=False))
        return path

    def pareto(self, *arguments: str) -> subprocess.Popen[str]:
        """The driver, with this home and no terminal."""
        return pareto(*arguments, environment=self.environment)

    def know_hosts(self) -> None:
        """Write the hosts' present keys into known_hosts, and nothing else."""
        lines = [f"{host.address} {host.host_key}\n" for host in self.hosts.values()]
        self.known_hosts.write_text("".join(lines))

    def ssh(self, host: str, *command: str) -> list[str]:
        """What runs a command there by OpenSSH's own client."""
        return ["ssh", "-F", str(self.ssh_config), "-o", "BatchMode=yes", host, *command]

    def link_down(self) -> None:
        """Pull the data link's plug at gpu. pi's interface stays up, without a carrier, and keeps routes and qdiscs."""
        self.hosts["gpu"].set_link(wiring.DATA, up=False)

    def link_up(self) -> None:
        self.hosts["gpu"].set_link(wiring.DATA, up=True)
        self.wait_for_link()

    def wait_for_link(self) -> None:
        """Until all ends tell of a carrier, which the kernel does up to a second late."""
        for host in self.hosts.values():
            for interface in filter(None, (host.data_interface, host.next_interface)):
                state = f"cat /sys/class/net/{interface}/operstate"
                wait(lambda host=host, state=state: host.run(state) == "up\n", f"{host.name}'s {interface}")

    def _member(self, name: str, role: str) -> dict[str, Any]:
        host = self.hosts[name]
        fields = {"role": role, "ssh": name, "device": "cpu", "threads": 1, "python": sys.executable}
        fields |= {"data_address": host.data_address, "data_interface": host.data_interface}
        if host.next_address:
            fields |= {"next_address": host.next_address, "next_interface": host.next_interface}
        return fields

    def _configure(self) -> None:
        lines = []
        for host in self.hosts.values():
            lines += [
                f"Host {host.name}",
                f"HostName {host.address}",
                f"User {host.user}",
                f"Port {host.port}",
            ]
            lines += ["ProxyJump jump"] * (host.name == "gpu" and "jump" in self.hosts)
        # `ssh` looks for these in the home that /etc/passwd knows, whatever $HOME says.
        lines += ["Host *", f"IdentityFile {self.key}", "IdentitiesOnly yes"]
        lines += [f"UserKnownHostsFile {self.known_hosts}", "GlobalKnownHostsFile none"]
        self.ssh_config.write_text("\n".join(lines) + "\n")


@contextmanager
def open_lab(folder: Path, *, jump: bool = False, middle: bool = False) -> Iterator[Lab]:
    """Hosts that answer. `folder` gets the driver's home, the testbed file, and until the end the hosts' disks.

    `jump`: gpu is reached through a third host only. `middle`: one stands between the two (see `wiring`).
    Nothing but the home and the testbed file is left afterwards. After a SIGKILL the hosts die with the thread that
    opened the lab; the rest is removed by the next lab, the next local testbed or `pareto.sh doctor --repair`.
    """
    journal.sweep()
    owner = os.getpid()

    def finally_do(act: Callable[[], None]) -> None:
        # A child that pyroute2 forked meanwhile would do it too, were it interrupted.
        stack.callback(lambda: act() if os.getpid() == owner else None)

    with ExitStack() as stack:
        notes = journal.acquire()
        finally_do(notes.undo)
        key = folder / "home" / ".ssh" / "id_ed25519"
        key.parent.mkdir(mode=0o700, parents=True)
        pair = new_key()
        write_secret(key, pair.private)
        key.with_suffix(".pub").write_text(f"{pair.public}\n")
        disks, memory = folder / "disks", MEMORY / f"pareto-lab{notes.slot}"
        for made in (disks, memory):
            notes.note("folder", str(made))
            made.mkdir(mode=0o700)
        places = wiring.build(notes, jump=jump, middle=middle)
        hosts = {
            name: LabHost(notes, place, Disk(disks / name, memory / name, name, pair.public))
            for name, place in places.items()
        }
        for host in hosts.values():
            finally_do(host.kill)
            host.power_on()
        yield Lab(folder, hosts, key)

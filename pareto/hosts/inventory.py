"""A testbed file: which hosts there are, how to reach them, and where they are joined. See docs/real-hardware.md."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path

import yaml

from pareto.hosts.host import EDGE, ROLES, SERVER, TestbedError
from pareto.link.yaml_file import YamlFile

THIS_MACHINE = "local"
"""What `ssh` says of a host that is the driver's own machine, and `--testbed` of the one made of namespaces."""
DEFAULT_FOLDER = ".pareto"
_KEYS = (
    *("role", "ssh", "port", "user", "key", "data_address", "data_interface"),
    *("device", "threads", "python", "folder", "pip_index"),
)
DEVICE = re.compile(r"cpu|cuda:\d+")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_OPTION = re.compile(r"[^\s-]\S*")


@dataclass(frozen=True)
class Member:
    """One host as the file describes it.

    ssh: a name that OpenSSH's configuration knows, or an address, either with `user@`; or `local`, this machine.
    data_interface: found by its address where it is not said. python: an interpreter that has the packages; else
    `hosts setup` makes one. folder: in the user's home unless absolute. pip_index: for `hosts setup`, where packages
    come from (a CUDA build of torch, say).
    """

    name: str
    role: str
    ssh: str
    data_address: str
    data_interface: str = ""
    port: int | None = None
    user: str = ""
    key: Path | None = None
    device: str = "cpu"
    threads: int = 1
    python: str = ""
    folder: str = DEFAULT_FOLDER
    pip_index: str = ""

    @property
    def is_here(self) -> bool:
        return self.ssh == THIS_MACHINE


@dataclass(frozen=True)
class Inventory:
    """The hosts of a file, by name."""

    path: Path
    members: tuple[Member, ...]

    def of(self, role: str) -> Member:
        return next(member for member in self.members if member.role == role)

    @property
    def roles(self) -> dict[str, Member]:
        """Edge first. Raises TestbedError where the file lacks one."""
        for role in ROLES:
            if not any(member.role == role for member in self.members):
                raise TestbedError(
                    f"{self.path}: no host has the role {role}: add one, or ./pareto.sh hosts add USER@ADDRESS "
                    f"--role {role} --testbed {self.path}"
                )
        return {role: self.of(role) for role in ROLES}


def load(path: Path) -> Inventory:
    """The testbed in a file. Raises TestbedError with the file and the line."""
    file = _File(path, "testbed", TestbedError)
    root = file.compose()
    if root is None:
        raise TestbedError(
            f"{path}: is empty; write hosts: and under it a host for each role ({EDGE}, {SERVER})"
        )
    hosts = file.items(root, ("hosts",), "a testbed")
    if "hosts" not in hosts:
        raise file.fault(root, "hosts is missing: a mapping from each host's name to what it is")
    node = hosts["hosts"]
    if isinstance(node, yaml.ScalarNode) and not node.value:
        return Inventory(path, ())
    entries = file.mapping(node, "hosts must map each host's name to what it is")
    members = tuple(file.member(name, entry) for name, entry in entries.items())
    for index, member in enumerate(members):
        for other in members[:index]:
            for what in ("role", "data_address"):
                if getattr(other, what) == getattr(member, what):
                    raise file.fault(
                        entries[member.name],
                        f"{other.name} and {member.name} have the same {what} {getattr(member, what)}",
                    )
    return Inventory(path, members)


class _File(YamlFile):
    """What the nodes of a testbed file mean."""

    def member(self, name: str, node: yaml.Node) -> Member:
        items = self.items(node, _KEYS, f"host {name}")
        if not NAME.fullmatch(name):
            raise self.fault(node, f"host {name!r}: a name is letters, digits, dots and dashes")
        for key in ("role", "ssh", "data_address"):
            if key not in items:
                raise self.fault(node, f"host {name}: {key} is missing")
        said = {key: self.text(value, f"{key} must be one value") for key, value in items.items()}

        def check(key: str, good: bool, wanted: str) -> None:
            if key in said and not good:
                raise self.fault(items[key], f"{key} {said[key]!r}: {wanted}")

        check("role", said["role"] in ROLES, f"use {' or '.join(ROLES)}")
        check(
            "ssh", bool(_OPTION.fullmatch(said["ssh"])), "a name or address, as in pi@192.168.7.2, or local"
        )
        check("user", bool(_OPTION.fullmatch(said.get("user", ""))), "a user's name")
        check("data_address", _is_ipv4(said["data_address"]), "an IPv4 address on the link between the hosts")
        check("port", _is_number(said.get("port", ""), 65535), "a port from 1 to 65535")
        check("threads", _is_number(said.get("threads", ""), 256), "a number from 1 to 256")
        check(
            "device", bool(DEVICE.fullmatch(said.get("device", ""))), "use cpu, or cuda:0 for the first GPU"
        )
        return Member(
            name,
            said["role"],
            said["ssh"],
            said["data_address"],
            said.get("data_interface", ""),
            int(said["port"]) if "port" in said else None,
            said.get("user", ""),
            Path(said["key"]).expanduser() if "key" in said else None,
            said.get("device", "cpu"),
            int(said.get("threads", 1)),
            said.get("python", ""),
            said.get("folder", DEFAULT_FOLDER),
            said.get("pip_index", ""),
        )


def _is_ipv4(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


def _is_number(text: str, most: int) -> bool:
    return text.isascii() and text.isdigit() and 1 <= int(text) <= most

"""A testbed file: which hosts there are, how to reach them, and where they are joined. See docs/real-hardware.md."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import yaml

from pareto.hosts.host import EDGE, MAX_HOSTS, MIDDLE, ROLES, SERVER, TestbedError, chain
from pareto.link.yaml_file import YamlFile

THIS_MACHINE = "local"
"""What `ssh` says of a host that is the driver's own machine, and `--testbed` of the one made of namespaces."""
SIMULATED = "simulated"
"""`--testbed simulated`, or `simulated:FILE`: nothing of it is real."""
DEFAULT_FOLDER = ".pareto"
PARTS = (EDGE, MIDDLE, SERVER)
"""What a file says of a host's role."""
_KEYS = (
    *(
        "role",
        "ssh",
        "port",
        "user",
        "key",
        "data_address",
        "data_interface",
        "next_address",
        "next_interface",
    ),
    *("device", "threads", "python", "folder", "pip_index"),
)
DEVICE = re.compile(r"cpu|cuda:\d+")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_OPTION = re.compile(r"[^\s-]\S*")


@dataclass(frozen=True)
class Member:
    """One host as the file describes it.

    role: edge, middle or server. ssh: a name that OpenSSH's configuration knows, or an address, either with `user@`;
    or `local`, this machine. data_interface: found by its address where it is not said. python: an interpreter that
    has the packages; else `hosts setup` makes one. folder: in the user's home unless absolute. pip_index: for `hosts
    setup`, where packages come from (a CUDA build of torch, say). next_address, next_interface: of a middle host that
    has others towards the next host than towards the one before it.
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
    next_address: str = ""
    next_interface: str = ""

    @property
    def is_here(self) -> bool:
        return self.ssh == THIS_MACHINE


@dataclass(frozen=True)
class Side:
    """A host's side of one of its links: its own address there, its interface (empty: the one that has the address),
    and the other host's address.
    """

    address: str
    interface: str
    peer: str


@dataclass(frozen=True)
class Inventory:
    """The hosts of a file, by name."""

    path: Path
    members: tuple[Member, ...]

    @property
    def roles(self) -> dict[str, Member]:
        """In the order of the chain. Raises TestbedError where the file has no edge or no server."""
        by_part = {part: [member for member in self.members if member.role == part] for part in PARTS}
        for part in ROLES:
            if not by_part[part]:
                raise TestbedError(
                    f"{self.path}: no host has the role {part}: add one, or ./pareto.sh hosts add USER@ADDRESS "
                    f"--role {part} --testbed {self.path}"
                )
        members = [member for part in PARTS for member in by_part[part]]
        return dict(zip(chain(len(members)), members, strict=True))

    @property
    def sides(self) -> dict[str, tuple[Side, ...]]:
        """By role: of each of its links, that towards the edge first. Raises TestbedError as `roles` does."""
        hosts = list(self.roles.items())
        found: dict[str, tuple[Side, ...]] = {role: () for role, _ in hosts}
        for (role, near), (next_role, far) in pairwise(hosts):
            own = near.next_address or near.data_address
            interface = near.next_interface if near.next_address else near.data_interface
            found[role] += (Side(own, interface, far.data_address),)
            found[next_role] += (Side(far.data_address, far.data_interface, own),)
        return found


def load(path: Path) -> Inventory:
    """The testbed in a file. Raises TestbedError with the file and the line."""
    if str(path).partition(":")[0] == SIMULATED:
        raise TestbedError(f"--testbed {path}: only sweeps are simulated; name local, or a file of hosts")
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
            for what, value in _clashes(other, member):
                raise file.fault(
                    entries[member.name], f"{other.name} and {member.name} have the same {what} {value}"
                )
    if len(members) > MAX_HOSTS:
        raise file.fault(entries[members[MAX_HOSTS].name], f"a chain has at most {MAX_HOSTS} hosts")
    return Inventory(path, members)


def _clashes(one: Member, other: Member) -> Iterator[tuple[str, str]]:
    """What only one host can have."""
    if one.role == other.role != MIDDLE:
        yield "role", one.role
    for address in {one.data_address, one.next_address} & {other.data_address, other.next_address} - {""}:
        yield "data_address", address


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

        check("role", said["role"] in PARTS, f"use {EDGE}, {MIDDLE} or {SERVER}")
        check(
            "ssh", bool(_OPTION.fullmatch(said["ssh"])), "a name or address, as in pi@192.168.7.2, or local"
        )
        check("user", bool(_OPTION.fullmatch(said.get("user", ""))), "a user's name")
        check("data_address", _is_ipv4(said["data_address"]), "an IPv4 address on the link between the hosts")
        for key in ("next_address", "next_interface"):
            check(key, said["role"] == MIDDLE, "only a middle host has a next one beside the one before it")
        following = said.get("next_address", "")
        check("next_address", _is_ipv4(following), "an IPv4 address on the link to the next host")
        check("next_address", following != said["data_address"], "as data_address: leave it out")
        check(
            "next_interface",
            bool(following),
            "say next_address too, its address on the link to the next host",
        )
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
            following,
            said.get("next_interface", ""),
        )


def _is_ipv4(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


def _is_number(text: str, most: int) -> bool:
    return text.isascii() and text.isdigit() and 1 <= int(text) <= most

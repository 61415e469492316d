"""A testbed file: which hosts there are, how to reach them, and where they are joined. See docs/real-hardware.md.

One file may have several testbeds: `labs.yaml#lab1` names one of them.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from ipaddress import IPv4Address
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar

import yaml
from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from pareto import COMMAND
from pareto.basics.yaml_file import Keys, YamlFile, only_keys
from pareto.hosts.host import DEVICE, EDGE, MAX_HOSTS, MIDDLE, ROLES, SERVER, TestbedError, chain
from pareto.protocol.errors import UserError
from pareto.protocol.own import Kind

THIS_MACHINE = "local"
"""The value of `ssh` for a host that is the driver's own machine, and of `--testbed` for the one of namespaces."""
SIMULATED = "simulated"
"""`--testbed simulated`, or `simulated:FILE`: nothing of it is real."""
PARTS = (EDGE, MIDDLE, SERVER)
"""A file's words for a host's role."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TESTBED = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_OPTION = re.compile(r"[^\s-]\S*")
PORT = re.compile(r"^[^:]*:\d*$|\]:\d*$")
"""A port after a host's name, which `ssh` takes for a part of the name."""
METER = Kind("meter", "Plug", "pareto.meters")
_SEVERAL = "testbeds"
"""The key of a file of several testbeds."""


def _rule(holds: Callable[[str], object], wanted: str) -> AfterValidator:
    """A validator of a field's text. holds: is true of a right one, or else raises ValueError. wanted: in words."""

    def check(text: str, info: ValidationInfo) -> str:
        try:
            if holds(text):
                return text
        except UserError:
            raise
        except ValueError:
            pass
        raise ValueError(f"{info.field_name} {text!r}: {wanted}")

    return AfterValidator(check)


@dataclass(frozen=True)
class HostEntry:
    """One host as the file describes it, its keys in the order in which they are written. See docs/real-hardware.md.

    The rules hold for what comes from a file. data_interface: the one with the address unless named. python: an
    interpreter that has the packages; else `hosts setup` makes one. host_key: the only one that it may show; else
    known_hosts decides. folder: in the user's home unless absolute. next_address, next_interface: of a middle host
    whose side towards the next host differs from its side towards the one before. meter: of its energy, a user's own.
    """

    name: Annotated[str, _rule(NAME.fullmatch, "a name is letters, digits, dots and dashes")]
    role: Annotated[str, _rule(PARTS.__contains__, f"use {EDGE}, {MIDDLE} or {SERVER}")]
    ssh: Annotated[
        str,
        _rule(_OPTION.fullmatch, "a name or address, as in pi@192.168.7.2, or local"),
        _rule(lambda text: not PORT.search(text), "a port is a key of its own, as in port: 2222"),
    ]
    data_address: Annotated[str, _rule(IPv4Address, "an IPv4 address on the link between the hosts")]
    data_interface: str = ""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    user: Annotated[str, _rule(_OPTION.fullmatch, "a user's name")] = ""
    key: Annotated[Path, AfterValidator(Path.expanduser)] | None = None
    host_key: Annotated[
        str, _rule(re.compile(r"[\w-]+ [\w+/]+=*").fullmatch, "a type and a key, as in a file of known_hosts")
    ] = ""
    device: Annotated[str, _rule(DEVICE.fullmatch, "use cpu, or cuda:0 for the first GPU")] = "cpu"
    threads: Annotated[int, Field(ge=1, le=256)] = 1
    python: str = ""
    folder: str = ".pareto"
    pip_index: str = ""
    next_address: Annotated[str, _rule(IPv4Address, "an IPv4 address on the link to the next host")] = ""
    next_interface: str = ""
    meter: Annotated[
        str, _rule(METER.own, "a file and a class in it, as in shelly.py:Plug, or a package's")
    ] = ""

    @property
    def is_this_machine(self) -> bool:
        return self.ssh == THIS_MACHINE


_KEYS = tuple(field.name for field in fields(HostEntry) if field.name != "name")


def _named(hosts: Any) -> Any:
    """Each host with its name, which the file has as its key; there may be no host yet."""
    return {name: (name, keys) for name, keys in hosts.items()} if isinstance(hosts, dict) else hosts or {}


def _entry(named: tuple[str, Any]) -> dict[str, Any]:
    name, keys = named
    return {"name": name, **only_keys(keys, _KEYS, "a host")}


def _check_next_side(host: HostEntry) -> HostEntry:
    """The host, once its side towards the next host is checked. Raises ValueError."""
    for key in ("next_address", "next_interface"):
        if getattr(host, key) and host.role != MIDDLE:
            raise ValueError(f"{key}: only a middle host has a next one beside the one before it")
    if host.next_address == host.data_address:
        raise ValueError(f"next_address {host.next_address!r}: as data_address: leave it out")
    if host.next_interface and not host.next_address:
        raise ValueError("next_interface: say next_address too, its address on the link to the next host")
    return host


class _Testbed(Keys):
    WHAT: ClassVar[str] = "a testbed"
    hosts: Annotated[
        dict[str, Annotated[HostEntry, BeforeValidator(_entry), AfterValidator(_check_next_side)]],
        BeforeValidator(_named),
    ]


def _check_names(testbeds: dict[str, _Testbed]) -> dict[str, _Testbed]:
    """The testbeds, once their names are checked, which rows and commands use. Raises ValueError."""
    if not testbeds:
        raise ValueError("testbeds: name at least one")
    for name in testbeds:
        if not _TESTBED.fullmatch(name):
            raise ValueError(f"{name!r}: a testbed's name is letters, digits and dashes")
    return testbeds


class _Testbeds(Keys):
    WHAT: ClassVar[str] = "a file of several testbeds"
    testbeds: Annotated[dict[str, _Testbed], AfterValidator(_check_names)]


@dataclass(frozen=True)
class Side:
    """A host's side of a link. interface: empty for the one that has the address. peer: the other host's address."""

    address: str
    interface: str
    peer: str


@dataclass(frozen=True)
class Inventory:
    """The hosts of a file, in its order."""

    path: Path
    hosts: tuple[HostEntry, ...]

    @property
    def roles(self) -> dict[str, HostEntry]:
        """In the order of the chain. Raises TestbedError where the file has no edge or no server."""
        by_part = {part: [host for host in self.hosts if host.role == part] for part in PARTS}
        for part in ROLES:
            if not by_part[part]:
                command = f", or {COMMAND} hosts add USER@ADDRESS --role {part} --testbed {self.path}"
                by = "" if _parts(self.path)[1] else command
                raise TestbedError(f"{self.path}: no host has the role {part}: add one{by}")
        hosts = [host for part in PARTS for host in by_part[part]]
        return dict(zip(chain(len(hosts)), hosts, strict=True))

    def one(self, role: str) -> HostEntry:
        """The only edge, or server; other hosts may be missing. Raises TestbedError where the file has none."""
        for host in self.hosts:
            if host.role == role:
                return host
        raise TestbedError(f"{self.path}: no host has the role {role}: add one")

    @property
    def sides(self) -> dict[str, tuple[Side, ...]]:
        """Each role's side of each of its links, that towards the edge first. Raises TestbedError as `roles` does."""
        roles = self.roles
        sides: dict[str, tuple[Side, ...]] = dict.fromkeys(roles, ())
        for (role, near), (next_role, far) in pairwise(roles.items()):
            own = near.next_address or near.data_address
            interface = near.next_interface if near.next_address else near.data_interface
            sides[role] += (Side(own, interface, far.data_address),)
            sides[next_role] += (Side(far.data_address, far.data_interface, own),)
        return sides


def load(path: Path) -> Inventory:
    """The testbed in a file, or that one of several (`labs.yaml#lab1`). Raises TestbedError with file and line."""
    if str(path).partition(":")[0] == SIMULATED:
        raise TestbedError(f"--testbed {path}: only sweeps are simulated; name local, or a file of hosts")
    source, name = _parts(path)
    file = YamlFile(source, "testbed", TestbedError)
    place: tuple[str, ...] = ()
    if name or file.has(_SEVERAL):
        testbeds = file.read(_Testbeds, _SEVERAL).testbeds
        if name not in testbeds:
            unknown = f"{source} has no testbed {name}: it has {', '.join(testbeds)}"
            several = f"{source} has several testbeds: name one, such as {source}#{next(iter(testbeds))}"
            raise TestbedError(unknown if name else several)
        keys, place = testbeds[name], (_SEVERAL, name)
    else:
        keys = file.read(_Testbed, f"hosts: and under it a host for each role ({EDGE}, {SERVER})")
    hosts = tuple(replace(host, meter=METER.typed(host.meter, source.parent)) for host in keys.hosts.values())
    for index, host in enumerate(hosts):
        with file.blaming(*place, "hosts", host.name):
            if (meter := METER.own(host.meter)) and not Path(meter.file).is_file():
                raise UserError(f"meter: there is no file {meter.file}")
            for other in hosts[:index]:
                for what, value in _clashes(other, host):
                    raise UserError(f"{other.name} and {host.name} have the same {what} {value}")
            if index == MAX_HOSTS:
                raise UserError(f"a chain has at most {MAX_HOSTS} hosts")
    return Inventory(path, hosts)


def names(path: Path) -> tuple[str, ...]:
    """The testbeds' names in a file of several; none where it is not one, or cannot be read (`load` says why)."""
    if not path.is_file():
        return ()
    with contextlib.suppress(TestbedError):
        file = YamlFile(path, "testbed", TestbedError)
        if file.has(_SEVERAL):
            return tuple(file.read(_Testbeds, _SEVERAL).testbeds)
    return ()


def all_hosts(path: Path) -> tuple[HostEntry, ...]:
    """The hosts in a file, of all of its testbeds. Raises TestbedError."""
    each = [load(path.with_name(f"{path.name}#{name}")) for name in names(path)] or [load(path)]
    return tuple(dict.fromkeys(host for testbed in each for host in testbed.hosts))


def _parts(path: Path) -> tuple[Path, str]:
    """The file, and the name of one of its testbeds, which is empty for a file of one."""
    file, sharp, name = str(path).rpartition("#")
    return (Path(file), name) if sharp and not path.exists() else (path, "")


def _clashes(one: HostEntry, other: HostEntry) -> Iterator[tuple[str, str]]:
    """The keys and values that both hosts have, though only one host can."""
    if one.role == other.role != MIDDLE:
        yield "role", one.role
    for address in {one.data_address, one.next_address} & {other.data_address, other.next_address} - {""}:
        yield "data_address", address


def require_one(path: Path) -> None:
    """Raises TestbedError for a file of several testbeds, to which no host can be added by a command."""
    if _parts(path)[1] or names(path):
        raise TestbedError(f"{path}: a file of several testbeds is written by hand, or name a file for each")


HEADER = """\
# A testbed: its hosts and how to reach them. Every key: docs/real-hardware.md
#   ./pareto.sh hosts setup --testbed {path}
#   ./pareto.sh doctor --testbed {path}
hosts:
"""
_INDENT = "  "


def add(path: Path, host: HostEntry) -> None:
    """Append a host to a file, or a new one; comments and order stay. Raises TestbedError, and changes nothing then."""
    before = load(path).hosts if path.exists() else ()

    def longer(text: str) -> str:
        text = text or HEADER.format(path=path)
        hosts = _hosts(text)
        indent = " " * hosts.value[0][0].start_mark.column if hosts.value else _INDENT
        return text + ("" if text.endswith("\n") else "\n") + as_text(host, indent)

    _replace(path, longer, (*before, host), "a host cannot simply be added to at its end")


def change(path: Path, host: HostEntry) -> None:
    """Write a host's other values into a file; comments, order stay. Raises TestbedError, and changes nothing then."""
    before = load(path).hosts
    (old,) = (each for each in before if each.name == host.name)
    values = {key: str(getattr(host, key)) for key in _KEYS if getattr(host, key) != getattr(old, key)}
    after = tuple(host if each is old else each for each in before)
    _replace(path, lambda text: _with(text, host.name, values), after, "a value cannot simply be changed")


def as_text(host: HostEntry, indent: str = _INDENT) -> str:
    """The lines of a host; keys with the value that they would have anyway are left out."""
    defaults = {field.name: field.default for field in fields(HostEntry)}
    values = {key: getattr(host, key) for key in _KEYS}
    shown = {key: value for key, value in values.items() if key == "device" or value != defaults[key]}
    shown |= {"key": str(host.key)} if host.key else {}
    text = yaml.safe_dump({host.name: shown}, sort_keys=False, allow_unicode=True, width=math.inf)
    return textwrap.indent(text, indent)


def _replace(path: Path, edit: Callable[[str], str], hosts: tuple[HostEntry, ...], fault: str) -> None:
    """Put an edited file in place, once it reads as `hosts`. `edit` gets its text, empty where it is missing."""
    target = path.resolve()  # a symbolic link stays one
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        text = edit(target.read_text(encoding="utf-8") if target.exists() else "")
        target.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(text, encoding="utf-8")
        if load(draft).hosts != hosts:
            raise TestbedError(f"it is written in a way in which {fault}")
        if target.exists():
            shutil.copymode(target, draft)
        draft.replace(target)
    except (OSError, TestbedError) as error:
        words = str(error).replace(str(draft), str(path))
        raise TestbedError(f"{path} is left as it was: {words}") from None
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def _with(text: str, name: str, values: dict[str, str]) -> str:
    """The text of a file with other values of a host's keys; a new key goes before `data_address`."""
    (host,) = (value for key, value in _hosts(text).value if key.value == name)
    keys = {key.value: (key.start_mark, value.start_mark, value.end_mark) for key, value in host.value}
    if "data_address" in keys:
        beside = keys["data_address"][0]
        at, after = beside.index, ", " if host.flow_style else f"\n{' ' * beside.column}"
        new = [(at, at, f"{key}: {values[key]}{after}") for key in values.keys() - keys]
        old = [(keys[key][1].index, keys[key][2].index, values[key] or '""') for key in values.keys() & keys]
        if not any(text[start] == "&" for start, _, _ in old):
            for start, end, words in sorted(old + new, reverse=True):
                text = text[:start] + words + text[end:]
            return text
    wanted = ", ".join(f"{key} {value}" for key, value in values.items())
    raise TestbedError(f"{name} shares its keys with other places: write {wanted} by hand")


def _hosts(text: str) -> Any:
    """The node of the hosts in the text of a file that `load` has read."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)  # noqa: S101
    return next(value for key, value in root.value if key.value == "hosts")

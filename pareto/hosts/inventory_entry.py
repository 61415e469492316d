"""Adding a host to a testbed file that its user writes too: their comments and their order stay."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from pathlib import Path

import yaml

from pareto.hosts import inventory
from pareto.hosts.host import TestbedError
from pareto.hosts.inventory import DEFAULT_FOLDER, Inventory, Member

HEADER = """\
# A testbed: its hosts and how to reach them. Every key: docs/real-hardware.md
#   ./pareto.sh hosts setup --testbed {path}
#   ./pareto.sh doctor --testbed {path}
hosts:
"""
_INDENT = "  "
_PLAIN = re.compile(r"[A-Za-z0-9_/.]([A-Za-z0-9_/.@+%:~-]*[A-Za-z0-9_/.@+%~-])?")


def read(path: Path) -> Inventory:
    """The testbed so far; without hosts where there is no file yet. Raises TestbedError."""
    return inventory.load(path) if path.exists() else Inventory(path, ())


def add(path: Path, member: Member) -> None:
    """Write the host into the file, which is made where it is missing.

    Raises TestbedError where that cannot be done; the file is then as it was.
    """
    before = read(path)
    try:
        _replace(path, before, member)
    except (OSError, TestbedError) as error:
        raise TestbedError(f"{path} is left as it was: {error}") from None


def entry(member: Member, indent: str = _INDENT) -> str:
    """The lines of a host; what is as it would be anyway is left out."""
    said = {
        "role": member.role,
        "ssh": member.ssh,
        "port": "" if member.port is None else str(member.port),
        "user": member.user,
        "key": "" if member.key is None else str(member.key),
        "data_address": member.data_address,
        "data_interface": member.data_interface,
        "next_address": member.next_address,
        "next_interface": member.next_interface,
        "device": member.device,
        "threads": str(member.threads) if member.threads != 1 else "",
        "python": member.python,
        "folder": member.folder if member.folder != DEFAULT_FOLDER else "",
        "pip_index": member.pip_index,
    }
    lines = [f"{indent}{_scalar(member.name)}:"]
    lines += [f"{indent}{_INDENT}{key}: {_scalar(value)}" for key, value in said.items() if value]
    return "\n".join(lines) + "\n"


def _replace(path: Path, before: Inventory, member: Member) -> None:
    """Put the longer file in place of the shorter one, once it reads as it should."""
    target = path.resolve()  # a symbolic link stays one
    if before.members or target.exists():
        text = target.read_text(encoding="utf-8")
        text += "" if text.endswith("\n") else "\n"
    else:
        text = HEADER.format(path=path)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        draft.write_text(text + entry(member, _indent(text)), encoding="utf-8")
        _check(draft, path, (*before.members, member))
        if target.exists():
            shutil.copymode(target, draft)
        draft.replace(target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()


def _check(draft: Path, path: Path, wanted: tuple[Member, ...]) -> None:
    try:
        found = inventory.load(draft).members
    except TestbedError as error:
        raise TestbedError(str(error).replace(str(draft), str(path))) from None
    if found != wanted:
        raise TestbedError("it is written in a way that a host cannot simply be added to at its end")


def _indent(text: str) -> str:
    """How far the hosts that are there stand to the right."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)  # noqa: S101  (inventory.load has read it)
    (hosts,) = (value for key, value in root.value if key.value == "hosts")
    if not isinstance(hosts, yaml.MappingNode) or not hosts.value:
        return _INDENT
    return " " * int(hosts.value[0][0].start_mark.column)


def _scalar(text: str) -> str:
    """A value that YAML reads back as it is."""
    if _PLAIN.fullmatch(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

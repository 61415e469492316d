"""The host keys that a host may show: what OpenSSH's known_hosts files say of it."""

from __future__ import annotations

import binascii
import subprocess
from base64 import b64decode
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import paramiko

from pareto.hosts.connection import NotAdmitted, Unreachable
from pareto.hosts.ssh.login import SSH_PORT, Login, shown

_REVOKED = "@revoked"
_USUAL = "~/.ssh/known_hosts"


@dataclass(frozen=True)
class Entry:
    """A line about the host: `key` is the public key as it goes over the wire."""

    kind: str
    key: bytes
    revoked: bool = False


def known(login: Login) -> list[Entry]:
    """The entries for the host: the key that it is pinned to, else what the files say. Raises Unreachable."""
    if login.host_key:
        kind, encoded = login.host_key.split()[:2]
        return [Entry(kind, b64decode(encoded))]
    return [entry for path in login.known_hosts for entry in _read(login, path)]


def kinds(entries: list[Entry], supported: list[str]) -> list[str]:
    """The key types to ask a host for, those of known keys first: it shows only one of its keys."""
    usable = {entry.kind for entry in entries if not entry.revoked}
    if "ssh-rsa" in usable:  # an RSA key signs in ways that have names of their own
        usable = usable - {"ssh-rsa"} | {"rsa-sha2-512", "rsa-sha2-256"}
    return sorted(supported, key=lambda kind: kind not in usable)


def check(login: Login, key: paramiko.PKey, entries: list[Entry]) -> None:
    """Raises Unreachable unless `key` is one that the host may show; NotAdmitted where none is known."""
    same = [entry for entry in entries if entry.key == key.asbytes()]
    words = key.fingerprint
    if any(entry.revoked for entry in same):
        raise Unreachable(f"{login} shows the host key {words}, which known_hosts says is revoked")
    if same:
        return
    if any(not entry.revoked for entry in entries):
        if login.host_key:
            raise Unreachable(f"{login} shows another host key ({words}) than it was started with")
        name = f"'{login.known_as}'" if login.known_as.startswith("[") else login.known_as
        own = shown(login.known_hosts[0])
        raise Unreachable(
            f"{login} shows another host key ({words}) than known_hosts has: somebody may be in between; "
            f"if it was set up anew: ssh-keygen -R {name}" + ("" if own == _USUAL else f" -f {own}")
        )
    file = f"/etc/ssh/ssh_host_{key.algorithm_name.lower()}_key.pub"
    raise NotAdmitted(
        f"{login} is not in known_hosts; it shows {words}: compare that with its own (ssh-keygen -lf {file} there) "
        f"and add it: {_adding(login, key)}"
    )


def _read(login: Login, path: Path) -> Iterator[Entry]:
    """The lines about the host: ssh-keygen knows patterns, negated ones and hashed names."""
    try:
        path.open("rb").close()
    except FileNotFoundError:
        return
    except OSError as error:
        raise Unreachable(f"{login}: cannot read {shown(path)}: {error.strerror}") from error
    argv = ["ssh-keygen", "-F", login.known_as, "-f", str(path)]
    lines = subprocess.run(argv, capture_output=True, check=False).stdout  # noqa: S603
    for line in lines.decode(errors="replace").splitlines():
        words = line.split()
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if len(words) < 3 or words[0].startswith("#") or marker not in ("", _REVOKED):
            continue
        with suppress(binascii.Error):
            kind, key = words[1], b64decode(words[2], validate=True)
            # A key names its own type; a line that names another is about no key.
            if key[4 : 4 + len(kind)] == kind.encode():
                yield Entry(kind, key, marker == _REVOKED)


def _adding(login: Login, key: paramiko.PKey) -> str:
    """A command that adds the key; ssh-keyscan sees neither through a jump host nor an alias."""
    file = shown(login.known_hosts[0])
    plain = login.address if login.port == SSH_PORT else f"[{login.address}]:{login.port}"
    if login.jump or login.proxy_command or login.known_as != plain:
        return f"echo '{login.known_as} {key.get_name()} {key.get_base64()}' >> {file}"
    return f"ssh-keyscan -p {login.port} {login.address} >> {file}"

"""Which host key a host may show: what OpenSSH's known_hosts files say of it."""

from __future__ import annotations

import binascii
import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import paramiko

from pareto.hosts.login import SSH_PORT, Login, shown
from pareto.hosts.way import Unreachable

_REVOKED = "@revoked"
_USUAL = "~/.ssh/known_hosts"


@dataclass(frozen=True)
class Entry:
    """A line that is about the host: `key` is the public key as it goes over the wire."""

    kind: str
    key: bytes
    revoked: bool = False


def known(login: Login) -> list[Entry]:
    """What is known about the host, the key that it is pinned to alone where it is. Raises Unreachable."""
    if login.host_key:
        kind, encoded = login.host_key.split()[:2]
        return [Entry(kind, b64decode(encoded))]
    return [entry for path in login.known_hosts for entry in _read(login, path)]


def kinds(entries: list[Entry], supported: list[str]) -> list[str]:
    """The key types to ask a host for, those first of which a key is known: it shows only one of its keys."""
    usable = {kind for entry in entries if not entry.revoked for kind in _signatures(entry.kind)}
    return sorted(supported, key=lambda kind: kind not in usable)


def check(login: Login, key: paramiko.PKey, entries: list[Entry]) -> None:
    """Raises Unreachable unless `key` is one that the host may show."""
    same = [entry for entry in entries if entry.key == key.asbytes()]
    words = fingerprint(key)
    if any(entry.revoked for entry in same):
        raise Unreachable(f"{login} shows the host key {words}, which known_hosts says is revoked")
    if same:
        return
    if any(not entry.revoked for entry in entries):
        if login.host_key:
            raise Unreachable(f"{login} shows another host key ({words}) than it was started with")
        raise Unreachable(
            f"{login} shows another host key ({words}) than known_hosts has: somebody may be in between; "
            f"if it was set up anew: {_removing(login)}"
        )
    file = f"/etc/ssh/ssh_host_{key.algorithm_name.lower()}_key.pub"
    raise Unreachable(
        f"{login} is not in known_hosts; it shows {words}: compare that with its own (ssh-keygen -lf {file} there) "
        f"and add it: {_adding(login, key)}"
    )


def fingerprint(key: paramiko.PKey) -> str:
    """As `ssh-keygen -l` writes it: SHA256:..."""
    return f"SHA256:{b64encode(hashlib.sha256(key.asbytes()).digest()).decode().rstrip('=')}"


def add(login: Login, key: paramiko.PKey) -> None:
    """Note the key of a host in the user's own file. Raises OSError."""
    path = login.known_hosts[0]
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)
    with path.open("rb+") as file:
        before = file.read()
        # A last line without its end would become one with ours.
        file.write(b"" if before.endswith(b"\n") or not before else b"\n")
        file.write(f"{_line(login, key)}\n".encode())


def _read(login: Login, path: Path) -> Iterator[Entry]:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return
    except OSError as error:
        raise Unreachable(f"{login}: cannot read {shown(path)}: {error.strerror}") from error
    for line in lines:
        words = line.split()
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if len(words) < 3 or words[0].startswith("#") or marker not in ("", _REVOKED):
            continue
        names, kind, encoded = words[:3]
        try:
            key = b64decode(encoded, validate=True)
        except binascii.Error:
            continue
        # What the line says of its type must be true of the key, or it is no key.
        if key[4 : 4 + len(kind)] == kind.encode() and _is_about(names, login.known_as):
            yield Entry(kind, key, marker == _REVOKED)


def _is_about(names: str, host: str) -> bool:
    """Whether the first field of a line means `host`: names, patterns, patterns with "!", or one hashed name."""
    if names.startswith("|1|"):
        return _is_hash_of(names, host)
    found = False
    for name in names.lower().split(","):
        if _pattern(name.removeprefix("!")).fullmatch(host.lower()):
            if name.startswith("!"):
                return False
            found = True
    return found


def _is_hash_of(hashed: str, host: str) -> bool:
    try:
        salt, digest = (b64decode(part, validate=True) for part in hashed.split("|")[2:])
    except (ValueError, binascii.Error):
        return False
    return hmac.compare_digest(hmac.new(salt, host.encode(), hashlib.sha1).digest(), digest)


def _pattern(name: str) -> re.Pattern[str]:
    """ "*" and "?" alone are special: the brackets of "[host]:port" are not."""
    return re.compile(re.escape(name).replace(r"\*", ".*").replace(r"\?", "."))


def _signatures(kind: str) -> tuple[str, ...]:
    """An RSA key signs in ways that have names of their own."""
    return ("rsa-sha2-512", "rsa-sha2-256") if kind == "ssh-rsa" else (kind,)


def _adding(login: Login, key: paramiko.PKey) -> str:
    """A command that adds the key; ssh-keyscan sees neither through a jump host nor an alias."""
    file = shown(login.known_hosts[0]) if login.known_hosts else _USUAL
    plain = login.address if login.port == SSH_PORT else f"[{login.address}]:{login.port}"
    if login.jump or login.proxy_command or login.known_as != plain:
        return f"echo '{_line(login, key)}' >> {file}"
    return f"ssh-keyscan -p {login.port} {login.address} >> {file}"


def _line(login: Login, key: paramiko.PKey) -> str:
    return f"{login.known_as} {key.get_name()} {key.get_base64()}"


def _removing(login: Login) -> str:
    name = f"'{login.known_as}'" if login.known_as.startswith("[") else login.known_as
    file = shown(login.known_hosts[0]) if login.known_hosts else _USUAL
    return f"ssh-keygen -R {name}" + ("" if file == _USUAL else f" -f {file}")

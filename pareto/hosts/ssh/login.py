"""Who is logged in to where: what OpenSSH's own configuration makes of a name."""

from __future__ import annotations

import os
import pwd
import re
import shlex
import socket
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from pareto.hosts.host import TestbedError, not_installed
from pareto.hosts.inventory import HostEntry

SSH_PORT = 22
_JUMPS = 8  # a longer way than this is a ProxyJump that leads back to itself
_TIMEOUT_S = 30.0  # `ssh -G` may ask the name service, and run what `Match exec` says


@dataclass(frozen=True)
class Login:
    """How to log in to a host.

    name: as the testbed calls it. host_key: the one key it may show, in OpenSSH's one-line form; without one, the
    files of `known_hosts` decide (the first is the user's own), in which it stands as `known_as`: the address, with
    the port where that is not 22, or OpenSSH's HostKeyAlias. identities: private key files to try. agent: the socket
    of the agent whose keys are tried before them, all, or with `identities_only` those that are among the files.
    jump: the host to go through, which is logged in to first. proxy_command: a command for `sh` whose stdin and
    stdout are the connection. ssh: the arguments with which `ssh` and `ssh-copy-id` reach the same.
    """

    name: str
    address: str
    port: int
    user: str
    host_key: str = ""
    known_hosts: tuple[Path, ...] = ()
    known_as: str = ""
    identities: tuple[Path, ...] = ()
    agent: str = ""
    identities_only: bool = False
    jump: Login | None = None
    proxy_command: str = ""
    ssh: str = ""

    def __str__(self) -> str:
        """As messages begin: which host, and what was tried."""
        return f"{self.name} ({self.user}@{self.address})"


def resolve(host: HostEntry) -> Login:
    """The login of `ssh TARGET`, where `host.ssh` is a name that its configuration knows, or an address.

    The host's port, user and keys go before the configuration; with a key, no other is tried. Raises TestbedError.
    """
    options = [] if host.port is None else ["-p", str(host.port)]
    target = f"{host.user}@{host.ssh.rpartition('@')[2]}" if host.user else host.ssh
    if host.key is not None:
        if not host.key.is_file():
            raise TestbedError(f"{host.name}: the key {host.key} is not there")
        options += ["-o", "IdentitiesOnly=yes", "-i", str(host.key)]
    return replace(_resolve(host.name, target, options, _JUMPS), host_key=host.host_key)


def shown(path: Path) -> str:
    """A path as the user writes it."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _resolve(name: str, target: str, options: list[str], jumps: int) -> Login:
    settings = _configuration(name, target, options)
    first = {keyword: values[0] for keyword, values in settings.items()}
    address, port, user = first["hostname"].lower(), int(first["port"]), first["user"]
    alias = first.get("hostkeyalias", "")
    local = socket.gethostname()
    tokens = {
        "%": "%",
        "h": address,
        "n": first.get("host", target),
        "p": str(port),
        "r": user,
        "k": alias or address,
        "d": str(Path.home()),
        "u": pwd.getpwuid(os.getuid()).pw_name,
        "i": str(os.getuid()),
        "l": local,
        "L": local.partition(".")[0],
    }
    identities = [Path(_path(value, tokens)) for value in settings.get("identityfile", [])]
    jump = _given(first, "proxyjump")
    if jump and jumps == 0:
        raise TestbedError(
            f"{name}: ProxyJump leads back to {target}: say ProxyJump none where ~/.ssh/config describes the jump host"
        )
    return Login(
        name,
        address,
        port,
        user,
        known_hosts=_known_hosts(first),
        known_as=alias or (address if port == SSH_PORT else f"[{address}]:{port}"),
        # With its private half in an agent or a security key, the public half is enough.
        identities=tuple(p for p in identities if p.is_file() or p.with_name(f"{p.name}.pub").is_file()),
        agent=_agent(_given(first, "identityagent", "SSH_AUTH_SOCK"), tokens),
        identities_only=first.get("identitiesonly") == "yes",
        jump=_jump(jump, jumps - 1) if jump else None,
        proxy_command="" if jump else _expand(_given(first, "proxycommand"), tokens),
        ssh=shlex.join([*options, target]),
    )


def _jump(chain: str, jumps: int) -> Login:
    """The last host of `a,b`, which is reached through those before it."""
    before, _, last = chain.rpartition(",")
    user, at, place = last.removeprefix("ssh://").rpartition("@")
    split = re.fullmatch(r"\[?(?P<host>[^\[\]]+?)\]?(?::(?P<port>\d+))?", place)
    host, port = (split["host"], split["port"]) if split else (place, None)
    options = ["-o", f"ProxyJump={before}"] if before else []
    return _resolve(host, f"{user}{at}{host}", [*options, *(["-p", port] if port else [])], jumps)


def _configuration(name: str, target: str, options: list[str]) -> dict[str, list[str]]:
    """The settings that `ssh -G` prints, by keyword."""
    argv = ["ssh", "-T", "-G", *configuration_file(), *options, "--", target]
    try:
        done = subprocess.run(  # noqa: S603  (no shell; "--" keeps the target from being an option)
            argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_TIMEOUT_S, check=False
        )
    except FileNotFoundError:
        raise not_installed("ssh", "openssh-client") from None
    except subprocess.TimeoutExpired:
        raise TestbedError(f"{name}: ssh -G {target} took longer than {_TIMEOUT_S:g} s") from None
    if done.returncode != 0:
        words = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise TestbedError(f"{name}: ssh cannot make anything of {target!r}: {words[0].strip()}")
    settings: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        keyword, _, value = line.partition(" ")
        settings.setdefault(keyword.lower(), []).append(value)
    return settings


def configuration_file() -> list[str]:
    """Options that name the user's own configuration where $HOME is not the passwd entry's home, which ssh takes."""
    if Path.home() == _passwd_home():
        return []
    config = Path.home() / ".ssh" / "config"
    return ["-F", str(config) if config.is_file() else "/dev/null"]


def _known_hosts(first: dict[str, str]) -> tuple[Path, ...]:
    """The user's files, then the machine's. There is always one of the user's to add to."""
    own, machine = (
        # ssh does not quote paths with spaces in them; each begins at the root, at home, or is none.
        [
            _at_home(Path(word).expanduser())
            for word in re.split(r"\s+(?=[/~]|none\b)", first.get(key, "none"))
            if word not in ("none", "/dev/null")
        ]
        for key in ("userknownhostsfile", "globalknownhostsfile")
    )
    return (*(own or [Path.home() / ".ssh" / "known_hosts"]), *machine)


def _at_home(path: Path) -> Path:
    """A path for which ssh has put the passwd entry's home already, where $HOME is another."""
    home, other = Path.home(), _passwd_home()
    moves = path.is_relative_to(other) and not path.is_relative_to(home)
    return home / path.relative_to(other) if moves else path


def _passwd_home() -> Path:
    return Path(pwd.getpwuid(os.getuid()).pw_dir)


def _agent(setting: str, tokens: dict[str, str]) -> str:
    """The socket of the agent; empty for none."""
    if setting == "SSH_AUTH_SOCK" or (setting.startswith("$") and not setting.startswith("${")):
        return os.environ.get(setting.removeprefix("$"), "")
    return str(_at_home(Path(_path(setting, tokens)))) if setting else ""


def _given(first: dict[str, str], keyword: str, default: str = "") -> str:
    value = first.get(keyword, default)
    return "" if value == "none" else value


def _path(text: str, tokens: dict[str, str]) -> str:
    expanded = _expand(str(Path(text).expanduser()), tokens)
    return re.sub(r"\$\{(\w+)\}", lambda match: os.environ.get(match[1], ""), expanded)


def _expand(text: str, tokens: dict[str, str]) -> str:
    return re.sub(r"%(.)", lambda match: tokens.get(match[1], match[0]), text)

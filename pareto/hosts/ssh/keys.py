"""The keys that a driver logs in with: one of its own, or the user's in the agent and in files."""

from __future__ import annotations

import io
import socket
import subprocess
import threading
from base64 import b64decode
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from pathlib import Path

import paramiko
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    load_ssh_private_key,
)
from paramiko.agent import AgentSSH

from pareto.basics import files
from pareto.hosts.ssh.login import Login, shown

AGENT_TIMEOUT_S = 60.0
"""An agent may ask its user whether it shall sign."""
_ASKED = 3
_Private = Ed25519PrivateKey | RSAPrivateKey | EllipticCurvePrivateKey
_KINDS: dict[type[_Private], type[paramiko.PKey]] = {
    Ed25519PrivateKey: paramiko.Ed25519Key,
    RSAPrivateKey: paramiko.RSAKey,
    EllipticCurvePrivateKey: paramiko.ECDSAKey,
}


class NoKey(Exception):
    """A key that should be tried cannot be read: one line that says which, and what to do."""


class Keyring:
    """The keys of one driver process: the user's. A passphrase is asked for once, and only when no other key was taken.

    ask: gets a passphrase for a prompt, as getpass does; None where there is no terminal. only: one key for all hosts.
    """

    def __init__(self, ask: Callable[[str], str] | None = None, *, only: paramiko.PKey | None = None) -> None:
        self._only = only
        self._ask = ask
        self._opened: dict[Path, paramiko.PKey | None] = {}
        self._asking = threading.Lock()

    def offers(self, login: Login) -> Generator[tuple[paramiko.PKey, str]]:
        """The keys for a host, each with what to call it, in OpenSSH's order: the agent's that are named, the agent's
        others, files; those with a passphrase come last. Close it after use. Raises NoKey where the last are locked."""
        if self._only is not None:
            yield self._only, "this run's own key"
            return
        halves = {path: public_half(path) for path in login.identities}
        held = set()
        with closing(_Agent(login.agent)) as agent:
            named = [key for key in agent.get_keys() if key.blob in halves.values()]
            others = [] if login.identities_only else [key for key in agent.get_keys() if key not in named]
            for key in [*named, *others]:
                held.add(key.blob)
                yield key, f"{key.comment or key.get_name()} in the agent"
        there = [path for path, half in halves.items() if half not in held and path.is_file()]
        locked = [path for path in there if path not in self._opened and is_locked(path)]
        for path in sorted(there, key=locked.__contains__):
            if path in locked and self._ask is None:
                names, several = " ".join(map(shown, locked)), len(locked) > 1
                which = f"{names} have passphrases" if several else f"the key {names} has a passphrase"
                what = "them" if several else "it"
                raise NoKey(f"{which}: add {what} to the agent (ssh-add {names})")
            if (opened := self._open(path)) is not None:
                yield opened, shown(path)

    def _open(self, path: Path) -> paramiko.PKey | None:
        """The key in a file, read once; None where its passphrase was not given, or it is no key."""
        with self._asking:
            if path not in self._opened:
                self._opened[path] = self._read(path)
            return self._opened[path]

    def _read(self, path: Path) -> paramiko.PKey | None:
        with suppress(OSError, EOFError, ValueError, UnsupportedAlgorithm, paramiko.SSHException):
            if not is_locked(path):
                return load(path)
            for _ in range(_ASKED):
                # No answer means: not this one.
                if self._ask is None or not (passphrase := self._ask(f"passphrase of {shown(path)}: ")):
                    return None
                with suppress(ValueError):
                    return load(path, passphrase)
        return None


def new_key() -> tuple[paramiko.Ed25519Key, str]:
    """A key pair for one run, never written to disk; the public half in OpenSSH's one-line form."""
    pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    key = paramiko.Ed25519Key.from_private_key(io.StringIO(pem.decode()))
    return key, f"{key.get_name()} {key.get_base64()}"


def load(path: Path, passphrase: str | None = None) -> paramiko.PKey:
    """The private key in a file, with its certificate where one lies beside it. Raises TypeError where it needs a
    passphrase; ValueError, UnsupportedAlgorithm or OSError where it cannot be read."""
    private = _parsed(path, passphrase)
    if not isinstance(private, _Private):
        raise ValueError(f"{path} has a key of a type that SSH servers take no longer")
    kind = next(ours for theirs, ours in _KINDS.items() if isinstance(private, theirs))
    # paramiko reads OpenSSH's own format of every type, and not all the others.
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    key = kind.from_private_key(io.StringIO(pem.decode()))
    certificate = path.with_name(f"{path.name}-cert.pub")
    if certificate.is_file():
        key.load_certificate(str(certificate))
    return key


def is_locked(path: Path) -> bool:
    """Whether a private key's file needs a passphrase."""
    with suppress(OSError, ValueError, UnsupportedAlgorithm):
        try:
            _parsed(path, None)
        except TypeError:
            return True
    return False


def public_half(path: Path) -> bytes | None:
    """The public key of a key file, without its passphrase; None where only the passphrase would tell."""
    public = path.with_name(f"{path.name}.pub")
    argv = ["ssh-keygen", "-e", "-P", "", "-f", str(public if public.is_file() else path)]
    done = subprocess.run(argv, capture_output=True, stdin=subprocess.DEVNULL, check=False)  # noqa: S603
    base64 = (line for line in done.stdout.splitlines() if b":" not in line and b"-" not in line)
    return b64decode(b"".join(base64)) or None


def _parsed(path: Path, passphrase: str | None) -> object:
    data = files.text(path, "key").encode()
    secret = None if passphrase is None else passphrase.encode()
    if b"BEGIN OPENSSH PRIVATE KEY" in data:
        return load_ssh_private_key(data, secret)
    return load_pem_private_key(data, secret)


class _Agent(AgentSSH):
    """The agent at a socket: paramiko's own looks at SSH_AUTH_SOCK alone. One that is not there has no keys."""

    def __init__(self, path: str) -> None:
        super().__init__()
        if not path:
            return
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(AGENT_TIMEOUT_S)
        try:
            connection.connect(path)
            self._connect(connection)  # type: ignore[attr-defined]
        except (OSError, paramiko.SSHException):
            connection.close()

    def close(self) -> None:
        self._close()  # type: ignore[attr-defined]

"""SSH connections by paramiko: strict host keys, keys only, one connection a host with many channels."""

from __future__ import annotations

import io
import time
from base64 import b64decode
from dataclasses import dataclass

import paramiko
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from pareto.hosts.session import SessionLost

CONNECT_TIMEOUT_S = 10.0


class Unreachable(Exception):
    """A host that cannot be logged in to, and why."""


@dataclass(frozen=True)
class Login:
    """How to reach a host. `host_key` is the one key it may show, in OpenSSH's one-line form."""

    name: str
    address: str
    port: int
    user: str
    host_key: str


def new_key() -> tuple[paramiko.Ed25519Key, str]:
    """A key pair for one run, never written to disk; the public half in OpenSSH's one-line form."""
    pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    key = paramiko.Ed25519Key.from_private_key(io.StringIO(pem.decode()))
    return key, f"{key.get_name()} {key.get_base64()}"


def connect(login: Login, key: paramiko.PKey) -> paramiko.SSHClient:
    """Log in. An sshd that was started a moment ago may need one; raises Unreachable."""
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    kind, _, encoded = login.host_key.partition(" ")
    known_as = login.address if login.port == 22 else f"[{login.address}]:{login.port}"
    client.get_host_keys().add(known_as, kind, paramiko.PKey.from_type_string(kind, b64decode(encoded)))
    deadline = time.monotonic() + CONNECT_TIMEOUT_S
    while True:
        try:
            client.connect(
                login.address,
                port=login.port,
                username=login.user,
                pkey=key,
                timeout=CONNECT_TIMEOUT_S,
                allow_agent=False,
                look_for_keys=False,
            )
            return client
        except paramiko.ssh_exception.NoValidConnectionsError as error:
            if time.monotonic() > deadline:
                raise Unreachable(f"{login.name} ({login.address}) does not answer") from error
            time.sleep(0.01)
        except (OSError, paramiko.SSHException) as error:
            raise Unreachable(f"{login.name} ({login.user}@{login.address}): {error}") from error


class ChannelWire:
    """A program started by `command` on an SSH channel; its stderr goes to `log` on that host."""

    def __init__(self, client: paramiko.SSHClient, command: str, log: str) -> None:
        transport = client.get_transport()
        if transport is None:
            raise SessionLost("the SSH connection is closed")
        self._client = client
        self._log = log
        try:
            self._channel = transport.open_session()
            self._channel.exec_command(command)
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise SessionLost(f"the SSH connection is lost: {error}") from error

    def send(self, data: bytes) -> None:
        # No time-out of its own: the channel has one for both ways, and it is `receive`'s, in another thread.
        self._channel.sendall(data)

    def receive(self, timeout_s: float) -> bytes:
        self._channel.settimeout(timeout_s)
        return self._channel.recv(1 << 20)

    def close(self) -> None:
        self._channel.close()

    def last_words(self) -> str:
        try:
            with self._client.open_sftp() as sftp, sftp.open(self._log) as file:
                return file.read().decode(errors="replace")
        except (OSError, EOFError, paramiko.SSHException):
            return ""

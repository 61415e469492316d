"""A real OpenSSH server in a namespace of the local testbed, with keys made for this run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from pareto.hosts.local import rights
from pareto.hosts.local.network import HostSpace
from pareto.hosts.setup.invitation import public_line, write_key

PORT = 22

_CONFIG = """\
ListenAddress {address}:{port}
HostKey "{folder}/host_key"
AuthorizedKeysFile "{folder}/authorized_keys"
AuthenticationMethods publickey
AllowUsers {users}
PermitRootLogin prohibit-password
# Only root can have PAM, and it costs 50 ms a connection; without it OpenSSH turns locked accounts away, key or not.
UsePAM {pam}
StrictModes {strict}
UseDNS no
PidFile none
# Debian's bash reads ~/.bashrc when it thinks sshd started it: 90 ms for each command.
SetEnv SHLVL=1
MaxSessions 32
ClientAliveInterval 5
ClientAliveCountMax 3
"""


@dataclass(frozen=True)
class Accounts:
    """names: who may log in, by `port`. run_as: argv prefix of an sshd that is one of them, where it cannot be root."""

    names: tuple[str, ...]
    port: int = PORT
    run_as: tuple[str, ...] = ()


def start(
    host: HostSpace, folder: Path, accounts: Accounts, client_key: str, core: int, cgroups: Sequence[Path]
) -> tuple[subprocess.Popen[bytes], str, Path]:
    """A running sshd in the host's namespace, its host key and its log. Killing it ends everything started through it.
    cgroups: their files of pids."""
    folder.mkdir(mode=0o755)
    # In the user's own namespace / is nobody's; the folder of keys is known to be the user's alone.
    by_root, place = not accounts.run_as, (host.management_address, accounts.port)
    text = configuration(folder, *place, accounts.names, by_root=by_root, strict=by_root)
    server, host_key = prepared(folder, f"{text}Subsystem sftp internal-sftp\nLogLevel ERROR\n", client_key)
    argv = [
        *bound_to_parent(host.namespace),
        *["taskset", "--cpu-list", str(core)],
        *["sh", "-c", "".join(f"echo $$ > {each} && " for each in cgroups) + 'exec "$@"', "sh"],
        # A PID namespace of its own: killing its first process takes every descendant along, those in sessions
        # of their own too, and no channel that reads another process's memory can cross between hosts.
        *["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts", "--ipc"],
        *accounts.run_as,
        *server,
    ]
    log = folder / "sshd.log"
    with log.open("wb") as output:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output)  # noqa: S603
    return process, public_line(host_key), log


def prepared(folder: Path, text: str, client_key: str) -> tuple[list[str], Ed25519PublicKey]:
    """The argv of a server with this configuration, which lets in who has that key; its own key, made for it."""
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # Debian makes it only when its own service starts
    host_key, config = Ed25519PrivateKey.generate(), folder / "sshd_config"
    write_key(folder / "host_key", host_key)
    (folder / "authorized_keys").write_text(f"{client_key}\n")
    config.write_text(text)
    return [rights.sshd() or "sshd", "-D", "-e", "-f", str(config)], host_key.public_key()


def configuration(
    folder: Path, address: str, port: int, users: Sequence[str], *, by_root: bool, strict: bool
) -> str:
    """The text of sshd_config. by_root: root starts it. strict: whatever the folder of keys lies in is checked, too."""
    return _CONFIG.format(
        address=address,
        port=port,
        folder=folder,
        users=" ".join(dict.fromkeys(users)),
        pam="yes" if by_root and any(map(is_locked, users)) else "no",
        strict="yes" if strict else "no",
    )


def bound_to_parent(namespace: str) -> list[str]:
    """argv prefix: run in `namespace`, and be killed by the kernel when this process dies, however it dies."""
    return ["setpriv", "--pdeathsig", "KILL", "nsenter", f"--net=/run/netns/{namespace}", "--"]


def is_locked(user: str) -> bool:
    """Whether the account's password is locked, by shadow(5)'s '!' prefix."""
    return any(line.startswith(f"{user}:!") for line in Path("/etc/shadow").read_text().splitlines())

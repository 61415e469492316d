"""What is on a lab host's disk: a copy of this machine's /etc with one user more, homes, and room for root's tools."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

USER, UID = "pi", 4242
OWN = ("etc", "home", "root", "var/log", "var/tmp")
"""Folders of which a host has its own from the start."""
MIRRORED = ("usr/local/sbin", "usr/local/lib")
"""Folders of which a host has its own too, with this machine's entries in it. Python itself may be in there."""

# As Debian has it: no root, keys only. PAM costs 50 ms a connection, and is not what is tested here.
_SSHD = """\
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin no
PasswordAuthentication no
KbdInteractiveAuthentication no
AcceptEnv LANG LC_*
Subsystem sftp internal-sftp
UsePAM no
UseDNS no
PidFile none
"""
_SUDOERS = """\
Defaults env_reset, use_pty
Defaults secure_path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
root ALL=(ALL:ALL) ALL
@includedir /etc/sudoers.d
"""


class KeyPair(NamedTuple):
    """private: OpenSSH's file format. public: OpenSSH's one line."""

    private: bytes
    public: str


def new_key() -> KeyPair:
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    return KeyPair(private, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode())


def write_secret(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(content)


class Disk:
    """A folder whose parts a host mounts at their places; it outlives the host's boots."""

    def __init__(self, folder: Path, etc: Path, name: str, client_key: str) -> None:
        """`etc` is where the copy of this machine's goes: on a disk, its thousand files would take most of the time."""
        self.folder, self.etc = folder, etc
        folder.mkdir(mode=0o700)
        etc.mkdir(mode=0o755)
        subprocess.run(["cp", "-a", "/etc/.", str(etc)], check=True)
        for part in OWN + MIRRORED:
            (folder / part).mkdir(mode=0o755, parents=True)
        (folder / "root").chmod(0o711)  # Python may be in there
        (folder / "var/tmp").chmod(0o1777)
        self._users()
        (etc / "hostname").write_text(f"{name}\n")
        (etc / "hosts").unlink()
        (etc / "hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {name}\n")
        write_secret(etc / "sudoers", _SUDOERS.encode())
        for own in ("sudoers.d", "ssh"):
            shutil.rmtree(etc / own, ignore_errors=True)
            (etc / own).mkdir(mode=0o755)
        (etc / "ssh" / "sshd_config").write_text(_SSHD)
        self.change_host_key()
        self._home(client_key)
        for part in MIRRORED:
            self._mirror(part)

    def change_host_key(self) -> str:
        """A new one in place of the one there is; its public half."""
        private, self.host_key = new_key()
        write_secret(self.etc / "ssh/ssh_host_ed25519_key", private)
        return self.host_key

    def _users(self) -> None:
        """One user more. A machine that has one of that name loses it; nobody has a password."""
        added = {
            "passwd": f"{USER}:x:{UID}:{UID}::/home/{USER}:/bin/bash",
            "group": f"{USER}:x:{UID}:",
            "shadow": f"{USER}:*:19000:0:99999:7:::",
        }
        for file, line in added.items():
            path = self.etc / file
            kept = [line for line in path.read_text().splitlines() if not line.startswith(f"{USER}:")]
            if file == "shadow":
                kept = [re.sub(r"^([^:]*):[^:]*:", r"\1:*:", line) for line in kept]
            path.write_text("\n".join([*kept, line]) + "\n")

    def _home(self, client_key: str) -> None:
        home, skeleton = self.folder / "home" / USER, self.etc / "skel"
        shutil.copytree(skeleton, home) if skeleton.is_dir() else home.mkdir()
        (home / ".ssh").mkdir(mode=0o700)
        write_secret(home / ".ssh" / "authorized_keys", f"{client_key}\n".encode())
        for path in [home, *home.rglob("*")]:
            shutil.chown(path, UID, UID)

    def _mirror(self, part: str) -> None:
        """Links as they are, and something to mount each other entry on."""
        for entry in mirrored(part):
            ours = self.folder / part / entry.name
            if entry.is_symlink():
                ours.symlink_to(entry.readlink())
            elif entry.is_dir():
                ours.mkdir()
            else:
                ours.touch()


def mirrored(part: str) -> list[Path]:
    """This machine's entries there. Its own installation of what is tested stays out of sight."""
    return [entry for entry in Path("/", part).iterdir() if not entry.name.startswith("pareto")]

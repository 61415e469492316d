"""By which right this process may make the local testbed, learned first, with the standard library alone.

As root; else as root of a user namespace of its own, which anybody may make where the kernel allows it; else by sudo.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT, OWN, SUDO = "root", "a user namespace of its own", "sudo"
SSHD = ("/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/bin/sshd")

_APART = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
_OWN = ("unshare", "--user", "--map-root-user", *_APART)
"""When its first process dies, the kernel ends everything in it and takes its networks away."""
# AppArmor lets some make namespaces and forbids them every mount in there.
_TRY = "mount -t tmpfs tmpfs /run"
_TRY_OWN = f"{_TRY} && exec unshare --user --map-user=1 --map-group=1 true"
"""The second user namespace is for sshd: see `user_namespace`."""
_TRY_S = 10.0
CAPABILITIES = {"NET_ADMIN": 12, "SYS_ADMIN": 21}
"""The capabilities that root needs for it, with their numbers in capabilities(7)."""
_FILE = "--testbed FILE (SSH hosts), which needs neither"


class Forbidden(Exception):
    """No way to make the local testbed: what is missing, and what to do about it, in one line."""


@dataclass(frozen=True)
class Rights:
    """kind: ROOT, OWN or SUDO. prefix: of the argv of a program that is to have them."""

    kind: str
    prefix: tuple[str, ...]


def find(own_lacks: str = "") -> Rights:
    """The rights that there are; on a terminal sudo may ask for a password. own_lacks: what is needed and a user
    namespace would not give, in words. Raises Forbidden."""
    if (system := platform.system()) != "Linux":
        raise Forbidden(
            f"the local testbed is made of Linux's network namespaces, which {system} lacks: take a Linux machine (on "
            "Windows WSL 2), SSH hosts that are such (--testbed FILE), or --testbed simulated"
        )
    is_root = os.geteuid() == 0
    lacking = _lacking() if is_root else []
    needs = "the local testbed makes network namespaces, and"
    if is_root and not lacking:
        if not (refusal := _refusal("unshare", *_APART, "sh", "-c", _TRY)):
            # Docker mounts /proc/sys read-only, also where it gives the capabilities: a /proc of one's own is not.
            read_only = os.statvfs("/proc/sys").f_flag & os.ST_RDONLY
            return Rights(ROOT, ("unshare", "--mount-proc") if read_only else ())
        raise Forbidden(
            f"{needs} this machine refuses them to root ({refusal}): in a container, docker run --security-opt "
            f"apparmor=unconfined; or {_FILE}"
        )
    refusal = own_lacks or _refusal(*_OWN, "sh", "-c", _TRY_OWN)
    if not refusal:
        return Rights(OWN, _OWN)
    if not is_root and _sudo():
        return Rights(SUDO, ("sudo", "-n"))
    if own_lacks:
        raise Forbidden(own_lacks)
    if is_root:
        adds = " ".join(f"--cap-add {name}" for name in lacking)
        raise Forbidden(
            f"{needs} this container has no {' and no '.join(f'CAP_{name}' for name in lacking)}, and no user "
            f"namespaces in their place ({refusal}): docker run {adds} ..., or {_FILE}"
        )
    raise Forbidden(
        f"{needs} this user may make no user namespace for them ({refusal}) and has no sudo: permit one of the two, or "
        "run as root, or name SSH hosts by --testbed FILE"
    )


def sshd() -> str | None:
    """Where OpenSSH's server is; it refuses to run unless it is called by its full path."""
    return next((path for path in SSHD if Path(path).exists()), None)


def _lacking() -> list[str]:
    status = Path("/proc/self/status").read_text()
    effective = int(status.partition("CapEff:")[2].split()[0], 16)
    return [name for name, number in CAPABILITIES.items() if not effective >> number & 1]


def _refusal(*argv: str) -> str:
    """Why a command that makes namespaces and uses them fails; empty where it does not."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_TRY_S, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    words = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    return words[-1].strip() if done.returncode else ""


def _sudo() -> bool:
    """Whether sudo lets this user; asks for the password while there is a terminal in the foreground to ask on."""
    if shutil.which("sudo") is None:
        return False
    ask, errors = (["-v"], None) if sys.stdin.isatty() else (["-n", "true"], subprocess.DEVNULL)
    return subprocess.run(["sudo", *ask], check=False, stderr=errors).returncode == 0  # noqa: S603, S607

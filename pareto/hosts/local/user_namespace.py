"""A testbed's own user namespace: what its builder puts in place there first, as root there and nowhere else.

All but two things die with the namespace. The folders of what was shipped lie on disk, and a cgroup outlives who is
in it: what is noted of them (`journal`) must, too, and lies in a folder of the user's own.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from pareto.hosts.local import journal
from pareto.hosts.local.sshd import Accounts
from pareto.protocol.jsonlines import Refused

ACCOUNT = "pareto"
"""Whom the driver logs in as: the user who runs it, under a name, a shell and a home that are the same everywhere."""
PORT = 2222
"""The port of sshd, which is not root here."""
_PASSWD = Path("/run/passwd")
_MS_BIND = 4096
_ELSEWHERE = "take it away, or set TMPDIR to a folder of your own"


class UserNamespace:
    """The user namespace of a process just started in it. uid: the user's own number outside. Raises Refused."""

    def __init__(self, uid: int) -> None:
        # To sshd root is somebody who separates privileges and sets groups, which nobody can here.
        self._uid = uid or 1000
        temporary = Path(tempfile.gettempdir()).resolve()
        self._folder = temporary / f"pareto-{uid}"
        self._lock = _locked(self._folder)
        covered = os.open(temporary, os.O_PATH | os.O_CLOEXEC)
        try:
            _mount("tmpfs", Path("/run"), "tmpfs", data="mode=755")
            if temporary.is_relative_to("/run"):
                _bind(covered, temporary)
            _bind(self._lock, journal.ROOT)
            others = Path("/etc/passwd").read_text()
            _PASSWD.write_text(f"{ACCOUNT}:*:{self._uid}:{self._uid}::/:/bin/sh\n{others}")
            _mount(str(_PASSWD), Path("/etc/passwd"), flags=_MS_BIND)
            with IPRoute() as ip:
                ip.link("set", index=1, state="up")
        except (OSError, NetlinkError) as error:
            self.close()
            raise Refused(f"a user namespace of its own cannot be set up: {error}") from error
        finally:
            os.close(covered)

    def accounts(self) -> Accounts:
        """For an sshd that is the user himself, by a number that his files have there as well."""
        run_as = ("unshare", "--user", f"--map-user={self._uid}", f"--map-group={self._uid}", "--")
        return Accounts((ACCOUNT,), PORT, run_as)

    def close(self) -> None:
        """Take the journal's folder away, unless another testbed of the user's has something in it."""
        with suppress(OSError):
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._folder.rmdir()
        os.close(self._lock)


def _locked(folder: Path) -> int:
    """A folder that nobody else writes to, and that nobody takes away while this is open. Raises Refused."""
    while True:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise Refused(f"{folder} is not a folder of yours ({error.strerror}): {_ELSEWHERE}") from None
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise Refused(f"{folder} belongs to somebody else, or others may write to it: {_ELSEWHERE}")
        if status.st_nlink:  # none: it was taken away before we had the lock
            return descriptor
        os.close(descriptor)


def _bind(folder: int, target: Path) -> None:
    """Have an open folder at a place as well, also where something else is mounted over its own."""
    target.mkdir(parents=True, exist_ok=True)
    _mount(f"/proc/self/fd/{folder}", target, flags=_MS_BIND)


def _mount(source: str, target: Path, kind: str = "none", flags: int = 0, data: str = "") -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    words = (source.encode(), str(target).encode(), kind.encode())
    if libc.mount(*words, ctypes.c_ulong(flags), data.encode()):
        number = ctypes.get_errno()
        raise OSError(number, f"mount {source} at {target}: {os.strerror(number)}")
